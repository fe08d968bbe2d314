"""Problems that last: gaps that no broker and no lbd closes, reports that cannot be true, others that move bundles,
and names in the settings that match nothing. Pure.

lbd reports these also when it may not act: while brokers shed by themselves, when it only observes, is paused or held.
Based on users' reports: shedding that stopped for good (apache/pulsar #23125, #13892), usage reported as 0 (#15313),
NaN (#382).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from lbd.model import RESOURCES
from lbd.permit import evidence
from lbd.text import duration_text, minutes_text
from lbd.turn.assess import UNREPORTED_SECONDS
from lbd.turn.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lbd.model import Snapshot
    from lbd.observe.observer import Observation
    from lbd.permit.facts import Facts
    from lbd.turn.parts import TurnResult


PATIENCE = 2.0
"""A gap is reported when it has lasted for twice the samples after which the strategy would have acted."""

LEAST_PATIENCE_SECONDS = 600.0
ODD_SAMPLES = 2
"""Sampling intervals for which zeros and NaN must have lasted: a broker's first reports may hold them."""

QUIET_MSG_RATE = 1.0
"""Messages/s below which a broker may really use nothing."""

SILENCE_SECONDS = 1800.0
"""After so long without an observation, what went on meanwhile is not known, and the clocks start anew."""

_USED = tuple(RESOURCES.index(name) for name in ("cpu", "bandwidth_in", "bandwidth_out"))

OTHERS_SECONDS, OTHERS_BUNDLES = 1800.0, 2
"""This many bundles that change hands within this time show another balancer; a single one is a person's unload."""

Taken = tuple[float, str, str]

Key = tuple[str, str]
"""The condition (``gap``, ``leader``, ``frozen``, ``zero``, ``nan``, ``others``, ``names``), and with which broker, or
for ``names`` in which setting.
"""


@dataclass(frozen=True)
class Alarm:
    """One condition that lasts since ``since`` (epoch seconds), with its text."""

    kind: str
    broker: str
    since: float
    text: str

    @property
    def key(self) -> Key:
        """The key by which the next turn knows the same alarm."""
        return self.kind, self.broker


@dataclass(frozen=True)
class WatchdogMemory:
    """The memory of the watchdog: since when each condition holds, and each broker's number of bundles.

    ``taken`` are the bundles that others moved lately: when that was seen (epoch seconds), and the former owner and the
    new one.
    """

    at: float = 0.0
    since: Mapping[Key, float] = field(default_factory=dict)
    bundles: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, Taken] = field(default_factory=dict)
    alarms: tuple[Alarm, ...] = ()


@dataclass(frozen=True)
class OwnShedder:
    """The brokers' own shedder, where it is on: which brokers it should relieve now, by its own rule and settings.

    ``overdue`` maps those to how far they are from their partners; ``patience_seconds`` is how long it may take over
    it, None where its rule is not known.
    """

    name: str
    overdue: Mapping[str, str] = field(default_factory=dict)
    patience_seconds: float | None = None


def watch(
    state: WatchdogMemory,
    record: TurnResult,
    shedder: OwnShedder | None = None,
    unmatched: Mapping[str, str] | None = None,
) -> tuple[WatchdogMemory, tuple[Alarm, ...]]:
    """The memory after one more turn, and everything that is wrong now. A turn without observation changes nothing.

    ``unmatched`` has a text for each setting with a name that matches nothing in the cluster.
    """
    if record.observation is None or record.plan.decision is None or record.facts is None:
        return state, state.alarms
    snapshot = record.observation.snapshot
    now = snapshot.taken_at
    if not 0 <= now - state.at <= SILENCE_SECONDS:
        state = WatchdogMemory()
    bundles = dict(zip(snapshot.brokers.ids, snapshot.rows.count(snapshot.rows.listed).tolist(), strict=True))
    taken = _taken(state, record.facts)
    held = {**dict(_wrong(record, record.observation)), **dict(_overdue(record.observation, shedder)), **_others(taken)}
    held |= {("names", setting): text for setting, text in (unmatched or {}).items()}
    since = {key: _begin(state, record, key, bundles, now) for key in held}
    patience = _patience(record, record.observation.sample_interval_seconds, shedder)
    lasting = [
        Alarm(*key, started_at, held[key]) for key, started_at in since.items() if now - started_at >= patience[key[0]]
    ]
    alarms = tuple(_dated_alarm(alarm, now, record, shedder) for alarm in lasting)
    return WatchdogMemory(now, since, bundles, taken, alarms), alarms


def _patience(record: TurnResult, interval_seconds: float, shedder: OwnShedder | None) -> dict[str, float]:
    """How long each kind must have lasted."""
    acting = PATIENCE * record.chosen.wanted_hits.low * interval_seconds
    odd = ODD_SAMPLES * interval_seconds
    frozen = evidence.FROZEN_SAMPLES * interval_seconds
    leader = shedder.patience_seconds if shedder is not None and shedder.patience_seconds is not None else float("inf")
    return {
        "gap": max(acting, LEAST_PATIENCE_SECONDS),
        "leader": leader,
        "frozen": frozen,
        "zero": odd,
        "nan": odd,
        "others": interval_seconds,  # a broker that is shut down gives its bundles away while it still reports
        "names": odd,  # bundles of a broker that restarts are on no report for a while
    }


def _wrong(record: TurnResult, observation: Observation) -> Iterator[tuple[Key, str]]:
    """Conditions that are wrong if they last, with their texts."""
    assert record.plan.decision is not None
    for pair in reversed(record.plan.pairs):
        above = f"is {pair.difference:.1f} points above {pair.destination}"
        yield ("gap", pair.source), f"{pair.source} {above if pair.destination is not None else f'has {pair.why}'}"
    yield from _odd_reports(observation.snapshot)


def _taken(state: WatchdogMemory, facts: Facts) -> dict[str, Taken]:
    """The bundles that others moved lately, without those that a restart or lbd's journal explains by now.

    Where brokers shed by themselves, they are the others, and the turn's hold says so.
    """
    if facts.shedding:
        return {}
    new = {bundle: (facts.now, *ends) for bundle, ends in facts.taken_by_others.items()}
    lately = {bundle: taken for bundle, taken in state.taken.items() if facts.now - taken[0] < OTHERS_SECONDS}
    return {
        bundle: (time, source, owner)
        for bundle, (time, source, owner) in {**lately, **new}.items()
        if source in evidence.ran_on(facts.snapshot, time)
        and facts.attempted_at.get(bundle, float("-inf")) < time - UNREPORTED_SECONDS
    }


def _others(taken: Mapping[str, Taken]) -> dict[Key, str]:
    """Whether somebody else moves bundles."""
    if len(taken) < OTHERS_BUNDLES:
        return {}
    bundle = min(taken)
    _, source, owner = taken[bundle]
    what = f"{len(taken)} bundles changed their broker within {duration_text(OTHERS_SECONDS)}, not by this lbd"
    who = "and without a restart: another lbd, another balancer or a person moves them; let only one of them move"
    return {("others", ""): f"{what} {who}; the first: {bundle} from {source} to {owner}"}


def _overdue(observation: Observation, shedder: OwnShedder | None) -> Iterator[tuple[Key, str]]:
    """Brokers that the leader should relieve by its own rule."""
    leader = observation.leader
    name = "no broker leads, and nobody" if leader is None else f"leader {leader.broker or leader.base}"
    for broker, apart in (shedder.overdue if shedder is not None else {}).items():
        assert shedder is not None
        yield (
            ("leader", broker),
            f"{name} has not relieved {broker}, {apart}, though the rule of its {shedder.name} holds",
        )


def _odd_reports(snapshot: Snapshot) -> Iterator[tuple[Key, str]]:
    """Reports that stand still, hold only zeros, or numbers that are none."""
    brokers = snapshot.brokers
    with np.errstate(all="ignore"):
        rates: list[float] = (brokers.rates[:, 0] + brokers.rates[:, 1]).tolist()
    for row, (broker, rate) in enumerate(zip(brokers.ids, rates, strict=True)):
        carried = f"while it carries {rate:,.0f} msg/s"
        if np.isnan(brokers.usage[row]).any() or np.isnan(brokers.rates[row]).any():
            yield ("nan", broker), f"the load report of {broker} holds NaN"
        elif brokers.usage[row, _USED].any():
            yield ("frozen", broker), f"CPU and bandwidth in the load report of {broker} have not changed, {carried}"
        elif rate >= QUIET_MSG_RATE:
            yield ("zero", broker), f"the load report of {broker} says 0 of every resource, {carried}"


def _begin(state: WatchdogMemory, record: TurnResult, key: Key, bundles: Mapping[str, int], now: float) -> float:
    """Since when a condition holds. A gap begins anew when somebody has acted on it."""
    kind, broker = key
    if kind == "frozen":
        assert record.facts is not None
        return record.facts.evidence.samples[broker].fresh_at
    acted = kind in {"gap", "leader"} and (_moved(record, broker) or bundles[broker] < state.bundles.get(broker, 0))
    return now if acted else state.since.get(key, now)


def _moved(record: TurnResult, broker: str) -> bool:
    """Whether lbd moves something off the broker, or has just done so; a plan that is only shown does not count."""
    own = record.plan.unloads if record.acts else ()
    unloads = (*own, *record.moves.unfinished, *(outcome.unload for outcome in record.moves.outcomes))
    return any(unload.source == broker for unload in unloads)


def _dated_alarm(alarm: Alarm, now: float, record: TurnResult, shedder: OwnShedder | None) -> Alarm:
    """The alarm with its duration, and for a gap why lbd does not act."""
    lasts = f"for {minutes_text(now - alarm.since)}"
    if alarm.kind == "names":
        return alarm
    if alarm.kind != "gap":
        return replace(alarm, text=f"{alarm.text}, {lasts}")
    unknown = shedder is not None and shedder.patience_seconds is None
    own = f"; whether the brokers' own {shedder.name} should have, lbd cannot know" if shedder and unknown else ""
    return replace(alarm, text=f"{alarm.text} {lasts} and nobody acted; lbd: {verdict(record).head}{own}")
