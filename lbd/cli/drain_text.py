"""A drain or a fill as a person and a program read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from lbd.cli.drain_words import drain_words
from lbd.cli.operate_text import console
from lbd.cli.render import amount, bar, plain, table
from lbd.cli.times import spoken
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.daemon.draining.showing import Shown

LINES = 20
"""Bundles that are printed each; ``--all`` prints every one."""


def show(found: Shown, *, everything: bool) -> None:
    """Scores now and then, which bundle goes where, and what stays."""
    out, look = console(), found.look
    scores = table(("broker", "left"), ("score", "right"), ("then", "right"), ("", "left"), ("given", "right"))
    for broker in sorted(look.before, key=lambda one: -look.after[one]):
        number = sum(unload.destination == broker for unload in look.plan.unloads)
        then = look.after[broker]
        row = amount(look.before[broker], digits=1), amount(then, digits=1), bar(then, "green"), str(number)
        scores.add_row(Text(plain(broker)), *row)
    out.print(scores)
    most = len(look.plan.unloads) if everything else LINES
    if look.plan.unloads:
        rows = table(("unload", "left"), ("from", "left"), ("to", "left"), ("msg/s", "right"), ("MB/s", "right"))
        for one in look.plan.unloads[:most]:
            ends = plain(one.bundle), plain(one.source), plain(one.destination or "")
            rows.add_row(*ends, amount(one.msg_rate), amount(one.throughput, 1e6, 1))
        out.print(rows)
    if (more := len(look.plan.unloads) - most) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more (--all)", "dim"))
    for skip in look.plan.stay[: None if everything else LINES]:
        told = f": {skip.detail}" if skip.detail else ""
        out.print(Text(plain(f"stays: {skip.what}: {skip.reason.label}{told}"), "yellow"))
    if not everything and (more := len(look.plan.stay) - LINES) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more stay (--all)", "dim"))


def document(found: Shown) -> dict[str, Any]:
    """The same as JSON."""
    look = found.look
    return {
        "taken_at": look.observation.snapshot.taken_at,
        "brokers": [
            {"id": broker, "score": round(score, 3), "predicted": round(look.after[broker], 3)}
            for broker, score in look.before.items()
        ],
        "unloads": [
            {
                "bundle": one.bundle,
                "source": one.source,
                "destination": one.destination,
                "msg_rate": round(one.msg_rate, 3),
                "throughput": round(one.throughput, 3),
            }
            for one in look.plan.unloads
        ],
        "stay": [{"bundle": one.what, "reason": one.reason.label, "detail": one.detail} for one in look.plan.stay],
        "left_to_pulsar": [one.what for one in look.alone],
        "hold": None if look.hold is None else {"reason": look.hold[0].label, "detail": look.hold[1]},
        "cannot_spare": found.cannot_spare or None,
        "eta_seconds": round(found.eta_seconds, 1),
        "drain": None if found.drain is None else msgspec.to_builtins(found.drain),
    }


def drain_sentence(found: Shown, broker: str, now: float) -> str:
    """Whether the others hold, and how long it would take."""
    look = found.look
    told = f"Drained: {drain_words(found.drain, now)}. " if found.drain is not None else ""
    if found.cannot_spare:
        return f"{told}Refused: {found.cannot_spare}."
    if look.hold is not None:
        return f"{told}Refused: {look.hold[0].label}: {look.hold[1]}."
    top = max(look.after, key=lambda one: look.after[one], default="")
    holds = f"The cluster can do without {broker}: {top} would be the highest with {look.after[top]:.1f} points"
    stay = f"; {counted(len(look.plan.stay), 'bundle')} would stay" if look.plan.stay else ""
    return f"{told}{holds}{stay}. {pace_words(found)}"


def fill_sentence(found: Shown, broker: str) -> str:
    """What the broker would get."""
    look = found.look
    if look.hold is not None:
        return f"Refused: {look.hold[0].label}: {look.hold[1]}."
    before, after = look.before[broker], look.after[broker]
    mean = sum(look.before.values()) / len(look.before)
    if not look.plan.unloads:
        return f"{broker} has {before:.1f} points, the mean is {mean:.1f}: nothing that would help may move."
    return f"{broker} would go from {before:.1f} to {after:.1f} points, the mean is {mean:.1f}. {pace_words(found)}"


def pace_words(found: Shown) -> str:
    """How many, how fast, how long."""
    number = len(found.look.plan.unloads)
    if not number:
        return "There is nothing to move."
    once = f", {min(found.at_once, number)} at once" if number > 1 else ""
    return f"{counted(number, 'bundle')}{once}: about {spoken(found.eta_seconds)}; --apply moves them."
