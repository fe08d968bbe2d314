"""CPU of brokers as of now, where a load report shows the mean of a minute that ended up to a minute ago.

A broker tells how much CPU its process has spent since it started (``ProcessCpuTime``), and a report how much its whole
container or host used (``cpu``). What others use is their difference over the report's own minute. So the CPU of now
is that background plus what the process has spent of late. Measured beside the kernel's counters: ten seconds are
within 1.4 points of the truth (docs/load-model.md).

The request is a tenth of a megabyte and takes 0.2 s on a small broker, 2 s on one at its limit. So only brokers that
something depends on are asked, and one that is slow to answer less often.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lbd.clock import boot_seconds
from lbd.errors import AdminError, ObserveError
from lbd.load.estimate import CPU
from lbd.load.samples import TrafficMeter
from lbd.model import LiveCpu
from lbd.observe.observer import few_at_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.model import ProcessCpu, Snapshot


SPAN_SECONDS = 10.0
"""Shorter ones are too noisy: the counter has a resolution of 10 ms, and a garbage collection takes a second."""

SLACK_SECONDS = 1.0
"""Turns are not to the second: two of 5 s, or one of 10 s, are a span."""

MINUTE_SECONDS = 60.0
"""What was used longer ago is not the CPU of now."""

KEPT_SECONDS = 200.0
"""A report's minute ended up to two minutes ago; what was spent meanwhile is known from before it began."""

COVERED = 0.75
"""Part of a report's minute within which the process must have been seen, for the background to be told from it."""

DISAGREE_POINTS = 5.0
"""The process cannot use more than its container or host. Where it seems to, by more than noise, the report counts."""

ANSWER_SECONDS = 5.0
"""The turn waits no longer."""

SHARE_OF_TIME = 0.2
"""A broker answers for no more of its time: one that took 3 s is asked again after 15 s."""

REFUSED_SECONDS = 600.0
"""Who refuses is asked again after so long: it does not change from turn to turn."""


@dataclass
class _Seen:
    """What is known of one broker's process. ``counts``: CPU spent, and time since its start, both in seconds."""

    counts: deque[tuple[float, float]] = field(default_factory=deque)
    started_at: float = nan
    report: float = nan
    background: float | None = None
    asked_at: float = 0.0
    ask_at: float = 0.0
    took: float = nan
    trouble: str = ""

    def is_due(self, since: float, now: float) -> bool:
        """Whether it is to be asked; the first count after a move comes at once, unless it does not tell."""
        return now >= self.ask_at or (not self.trouble and self.asked_at < since <= now)

    def take(self, cpu: ProcessCpu, now: float) -> None:
        """The counter now, ``now`` in epoch seconds. A process that was started anew begins anew."""
        if self.counts and cpu.up_seconds < self.counts[-1][1]:
            self.counts.clear()
            self.background = None
        self.counts.append((cpu.spent_seconds, cpu.up_seconds))
        self.started_at = now - cpu.up_seconds
        while self.counts[-1][1] - self.counts[0][1] > KEPT_SECONDS:
            self.counts.popleft()

    def compare(self, report: float, now: float, since_seconds: float, interval_seconds: float) -> None:
        """A report, ``now``: where its CPU is a new sample, what others used meanwhile, in percent of a core."""
        if report == self.report or not self.counts:
            return
        first, self.report = np.isnan(self.report), report
        if first:  # nobody knows how old that sample is
            return
        until = now - self.started_at - TrafficMeter.lag(since_seconds)
        spent = self.mean(until - interval_seconds, until)
        if spent is not None:
            self.background = report - spent

    def mean(self, begin: float, end: float) -> float | None:
        """Percent of a core within a span (seconds since the start of the process); None where too little was seen."""
        first, last = max(begin, self.counts[0][1]), min(end, self.counts[-1][1])
        if last - first < max(COVERED * (end - begin), SPAN_SECONDS):
            return None
        return self._rate(first, last)

    def latest(self, since: float) -> tuple[float, float, float] | None:
        """The last two spans, none of them before ``since`` (epoch seconds): their mean, seconds, and how far apart.

        In percent of a core. With one span only the last is NaN, without any there is nothing to tell. Spans begin and
        end with a count: between two counts nobody knows how CPU was spent.
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
        """Percent of a core."""
        return 100.0 * (self._spent(end) - self._spent(begin)) / (end - begin)

    def _spent(self, at: float) -> float:
        """CPU in seconds by that time since the start of the process, between two counts by the line through them."""
        spent, up = np.array(self.counts).T
        return float(np.interp(at, up, spent))


class ProcessCpuSource(Protocol):
    """What tells the counter of a broker, as the admin API does."""

    def process_cpu(self, broker: str, *, deadline: float) -> ProcessCpu: ...


class LiveCpuReader:
    """Asks brokers of one cluster, and remembers their counters from turn to turn. Not thread-safe.

    No more than ``concurrency`` are asked at once.
    """

    def __init__(self, source: ProcessCpuSource, concurrency: int) -> None:
        self._source, self._concurrency = source, concurrency
        self._of: dict[str, _Seen] = {}
        self._taken_at = nan
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="lbd-live-cpu")

    def __call__(self, snapshot: Snapshot, watched: Mapping[str, float], interval_seconds: float) -> Snapshot:
        """The round with the present CPU of those brokers of which it can be told; the others' is as reported.

        ``watched`` are who is to be asked, each with the time (epoch seconds) from which on its CPU counts: of one that
        was moved to or from, when that was. ``interval_seconds`` is how often brokers sample for their reports.
        """
        now, brokers = snapshot.taken_at, snapshot.brokers
        since_seconds = now - self._taken_at if self._taken_at < now else MINUTE_SECONDS
        self._taken_at = now
        asked_lately = {broker: seen for broker, seen in self._of.items() if now - seen.asked_at <= KEPT_SECONDS}
        self._of = {**{broker: _Seen() for broker in watched}, **asked_lately}
        self._ask(watched, now)
        size, cpu = len(brokers), brokers.usage[:, CPU].copy()
        seconds, apart, took = np.full(size, nan), np.full(size, nan), np.full(size, nan)
        for at, broker in enumerate(brokers.ids):
            if broker not in watched:
                continue
            seen = self._of[broker]
            took[at], limit = seen.took, float(brokers.limit[at, CPU])
            seen.compare(float(cpu[at]), now, since_seconds, interval_seconds)
            told = _told(seen, watched[broker], limit)
            if told is not None:
                cpu[at], seconds[at], apart[at] = told
        usage = brokers.usage.copy()
        usage[:, CPU] = cpu
        live = LiveCpu(brokers, seconds, apart, took)
        return replace(snapshot, brokers=replace(brokers, usage=usage, live=live))

    @property
    def trouble(self) -> str:
        """Why brokers that were asked do not tell it, in words; empty where all do."""
        told = [(broker, seen.trouble) for broker, seen in sorted(self._of.items()) if seen.trouble]
        if not told:
            return ""
        others = f" (and of {len(told) - 1} more)" if len(told) > 1 else ""
        return f"live CPU of {told[0][0]}{others} is not known, load reports count instead: {told[0][1]}"

    def close(self) -> None:
        """End the threads; requests under way end in seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, watched: Mapping[str, float], now: float) -> None:
        due = [broker for broker, since in watched.items() if self._of[broker].is_due(since, now)]
        try:
            answers = few_at_once(self._pool, self._concurrency, self._answer, due)
        except (RuntimeError, CancelledError):
            raise ObserveError("not asked: settings were read again, or lbd ends; ask again") from None
        for broker, (answer, took) in zip(due, answers, strict=True):
            seen = self._of[broker]
            seen.took, seen.asked_at = took, now
            seen.ask_at = now + max(took / SHARE_OF_TIME, SPAN_SECONDS - SLACK_SECONDS)
            if isinstance(answer, AdminError):
                seen.trouble = str(answer)
                seen.ask_at = now + REFUSED_SECONDS if answer.status in {401, 403, 404} else seen.ask_at
            else:
                seen.trouble = ""
                seen.take(answer, now)

    def _answer(self, broker: str) -> tuple[ProcessCpu | AdminError, float]:
        begun = boot_seconds()
        try:
            return self._source.process_cpu(broker, deadline=begun + ANSWER_SECONDS), boot_seconds() - begun
        except AdminError as error:
            error.__cause__ = error.__context__ = None
            return error, boot_seconds() - begun


def _newest(times: Sequence[float], until: float) -> float | None:
    """The newest of these times, which are rising, that is not later."""
    return max((at for at in times if at <= until), default=None)


def _told(seen: _Seen, since: float, limit: float) -> tuple[float, float, float] | None:
    """CPU in percent of a core, of how many seconds, and points between their halves; None: the report counts."""
    if seen.background is None or not limit > 0 or seen.trouble:
        return None
    latest = seen.latest(since)
    if latest is None or seen.background < -DISAGREE_POINTS / 100 * limit:
        return None
    spent, seconds, apart = latest
    return max(seen.background, 0.0) + spent, seconds, 100.0 * apart / limit
