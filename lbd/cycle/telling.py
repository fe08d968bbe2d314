"""A turn in one sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from lbd.cycle.holds import PASSED_OVER
from lbd.model import Result
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.cycle.parts import CycleRecord
    from lbd.model import Skip


def sentence(record: CycleRecord) -> str:
    """What happened, in one sentence, and which brokers answer nothing."""
    found = _sentence(record)
    unheard = _unheard(record)
    return f"{found.removesuffix('.')}; {unheard}." if unheard else found


def _unheard(record: CycleRecord) -> str:
    seen = record.observation
    if seen is None or not seen.silent:
        return ""
    first, more = seen.silent[0], len(seen.silent) - 1
    return f"{first} {seen.missing[first]}" + (f", nor do {more} more" if more else "")


def _sentence(record: CycleRecord) -> str:
    told, begun = _of_before(record), begun_of(record)
    if told:
        return f"{told.removesuffix('.')}; begins to move {counted(begun, 'bundle')}." if begun else told
    if record.unloads:
        return f"{_verb(record)} {counted(len(record.unloads), 'bundle')}{_lasting(record)}{_plan(record)}."
    if record.hold is not None:
        reason, detail = record.hold
        return _no(f"{reason.told(detail)}.")
    reasons = [
        skip
        for skip in record.skips
        if skip.what in {"cluster", *_pairs(record)} or " -> " in skip.what or skip.what.startswith("pool ")
    ] or list(record.skips)
    return _no(f"{_told(reasons[0])}.") if reasons else "No move."


def _pairs(record: CycleRecord) -> set[str]:
    """What the strategy's pairs are called, those without a destination by their broker."""
    return {pair.ends for pair in record.decision.facts.pairs} if record.decision is not None else set()


def _of_before(record: CycleRecord) -> str:
    """Of moves that have ended, and of what went wrong; empty when there is nothing of that."""
    ended = len(record.outcomes) + len(record.refused)
    if record.error is not None and not record.outcomes:
        return _no(record.error)
    if record.error is not None:
        total = ended + len(record.unfinished)
        return f"Stopped after {len(record.outcomes)} of {counted(total, 'bundle')}: {record.error}"
    return _moved(record) if ended else ""


def begun_of(record: CycleRecord) -> int:
    """How much of its own plan is under way when the turn is told; where it was waited for, nothing is."""
    ended = {one.unload.bundle for one in record.outcomes} | {skip.what for skip in record.refused}
    return sum(unload.bundle not in ended for unload in record.unloads) if record.acts else 0


def _no(why: object) -> str:
    return f"No move: {why}"


def _verb(record: CycleRecord) -> str:
    return "Begins to move" if record.acts else "Would move"


def _lasting(record: CycleRecord) -> str:
    if not record.eager:
        return ""
    held = next((skip for skip in record.skips if skip.detail.startswith(PASSED_OVER)), None)
    now = f", but not now: {held.reason.label}" if held is not None else ""
    return f" if the imbalance lasts{record.assumed and f' ({record.assumed})'}{now}"


def _plan(record: CycleRecord) -> str:
    """What the strategy says of its plan as a whole, beside what the limits let through."""
    told = record.decision.facts.told if record.decision is not None else ""
    return told and f" ({told})"


def _moved(record: CycleRecord) -> str:
    """What ended, and what is still under way."""
    results = Counter(outcome.result.value for outcome in record.outcomes)
    results.update({"not asked for": len(record.refused)} if record.refused else {})
    total = sum(results.values()) + len(record.unfinished)
    told = ", ".join(f"{number} {result}" for result, number in results.items())
    more = f"; {len(record.unfinished)} under way" if record.unfinished else ""
    return f"Moved {results[Result.LANDED.value]} of {counted(total, 'bundle')}: {told}{more}."


def _told(skip: Skip) -> str:
    detail = f" ({skip.detail})" if skip.detail else ""
    return f"{skip.what}: {skip.reason.label}{detail}"
