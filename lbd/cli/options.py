"""Options that commands share, and the settings read through them."""

from __future__ import annotations

import os
import re
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
import yaml

from lbd.config import environment, load
from lbd.documents import read_yaml
from lbd.errors import UsageError
from lbd.store.database import STORE_NAME
from lbd.text import DAY_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from lbd.config import Loaded, Settings

    Read: TypeAlias = Callable[..., Loaded]

LONGEST_HOURS = 366 * 24
Command = TypeVar("Command", bound="Callable[..., Any]")


class Number(click.FloatRange):
    """A range that excludes NaN, which no bound excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """The number, or an error that names it."""
        number = super().convert(value, param, ctx)
        if number != number:  # noqa: PLR0124
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def given(context: click.Context | None) -> dict[str, Any]:
    """The options of a command and of those before it, as lbd and lbd history; of one given twice the last."""
    values: dict[str, Any] = {}
    while context is not None:
        values = {key: value for key, value in context.params.items() if value} | values
        context = context.parent
    return values


def settings_options(command: Command) -> Command:
    """``--config`` and ``--admin-url``, accepted after the subcommand as well as before it.

    The command gets ``read``, which loads file, environment and options anew at each call. Options after the
    subcommand win over options before it, and settings that are given to ``read`` over both.
    """

    @click.option(
        "--config", "config_file", metavar="FILE", help="Settings file.  [default: /etc/lbd/lbd.yaml if it exists]"
    )
    @click.option(
        "--admin-url", "admin_urls", multiple=True, metavar="URL", help="Web service URL of a broker; repeatable."
    )
    @wraps(command)
    def reading(*args: Any, config_file: str | None, admin_urls: tuple[str, ...], **others: Any) -> Any:  # noqa: ANN401
        above = given(click.get_current_context().parent)
        urls = admin_urls or above.get("admin_urls") or ()

        def read(*, to_look: bool = False, **more: Any) -> Loaded:  # noqa: ANN401 - as options have them
            chosen = config_file or above.get("config_file") or os.environ.get("LBD_CONFIG")
            options = {"pulsar": {"admin_urls": list(urls)}} if urls else {}
            return load(Path(chosen) if chosen else None, environment(), options | more, to_look=to_look)

        return command(*args, read=read, **others)

    return cast("Command", reading)


def settings_to_look(read: Read) -> Settings:
    """The settings of a command that shows what an lbd has done; what is wrong of them is said and left out.

    An lbd that runs goes on with settings that it has read before, and is to be seen most of all when they are wrong.
    Where the directory that is left has the state of none, they are an error as for any other command.
    """
    loaded = read(to_look=True)
    if loaded.problems:
        if not (loaded.settings.state_dir / STORE_NAME).exists():
            read()
        where = f"left out here, where state_dir is {loaded.settings.state_dir}"
        note = f"{where}; an lbd that runs keeps the settings that it has"
        click.echo("\n".join([*loaded.problems, note]), err=True)
    return loaded.settings


def format_option(command: Command) -> Command:
    """``--format text|json``: JSON goes to stdout, all other text to stderr."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(command)


def api_option(command: Command) -> Command:
    """``--api URL``: an lbd on another machine."""
    words = "Use the lbd whose API is at URL (token from api.token_file) instead of the local state_dir."
    return click.option("--api", "api_url", metavar="URL", help=words)(command)


def remote_options(command: Command) -> Command:
    """``--api``, ``--format``, ``--config`` and ``--admin-url``: those of a command that asks a running lbd."""
    return api_option(format_option(settings_options(command)))


def override_option(command: Command) -> Command:
    """``--override REASON``: pass limits, with the reason that is recorded."""
    words = "Pass limits such as cool-downs and a pause. Safety rules still hold."
    return click.option("--override", metavar="REASON", help=words)(command)


def timeout_option(command: Command) -> Command:
    """``--timeout SECONDS``: how long to wait for a running lbd."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=Number(1, DAY_SECONDS),
        default=120,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a running lbd.",
    )(command)


def assignment(text: str, option: str = "--set") -> tuple[str, object]:
    """Key and value of a ``--set KEY=VALUE``; the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{option} {text!r}: wanted KEY=VALUE")
    try:
        return key.strip(), read_yaml(value)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{option} {text!r}: the value is not YAML") from error


def new_directory(directory: Path, option: str, *, parents: bool = False) -> None:
    """Make a directory, or accept an empty one. Raises :class:`UsageError` if it cannot be made or is not empty."""
    try:
        directory.mkdir(parents=parents, exist_ok=True)
        occupied = any(directory.iterdir())
    except OSError as error:
        raise UsageError(
            f"{option} {directory}: cannot be written: {error.strerror}; wanted a new directory"
        ) from error
    if occupied:
        raise UsageError(f"{option} {directory}: exists already and is not empty; name a new directory")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {directory}: not yours to write to; name a new directory")


def recording_header(file: Path, settings: Settings, interval_seconds: float, source: str) -> dict[str, object]:
    """The header of a recording that is made under these settings."""
    return {
        "id": file.name.partition(".")[0],
        "strategy": settings.strategy,
        "settings": settings.strategy_settings.model_dump(mode="json", exclude_unset=True),
        "weights": settings.weights.model_dump(mode="json"),
        "interval_s": interval_seconds,
        "grace_s": settings.guardrails.cool_down_minutes * 60,
        "source": source,
    }


_UNITS_SECONDS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile("".join(rf"(?:(?P<{unit}>[0-9]{{1,9}}){unit})?" for unit in _UNITS_SECONDS))
LONGEST_SECONDS = 3650 * 86_400


def duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A click callback: seconds of ``90s``, ``15m``, ``2h``, ``1d`` or ``1h30m``; anything else is a usage error."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value)
    parts = match.groupdict("0") if match else {}
    seconds = sum(int(number) * _UNITS_SECONDS[unit] for unit, number in parts.items())
    if not 0 < seconds <= LONGEST_SECONDS:
        examples = "wanted 90s, 15m, 2h, 1d, 1h30m or the like, above 0 and up to 3650d"
        raise click.BadParameter(f"{value!r} is no duration; {examples}", ctx, param)
    return float(seconds)
