"""Commands for the running lbd, and the identity of the caller."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, overload

import click
import msgspec

from lbd.bundles import TopicBundle
from lbd.cli.render import json_out, plain
from lbd.errors import ObserveError, UsageError
from lbd.files import user_name
from lbd.model import brokers_named
from lbd.store.control import RequestResult
from lbd.store.status import Status, running
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.api.client import Client
    from lbd.config import Settings
    from lbd.store.control import Request


T = TypeVar("T")
Command = TypeVar("Command", bound="Callable[..., Any]")


def api_client(settings: Settings, api_url: str | None) -> Client | None:
    """The lbd of ``--api``; None without the option."""
    if api_url is None:
        return None
    from lbd.api.client import Client  # noqa: PLC0415 - a command that acts by itself needs no client

    return Client(api_url, settings.api.token_file)


def lbd_client(settings: Settings, api_url: str | None) -> Client | None:
    """The lbd of ``--api``, else the one that holds the state directory; None if none does."""
    if api_url is not None or (pid := running(settings.state_dir)) is None:
        return api_client(settings, api_url)
    from lbd.api.client import LocalClient  # noqa: PLC0415 - see api_client

    return LocalClient(settings.state_dir, process(pid))


def orders_client(settings: Settings, api_url: str | None) -> Client | None:
    """The lbd that a pause, a resume or a release goes to; None where the command changes the orders itself.

    Where several lbds share their orders, an lbd that runs takes them itself, as only the leader may.
    """
    return lbd_client(settings, api_url) if api_url is not None or settings.leader.enabled else None


def reaching(api_url: str | None) -> str:
    """Words that make a further command reach the same lbd; empty for the one of this machine."""
    return f" --api {api_url}" if api_url is not None else ""


def send_command(client: Client, command: Request) -> dict[str, Any]:
    """The response, or the result of a command that was refused or failed; waits up to the command's timeout."""
    waiting = duration_text(command.expires_at - command.at)
    click.echo(f"Asked {client.name}; waiting up to {waiting} for its answer.", err=True)
    return client.command(command)


@contextmanager
def handing(settings: Settings, api_url: str | None) -> Iterator[Callable[[Request], RequestResult]]:
    """A callable that executes a command and returns its result: in an lbd that runs, else in this process.

    Raises :class:`~lbd.errors.RefusedError` if another lbd has locked the state directory since.
    """
    client = lbd_client(settings, api_url)
    if client is not None:
        yield lambda command: read(send_command(client, command), RequestResult)
        return
    from lbd.daemon import standalone  # noqa: PLC0415 - a running lbd needs no parts that act

    with standalone.working(settings) as work:
        yield work


def full_name(broker: str, settings: Settings, api_url: str | None) -> str:
    """``host:port`` of an active broker; a name without a port is looked up.

    Raises :class:`~lbd.errors.UsageError` if it is that of none, or of several.
    """
    if ":" in broker:
        return broker
    client = api_client(settings, api_url)
    if client is not None:
        active = [row.id for row in read(client.get("status"), Status).brokers]
    else:
        from lbd.pulsar.admin import Admin  # noqa: PLC0415 - a full name needs no request

        active = Admin(settings.pulsar).active_brokers()
    fits = brokers_named(broker, active)
    if len(fits) == 1:
        return fits[0]
    problem = f"may be {' or '.join(fits)}" if fits else "is no active broker"
    raise UsageError(f"{broker!r} {problem}; wanted one of {', '.join(fits or active)}")


def topic_bundles(settings: Settings, topic: str, api_url: str | None) -> list[TopicBundle]:
    """The bundle of a topic, or of each active segment of a scalable one, from the brokers or the lbd of ``--api``."""
    client = api_client(settings, api_url)
    if client is not None:
        return remote_topic_bundles(client, topic)
    from lbd.operations import place  # noqa: PLC0415 - a bundle needs no request
    from lbd.pulsar.admin import Admin  # noqa: PLC0415

    return place.topic_bundles(Admin(settings.pulsar), topic)


def remote_topic_bundles(client: Client, topic: str) -> list[TopicBundle]:
    """The same from a client."""
    return read(client.get("bundles", topic=topic), dict[str, list[TopicBundle]])["topics"]


@overload
def read(response: object, kind: type[T]) -> T: ...
@overload
def read(response: object, kind: Any) -> Any: ...  # noqa: ANN401 - a union of types is no type to mypy
def read(response: object, kind: Any) -> Any:
    """Decode a response. Raises :class:`ObserveError` if it has another shape."""
    try:
        return msgspec.convert(response, kind)
    except msgspec.ValidationError as error:
        raise ObserveError(f"the answer of that lbd cannot be read: {error}; is it another version?") from error


WITHOUT_APPLY = "--override and --reason go with --apply; without it nothing is done"


def reason_option(command: Command) -> Command:
    """``--reason TEXT`` of a command that acts: one line, empty where none is given."""

    def line(_ctx: click.Context, _param: click.Parameter, words: str) -> str:
        return one_line(words)

    words = "Why, for whoever reads the history, the log or the status."
    return click.option("--reason", default="", callback=line, metavar="TEXT", help=words)(command)


def override_reason(override: str | None) -> str | None:
    """The reason of ``--override`` in one line. Raises :class:`UsageError` if it is empty."""
    reason = one_line(override) if override is not None else None
    if reason == "":
        raise UsageError("--override: the reason is empty; say why limits may be passed")
    return reason


def print_result(form: str, value: object, sentence: str, show: Callable[[], object] = lambda: None) -> None:
    """Print a result, as JSON or as ``show`` prints it, and its sentence as a note."""
    if form == "json":
        json_out(value)
    else:
        show()
    print_note(form, sentence)


def print_answer(form: str, value: object, sentence: str, show: Callable[[], object]) -> None:
    """Print a result, as JSON or as ``show`` prints it, after its sentence: the answer comes first."""
    print_note(form, sentence)
    if form == "json":
        json_out(value)
    else:
        show()


def print_note(form: str, sentence: str) -> None:
    """Print a note; to stderr if stdout has JSON."""
    click.echo(plain(sentence), err=form == "json")


def one_line(words: str) -> str:
    """The text without line ends and control characters."""
    return " ".join(plain(words).split())


def by() -> str:
    """The user who runs the command; behind sudo, the original user."""
    return one_line(os.environ.get("SUDO_USER") or user_name(os.getuid()))


def process(pid: int) -> str:
    """The running lbd as text; 0 is a process whose id is not known yet."""
    return f"lbd (process {pid or '?'})"
