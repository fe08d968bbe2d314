"""Splits as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from lbd.cli.operate_text import console
from lbd.cli.render import amount, json_out, plain, table
from lbd.cli.times import local, zone_name
from lbd.model import bundle_range
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.cycle.splitting import Chosen
    from lbd.record.journal import Split
    from lbd.split.plan import Part, Plan

LEFT_SHOWN = 10


def show_plan(plan: Plan, why: str = "") -> None:
    """The bundle as it is, and the parts that it would fall into."""
    out = console()
    told = f"{plan.bundle} at {plan.owner}{why and f': {why}'}"
    out.print(Text(plain(told), "bold"))
    positions = ", ".join(f"0x{position:08x}" for position in plan.positions)
    out.print(Text(f"{plan.algorithm} cuts at {positions}"))
    found = table(("", "left"), ("range", "left"), ("topics", "right"), ("msg/s", "right"), ("MB/s", "right"))
    found.add_column("busiest topic", no_wrap=True)
    found.add_row("before", *_row(plan.whole))
    for number, part in enumerate(plan.parts):
        found.add_row("" if number else "after", *_row(part), style="" if part.topics else "dim")
    out.print(found)
    if plan.empty:
        out.print(Text(f"No topic falls into {', '.join(map(bundle_range, plan.empty))}: nothing is gained there."))


def show_chosen(found: Chosen) -> None:
    """All plans, and what is above a limit and left, with why."""
    out = console()
    for due, plan in found.plans:
        show_plan(plan, due.words)
    for left in found.left[:LEFT_SHOWN]:
        out.print(Text(plain(f"not split: {left.bundle}: {left.why}")))
    if len(found.left) > LEFT_SHOWN:
        out.print(Text(f"and {len(found.left) - LEFT_SHOWN} more (--format json names all)"))
    if not found.plans:
        more = f"; {len(found.left)} above a limit are left" if found.left else ": none is above a limit"
        out.print(Text(f"Nothing to split{more}.", "bold"))


def unapplied(plans: int) -> str:
    """What --apply would do."""
    return f"Would split {counted(plans, 'bundle')}; --apply does it. A split cannot be taken back."


def _row(part: Part) -> tuple[str, ...]:
    busiest = part.busiest
    topic = plain(busiest.name).rpartition("/")[2] if busiest is not None else "-"
    rates = (amount(part.msg_rate), amount(part.throughput, 1e6, 1))
    return bundle_range(part.bundle), f"{len(part.topics):,}", *rates, topic


def show_splits(splits: Sequence[Split], form: str) -> None:
    """A line for each split of the journal, the newest last."""
    if form == "json":
        json_out([_document(split) for split in splits])
        return
    if not splits:
        click.echo("No splits.")
        return
    columns = (f"time ({zone_name()})", "bundle", "at", "result", "parts", "why")
    found = table(*((name, "left") for name in columns))
    for split in splits:
        ended, cut = split.ended, split.cut
        result, parts = (ended.result.value, len(ended.parts)) if ended is not None else ("open", 1)
        why = "; ".join(filter(None, (ended.detail if ended is not None else "", cut.reason)))
        found.add_row(local(split.at), plain(cut.bundle), plain(cut.owner), result, str(parts), plain(why))
    console().print(found)


def _document(split: Split) -> dict[str, object]:
    cut = split.cut
    asked = {"bundle": cut.bundle, "owner": cut.owner, "algorithm": cut.algorithm, "reason": cut.reason}
    positions = [f"0x{position:08x}" for position in cut.positions]
    return {"at": split.at, **asked, "positions": positions, "outcome": msgspec.to_builtins(split.ended)}
