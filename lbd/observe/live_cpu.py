"""Present CPU of brokers, where a load report shows the mean of a minute that ended up to a minute ago.

A broker reports the CPU time that its process has spent since it started (``ProcessCpuTime``), and in its load report
the CPU of its whole container or host (``cpu``). The background, used by other processes, is their difference over the
report's own minute. Present CPU is that background plus the recent use of the process. Compared with the kernel's
counters: ten seconds are within 1.4 points of the truth (docs/load-model.md). A process that has just started and
carries nothing is taken for all that uses its machine, until a report shows more.

The response has 0.1 MB and takes 0.2 s on a small broker, 2 s on one at its limit. Hence only brokers on which
something depends get the request, and slow ones less often.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from lbd.clock import boot_seconds
from lbd.errors import AdminError
from lbd.load.estimate import CPU
from lbd.load.samples import TrafficMeter
from lbd.model import LiveCpu
from lbd.permit.evidence import NO_SAMPLE_YET

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lbd.model import Brokers, FloatArray, ProcessCpu, Snapshot

    _Answer: TypeAlias = tuple[ProcessCpu | AdminError, float]
    RunEach: TypeAlias = Callable[[Callable[[str], _Answer], Sequence[str]], Sequence[_Answer]]


SPAN_SECONDS = 10.0
"""Length of a span. Shorter ones are too noisy: the counter's resolution is 10 ms, a garbage collection takes 1 s."""

SLACK_SECONDS = 1.0
"""Tolerance: turns are not exact to the second. Two of 5 s, or one of 10 s, are a span."""

MINUTE_SECONDS = 60.0
"""Age of CPU use that is no longer present."""

KEPT_SECONDS = 200.0
"""Age up to which counts are kept: a report's minute ended up to two minutes ago, and counts must begin before it."""

COVERED = 0.75
"""Part of a report's minute that counts must cover to compute the background from it."""

DISAGREE_POINTS = 5.0
"""Difference beyond noise. The process cannot use more than its container or host; else the report counts."""

ANSWER_SECONDS = 5.0
"""Timeout of a request within a turn."""

SHARE_OF_TIME = 0.4
"""Largest part of a broker's time for its responses: after one that took 5 s the next request comes 12.5 s later.

At its limit a broker of 0.4 core takes 4 to 5 s, mostly waiting for CPU.
"""

START_UP_SECONDS = 60.0
"""Age of a process up to which its CPU use is not all in its report, whose first minute begins when the load manager
starts: on a real broker of 0.4 core 8 s after the process, which had spent 4 s of CPU by then."""

REFUSED_SECONDS = 600.0
"""Pause after a refusal, which does not change from turn to turn."""


JUST_STARTED = (0.0, 0.0)
"""CPU spent by a process when it started, and its age then, in seconds."""


@dataclass
class _ProcessHistory:
    """CPU history of one broker's process. ``counts``: CPU spent, and time since its start, both in seconds."""

    counts: deque[tuple[float, float]] = field(default_factory=deque)
    started_at: float = nan
    report: float = nan
    background: float | None = None
    requested_at: float = 0.0
    ask_at: float = 0.0
    took: float = nan
    trouble: str = ""

    def is_due(self, since: float, now: float) -> bool:
        """Whether a request is due; after a move it is at once, unless the last one failed."""
        return now >= self.ask_at or (not self.trouble and self.requested_at < since <= now)

    def add(self, cpu: ProcessCpu, now: float, limit: float) -> None:
        """Add the counter, read at ``now`` (epoch seconds), of a broker with this limit in percent of a core.

        The history begins anew where the process was restarted, and where one of two counts must be wrong: it went
        back, or grew by twice the limit. A process that has just started had spent nothing then, so its first report
        can be compared.
        """
        last = self.counts[-1] if self.counts else (0.0, 0.0)
        if not 0 <= cpu.spent_seconds - last[0] <= (cpu.up_seconds - last[1]) * 2 * limit / 100:
            self.counts.clear()
            self.background = None
        if not self.counts and cpu.up_seconds <= KEPT_SECONDS:
            self.counts.append(JUST_STARTED)
        self.counts.append((cpu.spent_seconds, cpu.up_seconds))
        self.started_at = now - cpu.up_seconds
        while self.counts[-1][1] - self.counts[0][1] > KEPT_SECONDS:
            self.counts.popleft()

    def compare(self, report: float, now: float, since_seconds: float, interval_seconds: float) -> None:
        """Set ``background`` to the CPU of other processes, in percent of a core, by a new sample in a report."""
        if report == self.report or not self.counts:
            return
        first, self.report = np.isnan(self.report), report
        if first:  # that sample has an unknown age
            return
        until = now - self.started_at - TrafficMeter.lag(since_seconds)
        spent = self.mean(until - interval_seconds, until)
        if spent is not None:
            has_start_up = until - interval_seconds < START_UP_SECONDS
            self.background = max(report - spent, 0.0) if has_start_up else report - spent

    @property
    def has_just_started(self) -> bool:
        """Whether the process was young at its first count, and no report has shown its background yet."""
        return self.background is None and bool(self.counts) and self.counts[0] == JUST_STARTED

    def mean(self, begin: float, end: float) -> float | None:
        """Percent of a core within a span (seconds since its start); None where counts cover too little of it."""
        first, last = max(begin, self.counts[0][1]), min(end, self.counts[-1][1])
        if last - first < max(COVERED * (end - begin), SPAN_SECONDS):
            return None
        return self._rate(first, last)

    def latest(self, since: float) -> tuple[float, float, float] | None:
        """Mean of the last two spans after ``since`` (epoch seconds), their length in seconds, and their difference.

        In percent of a core. With one span the difference is NaN; without a span the result is None. Spans begin and
        end with a count, because the use of CPU between two counts is unknown.
        """
        last = self.counts[-1][1] if self.counts else 0.0
        times = [up for _, up in self.counts if up >= max(since - self.started_at, last - MINUTE_SECONDS)]
        middle = _newest(times, last - SPAN_SECONDS + SLACK_SECONDS)
        if middle is None:
            return None
        begin = _newest(times, middle - SPAN_SECONDS + SLACK_SECONDS)
        if begin is None:
            return self._rate(middle, last), last - middle, nan
        return self._rate(begin, last), last - begin, abs(self._rate(middle, last) - self._rate(begin, middle))

    def _rate(self, begin: float, end: float) -> float:
        """Mean use in percent of a core."""
        return 100.0 * (self._spent(end) - self._spent(begin)) / (end - begin)

    def _spent(self, up_seconds: float) -> float:
        """CPU seconds spent until ``up_seconds`` after the process started, interpolated between two counts."""
        spent, up = np.array(self.counts).T
        return float(np.interp(up_seconds, up, spent))


class ProcessCpuSource(Protocol):
    """A source of a broker's CPU counter, such as the admin API."""

    def process_cpu(self, broker: str, *, deadline: float) -> ProcessCpu: ...


class LiveCpuReader:
    """Reads the CPU of brokers of one cluster, and keeps their counters from turn to turn. Not thread-safe.

    ``run_each`` runs a request for each broker, with threads or without, and raises :class:`ObserveError` if it cannot.
    ``boot`` (seconds) measures how long each takes.
    """

    def __init__(self, source: ProcessCpuSource, run_each: RunEach, boot: Callable[[], float] = boot_seconds) -> None:
        self._source, self._run_each, self._boot = source, run_each, boot
        self._of: dict[str, _ProcessHistory] = {}
        self._taken_at = nan

    def __call__(self, snapshot: Snapshot, watched: Mapping[str, float], interval_seconds: float) -> Snapshot:
        """The round with the present CPU of the brokers for which it is available; the others keep their reported CPU.

        ``watched`` are the brokers to read, each with the time (epoch seconds) from which on its CPU counts: for the
        source or destination of a move, the time of the move. ``interval_seconds`` is the sampling interval of reports.
        """
        now, brokers = snapshot.taken_at, snapshot.brokers
        since_seconds = now - self._taken_at if self._taken_at < now else MINUTE_SECONDS
        if now < self._taken_at:
            self._of.clear()  # the clock was set back: the next request would be due when it is as late again
        self._taken_at = now
        recent = {broker: process for broker, process in self._of.items() if now - process.requested_at <= KEPT_SECONDS}
        self._of = {**{broker: _ProcessHistory() for broker in watched}, **recent}
        self._ask(watched, now, dict(zip(brokers.ids, brokers.limit[:, CPU].tolist(), strict=True)))
        limit = _trusted_limits(brokers)
        size, cpu = len(brokers), brokers.usage[:, CPU].copy()
        seconds, apart, took = np.full(size, nan), np.full(size, nan), np.full(size, nan)
        for index, broker in enumerate(brokers.ids):
            if broker not in watched:
                continue
            process = self._of[broker]
            took[index] = process.took
            process.compare(float(cpu[index]), now, since_seconds, interval_seconds)
            if process.has_just_started and not _has_traffic(snapshot, index):
                process.background = 0.0
            present = _present_cpu(process, watched[broker], float(limit[index, CPU]))
            if present is not None:
                cpu[index], seconds[index], apart[index] = present
        usage = brokers.usage.copy()
        usage[:, CPU] = cpu
        live = LiveCpu(brokers, seconds, apart, took)
        return snapshot.with_brokers(replace(brokers, usage=usage, limit=limit, live=live))

    @property
    def trouble(self) -> str:
        """Reason why brokers did not return their CPU, as a sentence; empty if all did."""
        troubles = [(broker, process.trouble) for broker, process in sorted(self._of.items()) if process.trouble]
        if not troubles:
            return ""
        others = f" (and of {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        return f"live CPU of {troubles[0][0]}{others} is not known, load reports count instead: {troubles[0][1]}"

    def _ask(self, watched: Mapping[str, float], now: float, limits: Mapping[str, float]) -> None:
        due = [broker for broker, since in watched.items() if self._of[broker].is_due(since, now)]
        answers = self._run_each(self._answer, due)
        for broker, (answer, took) in zip(due, answers, strict=True):
            process = self._of[broker]
            process.took, process.requested_at = took, now
            process.ask_at = now + max(took / SHARE_OF_TIME, SPAN_SECONDS - SLACK_SECONDS)
            if isinstance(answer, AdminError):
                process.trouble = str(answer)
                process.ask_at = now + REFUSED_SECONDS if answer.status in {401, 403, 404} else process.ask_at
            else:
                process.trouble = ""
                process.add(answer, now, limits.get(broker, nan))

    def _answer(self, broker: str) -> _Answer:
        started_at = self._boot()
        answer: ProcessCpu | AdminError
        try:
            answer = self._source.process_cpu(broker, deadline=started_at + ANSWER_SECONDS)
        except AdminError as error:
            error.__cause__ = error.__context__ = None
            answer = error
        return answer, self._boot() - started_at


def _has_traffic(snapshot: Snapshot, broker: int) -> bool:
    """Whether a broker reports traffic, or a bundle with traffic."""
    rows = snapshot.rows
    return bool(snapshot.brokers.rates[broker].any() or rows.rates[rows.of(broker)].any())


def _trusted_limits(brokers: Brokers) -> FloatArray:
    """Limits of the brokers, float64 (B, 5).

    Before its first sample a broker may report the CPU limit of its host: on a real cluster five times that of its
    container. Until then it is taken for no larger than the smallest of the others.
    """
    limit = brokers.limit.copy()
    sampled = (brokers.usage[:, CPU] > NO_SAMPLE_YET) & (limit[:, CPU] > 0)
    if sampled.any():
        limit[~sampled, CPU] = np.minimum(limit[~sampled, CPU], limit[sampled, CPU].min())
    return limit


def _newest(times: Sequence[float], until: float) -> float | None:
    """The newest of these ascending times that is not later than ``until``."""
    return max((time for time in times if time <= until), default=None)


def _present_cpu(process: _ProcessHistory, since: float, limit: float) -> tuple[float, float, float] | None:
    """CPU in percent of a core, its span in seconds, and the points between the span's halves; None: use the report."""
    if process.background is None or not limit > 0 or process.trouble:
        return None
    latest = process.latest(since)
    if latest is None or process.background < -DISAGREE_POINTS / 100 * limit:
        return None
    spent, seconds, apart = latest
    return max(process.background, 0.0) + spent, seconds, 100.0 * apart / limit
