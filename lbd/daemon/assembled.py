"""The one place where the real parts of a live lbd are put together: a cluster, a state directory, what holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from lbd.act.executor import Executor
from lbd.act.orders import Orders, Pace
from lbd.act.placer import Placer
from lbd.act.unloader import Unloader
from lbd.cycle import Hold, Parts
from lbd.cycle.calm import Watch
from lbd.cycle.chosen import gap_seconds, strategy_of, wanted_hits
from lbd.daemon.actuators import Acting, Beside, Observing
from lbd.daemon.draining import Draining, Tools
from lbd.daemon.learned import Learned
from lbd.daemon.placing import Placing
from lbd.daemon.policies import PolicyReader
from lbd.daemon.requests import OVERRIDDEN_HOLDS, ordered
from lbd.daemon.splitting import Splitting
from lbd.daemon.splitting.looking import CLOCK
from lbd.daemon.standing import refuse_changes
from lbd.daemon.taking_over import watching
from lbd.observe.observer import Observer
from lbd.permit.evidence import touched_since, unsettle
from lbd.permit.quiet_hours import quiet_until
from lbd.pulsar.admin import Admin
from lbd.pulsar.silence import Silences
from lbd.reason import Reason
from lbd.record.control import Control
from lbd.record.remembered import Remembered
from lbd.record.state import Scratch, StateDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings
    from lbd.daemon.standing import Standing
    from lbd.daemon.taking_over import Asking
    from lbd.daemon.timebase import Timebase
    from lbd.model import Outcome, Skip
    from lbd.record.control import UnloadRequest
    from lbd.record.journal import Journal

OBSERVED_BESIDE = frozenset({Reason.IN_BROKER_SHEDDING})
"""Under it a lbd that only observes still tells what it would move: it is tried while brokers balance themselves."""


class Assembled:
    """Parts on a state directory that is held, and what keeps them from acting.

    ``ended`` hears of each move as it ends, from the thread that made it.
    """

    def __init__(
        self,
        settings: Settings,
        state: StateDir,
        joined: tuple[Journal, Standing],
        timebase: Timebase,
        ended: Callable[[Outcome | Skip], None],
        *,
        observe_only: bool,
    ) -> None:
        self.settings, self.timebase = settings, timebase
        self.journal, self.leading = joined
        journal = self.journal
        self.observing = Observing() if observe_only else None
        self.memory = Remembered(state)
        self.executor = Executor(journal, timebase.now, ended)
        self.control = Control(settings.state_dir)
        self.silences = Silences()
        self.looking = self._look(settings)
        self.observer = self._observed(settings)
        self.policies = PolicyReader(self.observer.admin)
        self.splitting = Splitting(journal, lambda: self.observer.admin, timebase.now, self._ordered)
        self.placing = Placing(journal, ended)
        self.learned = Learned(settings, timebase.now())
        self.draining = Draining(settings.state_dir, self.executor, timebase.now, self.ordered)
        self._watch = Watch()
        self.leading.serve(self.executor, self.splitting)

    def _look(self, settings: Settings) -> Observer:
        return Observer(Admin(settings.pulsar, self.silences), self.timebase.now)

    def _observed(self, settings: Settings) -> Asking:
        """A lbd that only observes takes nothing over either."""
        looking, now = self.looking, self.timebase.now
        return looking if self.observing else watching(settings, looking, now, self._leads)

    def take(self, settings: Settings) -> None:
        """Go on with other settings; counters, averages, journal and moves stay.

        So does who looks at the cluster, unless it is to be reached otherwise: what brokers told on topics would have
        to be heard anew, which takes a quarter of an hour.
        """
        refuse_changes(self.settings, settings)
        self.executor.halt(Reason.ROUND_STOPPED, "not asked for: the settings were read again")
        self.splitting.halt()
        if settings.pulsar != self.settings.pulsar:
            self.looking.close()
            if settings.pulsar.admin_urls != self.settings.pulsar.admin_urls:
                self.silences.close()  # what hangs there is asked with these brokers' token, and may be none of them
                self.silences = Silences()
            self.looking = self._look(settings)
            self.policies = PolicyReader(self.looking.admin)
        self.settings, self.observer = settings, self._observed(settings)
        self.learned.take(settings)

    def recover(self, seconds: float = 0.0) -> None:
        """Close what a killed process left open, or one that led before."""
        if self.observing is None and self._leads():
            self.executor.recover(self._unloader, seconds)
            self.splitting.recover()

    def close(self) -> None:
        """Close what was opened."""
        self.leading.stop()
        self.observer.close()
        self.silences.close()
        self.journal.close()

    def hold(self) -> Hold | None:
        """What keeps a turn from firing."""
        said = self.observing.hold() if self.observing else None
        return self.leading.hold() or self.splitting.hold() or self.paused() or said or self.draining.hold()

    def _leads(self) -> bool:
        return self.leading.leading

    def _ordered(self) -> Hold | None:
        return self.leading.hold() or self.paused()

    def paused(self) -> Hold | None:
        """The pause in force."""
        return ordered(self.control, self.timebase.now())

    def held(self) -> Hold | None:
        """What keeps a planned unload from being sent; quiet hours may begin while a plan is under way."""
        return self.hold() or self._quiet()

    def ordered(self) -> Hold | None:
        """What others lead and people have ordered: all that keeps a drain, which holds the turns, from an unload."""
        return self._ordered() or self._quiet()

    def _quiet(self) -> Hold | None:
        quiet = quiet_until(self.settings.guardrails.quiet_hours, self.timebase.now())
        return (Reason.QUIET_HOURS, quiet[1]) if quiet is not None else None

    @property
    def placer(self) -> Placer:
        """What places bundles that nobody owns."""
        return Placer(self.observer.admin, CLOCK, self.policies.forbids)

    def _unloader(self) -> Unloader:
        return Unloader(self.observer.admin, CLOCK, forbids=self.policies.forbids)

    def _orders(self, request: UnloadRequest | None = None) -> Orders:
        """A pause or quiet hours hold what is planned, too; a request by hand may override them."""
        pace = Pace.of(self.settings.guardrails)
        if request is None or request.override is None:
            return Orders(self._unloader(), pace, self.held)
        return Orders(self._unloader(), pace, passes=OVERRIDDEN_HOLDS)

    def parts(self) -> Parts:
        """Those of a turn."""
        settings = self.settings
        return Parts(
            observer=self.observer,
            strategy=strategy_of(settings),
            learn=self.learned,
            strategy_name=settings.strategy,
            weights=settings.weights,
            guardrails=settings.guardrails,
            isolation=self.policies.isolation,
            groups=self.policies.groups,
            attempted_at=lambda: self.journal.attempted_at,
            sent=lambda: self.journal.sent,
            watch=self._watch,
            store=self.memory,
            actuator=self.observing or Acting(self.executor, self._orders()),
            gap_seconds=gap_seconds(settings),
            ordered_hold=self.hold,
            ignored_holds=OBSERVED_BESIDE if self.observing else frozenset(),
            wanted_hits=wanted_hits(settings),
            leader_topic=settings.leader.kept_topic,
            drained=self.draining.drained,
        )

    def tools(self, parts: Parts) -> Tools:
        """Those of a drain or a fill, which its own hold does not hold."""
        parts = replace(parts, ordered_hold=lambda: self.splitting.hold() or self._ordered())
        return Tools(self.settings, parts, self.observer.admin, self._unloader())

    def alone(self, request: UnloadRequest | None) -> Parts:
        """Those of a request by hand where no turn runs beside it."""
        return replace(self.parts(), actuator=Acting(self.executor, self._orders(request)))

    def beside(self, request: UnloadRequest | None) -> Parts:
        """Beside the turns: counters, samples and what has ended are left to them, and so they know less of moves."""
        kept = self.memory.load()
        touched = touched_since(kept.written_at, self.journal.sent)
        kept = replace_fields(kept, samples=unsettle(kept.samples, touched))
        store = Scratch(kept, self.memory.load_averages(self.timebase.now()))
        acts = Beside(self.executor, self._orders(request))
        return replace(self.parts(), actuator=acts, store=store, watch=Watch(), learn=self.learned.known)
