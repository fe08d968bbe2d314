"""What splits did: those that cut a bundle, or that it came out of, and those that followed a turn. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.record.explain.answers import SplitStory
from lbd.split.cut import SplitResult

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lbd.record.journal.splits import Split

MADE = {SplitResult.SPLIT.value, SplitResult.ELSEWHERE.value}
"""Results after which the whole is no bundle any more."""


def stories(splits: Iterable[Split]) -> list[SplitStory]:
    """A story for each split, the newest first."""
    return [_told(split) for split in sorted(splits, key=lambda split: split.at, reverse=True)]


def about(bundle: str, splits: Iterable[Split]) -> list[SplitStory]:
    """Those that cut the bundle, or tried to, and the one that it came out of."""
    return [one for one in stories(splits) if bundle in {one.bundle, *one.parts}]


def gone(bundle: str, splits: Iterable[SplitStory]) -> SplitStory | None:
    """The split after which there is no such bundle."""
    return next((one for one in splits if one.bundle == bundle and one.result in MADE), None)


def sentence(split: SplitStory) -> str:
    """What became of a bundle that was cut."""
    return f"it was split at {', '.join(split.positions)}, into {' and '.join(split.parts)}: it is no bundle any more"


def _told(split: Split) -> SplitStory:
    cut, ended = split.cut, split.ended
    return SplitStory(
        split.at,
        cut.bundle,
        cut.owner,
        cut.algorithm,
        [f"0x{position:08x}" for position in cut.positions],
        ended.result.value if ended is not None else None,
        list(ended.parts) if ended is not None and ended.result.value in MADE else [],
        cut.reason,
        ended.detail if ended is not None else "",
    )
