"""Round robin over the candidates. Pure.

Source: RoundRobinBrokerSelector.java (4.0 to 5.0.1), which Pulsar also uses for namespaces that its shedder leaves
alone. It counts through the candidates as it saw them first, in their own order, and looks again when their number
differs or the one whose turn it is has gone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.place.placed import PlaceMemory
    from lbd.place.seen import Seen
    from lbd.place.settings import RoundRobinSettings

HIGHEST = 2**31 - 1
"""The counter is a Java int, and begins again with 0 after its highest value."""


def choose(
    bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory, settings: RoundRobinSettings
) -> Placed:
    """The next one; load is not looked at."""
    del bundle, seen, settings
    if not candidates:
        return Placed(None, "no candidate", memory)
    order, turn = memory.order, memory.counter % len(candidates)
    if len(order) != len(candidates) or order[turn] not in candidates:
        order = tuple(candidates)
    counter = 0 if memory.counter >= HIGHEST else memory.counter + 1
    reason = f"its turn, {turn + 1} of {len(order)}"
    return Placed(order[turn], reason, replace(memory, order=order, counter=counter))
