"""Answers for several bundles, one after the other: what is answered for one counts for those after it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.place import PlaceMemory, Placement, Seen
    from lbd.place.candidates import Candidates, Standing


@dataclass(frozen=True)
class Answer:
    """Who owns a bundle (None: nobody), where it should go if nobody owned it, and among whom that was chosen."""

    bundle: str
    owner: str | None
    placed: Placed
    candidates: Candidates


def answer_all(
    owners: Mapping[str, str | None], standing: Standing, place: Placement, seen: Seen, memory: PlaceMemory
) -> tuple[tuple[Answer, ...], PlaceMemory]:
    """An answer for each bundle, in the order of their names, and what is remembered of those without an owner.

    What would become of an owned bundle is only told: it takes nobody's share.
    """
    found = []
    for bundle, owner in sorted(owners.items()):
        answer = _answer(bundle, owner, standing, place, seen, memory)
        found.append(answer)
        if owner is None:
            memory = answer.placed.memory
            if answer.placed.broker is not None:
                standing.take(bundle, answer.placed.broker)
    return tuple(found), memory


def _answer(
    bundle: str, owner: str | None, standing: Standing, place: Placement, seen: Seen, memory: PlaceMemory
) -> Answer:
    candidates = standing.candidates(bundle, owner or "")
    if not candidates.brokers:
        return Answer(bundle, owner, Placed(None, "no broker may have it", memory), candidates)
    return Answer(bundle, owner, place(bundle, candidates.brokers, seen, memory), candidates)
