"""Placements that people order.

``lbd place`` shows destinations from a live cluster or a recording, and changes nothing; a running lbd places unowned
bundles, and picks the destination of an unload.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from lbd.act.place import AlreadyOwned, Placer
from lbd.act.unload import ReadyMove, Unloader
from lbd.bundles import (
    TopicBundle,
    holds,
    is_scalable,
    missing,
    parse_boundaries,
    partitions,
    range_name,
    scalable_namespace,
    segment_parent,
    topic_hash,
    topic_namespace,
)
from lbd.decide.drain import first_that_may
from lbd.decide.manual import wanted_unload
from lbd.errors import LbdError, ObserveError, RefusedError, UsageError
from lbd.model import Outcome, Result, Skip, Unload, bundle_namespace
from lbd.operations.cluster_view import OwnerMap, Situation, observed, owners
from lbd.operations.dry import Fixed, last_round, order_parts, recorded_parts
from lbd.operations.parts import PolicyReader, observing, preview_observer
from lbd.operations.requests import overriding, request_reason, wanting
from lbd.operations.split import CLOCK
from lbd.permit.eligibility import BROKER_BUNDLE
from lbd.place.picker import PlacementAdvice, answer_all
from lbd.place.placements import PLACEMENTS, PlaceMemory, build
from lbd.pulsar.admin import Admin
from lbd.pulsar.paths import bounds
from lbd.reason import Reason
from lbd.store.control import FAILED, REFUSED, PlacedBundle, RequestResult, UnloadRequest, ordered_by
from lbd.text import counted
from lbd.threads import Threads
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.model import Snapshot
    from lbd.observe.observer import Observer
    from lbd.permit.limits import Ledger
    from lbd.place.placements import Placement
    from lbd.store.control import PlaceRequest
    from lbd.store.journal import Journal
    from lbd.turn.parts import Parts, TurnResult


if TYPE_CHECKING:
    BundlesOf = Callable[[str], list[str]]
    TopicsOf = Callable[[str], list[str]]


@dataclass(frozen=True)
class Target:
    """One argument of the command line."""

    text: str
    kind: Literal["bundle", "topic", "scalable", "namespace"]
    namespace: str


def target(text: str) -> Target:
    """Parse one argument. Raises :class:`UsageError` that says what would be right."""
    if is_scalable(text):
        return _movable(Target(text, "scalable", scalable_namespace(text)))
    if "://" in text:
        return _movable(Target(text, "topic", topic_namespace(text)))
    parts = text.split("/")
    if len(parts) == 2 and all(parts) and not parts[1].startswith("0x"):
        return _movable(Target(text, "namespace", text))
    if len(parts) >= 3 and parts[-1].startswith("0x"):
        bundle = _movable(Target(text, "bundle", bundle_namespace(text)))
        bounds(text)
        return bundle
    forms = "tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, persistent://tenant/namespace/topic or tenant/namespace"
    raise UsageError(f"{text!r} is no bundle, topic or namespace; wanted {forms}")


def _movable(named: Target) -> Target:
    if BROKER_BUNDLE.match(f"{named.namespace}/0x"):
        raise UsageError(f"{named.text!r} belongs to its broker and is never placed or moved")
    return named


@dataclass(frozen=True)
class ResolvedTargets:
    """Bundles of some targets, each with the topics that named it."""

    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The bundles' namespaces, each once."""
        return tuple(dict.fromkeys(map(bundle_namespace, self.topics)))


def expand_topics(targets: Iterable[Target], topics_of: TopicsOf) -> list[Target]:
    """Replace each topic by the cluster's own: its segments or partitions, where it has any.

    A name is looked up first: the bundle at a name's own hash has nothing of a partitioned topic, and a misspelt name
    has none at all.
    """
    expanded: list[Target] = []
    for named in targets:
        expanded += [named] if named.kind in {"bundle", "namespace"} else map(target, topics_of(named.text))
    return expanded


def live_topics(admin: Admin) -> TopicsOf:
    """Topics of a name: itself, its partitions, or the active segments of a scalable topic.

    Raises :class:`UsageError` where the cluster has no such topic.
    """

    def topics(name: str) -> list[str]:
        parent = name if is_scalable(name) else segment_parent(name)
        if parent is not None:
            segments = admin.segments(parent) or []
            names = [part.name for part in segments if (part.is_active if parent == name else part.name == name)]
            if not names:
                raise UsageError(f"{name}: cluster {admin.cluster} has no such scalable topic (from Pulsar 5.0 on)")
            return names
        live_bundles(admin)(topic_namespace(name))
        present = admin.topics(topic_namespace(name))
        names = [name] if name in present else partitions(name, present)
        if not names:
            raise UsageError(f"{name}: there is no such topic in {topic_namespace(name)}")
        return names

    return topics


def topic_bundles(admin: Admin, topic: str) -> list[TopicBundle]:
    """The bundle of a topic; of a partitioned or scalable one that of each partition or active segment, in order.

    Raises :class:`UsageError` for a text that names no topic of the cluster.
    """
    named = target(topic)
    if named.kind not in {"topic", "scalable"}:
        raise UsageError(f"{topic!r} is no topic; wanted persistent://tenant/namespace/topic")
    admin.active_brokers()
    targets, bundles = expand_topics((named,), live_topics(admin)), live_bundles(admin)
    of = {name: bundle for bundle, names in resolve_targets(targets, bundles).topics.items() for name in names}
    return [TopicBundle(part.text, of[part.text]) for part in targets]


def resolve_targets(targets: Iterable[Target], bundles_of: BundlesOf) -> ResolvedTargets:
    """Find the bundles of targets. Raises :class:`UsageError` for a bundle that its namespace does not have."""
    topics_of: dict[str, tuple[str, ...]] = {}
    cut: dict[str, list[str]] = {}
    for named in targets:
        if named.namespace not in cut:
            cut[named.namespace] = bundles_of(named.namespace)
        for bundle in _bundles(named, cut[named.namespace]):
            topics = (named.text,) if named.kind == "topic" else ()
            topics_of[bundle] = tuple(dict.fromkeys((*topics_of.get(bundle, ()), *topics)))
    return ResolvedTargets(topics_of)


def _bundles(named: Target, bundles: list[str]) -> list[str]:
    if named.kind == "namespace":
        return bundles
    if named.kind == "topic":
        position = topic_hash(named.text)
        within = [bundle for bundle in bundles if holds(bundle, position)]
        if not within:
            raise UsageError(f"{named.text}: no known bundle of {named.namespace} holds its hash, 0x{position:08x}")
        return within
    if named.text not in bundles:
        raise UsageError(missing(named.text, bundles))
    return [named.text]


def live_bundles(admin: Admin) -> BundlesOf:
    """Reads the present bundles of a namespace."""

    def bundles(namespace: str) -> list[str]:
        texts = admin.boundaries(namespace)
        if texts is None:
            raise UsageError(f"{namespace}: cluster {admin.cluster} has no such namespace")
        cuts = parse_boundaries(texts)
        return [f"{namespace}/{range_name(*ends)}" for ends in pairwise(cuts)]

    return bundles


def owned_bundles(settings: Settings, namespace: str) -> dict[str, str]:
    """Owner of each owned bundle of a namespace. Raises :class:`UsageError` where there is no namespace."""
    admin = Admin(settings.pulsar)
    if target(namespace).kind != "namespace":
        raise UsageError(f"{namespace!r} is no namespace; wanted tenant/namespace")
    admin.active_brokers()
    owner_map = owners(admin, CLOCK, live_bundles(admin)(namespace))
    if owner_map.unknown:
        bundle, why = next(iter(owner_map.unknown.items()))
        raise ObserveError(f"{bundle}: its owner is not known: {why}")
    return {bundle: owner for bundle, owner in owner_map.of.items() if owner is not None}


def named(request: UnloadRequest, admin: Admin) -> None:
    """Raise :class:`UsageError` if the cluster does not have the bundle of a request."""
    admin.active_brokers()
    resolve_targets((Target(request.bundle, "bundle", bundle_namespace(request.bundle)),), live_bundles(admin))


def trouble(request: UnloadRequest, record: TurnResult) -> LbdError | None:
    """Reason why the turn could not judge a request: it failed, or the cluster has no such destination."""
    active = record.observation.active if record.observation is not None else ()
    if record.error is None and request.destination not in active:
        return UsageError(f"{request.destination!r} is no active broker; wanted one of {', '.join(active)}")
    return record.error


def reported_bundles(snapshot: Snapshot) -> BundlesOf:
    """Bundles of a namespace in the reports: a recording has no others."""

    def bundles(namespace: str) -> list[str]:
        reported = sorted(name for name in snapshot.bundles if bundle_namespace(name) == namespace)
        if not reported:
            raise UsageError(f"{namespace}: no broker reports a bundle of it")
        return reported

    return bundles


# --- plan only


@dataclass(frozen=True, eq=False)
class Report:
    """Answers, and their sources.

    ``taken_at`` is when the reports were read (epoch seconds), ``age_seconds`` their age at the answer, None in a
    recording, whose answers are of its time. ``topics`` are the arguments that named each bundle. ``unknown`` has the
    reason for each bundle whose owner could not be found, which has no answer; ``refused`` that for each unowned bundle
    that would not be placed now, ``hold`` the reason if none would be.
    """

    cluster: str
    strategy: str
    taken_at: float
    age_seconds: float | None
    sample_interval_seconds: float
    answers: tuple[PlacementAdvice, ...]
    topics: Mapping[str, tuple[str, ...]]
    unknown: Mapping[str, str] = field(default_factory=dict)
    memory: PlaceMemory = field(default_factory=PlaceMemory)
    refused: Mapping[str, str] = field(default_factory=dict)
    hold: str = ""

    @property
    def unowned(self) -> tuple[PlacementAdvice, ...]:
        """Bundles without an owner."""
        return tuple(advice for advice in self.answers if advice.owner is None)

    @property
    def unanswered(self) -> tuple[PlacementAdvice, ...]:
        """Bundles without an owner that no broker may have."""
        return tuple(answer for answer in self.answers if answer.owner is None and answer.placed.broker is None)


def placement(name: str) -> Placement:
    """Placement by its name. Raises :class:`UsageError` for an unknown one."""
    if name not in PLACEMENTS:
        raise UsageError(f"placement {name!r} is not known; wanted {', '.join(PLACEMENTS)}")
    return build(name)


def ask_cluster(settings: Settings, words: Sequence[str], strategy: str) -> Report:
    """Answers from the live cluster, with the averages of a daemon on this machine where they can be read."""
    with observing(settings) as observer:
        admin, parts = observer.admin, order_parts(settings, observer)
        report = ask(parts, admin, words, strategy, PlaceMemory())
        hold = placement_hold(parts, admin) if report.unowned else ""
        placer = Placer(admin, CLOCK, PolicyReader(admin).forbids)
        return replace(report, hold=hold, refused=_refused_placements(report, placer))


def _refused_placements(report: Report, placer: Placer) -> dict[str, str]:
    """Reason for each unowned bundle that would not be placed as advised, by the check of the act itself."""
    placements = [
        Unload(answer.bundle, "", answer.placed.broker, 0.0, 0.0) for answer in report.unowned if answer.placed.broker
    ]
    check = partial(placer.check, planned=False)
    with Threads(placer.admin.settings.concurrency, "lbd-place") as pool:
        checked = zip(placements, pool.map(check, placements), strict=True)
        return {
            unload.bundle: skip.reason.message(skip.detail)
            for unload, skip in checked
            if isinstance(skip, Skip) and not isinstance(skip, AlreadyOwned)
        }


def placement_hold(parts: Parts, admin: Admin) -> str:
    """Reason why no bundle may be placed now; empty if there is none. Few holds apply: no client is disconnected."""
    if admin.transfers:
        return (
            "the extensible load manager chooses the owner of a bundle that nobody owns, whoever is asked; "
            "once a client has it placed, lbd unload BUNDLE --to BROKER --apply moves it"
        )
    hold = parts.ordered_hold()
    return "" if hold is None else hold[0].message(hold[1])


def ask(parts: Parts, admin: Admin, words: Sequence[str], strategy: str, memory: PlaceMemory) -> Report:
    """Answers with the parts of a running lbd that moves nothing now, and its memory of earlier answers.

    Raises :class:`UsageError` for invalid words and strategies, before any request.
    """
    place, targets = placement(strategy), [target(word) for word in words]
    admin.active_brokers()
    resolved = resolve_targets(expand_topics(targets, live_topics(admin)), live_bundles(admin))
    return _answered(parts, resolved, owners(admin, CLOCK, resolved.topics), (strategy, place), memory, time.time)


def _as_named(topic: str) -> list[str]:
    """The name itself: a recording has no topics, so a name stands for one topic without partitions."""
    if is_scalable(topic):
        form = "segment://tenant/namespace/topic/0000-ffff-0"
        raise UsageError(f"{topic}: a recording has no segments; wanted one, {form}")
    return [topic]


def ask_recording(settings: Settings, words: Sequence[str], strategy: str, path: Path) -> Report:
    """Answers from the last round of a recording; its earlier rounds feed the averages."""
    place, targets = placement(strategy), [target(word) for word in words]
    header, settings, averages, snapshot = last_round(path, settings)
    resolved = resolve_targets(expand_topics(targets, _as_named), reported_bundles(snapshot))
    rows = snapshot.rows
    reported = zip(rows.bundle.tolist(), rows.owner().tolist(), strict=True)
    owned = OwnerMap({snapshot.bundles[bundle]: snapshot.brokers.ids[owner] for bundle, owner in reported})
    parts = recorded_parts(settings, header.id or path.name, averages, snapshot)
    return _answered(parts, resolved, owned, (strategy, place), PlaceMemory(), None)


def _answered(
    parts: Parts,
    resolved: ResolvedTargets,
    owned: OwnerMap,
    chosen: tuple[str, Placement],
    memory: PlaceMemory,
    clock: Callable[[], float] | None,
) -> Report:
    strategy, place = chosen
    now = observed(parts).with_groups(parts, resolved.namespaces)
    observation = now.observation
    of = {bundle: owned.of.get(bundle) for bundle in resolved.topics if bundle not in owned.unknown}
    unowned = sum(owner is None for owner in of.values())
    age = None if clock is None else max(clock() - observation.snapshot.taken_at, 0.0)
    loads = replace(now.loads(parts, max(unowned, 1), tuple(of)), age_seconds=age or 0.0)
    answers, memory = answer_all(of, now.standing(parts), place, loads, memory)
    return Report(
        observation.cluster,
        strategy,
        observation.snapshot.taken_at,
        age,
        observation.sample_interval_seconds,
        answers,
        resolved.topics,
        owned.unknown,
        memory,
    )


# --- act: place unowned bundles, pick the destination of an unload

MISSES_THAT_STOP = 2
"""Placements in a row without an owner after which a request stops: a third would not help."""


class LivePicker:
    """A live lbd's picker. It remembers its answers, because no report shows them yet, those of each strategy alone."""

    def __init__(self, journal: Journal, on_end: Callable[[Outcome | Skip], None]) -> None:
        self._journal, self._on_end = journal, on_end
        self._memories: dict[str, PlaceMemory] = {}
        self._stopped = threading.Event()
        self._trouble = ""

    def stop(self) -> None:
        """Begin no further bundle of a request; the one in progress is finished."""
        self._stopped.set()

    def place(self, request: PlaceRequest, parts: Parts, placer: Placer) -> RequestResult:
        """Place unowned bundles, one after the other; raises :class:`~lbd.errors.LbdError` before any is placed."""
        memory = self._memories.get(request.strategy, PlaceMemory())
        report = ask(parts, placer.admin, request.targets, request.strategy, memory)
        held = placement_hold(parts, placer.admin) or self._under_way() if report.unowned else ""
        if held:
            raise RefusedError(held)
        self._memories[request.strategy] = report.memory
        self._trouble = ""
        held_now = partial(placement_hold, parts, placer.admin)
        placed = list(self._placed(request, report, placer, held_now))
        return _placement_result(placed, self._trouble)

    def _placed(
        self, request: PlaceRequest, report: Report, placer: Placer, held: Callable[[], str]
    ) -> Iterator[PlacedBundle]:
        misses = 0
        for answer in report.answers:
            broker = answer.placed.broker
            if answer.owner is not None:
                yield PlacedBundle(answer.bundle, broker, None, answer.owner, "owned already; left alone")
            elif broker is None:
                why = f"no broker may have it: {_first(answer.candidates.left_out)}"
                yield PlacedBundle(answer.bundle, None, None, None, why)
            elif stop := self._trouble or self._stop(request, misses) or held():
                yield PlacedBundle(answer.bundle, broker, None, None, f"not asked for: {stop}")
            else:
                reason = f"by hand, {ordered_by(request)}; {report.strategy}: {answer.placed.reason}"
                outcome = placer.place(answer.bundle, broker, reason)
                self._ended(outcome)
                misses = 0 if _taken(outcome) else misses + 1
                yield _placed_bundle(outcome, broker)
        for bundle, why in report.unknown.items():
            yield PlacedBundle(bundle, None, None, None, f"its owner is not known: {why}")

    def _stop(self, request: PlaceRequest, misses: int) -> str:
        if self._stopped.is_set():
            return "lbd was stopped"
        if time.time() >= request.expires_at:
            return "whoever asked has stopped waiting"
        return "two in a row could not be placed" if misses >= MISSES_THAT_STOP else ""

    def _under_way(self) -> str:
        """An open move of a killed process: its bundle may have no owner for now."""
        return next(
            (f"{Reason.MOVES_UNFINISHED.label}: {move.bundle} is under way" for _, move in self._journal.open), ""
        )

    def _ended(self, outcome: Outcome | Skip) -> None:
        """Report and record an outcome; after a failure to record, no more may be placed."""
        self._on_end(outcome)
        if isinstance(outcome, Skip):
            return
        try:
            self._journal.placed(outcome)
        except LbdError as error:
            self._trouble = f"{outcome.unload.bundle} is in no journal: {error}"


def destination(request: UnloadRequest, parts: Parts) -> tuple[UnloadRequest, Parts, str]:
    """The request with a destination, the parts that judge it by the round of the choice, and the reason.

    A request that names its destination stays as it is; else it is the coolest broker that may have the bundle.
    Raises :class:`RefusedError` when no broker may have it.
    """
    if request.destination is not None:
        return request, parts, ""
    now = observed(parts).with_groups(parts, (bundle_namespace(request.bundle),))
    fixed = replace(parts, observer=Fixed(now.observation))
    unload = wanted_unload(request.bundle, now.facts.snapshot, now.facts.averages)
    if isinstance(unload, Skip):
        raise RefusedError(f"{unload.what}: {unload.reason.label}: {unload.detail}")
    broker, reason = _coolest(unload, parts, now)
    return msgspec.structs.replace(request, destination=broker), fixed, reason


def _coolest(unload: Unload, parts: Parts, now: Situation) -> tuple[str, str]:
    """The broker with the lowest score that every guardrail accepts, and why none below it was taken.

    Moves that no report shows yet count at their destinations. An active broker without a report has no score, and is
    never taken.
    """
    facts, ids = now.facts, now.facts.snapshot.brokers.ids
    later = 0.0 if facts.unshown is None else facts.unshown
    score = dict(zip(ids, (facts.scores + later).tolist(), strict=True))
    ledger = _ledger(unload, parts, now)
    others = [broker for broker in now.observation.active if broker != unload.source]
    ranked = sorted(score.keys() & set(others), key=lambda broker: (score[broker], broker))
    move, refusals = first_that_may(unload, ranked, ledger)
    if move is not None and move.destination is not None:
        cooler = f"; of {counted(len(refusals), 'cooler broker')} {_first(refusals)}" if refusals else ""
        return move.destination, f"the coolest broker that may have it{cooler}"
    missing = now.observation.missing
    refusals += [Skip(broker, Reason.REPORT_MISSING, missing[broker]) for broker in others if broker in missing]
    raise RefusedError(f"{unload.bundle}: no other broker may have it: {_first(refusals)}")


def show_unload(settings: Settings, bundle: str, broker: str | None, daemons: Observer | None = None) -> RequestResult:
    """Preview of ``lbd unload``, judged like the real one; changes nothing.

    Raises :class:`RefusedError` where it would be refused.
    """
    request = UnloadRequest("", bundle, broker, None, "", 0.0, 0.0)
    with preview_observer(settings, daemons) as observer:
        named(request, observer.admin)
        parts = overriding(order_parts(settings, observer), request)
        request, parts, picked = destination(request, parts)
        record = turn(wanting(parts, request, picked))
        if (error := trouble(request, record)) is not None:
            raise error
        if not record.plan.unloads or record.facts is None:
            raise RefusedError(request_reason(record, bundle))
        (unload,) = record.plan.unloads
        checked = _checked_last(unload, observer.admin)
        if isinstance(checked, Skip):
            raise RefusedError(checked.reason.message(checked.detail))
    ends = (
        f"{end} ({record.facts.points[end]:.1f} points, then {record.plan.expected[end]:.1f})"
        for end in (unload.source, unload.destination or "")
    )
    carried = f"{unload.msg_rate:,.0f} msg/s, {unload.throughput / 1e6:,.1f} MB/s"
    sentence = f"Would move {bundle} ({carried}) from {' to '.join(ends)}{picked and f'; {picked}'}."
    shown = PlacedBundle(bundle, unload.destination, None, unload.source, reason=picked)
    return RequestResult(0, sentence, owner=unload.source, placed=[shown])


def _checked_last(unload: Unload, admin: Admin) -> ReadyMove | Skip:
    """The last check before a request, as the act makes it; policies were read for the plan just now."""
    reader = PolicyReader(admin)

    def forbids(move: Unload, *, planned: bool) -> Skip | None:
        del planned  # the plan was made with another reader
        return reader.forbids(move, planned=False)

    return Unloader(admin, CLOCK, forbids=forbids).check(unload)


def _taken(outcome: Outcome | Skip) -> bool:
    """Whether the bundle has an owner now, a client's broker included."""
    return outcome.reason is Reason.OWNER_CHANGED if isinstance(outcome, Skip) else outcome.owner is not None


def _placed_bundle(outcome: Outcome | Skip, broker: str) -> PlacedBundle:
    if isinstance(outcome, Skip):
        owner = outcome.owner if isinstance(outcome, AlreadyOwned) else None
        return PlacedBundle(outcome.what, broker, None, owner, f"{outcome.reason.label}: {outcome.detail}")
    unload = outcome.unload
    return PlacedBundle(unload.bundle, broker, outcome.result, outcome.owner, outcome.detail, unload.reason)


def _ledger(unload: Unload, parts: Parts, now: Situation) -> Ledger:
    """Ledger that judges each destination as a turn would; bars on the bundle itself are left to the turn."""
    facts, snapshot = now.facts, now.facts.snapshot
    nothing = np.zeros(len(snapshot.bundles), dtype=np.int8)
    permission = replace(facts.evidence.permission(nothing), slopes=parts.learn(snapshot))
    case = parts.planning.case(facts)
    return parts.planning.ledger(
        case, snapshot, facts.scores, facts.policies, (unload,), permission, unshown=facts.unshown
    )


def _first(refusals: Iterable[Skip]) -> str:
    texts = list(dict.fromkeys(f"{skip.reason.label}: {skip.detail}" for skip in refusals))
    return "; ".join(texts[:3]) + (f"; and {len(texts) - 3} more reasons" if len(texts) > 3 else "") or "there is none"


def _placement_result(placed: list[PlacedBundle], trouble: str) -> RequestResult:
    """One sentence for the whole request: failures come before successes; ``trouble`` is always included."""
    landed = sum(bundle.result is Result.LANDED for bundle in placed)
    alone = sum(bundle.result is None and bundle.owner is not None for bundle in placed)
    missed = [bundle for bundle in placed if bundle.result not in {None, Result.LANDED}]
    refused = [bundle for bundle in placed if bundle.result is None and bundle.owner is None]
    words = [f"{landed} placed", f"{alone} owned already and left alone" if alone else ""]
    words += [f"{len(missed)} not where they should be: {missed[0].bundle}: {missed[0].detail}" if missed else ""]
    words += [f"{len(refused)} not placed: {refused[0].bundle}: {refused[0].detail}" if refused else ""]
    words += [trouble if not any(trouble in text for text in words) else ""]
    code = FAILED if missed else REFUSED if refused else 0
    return RequestResult(
        code,
        f"{counted(len(placed), 'bundle')}: {', '.join(filter(None, words))}.",
        placed=placed,
    )
