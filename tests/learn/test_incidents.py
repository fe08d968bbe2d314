"""What happens in an incident, what settings make of it, and who is worse than the present settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.learn.choose import PRESENT, SettingsCandidate
from lbd.learn.incidents import (
    BEFORE_SECONDS,
    GROWTH,
    HOT_GROUP,
    INCIDENT_SECONDS,
    JOINED,
    JOINS,
    LOST,
    STORM,
    STORM_SECONDS,
    TIMES,
    WEAKER,
    Harm,
    cut,
    excess,
    harm,
    harms,
    incidents,
    mean,
    times,
)
from lbd.learn.replay import Course, ReplayCluster, Scale, recorded
from lbd.load.estimate import CPU, fixed_model
from lbd.model import BYTES_IN
from lbd.permit.budget import Sent
from tests.bench.weeks import SETTINGS, WARM_MINUTES, day, week
from tests.learn.windows import broker, bundle, window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lbd.learn.incidents import Incident
    from lbd.learn.window import Window
    from lbd.model import FloatArray

BROKERS, BUNDLES, MINUTES, BEGINS = "abcd", 8, 40, 10
SLOPE = 0.01
"""Points for each byte/s in + out: a bundle of 100 byte/s each way takes two."""


def recorded_window() -> Window:
    """Four brokers at 30 percent with eight bundles each, 14 of it for no traffic, and no noise."""
    reports = [broker(at, name, cpu=30.0) for at in range(MINUTES) for name in BROKERS]
    rows = [bundle(0, f"t/{name}/{number}", name, producers=2, consumers=1)
            for name in BROKERS for number in range(BUNDLES)]  # fmt: skip
    return window(reports, [*rows, bundle(BEGINS + 5, "t/a/0", "b", producers=2, consumers=1)])


def by_name(own: Window) -> dict[str, Incident]:
    """Each incident in the minute :data:`BEGINS` of it."""
    size = len(own.brokers)
    model = fixed_model(own.brokers, np.full(size, 14.0), np.full(size, SLOPE))
    return {one.name: one for one in incidents(own, float(own.at[BEGINS]), model, 3)}


@pytest.fixture(scope="module")
def happened() -> dict[str, Incident]:
    return by_name(recorded_window())


def traffic(own: Window) -> FloatArray:
    """Bytes/s in of all bundles in each round, as recorded."""
    return np.array([one.rows.rates[:, BYTES_IN].sum() for one in recorded([own])])


class TestWhatHappens:
    """A disturbance in a window of history."""

    @pytest.mark.parametrize(("name", "until"), [(HOT_GROUP, MINUTES), (STORM, BEGINS + STORM_SECONDS / 60)])
    def test_a_group_grows_and_its_broker_with_it(self, happened: Mapping[str, Incident], name: str, until: float):
        """Fivefold, four bundles of one broker: four times eight points more, for as long as it lasts."""
        used = happened[name].window.used[:, :, CPU] - 30
        during = (np.arange(MINUTES) >= BEGINS) & (np.arange(MINUTES) < until)

        assert used.max(axis=1)[during] == pytest.approx(4 * (GROWTH - 1) * 2, abs=9)
        assert not used[~during].any()
        more = traffic(happened[name].window) / traffic(recorded_window())
        assert np.where(during, more > 1.4, more == 1).all()

    def test_a_broker_is_lost_and_the_others_serve_its_bundles(self, happened: Mapping[str, Incident]):
        """All of its bundles, with the work that they are."""
        own = happened[LOST].window
        (lost,) = np.flatnonzero(~own.present[-1])
        owners = [one.rows.bundle.size for one in recorded([own])]

        assert own.present[:BEGINS].all()
        assert not own.present[BEGINS:, lost].any()
        assert owners == [len(BROKERS) * BUNDLES] * MINUTES
        others = np.delete(own.used[BEGINS, :, CPU], lost) - 30
        assert others.sum() == pytest.approx(16)

    def test_a_broker_joins_empty(self, happened: Mapping[str, Incident]):
        """With what the others use without traffic; it is doubted until its start is over."""
        own, known = happened[JOINS].window, happened[JOINS].model

        assert own.brokers[-1] == known.brokers[-1] == JOINED
        assert (own.present[:BEGINS, -1].any(), own.present[BEGINS:, -1].all()) == (False, True)
        assert own.used[BEGINS, -1, CPU] == pytest.approx(14, abs=2.1)
        assert own.doubted[BEGINS : BEGINS + 4, -1].tolist() == [True, True, True, False]

    def test_a_weaker_broker_does_the_same_work_with_more_of_its_cpu(self, happened: Mapping[str, Incident]):
        """And is relieved by as much more for each bundle that it gives."""
        incident = happened[WEAKER]
        (weaker,) = np.flatnonzero(incident.window.capacity[-1] < 1)
        cluster = ReplayCluster(incident.window, incident.model)
        for number in range(BEGINS + 1):
            cluster.advance(number)
        full = cluster.used[weaker, CPU]
        cluster.move(int(np.flatnonzero(cluster.owner == weaker)[0]), (weaker + 1) % len(BROKERS))
        cluster.advance(BEGINS + 2)

        assert full == pytest.approx(45)
        assert cluster.used[weaker, CPU] == pytest.approx(45 - 3)
        assert cluster.used[(weaker + 1) % len(BROKERS), CPU] == pytest.approx(30 + 2)

    def test_what_history_does_afterwards_still_happens(self, happened: Mapping[str, Incident]):
        """A bundle that was moved later is, unless its new broker is lost."""
        for name in (HOT_GROUP, STORM, WEAKER, JOINS):
            own = happened[name].window
            last = np.flatnonzero(own.change_bundle == own.bundles.index("t/a/0"))[-1]
            assert own.brokers[own.change_owner[last]] == "b"

    def test_the_same_time_draws_the_same(self):
        """The settings that are compared go through one incident."""
        first, again = (by_name(recorded_window())[HOT_GROUP].window.used for _ in range(2))

        np.testing.assert_array_equal(first, again)

    def test_too_few_brokers_have_no_incidents(self):
        """One alone has none, and of two none is lost."""
        rows = [bundle(0, f"t/{name}/{number}", name) for name in "ab" for number in range(4)]
        two = window([broker(at, name) for at in range(MINUTES) for name in "ab"], rows)
        one = window([broker(at) for at in range(MINUTES)], rows[:4])

        assert LOST not in by_name(two)
        assert by_name(one) == {}

    def test_a_cut_is_what_an_incident_needs(self):
        """Two hours before, and its own time; nothing that changes afterwards."""
        rows = [bundle(0), bundle(300, rate=5.0), bundle(899, rate=7.0)]
        own = window([broker(at) for at in range(900)], rows)
        part = cut(own, float(own.at[400]))

        assert part.at[0] == own.at[400] - BEFORE_SECONDS
        assert part.at.size == (BEFORE_SECONDS + INCIDENT_SECONDS) / 60
        assert part.change_round.tolist() == [0, 20]


@pytest.mark.parametrize("windows", [4, 6, 20])
def test_times_are_spread_over_all_windows(windows: int):
    """As many as wanted, each in its window with all of the incident."""
    day = np.arange(1440) * 60.0
    found = [(index, *one) for index in range(windows) for one in times(day, index, windows)]

    assert [number for _, number, _ in found] == list(range(TIMES))
    assert len({index for index, _, _ in found}) == min(windows, TIMES)
    assert all(0 <= begins <= day[-1] - INCIDENT_SECONDS for _, _, begins in found)


def test_a_short_window_has_what_it_can():
    """Of an hour."""
    assert {begins for _, begins in times(np.arange(60) * 60.0, 0, 1)} == {0.0}


def test_none_begins_where_history_has_no_round():
    """As while lbd was down for half a day, or another one led: there is nothing to replay."""
    day = np.concatenate([np.arange(300), np.arange(1100, 1440)]) * 60.0

    assert {begins for _, begins in times(day, 0, 1)} <= set(day.tolist())
    assert len({begins for _, begins in times(day, 0, 1)}) == TIMES


def test_harm_is_counted_from_the_begin():
    """Twenty minutes before, ten at 90 points against 30, five at 50, and then level; a move before and one after."""
    own = recorded_window()
    incident = by_name(own)[HOT_GROUP]
    points = np.full((MINUTES, len(BROKERS)), 30.0)
    points[: BEGINS + 10, 0], points[BEGINS + 10 : BEGINS + 15, 0] = 90.0, 50.0
    moves = tuple(Sent(float(own.at[at]), "t/c/1", "c", "d") for at in (BEGINS - 1, BEGINS + 1))

    course = Course(own.at, points, moves, 32, np.ones(points.shape), np.array([2, 3], dtype=np.int32))
    found = harm(course, incident, Scale(15.0, 50.0))
    minutes = found.minutes_apart, found.minutes_far_apart, found.minutes_overloaded
    assert minutes == pytest.approx((15, 10, 10), abs=3)
    assert (found.moves, found.clients) == (1, 3)


BAD = Harm(20.0, 5.0, 5.0, 6, 60)


def several(*minutes: float) -> list[Harm]:
    return [replace(BAD, minutes_apart=one) for one in minutes]


@pytest.mark.parametrize(
    ("own", "clause"),
    [
        ([BAD] * 4, ""),
        (several(60, 61, 59, 60), "had brokers too far apart for 60 minutes, the present for 20, in the incident 'x'"),
        (several(20, 60, 0, 30), ""),
        (several(22, 22, 22, 22), ""),
        (several(0, 0, 0, 0), ""),
        ([replace(BAD, minutes_far_apart=9.0)] * 4, "had brokers above the high threshold for 9 minutes, the"),
        ([replace(BAD, minutes_overloaded=15.0)] * 4, "had a broker above 85 points for 15 minutes, the present for 5"),
        ([replace(BAD, moves=9)] * 4, "made 9.0 moves, the present 6.0"),
        ([replace(BAD, clients=6000)] * 4, "disconnected 6,000 clients, the present 60"),
        ([replace(BAD, moves=9, clients=6000, minutes_apart=10.0)] * 4, ""),
        ([replace(BAD, moves=9, minutes_apart=17.0)] * 4, "made 9.0 moves, the present 6.0"),
        ([replace(BAD, minutes_apart=90.0)], ""),
    ],
    ids=["the same", "longer apart", "by chance", "by less than a stretch", "shorter", "far apart", "overloaded",
         "moves", "clients", "moves that bring brokers closer", "moves that hardly do", "one pair tells nothing"],
)  # fmt: skip
def test_who_is_worse_by_more_than_noise(own: Sequence[Harm], clause: str):
    """In one figure of one incident; single replays differ by chance."""
    found = excess({"x": own}, {"x": [BAD] * len(own)})

    assert found.startswith(clause)
    assert bool(found) == bool(clause)


@pytest.mark.landing
def test_a_calm_week_does_not_hide_who_waits_for_ten_minutes():
    """Settings that made no moves on it are refused by the incidents that the defaults end in time."""
    found = week("calm", 1, 2)
    own = day(found.kept, 1)
    sluggish = AvgShedderSettings(
        low_threshold=28, hit_count_low=30, high_threshold=60, hit_count_high=10, max_unload_percentage=0.2
    )
    tried = {PRESENT: AvgShedderSettings(), "sluggish": sluggish}
    settings = {name: SettingsCandidate(name, one).under(SETTINGS) for name, one in tried.items()}
    made: dict[str, dict[str, list[Harm]]] = {name: {} for name in tried}
    for number, begins in times(own.at[WARM_MINUTES:], 0, 1):
        for name, incident, one in harms(own, begins, number, settings, found.model, Scale(15.0, 40.0)):
            made[name].setdefault(incident, []).append(one)

    relieved, waited = (mean(made[name][HOT_GROUP])["minutes_apart"] for name in tried)
    assert relieved < INCIDENT_SECONDS / 60 / 2
    assert waited > 2 * relieved
    assert excess({HOT_GROUP: made["sluggish"][HOT_GROUP]}, {HOT_GROUP: made[PRESENT][HOT_GROUP]}).endswith(
        "in the incident 'a bundle group that grows fivefold'"
    )
    assert excess(made[PRESENT], made[PRESENT]) == ""
