"""The parts of the daemon's harness that need no broker: journal, witness, meters, schedule of kills, growth."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests import journals
from tests.e2e import journal, locks
from tests.e2e.cluster import Cluster
from tests.e2e.figures import summary
from tests.e2e.kills import REQUESTS_WHILE_DEAD, schedule
from tests.e2e.meters import Meters
from tests.e2e.pair import Sample, drawn, grown, series, slope, table
from tests.e2e.settings import Spec
from tests.e2e.skew import FEW_CARRY_MOST, Scenario
from tests.e2e.witness import Witness, contradictions

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.journal import Move

BUNDLE = "e2e/n/0x00000000_0x80000000"
A, B = "127.0.0.1:18080", "127.0.0.2:18080"


def _intent(move: str, at: float) -> dict[str, Any]:
    ends = {"bundle": BUNDLE, "source": A, "destination": B}
    return {"event": "intent", "at": at, "move": move, **ends, "more": 1}


def _outcome(move: str, at: float, owner: str | None = B, result: str = "landed") -> dict[str, Any]:
    return {"event": "outcome", "at": at, "move": move, "result": result, "owner": owner}


def _moves(*entries: dict[str, Any]) -> list[Move]:
    return journal.moves(entries)


def _witness(*stays: tuple[str, float, float]) -> Witness:
    witness = Witness(Cluster(Spec("4.2.4")))
    for broker, first, last in stays:
        witness._stays[BUNDLE, broker].append((first, last))
    return witness


def test_a_journal_is_read(tmp_path: Path):
    """Entries of unknown kinds are left out of the moves."""
    between = {"event": "pause", "at": 10.5, "bundle": BUNDLE}
    journals.write(tmp_path, _intent("m1", 10.0), between, _outcome("m1", 11.0))
    told = journal.moves(journal.entries(tmp_path))

    assert [(move.id, move.result, move.owner, move.ended_at) for move in told] == [("m1", "landed", B, 11.0)]


def test_changes_of_hands_are_moves():
    """A look that saw no owner between is part of the move; what was before the moment is not told."""
    witness = _witness((A, 0.0, 4.0), (B, 4.5, 9.0), (A, 9.5, 20.0), (A, 21.0, 30.0))

    assert [(move.source, move.owner, move.asked_at, move.ended_at) for move in witness.moves(5.0)] == [
        (B, A, 9.0, 9.5)
    ]
    assert len(witness.moves(0.0)) == 2


def test_a_handful_of_topics_carries_most():
    """Each broker keeps its share of the traffic; without falling rates all topics are equal."""
    placed = {f"b{at}": A if at < 24 else B for at in range(32)}
    topics = {bundle: f"topic-{bundle}" for bundle in placed}
    equal, unequal = (Scenario(falling=falling).rates(topics, placed) for falling in (0.0, FEW_CARRY_MOST))
    hot = sorted((unequal[topics[one]] for one, broker in placed.items() if broker == A), reverse=True)

    assert set(equal.values()) == {3000 / 32}
    assert sum(hot) == pytest.approx(2250)
    assert sum(unequal.values()) == pytest.approx(3000)
    assert sum(hot[:4]) / sum(hot) == pytest.approx(0.5, abs=0.02)


DUMP = """3 expire at Mon Nov 23 07:36:02 UTC 2026:
	0x10001ef254c0006
ephemeral nodes dump:
Sessions with Ephemerals (3):
0x10001ef254c0007:
	/namespace/e2e/n/0x00000000_0x80000000
	/loadbalance/brokers/127.0.0.2:18080
	/namespace/pulsar/127.0.0.2:18080/0x00000000_0xffffffff
0x10001ef254c0005:
	/ledgers/available/127.0.0.1:13181
0x10001ef254c0006:
	/loadbalance/leader
	/loadbalance/brokers/127.0.0.1:18080
	/namespace/e2e/n/0x80000000_0xffffffff
Connections dump:
	ip: /127.0.0.1:43658 sessionId: 0x10001ef254c0005
"""


def test_who_holds_the_lock_of_a_bundle_owns_it():
    """The broker of the session that keeps both, wherever in it either stands; an answer that is none tells nothing."""
    found = {bundle: broker for bundle, broker in locks.holders(DUMP).items() if bundle.startswith("e2e/")}
    assert found == {BUNDLE: B, "e2e/n/0x80000000_0xffffffff": A}
    assert locks.holders("") == locks.holders("dump is not executed because it is not in the whitelist.") == {}


def test_moves_of_one_turn_are_a_batch():
    """A pause of more than five seconds after the last outcome begins another one."""
    told = _moves(_intent("m1", 10.0), _outcome("m1", 12.0), _intent("m2", 16.0), _intent("m3", 22.0))

    assert [[move.id for move in batch] for batch in journal.batches(told)] == [["m1", "m2"], ["m3"]]


def test_a_landing_is_denied_where_its_owner_was_not_seen_in_time():
    """Seen from one second before to three seconds after the outcome, and nothing else counts."""
    told = _moves(_intent("m1", 10.0), _outcome("m1", 11.0))

    assert contradictions(told, _witness((B, 13.9, 60.0)), {BUNDLE: {B}}, []) == []
    assert len(contradictions(told, _witness((B, 14.1, 60.0)), {BUNDLE: {B}}, [])) == 1
    assert len(contradictions(told, _witness((A, 0.0, 60.0)), {BUNDLE: {B}}, [])) == 1


def test_the_last_owner_told_must_own_it_unless_it_was_killed_since():
    """A kill before the outcome excuses nothing, nor does the death of another broker."""
    told, seen = _moves(_intent("m1", 10.0), _outcome("m1", 11.0)), _witness((B, 0.0, 60.0))

    assert len(contradictions(told, seen, {BUNDLE: {A}}, [])) == 1
    assert len(contradictions(told, seen, {BUNDLE: {A, B}}, [])) == 1
    assert len(contradictions(told, seen, {BUNDLE: {A}}, [(5.0, B), (20.0, A)])) == 1
    assert contradictions(told, seen, {BUNDLE: {A}}, [(20.0, B)]) == []
    assert contradictions(told, seen, {BUNDLE: {A}}, [], {BUNDLE: 20.0}) == []
    assert len(contradictions(told, seen, {BUNDLE: {A}}, [], {BUNDLE: 5.0})) == 1


def test_what_ended_as_unowned_says_nothing_of_later():
    """Only the last outcome of a bundle is held against its present owner."""
    told = _moves(_intent("m1", 10.0), _outcome("m1", 11.0), _intent("m2", 20.0), _outcome("m2", 21.0, None, "unowned"))

    assert contradictions(told, _witness((B, 0.0, 60.0)), {BUNDLE: {A}}, []) == []


def test_kills_are_spread_and_never_meet():
    """A broker that was killed is back before the next one dies; lbd may die meanwhile."""
    victims = schedule(200, lbd=16, leader=4, broker=4)

    assert Counter(victims.values()) == {"lbd": 16, "leader": 4, "broker": 4}
    assert all(0 < at < 200 for at in victims)
    brokers = sorted(at for at, victim in victims.items() if victim != "lbd")
    assert min(late - early for early, late in itertools.pairwise(brokers)) > REQUESTS_WHILE_DEAD


def _samples(which: str, held: float, an_hour: float = 0.0, leads: tuple[bool, ...] = (True,) * 400) -> list[Sample]:
    """A look each ten seconds, twelve turns between two of them, 30 ms each."""
    hours = [number / 360 for number in range(len(leads))]
    sizes = [{"RSS MB": 40.0 if hour < 0.2 else held + an_hour * hour, "files": 40.0} for hour in hours]
    return [
        Sample(which, hour, lead, 12 * number, 0.36 * number, size)
        for number, (hour, lead, size) in enumerate(zip(hours, leads, sizes, strict=True))
    ]


def test_growth_is_a_fitted_line_without_the_first_quarter():
    """The caches of the beginning are no leak, and what grows less than is tolerated is no growth."""
    found = series([*_samples("first", 200.0, 3.0), *_samples("second", 200.0, 1.0)])

    assert slope(*found["RSS MB, first"]) == (pytest.approx(3.0), pytest.approx(0.0, abs=1e-6))
    assert grown(found) == ["RSS MB, first"]
    assert "| RSS MB, second | 40.0 | 200.3 | 200.6 | 200.8 | 201.1 | +1.00 ± 0.00 | 2 |" in table(found).splitlines()
    assert ET.fromstring(drawn(found)).tag.endswith("svg")


def test_growth_within_twice_its_error_is_not_called_growth():
    """Ten megabytes come and go every twelve minutes, and three an hour stay."""
    samples = _samples("first", 200.0, 3.0)
    jumping = [
        replace(each, held={"RSS MB": each.held["RSS MB"] + 10 * (at // 75 % 2)}) for at, each in enumerate(samples)
    ]

    growth, error = slope(*series(jumping)["RSS MB, first"])
    assert growth > 2.0
    assert error > growth / 2
    assert grown(series(jumping)) == []


def test_cpu_a_turn_is_that_of_the_one_that_leads_and_of_the_other_one():
    """Looks between which the leader changed, or a daemon stood still, are not counted."""
    leads = (True, True, True, False, False)
    samples = _samples("first", 200.0, leads=leads)
    still = replace(samples[2], turns=samples[1].turns, cpu_seconds=samples[1].cpu_seconds)

    found = series([*samples[:2], still, *samples[3:]])
    assert found["CPU ms a turn, leader"] == ([1 / 360], [pytest.approx(30.0)])
    assert found["CPU ms a turn, standby"] == ([4 / 360], [pytest.approx(30.0)])


def test_the_true_gap_is_what_the_groups_used_in_the_window():
    """Half a core against a tenth of one, with quotas of one core; before that nothing."""
    cluster = Cluster(Spec("4.2.4", brokers=2))
    meters = Meters(cluster)
    spent = [max(0.0, at - 100.0) for at in range(201)]
    meters._used = [(float(at), [0.5 * spent[at], 0.1 * spent[at]], [1.0, 1.0]) for at in range(201)]

    assert meters.true_gap(200.0, 30) == pytest.approx(40.0)
    assert meters.true_gap(100.0, 30) == pytest.approx(0.0)
    assert meters.last_above(15.0, 0.0, 200.0) == pytest.approx(200.0)
    assert meters.last_above(50.0, 0.0, 200.0) is None


def test_quotas_that_are_lifted_after_the_window_are_not_in_it():
    """A run's last gap is asked for when its brokers have the whole machine again."""
    meters = Meters(Cluster(Spec("4.2.4", brokers=2)))
    meters._used = [(float(at), [0.3 * at, 0.1 * at], [0.6, 0.2] if at <= 60 else [1.0, 1.0]) for at in range(70)]

    assert meters.true_gap(60.0, 30) == pytest.approx(0.0)
    assert meters.true_gap(60.5, 30) == pytest.approx(0.0)
    assert meters.last_above(15.0, 0.0, 60.5) is None


def test_figures_are_number_median_and_largest():
    """In milliseconds; nothing at all is three zeros."""
    assert summary([0.1, 0.3, 0.2]) == (3, 200, 300)
    assert summary([]) == (0, 0, 0)
