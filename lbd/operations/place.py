"""Placements that people order.

``lbd place`` shows destinations from a live cluster or a recording, and changes nothing; a running lbd places unowned
bundles, and picks the destination of an unload.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
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
from lbd.decide.manual import wanted_unload
from lbd.errors import LbdError, ObserveError, RefusedError, UsageError
from lbd.model import Outcome, Result, Skip, Unload, bundle_namespace
from lbd.operations.cluster_view import OwnerMap, Situation, owners, situation
from lbd.operations.dry import Fixed, last_round, order_parts, recorded_parts, taking_over
from lbd.operations.parts import PolicyReader, observing, preview_observer
from lbd.operations.requests import overriding, request_reason, wanting
from lbd.operations.split import CLOCK
from lbd.permit.eligibility import BROKER_BUNDLE
from lbd.permit.predicted import unshown
from lbd.place.picker import PlacementAdvice, answer_all
from lbd.place.placements import DEFAULT, PLACEMENTS, PlaceMemory, build
from lbd.pulsar.admin import Admin
from lbd.pulsar.paths import bounds
from lbd.reason import Reason
from lbd.store.control import FAILED, REFUSED, PlacedBundle, RequestResult, UnloadRequest
from lbd.text import counted
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.config import Settings
    from lbd.model import Snapshot
    from lbd.observe.observer import Observer
    from lbd.permit.limits import Ledger
    from lbd.place.placements import Placement, PlacementChoice
    from lbd.store.control import PlaceRequest
    from lbd.store.journal import Journal
    from lbd.turn.parts import Parts, TurnResult


if TYPE_CHECKING:
    BundlesOf = Callable[[str], list[str]]
    TopicsOf = Callable[[str], list[str]]


@dataclass(frozen=True)
class Target:
    """One word of the command line."""

    text: str
    kind: Literal["bundle", "topic", "scalable", "namespace"]
    namespace: str


def target(text: str) -> Target:
    """What a word names. Raises :class:`UsageError` that says what would be right."""
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
    wanted = "tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, persistent://tenant/namespace/topic or tenant/namespace"
    raise UsageError(f"{text!r} is no bundle, topic or namespace; wanted {wanted}")


def _movable(one: Target) -> Target:
    if BROKER_BUNDLE.match(f"{one.namespace}/0x"):
        raise UsageError(f"{one.text!r} belongs to its broker and is never placed or moved")
    return one


@dataclass(frozen=True)
class Meant:
    """The bundles that some words come to, each with the topics by which it was named."""

    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The bundles' namespaces, each once."""
        return tuple(dict.fromkeys(map(bundle_namespace, self.topics)))


def looked_up(targets: Iterable[Target], topics_of: TopicsOf) -> list[Target]:
    """The same, each topic as the cluster has it: its segments, or its partitions, in place of one that has any.

    A name is looked up before anything is done with it: the bundle that a name's hash falls into has nothing of a
    partitioned topic, and of a misspelt one nobody knows.
    """
    expanded: list[Target] = []
    for wanted in targets:
        expanded += [wanted] if wanted.kind in {"bundle", "namespace"} else map(target, topics_of(wanted.text))
    return expanded


def live_topics(admin: Admin) -> TopicsOf:
    """The topics that a name stands for: itself, its partitions, or the active segments of a scalable topic.

    Raises :class:`UsageError` where the cluster has no such topic.
    """

    def topics(name: str) -> list[str]:
        parent = name if is_scalable(name) else segment_parent(name)
        if parent is not None:
            segments = admin.segments(parent) or []
            wanted = [one.name for one in segments if (one.is_active if parent == name else one.name == name)]
            if not wanted:
                raise UsageError(f"{name}: cluster {admin.cluster} has no such scalable topic (from Pulsar 5.0 on)")
            return wanted
        live_bundles(admin)(topic_namespace(name))
        known = admin.topics(topic_namespace(name))
        wanted = [name] if name in known else partitions(name, known)
        if not wanted:
            raise UsageError(f"{name}: there is no such topic in {topic_namespace(name)}")
        return wanted

    return topics


def topic_bundles(admin: Admin, topic: str) -> list[TopicBundle]:
    """The bundle of a topic; of a partitioned or scalable one that of each partition or active segment, in order.

    Raises :class:`UsageError` for a text that names no topic of the cluster.
    """
    wanted = target(topic)
    if wanted.kind not in {"topic", "scalable"}:
        raise UsageError(f"{topic!r} is no topic; wanted persistent://tenant/namespace/topic")
    admin.active_brokers()
    targets, bundles = looked_up((wanted,), live_topics(admin)), live_bundles(admin)
    of = {name: bundle for bundle, names in meant(targets, bundles).topics.items() for name in names}
    return [TopicBundle(one.text, of[one.text]) for one in targets]


def meant(targets: Iterable[Target], bundles_of: BundlesOf) -> Meant:
    """Raises :class:`UsageError` for what is no bundle of its namespace."""
    topics_of: dict[str, tuple[str, ...]] = {}
    cut: dict[str, list[str]] = {}
    for one in targets:
        if one.namespace not in cut:
            cut[one.namespace] = bundles_of(one.namespace)
        for bundle in _bundles(one, cut[one.namespace]):
            topics = (one.text,) if one.kind == "topic" else ()
            topics_of[bundle] = tuple(dict.fromkeys((*topics_of.get(bundle, ()), *topics)))
    return Meant(topics_of)


def _bundles(one: Target, bundles: list[str]) -> list[str]:
    if one.kind == "namespace":
        return bundles
    if one.kind == "topic":
        at = topic_hash(one.text)
        within = [bundle for bundle in bundles if holds(bundle, at)]
        if not within:
            raise UsageError(f"{one.text}: no known bundle of {one.namespace} holds its hash, 0x{at:08x}")
        return within
    if one.text not in bundles:
        raise UsageError(missing(one.text, bundles))
    return [one.text]


def live_bundles(admin: Admin) -> BundlesOf:
    """The bundles of a namespace, as the cluster has cut it now."""

    def bundles(namespace: str) -> list[str]:
        texts = admin.boundaries(namespace)
        if texts is None:
            raise UsageError(f"{namespace}: cluster {admin.cluster} has no such namespace")
        cuts = parse_boundaries(texts)
        return [f"{namespace}/{range_name(*ends)}" for ends in pairwise(cuts)]

    return bundles


def owned_bundles(settings: Settings, namespace: str) -> dict[str, str]:
    """The owner of each bundle of a namespace that has one. Raises :class:`UsageError` where there is no namespace."""
    admin = Admin(settings.pulsar)
    if target(namespace).kind != "namespace":
        raise UsageError(f"{namespace!r} is no namespace; wanted tenant/namespace")
    admin.active_brokers()
    bundles, owner_map = live_bundles(admin)(namespace), owners(admin, taking_over(settings, admin))
    if owner_map.unasked:
        broker, why = next(iter(owner_map.unasked.items()))
        raise ObserveError(f"{broker} does not tell which bundles it owns: {why}")
    return {bundle: owner_map.of[bundle] for bundle in bundles if bundle in owner_map.of}


def named(request: UnloadRequest, admin: Admin) -> None:
    """Raises :class:`UsageError` if the cluster has no such bundle."""
    admin.active_brokers()
    meant((Target(request.bundle, "bundle", bundle_namespace(request.bundle)),), live_bundles(admin))


def trouble(request: UnloadRequest, record: TurnResult) -> LbdError | None:
    """Why the turn of a request could not judge it: the turn failed, or the cluster has no such destination."""
    active = record.observation.active if record.observation is not None else ()
    if record.error is None and request.destination not in active:
        return UsageError(f"{request.destination!r} is no active broker; wanted one of {', '.join(active)}")
    return record.error


def reported_bundles(snapshot: Snapshot) -> BundlesOf:
    """The bundles of a namespace that brokers report: a recording knows no others."""

    def bundles(namespace: str) -> list[str]:
        reported = sorted(name for name in snapshot.bundles if bundle_namespace(name) == namespace)
        if not reported:
            raise UsageError(f"{namespace}: no broker reports a bundle of it")
        return reported

    return bundles


# --- plan only


@dataclass(frozen=True, eq=False)
class Report:
    """Answers, and what they are made from.

    ``taken_at`` is when the reports were read (epoch seconds), ``age_seconds`` how old they were when it was answered,
    None in a recording, whose answers are of its time. ``topics`` are those by which a bundle was named, ``unasked``
    the brokers that did not tell what they own. ``refused`` is why bundles that nobody owns would not be placed now,
    and ``hold`` why none would be.
    """

    cluster: str
    strategy: str
    taken_at: float
    age_seconds: float | None
    sample_interval_seconds: float
    answers: tuple[PlacementAdvice, ...]
    topics: Mapping[str, tuple[str, ...]]
    unasked: Mapping[str, str] = field(default_factory=dict)
    memory: PlaceMemory = field(default_factory=PlaceMemory)
    refused: Mapping[str, str] = field(default_factory=dict)
    hold: str = ""

    @property
    def unowned(self) -> tuple[PlacementAdvice, ...]:
        """Bundles that nobody owns."""
        return tuple(advice for advice in self.answers if advice.owner is None)

    @property
    def unanswered(self) -> tuple[PlacementAdvice, ...]:
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
        admin, parts = observer.admin, order_parts(settings, observer)
        report = ask(parts, admin, words, strategy, PlaceMemory(), taking_over(settings, admin))
        hold = placement_hold(parts, admin) if report.unowned else ""
        placer = Placer(admin, CLOCK, PolicyReader(admin).forbids)
        return replace(report, hold=hold, refused=_refused_placements(report, placer))


def _refused_placements(report: Report, placer: Placer) -> dict[str, str]:
    """Why bundles that nobody owns would not be placed where they should go, as the act would find it now."""
    wanted = [Unload(one.bundle, "", one.placed.broker, 0.0, 0.0) for one in report.unowned if one.placed.broker]
    check = partial(placer.check, planned=False)
    with ThreadPoolExecutor(placer.admin.settings.concurrency, thread_name_prefix="lbd-place") as pool:
        checked = zip(wanted, pool.map(check, wanted), strict=True)
        return {
            unload.bundle: skip.reason.message(skip.detail)
            for unload, skip in checked
            if isinstance(skip, Skip) and not isinstance(skip, AlreadyOwned)
        }


def placement_hold(parts: Parts, admin: Admin) -> str:
    """Why no bundle may be placed now; empty where bundles may. Nobody is disconnected, so few holds count."""
    if admin.transfers:
        return (
            "the extensible load manager chooses the owner of a bundle that nobody owns, whoever is asked; "
            "once a client has it placed, lbd unload BUNDLE --to BROKER --apply moves it"
        )
    hold = parts.ordered_hold()
    return "" if hold is None else hold[0].message(hold[1])


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

    Raises :class:`UsageError` for words and strategies that are none, before any request.
    """
    place, targets = placement(strategy), [target(word) for word in words]
    admin.active_brokers()
    wanted = meant(looked_up(targets, live_topics(admin)), live_bundles(admin))
    return _answered(parts, wanted, owners(admin, busy), (strategy, place), memory, time.time)


def _as_named(topic: str) -> list[str]:
    """A recording knows of no topics: a name is taken for that of one topic, which is not partitioned."""
    if is_scalable(topic):
        wanted = "segment://tenant/namespace/topic/0000-ffff-0"
        raise UsageError(f"{topic}: a recording has no segments; wanted one, {wanted}")
    return [topic]


def ask_recording(settings: Settings, words: Sequence[str], strategy: str, path: Path) -> Report:
    """Answers from the last round of a recording; its earlier rounds feed the averages."""
    place, targets = placement(strategy), [target(word) for word in words]
    header, settings, averages, snapshot = last_round(path, settings)
    wanted = meant(looked_up(targets, _as_named), reported_bundles(snapshot))
    rows = snapshot.rows
    reported = zip(rows.bundle.tolist(), rows.owner().tolist(), strict=True)
    owned = OwnerMap({snapshot.bundles[at]: snapshot.brokers.ids[owner] for at, owner in reported}, {})
    parts = recorded_parts(settings, header.id or path.name, averages, snapshot)
    return _answered(parts, wanted, owned, (strategy, place), PlaceMemory(), None)


def _answered(
    parts: Parts,
    wanted: Meant,
    owned: OwnerMap,
    chosen: tuple[str, Placement],
    memory: PlaceMemory,
    clock: Callable[[], float] | None,
) -> Report:
    strategy, place = chosen
    now = situation(parts, wanted.namespaces)
    observation = now.observation
    of = {bundle: owned.of.get(bundle) for bundle in wanted.topics}
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
        wanted.topics,
        owned.unasked,
        memory,
    )


# --- act: place unowned bundles, pick the destination of an unload

MISSES_THAT_STOP = 2
"""Two in a row that nobody took: something is wrong that a third would not mend."""


class LivePicker:
    """A live lbd's picker. It remembers what it answered: no report shows that yet."""

    def __init__(self, journal: Journal, on_end: Callable[[Outcome | Skip], None]) -> None:
        self._journal, self._on_end = journal, on_end
        self._memory = PlaceMemory()
        self._stopped = threading.Event()
        self._trouble = ""

    def stop(self) -> None:
        """Begin no further bundle of a request; the one that is being placed is brought to its end."""
        self._stopped.set()

    def place(self, request: PlaceRequest, parts: Parts, placer: Placer) -> RequestResult:
        """Place what nobody owns, one bundle after the other; raises :class:`~lbd.errors.LbdError` before any is."""
        report = ask(parts, placer.admin, request.targets, request.strategy, self._memory)
        held = placement_hold(parts, placer.admin) or self._under_way() if report.unowned else ""
        if held:
            raise RefusedError(held)
        self._memory = report.memory
        self._trouble = ""
        held_now = partial(placement_hold, parts, placer.admin)
        placed = list(self._placed(request, report, placer, held_now))
        return _placement_result(placed, self._trouble)

    def _placed(
        self, request: PlaceRequest, report: Report, placer: Placer, held: Callable[[], str]
    ) -> Iterator[PlacedBundle]:
        misses = 0
        for one in report.answers:
            broker = one.placed.broker
            if one.owner is not None:
                yield PlacedBundle(one.bundle, broker, None, one.owner, "owned already; left alone")
            elif broker is None:
                why = f"no broker may have it: {_first(one.candidates.left_out)}"
                yield PlacedBundle(one.bundle, None, None, None, why)
            elif stop := self._trouble or self._stop(request, misses) or held():
                yield PlacedBundle(one.bundle, broker, None, None, f"not asked for: {stop}")
            else:
                reason = f"by hand, {request.by}; {report.strategy}: {one.placed.reason}"
                outcome = placer.place(one.bundle, broker, reason)
                self._ended(outcome)
                misses = 0 if _taken(outcome) else misses + 1
                yield _placed_bundle(outcome, broker)

    def _stop(self, request: PlaceRequest, misses: int) -> str:
        if self._stopped.is_set():
            return "lbd was stopped"
        if time.time() >= request.expires_at:
            return "whoever asked has stopped waiting"
        return "two in a row could not be placed" if misses >= MISSES_THAT_STOP else ""

    def _under_way(self) -> str:
        """A move that a killed process left open: what nobody owns may be on its way."""
        return next(
            (f"{Reason.MOVES_UNFINISHED.label}: {one.bundle} is under way" for _, one in self._journal.open), ""
        )

    def _ended(self, outcome: Outcome | Skip) -> None:
        """Told and written down; where it cannot be written, no more may be placed."""
        self._on_end(outcome)
        if isinstance(outcome, Skip):
            return
        try:
            self._journal.placed(outcome)
        except LbdError as error:
            self._trouble = f"{outcome.unload.bundle} is in no journal: {error}"

    def destination(self, request: UnloadRequest, parts: Parts) -> tuple[UnloadRequest, Parts, str]:
        """As :func:`destination`, with what was answered before."""
        request, parts, picked, self._memory = destination(request, parts, self._memory)
        return request, parts, picked


def destination(
    request: UnloadRequest, parts: Parts, memory: PlaceMemory
) -> tuple[UnloadRequest, Parts, str, PlaceMemory]:
    """The request with a destination, the parts that judge it by what it was chosen from, and why that one.

    A request that names its destination stays as it is. Raises :class:`RefusedError` when no broker may have it.
    """
    if request.destination is not None:
        return request, parts, "", memory
    now = situation(parts, (bundle_namespace(request.bundle),))
    fixed = replace(parts, observer=Fixed(now.observation))
    unload = wanted_unload(request.bundle, now.facts.snapshot, now.facts.averages)
    if isinstance(unload, Skip):
        raise RefusedError(f"{unload.what}: {unload.reason.label}: {unload.detail}")
    placed = _picked(unload, parts, now, memory)
    chosen = msgspec.structs.replace(request, destination=placed.broker)
    return chosen, fixed, f"{DEFAULT}: {placed.reason}", placed.memory


def _picked(unload: Unload, parts: Parts, now: Situation, memory: PlaceMemory) -> PlacementChoice:
    """One of the brokers that every guardrail would let the bundle go to."""
    ledger = _ledger(unload, parts, now)
    others = [broker for broker in now.observation.active if broker != unload.source]
    refusals = {broker: ledger.refusal(replace(unload, destination=broker)) for broker in others}
    may = tuple(broker for broker, refusal in refusals.items() if refusal is None)
    if not may:
        reasons = [refusal for refusal in refusals.values() if refusal is not None]
        raise RefusedError(f"{unload.bundle}: no other broker may have it: {_first(reasons)}")
    return build(DEFAULT)(unload.bundle, may, now.loads(parts, 1, (unload.bundle,)), memory)


def show_unload(settings: Settings, bundle: str, broker: str | None, daemons: Observer | None = None) -> RequestResult:
    """What ``lbd unload`` would do now, judged as it would be; nothing is changed.

    Raises :class:`RefusedError` where it would be refused.
    """
    request = UnloadRequest("", bundle, broker, None, "", 0.0, 0.0)
    with preview_observer(settings, daemons) as observer:
        named(request, observer.admin)
        parts = overriding(order_parts(settings, observer), request)
        request, parts, picked, _ = destination(request, parts, PlaceMemory())
        record = turn(wanting(parts, request, picked))
        if (error := trouble(request, record)) is not None:
            raise error
        if not record.unloads or record.observation is None or record.decision is None:
            raise RefusedError(request_reason(record, bundle))
        (unload,) = record.unloads
        checked = _checked_last(unload, observer.admin)
        if isinstance(checked, Skip):
            raise RefusedError(checked.reason.message(checked.detail))
    before = dict(zip(record.observation.snapshot.brokers.ids, record.decision.comparison.scores.tolist(), strict=True))
    ends = (
        f"{one} ({before[one]:.1f} points, then {record.expected[one]:.1f})"
        for one in (unload.source, unload.destination or "")
    )
    carried = f"{unload.msg_rate:,.0f} msg/s, {unload.throughput / 1e6:,.1f} MB/s"
    sentence = f"Would move {bundle} ({carried}) from {' to '.join(ends)}{picked and f'; {picked}'}."
    shown = PlacedBundle(bundle, unload.destination, None, unload.source, reason=picked)
    return RequestResult(0, sentence, owner=unload.source, placed=[shown])


def _checked_last(unload: Unload, admin: Admin) -> ReadyMove | Skip:
    """The last check before a request, as the act makes it; policies were read for the plan just now."""
    reader = PolicyReader(admin)

    def forbids(move: Unload, *, planned: bool) -> Skip | None:
        del planned  # the reader that planned it is another one
        return reader.forbids(move, planned=False)

    return Unloader(admin, CLOCK, forbids=forbids).check(unload)


def _taken(outcome: Outcome | Skip) -> bool:
    """Whether somebody owns it now, a client's broker included."""
    return outcome.reason is Reason.OWNER_CHANGED if isinstance(outcome, Skip) else outcome.owner is not None


def _placed_bundle(outcome: Outcome | Skip, broker: str) -> PlacedBundle:
    if isinstance(outcome, Skip):
        owner = outcome.owner if isinstance(outcome, AlreadyOwned) else None
        return PlacedBundle(outcome.what, broker, None, owner, f"{outcome.reason.label}: {outcome.detail}")
    unload = outcome.unload
    return PlacedBundle(unload.bundle, broker, outcome.result, outcome.owner, outcome.detail, unload.reason)


def _ledger(unload: Unload, parts: Parts, now: Situation) -> Ledger:
    """What judges each destination as a turn would; what bars the bundle itself is the turn's to say."""
    facts, snapshot = now.facts, now.facts.snapshot
    nothing = np.zeros(len(snapshot.bundles), dtype=np.int8)
    permission = replace(facts.evidence.permission(nothing), slopes=parts.learn(snapshot))
    later = unshown(facts.scores, facts.sent, snapshot, facts.evidence.settled, facts.sample_interval_seconds)
    return parts.ledger(snapshot, facts.scores, facts.policies, (unload,), permission, facts.sent, later)


def _first(refusals: Iterable[Skip]) -> str:
    texts = list(dict.fromkeys(f"{skip.reason.label}: {skip.detail}" for skip in refusals))
    return "; ".join(texts[:3]) + (f"; and {len(texts) - 3} more reasons" if len(texts) > 3 else "") or "there is none"


def _placement_result(placed: list[PlacedBundle], trouble: str) -> RequestResult:
    """One sentence for the whole request: what was not placed weighs more than what was; ``trouble`` is told always."""
    landed = sum(one.result is Result.LANDED for one in placed)
    alone = sum(one.result is None and one.owner is not None for one in placed)
    missed = [one for one in placed if one.result not in {None, Result.LANDED}]
    refused = [one for one in placed if one.result is None and one.owner is None]
    words = [f"{landed} placed", f"{alone} owned already and left alone" if alone else ""]
    words += [f"{len(missed)} not where they should be: {missed[0].bundle}: {missed[0].detail}" if missed else ""]
    words += [f"{len(refused)} not placed: {refused[0].bundle}: {refused[0].detail}" if refused else ""]
    words += [trouble if not any(trouble in one for one in words) else ""]
    code = FAILED if missed else REFUSED if refused else 0
    return RequestResult(
        code,
        f"{counted(len(placed), 'bundle')}: {', '.join(filter(None, words))}.",
        placed=placed,
    )
