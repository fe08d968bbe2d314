"""A drain or a fill as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from lbd.cli.drain_words import drain_words
from lbd.cli.operate_text import console
from lbd.cli.render import amount, bar, plain, table
from lbd.cli.times import spoken
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.api.shapes import DrainPlan

LINES = 20
"""Bundles that are printed each; ``--all`` prints every one."""


def show(found: DrainPlan, *, everything: bool) -> None:
    """Scores now and then, which bundle goes where, and what stays."""
    out = console()
    scores = table(("broker", "left"), ("score", "right"), ("then", "right"), ("", "left"), ("given", "right"))
    for broker in sorted(found.brokers, key=lambda one: -one.predicted):
        number = sum(unload.destination == broker.id for unload in found.unloads)
        then = broker.predicted
        row = amount(broker.score, digits=1), amount(then, digits=1), bar(then, "green"), str(number)
        scores.add_row(Text(plain(broker.id)), *row)
    out.print(scores)
    most = len(found.unloads) if everything else LINES
    if found.unloads:
        rows = table(("unload", "left"), ("from", "left"), ("to", "left"), ("msg/s", "right"), ("MB/s", "right"))
        for one in found.unloads[:most]:
            ends = plain(one.bundle), plain(one.source), plain(one.destination or "")
            rows.add_row(*ends, amount(one.msg_rate), amount(one.throughput, 1e6, 1))
        out.print(rows)
    if (more := len(found.unloads) - most) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more (--all)", "dim"))
    for left in found.stay[: None if everything else LINES]:
        told = f": {left.detail}" if left.detail else ""
        out.print(Text(plain(f"stays: {left.bundle}: {left.reason}{told}"), "yellow"))
    if not everything and (more := len(found.stay) - LINES) > 0:
        out.print(Text(f"and {counted(more, 'bundle')} more stay (--all)", "dim"))


def drain_sentence(found: DrainPlan, broker: str, now: float) -> str:
    """Whether the others hold, and how long it would take."""
    told = f"Drained: {drain_words(found.drain, now)}. " if found.drain is not None else ""
    if found.cannot_spare:
        return f"{told}Refused: {found.cannot_spare}."
    if found.hold is not None:
        return f"{told}Refused: {found.hold.reason}: {found.hold.detail}."
    top = max(found.brokers, key=lambda one: one.predicted)
    holds = f"The cluster can do without {broker}: {top.id} would be the highest with {top.predicted:.1f} points"
    stay = f"; {counted(len(found.stay), 'bundle')} would stay" if found.stay else ""
    return f"{told}{holds}{stay}. {pace_words(found)}"


def fill_sentence(found: DrainPlan, broker: str) -> str:
    """What the broker would get."""
    if found.hold is not None:
        return f"Refused: {found.hold.reason}: {found.hold.detail}."
    own = next(one for one in found.brokers if one.id == broker)
    mean = sum(one.score for one in found.brokers) / len(found.brokers)
    if not found.unloads:
        return f"{broker} has {own.score:.1f} points, the mean is {mean:.1f}: nothing that would help may move."
    told = f"{broker} would go from {own.score:.1f} to {own.predicted:.1f} points, the mean is {mean:.1f}."
    return f"{told} {pace_words(found)}"


def pace_words(found: DrainPlan) -> str:
    """How many, how fast, how long."""
    number = len(found.unloads)
    if not number:
        return "There is nothing to move."
    once, them = (f", {min(found.at_once, number)} at once", "them") if number > 1 else ("", "it")
    return f"{counted(number, 'bundle')}{once}: about {spoken(found.eta_seconds)}; --apply moves {them}."
