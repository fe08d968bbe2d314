"""Running means as Pulsar's leader keeps them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as changed

from lbd.load.scoring import Weights
from lbd.model import Averages, Snapshot
from lbd.observe import averages
from lbd.observe.averages import half_in, settled_half_in, update
from lbd.observe.parse import MODULAR_REPORT, TOP_BUNDLES_REPORT, BundleStats
from lbd.permit.evidence import Sample, judge
from lbd.permit.rules import barred
from lbd.reason import Reason
from lbd.split.triggers import SplitSettings, too_large
from tests.builders import bundle, case, report, snapshot, stats


def one(rate: float, *, name: str = bundle(1)) -> Snapshot:
    """A round with one bundle."""
    return snapshot({"a:80": report(1, {name: stats(rate)})})


def after(rates: list[float]) -> Averages:
    """The averages after rounds with these rates."""
    found = Averages.empty()
    for rate in rates:
        found = update(found, one(rate))
    return found


@pytest.mark.parametrize(
    ("rates", "short"),
    [([100], 100.0), ([100, 200], 150.0), ([10] * 10 + [110], 20.0), ([0] * 30 + [100], 10.0)],
    ids=["the first sample as it is", "two", "a window of ten", "the eleventh weighs a tenth"],
)
def test_the_short_term_mean_has_ten_samples(rates: list[float], short: float):
    """avg = ((n - 1) x old + new) / n with n at most 10."""
    assert short == pytest.approx(after(rates).short[0, 0])


def test_the_long_term_mean_has_a_thousand():
    """Thirty rounds in, the long mean is still the plain one."""
    assert 100 / 31 == pytest.approx(after([0] * 30 + [100]).long[0, 0])


@pytest.mark.parametrize(
    ("traffic", "number"),
    [
        ([], 0.0),
        ([0, 0], 0.0),
        ([5], 0.5),
        ([1, 1, 1, 1], 2.0),
        ([1, 1, 1, 1, 0, 0], 2.0),
        ([1, 6, 1], 2 / 3),
        ([4, 1, 3, 2], 4 / 3),
    ],
    ids=["none", "idle", "one", "alike", "idle ones beside", "one large", "a part of the second"],
)
def test_half_of_the_traffic_is_in_the_busiest_bundles(traffic: list[float], number: float):
    """How many; idle ones change nothing."""
    assert half_in(np.array(traffic, dtype=float)) == pytest.approx(number)


@pytest.mark.parametrize(
    ("samples", "number"),
    [([1000, 1000, 1000], 1.5), ([1000, 1000, 5], 1.5), ([1000, 999, 5], None), ([], None)],
    ids=["of a day", "one is new", "most are new", "nothing"],
)
def test_a_mix_is_known_of_most_of_a_day(samples: list[int], number: float | None):
    """Of an hour it would be that of the hour."""
    rates = np.ones((len(samples), 4))
    found = Averages([bundle(row) for row in range(len(samples))], rates, rates, np.array(samples, dtype=np.int32))

    assert settled_half_in(found) == number


def test_a_bundle_on_no_report_is_forgotten():
    """It starts again with its next sample."""
    found = update(update(after([100, 100]), one(5, name=bundle(2))), one(7))

    assert (1, 7.0) == (int(found.samples[0]), float(found.short[0, 0]))


def test_a_bundle_whose_segments_changed_starts_anew():
    """What it carried before says nothing of what it carries now; its neighbour keeps its mean."""
    rounds = [snapshot({"a:80": report(1, {bundle(1): stats(rate), bundle(2): stats(rate)})}) for rate in (900, 100)]
    changed = replace(rounds[1], segments_changed=frozenset({bundle(1), bundle(7)}))
    found = update(update(Averages.empty(), rounds[0]), changed)

    assert ([1, 2], [100.0, 500.0]) == (found.samples.tolist(), found.long[:, 0].tolist())


def test_a_bundle_on_two_reports_gets_two_samples():
    """As the leader does, in the order of the brokers."""
    both = snapshot({"a:80": report(1, {bundle(1): stats(10)}), "b:80": report(1, {bundle(1): stats(20)})})
    found = update(Averages.empty(), both)

    assert (2, 15.0) == (int(found.samples[0]), float(found.short[0, 0]))


def test_means_follow_their_bundle_when_the_order_changes():
    """Rows are aligned by name."""
    first = snapshot({"a:80": report(1, {bundle(1): stats(10), bundle(2): stats(20)})})
    second = snapshot({"a:80": report(1, {bundle(2): stats(40), bundle(1): stats(30)})})
    found = update(update(Averages.empty(), first), second)

    assert {bundle(1): 20.0, bundle(2): 30.0} == dict(zip(found.bundles, found.short[:, 0].tolist(), strict=True))


def test_a_broker_without_a_new_sample_adds_none():
    """But a bundle that has none yet takes what there is."""
    seen = snapshot({"a:80": report(1, {bundle(1): stats(10)}), "b:80": report(1, {bundle(2): stats(20)})})
    stale = np.array([False, True])
    found = update(update(Averages.empty(), seen, stale), seen, stale)

    assert {bundle(1): 1, bundle(2): 2} == dict(zip(found.bundles, found.samples.tolist(), strict=True))


def test_the_input_is_left_as_it_was():
    """Averages are values."""
    before = after([100])
    update(before, one(300))

    assert (100.0, 1) == (float(before.short[0, 0]), int(before.samples[0]))


FRESH = np.array([True])


def taken(rates: list[float]) -> Averages:
    """The averages after live turns, each with a new sample."""
    found = Averages.empty()
    for rate in rates:
        found = update(found, one(rate), FRESH)
    return found


@pytest.mark.parametrize(
    ("rates", "samples", "short"),
    [
        ([float("nan"), 100], 1, 100.0),
        ([100, float("nan"), 200], 2, 150.0),
        ([100, 200, float("nan")], 2, 150.0),
        ([float("inf"), 100], 1, 100.0),
    ],
    ids=["first", "in between", "last", "infinite"],
)
def test_a_row_with_a_broken_number_is_no_sample_of_a_live_turn(rates: list[float], samples: int, short: float):
    """One NaN would stay in the mean for ever: the row is passed over, and good ones count on."""
    found = taken(rates)

    assert (samples, short, short) == (int(found.samples[0]), float(found.short[0, 0]), float(found.long[0, 0]))


def test_a_broken_number_of_one_bundle_leaves_the_others_alone():
    """Its neighbours on the same report have their sample."""
    seen = snapshot({"a:80": report(1, {bundle(1): stats(float("nan")), bundle(2): stats(20)})})
    found = update(Averages.empty(), seen, FRESH)

    assert {bundle(1): 0, bundle(2): 1} == dict(zip(found.bundles, found.samples.tolist(), strict=True))
    assert np.isfinite(found.short).all()


@pytest.mark.parametrize(
    ("rates", "told"),
    [([10, 110], 110.0), ([110, 10], 110.0), ([100, float("nan")], 100.0)],
    ids=["a jump", "a fall", "no number"],
)
def test_no_bundle_counts_for_less_than_it_carries_now(rates: list[float], told: float):
    """A strategy is told of the latest report where it is more; what is kept is the mean."""
    mean, latest = after(rates[:1]), one(rates[1]).rows
    assert told == pytest.approx(mean.at_least(latest).short[0, 0])
    assert mean.short[0, 0] == rates[0]


USUAL = BundleStats(10, 10, 1000, 1000, 5, 1, 1)


@pytest.mark.parametrize(
    ("before", "kind"), [(0, MODULAR_REPORT), (3, TOP_BUNDLES_REPORT)], ids=["its first report", "beside usual totals"]
)
@pytest.mark.parametrize("rate", [1e18, 1e300])
def test_a_number_that_no_bundle_can_have_is_left_out_of_its_means(rate: float, before: int, kind: str):
    """One report of such a number must not make a bundle too large for days, and have it cut for good."""
    told = [USUAL] * before + [changed(USUAL, msg_rate_in=rate)] + [USUAL] * 30
    totals = {"msg_rate_in": 20.0} if kind == TOP_BUNDLES_REPORT else {}
    rounds = [
        snapshot(
            {
                "a:80": report(50 + at, {bundle(1): one, bundle(2): USUAL}, load_report_type=kind, **totals),
                "b:80": report(10),
            }
        )
        for at, one in enumerate(told)
    ]
    assert Reason.of(int(barred(case(rounds[before]))[0])) is Reason.IMPOSSIBLE_NUMBER
    means, samples = Averages.empty(), dict[str, Sample]()
    for seen in rounds:
        found = judge(samples, seen, Weights())
        means, samples = averages.update(means, seen, found.fresh), dict(found.samples)
    assert means.short[:, 0].tolist() == pytest.approx([10.0, 10.0])
    assert too_large(rounds[-1], means, SplitSettings()) == ()
