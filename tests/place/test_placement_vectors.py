"""Placements against the answers that Pulsar's own classes (5.0.1) gave to the same questions."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.load import scoring
from lbd.load.scoring import Weights
from lbd.model import RESOURCES, Brokers
from lbd.place.placements import BrokerLoads, PlaceMemory, PlacementChoice, build

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VECTORS = Path(__file__).parents[1] / "data" / "vectors"
BUNDLE = "t/n/0x00000000_0x10000000"
REPORTED_AS = {"direct_memory": "directMemory", "bandwidth_in": "bandwidthIn", "bandwidth_out": "bandwidthOut"}


def cases(name: str) -> Iterator[dict[str, Any]]:
    """The questions and answers of one placement."""
    with gzip.open(VECTORS / f"placement-{name}.jsonl.gz") as file:
        yield from map(json.loads, file)


def column(brokers: Mapping[str, Any], *keys: str) -> np.ndarray:
    """Numbers of each broker; 0 where a case has none."""
    return np.array([[found.get(key, 0.0) for key in keys] for found in brokers.values()]).reshape(-1, len(keys))


def seen(brokers: Mapping[str, Any], weights: Mapping[str, float]) -> BrokerLoads:
    """The brokers of a case, scored by the code that scores live reports."""
    names = [REPORTED_AS.get(resource, resource) for resource in RESOURCES]
    usage, limit = (
        np.array([[found[name][key] for name in names] for found in brokers.values()]).reshape(-1, len(RESOURCES))
        for key in ("usage", "limit")
    )
    none = np.zeros(len(brokers))
    columns = Brokers(tuple(brokers), usage, limit, np.zeros((len(brokers), 4)), none.astype(int), none, ())
    used = scoring.scores(columns, Weights(**weights)) / 100.0
    long_rates = column(brokers, "longTermMsgRateIn", "longTermMsgRateOut")
    bundles = column(brokers, "numBundles")[:, 0].astype(np.int32)
    return BrokerLoads(0.0, tuple(brokers), used, used, long_rates, column(brokers, "msgRateIn", "msgRateOut"), bundles)


def agrees(expected: Any, placed: PlacementChoice) -> bool:
    """The same broker; where Pulsar draws, the same brokers to draw from, and one of them."""
    if isinstance(expected, dict):
        return tuple(sorted(expected["any_of"])) == placed.choices and placed.broker in placed.choices
    return expected == placed.broker


def test_least_long_term_message_rate_answers_as_pulsar_does():
    """Rates summed in Pulsar's order decide to the last bit; overloaded brokers count as full."""
    found = list(cases("least-long-term-message-rate"))
    for case in found:
        brokers = case["input"]["brokers"]
        given: dict[str, float] = {}
        for broker, told in brokers.items():
            for one in told["preallocated"]:
                given[broker] = given.get(broker, 0.0) + (one["msgRateIn"] + one["msgRateOut"])
        place = partial(build(case["strategy"]), **case["settings"])
        looked = seen(brokers, case["weights"])
        placed = place(BUNDLE, case["input"]["candidates"], looked, PlaceMemory(preallocated=given))
        assert agrees(case["expected"], placed), case["id"]

    assert len(found) == 200


def test_least_resource_usage_answers_as_pulsar_does():
    """The moving averages advance once for each answer, and are forgotten with their brokers."""
    steps = 0
    for case in cases("least-resource-usage-with-weight"):
        settings = {key: value for key, value in case["settings"].items() if not key.startswith("broker_overloaded")}
        place, memory = partial(build(case["strategy"]), **settings), PlaceMemory()
        for step, expected in zip(case["input"]["steps"], case["expected"], strict=True):
            kept = {broker: value for broker, value in memory.usage.items() if broker in step["brokers"]}
            looked = seen(step["brokers"], case["weights"])
            placed = place(BUNDLE, step["candidates"], looked, replace(memory, usage=kept))
            memory, steps = placed.memory, steps + 1
            assert agrees(expected, placed), case["id"]

    assert steps == 930


def test_the_extensible_managers_least_resource_usage_answers_as_pulsar_does():
    """Brokers without load data are left out of the average, and are never well below it."""
    found = list(cases("least-resource-usage-with-weight-extensible"))
    for case in found:
        brokers = case["input"]["brokers"]
        used = np.array([np.nan if told is None else told["weightedMaxEMA"] for told in brokers.values()])
        none = np.zeros((len(brokers), 2))
        looked = BrokerLoads(0.0, tuple(brokers), used, used, none, none, np.zeros(len(brokers), dtype=np.int32))
        placed = partial(build(case["strategy"]), **case["settings"])(
            BUNDLE, case["input"]["candidates"], looked, PlaceMemory()
        )
        assert agrees(case["expected"], placed), case["id"]

    assert len(found) == 200


def test_round_robin_answers_as_pulsar_does():
    """It keeps the order that it saw, whatever order candidates come in, until their number or members change."""
    answers = 0
    nothing = seen({}, {})
    for case in cases("round-robin"):
        memory = PlaceMemory(counter=case["input"].get("start", 0))
        for candidates, expected in zip(case["input"]["candidates"], case["expected"], strict=True):
            placed = build(case["strategy"])(BUNDLE, candidates, nothing, memory)
            memory, answers = placed.memory, answers + 1
            assert agrees(expected, placed), case["id"]

    assert answers == 2922
