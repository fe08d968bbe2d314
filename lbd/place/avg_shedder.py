"""The placement of AvgShedder, hash-based: where its shedding side planned the bundle to go, else by hash. Pure.

Source: AvgShedder.selectBroker (3.0.6 to 5.0.1) and PIP-364. Pulsar hashes a random number here ("hash mapping a random
number to broker", to spread bundles when many are placed at once, as after a restart): the same question gets another
answer each time. lbd hashes the bundle's full name with the same CRC32, over the same sorted candidates: bundles spread
as evenly, and an answer can be told beforehand, repeated and checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.place.by_hash import by_hash
from lbd.place.placed import Placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.place.placed import PlaceMemory
    from lbd.place.seen import Seen
    from lbd.place.settings import ByHashSettings


def choose(bundle: str, candidates: Sequence[str], seen: Seen, memory: PlaceMemory, settings: ByHashSettings) -> Placed:
    """The planned destination if it is a candidate, else one by hash; load is not looked at."""
    del seen, settings
    planned = memory.planned.get(bundle)
    if planned in candidates:
        return Placed(planned, "planned when the bundle was unloaded", memory)
    if not candidates:
        return Placed(None, "no candidate", memory)
    gone = f", for {planned}, planned when it was unloaded, is no candidate" if planned is not None else ""
    reason = f"CRC32 of the bundle's name over {len(candidates)} candidates{gone}"
    return Placed(by_hash(bundle, candidates), reason, memory, tuple(sorted(candidates)))
