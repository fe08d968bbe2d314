"""Which reports are new evidence, and which are not to be trusted."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.load.scoring import Weights
from lbd.model import Hits, LiveCpu, Memory
from lbd.observe.parse import LoadReport, Usage
from lbd.permit import evidence
from lbd.permit.evidence import Evidence, Sample, judge, unsettle, watched, without
from lbd.reason import Reason
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Snapshot

NO_NEW = Reason.NO_NEW_SAMPLE.code
BUSY = {bundle(1): stats(100), bundle(2): stats(50)}


def look(previous: dict[str, Sample], found: LoadReport, at: float = TAKEN_AT) -> Evidence:
    """Judge one broker's report."""
    return judge(previous, snapshot({"a:80": found}, at), Weights())


def watch(*reports: LoadReport) -> list[Evidence]:
    """Judge one report after the other, 15 s apart."""
    found: list[Evidence] = []
    samples: dict[str, Sample] = {}
    for number, one in enumerate(reports):
        found.append(look(samples, one, TAKEN_AT + 15 * number))
        samples = dict(found[-1].samples)
    return found


def live(seen: Snapshot, seconds: float, apart: float) -> Snapshot:
    """The round with CPU of now of its only broker, of so many seconds, whose halves differ by so many points."""
    columns = (np.array([one]) for one in (seconds, apart, 0.1))
    return replace(seen, brokers=replace(seen.brokers, live=LiveCpu(seen.brokers, *columns)))


def started(seconds_ago: float, **changes: Any) -> LoadReport:
    """A broker that started so long before TAKEN_AT."""
    return report(start_timestamp=(TAKEN_AT - seconds_ago) * 1000, statistics=BUSY, **changes)


def test_the_same_sample_polled_again_is_no_evidence():
    """CPU is sampled once a minute; what was counted is not counted again."""
    assert [True, False, True] == [
        bool(e.fresh[0]) for e in watch(report(50, BUSY), report(50, BUSY), report(51, BUSY))
    ]


def test_a_change_of_bandwidth_is_evidence_too():
    """cpu or bandwidth: both are sampled at the same moment."""
    moved = report(50, BUSY, bandwidth_in=Usage(7.0, 100.0))

    assert bool(watch(report(50, BUSY, bandwidth_in=Usage(6.0, 100.0)), moved)[1].fresh[0])


@pytest.mark.parametrize(
    ("seconds", "apart", "settled"),
    [
        (25.0, 1.0, True),
        (17.0, 1.0, False),
        (25.0, 6.0, False),
        (25.0, math.nan, False),
        (math.nan, math.nan, False),
    ],
    ids=["still", "too short", "still changing", "halves too short", "by reports"],
)
def test_a_touched_broker_settles_as_soon_as_its_live_cpu_stands_still(seconds: float, apart: float, settled: bool):
    """Then its counter advances, too, though no report is new."""
    samples = unsettle(look({}, report(50, BUSY)).samples, ["a:80"], TAKEN_AT)
    now = snapshot({"a:80": report(50, BUSY)}, TAKEN_AT + 25)
    found = judge(samples, live(now, seconds, apart), Weights())
    assert (bool(found.settled[0]), bool(found.counts[0]), bool(found.fresh[0])) == (settled, settled, False)


@pytest.mark.parametrize(
    ("score", "expected", "settled"),
    [(50, 40, True), (51, 40, False), (90, 40, False), (99, math.inf, True), (20, 40, True), (99, None, True)],
    ids=["ten above", "more", "far above", "was at its limit", "below", "not planned"],
)
def test_a_touched_broker_settles_by_live_cpu_only_about_as_expected(
    score: float, expected: float | None, settled: bool
):
    """If not, what moved was not its load, or not all of it: two samples of its reports decide, as without live CPU."""
    scores = {"a:80": expected} if expected is not None else None
    samples = unsettle(look({}, report(50, BUSY)).samples, ["a:80"], TAKEN_AT, scores)
    again = unsettle(samples, ["a:80"], TAKEN_AT + 1)  # its outcome
    now = live(snapshot({"a:80": report(score, BUSY)}, TAKEN_AT + 25), 25.0, 1.0)
    assert bool(judge(again, now, Weights()).settled[0]) is settled


def test_who_has_settled_by_live_cpu_is_watched_until_reports_show_it_too():
    """Where it is not told for once, the report counts, and that is from before the move."""
    samples = unsettle(look({}, report(50, BUSY)).samples, ["a:80"], TAKEN_AT)
    settled = judge(samples, live(snapshot({"a:80": report(50, BUSY)}, TAKEN_AT + 25), 25.0, 1.0), Weights())
    scores = {"a:80": 50.0}
    assert watched(settled.samples, Memory(), scores, TAKEN_AT + 40) == {"a:80": TAKEN_AT}

    later = judge(settled.samples, live(snapshot({"a:80": report(50, BUSY)}, TAKEN_AT + 40), 25.0, 9.0), Weights())
    assert (bool(later.settled[0]), bool(later.counts[0])) == (True, False)
    untold = look(settled.samples, report(50, BUSY), TAKEN_AT + 40)
    assert (bool(untold.settled[0]), untold.to_settle(0, "a:80")) == (False, 2)


def test_what_was_touched_since_the_last_round_counts_from_the_next_one_on():
    """Nobody knows when exactly, but that it was before that."""
    samples = unsettle(watch(report(50, BUSY))[0].samples, ["a:80"])
    found = look(samples, report(50, BUSY), TAKEN_AT + 15)
    assert found.samples["a:80"].touched_at == TAKEN_AT + 15


def test_a_restarted_broker_settles_by_its_reports_alone():
    """Nobody moved anything; its first minutes hold start-up work."""
    before = look({}, report(50, BUSY))
    again = started(200, cpu=50)
    found = judge(before.samples, live(snapshot({"a:80": again}, TAKEN_AT + 90), 60.0, 0.0), Weights())
    assert not found.settled[0]


JOINED = {"old:80": Sample((50.0, 0.0, 0.0), 0.0)}
"""What is known of the others when a broker joins."""


@pytest.mark.parametrize(
    ("cpu", "seconds", "apart", "doubt"),
    [
        (12, 25.0, 1.0, 0),
        (12, 25.0, 6.0, Reason.FIRST_SAMPLE.code),
        (12, 10.0, math.nan, Reason.FIRST_SAMPLE.code),
        (12, math.nan, math.nan, Reason.FIRST_SAMPLE.code),
        (1e-7, 25.0, 1.0, 0),
        (1e-7, 25.0, 6.0, Reason.FIRST_SAMPLE.code),
    ],
    ids=["still", "starting", "too short", "by reports", "not sampled, still", "not sampled, starting"],
)
def test_a_broker_that_joined_is_trusted_as_soon_as_its_live_cpu_stands_still(
    cpu: float, seconds: float, apart: float, doubt: int
):
    """There is no sample of it yet, or one of start-up work. Its CPU of now is without that. That it has settled is new
    evidence.
    """
    samples = {**JOINED, **look(JOINED, started(1, cpu=1e-7)).samples}
    now = snapshot({"a:80": started(1, cpu=cpu)}, TAKEN_AT + 40)
    found = judge(samples, live(now, seconds, apart), Weights())
    assert (int(found.paired[0]), bool(found.counts[0])) == (doubt, doubt == 0)
    assert watched(samples, Memory(), {"a:80": 0.0, "old:80": 12.0}, TAKEN_AT)


def test_a_restarted_broker_is_trusted_by_its_reports_alone():
    """Also one whose live CPU stands still after a move: a rollout that went on with it found its drain refused."""
    again = look(look({}, report(50, BUSY)).samples, started(1, cpu=12)).samples
    now = live(snapshot({"a:80": started(1, cpu=12)}, TAKEN_AT + 40), 25.0, 1.0)
    found = judge(unsettle(again, ["a:80"], TAKEN_AT), now, Weights())
    assert (int(found.paired[0]), bool(found.samples["a:80"].is_still)) == (Reason.FIRST_SAMPLE.code, True)


def test_a_broker_that_lbd_finds_when_it_starts_has_not_joined():
    """Nor one that was there before, and was restarted: it settles by its reports alone."""
    alone = look({}, started(20, cpu=12))
    assert (alone.samples["a:80"].touched_at, bool(alone.settled[0])) == (0.0, True)
    again = look(dict(look({}, report(50, BUSY)).samples), started(20, cpu=12))
    assert (again.samples["a:80"].touched_at, bool(again.settled[0])) == (0.0, False)


@pytest.mark.parametrize(("minutes", "joined_at"), [(14.9, TAKEN_AT), (15, 0.0)])
def test_a_broker_that_started_a_quarter_of_an_hour_ago_has_not_joined(minutes: float, joined_at: float):
    """One that was away for a moment need not settle as a new one."""
    found = look(JOINED, started(60 * minutes)).samples["a:80"]
    assert (found.joined_at, found.touched_at) == (joined_at, joined_at)


@pytest.mark.parametrize(
    ("memory", "touched", "expected"),
    [
        (Memory(), [], {}),
        (Memory({"c:80": Hits(1)}), [], {"a:80": 0.0, "b:80": 0.0, "c:80": 0.0}),
        (Memory({"c:80 in gold": Hits(1)}), [], {"a:80": 0.0, "b:80": 0.0, "c:80": 0.0}),
        (Memory(), ["c:80"], {"a:80": 0.0, "b:80": 0.0, "c:80": TAKEN_AT}),
        (Memory(unloaded_at={"c:80": TAKEN_AT - 600}), [], {"a:80": 0.0, "b:80": 0.0, "c:80": 0.0}),
        (Memory(unloaded_at={"c:80": TAKEN_AT - 601}), [], {}),
        (Memory({"gone:80": Hits(1), "cluster": Hits(2)}), [], {}),
        (Memory({"b:80": Hits(1), "c:80": Hits(1)}), [], {"a:80": 0.0, "b:80": 0.0, "c:80": 0.0}),
    ],
    ids=["balanced", "hits", "in a pool", "settling", "gave lately", "gave long ago", "nobody that is there", "two"],
)
def test_only_brokers_on_whom_something_depends_are_watched(
    memory: Memory, touched: list[str], expected: dict[str, float], monkeypatch: pytest.MonkeyPatch
):
    """With the least loaded, where bundles may go, and not with the others."""
    scores = {"a:80": 10.0, "b:80": 12.0, "c:80": 20.0, "d:80": 18.0}
    seen = snapshot({broker: report(score, BUSY) for broker, score in scores.items()})
    samples = unsettle(judge({}, seen, Weights()).samples, touched, TAKEN_AT)
    monkeypatch.setattr(evidence, "BROKERS_WATCHED", 2)
    assert watched(samples, memory, scores, TAKEN_AT) == expected


@pytest.mark.parametrize(
    ("score", "expected"),
    [(24.9, set()), (25.0, {"a:80", "b:80", "d:80"}), (float("nan"), set())],
    ids=["close", "far above", "not to be told"],
)
def test_a_broker_far_above_the_least_loaded_is_watched_before_its_first_hit(score: float, expected: set[str]):
    """Its live CPU takes a minute of reports to be known, and is needed when its second sample fires."""
    scores = {"a:80": 10.0, "b:80": 12.0, "d:80": score}
    seen = snapshot({broker: report(20, BUSY) for broker in scores})
    assert watched(judge({}, seen, Weights()).samples, Memory(), scores, TAKEN_AT).keys() == expected


def test_a_touched_broker_settles_with_its_second_fresh_sample():
    """The first sample after a move still averages over the move."""
    first = watch(report(50, BUSY))[0]
    samples = unsettle(first.samples, ["a:80"])
    settled = []
    for cpu in (50.0, 51.0, 51.0, 52.0):
        found = look(samples, report(cpu, BUSY))
        samples = dict(found.samples)
        settled.append(bool(found.settled[0]))

    assert [False, False, False, True] == settled


def test_a_restarted_broker_must_settle():
    """Its start time changed: counters and trust begin anew."""
    again = started(200, cpu=Usage(52.0, 100.0))

    assert [True, False] == [bool(e.settled[0]) for e in watch(started(9000, cpu=Usage(50.0, 100.0)), again)]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (report(50, BUSY), None),
        (started(60, cpu=Usage(50.0, 100.0)), Reason.FIRST_SAMPLE),
        (started(300, cpu=Usage(50.0, 100.0)), None),
        (report(9.2e-08, BUSY), Reason.FIRST_SAMPLE),
        (report(50, BUSY, start_timestamp=float("nan")), None),
        (report(float("nan"), BUSY), Reason.IMPOSSIBLE_NUMBER),
        (report(-5, BUSY), Reason.IMPOSSIBLE_NUMBER),
        (report(5000, BUSY), Reason.IMPOSSIBLE_NUMBER),
        (report(150, BUSY), None),
        (report(50, BUSY, msg_rate_in=-1.0), Reason.IMPOSSIBLE_NUMBER),
        (report(50, BUSY, msg_rate_out=float("inf")), Reason.IMPOSSIBLE_NUMBER),
        (report(50, BUSY, msg_rate_in=1e300), Reason.IMPOSSIBLE_NUMBER),
        (report(Usage(50.0, 1e300), BUSY), Reason.IMPOSSIBLE_NUMBER),
        (report(Usage(50.0, float("inf")), BUSY), Reason.IMPOSSIBLE_NUMBER),
        (report(Usage(50.0, -1.0), BUSY), Reason.UNKNOWN_RESOURCES),
        (report(Usage(50.0, float("nan")), BUSY), Reason.IMPOSSIBLE_NUMBER),
    ],
    ids=[
        "an ordinary report",
        "its first minutes",
        "five minutes old",
        "the very first sample",
        "2.11 tells no start",
        "NaN",
        "negative",
        "fifty times its limit",
        "bursting over its quota",
        "negative rate",
        "infinite rate",
        "absurd rate",
        "absurd limit",
        "infinite limit",
        "unknown limit",
        "NaN limit",
    ],
)
def test_what_is_no_ground_to_move_on(found: LoadReport, reason: Reason | None):
    """Such a broker stays out of pairing, with its reason."""
    assert (reason.code if reason else 0) == watch(found)[0].paired[0]


def test_three_distinct_samples_make_a_young_broker_trusted():
    """Whatever its clock says."""
    young = [started(20, cpu=Usage(cpu, 100.0)) for cpu in (30.0, 40.0, 50.0)]

    assert [Reason.FIRST_SAMPLE.code, Reason.FIRST_SAMPLE.code, 0] == [int(e.paired[0]) for e in watch(*young)]


def test_a_report_read_in_the_middle_of_a_stats_run_is_set_aside_once():
    """Many bundles, then none and no traffic: doubted for one turn, believed when it stays so."""
    codes = [int(e.paired[0]) for e in watch(report(50, BUSY), report(51), report(52))]

    assert [0, Reason.REPORT_EMPTY.code, 0] == codes


@pytest.mark.parametrize(
    ("interval", "wanted"), [(60.0, [0, 0, NO_NEW, NO_NEW, 0]), (120.0, [0, 0, 0, 0, 0])], ids=["a minute", "two"]
)
def test_a_report_that_has_stood_still_for_long(interval: float, wanted: list[int]):
    """For more than five of its sample intervals: its broker stays out until it has a new sample."""
    samples: dict[str, Sample] = {}
    found: list[int] = []
    for seconds, cpu in ((0, 50.0), (300, 50.0), (301, 50.0), (590, 50.0), (600, 50.1)):
        seen = judge(samples, snapshot({"a:80": report(cpu, BUSY)}, TAKEN_AT + seconds), Weights(), interval)
        samples = dict(seen.samples)
        found.append(int(seen.paired[0]))
    assert wanted == found


def test_a_sample_of_a_clock_that_went_back_is_as_old_as_this_round():
    """Five intervals from now on."""
    kept = {"a:80": replace(watch(report(50, BUSY))[0].samples["a:80"], fresh_at=TAKEN_AT + 3600)}
    seen = look(kept, report(50, BUSY))
    assert (int(seen.paired[0]), seen.samples["a:80"].fresh_at) == (0, TAKEN_AT)
    assert look(dict(seen.samples), report(50, BUSY), TAKEN_AT + 301).paired[0] == NO_NEW


def test_a_broker_that_is_away_keeps_its_sample():
    """It is judged against it when it is back."""
    first = watch(report(50, BUSY))[0]
    away = judge(first.samples, snapshot({"b:80": report(10, BUSY)}), Weights())

    assert first.samples["a:80"] == away.samples["a:80"]


def test_a_broker_that_tells_no_start_is_counted_once_a_sample():
    """2.11 has no start time: two looks at one report are one sample, and the next sample is another."""
    nan = {"start_timestamp": float("nan")}
    seen = watch(report(50, BUSY, **nan), report(50, BUSY, **nan), report(51, BUSY, **nan))

    assert [True, False, True] == [bool(e.fresh[0]) for e in seen]
    assert [1, 1, 2] == [e.samples["a:80"].distinct for e in seen]


def test_a_move_since_the_last_round_unsettles_what_was_just_seen():
    """This round's sample may be from before the landing: two more are wanted, however fresh this one is."""
    first = snapshot({"a:80": report(20), "b:80": report(30)})
    second = snapshot({"a:80": report(21), "b:80": report(31)}, TAKEN_AT + 60)
    before = judge({}, first, Weights()).samples
    found = without(judge(before, second, Weights()), second, ["a:80", "gone:80"])
    assert found.settled.tolist() == [False, True]
    assert (found.samples["a:80"].to_settle, found.samples["b:80"].to_settle) == (2, 0)
    assert found.fresh.tolist() == [True, True]
