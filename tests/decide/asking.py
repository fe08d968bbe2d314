"""Asks any strategy of the registry about clusters made by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lbd.decide.strategies import build, strategy_settings
from lbd.load.scoring import Weights
from lbd.model import Memory
from tests.builders import bundle, first_averages, permission, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import Decision, Snapshot
    from lbd.observe.parse import LoadReport

MIB = 1024 * 1024


def ask(name: str, seen: Snapshot, memory: Memory | None = None, **changes: Any) -> Decision:
    """One round of a strategy with these settings; stock unless ``live=True``, ``permit`` changes the permission."""
    live, placement = changes.pop("live", False), changes.pop("placement", None)
    permit: Mapping[str, Any] = changes.pop("permit", {})
    chosen = strategy_settings(name, changes)
    strategy = build(chosen if live else chosen.stock(), Weights(), placement)
    return strategy(seen, first_averages(seen), permission(seen, **permit), memory or Memory())


def sheds(name: str, rounds: Sequence[Snapshot], **changes: Any) -> list[int]:
    """How many unloads each of several rounds answers."""
    memory, found = Memory(), []
    for seen in rounds:
        decision = ask(name, seen, memory, **changes)
        memory = decision.memory
        found.append(len(decision.unloads))
    return found


def broker(cpu: float, sizes: Sequence[float] = (), first: int = 0) -> LoadReport:
    """A broker whose bundles carry so many MiB/s in, and as many out; with so many msg/s each way."""
    return report(cpu, {bundle(first + at): stats(size, size * MIB) for at, size in enumerate(sizes)})


def cluster(*brokers: LoadReport, taken_at: float = 1_800_000_000.0) -> Snapshot:
    """Brokers named a, b, c and so on."""
    return snapshot({f"{chr(97 + at)}:80": one for at, one in enumerate(brokers)}, taken_at)


def taken(decision: Decision) -> list[tuple[str, int]]:
    """Each unload by its source's letter and its bundle's number, in the plan's order."""
    return [(one.source[0], int(one.bundle.rpartition("/")[2][2:10], 16) >> 24) for one in decision.unloads]
