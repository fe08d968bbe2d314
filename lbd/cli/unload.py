"""``lbd unload``: one bundle, or all of a namespace one after another, to a broker named or picked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lbd.cli.asking import by, handing, new_id, one_line, reason_of, say
from lbd.cli.options import format_option, override_option, settings_options, timeout_option
from lbd.cli.render import json_out
from lbd.errors import RefusedError, UsageError
from lbd.pulsar.paths import bounds
from lbd.reason import Reason
from lbd.record.control import REFUSED, Answer, UnloadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.cli.options import Read
    from lbd.config import Settings

FAILURES_THAT_STOP = 2
"""In a row: something is wrong there that a third would not mend."""

WANTED = "tenant/namespace/0xLLLLLLLL_0xUUUUUUUU or tenant/namespace"

HOLDS = (
    Reason.IN_BROKER_SHEDDING,
    Reason.PAUSED,
    Reason.QUIET_HOURS,
    Reason.LEADER_UNREACHABLE,
    Reason.MEMBERSHIP_CHANGED,
    Reason.TOO_FEW_BROKERS,
    Reason.NO_IMPROVEMENT,
    Reason.HOUR_UNLOADS,
    Reason.DAY_UNLOADS,
)
"""What refuses one bundle with these words refuses them all."""


@click.command("unload")
@click.argument("what", metavar="BUNDLE|NAMESPACE")
@click.option("--to", "destination", metavar="BROKER", help="host:port of the broker to own it; else lbd picks one.")
@override_option
@timeout_option
@format_option
@settings_options
@click.pass_context
def unload(
    ctx: click.Context,
    read: Read,
    form: str,
    what: str,
    destination: str | None,
    override: str | None,
    timeout_seconds: float,
) -> None:
    """Move BUNDLE (tenant/namespace/0xLLLLLLLL_0xUUUUUUUU) to a broker at once, and prove that it landed there.

    Without --to lbd picks a broker to which every guardrail lets it go. Of a NAMESPACE (tenant/namespace) all bundles
    that somebody owns are moved so, one after another, as far as the limits go.
    A running lbd does it with its own checks and journal; with none running this command does it itself.
    Exit code 0 landed, 4 refused, 5 failed, landed elsewhere, or no answer in time.

    \b
    Example: lbd unload public/default/0x00000000_0x40000000 --to broker-3:8080
    """
    one = what.count("/") != 1
    if "/" not in what:
        raise UsageError(f"{what!r} is no bundle, and no namespace; wanted {WANTED}")
    if one:
        bounds(what)
    reason, broker = reason_of(override), _broker(destination)
    settings = read().settings

    def ask(bundle: str) -> UnloadRequest:
        name, now = new_id()
        return UnloadRequest(name, bundle, broker, reason, by(), now, now + timeout_seconds)

    if one:
        with handing(settings) as hand_over:
            answer = hand_over(ask(what))
        if form == "json":
            json_out(answer)
        say(form, answer.sentence)
        ctx.exit(answer.exit_code)
    bundles = _owned_bundles(settings, what, broker)
    answers = _all(settings, form, bundles, ask)
    if form == "json":
        json_out(answers)
    say(form, _summary(what, len(bundles), answers))
    ctx.exit(max(answer.exit_code for answer in answers))


def _broker(destination: str | None) -> str | None:
    broker = one_line(destination) if destination is not None else None
    if broker == "":
        raise UsageError("--to: the broker is empty; wanted host:port, or no --to at all for one that lbd picks")
    return broker


def _owned_bundles(settings: Settings, namespace: str, broker: str | None) -> list[str]:
    from lbd.daemon.targets import owned_bundles  # noqa: PLC0415 - one bundle is handed over without asking the cluster

    owned = owned_bundles(settings, namespace)
    if not owned:
        raise RefusedError(f"{namespace}: nobody owns a bundle of it, nothing to unload; lbd place tells where they go")
    bundles = [bundle for bundle, owner in owned.items() if owner != broker]
    if not bundles:
        raise RefusedError(f"{namespace}: {broker} has all of its {len(owned)} owned bundles already")
    return bundles


def _all(settings: Settings, form: str, bundles: list[str], ask: Callable[[str], UnloadRequest]) -> list[Answer]:
    """The answers, told as they come; a namespace is left alone when it goes wrong."""
    answers: list[Answer] = []
    with handing(settings) as hand_over:
        for number, bundle in enumerate(_paced(bundles, settings.guardrails.unload_spacing_seconds), start=1):
            answers.append(hand_over(ask(bundle)))
            say(form, f"{number} of {len(bundles)}  {_named(bundle, answers[-1])}")
            if _stopped(answers):
                break
    return answers


def _paced(bundles: list[str], seconds: float) -> Iterator[str]:
    for number, bundle in enumerate(bundles):
        if number:
            time.sleep(seconds)
        yield bundle


def _named(bundle: str, answer: Answer) -> str:
    return answer.sentence if bundle in answer.sentence else f"{bundle}: {answer.sentence}"


def _stopped(answers: list[Answer]) -> str:
    """Why no further bundle is asked for."""
    last = answers[-FAILURES_THAT_STOP:]
    if len(last) == FAILURES_THAT_STOP and all(answer.exit_code not in {0, REFUSED} for answer in last):
        return f"{FAILURES_THAT_STOP} in a row failed"
    return next((reason.label for reason in HOLDS if _says(answers[-1].sentence, reason)), "")


def _says(sentence: str, reason: Reason) -> bool:
    """Whether it refuses for this reason: a turn's own words, or those of what is asked of each broker."""
    return sentence.startswith(f"Refused: {reason.label}") or f"may have it: {reason.label}: " in sentence


def _summary(namespace: str, wanted: int, answers: list[Answer]) -> str:
    landed = sum(answer.exit_code == 0 for answer in answers)
    refused = sum(answer.exit_code == REFUSED for answer in answers)
    left = wanted - len(answers)
    words = [f"{landed} of {wanted} landed", f"{refused} refused", f"{len(answers) - landed - refused} failed"]
    ended = f"; stopped, {left} not tried: {_stopped(answers)}" if left else ""
    return f"{namespace}: {', '.join(words)}{ended}."
