"""``lbd unload``: one bundle, or a namespace's bundles one by one, to a given broker or one that lbd picks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from lbd.bundles import one_bundle
from lbd.cli.completion import brokers, bundles_or_namespaces
from lbd.cli.options import override_option, remote_options, timeout_option
from lbd.cli.render import plain
from lbd.cli.request import (
    WITHOUT_APPLY,
    api_client,
    by,
    full_name,
    handing,
    one_line,
    override_reason,
    print_note,
    print_result,
    read,
    reason_option,
    topic_bundles,
)
from lbd.errors import RefusedError, UsageError
from lbd.pulsar.paths import bounds
from lbd.reason import Reason
from lbd.store.control import REFUSED, RequestResult, UnloadRequest, new_id
from lbd.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.cli.options import Read
    from lbd.config import Settings

FAILURES_THAT_STOP = 2
"""Failures in a row after which a namespace is stopped."""

WANTED = "tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, tenant/namespace or persistent://tenant/namespace/topic"

UNAPPLIED = "Nothing was done; --apply does it."

HOLDS = (
    Reason.IN_BROKER_SHEDDING,
    Reason.PAUSED,
    Reason.QUIET_HOURS,
    Reason.LEADER_UNREACHABLE,
    Reason.MEMBERSHIP_CHANGED,
    Reason.TOO_FEW_BROKERS,
    Reason.NO_IMPROVEMENT,
    Reason.NOT_SERVED,
    Reason.HOUR_UNLOADS,
    Reason.DAY_UNLOADS,
    Reason.HOUR_TRAFFIC,
)
"""Refusals that hold for all bundles of a namespace."""


@click.command("unload")
@click.argument("what", metavar="BUNDLE|TOPIC|NAMESPACE", shell_complete=bundles_or_namespaces)
@click.option(
    "--to",
    "destination",
    metavar="BROKER",
    shell_complete=brokers,
    help="Destination: host:port, or the host.  [default: lbd picks one]",
)
@click.option("--apply", "applies", is_flag=True, help="Unload, and verify that it landed.")
@reason_option
@override_option
@timeout_option
@remote_options
@click.pass_context
def unload(
    ctx: click.Context,
    read: Read,
    form: str,
    what: str,
    destination: str | None,
    reason: str,
    override: str | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    applies: bool,
) -> None:
    """Show where BUNDLE (tenant/namespace/0xLLLLLLLL_0xUUUUUUUU) would go, and the scores before and after.

    A TOPIC stands for its bundle: persistent://tenant/namespace/topic, or segment://tenant/namespace/topic/0000-7fff-1
    of a scalable topic; of a partitioned topic, name one partition. Without --to, lbd picks a destination that all
    guardrails allow. With --apply, unload it at once, and verify that it landed there. The owned bundles of a NAMESPACE
    (tenant/namespace) are moved one after another, as far as limits allow. A running lbd does it with its own checks
    and journal; if none runs, this command does it itself. Exit code 0 shown or landed, 4 refused, 5 failed, landed
    elsewhere, or no response in time.

    \b
    Example: lbd unload public/default/0x00000000_0x40000000 --to broker-3:8080 --apply
    """
    if (override is not None or reason) and not applies:
        raise UsageError(WITHOUT_APPLY)
    is_single = what.count("/") != 1
    if "/" not in what:
        raise UsageError(f"{what!r} is no bundle, topic or namespace; wanted {WANTED}")
    if is_single and "://" not in what:
        bounds(what)
    passes, settings = override_reason(override), read().settings
    if "://" in what:
        what = one_bundle(what, topic_bundles(settings, what, api_url))
    broker = full_name(_broker(destination), settings, api_url) if destination is not None else None

    def ask(bundle: str) -> UnloadRequest:
        name, now = new_id()
        return UnloadRequest(name, bundle, broker, passes, by(), now, now + timeout_seconds, reason)

    if not applies:
        _preview(settings, form, what, broker, api_url)
        return
    if is_single:
        with handing(settings, api_url) as hand_over:
            answer = hand_over(ask(what))
        print_result(form, answer, answer.sentence)
        ctx.exit(answer.exit_code)
    bundles = _owned_bundles(settings, what, broker, api_url)
    answers = _all(settings, form, bundles, ask, api_url)
    print_result(form, answers, _summary(what, len(bundles), answers))
    ctx.exit(max(answer.exit_code for answer in answers))


def _preview(settings: Settings, form: str, what: str, broker: str | None, api_url: str | None) -> None:
    """Print where one bundle would go, or which bundles of a namespace would be tried."""
    if what.count("/") != 1:
        shown = _shown(settings, what, broker, api_url)
        print_result(form, shown, f"{shown.sentence} {UNAPPLIED}")
        return
    bundles = _owned_bundles(settings, what, broker, api_url)
    number = counted(len(bundles), "bundle")
    words = f"Would move {number} one after another, each judged when its turn comes. {UNAPPLIED}"
    listed = {"namespace": what, "bundles": bundles}
    print_result(form, listed, words, lambda: click.echo("\n".join(map(plain, bundles))))


def _shown(settings: Settings, bundle: str, broker: str | None, api_url: str | None) -> RequestResult:
    if (client := api_client(settings, api_url)) is not None:
        query: dict[str, Any] = {"destination": broker} if broker is not None else {}
        return read(client.get("unload", *bundle.split("/"), **query), RequestResult)
    from lbd.operations.place import show_unload  # noqa: PLC0415 - usage errors need no NumPy

    return show_unload(settings, bundle, broker)


def _broker(destination: str) -> str:
    broker = one_line(destination)
    if not broker:
        raise UsageError("--to: the broker is empty; wanted host:port, or no --to at all for one that lbd picks")
    return broker


def _owned_bundles(settings: Settings, namespace: str, broker: str | None, api_url: str | None) -> list[str]:
    if (client := api_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        owned = remote.bundles(client, namespace=namespace)
    else:
        from lbd.operations.place import owned_bundles  # noqa: PLC0415 - one bundle is moved without asking the cluster

        owned = owned_bundles(settings, namespace)
    if not owned:
        raise RefusedError(f"{namespace}: nobody owns a bundle of it, nothing to unload; lbd place names their brokers")
    bundles = [bundle for bundle, owner in owned.items() if owner != broker]
    if not bundles:
        raise RefusedError(f"{namespace}: {broker} has all of its {len(owned)} owned bundles already")
    return bundles


def _all(
    settings: Settings, form: str, bundles: list[str], ask: Callable[[str], UnloadRequest], api_url: str | None
) -> list[RequestResult]:
    """Print results as they come; stop a namespace after failures."""
    answers: list[RequestResult] = []
    with handing(settings, api_url) as hand_over:
        for number, bundle in enumerate(_paced(bundles, settings.guardrails.unload_spacing_seconds), start=1):
            answers.append(hand_over(ask(bundle)))
            print_note(form, f"{number} of {len(bundles)}  {_named(bundle, answers[-1])}")
            if _stopped(answers):
                break
    return answers


def _paced(bundles: list[str], seconds: float) -> Iterator[str]:
    for number, bundle in enumerate(bundles):
        if number:
            time.sleep(seconds)
        yield bundle


def _named(bundle: str, answer: RequestResult) -> str:
    return answer.sentence if bundle in answer.sentence else f"{bundle}: {answer.sentence}"


def _stopped(answers: list[RequestResult]) -> str:
    """Why the namespace is stopped; empty to continue."""
    last = answers[-FAILURES_THAT_STOP:]
    if len(last) == FAILURES_THAT_STOP and all(answer.exit_code not in {0, REFUSED} for answer in last):
        return f"{FAILURES_THAT_STOP} in a row failed"
    return next((reason.label for reason in HOLDS if _refused_for(answers[-1].sentence, reason)), "")


def _refused_for(sentence: str, reason: Reason) -> bool:
    """Whether the refusal has this reason, in the words of a turn or of a broker's check."""
    return sentence.startswith(f"Refused: {reason.label}") or f"may have it: {reason.label}: " in sentence


def _summary(namespace: str, number: int, answers: list[RequestResult]) -> str:
    landed = sum(answer.exit_code == 0 for answer in answers)
    refused = sum(answer.exit_code == REFUSED for answer in answers)
    rest = number - len(answers)
    words = [f"{landed} of {number} landed", f"{refused} refused", f"{len(answers) - landed - refused} failed"]
    stopped = f"; stopped, {rest} not tried: {_stopped(answers)}" if rest else ""
    return f"{namespace}: {', '.join(words)}{stopped}."
