"""The one place where the real parts of a live lbd are put together, on a cluster and a state directory.

A turn hands its plan to the executor; an lbd that only observes has none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from lbd.act.executor import DryRun, Execution, Executor, FinishedMoves, Pace
from lbd.act.place import Placer
from lbd.act.unload import Unloader
from lbd.daemon.election import refuse_changes
from lbd.daemon.proposals import Proposals
from lbd.daemon.service_proof import ServiceProof
from lbd.daemon.take_over import watching
from lbd.daemon.unknown_moves import KeptOwners, UnknownMovesWatch, WatchedObserver
from lbd.model import bundle_namespace
from lbd.observe.health_checks import HealthChecks
from lbd.observe.live_cpu import LiveCpuReader
from lbd.observe.observer import Observer, few_at_once
from lbd.observe.topic_names import SpreadReader, TopicNames
from lbd.operations.capacity import PeakKeeper
from lbd.operations.drain import REREAD, Draining, Tools
from lbd.operations.parts import Learned, PolicyReader
from lbd.operations.place import LivePicker
from lbd.operations.requests import OVERRIDDEN_HOLDS, ordered
from lbd.operations.rollout import Rolling
from lbd.operations.split import CLOCK, Splitting
from lbd.permit.evidence import touched_since, unsettle
from lbd.permit.quiet_hours import quiet_until
from lbd.pulsar.admin import Admin
from lbd.pulsar.broker_health import BrokerHealth
from lbd.reason import Reason
from lbd.store.control import Control
from lbd.store.proposal import AppliedPlans
from lbd.store.state import Remembered, Scratch, StateDir
from lbd.turn.parts import OwnershipWatch, reports_alone
from lbd.turn.strategy_config import gap_seconds, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lbd.act.executor import Limits
    from lbd.clock import Timebase
    from lbd.config import Settings
    from lbd.daemon.election import Role
    from lbd.model import Outcome, Skip, Snapshot, Unload
    from lbd.permit.facts import Hold
    from lbd.store.control import UnloadRequest
    from lbd.store.journal import Journal
    from lbd.turn.parts import Parts, RoundSource, TurnResult


@dataclass(frozen=True)
class Acting:
    """Hands plans to the executor."""

    executor: Executor
    orders: Execution
    acts = True

    def collect(self) -> FinishedMoves:
        """Moves that ended since the last turn, and those under way."""
        return self.executor.collect()

    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None:
        """Begin; returns at once."""
        self.executor.start(plan, limits, self.orders)

    def settled(self) -> None:
        """The brokers touched are on disk as such."""
        self.executor.settled()

    def halt(self, reason: Reason, detail: str) -> None:
        """Begin no more of what was handed over."""
        self.executor.halt(reason, detail)


@dataclass(frozen=True)
class BesideTurn(Acting):
    """The same for a plan made beside the turns, which leaves to them what has ended."""

    def collect(self) -> FinishedMoves:
        """Only what is under way."""
        return FinishedMoves(unfinished=self.executor.unfinished)

    def settled(self) -> None:
        """Nothing was collected."""

    def halt(self, reason: Reason, detail: str) -> None:
        """A hold is the turns' to apply."""


class Observing(DryRun):
    """Moves nothing, and says once for each imbalance what would move: until the sources have ceased to be any."""

    def __init__(self) -> None:
        self._announced: set[str] = set()

    def hand_over(self, plan: Sequence[Unload], limits: Limits) -> None:
        """Remember the sources of the plan, which the turn announces."""
        del limits
        self._announced |= {unload.source for unload in plan}

    def forget_calm(self, record: TurnResult) -> None:
        """Forget sources that no pair names any more: they may be announced again."""
        if record.plan.decision is not None:
            self._announced &= {pair.source for pair in record.plan.pairs}

    def hold(self) -> Hold | None:
        """The strategy counts on below its limit while what it would do has been said."""
        if not self._announced:
            return None
        return Reason.OBSERVE_ONLY, f"what would move from {', '.join(sorted(self._announced))} was said before"


# --- parts of a live lbd

OBSERVED_BESIDE = frozenset({Reason.IN_BROKER_SHEDDING})
"""Under it a lbd that only observes still tells what it would move: it is tried while brokers balance themselves."""


class Assembled:
    """Parts on a state directory that is held, and what keeps them from acting.

    ``on_end`` is called with the outcome of each move, in the thread that made it.
    """

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        joined: tuple[Journal, Role],
        timebase: Timebase,
        on_end: Callable[[Outcome | Skip], None],
    ) -> None:
        self.settings, self.timebase = settings, timebase
        self.journal, self.leading = joined
        journal = self.journal
        self.observing = Observing() if settings.mode == "observe" else None
        self.memory = Remembered(state)
        self.executor = Executor(journal, timebase.now, on_end)
        self.orders = self.leading.orders
        self.control = Control(settings.state_dir, self.orders)
        self.plans = AppliedPlans(settings.state_dir, self.orders)
        self.proposals = Proposals(self.plans.approved_by)
        self.unknown_moves = UnknownMovesWatch(
            KeptOwners(state.store),
            lambda: journal.attempted_at,
            lambda: gap_seconds(self.settings),
            lambda: self.settings.guardrails.cool_down_minutes * 60,
            lambda: self.control.resumed_at,
            timebase.boot,
        )
        self.silences = BrokerHealth()
        self.looking = self._look(settings)
        self.observer = self._observed(settings)
        self.live_cpu = self._live_cpu(settings)
        self.health_checks = HealthChecks(self.looking.admin)
        self.policies = PolicyReader(self.looking.admin)
        self.topics = TopicNames(self._topics, timebase.now)
        self.splitting = Splitting(journal, lambda: self.looking.admin, timebase.now, self._ordered)
        self.placing = LivePicker(journal, on_end)
        self.learned = Learned(settings, timebase.now())
        self.peaks = PeakKeeper(settings, timebase.now())
        self.draining = Draining(self.orders, self.executor, timebase.now, self.ordered)
        self.rolling = Rolling(self.orders, self.draining, timebase.now, self.ordered, lambda: self.journal.sent)
        self.proof = ServiceProof(
            journal,
            lambda: self.looking.admin,
            timebase.now,
            lambda: self.settings.guardrails.stand_still_minutes * 60,
            lambda: self.control.resumed_at,
        )
        self._watch = OwnershipWatch(self.unknown_moves.before)
        self.leading.serve(self.executor, self.splitting)

    def _look(self, settings: Settings) -> Observer:
        return Observer(Admin(settings.pulsar, self.silences), self.timebase.now)

    def _live_cpu(self, settings: Settings) -> LiveCpuReader:
        run_each = partial(few_at_once, self.looking.pool, settings.pulsar.concurrency)
        return LiveCpuReader(self.looking.admin, run_each)

    def _topics(self, namespace: str) -> list[str]:
        return self.looking.admin.topics(namespace)

    def _observed(self, settings: Settings) -> RoundSource:
        """A lbd that only observes takes nothing over either."""
        looking, now = WatchedObserver(self.looking, self.unknown_moves), self.timebase.now
        return looking if self.observing else watching(settings, looking, self.looking.admin, now, self._leads)

    def take(self, settings: Settings) -> None:
        """Go on with other settings; counters, averages, journal and moves stay.

        The observer stays, too, unless the cluster is to be reached otherwise: to hear the reports on topics anew takes
        a quarter of an hour.
        """
        refuse_changes(self.settings, settings)
        self.executor.halt(Reason.ROUND_STOPPED, REREAD)
        self.draining.plan_anew()
        self.splitting.halt()
        if settings.pulsar != self.settings.pulsar:
            self.looking.close()
            if settings.pulsar.admin_urls != self.settings.pulsar.admin_urls:
                self.silences.close()  # what hangs there is asked with these brokers' token, and may be none of them
                self.silences = BrokerHealth()
            self.looking = self._look(settings)
            self.live_cpu = self._live_cpu(settings)
            self.health_checks.close()
            self.health_checks = HealthChecks(self.looking.admin)
            self.policies = PolicyReader(self.looking.admin)
        self.settings, self.observer = settings, self._observed(settings)
        self.proposals.drop()
        self.learned.configure(settings.load)
        self.peaks.take(settings)

    def recover(self, seconds: float = 0.0) -> None:
        """Close what a killed process left open, or one that led before."""
        if self.observing is None and self._leads():
            self.executor.recover(self._unloader, seconds)
            self.splitting.recover()

    def close(self) -> None:
        """Close what was opened here; the journal is closed by whoever opened it."""
        self.leading.stop()
        self.executor.close()
        self.proof.close()
        self.health_checks.close()
        self.looking.close()
        self.silences.close()
        self.unknown_moves.close()

    def hold(self) -> Hold | None:
        """The hold of the turns; None where they may fire."""
        announced = self.observing.hold() if self.observing else None
        hold = self._lost() or self.leading.hold() or self.splitting.hold() or self._waiting()
        return hold or announced or self.rolling.hold() or self.draining.hold()

    def _leads(self) -> bool:
        return self.leading.leading

    def _ordered(self) -> Hold | None:
        return self._lost() or self.leading.hold() or self._waiting()

    def _waiting(self) -> Hold | None:
        """The hold that ends with time, or when a person resumes lbd."""
        return self.paused() or self.unknown_moves.hold(self.timebase.now()) or self.proof.hold()

    def _lost(self) -> Hold | None:
        """Without its journal and its lock nobody would know of a move, and another lbd may be at work."""
        return (Reason.STATE_LOST, lost) if (lost := self.journal.lost) else None

    def paused(self) -> Hold | None:
        """The pause in force."""
        return ordered(self.control, self.timebase.now())

    def held(self) -> Hold | None:
        """The hold of a planned unload before it is sent; quiet hours may begin while a plan is under way."""
        return self.hold() or self._quiet()

    def unserved(self, bundle: str) -> Hold | None:
        """The hold of this bundle: clients of its namespace are not back."""
        why = self.proof.namespaces().get(bundle_namespace(bundle))
        return None if why is None else (Reason.NOT_SERVED, why)

    def ordered(self) -> Hold | None:
        """The hold of a drain's unloads. The turns' own hold is no part of it: the drain itself holds the turns."""
        return self._ordered() or self._quiet()

    def _quiet(self) -> Hold | None:
        quiet = quiet_until(self.settings.guardrails.quiet_hours, self.timebase.now())
        return (Reason.QUIET_HOURS, quiet[1]) if quiet is not None else None

    @property
    def placer(self) -> Placer:
        """Placer of bundles that nobody owns."""
        return Placer(self.looking.admin, CLOCK, self.policies.forbids, self._ordered)

    def _unloader(self) -> Unloader:
        return Unloader(self.looking.admin, CLOCK, forbids=self.policies.forbids)

    def _orders(self, request: UnloadRequest | None = None) -> Execution:
        """A pause or quiet hours hold what is planned, too; a request by hand may override them."""
        pace = Pace.of(self.settings.guardrails)
        if request is None or request.override is None:
            return Execution(self._unloader(), pace, self.held, unserved=self.proof.namespaces)
        return Execution(self._unloader(), pace, passes=OVERRIDDEN_HOLDS)

    def health(self, snapshot: Snapshot) -> Mapping[str, float]:
        """How long health checks took that ended since the last turn; begins those that are due.

        An lbd that only observes begins none: a broker writes a message for each.
        """
        if not self.settings.guardrails.avoid_slow_brokers or self.observing is not None:
            return {}
        return self.health_checks(snapshot.brokers.ids, snapshot.taken_at)

    def turn_parts(self) -> Parts:
        """Those of a turn of its own, which may have to ask a person."""
        return self.proposals.asking(self.parts(), self.timebase.now()) if self.asks else self.parts()

    @property
    def asks(self) -> bool:
        """Whether turns propose their plans."""
        return self.settings.mode == "approve"

    def parts(self) -> Parts:
        """Those of a turn that acts by itself."""
        settings = self.settings
        actuator = self.observing or Acting(self.executor, self._orders())
        parts = parts_of(settings, self.observer, self.policies, self.journal, self.memory, actuator)
        ignored = OBSERVED_BESIDE if self.observing else frozenset[Reason]()
        return replace(
            parts,
            planning=replace(parts.planning, ignored=ignored, leader_topic=settings.leader.kept_topic),
            learn=self.learned,
            watch=self._watch,
            ordered_hold=self.hold,
            unserved=self.proof.namespaces,
            drained=self.draining.drained,
            live=self.live_cpu if settings.asks_live_cpu else reports_alone,
            spread=SpreadReader(settings.spread_in_force, self.topics),
        )

    def tools(self, parts: Parts) -> Tools:
        """Those of a drain or a fill, which its own hold does not hold."""
        parts = replace(parts, ordered_hold=lambda: self.splitting.hold() or self._ordered(), live=reports_alone)
        return Tools(self.settings, parts, self.looking.admin, self._unloader())

    def alone(self, request: UnloadRequest | None) -> Parts:
        """Those of a request by hand where no turn runs beside it."""
        return replace(self.parts(), actuator=Acting(self.executor, self._orders(request)))

    def beside(self, request: UnloadRequest | None) -> Parts:
        """Beside the turns: counters, samples and what has ended are left to them, and so they know less of moves."""
        memory = self.memory.load()
        touched = touched_since(memory.written_at, self.journal.sent)
        memory = replace_fields(memory, samples=unsettle(memory.samples, touched))
        store = Scratch(memory, self.memory.load_averages(self.timebase.now()))
        acts = BesideTurn(self.executor, self._orders(request))
        parts = replace(self.parts(), actuator=acts, store=store, learn=self.learned.known, live=reports_alone)
        return replace(parts, watch=OwnershipWatch())
