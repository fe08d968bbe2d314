"""Drains and fills of a live lbd: one at a time beside the turns, each in parts before which the cluster is looked at.

A drain is an order on disk (``record/drains.py``): whoever starts next goes on with it. What it has moved stands in the
journal, so nothing is moved twice. While one is at work nothing is balanced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lbd.daemon.draining.beginning import Tools, drain_of, fill_of
from lbd.daemon.draining.job import Job
from lbd.daemon.draining.lasting import forget_ended
from lbd.daemon.draining.planning import Look, Pass, UntoldError, hold_of_fill, look_to_drain, look_to_fill
from lbd.daemon.draining.sending import orders_of, within
from lbd.daemon.draining.telling import without_orphan
from lbd.daemon.draining.unheard import left_off, looked_for_again
from lbd.daemon.requests import OVERRIDDEN_HOLDS
from lbd.daemon.splitting.looking import CLOCK
from lbd.errors import LbdError, RefusedError, UsageError
from lbd.model import Skip
from lbd.reason import Reason
from lbd.record.control import DrainRequest, FillRequest
from lbd.record.drains import Drains, Works

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lbd.act.executor import Executor
    from lbd.cycle import CycleRecord, Hold
    from lbd.model import Outcome, Unload
    from lbd.record.control import Answer
    from lbd.record.drains import Drain, Work

__all__ = ["Draining", "Tools"]

STEP_SECONDS = 0.2

LOOK_AGAIN_SECONDS = 5.0
"""How long is waited where nothing may move now, or the cluster cannot be seen."""

_GONE = "it is no active broker any more; the drain stands until it is started again or released, or expires"


class Draining:
    """What is drained, and the one job that is at work. ``executor`` is that of the turns: a move is a move.

    ``held`` is asked before each request: the pause and the quiet hours. ``on_work`` hears how far a job has come. All
    methods but :meth:`ended` are called by one thread at a time.
    """

    def __init__(
        self, state_dir: Path, executor: Executor, now: Callable[[], float], held: Callable[[], Hold | None]
    ) -> None:
        self._drains, self._executor, self._now, self._held = Drains(state_dir), executor, now, held
        self._job: Job | None = None
        self._fill: Look | None = None
        self._asked: dict[str, str] = {}
        self._looked: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        self._works = Works()
        self._known, self._untold = False, False
        self.on_work: Callable[[Work], None] = lambda _: None

    def in_force(self) -> dict[str, Drain]:
        """The drains in force, by broker."""
        return self._drains.in_force(self._now())

    def drained(self) -> frozenset[str]:
        """The brokers that nothing may go to."""
        return frozenset(self.in_force())

    def hold(self) -> Hold | None:
        """What keeps moves from being planned."""
        job = self._job
        if job is None:
            return None
        doing = "drained" if job.kind == "drain" else "filled"
        waits = f"; it waits: {job.held}" if job.held else ""
        return Reason.MOVES_UNFINISHED, f"{job.broker} is being {doing}, {job.tried} bundles so far{waits}"

    @property
    def busy(self) -> bool:
        """Whether a job is at work, or was asked for and is still to begin."""
        return self._job is not None or bool(self._asked)

    @property
    def works(self) -> Works:
        """How far each has come."""
        if not self._known:
            found = self._drains.works()
            self._works, self._known = without_orphan(found, self._now()), True
            self._untold = self._works != found
        return self._works

    @property
    def warnings(self) -> tuple[str, ...]:
        """What keeps drains from being read, told, or gone on with."""
        return tuple(filter(None, self._trouble.values()))

    def ended(self, ended: Outcome | Skip) -> None:
        """A move has ended, in a thread of its own."""
        job = self._job
        if job is not None:
            job.ended(ended)

    def begin(self, request: DrainRequest | FillRequest, tools: Tools) -> Answer:
        """Begin what a person asked for. Raises :class:`LbdError` for what is refused; then nothing is changed."""
        job = self._job
        goes_on = isinstance(request, DrainRequest) and job is not None and job.kind == "drain"
        if job is not None and not (goes_on and job.broker == request.broker):
            raise RefusedError(f"a {job.kind} of {job.broker} is at work; lbd status tells how far it is")
        if isinstance(request, FillRequest):
            self._fill, answer = fill_of(request, tools)
            self._job = Job("fill", request.broker, request.id, self._now(), request.by, request.override)
            self._job.looked(self._fill, tools.paced(self._fill))
        else:
            drain, answer = drain_of(request, self.in_force().get(request.broker), self._now(), tools)
            self._drains.begin(drain)
            if job is None:
                self._asked[drain.broker] = request.id
            else:
                job.override = drain.override
        return answer

    def to_the_end(self, go_on: Callable[[], None]) -> None:
        """Where no daemon goes on with it: until what was begun has ended, or whoever waits for it interrupts that."""
        try:
            while self.busy:
                go_on()
                CLOCK.sleep(STEP_SECONDS)
        except KeyboardInterrupt:
            self._executor.halt(Reason.ROUND_STOPPED, "not asked for: it was interrupted")
            raise

    def after(self, record: CycleRecord) -> None:
        """After a turn: what has expired, or whose broker was started again, is over."""
        try:
            forget_ended(self._drains, record, self._now())
            self._trouble["ending"] = ""
        except UsageError as error:
            self._trouble["ending"] = str(error)

    def step(self, tools: Callable[[], Tools]) -> None:
        """Go on with what is at work, or begin what is due: at once, or after one look at the cluster."""
        try:
            self._write()
            self._released_before_begun()
            if self._job is not None or self.in_force():
                found = tools()
                self._job = self._job or self._due(found)
                if self._job is not None:
                    self._step(self._job, found)
            self._trouble["going on"] = ""
        except LbdError as error:
            self._trouble["going on"] = f"a drain or fill cannot go on: {error}"
            if self._job is not None:
                self._cannot(self._job, error)

    def _cannot(self, job: Job, error: LbdError) -> None:
        """A broker that goes on telling nothing of itself does not keep the others from being balanced."""
        over = left_off(job, error, self._now()) if isinstance(error, UntoldError) else None
        if over is not None:
            self._finish(job, None, (over,))
        elif not isinstance(error, UntoldError):
            job.waits(str(error), self._now() + LOOK_AGAIN_SECONDS)

    def _released_before_begun(self) -> None:
        """Whoever waits for a drain is told that it is over."""
        for broker in self._asked.keys() - self.in_force().keys():
            now = self._now()
            job = Job("drain", broker, self._asked.pop(broker), now, "", None)
            self._tell(job.end(now, None, (_over(broker),)))

    def _due(self, tools: Tools) -> Job | None:
        """The next drain that was asked for or was cut short, or that may look again for what has come back."""
        for broker, drain in self.in_force().items():
            asked = self._asked.pop(broker, None)
            last = self.works.drains.get(broker)
            cut_short = last is None or last.ended_at is None or last.begun_at < drain.since
            if asked is None and not cut_short and not self._looks_again(broker, last, tools):
                continue
            request = last.request if last is not None and last.ended_at is None else ""
            job = Job("drain", broker, asked or request, self._now(), drain.by, drain.override)
            job.carried = drain.carried if drain.since > 0 else None
            return job
        return None

    def _looks_again(self, broker: str, last: Work | None, tools: Tools) -> bool:
        now, ended_at = self._now(), last.ended_at or 0.0 if last is not None else 0.0
        due = ended_at + tools.settings.drain.again_minutes * 60, self._looked.get(broker, 0.0) + LOOK_AGAIN_SECONDS
        if now < max(due):
            return False
        self._looked[broker] = now
        return broker in tools.admin.active_brokers() and tools.admin.silent_since(broker) is None

    def _step(self, job: Job, tools: Tools) -> None:
        if job.kind == "drain" and job.broker not in self.in_force():
            self._executor.halt(Reason.ROUND_STOPPED, f"not asked for: the drain of {job.broker} is over")
            if not self._executor.unfinished:
                self._finish(job, None, (_over(job.broker),))
        elif not self._executor.unfinished and not 0 < job.look_again_at - self._now() <= LOOK_AGAIN_SECONDS:
            step = self._empty if job.kind == "drain" else self._give
            step(job, tools)
        if self._job is not None:
            self._tell(job.work(self._now()))

    def _empty(self, job: Job, tools: Tools) -> None:
        """The next part of a drain, or its end."""
        if job.broker not in tools.admin.active_brokers():
            self._finish(job, None, (Skip(job.broker, Reason.ROUND_STOPPED, _GONE),))
            return
        if self._waits(job, self._ordered(job)):
            return
        drain, again = self.in_force()[job.broker], tools.settings.drain.again_minutes * 60
        passes = job.override is not None
        asked = Pass(job.broker, job.begun_at, drain.since, again, passes, job.carried, job.scores)
        look = look_to_drain(tools.parts, tools.admin, asked)
        job.looked(look, tools.paced(look))
        if self._waits(job, look.hold):
            return
        part, beyond = within(look.plan.unloads, look, job, tools, self._now())
        if part and not job.barren:
            self._start(job, part, look, tools)
        else:
            job.amend(looked_for_again(job.doubtful, tools.admin))
            stay = (*look.plan.stay, *beyond, *job.not_sent(unload.bundle for unload in part))
            self._finish(job, look.owned, stay, look.alone)

    def _ordered(self, job: Job) -> Hold | None:
        """What people have ordered, unless the job's reason passes it: to know it, no broker need be asked."""
        hold = self._held()
        return None if job.override is not None and hold is not None and hold[0] in OVERRIDDEN_HOLDS else hold

    def _waits(self, job: Job, hold: Hold | None) -> bool:
        """Whether something keeps it from going on, which is noted with when it is looked at again."""
        if hold is None:
            job.waits("", 0.0)
            return False
        job.waits(hold[0].told(hold[1]), self._now() + LOOK_AGAIN_SECONDS)
        return True

    def _give(self, job: Job, tools: Tools) -> None:
        """The next part of a fill, as it was planned when it began, or after it waited last, or its end."""
        look, waited, passes = self._fill, bool(job.held), job.override is not None
        assert look is not None
        handed = job.handed
        rest = tuple(unload for unload in look.plan.unloads if unload.bundle not in handed)
        part, beyond = within(rest, look, job, tools, self._now())
        if part:
            hold = self._ordered(job) or hold_of_fill(tools.parts, job.broker, override=passes)
            if self._waits(job, hold):
                return
            if waited:
                self._fill = look_to_fill(tools.parts, tools.admin, job.broker, override=passes)
                job.looked(self._fill, tools.paced(self._fill))
            else:
                self._start(job, part, look, tools)
        else:
            self._finish(job, None, (*beyond, *job.not_sent(handed)))

    def _start(self, job: Job, part: Sequence[Unload], look: Look, tools: Tools) -> None:
        job.hand(one.bundle for one in part)
        orders = orders_of(job, tools.paced(look), tools, self._held)
        self._executor.start([replace(one, reason=job.reason) for one in part], look.accepts, orders)

    def _finish(self, job: Job, owned: Sequence[str] | None, stay: Sequence[Skip], alone: Sequence[Skip] = ()) -> None:
        self._job = self._fill = None
        self._tell(job.end(self._now(), owned, stay, alone))

    def _tell(self, work: Work) -> None:
        """A look that found nothing to do says nothing new, but when it was."""
        drains, fill = dict(self.works.drains), self.works.fill
        if work.kind == "fill":
            fill = work
        else:
            drains = {broker: one for broker, one in drains.items() if broker in self.in_force()}
            drains[work.broker] = work
        found = Works(drains=drains, fill=fill)
        if found != self._works:
            self._works, self._untold = found, True
            self._write()
            self.on_work(work)

    def _write(self) -> None:
        """What could not be written, as on a full disk, is written as soon as it can be: people wait for it."""
        works = self.works
        if self._untold:
            self._drains.tell(works)
            self._untold = False


def _over(broker: str) -> Skip:
    return Skip(broker, Reason.ROUND_STOPPED, "the drain was ended before it had come to its end")
