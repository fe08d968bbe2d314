"""Records of turns without a cluster: reports in, what the strategy says of them out."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Hits, Memory
from lbd.observe.observer import Observation
from lbd.permit.evidence import judge
from lbd.permit.facts import Facts
from lbd.permit.membership import Membership
from lbd.pulsar.admin import Leader
from lbd.store.state import TurnMemory
from lbd.turn.parts import TurnResult
from lbd.turn.plan import Chosen, Plan, with_causes
from tests.builders import TAKEN_AT, bundle, first_averages, permission, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.parse import LoadReport
    from lbd.permit.evidence import Sample
    from lbd.reason import Reason


HOT, COLD = "hot:8080", "cold:8080"


def two(hot: float = 80.0, cold: float = 20.0, *, rates: tuple[float, ...] = (500.0,) * 8) -> dict[str, LoadReport]:
    """A hot broker with bundles of these rates, and a cold one with one small bundle."""
    own = {bundle(number): stats(rate) for number, rate in enumerate(rates)}
    return {HOT: report(hot, own), COLD: report(cold, {bundle(200): stats(100)})}


def record(
    reports: Mapping[str, LoadReport],
    *,
    after_seconds: float = 0.0,
    samples: Mapping[str, Sample] | None = None,
    hits: Mapping[str, Hits] | None = None,
    hold: tuple[Reason, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    permitted: Mapping[str, Any] | None = None,
    **changes: Any,
) -> TurnResult:
    """One turn over these reports; ``samples`` and ``hits`` are those before it, and every plan is begun."""
    seen = snapshot(reports, TAKEN_AT + after_seconds)
    evidence = judge(samples or {}, seen, Weights())
    chosen = AvgShedderSettings.model_validate(settings or {})
    allowed = permission(seen, hold=hold[0] if hold else None, **(permitted or {}))
    means = first_averages(seen)
    decision = with_causes(seen, build(chosen, Weights())(seen, means, allowed, Memory(hits or {})))
    found = TurnResult(
        observation=Observation(seen, "c", seen.brokers.ids, Leader(None, "http://leader:8080")),
        plan=Plan(decision, decision.unloads, decision.skips, hold),
        turn_memory=TurnMemory(samples=dict(samples or {}), hits=dict(hits or {})),
        chosen=Chosen(wanted_hits=Hits(chosen.hit_count_low, chosen.hit_count_high)),
        facts=Facts(seen, means, evidence, members=Membership(seen.brokers.ids), memory=Memory(hits or {})),
    )
    return altered(found, **changes)


def altered(record: TurnResult, **changes: Any) -> TurnResult:
    """The record with other fields: its own, those of its plan, its ended moves and its strategy."""
    ended = {name: changes.pop(name) for name in ("outcomes", "unfinished", "amended") if name in changes}
    planned = {name: changes.pop(name) for name in {own.name for own in fields(Plan)} & changes.keys()}
    chosen = {name: changes.pop(name) for name in {own.name for own in fields(Chosen)} & changes.keys()}
    if "refused" in changes:
        ended["skips"] = changes.pop("refused")
    parts = {
        "plan": replace(record.plan, **planned),
        "moves": replace(record.moves, **ended),
        "chosen": replace(record.chosen, **chosen),
    }
    return replace(record, **parts, **changes)
