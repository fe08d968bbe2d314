"""The picker as other programs ask it: from the last turn's round, without a request to any broker for what is known.

What one round says is laid out once (:class:`_Look`); a question then costs a few dictionary look-ups and a hash for
each broker. Answers for bundles that nobody owns are remembered: no report shows yet what comes of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import structlog

from lbd.api.shapes import Placement
from lbd.daemon.answering import placement
from lbd.daemon.policies import PolicyReader
from lbd.daemon.targets import live_bundles, meant, target
from lbd.errors import ObserveError, UsageError, told
from lbd.permit.policies import Policies
from lbd.place import PlaceMemory, Seen, look
from lbd.place.answers import answer_all
from lbd.place.candidates import Standing, without_doubted
from lbd.pulsar.admin import Admin
from lbd.record.drains import Drains
from lbd.split.topic_hash import holds, range_of, topic_hash

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from lbd.api.board import Published
    from lbd.config import Settings
    from lbd.cycle import CycleRecord
    from lbd.daemon.targets import Target
    from lbd.model import CodeArray, IntArray, Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.policies import Groups, Isolation
    from lbd.place import Placement as Rule
    from lbd.pulsar.silence import Silences

Kind = TypeVar("Kind")

POLICIES_SECONDS = 60.0
"""Groups and boundaries of a namespace are asked for again after this; a turn's own plan always asks anew."""

LATEST_SECONDS = 2 * POLICIES_SECONDS
"""Until then a group is asked for again beside the answers, and later before the next one."""

NAMESPACES = 10_000
"""Kept at most; then all are asked for again."""


@dataclass(frozen=True, eq=False)
class _Look:
    """One turn's round, laid out for questions. ``isolation`` was read with it.

    ``allowed`` are the brokers on which it allows each namespace that was asked about.
    """

    published: Published
    isolation: Isolation
    drained: frozenset[str]
    seen: Seen
    allowed: dict[str, frozenset[str]] = field(default_factory=dict)
    _cuts: dict[str, tuple[list[int], list[str]]] = field(default_factory=dict)

    @property
    def record(self) -> CycleRecord:
        return self.published.record

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.observation.snapshot

    @property
    def observation(self) -> Observation:
        assert self.record.observation is not None
        return self.record.observation

    @property
    def doubted(self) -> CodeArray:
        assert self.record.evidence is not None
        return self.record.evidence.paired

    @cached_property
    def position(self) -> dict[str, int]:
        """Of each bundle."""
        return {name: at for at, name in enumerate(self.snapshot.bundles)}

    @cached_property
    def owner(self) -> IntArray:
        """Broker position of each bundle, int32 (N,)."""
        rows = self.snapshot.rows
        found: IntArray = np.full(len(self.snapshot.bundles), -1, dtype=np.int32)
        found[rows.bundle] = rows.owner()
        return found

    def owner_of(self, bundle: str) -> str | None:
        """As brokers reported it."""
        at = self.position.get(bundle)
        return self.snapshot.brokers.ids[int(self.owner[at])] if at is not None and self.owner[at] >= 0 else None

    def rate_of(self, bundle: str) -> dict[str, float]:
        """Its long-term messages/s, in + out, by its name; nothing where it is not known."""
        at = self.position.get(bundle)
        averages = self.record.averages
        return {} if at is None or averages is None else {bundle: float(averages.long[at, :2].sum())}

    def cuts(self, namespace: str) -> tuple[list[int], list[str]]:
        """Where the bundles begin that brokers report of a namespace, and these bundles; both in that order."""
        if namespace not in self._cuts:
            known = self.snapshot.namespaces
            code = known.names.index(namespace) if namespace in known.names else -1
            names = [self.snapshot.bundles[at] for at in np.flatnonzero(known.of == code).tolist()]
            ordered = sorted((range_of(name)[0], name) for name in names)
            self._cuts[namespace] = [lower for lower, _ in ordered], [name for _, name in ordered]
        return self._cuts[namespace]

    def bundle_of(self, wanted: Target) -> str | None:
        """The reported bundle that is meant, if there is one."""
        if wanted.kind == "bundle":
            return wanted.text if wanted.text in self.position else None
        return self.bundle_with(wanted.namespace, topic_hash(wanted.text)) if wanted.kind == "topic" else None

    def bundle_with(self, namespace: str, position: int) -> str | None:
        """The reported bundle that holds a topic's hash."""
        lowers, names = self.cuts(namespace)
        at = bisect_right(lowers, position) - 1
        return names[at] if at >= 0 and holds(names[at], position) else None


class Picker:
    """Answers of one lbd. Thread-safe. ``now`` is epoch seconds."""

    def __init__(self, settings: Settings, now: Callable[[], float], silences: Silences | None = None) -> None:
        self._now = now
        self._admin = Admin(settings.pulsar, silences)
        self._policies = PolicyReader(self._admin)
        self._lock, self._laying = threading.Lock(), threading.Lock()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lbd-picker")
        self._look: _Look | None = None
        self._memory = PlaceMemory()
        self._groups: dict[str, tuple[float, Groups]] = {}
        self._asking: set[str] = set()
        self._bundles: dict[str, tuple[float, list[str]]] = {}

    def published(self, published: Published) -> None:
        """A turn has ended: where anybody has asked before, its round is laid out beside the turns."""
        if self._look is not None:
            self._beside(self._lay_out, published)

    def close(self) -> None:
        """Lay out no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._admin.close()

    def pick_at_once(self, text: str, strategy: str) -> Placement | None:
        """The same as :meth:`pick` where all of it is known, in a millisecond; None where a broker must be asked."""
        place, wanted, known = placement(strategy), target(text), self._look
        if known is None:
            return None
        bundle, groups = known.bundle_of(wanted), self._remembered(known, wanted.namespace)
        if bundle is None or groups is None:
            return None
        return self._answer(known, bundle, groups, place, strategy)

    def pick(self, published: Published, text: str, strategy: str) -> Placement:
        """Where one bundle, or the bundle of one topic, should go if nobody owned it.

        Raises :class:`UsageError` for what is none and :class:`ObserveError` while no round is known.
        """
        place, wanted = placement(strategy), target(text)
        known = self._look or self._lay_out(published)
        if known is None:
            raise ObserveError("the last turn observed nothing; ask again after the next one")
        bundle = self._bundle(known, wanted)
        groups = self._remembered(known, wanted.namespace) or self._ask_groups(known, wanted.namespace)
        return self._answer(known, bundle, groups, place, strategy)

    def _answer(self, known: _Look, bundle: str, groups: Groups, place: Rule, strategy: str) -> Placement:
        policies = Policies(known.isolation, groups, known.observation.active, known.drained, known.allowed)
        most_topics = known.published.settings.guardrails.max_topics_per_broker
        standing = Standing(known.snapshot, policies, known.doubted, most_topics)
        age = max(self._now() - known.snapshot.taken_at, 0.0)
        seen = replace(known.seen, age_seconds=age, bundle_rates=known.rate_of(bundle))
        with self._lock:
            (answer,), self._memory = answer_all({bundle: known.owner_of(bundle)}, standing, place, seen, self._memory)
        return Placement.of(answer, known.observation, age, strategy)

    def _lay_out(self, published: Published) -> _Look | None:
        with self._laying:
            if self._look is not None and self._look.published is published:
                return self._look
            record = published.record
            if record.observation is None or record.averages is None or record.evidence is None:
                return self._look
            self._admin.active_brokers()
            drained = frozenset(Drains(published.settings.state_dir).in_force(self._now()))
            seen = look(record.observation.snapshot, record.averages, published.settings.weights)
            found = _Look(published, self._policies.isolation(), drained, without_doubted(seen, record.evidence.paired))
            _ = found.position, found.owner, found.snapshot.namespaces
            self._look = found
            return found

    def _bundle(self, known: _Look, wanted: Target) -> str:
        """The bundle meant: of those that brokers report, else as the cluster has cut the namespace."""
        if wanted.kind == "namespace":
            raise UsageError(f"{wanted.text!r} is a namespace; wanted one bundle or topic")
        return known.bundle_of(wanted) or next(iter(meant((wanted,), self._cut).topics))

    def _cut(self, namespace: str) -> list[str]:
        """The bundles of a namespace that brokers may not report, as nobody owns them."""
        at, found = self._bundles.get(namespace, (0.0, []))
        if not 0 <= self._now() - at < POLICIES_SECONDS:
            self._admin.active_brokers()
            found = live_bundles(self._admin)(namespace)
            _keep(self._bundles, namespace, (self._now(), found))
        return found

    def _remembered(self, known: _Look, namespace: str) -> Groups | None:
        """What is known of a namespace, and is not old; what has begun to be is asked for beside the answers."""
        at, found = self._groups.get(namespace, (0.0, None))
        age = self._now() - at
        if found is None or not 0 <= age < LATEST_SECONDS:
            return None
        if age >= POLICIES_SECONDS and namespace not in self._asking:
            self._asking.add(namespace)
            self._beside(self._ask_groups, known, namespace)
        return found

    def _beside(self, work: Callable[..., object], *args: object) -> None:
        """Work that no answer waits for; what it fails of is told."""
        with suppress(RuntimeError):  # closed meanwhile, and so asked by nobody any more
            self._pool.submit(work, *args).add_done_callback(_told)

    def _ask_groups(self, known: _Look, namespace: str) -> Groups:
        names = (*known.snapshot.namespaces.names, namespace)
        try:
            with self._laying:
                found = self._policies.groups((namespace,), frozenset(name.partition("/")[0] for name in names))
        finally:
            self._asking.discard(namespace)
        _keep(self._groups, namespace, (self._now(), found))
        return found


def _told(work: Future[object]) -> None:
    """Answers go on by what was known before, and say how old that is."""
    error = None if work.cancelled() else work.exception()
    if isinstance(error, Exception):
        structlog.get_logger().warning("placements go by an older round, or older policies", why=str(told(error)))


def _keep(kept: dict[str, Kind], namespace: str, found: Kind) -> None:
    if len(kept) >= NAMESPACES:
        kept.clear()
    kept[namespace] = found
