"""Whether the brokers' own shedder should have acted: its rule, with its settings, asked about what lbd sees. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lbd.cycle.watchdog import OwnShedder
from lbd.daemon.from_broker import from_broker_conf
from lbd.decide import build
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.load.scoring import Weights
from lbd.model import Memory, Permission
from lbd.pulsar.paths import shedder_of
from lbd.reason import Group, Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.cycle import CycleRecord
    from lbd.model import Decision, Snapshot
    from lbd.permit.evidence import Evidence

KNOWN = "AvgShedder"
INTERVAL_KEY = "loadBalancerSheddingIntervalMinutes"
SPARE_ROUNDS = 2
"""Rounds beyond its hit count that a leader is given: its samples are not lbd's."""


def own_shedder(record: CycleRecord) -> OwnShedder | None:
    """What the brokers' shedder should do now; None where it is off, or nothing was seen.

    Only AvgShedder's rule is known here. Of another one only its name is told.
    """
    seen, decision, averages, evidence = record.observation, record.decision, record.averages, record.evidence
    if seen is None or decision is None or averages is None or evidence is None or not seen.shedding_on:
        return None
    name = shedder_of(seen.shedder) or "a shedder that is not named"
    if name != KNOWN:
        return OwnShedder(name)
    found = from_broker_conf(seen.shedder).settings
    settings = AvgShedderSettings.model_validate(found.get("avg_shedder", {})).stock()
    weights = Weights.model_validate(found.get("weights", {}))
    allowed = _allowed(seen.snapshot, decision, evidence)
    answer = build(settings.eager(), weights)(seen.snapshot, averages, allowed, Memory())
    rounds = settings.hit_count_low + SPARE_ROUNDS
    return OwnShedder(name, _sources(answer), rounds * 60.0 * _interval_minutes(seen.shedder))


def _allowed(snapshot: Snapshot, decision: Decision, evidence: Evidence) -> Permission:
    """Every broker that gives a usable report, and bundles that no policy, nor lbd's doubt in their numbers, bars."""
    free = [reason.code for reason in Reason if reason.group is Group.NORMAL]
    codes = np.where(np.isin(decision.verdicts, free), np.int8(0), decision.verdicts).astype(np.int8)
    everyone = np.ones(len(snapshot.brokers), dtype=np.bool_)
    return Permission(barred=codes, counts=everyone, paired=evidence.paired, settled=everyone)


def _sources(answer: Decision) -> dict[str, str]:
    """The brokers that would give bundles, with how far they are from their partners."""
    apart = {pair.source: f"{pair.difference:.1f} points above {pair.destination}" for pair in answer.facts.pairs}
    return {unload.source: apart[unload.source] for unload in answer.unloads}


def _interval_minutes(runtime: Mapping[str, str]) -> float:
    try:
        return float(max(1, int(runtime.get(INTERVAL_KEY, "1"))))
    except (ValueError, OverflowError):
        return 1.0
