"""What is tried, what a replay is worth, which settings are taken, and what a person is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.config import Settings
from lbd.decide.avg_shedder import AvgShedderSettings
from lbd.decide.least_moves import LeastMovesSettings
from lbd.learn.choose import (
    DEFAULT,
    FINALISTS,
    LOW_THRESHOLDS,
    MOST_IN_INCIDENTS,
    MOVES,
    NOISE_DEVIATIONS,
    PRESENT,
    SettingsCandidate,
    candidates,
    choose,
    clearly_better,
    shortlist,
    split,
    through_incidents,
)
from lbd.learn.incidents import Harm
from lbd.learn.replay import Course, Figures, Scale, figures, pooled
from lbd.learn.report import changed_settings, claim
from lbd.permit.budget import Sent
from lbd.store.calibration import CalibrationSummary, ChangedSetting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.learn.choose import Choice, Tunable
    from lbd.learn.incidents import Harms

DAY = Figures(1.0, 10, 100, 5.0, 20.0, 25.0, 60.0, 0.0, 0, 0.0, lost_minutes=10.0, cost_minutes=10.0)
"""Ten moves in a day of bundles with 30 clients, and 20 points apart for a twentieth of it."""


HELD = Harm(12.0, 0.0, 0.0, 6, 60)


def a_day(**changes: Any) -> Figures:
    """A day as :data:`DAY` but for this; each move costs a client-minute."""
    lost = float(changes.get("moves", DAY.moves))
    return replace(DAY, **{"lost_minutes": lost, "cost_minutes": lost, **changes})


def course(at: Sequence[float], gaps: Sequence[float], moves: Sequence[str] = ()) -> Course:
    """Two brokers, one at nought, the other so many points above."""
    points = np.array([[0.0, gap] for gap in gaps]).reshape(-1, 2)
    sent = tuple(Sent(0.0, bundle, "a", "b", 1, 1.0, 1.0) for bundle in moves)
    clients = np.array([[30.0, 20.0]] * len(gaps)).reshape(-1, 2)
    return Course(np.array(at, dtype=np.float64), points, sent, 100, clients, np.full(len(sent), 6, dtype=np.int32))


def inforce(settings: Tunable | None = None, moves_a_turn: int | None = None) -> SettingsCandidate:
    """Settings in force, else the defaults."""
    return SettingsCandidate(PRESENT, settings or AvgShedderSettings(), moves_a_turn)


def chosen_from(results: dict[str, dict[int, Figures]], windows: Sequence[int]) -> Choice:
    """The choice where noise changes nothing, and all hold in incidents."""
    harms = through_incidents(clearly_better(results, windows), unharmed)
    return choose(results, [{name: results[name] for name in (PRESENT, *shortlist(harms))}], windows, harms)


def unharmed(names: Sequence[str]) -> dict[str, Harms]:
    """Settings that all do the same in incidents."""
    return {name: {"a broker lost": [HELD] * 3} for name in names}


class TestCandidates:
    """Settings worth trying."""

    def test_the_present_ones_and_the_defaults_come_first(self):
        """And nothing is there twice, whatever is drawn."""
        present = inforce(AvgShedderSettings(low_threshold=20.0))
        found = candidates(present, 1.0, 60, 1)

        assert [one.name for one in found[:2]] == [PRESENT, DEFAULT]
        assert found[0] == present
        assert len({str(one.values) for one in found}) == len({one.name for one in found}) == 60

    def test_the_defaults_in_force_are_tried_once(self):
        """They are the present ones."""
        assert DEFAULT not in {one.name for one in candidates(inforce(), 1.0, 60, 1)}

    @pytest.mark.parametrize(
        ("allowed", "tried"), [(None, {None, 2, 4}), (10, {10, 2, 4}), (4, {4, 2}), (2, {2}), (1, {1})]
    )
    def test_fewer_moves_a_turn_are_tried(self, allowed: int | None, tried: set[int | None]):
        """Never more than the operator allows; the present settings with each of them first, and others with any."""
        fewer = sorted(tried - {allowed}, key=str)
        found = candidates(inforce(moves_a_turn=allowed), 1.0, 60, 1)

        assert [one.name for one in found[1 : 1 + len(fewer)]] == [f"present, {moves} moves a turn" for moves in fewer]
        assert {one.moves_a_turn for one in found} == tried
        assert {one.moves_a_turn for one in found if one.name.startswith("low")} == tried

    def test_a_replay_has_all_other_limits(self):
        """Of the settings it is under only the strategy's and the moves of a turn change."""
        settings = Settings.model_validate({"guardrails": {"max_unloads_per_hour": 7}})
        own = inforce(LeastMovesSettings(aim_points=2.0)).slower(2).under(settings)

        assert (own.strategy, own.least_moves.aim_points) == ("least-moves", 2.0)
        assert own.guardrails == settings.guardrails.model_copy(update={"max_unloads_per_turn": 2})

    @pytest.mark.parametrize("noise", [0.0, 1.0, 2.0, 3.0, 50.0])
    def test_noise_alone_must_move_no_bundle(self, noise: float):
        """No lower threshold than four deviations of a difference is drawn, or else the highest there is."""
        drawn = [one for one in candidates(inforce(), noise, 60, 1) if one.name.startswith("low")]
        least = min(NOISE_DEVIATIONS * noise * 2**0.5, LOW_THRESHOLDS[-1])

        assert drawn
        assert all(one.settings.low_threshold >= least for one in drawn)

    def test_half_of_them_differ_in_one_value(self):
        """From those in force; so what a change does by itself is seen."""
        present = AvgShedderSettings(low_threshold=18.0, hit_count_low=12)
        differ = [
            sum(value != getattr(present, key) for key, value in one.settings.model_dump().items())
            for one in candidates(inforce(present), 0.5, 32, 1)
            if one.name.startswith("low") and one.moves_a_turn is None
        ]

        assert differ.count(1) == 16
        assert max(differ) > 2

    def test_the_same_seed_draws_the_same(self):
        """And another seed others."""
        first, again, other = (candidates(inforce(), 1.0, 20, seed) for seed in (1, 1, 2))

        assert first == again != other


class TestScoring:
    """What a replay is worth."""

    def test_figures_of_three_hours(self):
        """Gaps of 10 for two hours and 40 for one, a round a minute."""
        found = figures(course(np.arange(180) * 60.0, [10] * 120 + [40] * 60, ["x", "y", "x"]), Scale(15.0, 40.0))

        assert found.days == pytest.approx(179 / 1440)
        assert (found.moves, found.moved_twice) == (3, 1)
        assert (found.mean_gap, found.worst_hour_gap, found.p95_gap) == (20, 40, 40)
        assert found.minutes_over == 59

    @pytest.mark.parametrize(("gap", "hot"), [(39.0, 0.0), (40.0, 20.0 * 59)])
    def test_the_cost_to_clients(self, gap: float, hot: float):
        """Three moves of six clients that are away for ten seconds each, and an hour of a broker with 20 clients far
        above the other; ten minutes there weigh as much as one without a connection.
        """
        found = figures(course(np.arange(60) * 60.0, [gap] * 60, ["x", "y", "x"]), Scale(15.0, 40.0, 10.0, 10.0))

        assert (found.lost_minutes, found.hot_minutes) == (3.0, pytest.approx(hot))
        assert found.cost_minutes == pytest.approx(3.0 + hot / 10)

    def test_a_silence_is_not_time_that_was_seen(self):
        """Of a hole of ten hours three minutes count."""
        found = figures(course([0, 60, 36_060], [40, 40, 40]), Scale(15.0, 40.0))

        assert found.days * 1440 == pytest.approx(4)
        assert found.minutes_over == pytest.approx(4)

    @pytest.mark.parametrize("gaps", [[], [float("nan")] * 3])
    def test_nothing_seen_is_nothing(self, gaps: list[float]):
        """No rounds, or never two brokers at once."""
        found = figures(course(np.arange(len(gaps)), gaps), Scale(15.0, 40.0))

        assert (found.days, found.mean_gap, found.minutes_over) == (0, 0, 0)

    def test_windows_are_pooled_by_their_time(self):
        """A window of three days weighs three times as much; the worst hour is the worst of both."""
        found = pooled([DAY, replace(DAY, days=3.0, mean_gap=9.0, worst_hour_gap=50.0)])

        assert (found.days, found.moves, found.mean_gap, found.worst_hour_gap) == (4, 20, 8, 50)


class TestChoosing:
    """Chosen on the first part of the time, judged on the last."""

    WINDOWS = tuple(range(10))

    def chosen(self, *others: dict[str, Any], last: dict[str, Any] | None = None) -> tuple[str | None, str]:
        """What is recommended, and why, over settings in force that do as :data:`DAY`; ``last``: on the hold-out."""
        _, held_out = split(self.WINDOWS)
        results = {PRESENT: dict.fromkeys(self.WINDOWS, DAY)}
        for at, changes in enumerate(others):
            own = a_day(**changes)
            late = a_day(**{**changes, **(last or {})})
            results[f"other {at}"] = {window: late if window in held_out else own for window in self.WINDOWS}
        found = chosen_from(results, self.WINDOWS)
        return found.recommended, found.why

    @pytest.mark.parametrize(
        ("other", "last", "recommended", "why"),
        [
            ({"moves": 5}, {}, "other 0", "also on the part"),
            ({"p95_gap": 15.0, "mean_gap": 3.0, "minutes_over": 20.0}, {}, None, "no other settings"),
            ({}, {}, None, "no other settings"),
            ({"moves": 5, "p95_gap": 24.4, "mean_gap": 6.4}, {}, "other 0", "also on the part"),
            ({"moves": 5, "p95_gap": 24.6}, {}, None, "no other settings"),
            ({"moves": 5, "mean_gap": 6.6}, {}, None, "no other settings"),
            ({"moves": 0, "p95_gap": 60.0}, {}, None, "no other settings"),
            ({"moves": 5}, {"p95_gap": 30.0}, None, "30.0 points apart (95th percentile), the present 20.0"),
            ({"moves": 5}, {"mean_gap": 9.0}, None, "left brokers 9.0 points apart on average, the present 5.0"),
            ({"moves": 5}, {"moves": 10}, None, "on the last part of the time the best of the others, other 0, cost"),
            ({"moves": 9}, {}, "other 0", "also on the part"),
        ],
        ids=["fewer moves", "less gap", "the same", "patience for a point", "further apart at worst",
             "further apart on average", "does nothing", "hold-out: worse", "hold-out: worse on average",
             "hold-out: the same", "a little better"],
    )  # fmt: skip
    def test_what_is_recommended(self, other: dict[str, Any], last: dict[str, Any], recommended: str | None, why: str):
        """Only what is clearly better on both parts of the time, and leaves brokers no further apart."""
        found, told = self.chosen(other, last=last)

        assert found == recommended
        assert why in told

    @pytest.mark.parametrize(
        ("again", "recommended", "why"),
        [
            ({}, "other", "also on the part"),
            ({"moves": 10}, None, "the best of the others, other, cost 10.0 client-minutes a day"),
            (
                {"p95_gap": 26.8},
                None,
                "the best of the others, other, left brokers 26.8 points apart (95th percentile)",
            ),
        ],
        ids=["again", "by luck", "further apart after all"],
    )
    def test_one_lucky_run_is_not_enough(self, again: dict[str, Any], recommended: str | None, why: str):
        """What did well is judged by several replays, each with other noise."""
        lucky = a_day(moves=2)
        results = {PRESENT: dict.fromkeys(range(4), DAY), "other": dict.fromkeys(range(4), lucky)}
        later = {**results, "other": dict.fromkeys(range(4), a_day(**{"moves": 2, **again}))}
        found = choose(results, [later], range(4), unharmed(list(results)))

        assert clearly_better(results, range(4)) == ("other",)
        assert found.recommended == recommended
        assert why in found.why

    @pytest.mark.parametrize(
        ("bad", "recommended", "why"),
        [
            ((2, 3, 9), "other", "also on the part"),
            ((0, 1, 2, 3), None, "the best of the others, other, did worse than the present in 4 windows of 7"),
            (
                (8, 9),
                None,
                "on the last part of the time the best of the others, other, did worse than the present in 2",
            ),
        ],
        ids=["on some days", "chosen on", "judged on"],
    )
    def test_who_is_worse_on_most_days_was_lucky_on_another(
        self, bad: tuple[int, ...], recommended: str | None, why: str
    ):
        """Though the sum is clearly better."""
        own = {window: a_day(moves=11 if window in bad else 1) for window in self.WINDOWS}
        found = chosen_from({PRESENT: dict.fromkeys(self.WINDOWS, DAY), "other": own}, self.WINDOWS)

        assert found.recommended == recommended
        assert why in found.why

    @pytest.mark.parametrize(
        ("days", "recommended", "why"),
        [
            ([{"moves": 1}] * 10, "other", "also on the part"),
            (
                [{"moves": 1, "minutes_over_high": 2.0}] * 10,
                None,
                "costs 14 minutes a week above the high threshold (14 to 14)",
            ),
            ([{"moves": 1, "worst_hour_gap": 40.0}] * 10, None, "costs 15 points of the worst hour's gap (15 to 15)"),
            (
                [{"moves": moves} for moves in (1, 40, 1, 1, 1, 1, 1, 1, 1, 1)],
                None,
                "may save nothing next week: it saves 5 client-minutes a day (-5 to 14)",
            ),
            ([{"moves": 1, "days": 0.25}] * 10, None, "was seen on 2.5 days only"),
        ],
        ids=["sure", "harm", "a worse hour", "a day unlike the others", "hours, not days"],
    )
    def test_what_is_claimed_of_the_next_week(self, days: list[dict[str, Any]], recommended: str | None, why: str):
        """A gain at both ends of its interval, no harm, and days enough to tell."""
        own = {window: a_day(**changes) for window, changes in enumerate(days)}
        present = dict.fromkeys(own, a_day(days=days[0].get("days", 1.0)))
        found = chosen_from({PRESENT: present, "other": own}, list(own))

        assert found.recommended == recommended
        assert why in found.why

    def test_the_answer_has_gain_and_harm(self):
        """In its first line, with on how much they are built."""
        own = dict.fromkeys(range(6), a_day(moves=4, minutes_over=70.0))
        found = chosen_from({PRESENT: dict.fromkeys(own, DAY), "other": own}, range(6))

        assert claim(found) == (
            "next week it saves 6.0 client-minutes a day (6.0 to 6.0), 6.0 moves a day (6.0 to 6.0); costs 10 minutes "
            "a day above the low threshold (10 to 10); unknown: minutes a week above the high threshold (no day "
            "differed; up to 4 of the next 7 may) "
            "(from 6 independent days; in eight unseen weeks such intervals held for all of 20 settings: a hint, and "
            "no forecast)"
        )

    def test_where_the_cheapest_does_not_hold_up_the_next_one_may(self):
        """Of those that were clearly better on the first part."""
        moves = {PRESENT: (10, 10), "cheapest": (2, 12), "next": (4, 5)}
        results = {
            name: {window: a_day(moves=late if window > 6 else early) for window in self.WINDOWS}
            for name, (early, late) in moves.items()
        }

        assert chosen_from(results, self.WINDOWS).recommended == "next"

    def test_only_the_best_few_are_replayed_again(self):
        """The cheapest first; never the present ones, and none where history is too short."""
        moves = {PRESENT: 10, **{f"other {number}": number for number in (3, 1, 2, 5, 4, 9)}}
        results = {name: dict.fromkeys(range(4), a_day(moves=own)) for name, own in moves.items()}

        better = clearly_better(results, range(4))

        assert better == ("other 1", "other 2", "other 3", "other 4", "other 5", "other 9")
        assert shortlist(through_incidents(better, unharmed)) == better[:FINALISTS]
        assert clearly_better(results, range(3)) == ()

    def test_the_cheapest_of_several(self):
        """Gaps being equal, that with the fewest moves."""
        assert self.chosen({"moves": 7}, {"moves": 3}, {"moves": 5})[0] == "other 1"

    def test_too_little_history_recommends_nothing(self):
        """Three windows are not four."""
        found = chosen_from({PRESENT: dict.fromkeys(range(3), DAY)}, range(3))

        assert (found.recommended, found.judged) == (None, ())
        assert found.why == "the history is too short: 3 windows of history after the first, at least 4 are wanted"

    def test_the_hold_out_is_the_last_part(self):
        """Whatever order windows come in; there is always one."""
        assert split([3, 1, 2, 0]) == ((0, 1, 2), (3,))
        assert split(range(10)) == (tuple(range(7)), (7, 8, 9))

    def test_the_front_is_what_nothing_beats_on_both(self):
        """Fewer moves or less gap than any other."""
        results = {
            PRESENT: DAY,
            "fewer": a_day(moves=5, p95_gap=25.0),
            "worse than fewer": a_day(moves=6, p95_gap=26.0),
            "closer": a_day(moves=20, p95_gap=10.0),
        }
        found = chosen_from({name: dict.fromkeys(range(4), one) for name, one in results.items()}, range(4))

        assert {one.name for one in found.judged if one.front} == {PRESENT, "fewer", "closer"}

    @pytest.mark.parametrize(
        ("own", "recommended"),
        [
            ({"cost_minutes": 4.0, "moves": 20}, "other"),
            ({"cost_minutes": 9.6}, None),
            ({"cost_minutes": 0.0}, "other"),
        ],
        ids=["more moves that cost less", "hardly cheaper", "free"],
    )
    def test_the_cost_to_clients_decides(self, own: dict[str, float], recommended: str | None):
        """Whatever moves were made for it."""
        results = {PRESENT: dict.fromkeys(range(4), DAY), "other": dict.fromkeys(range(4), a_day(**own))}

        assert chosen_from(results, range(4)).recommended == recommended

    def test_what_costs_nothing_cannot_be_bettered(self):
        """Nothing moves, and no broker is overloaded: other settings that do the same are no gain."""
        free = dict.fromkeys(range(4), a_day(moves=0))

        assert chosen_from({PRESENT: free, "other": free}, range(4)).why.startswith("no other settings")


WAITED = replace(HELD, minutes_apart=86.0)


class TestIncidents:
    """A proposal must hold in an emergency; of those that do, the cheapest is proposed."""

    def chosen(self, **others: tuple[int, Harm]) -> tuple[Choice, list[Sequence[str]]]:
        """The choice among settings with these moves a day and this harm in an incident, and what was replayed there,
        part by part.
        """
        results = {PRESENT: dict.fromkeys(range(4), DAY)}
        results |= {name: dict.fromkeys(range(4), a_day(moves=moves)) for name, (moves, _) in others.items()}
        harm_of, parts = {PRESENT: HELD, **{name: harm for name, (_, harm) in others.items()}}, []

        def replayed(names: Sequence[str]) -> dict[str, Harms]:
            parts.append(names)
            return {name: {"a broker lost": [harm_of[name]] * 3} for name in names}

        harms = through_incidents(clearly_better(results, range(4)), replayed)
        again = {name: results[name] for name in (PRESENT, *shortlist(harms))}
        return choose(results, [again], range(4), harms), parts

    def test_who_waits_too_long_is_refused_by_name_of_the_incident(self):
        """Though it would have moved nothing on all days."""
        found, _ = self.chosen(sluggish=(0, WAITED))

        assert found.recommended is None
        assert found.why == (
            "the best of the others, sluggish, had brokers too far apart for 86 minutes, the present for 12, in the "
            "incident 'a broker lost'"
        )

    def test_the_next_one_that_holds_is_proposed_instead(self):
        """And the report says why the other is not."""
        found, _ = self.chosen(sluggish=(0, replace(HELD, minutes_overloaded=30.0)), steady=(5, HELD))

        assert found.recommended == "steady"
        assert list(found.refused) == ["sluggish"]

    def test_dearer_ones_are_tried_while_too_few_hold(self):
        """The three cheapest wait longest: with all of them refused, others that save less were never looked at."""
        found, parts = self.chosen(**{f"of {moves}": (moves, WAITED if moves < 4 else HELD) for moves in range(9)})

        assert parts == [(PRESENT, "of 0", "of 1", "of 2"), ("of 3", "of 4", "of 5"), ("of 6", "of 7", "of 8")]
        assert found.recommended == "of 4"
        assert list(found.refused) == ["of 0", "of 1", "of 2", "of 3"]

    def test_enough_that_hold_end_the_search(self):
        """An incident takes time to replay."""
        assert self.chosen(**{f"of {moves}": (moves, HELD) for moves in range(9)})[1] == [
            (PRESENT, "of 0", "of 1", "of 2")
        ]

    def test_no_more_than_some_go_through_incidents(self):
        """Where all that save anything wait too long."""
        days = {f"of {moves:02}": a_day(moves=moves) for moves in range(MOST_IN_INCIDENTS + 4)}
        harms = through_incidents(list(days), lambda names: {
            name: {"a broker lost": [HELD if name == PRESENT else WAITED] * 3} for name in names
        })  # fmt: skip

        assert list(harms) == [PRESENT, *list(days)[:MOST_IN_INCIDENTS]]
        assert shortlist(harms) == ()


class TestLeastMoves:
    """The other strategy whose thresholds can be tried."""

    def test_it_gets_its_share(self):
        """Half of what is tried, its defaults among them; under names that tell it."""
        found = candidates(inforce(), 1.0, 20, 1, ["least-moves"])
        others = [one for one in found if one.name.startswith("least-moves")]

        assert (len(found), others[0].name) == (20, "least-moves, default")
        assert 8 <= len(others) <= 11
        assert {one.values["strategy"] for one in others} == {"least-moves"}

    def test_one_in_force_is_tried_alone(self):
        """AvgShedder is not, unless somebody asks."""
        found = candidates(inforce(LeastMovesSettings()), 1.0, 20, 1)

        assert {one.values["strategy"] for one in found} == {"least-moves"}


BEGUN = 17 / 1440


@pytest.mark.parametrize("late", [0, 1], ids=["nothing moves", "a move"])
def test_a_day_that_has_just_begun_does_not_decide(late: int):
    """At 00:17 UTC, when the timer calibrates in UTC+3, one move is not 85 moves a day."""
    present = {window: a_day() for window in range(9)} | {9: a_day(days=BEGUN, moves=0)}
    own = {window: a_day(moves=4) for window in range(9)} | {9: a_day(days=BEGUN, moves=late)}
    found = chosen_from({PRESENT: present, "other": own}, list(own))

    assert found.effects[MOVES].mean == pytest.approx(-6, abs=0.2)
    assert found.recommended == "other"


def test_one_bad_hour_in_history_allows_no_worse_hour_each_day():
    """The slack of the worst hour is a fifth of a day's worst hour in the mean, as the effect on it is."""
    present = {window: a_day(worst_hour_gap=60.0 if window == 3 else 10.0) for window in range(10)}
    own = {window: a_day(moves=1, worst_hour_gap=60.0 if window == 3 else 20.0) for window in range(10)}
    found = chosen_from({PRESENT: present, "other": own}, list(own))

    assert found.recommended is None
    assert "costs 9 points of the worst hour's gap" in found.why


def test_a_proposal_of_another_strategy_is_all_of_its_section():
    """Its section may have other values now than its defaults: it is in force where all are as replayed."""
    best, present = SettingsCandidate("least-moves, default", LeastMovesSettings()), inforce()
    changes = [ChangedSetting(*change) for change in changed_settings(best, present, Settings())]
    summary = CalibrationSummary(at=0.0, recommended="x", reason="", changes=changes, present=None, proposed=None)
    now = Settings.model_validate(
        {"strategy": "least-moves", "least_moves": {"hit_count_high": 5, "hit_count_low": 30}}
    )

    assert not summary.in_force(now)
    assert {change.key: change.now for change in changes if change.key != "strategy"} == {
        f"least_moves.{key}": "-" for key in LeastMovesSettings.model_fields
    }


@pytest.mark.parametrize(
    ("read", "changed"),
    [
        ({}, {"guardrails.max_unloads_per_turn": (None, 2)}),
        (
            {"avg_shedder": {"low_threshold": 30.0}},
            {"avg_shedder.low_threshold": (30.0, 15.0), "guardrails.max_unloads_per_turn": (None, 2)},
        ),
        (
            {"strategy": "least-moves"},
            {"strategy": ("least-moves", "avg-shedder"), "guardrails.max_unloads_per_turn": (None, 2)},
        ),
    ],
    ids=["alike", "another threshold", "another strategy"],
)
def test_a_proposal_has_what_only_the_settings_file_has_otherwise(
    read: dict[str, Any], changed: dict[str, tuple[object, object]]
):
    """Edited, and not in force in the last round of history: with its values the proposal was never replayed."""
    present = inforce(AvgShedderSettings())
    best, settings = present.slower(2), Settings.model_validate(read)

    assert {key: (now, value) for key, now, value in changed_settings(best, present, settings)} == changed


def without_difference(world: int, days: int) -> list[dict[str, dict[int, Figures]]]:
    """Five deals of these days under the present settings and 59 others: all cost the same but for chance, by day and
    by deal.
    """
    random = np.random.default_rng(world)
    by_day = np.exp(0.4 * random.standard_normal(days)) * np.exp(0.6 * random.standard_normal((60, days)))
    moves = random.poisson(25.0 * by_day, (5, 60, days)).tolist()
    names = [PRESENT, *(f"other {number}" for number in range(59))]
    return [
        {name: {day: a_day(moves=own[day]) for day in range(days)} for name, own in zip(names, deal, strict=True)}
        for deal in moves
    ]


def test_the_best_of_many_by_luck_is_not_proposed():
    """After a week, of worlds in which no settings are better; without a look at how many were tried 8 of 40 are."""
    proposed = 0
    for world in range(40):
        deals, windows = without_difference(world, 6), range(6)
        harms = through_incidents(clearly_better(deals[0], windows), unharmed)
        again = [{name: deal[name] for name in (PRESENT, *shortlist(harms))} for deal in deals]
        proposed += choose(deals[0], again, windows, harms).recommended is not None

    assert proposed <= 2
