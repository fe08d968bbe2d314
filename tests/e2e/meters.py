"""CPU while a scenario runs: what the brokers report, sample by sample, and what the kernel's meters say."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Self

import requests

from tests.e2e import probe

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

POLL_SECONDS = 0.5
WINDOW_SECONDS = 30.0
"""The true gap is taken over so long: shorter ones show the noise of a machine that is shared."""

Used = tuple[float, list[float], list[float]]
"""When, the CPU seconds that each broker's group has used by then, and their quotas in cores."""


class Meters:
    """One thread that reads load reports and control groups all the time.

    ``samples`` are the new CPU values of each broker's report, in percent of its limit, and when each was first seen.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.samples: dict[str, list[tuple[float, float]]] = {broker: [] for broker in cluster.brokers}
        self._cluster = cluster
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._used: list[Used] = []
        self._reported: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            spent = [group.used_seconds() for group in self._cluster.groups]
            self._used.append((time.time(), spent, [quota or 1.0 for quota in self._cluster.quotas]))
            with suppress(requests.RequestException, probe.ProbeError):  # a broker may be dead at the moment
                self._reported = probe.cpu_percent(self._cluster)
                for broker, percent in self._reported.items():
                    if not self.samples[broker] or self.samples[broker][-1][1] != percent:
                        self.samples[broker].append((time.time(), percent))

    def newest(self, brokers: set[str], before: float) -> float | None:
        """When the last new sample of any of these brokers was seen before a time."""
        seen = [at for broker in brokers for at, _ in self.samples.get(broker, ()) if at <= before]
        return max(seen, default=None)

    def reported_gap(self) -> float:
        """Highest minus lowest of the newest reports, of brokers that run."""
        return probe.spread(self._reported)

    def true_gap(self, end: float, seconds: float = WINDOW_SECONDS) -> float:
        """Highest minus lowest percent of quota that the brokers used in the time that ends here, by no later sample:
        quotas are lifted when a run has ended. A broker that used nothing does not run.
        """
        used = tuple(self._used)
        last = max(bisect_right(used, end, key=_time) - 1, 1)
        first = max(0, min(bisect_left(used, end - seconds, key=_time), last - 1))
        passed = _time(used[last]) - _time(used[first])
        ends = zip(used[first][1], used[last][1], used[last][2], strict=True)
        shares = [100 * (after - before) / passed / quota for before, after, quota in ends if after > before]
        return max(shares, default=0.0) - min(shares, default=0.0)

    def last_above(self, limit: float, begin: float, end: float) -> float | None:
        """The end of the last window in which the true gap was not below the limit, seconds after the beginning."""
        found, at = None, begin + WINDOW_SECONDS
        while at <= end:
            if self.true_gap(at) >= limit:
                found = at - begin
            at += 5
        return found


def _time(sample: Used) -> float:
    return sample[0]
