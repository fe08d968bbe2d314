"""What became of a drain or a fill, in one sentence and an exit code."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from lbd.record.control import FAILED, REFUSED
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.record.drains import Work, Works


def told(work: Work, *, missed: int, system: int) -> tuple[int, str]:
    """The exit code (4 where bundles stay, 5 where ``missed`` moves failed) and the sentence.

    ``system`` are bundles of Pulsar's own namespace on a drained broker, which count for neither.
    """
    code = FAILED if missed else REFUSED if work.left or work.owned else 0
    took = f"in {max((work.ended_at or 0.0) - work.begun_at, 0.0):.0f} s"
    words = _drained(work, took) if work.kind == "drain" else _filled(work, took)
    if system:
        words += f"; {counted(system, 'bundle')} of pulsar/system left there (guardrails.move_system_namespace)"
    return code, f"{words}{_why(work)}."


def without_orphan(works: Works, now: float) -> Works:
    """What was told before this lbd started, a fill that was under way then ended: nobody goes on with it."""
    fill = works.fill
    if fill is None or fill.ended_at is not None:
        return works
    sentence = (
        f"The filling of {fill.broker} was cut short, as lbd was ended: "
        f"{fill.landed} of {counted(fill.total, 'bundle')} landed; ask for it again."
    )
    over = msgspec.structs.replace(fill, ended_at=now, held="", eta_seconds=None, exit_code=FAILED, sentence=sentence)
    return msgspec.structs.replace(works, fill=over)


def _drained(work: Work, took: str) -> str:
    gone = work.landed + work.elsewhere
    other = f", {work.elsewhere} of them to another broker than planned" if work.elsewhere else ""
    if work.owned is None:
        return f"The drain of {work.broker} is over: {counted(gone, 'bundle')} gone {took}{other}"
    if not work.owned:
        moved = f": {counted(gone, 'bundle')} gone {took}{other}" if work.tried else ", and needed no move"
        return f"{work.broker} owns nothing{moved}"
    return f"{work.broker} still owns {counted(work.owned, 'bundle')}: {gone} gone {took}{other}"


def _filled(work: Work, took: str) -> str:
    if not work.total:
        return f"{work.broker}: no broker above the mean has a bundle that would bring it closer to it"
    return f"{work.broker} was given {work.landed} of {counted(work.total, 'bundle')} {took}"


def _why(work: Work) -> str:
    """What stays, by reason, and the first of it in full."""
    if not work.left or not (work.tried or work.kind == "drain"):
        return ""
    reasons = Counter(one.reason for one in work.left)
    first = work.left[0]
    numbers = ", ".join(f"{number} {reason}" for reason, number in reasons.most_common())
    return f"; left: {numbers}; the first: {first.bundle}{first.detail and f': {first.detail}'}"
