"""One round of load reports, requested from all brokers in parallel, with the reason for each that is missing.

A bounded number of threads decode reports: they share one interpreter, so sixteen finish no sooner than two, and all
other work, such as a response of the API, waits behind all of them after each read or write.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from statistics import median_high
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from lbd.errors import AdminError, ObserveError, ThreadError, UnheardError
from lbd.observe.parse import LoadReport, build_snapshot
from lbd.observe.reports import AdminReports, TopicReports, report_source
from lbd.observe.segments import SCALABLE_TOPICS, SegmentWatch
from lbd.observe.system_topics import system_topics
from lbd.permit.topic_costs import SystemTopics
from lbd.pulsar.admin import unsupported_versions
from lbd.pulsar.broker_configuration import (
    SAMPLE_MINUTES,
    SHEDDING_ENABLED,
    is_extensible,
    load_manager_class,
    minutes,
    sheds,
    splits,
)
from lbd.pulsar.broker_health import unresponsive_text
from lbd.pulsar.http import url_address
from lbd.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lbd.model import Snapshot
    from lbd.observe.reports import Reports, Say
    from lbd.pulsar.admin import Admin, Leader


AT_ONCE = 2
"""Requests at once: one waits for a broker while the other is decoded."""

PATIENCE_SECONDS = 0.015
"""Time in which a broker nearby responds. Slower ones only wait, so more requests cost no CPU."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def few_at_once(
    pool: Threads,
    most: int,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    patience_seconds: float = PATIENCE_SECONDS,
) -> list[Result]:
    """Results of ``work`` for each item, in their order.

    Two items run at once, and twice as many, up to ``most``, whenever none has finished for ``patience_seconds``: slow
    and hanging brokers do not delay the others. Raises what ``work`` raises and then starts no further item;
    :class:`ObserveError` once the pool is shut down, or where the system has no thread for it.
    """
    waiting, futures, done = deque(items), list[Future[Result]](), SimpleQueue[Future[Result]]()
    at_once, flying = min(AT_ONCE, most), 0
    try:
        while waiting or flying:
            while waiting and flying < at_once:
                futures.append(pool.submit(work, waiting.popleft()))
                futures[-1].add_done_callback(done.put)
                flying += 1
            try:
                done.get(timeout=patience_seconds if waiting and at_once < most else None).result()
                flying -= 1
            except Empty:
                at_once = min(2 * at_once, most)
        return [future.result() for future in futures]
    except ThreadError as error:
        raise ObserveError(f"not asked: {error}; ask again") from error
    except CancelledError:
        raise ObserveError("not asked: settings were read again, or lbd ends; ask again") from None


# --- observer


@dataclass(frozen=True, eq=False)
class Observation:
    """One round: the snapshot of the brokers that responded, and the state of the others.

    ``leader`` is None while no broker leads, or the named one does not respond (a dead leader is named for a session
    timeout) or does not report whether it sheds: ``leaderless`` says which, and names it. ``missing`` maps active
    brokers without a usable report to the reason; ``silent`` are the unresponsive ones among them. ``shedding_on``
    names brokers whose own shedder is on, ``shedding_note`` says why lbd could not turn it off where it should, and
    ``shedder`` is the load balancer's configuration of the first of them. ``splitting_on`` names brokers that split
    bundles by themselves. ``system_topics`` are the brokers' own topics in namespaces. ``sample_interval_seconds`` is
    how often most of them sample their CPU. ``raw`` holds the reports as sent, and ``runtime`` the configuration of
    those brokers, where they were requested. ``requests`` is the number of requests, ``seconds`` the duration.
    """

    snapshot: Snapshot
    cluster: str
    active: tuple[str, ...]
    leader: Leader | None
    missing: Mapping[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    shedding_on: tuple[str, ...] = ()
    splitting_on: tuple[str, ...] = ()
    leaderless: str = ""
    shedding_note: str = ""
    shedder: Mapping[str, str] = field(default_factory=dict)
    sample_interval_seconds: float = 60.0
    system_topics: SystemTopics = field(default_factory=SystemTopics)
    raw: Mapping[str, bytes] = field(default_factory=dict)
    runtime: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Reports:
    report: LoadReport
    raw: bytes | None
    runtime: Mapping[str, str]


@dataclass(frozen=True)
class _Missing:
    """A broker without a usable report. ``runtime`` is None if it is unknown, too: the broker may shed."""

    why: ObserveError
    runtime: Mapping[str, str] | None = None


class Observer:
    """Observes one cluster. ``pool`` has the threads for requests during a turn; they end with it."""

    def __init__(self, admin: Admin, now: Callable[[], float], *, keep_raw: bool = False) -> None:
        self.admin = admin
        self._now = now
        self._keep_raw = keep_raw
        self._waiting: Say | None = None
        self._changing, self._manager = Lock(), ""
        self._reports: Reports = AdminReports(admin)
        self._segments = SegmentWatch(admin)
        self._versions: dict[str, str] = {}
        self.pool = Threads(admin.settings.concurrency, "lbd-observe")

    def observe(self) -> Observation:
        """Observe one round.

        Raises :class:`ObserveError` when no broker gave a usable report, the load manager is not supported, or the
        version of any broker is not.
        """
        before = self.admin.http.sent
        active = self._ready()
        started = self._now()
        reports, missing = self._ask_all(active)
        if not reports:
            unheard = bool(missing) and all(isinstance(answer.why, UnheardError) for answer in missing.values())
            kind = UnheardError if unheard else ObserveError
            raise kind(f"no broker of {self.admin.cluster} gave a load report: {_first(missing)}")
        runtimes = {
            broker: answer.runtime for broker, answer in (reports | missing).items() if answer.runtime is not None
        }
        shedding = [broker for broker, runtime in sorted(runtimes.items()) if sheds(runtime)]
        snapshot = build_snapshot(started, {broker: answer.report for broker, answer in reports.items()})
        versions = dict(zip(snapshot.brokers.ids, snapshot.brokers.versions, strict=True))
        # one that gives no report now is as old as before
        self._versions = {broker: version for broker, version in self._versions.items() if broker in active} | versions
        if too_old := unsupported_versions(versions):
            raise ObserveError(too_old)
        if any(runtime.get(SCALABLE_TOPICS) == "true" for runtime in runtimes.values()):
            snapshot = replace(snapshot, segments_changed=self._segments.changed(snapshot))
        leader, leaderless = self._leader(missing)
        return Observation(
            snapshot=snapshot,
            cluster=self.admin.cluster,
            active=tuple(active),
            leader=leader,
            leaderless=leaderless,
            missing={broker: str(answer.why) for broker, answer in missing.items()},
            silent=tuple(broker for broker in missing if self.admin.silent_since(broker) is not None),
            shedding_on=tuple(shedding),
            splitting_on=tuple(broker for broker, runtime in sorted(runtimes.items()) if splits(runtime)),
            shedder=_of_a_shedder(runtimes[shedding[0]]) if shedding else {},
            sample_interval_seconds=_sample_interval([answer.runtime for answer in reports.values()]),
            system_topics=system_topics(runtimes.values(), self._versions.values(), snapshot.namespaces.names),
            raw={broker: answer.raw for broker, answer in reports.items() if answer.raw is not None},
            runtime={broker: answer.runtime for broker, answer in reports.items()} if self._keep_raw else {},
            requests=self.admin.http.sent - before,
            seconds=self._now() - started,
        )

    def _leader(self, missing: Mapping[str, _Missing]) -> tuple[Leader | None, str]:
        """The leader; or None, and the reason."""
        leader = self.admin.leader()
        if leader is None:
            return None, "no broker leads"
        name = leader.broker or url_address(leader.base)
        if not self.admin.ready_at(leader.base):
            return None, f"{name}, which leads, does not answer that it is ready"
        unknown = missing.get(leader.broker or "")
        if unknown is not None and unknown.runtime is None:
            return None, f"{name}, which leads, does not report whether it sheds ({unknown.why})"
        return leader, ""

    def wait_to_hear(self, say: Say) -> None:
        """Let the first round wait for reports on topics: otherwise a command that observes once receives none."""
        self._waiting = say

    @property
    def listens(self) -> bool:
        """Whether brokers publish their load on topics, where only later reports can be received."""
        return isinstance(self._reports, TopicReports)

    def close(self) -> None:
        """Stop the threads; requests under way end with their timeouts."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.admin.close()
        self._reports.close()

    def _ready(self) -> list[str]:
        """The active brokers; chooses the source of reports if the cluster's load manager has changed."""
        runtime = self.admin.runtime_configuration()
        active = self.admin.active_brokers()
        manager = load_manager_class(runtime)
        with self._changing:
            if manager != self._manager:
                source = report_source(runtime, self.admin)
                self._reports.close()
                self._reports, self._manager = source, manager
                self.admin.transfers = is_extensible(runtime)
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._reports.listen(active, runtime, waiting)
        return active

    def _ask_all(self, active: list[str]) -> tuple[dict[str, _Reports], dict[str, _Missing]]:
        answers = few_at_once(self.pool, self.admin.settings.concurrency, self._ask, active)
        pairs = list(zip(active, answers, strict=True))
        reports = {broker: answer for broker, answer in pairs if isinstance(answer, _Reports)}
        missing = {broker: answer for broker, answer in pairs if isinstance(answer, _Missing)}
        for broker, other in _mistaken(reports, active).items():
            message = f"asked at {self.admin.base(broker)}, {other} answered: does one address stand for several?"
            del reports[broker]  # its configuration is the other broker's, too
            missing[broker] = _Missing(ObserveError(message))
        return reports, missing

    def _ask(self, broker: str) -> _Reports | _Missing:
        """Report and configuration of one broker; the reason when it gives none (the others still count)."""
        runtime = None
        try:
            runtime = _configuration(self.admin.runtime_configuration(broker), broker)
            report, raw = self._reports.of(broker, runtime)
            return _Reports(report, raw() if self._keep_raw else None, runtime)
        except ObserveError as error:
            if isinstance(error, AdminError) and error.status in {401, 403}:
                raise
            since = self.admin.silent_since(broker)
            return _Missing(_alone(error) if since is None else ObserveError(unresponsive_text(since)), runtime)


def _configuration(runtime: Mapping[str, str], broker: str) -> Mapping[str, str]:
    """A broker's configuration. Every version gives this key; a response without it is no configuration."""
    if SHEDDING_ENABLED not in runtime:
        raise ObserveError(f"the configuration of {broker} has no {SHEDDING_ENABLED}; is this a broker's web address?")
    return runtime


def _mistaken(reports: Mapping[str, _Reports], active: list[str]) -> dict[str, str]:
    """Brokers whose report carries the address of another active broker, with that broker."""
    own = {broker: url_address(answer.report.web_service_url or "") for broker, answer in reports.items()}
    return {broker: other for broker, other in own.items() if other != broker and other in active}


def _sample_interval(runtimes: Sequence[Mapping[str, str]]) -> float:
    """Seconds between two samples of most brokers.

    One that samples less often than they do is doubtful by itself, and makes their reports no newer.
    """
    return 60.0 * median_high(minutes(runtime, SAMPLE_MINUTES) for runtime in runtimes)


def _alone(error: ObserveError) -> ObserveError:
    """The error without its cause, which would keep the unreadable response in memory."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def _of_a_shedder(runtime: Mapping[str, str]) -> dict[str, str]:
    """The settings, of several hundred, that a shedder's rule reads."""
    prefixes = ("loadBalancer", "minUnload", "maxUnload", "loadManager")
    return {key: value for key, value in runtime.items() if key.startswith(prefixes)}


def _first(missing: Mapping[str, _Missing]) -> str:
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    return next((str(failure.why) for failure in missing.values()), "no broker is active") + more
