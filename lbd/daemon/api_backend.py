"""The daemon's side of the API: the state published after each turn, the current plan, and the picker.

The plan is the one that waits for approval, or what a turn would start if the imbalance lasts, from the round of the
last turn.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import structlog

from lbd.api.published import Board, Published
from lbd.api.server import Server, check_certificate, listen_locally, listen_on
from lbd.api.shapes import Drained, PlacementResponse, PlanResponse
from lbd.api.token import TokenFiles
from lbd.bundles import TopicBundle, holds, range_in_name, topic_hash
from lbd.daemon.status import move_line, served_line, with_leader
from lbd.errors import ObserveError, ThreadError, UsageError, as_lbd_error
from lbd.files import remove
from lbd.operations.drain import plan_json, show_drain, show_fill
from lbd.operations.dry import Fixed, acting, parts_of_known
from lbd.operations.parts import PolicyReader
from lbd.operations.place import live_bundles, placement, resolve_targets, show_unload, target, topic_bundles
from lbd.operations.planned import plan_refusal
from lbd.operations.rollout import show_rollout
from lbd.operations.split import due_document, plan_due, plan_split, split_refusal
from lbd.permit.eligibility import slow_brokers
from lbd.permit.policies import Policies
from lbd.place.picker import RunningLoads, answer_all, without_doubted
from lbd.place.placements import BrokerLoads, PlaceMemory, broker_loads
from lbd.pulsar.admin import Admin
from lbd.split.plan import as_document
from lbd.store.control import SOCKET
from lbd.store.drains import Drains
from lbd.store.predictions import predictions
from lbd.threads import Threads
from lbd.turn.record import plan_document, proposal
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from lbd.api.shapes import DrainPlan, RolloutPlan
    from lbd.config import Settings
    from lbd.daemon.engine import Engine
    from lbd.model import CodeArray, IntArray, Outcome, Skip, Snapshot
    from lbd.observe.observer import Observation
    from lbd.operations.place import Target
    from lbd.permit.policies import Groups, Isolation
    from lbd.permit.served import Landing, ServiceResult
    from lbd.place.placements import Placement as Rule
    from lbd.pulsar.broker_health import BrokerHealth
    from lbd.split.plan import Algorithm, DueSplitsDocument, SplitDocument, SplitPlan
    from lbd.store.control import Request, RequestResult
    from lbd.store.orders import Orders
    from lbd.store.predictions import Predictions
    from lbd.store.proposal import Proposal
    from lbd.store.status import Status
    from lbd.turn.parts import Parts, TurnResult


KEPT = 16
"""Plans that may still be applied; the oldest are forgotten."""

PREDICTIONS_SECONDS = 300.0
"""Age up to which the comparison of earlier predictions is given again: to make it reads up to a day of turns."""


class Planner:
    """Plans of one running lbd. Thread-safe; each round is planned for once, and no turn waits for it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._admin = Admin(engine.settings.pulsar, engine.silences)
        self._lock = threading.Lock()
        self._last: tuple[Published, Proposal | None, PlanResponse] | None = None
        self._shown: OrderedDict[str, Proposal] = OrderedDict()
        self._compared: tuple[float, Predictions] | None = None

    def plan(self, published: Published) -> PlanResponse:
        """The plan that waits, else what a turn would start. Raises :class:`~lbd.errors.LbdError` if planning fails."""
        waiting = self._engine.proposal
        with self._lock:
            if self._last is None or self._last[0] is not published or self._last[1] != waiting:
                self._last = published, waiting, self._response(published, waiting)
            return self._last[2]

    def find(self, name: str) -> Proposal | None:
        """A plan that was proposed or shown, unless it has expired."""
        with self._lock:
            shown = self._shown.get(name)
        if shown is not None and not shown.in_time(self._engine.timebase.now()):
            shown = None
        return self._engine.proposed(name) or shown

    def _predictions(self, now: float) -> Predictions:
        if self._compared is None or not 0 <= now - self._compared[0] < PREDICTIONS_SECONDS:
            self._compared = now, predictions(self._engine.settings.state_dir, now)
        return self._compared[1]

    def _response(self, published: Published, waiting: Proposal | None) -> PlanResponse:
        past = self._predictions(self._engine.timebase.now())
        if waiting is not None and published.record.observation is not None:
            refused = plan_refusal(waiting, self._acting(published))
            return PlanResponse(waiting, plan_document(published.record, waiting, refused, past, proposed=True))
        record = self._planned(published)
        plan = proposal(record)
        self._shown.pop(plan.id, None)
        self._shown[plan.id] = plan
        while len(self._shown) > KEPT:
            self._shown.popitem(last=False)
        refused = plan_refusal(plan, self._acting(published))
        return PlanResponse(plan, plan_document(record, plan, refused, past, proposed=False))

    def _planned(self, published: Published) -> TurnResult:
        planned = turn(self._parts(published))
        if planned.error is not None:
            raise planned.error
        return planned

    def _parts(self, published: Published) -> Parts:
        """Those of a turn on the last round."""
        record, settings = published.record, published.settings
        if record.observation is None or record.turn_memory is None or record.facts is None:
            raise ObserveError(f"the last turn says nothing to plan by: {record.sentence}")
        self._admin.active_brokers()
        looked, policies = Fixed(record.observation), PolicyReader(self._admin)
        memory, journal = record.turn_memory, self._engine.journal
        return parts_of_known(settings, looked, policies, memory, record.facts.averages, journal, lambda: None)

    def _acting(self, published: Published) -> Parts:
        """The same as they judge an order: by the samples of the turns, and by what holds them."""
        memory, facts = published.record.turn_memory, published.record.facts
        assert memory is not None
        assert facts is not None
        return acting(self._parts(published), memory, facts.averages, self._engine.order_hold)


# --- the picker, from the last turn's round; brokers are contacted only for what is unknown
# The values of a round are laid out once (:class:`_PublishedRound`); a question then costs a few dictionary look-ups
# and a hash per broker. Answers for unowned bundles are remembered, because no report shows their effect yet.

Kind = TypeVar("Kind")

POLICIES_SECONDS = 60.0
"""Groups and boundaries of a namespace are asked for again after this; a turn's own plan always asks anew."""

LATEST_SECONDS = 2 * POLICIES_SECONDS
"""Until then a group is asked for again beside the answers, and later before the next one."""

NAMESPACES = 10_000
"""Kept at most; then all are asked for again."""


@dataclass(frozen=True, eq=False)
class _PublishedRound:
    """One turn's round, laid out for questions. ``isolation`` was read with it.

    ``allowed`` are the brokers on which it allows each namespace that was asked about.
    """

    published: Published
    isolation: Isolation
    drained: frozenset[str]
    loads: BrokerLoads
    allowed: dict[str, frozenset[str]] = field(default_factory=dict)
    _cuts: dict[str, tuple[list[int], list[str]]] = field(default_factory=dict)

    @property
    def record(self) -> TurnResult:
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
        assert self.record.facts is not None
        return self.record.facts.evidence.paired

    @cached_property
    def position(self) -> dict[str, int]:
        """Index of each bundle in the snapshot."""
        return {name: index for index, name in enumerate(self.snapshot.bundles)}

    @cached_property
    def owner(self) -> IntArray:
        """Broker position of each bundle, int32 (N,)."""
        rows = self.snapshot.rows
        owners: IntArray = np.full(len(self.snapshot.bundles), -1, dtype=np.int32)
        owners[rows.bundle] = rows.owner()
        return owners

    def owner_of(self, bundle: str) -> str | None:
        """The owner that brokers reported; None where none did."""
        row = self.position.get(bundle)
        return self.snapshot.brokers.ids[int(self.owner[row])] if row is not None and self.owner[row] >= 0 else None

    def rate_of(self, bundle: str) -> dict[str, float]:
        """Its long-term messages/s, in + out, by its name; nothing where it is not known."""
        row = self.position.get(bundle)
        facts = self.record.facts
        return {} if row is None or facts is None else {bundle: float(facts.averages.long[row, :2].sum())}

    def cuts(self, namespace: str) -> tuple[list[int], list[str]]:
        """Where the bundles begin that brokers report of a namespace, and these bundles; both in that order."""
        if namespace not in self._cuts:
            namespaces = self.snapshot.namespaces
            code = namespaces.names.index(namespace) if namespace in namespaces.names else -1
            names = [self.snapshot.bundles[row] for row in np.flatnonzero(namespaces.of == code).tolist()]
            ordered = sorted((range_in_name(name)[0], name) for name in names)
            self._cuts[namespace] = [lower for lower, _ in ordered], [name for _, name in ordered]
        return self._cuts[namespace]

    def bundle_of(self, query: Target) -> str | None:
        """The reported bundle that a query names, or that holds its topic; None without one."""
        if query.kind == "bundle":
            return query.text if query.text in self.position else None
        return self.bundle_with(query.namespace, topic_hash(query.text)) if query.kind == "topic" else None

    def bundle_with(self, namespace: str, position: int) -> str | None:
        """The reported bundle that holds a topic's hash."""
        lowers, names = self.cuts(namespace)
        index = bisect_right(lowers, position) - 1
        return names[index] if index >= 0 and holds(names[index], position) else None


class Picker:
    """Answers of one lbd. Thread-safe. ``now`` is epoch seconds."""

    def __init__(self, settings: Settings, now: Callable[[], float], silences: BrokerHealth | None = None) -> None:
        self._now = now
        self._admin = Admin(settings.pulsar, silences)
        self._policies = PolicyReader(self._admin)
        self._lock, self._laying = threading.Lock(), threading.Lock()
        self._pool = Threads(1, "lbd-picker")
        self._look: _PublishedRound | None = None
        self._memories: dict[str, PlaceMemory] = {}
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

    def pick_at_once(self, text: str, strategy: str) -> PlacementResponse | None:
        """The same as :meth:`pick` where all of it is known, in a millisecond; None where a broker must be asked."""
        place, query, layout = placement(strategy), target(text), self._look
        if layout is None:
            return None
        bundle, groups = layout.bundle_of(query), self._remembered(layout, query.namespace)
        if bundle is None or groups is None:
            return None
        return self._answer(layout, bundle, groups, place, strategy)

    def pick(self, published: Published, text: str, strategy: str) -> PlacementResponse:
        """Where one bundle, or the bundle of one topic, should go if nobody owned it.

        Raises :class:`UsageError` for what is none and :class:`ObserveError` while no round is known.
        """
        place, query = placement(strategy), target(text)
        layout = self._look or self._lay_out(published)
        if layout is None:
            raise ObserveError("the last turn observed nothing; ask again after the next one")
        bundle = self._bundle(layout, query)
        groups = self._remembered(layout, query.namespace) or self._ask_groups(layout, query.namespace)
        return self._answer(layout, bundle, groups, place, strategy)

    def _answer(
        self, layout: _PublishedRound, bundle: str, groups: Groups, rule: Rule, strategy: str
    ) -> PlacementResponse:
        policies = Policies(layout.isolation, groups, layout.observation.active, layout.drained, layout.allowed)
        most_topics = layout.published.settings.guardrails.max_topics_per_broker
        standing = RunningLoads(layout.snapshot, policies, layout.doubted, most_topics)
        age = max(self._now() - layout.snapshot.taken_at, 0.0)
        loads = replace(layout.loads, age_seconds=age, bundle_rates=layout.rate_of(bundle))
        with self._lock:
            memory = self._memories.get(strategy, PlaceMemory())
            (answer,), memory = answer_all({bundle: layout.owner_of(bundle)}, standing, rule, loads, memory)
            self._memories[strategy] = memory
        return PlacementResponse.of(answer, layout.observation, age, strategy)

    def _lay_out(self, published: Published) -> _PublishedRound | None:
        with self._laying:
            if self._look is not None and self._look.published is published:
                return self._look
            record = published.record
            if record.observation is None or record.facts is None:
                return self._look
            self._admin.active_brokers()
            drained = frozenset(Drains(published.settings.state_dir).in_force(self._now()))
            drained |= slow_brokers(record.facts.evidence, record.observation.snapshot)
            loads = broker_loads(record.observation.snapshot, record.facts.averages, published.settings.weights)
            layout = _PublishedRound(
                published, self._policies.isolation(), drained, without_doubted(loads, record.facts.evidence.paired)
            )
            _ = layout.position, layout.owner, layout.snapshot.namespaces
            self._look = layout
            return layout

    def _bundle(self, layout: _PublishedRound, query: Target) -> str:
        """The bundle meant: of those that brokers report, else as the cluster has cut the namespace."""
        if query.kind == "namespace":
            raise UsageError(f"{query.text!r} is a namespace; wanted one bundle or topic")
        if query.kind == "scalable":
            raise UsageError(f"{query.text!r} is a scalable topic; wanted a segment, which /v1/bundles?topic= lists")
        return layout.bundle_of(query) or next(iter(resolve_targets((query,), self._cut).topics))

    def _cut(self, namespace: str) -> list[str]:
        """The bundles of a namespace that brokers may not report, as nobody owns them."""
        read_at, bundles = self._bundles.get(namespace, (0.0, []))
        if not 0 <= self._now() - read_at < POLICIES_SECONDS:
            self._admin.active_brokers()
            bundles = live_bundles(self._admin)(namespace)
            _keep(self._bundles, namespace, (self._now(), bundles))
        return bundles

    def _remembered(self, layout: _PublishedRound, namespace: str) -> Groups | None:
        """Groups of a namespace as last read; None if too old. Ageing ones are read again beside the answers."""
        read_at, groups = self._groups.get(namespace, (0.0, None))
        age = self._now() - read_at
        if groups is None or not 0 <= age < LATEST_SECONDS:
            return None
        if age >= POLICIES_SECONDS and namespace not in self._asking:
            self._asking.add(namespace)
            self._beside(self._ask_groups, layout, namespace)
        return groups

    def _beside(self, work: Callable[..., object], *args: object) -> None:
        """Do work that no answer waits for; log its failure."""
        with suppress(ThreadError, CancelledError):  # answers go by what was known before, and say how old that is
            self._pool.submit(work, *args).add_done_callback(_log_stale)

    def _ask_groups(self, layout: _PublishedRound, namespace: str) -> Groups:
        names = (*layout.snapshot.namespaces.names, namespace)
        try:
            with self._laying:
                groups = self._policies.groups((namespace,), frozenset(name.partition("/")[0] for name in names))
        finally:
            self._asking.discard(namespace)
        _keep(self._groups, namespace, (self._now(), groups))
        return groups


def _log_stale(work: Future[object]) -> None:
    """Answers go on by what was known before, and say how old that is."""
    error = None if work.cancelled() else work.exception()
    if isinstance(error, Exception):
        structlog.get_logger().warning(
            "placements go by an older round, or older policies", why=str(as_lbd_error(error))
        )


def _keep(cache: dict[str, Kind], namespace: str, value: Kind) -> None:
    if len(cache) >= NAMESPACES:
        cache.clear()
    cache[namespace] = value


# --- published state and requests


class Serving:
    """The API beside the turns of an engine: for commands on this machine always, on TCP where ``api.enabled``.

    A port that is taken costs the API, not the turns.

    ``url`` is where it listens on TCP, None where it does not. ``silent_seconds`` is how long ago a turn or move ended,
    ``patience_seconds`` how much of that is too much.
    """

    def __init__(
        self, engine: Engine, silent_seconds: Callable[[], float], patience_seconds: Callable[[], float]
    ) -> None:
        self.board = Board()
        self.silent_seconds, self.patience_seconds = silent_seconds, patience_seconds
        self._engine = engine
        self.url: str | None = None
        self._server: Server | None = None
        self._local: Server | None = None
        self._picker, self._planner = self._responders()
        self._trouble, self._local_trouble, self._token = "", "", TokenFiles(None)
        engine.draining.on_work = lambda work: self.board.events.tell("drain", Drained(work.broker, work))
        engine.rolling.on_change = lambda rollout: self.board.events.tell("rollout", rollout)

    @property
    def settings(self) -> Settings:
        """Settings in force."""
        return self._engine.settings

    @property
    def state_dir(self) -> Path:
        """State directory of the daemon."""
        return self.settings.state_dir

    @property
    def orders(self) -> Orders:
        """Store of the orders of people."""
        return self._engine.orders

    def now(self) -> float:
        """Epoch seconds, by the daemon's clock."""
        return self._engine.timebase.now()

    def pick_at_once(self, text: str, strategy: str) -> PlacementResponse | None:
        """Where one bundle, or that of a topic, should go; None where a broker must be asked first."""
        return self._picker.pick_at_once(text, strategy)

    def pick(self, published: Published, text: str, strategy: str) -> PlacementResponse:
        """Where one bundle, or that of a topic, should go."""
        return self._picker.pick(published, text, strategy)

    def plan(self, published: Published) -> PlanResponse:
        """The plan that waits for approval, else what a turn would start if the imbalance lasts."""
        return self._planner.plan(published)

    def planned(self, name: str) -> Proposal | None:
        """A plan that was proposed or shown lately."""
        return self._planner.find(name)

    def proposal(self) -> Proposal | None:
        """The plan that waits."""
        return self._engine.proposal

    def show_drain(self, broker: str) -> DrainPlan:
        """Whether a broker can be spared, by a look of its own at the cluster."""
        return plan_json(show_drain(self.settings, broker, self._engine.looking))

    def show_rollout(self, brokers: Sequence[str]) -> RolloutPlan:
        """The order of a rollout, and what each drain would move, by a look of its own at the cluster."""
        return show_rollout(self.settings, brokers, self._engine.looking)

    def show_unload(self, bundle: str, destination: str | None) -> RequestResult:
        """Preview of an unload, by a look of its own at the cluster."""
        return show_unload(self.settings, bundle, destination, self._engine.looking)

    def topic_bundles(self, topic: str) -> list[TopicBundle]:
        """The bundle of a topic, or of each segment of a scalable one."""
        return topic_bundles(self._engine.looking.admin, topic)

    def plan_split(self, bundle: str, algorithm: Algorithm | None, positions: Sequence[int]) -> SplitDocument:
        """Where one bundle would be cut, by a look of its own at the cluster."""
        section, admin = self.settings.split, self._engine.looking.admin
        plan = plan_split(admin, bundle, algorithm or section.algorithm, section, positions)
        return as_document(plan, self._refused_split(plan))

    def _refused_split(self, plan: SplitPlan) -> str:
        engine = self._engine
        return split_refusal(plan, self.settings, engine.journal, engine.looking.admin, engine.order_hold())

    def plan_due_splits(self) -> DueSplitsDocument:
        """Splits that the rule would make, by a look of its own at the cluster."""
        return due_document(plan_due(self.settings, self._engine.looking), self._refused_split)

    def ask(self, request: Request, gone: Callable[[], bool]) -> tuple[RequestResult | None, bool]:
        """The result of a request, and whether nothing was begun."""
        return self._engine.requests.ask(request, gone)

    def show_fill(self, broker: str) -> DrainPlan:
        """Moves that would fill a broker, by a look of its own at the cluster."""
        return plan_json(show_fill(self.settings, broker, self._engine.looking))

    def start(self) -> None:
        """Listen in the state directory, and on TCP where settings want it."""
        try:
            self._local = Server(self, listen_locally(self.state_dir / SOCKET), local=True)
        except (UsageError, ThreadError) as error:
            self._local_trouble = str(error)
            structlog.get_logger().error("no commands; lbd goes on without them", why=self._local_trouble)
        self._start_tcp()

    def _start_tcp(self) -> None:
        api = self.settings.api
        self._trouble = ""
        if not api.enabled:
            return
        self._token = TokenFiles(api.token_file, api.tokens_file)
        try:
            listening = listen_on(api)
            self.url, self._server = api.url(listening.getsockname()[1]), Server(self, listening)
        except (UsageError, ThreadError) as error:
            self._trouble = str(error)
            structlog.get_logger().error("no API; lbd goes on without it", why=self._trouble)

    def stop(self) -> None:
        """Answer nothing any more."""
        self._end_tcp()
        if self._local is not None:
            with suppress(OSError):
                remove(self.state_dir / SOCKET)
            self._local.stop()
            self._local = None
        self._picker.close()

    def take(self, before: Settings) -> None:
        """The engine's settings have changed from these."""
        picker = self._picker
        self._picker, self._planner = self._responders()
        picker.close()
        if self.settings.api == before.api and self._server is not None:
            try:
                check_certificate(self.settings.api)
            except UsageError as error:  # it is being renewed
                self._trouble = f"{error}; the one that was read last is used"
                structlog.get_logger().error("the API's certificate stays as it was", why=self._trouble)
                return
        if self.settings.api != before.api or self._trouble or self.settings.api.secure:  # certificates are renewed
            self._end_tcp()
            self._start_tcp()

    def _responders(self) -> tuple[Picker, Planner]:
        """Picker and planner for the settings in force; both share the silent brokers that the turns remember."""
        return Picker(self.settings, self.now, self._engine.silences), Planner(self._engine)

    def _end_tcp(self) -> None:
        if self._server is not None:
            self._server.stop()
        self._server, self.url = None, None

    def publish(self, record: TurnResult, status: Status) -> Status:
        """Show a turn; returns its status with what there is to say of the API."""
        token = self._token.trouble if self._server is not None else ""
        warnings = [*status.warnings, *filter(None, (self._local_trouble, self._trouble, token))]
        status = msgspec.structs.replace(status, api=self.url, warnings=warnings)
        published = Published(status, record, self.settings)
        self.board.publish(published)
        self._picker.published(published)
        return status

    def led(self) -> Status | None:
        """Show who leads by now; the status of the last turn with that, None before the first."""
        last = self.board.last
        return None if last is None else self.board.again(with_leader(last.status, self._engine.leading)).status

    def moved(self, end: Outcome | Skip) -> None:
        """Publish the end of a move."""
        sentence, facts = move_line(end)
        self.board.moved(end, {"sentence": sentence, **facts})

    def served(self, landing: Landing, service: ServiceResult) -> None:
        """Publish whether a move's clients are back."""
        sentence, facts = served_line(landing, service)
        self.board.served(service, {"sentence": sentence, **facts})
