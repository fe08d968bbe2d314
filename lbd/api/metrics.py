"""``/metrics`` for Prometheus. Gauges come from the last turn, counters from :mod:`lbd.api.published`.

Names follow Prometheus' conventions; labels are the cluster, as in the brokers' own metrics, brokers, and words of
closed lists. Nothing is labelled by bundle, namespace or topic: a cluster has tens of thousands of them. Unknown values
are left out, not 0.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, get_args

import numpy as np
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily

from lbd import __version__
from lbd.api.published import VERDICTS
from lbd.errors import UsageError
from lbd.load.summary import State
from lbd.reason import Reason
from lbd.store.control import Control
from lbd.store.drains import drains_in_force
from lbd.turn.record import compared_scores
from lbd.turn.verdict import LEFT_OUT, not_compared

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from lbd.api.backend import Backend
    from lbd.api.published import Published
    from lbd.model import Brokers
    from lbd.permit.slow import Health
    from lbd.store.status import Status


def registry(backend: Backend) -> CollectorRegistry:
    """The metrics of one lbd, in a registry of their own."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    metrics = CollectorRegistry()
    metrics.register(_Collector(backend))
    return metrics


class _Collector:
    """Asked anew for each scrape."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        """All metrics, each with the label ``cluster``; its value is empty until a broker has said the name."""
        last = self._backend.board.last
        cluster = last.status.cluster if last is not None else self._backend.settings.pulsar.cluster or ""
        for metric in self._unlabelled(last):
            metric.samples = [each._replace(labels={"cluster": cluster, **each.labels}) for each in metric.samples]
            yield metric

    def _unlabelled(self, last: Published | None) -> Iterator[Metric]:
        yield _gauge("lbd_build_info", "The lbd that runs.", {"version": __version__})
        yield from self._backend.board.tally.collect()
        yield from self._process.collect()
        yield from self._paused()
        yield from self._drains(last)
        if last is not None:
            yield from _of_turn(last)
            yield from _of_capacity(last)
            yield from _of_brokers(last, self._backend.now())
            yield from _of_pairs(last)

    def _paused(self) -> Iterator[Metric]:
        now = self._backend.now()
        pause = Control(self._backend.state_dir).paused(now)
        yield _gauge("lbd_paused", "1 while a person or program has paused lbd.", value=pause is not None)
        for_seconds = max(now - pause.since, 0.0) if pause is not None else 0.0
        yield _gauge("lbd_paused_seconds", "How long the pause in force has lasted; 0 without one.", value=for_seconds)

    def _drains(self, last: Published | None) -> Iterator[Metric]:
        """Metrics of drains; none where their orders cannot be read, which each turn reports."""
        try:
            drains = drains_in_force(self._backend.state_dir, self._backend.now())
        except UsageError:
            return
        observation = last.record.observation if last is not None else None
        active = dict.fromkeys(observation.active if observation is not None else (), 0.0)
        active |= {drain.broker: 1.0 for drain, _ in drains}
        yield _labelled("lbd_drain_active", "1 for a broker that is drained.", "broker", active)
        remaining: dict[str, float | None] = {}
        if last is not None and _leads(last):  # what another lbd knows is of the time when it led
            remaining = {drain.broker: work.remaining for drain, work in drains if work is not None}
        words = "Bundles that are still on a drained broker, by the drain's last look."
        yield _labelled("lbd_drain_left_bundles", words, "broker", remaining)


def _leads(last: Published) -> bool:
    return last.status.hold != Reason.NOT_LEADER.label


def _of_turn(last: Published) -> Iterator[Metric]:
    status, record = last.status, last.record
    yield _gauge("lbd_last_turn_timestamp_seconds", "When the last turn ended, epoch seconds.", value=status.at)
    yield _gauge("lbd_interval_seconds", "Planned time between turns.", value=status.interval_seconds)
    yield _gauge("lbd_observed", "1 when the last turn observed the cluster.", value=record.observation is not None)
    yield _gauge("lbd_strategy_info", "The strategy in force.", {"strategy": last.settings.strategy})
    words = "1 where this lbd may move; of several that share a cluster one may."
    yield _gauge("lbd_leader", words, value=_leads(last))
    yield _gauge("lbd_observe_only", "1 where lbd only says what it would move.", value=status.observe_only)
    yield _gauge("lbd_moves_under_way", "Moves that have begun, or wait for their turn.", value=len(status.unfinished))
    hour = status.last_hour
    yield _gauge("lbd_moves_last_hour", "Moves begun within the last hour.", value=hour.moves)
    yield _gauge("lbd_bundles_last_hour", "Different bundles of them.", value=hour.bundles)
    yield _gauge("lbd_attempts_last_hour", "Unload requests of them, retries included.", value=hour.attempts)
    yield _gauge("lbd_warnings", "Warnings of lbd; lbd status shows them.", value=len(status.warnings))
    values = {kind: float(kind == last.verdict) for kind in VERDICTS}
    yield _labelled("lbd_verdict", "1 for what the last turn came to.", "verdict", values)
    held = {status.hold: 1.0} if status.hold is not None else {}
    yield _labelled("lbd_hold", "1 for what forbids moves in the last turn; none where nothing does.", "reason", held)
    yield _labelled(
        "lbd_skipped_bundles", "Bundles that stayed in the last turn, by reason.", "reason", record.plan.counts
    )
    remaining = {budget.name: budget.left for budget in status.budgets if budget.left is not None}
    limits = {budget.name: budget.limit for budget in status.budgets if budget.limit is not None}
    yield _labelled(
        "lbd_budget_left", "Unloads that may still be sent, by limit; of the one used most.", "budget", remaining
    )
    yield _labelled("lbd_budget_limit", "Those limits.", "budget", limits)


def _of_capacity(last: Published) -> Iterator[Metric]:
    """Left out where the last turn saw no load: an autoscaler then changes nothing."""
    capacity = last.record.capacity
    if capacity is not None:
        words = "Brokers of this kind that the peak of the last day needs to stay below capacity.max_score."
        yield _gauge("lbd_brokers_wanted", words, value=capacity.target_brokers)


def _of_brokers(last: Published, now: float) -> Iterator[Metric]:
    observation, facts = last.record.observation, last.record.facts
    if observation is None or facts is None or last.record.plan.decision is None:
        return
    rows = last.brokers
    scores = {row.id: row.score for row in rows}
    yield _labelled("lbd_broker_score_points", "Score: the highest weighted resource.", "broker", scores)
    usage = GaugeMetricFamily(
        "lbd_broker_usage_ratio", "Usage by resource, of its limit.", labels=["broker", "resource"]
    )
    for row in rows:
        for resource, used in row.usage.items():
            if used is not None:
                usage.add_metric([row.id, resource], used / 100)
    yield usage
    for name, key, words in (
        ("lbd_broker_bundles", "bundles", "Bundles that the broker lists."),
        ("lbd_broker_messages_per_second", "msg_rate", "Messages in and out."),
        ("lbd_broker_throughput_bytes_per_second", "throughput", "Bytes in and out."),
    ):
        yield _labelled(name, words, "broker", {row.id: getattr(row, key) for row in rows})
    ages = {row.id: max(now - facts.evidence.samples[row.id].fresh_at, 0.0) for row in rows}
    yield _labelled("lbd_broker_sample_age_seconds", "Since its numbers last changed.", "broker", ages)
    yield from _of_health(facts.evidence.health)
    yield from _of_live_cpu(observation.snapshot.brokers)
    states = {
        "active": len(observation.active),
        "missing": len(observation.missing),
        "shedding": len(observation.shedding_on),
    }
    yield _labelled("lbd_brokers", "Brokers: active, without a report, with their own shedder on.", "state", states)
    omitted = Counter(reason.label for reason, _ in not_compared(last.record).values())
    words = "Active brokers that the last verdict is not about, by why they were not compared."
    yield _labelled(
        "lbd_brokers_not_compared", words, "reason", {reason.label: float(omitted[reason.label]) for reason in LEFT_OUT}
    )
    yield from _spread(last.status)
    models = Counter(row.load.state for row in last.status.brokers if row.load is not None)
    words = "Brokers of which the cost of traffic is known, taken from others, or unknown."
    yield _labelled("lbd_load_model_brokers", words, "state", {state: models[state] for state in get_args(State)})


def _of_health(health: Health) -> Iterator[Metric]:
    """Metrics of brokers that were checked often enough."""
    slow = {broker: float(broker in health.slow) for broker in health.typical_seconds}
    yield _labelled("lbd_broker_slow", "1 where the broker carries little and is slow.", "broker", slow)
    words = "How long its health check takes, the median of the last five."
    yield _labelled("lbd_broker_health_check_seconds", words, "broker", health.typical_seconds)


def _of_live_cpu(brokers: Brokers) -> Iterator[Metric]:
    """Metrics of brokers that answered a request for their CPU of now."""
    shows_live = dict(zip(brokers.ids, brokers.shows_live.tolist(), strict=True))
    took = {} if brokers.live is None else dict(zip(brokers.ids, brokers.live.took.tolist(), strict=True))
    answered = {broker: seconds for broker, seconds in took.items() if np.isfinite(seconds)}
    counts = {broker: float(shows_live[broker]) for broker in answered}
    words = "1 where the CPU of now counts, 0 where it was asked for and the load report counts."
    yield _labelled("lbd_broker_live_cpu", words, "broker", counts)
    yield _labelled("lbd_broker_live_cpu_seconds", "How long the broker took to report it.", "broker", answered)


def _spread(status: Status) -> Iterator[Metric]:
    scores, mean = compared_scores(status.brokers), status.mean_points
    if mean is None:
        return
    if status.gap_points is not None:
        yield _gauge("lbd_score_gap_points", "Highest score minus lowest.", value=status.gap_points)
    yield _gauge("lbd_score_mean_points", "Mean score: no placement has a lower peak.", value=mean)
    yield _gauge("lbd_score_stddev_points", "Standard deviation of the scores.", value=float(np.std(scores)))
    if mean > 0:
        yield _gauge("lbd_score_max_over_mean_ratio", "Highest score over their mean.", value=max(scores) / mean)


def _of_pairs(last: Published) -> Iterator[Metric]:
    ends = ["source", "destination"]
    apart = GaugeMetricFamily("lbd_pair_difference_points", "How far apart a pair is.", labels=ends)
    hits = GaugeMetricFamily(
        "lbd_pair_hits", "Samples of a pair above the threshold, the last turn's counted.", labels=[*ends, "threshold"]
    )
    required = GaugeMetricFamily(
        "lbd_pair_hits_wanted", "Samples above the threshold at which it fires.", labels=[*ends, "threshold"]
    )
    for pair in last.status.pairs:
        key = [pair.source, pair.destination or ""]
        if pair.difference is not None:
            apart.add_metric(key, pair.difference)
        for threshold, had, want in (
            ("low", pair.hits.low, pair.hits.low_wanted),
            ("high", pair.hits.high, pair.hits.high_wanted),
        ):
            hits.add_metric([*key, threshold], had)
            required.add_metric([*key, threshold], want)
    yield from (apart, hits, required)
    strategy = last.settings.strategy_settings
    points = {name: getattr(strategy, f"{name}_threshold", None) for name in ("low", "high")}
    words = "Differences from which samples count, where the strategy has such thresholds."
    yield _labelled("lbd_threshold_points", words, "threshold", points)


def _gauge(name: str, words: str, labels: Mapping[str, str] | None = None, *, value: float = 1.0) -> Metric:
    family = GaugeMetricFamily(name, words, labels=list(labels or {}))
    family.add_metric(list((labels or {}).values()), float(value))
    return family


def _labelled(name: str, words: str, label: str, values: Mapping[str, float | None]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=[label])
    for key, value in values.items():
        if value is not None:
            family.add_metric([key], value)
    return family
