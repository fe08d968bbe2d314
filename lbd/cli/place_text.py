"""Answers of ``lbd place`` as a person and a program read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from lbd.cli.operate_text import console
from lbd.cli.render import plain, table
from lbd.cli.times import zoned
from lbd.model import Result
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.daemon.answering import Report
    from lbd.place.answers import Answer
    from lbd.record.control import PlacedBundle

NOBODY, NO_BROKER = "(nobody)", "(no broker)"


def show_report(found: Report) -> None:
    """A row for each bundle, then why brokers were no candidates."""
    rows = table(("bundle", "left"), ("owner", "left"), ("answer", "left"), ("why", "left"))
    for one in found.answers:
        rows.add_row(*_row(one, found))
    out = console()
    out.print(rows)
    for line in _left_out(found):
        out.print(Text(plain(line), "dim"))


def _row(one: Answer, found: Report) -> tuple[Text, ...]:
    """What an owned bundle would be given is dim: it stays where it is."""
    style = "dim" if one.owner is not None else "" if one.placed.broker is not None else "bold red"
    named = "".join(f" {topic}" for topic in found.topics.get(one.bundle, ()))
    why = f"{'if nobody owned it: ' if one.owner is not None else ''}{one.placed.reason}"
    broker = one.placed.broker or NO_BROKER
    cells = (plain(one.bundle + named), plain(one.owner or NOBODY), plain(broker), plain(why))
    return Text(cells[0]), Text(cells[1]), Text(cells[2], style), Text(cells[3], "dim")


def _left_out(found: Report) -> list[str]:
    """Each reason once, with how many bundles it holds for where that is not all of them."""
    counts: dict[str, int] = {}
    for one in found.answers:
        for skip in one.candidates.left_out:
            line = f"no candidate: {skip.what}: {skip.reason.label}{f', {skip.detail}' if skip.detail else ''}"
            counts[line] = counts.get(line, 0) + 1
    asked = len(found.answers)
    lines = [line if count == asked else f"{line} ({count} of {asked} bundles)" for line, count in counts.items()]
    return [*lines, *(f"not asked what it owns: {broker}: {why}" for broker, why in found.unasked.items())]


def sentence(found: Report) -> str:
    """How many of what, by which rule, on how old data."""
    owned = sum(one.owner is not None for one in found.answers)
    nowhere = f", {len(found.unanswered)} that no broker may have" if found.unanswered else ""
    age = "as recorded" if found.age_seconds is None else f"{found.age_seconds:.1f} s old"
    sampled = f"brokers sample CPU every {found.sample_interval_seconds:.0f} s"
    on = f"{found.strategy} on reports of {zoned(found.taken_at)}, {age}; {sampled}"
    return f"{counted(len(found.answers), 'bundle')}, {owned} owned{nowhere}; {on}."


def document(found: Report) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "taken_at": found.taken_at,
        "age_seconds": None if found.age_seconds is None else round(found.age_seconds, 3),
        "cluster": found.cluster,
        "strategy": found.strategy,
        "answers": [_answer(one, found) for one in found.answers],
        "unasked": dict(found.unasked),
    }


def _answer(one: Answer, found: Report) -> dict[str, Any]:
    left_out = [
        {"what": skip.what, "reason": skip.reason.label, "detail": skip.detail} for skip in one.candidates.left_out
    ]
    return {
        "bundle": one.bundle,
        "topics": list(found.topics.get(one.bundle, ())),
        "owner": one.owner,
        "answer": one.placed.broker,
        "reason": one.placed.reason,
        "choices": list(one.placed.choices),
        "candidates": list(one.candidates.brokers),
        "left_out": left_out,
    }


def show_placed(placed: Sequence[PlacedBundle]) -> None:
    """A row for each bundle: where it was to go, what came of it, who has it."""
    rows = table(("bundle", "left"), ("answer", "left"), ("result", "left"), ("owner", "left"), ("", "left"))
    for one in placed:
        cells, why = (one.bundle, one.answer or NO_BROKER), plain(one.detail or one.reason)
        rows.add_row(*map(plain, cells), _result(one), plain(one.owner or NOBODY), Text(why, "dim"))
    if placed:
        console().print(rows)


def _result(one: PlacedBundle) -> Text:
    if one.result is Result.LANDED:
        return Text("placed", "green")
    if one.result is not None:
        return Text(one.result.value, "bold red")
    return Text("left alone", "dim") if one.owner else Text("not placed", "bold red")
