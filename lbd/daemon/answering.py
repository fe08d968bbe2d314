"""``lbd place``: where bundles should go, answered from a live cluster or a recording. It changes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from lbd.daemon.dry import last_round, live_parts, recorded_parts, taking_over
from lbd.daemon.parts import observing
from lbd.daemon.situation import Owners, owners, situation
from lbd.daemon.targets import live_bundles, meant, reported_bundles, target
from lbd.errors import UsageError
from lbd.place import PLACEMENTS, PlaceMemory, build
from lbd.place.answers import Answer, answer_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.cycle import Parts
    from lbd.daemon.targets import Meant
    from lbd.place import Placement
    from lbd.pulsar.admin import Admin


@dataclass(frozen=True, eq=False)
class Report:
    """Answers, and what they are made from.

    ``taken_at`` is when the reports were read (epoch seconds), ``age_seconds`` how old they were when it was answered,
    None in a recording, whose answers are of its time. ``topics`` are those by which a bundle was named, ``unasked``
    the brokers that did not tell what they own.
    """

    cluster: str
    strategy: str
    taken_at: float
    age_seconds: float | None
    sample_interval_seconds: float
    answers: tuple[Answer, ...]
    topics: Mapping[str, tuple[str, ...]]
    unasked: Mapping[str, str] = field(default_factory=dict)
    memory: PlaceMemory = field(default_factory=PlaceMemory)

    @property
    def unanswered(self) -> tuple[Answer, ...]:
        """Bundles that nobody owns and no broker may have."""
        return tuple(one for one in self.answers if one.owner is None and one.placed.broker is None)


def placement(name: str) -> Placement:
    """The placement of that name. Raises :class:`UsageError` for an unknown one."""
    if name not in PLACEMENTS:
        raise UsageError(f"placement {name!r} is not known; wanted {', '.join(PLACEMENTS)}")
    return build(name)


def ask_cluster(settings: Settings, words: Sequence[str], strategy: str) -> Report:
    """Answers from the live cluster, with the averages of a daemon on this machine where they can be read."""
    with observing(settings) as observer:
        parts, busy = live_parts(settings, observer), taking_over(settings, observer.admin)
        return ask(parts, observer.admin, words, strategy, PlaceMemory(), busy)


def ask(
    parts: Parts,
    admin: Admin,
    words: Sequence[str],
    strategy: str,
    memory: PlaceMemory,
    busy: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """The same with the parts of a running lbd that moves nothing now, and what it remembers of its answers.

    ``busy`` are brokers that must not be asked for what they own, and why.

    Raises :class:`UsageError` for words and strategies that are none, before the cluster is asked anything.
    """
    place, targets = placement(strategy), [target(word) for word in words]
    admin.active_brokers()
    wanted = meant(targets, live_bundles(admin))
    return _answered(parts, wanted, owners(admin, busy), (strategy, place), memory, time.time)


def ask_recording(settings: Settings, words: Sequence[str], strategy: str, path: Path) -> Report:
    """Answers from the last round of a recording; its earlier rounds feed the averages."""
    place, targets = placement(strategy), [target(word) for word in words]
    header, settings, averages, snapshot = last_round(path, settings)
    wanted = meant(targets, reported_bundles(snapshot))
    rows = snapshot.rows
    reported = zip(rows.bundle.tolist(), rows.owner().tolist(), strict=True)
    owned = Owners({snapshot.bundles[at]: snapshot.brokers.ids[owner] for at, owner in reported}, {})
    parts = recorded_parts(settings, header.id or path.name, averages, snapshot)
    return _answered(parts, wanted, owned, (strategy, place), PlaceMemory(), None)


def _answered(
    parts: Parts,
    wanted: Meant,
    owned: Owners,
    chosen: tuple[str, Placement],
    memory: PlaceMemory,
    clock: Callable[[], float] | None,
) -> Report:
    strategy, place = chosen
    now = situation(parts, wanted.namespaces)
    observation = now.observation
    of = {bundle: owned.of.get(bundle) for bundle in wanted.topics}
    asked = sum(owner is None for owner in of.values())
    age = None if clock is None else max(clock() - observation.snapshot.taken_at, 0.0)
    seen = replace(now.seen(parts, max(asked, 1), tuple(of)), age_seconds=age or 0.0)
    answers, memory = answer_all(of, now.standing(parts), place, seen, memory)
    return Report(
        observation.cluster,
        strategy,
        observation.snapshot.taken_at,
        age,
        observation.sample_interval_seconds,
        answers,
        wanted.topics,
        owned.unasked,
        memory,
    )
