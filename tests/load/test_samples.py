"""Which samples reports make, and which of them can be trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.load.samples import gather, row_totals
from lbd.model import MSG_IN
from lbd.observe.parse import TOP_BUNDLES_REPORT, Usage
from tests.builders import LONG_AGO_MS, TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.load.samples import BrokerSamples

A = "a:80"
TWO = {bundle(1): stats(100), bundle(2): stats(300)}


def seen(*reports: dict[str, Any], every: float = 60) -> BrokerSamples:
    """Samples of one broker with these reports, so many seconds apart."""
    rounds = [
        snapshot({A: report(**{"statistics": TWO, **one})}, TAKEN_AT + every * at) for at, one in enumerate(reports)
    ]
    return gather(rounds)[A]


def cpus(found: BrokerSamples) -> Sequence[float]:
    return found.used[:, 0].round(3).tolist()


def test_one_sample_however_often_it_is_seen():
    """Twelve polls of three CPU samples are three; memory that changes with each poll is none."""
    polls = [{"cpu": 10 + at // 4, "memory": Usage(100.0 + at, 400.0)} for at in range(12)]
    found = seen(*polls, *[{"cpu": 13}] * 8, every=15)

    assert [10, 11, 12, 13] == cpus(found)
    assert found.carried[:, 0] == pytest.approx(np.full(4, 400))


def test_a_card_that_gives_no_number_is_no_new_sample():
    """Two looks at one report are one sample."""
    card = {"bandwidth_in": Usage(float("nan"), -1000.0)}
    assert [10, 11] == cpus(seen(*[{"cpu": 10, **card}] * 4, *[{"cpu": 11, **card}] * 8, every=15))


def test_no_limit_is_no_number():
    """A network card whose speed nobody knows."""
    assert np.isnan(seen({"cpu": 10}, {"cpu": 11}).used[:, 3:]).all()


@pytest.mark.parametrize(
    ("odd", "left"),
    [
        ({"cpu": 1e-7}, [10, 12]),
        ({"cpu": -1.0}, [10, 12]),
        ({"cpu": float("nan")}, [10, 12]),
        ({"cpu": float("inf")}, [10, 12]),
        ({"memory": Usage(float("nan"), 400.0)}, [10, 12]),
        ({"start_timestamp": (TAKEN_AT + 60) * 1000}, []),
        ({"statistics": {**TWO, bundle(1): stats(float("nan"))}}, [10, 12]),
        ({"statistics": {**TWO, bundle(1): stats(-300)}}, [10, 12]),
    ],
    ids=["not sampled yet", "negative", "NaN", "infinite", "NaN memory", "just started", "NaN rates", "negative rates"],
)
def test_odd_reports_make_no_sample(odd: dict[str, Any], left: list[float]):
    """The first minutes after a start, and numbers that are none."""
    started = odd.get("start_timestamp", LONG_AGO_MS)

    assert left == cpus(seen({"cpu": 10}, {"cpu": 55, **odd}, {"cpu": 12, "start_timestamp": started}))


def test_a_restart_or_another_machine_forgets_what_was_before():
    """What the old hardware told says nothing of the new one."""
    later = [{"cpu": Usage(10.0 + at, 200.0)} for at in range(3)]

    assert [5, 5.5, 6] == cpus(seen(*[{"cpu": 50.0 + at} for at in range(4)], *later))


def test_what_saw_bundles_come_is_not_trusted():
    """Neither the sample that comes with the new report nor the next one, which was begun before."""
    less, more = TWO, {**TWO, bundle(3): stats(500)}
    found = seen(*[{"cpu": 10 + at, "statistics": less if at < 3 else more} for at in range(7)])

    assert [True, True, True, False, False, True, True] == found.trusted.tolist()


@pytest.mark.parametrize("counted_at", range(1, 5))
@pytest.mark.parametrize("gone_at", range(24, 29))
def test_what_saw_bundles_go_before_rates_were_counted_is_not_trusted(counted_at: int, gone_at: int):
    """A drain between a sample and the next count of rates: what was carried until then is never told."""
    was = {**TWO, bundle(3): stats(500)}
    carried = [TWO if at < counted_at else was if at < gone_at else {} for at in range(48)]
    found = seen(*[{"cpu": 50.0 + at // 4, "statistics": one} for at, one in enumerate(carried)], every=15)
    late = found.where(found.trusted & (found.at > TAKEN_AT + 15 * 12)).carried.sum(axis=1)

    assert len(set(late.round(3))) == 2


def test_what_saw_segments_change_is_not_trusted():
    """As if the bundle had come or gone: its load jumps between two counts of the rates."""
    rounds = [snapshot({A: report(10 + at, TWO)}, TAKEN_AT + 60 * at) for at in range(7)]
    rounds[3] = replace(rounds[3], segments_changed=frozenset({bundle(2)}))

    assert [True, True, True, False, False, True, True] == gather(rounds)[A].trusted.tolist()


def test_a_bundle_without_traffic_changes_nothing():
    """Idle bundles come and go with lookups and heartbeats."""
    more = {**TWO, bundle(3): stats(0)}

    assert seen(*[{"cpu": 10 + at, "statistics": TWO if at < 3 else more} for at in range(7)]).trusted.all()


def test_what_is_not_told_of_is_carried_all_the_same():
    """A broker that tells of its largest bundles only carries what its own totals say, not the sum of those."""
    whole = report(20, {bundle(1): stats(100)}, msg_rate_in=400.0, load_report_type=TOP_BUNDLES_REPORT)
    told = snapshot({A: whole}), snapshot({A: report(20, {bundle(1): stats(100)}, msg_rate_in=400.0)})
    assert [float(row_totals(one)[0, MSG_IN]) for one in told] == [400.0, 100.0]


@pytest.mark.parametrize("way", ["comes", "goes"])
def test_a_bundle_that_comes_or_goes_untold_of_may_carry_anything(way: str):
    """After a move both brokers tell nothing of their bundles until the next statistics run: no sample is trusted."""
    few, more = ([bundle(at) for at in range(number)] for number in (2, 3))
    listed = [few if at < 3 else more for at in range(6)]
    if way == "goes":
        listed.reverse()
    told = {bundle(0): stats(100)}
    totals = {"msg_throughput_in": 1e4, "msg_throughput_out": 1e4, "load_report_type": TOP_BUNDLES_REPORT}
    found = seen(*[{"cpu": 10 + at, "statistics": told, "bundles": of, **totals} for at, of in enumerate(listed)])
    assert found.trusted.tolist().count(False) == 2
