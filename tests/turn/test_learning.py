"""What is learned turn by turn, whatever brokers report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.load.effects import effect
from lbd.load.estimate import CPU
from lbd.load.samples import GO_STALE_SECONDS, BrokerSamples, Gathering
from lbd.load.settings import LoadSettings
from lbd.load.summary import loads, summary
from lbd.observe.parse import LoadReport, Usage
from lbd.turn.learning import SAMPLES_PER_BROKER, SURE, Learning, slopes
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats
from tests.load.histories import THREE, rounds

if TYPE_CHECKING:
    from lbd.model import Snapshot


ODD = st.sampled_from([0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e308, 1e-320, 5.0, 80.0])
USAGE = st.builds(Usage, ODD, ODD | st.just(100.0))


@st.composite
def reports(draw: st.DrawFn) -> LoadReport:
    """Any numbers of a broker with up to three bundles."""
    own = {bundle(number): stats(draw(ODD), draw(ODD)) for number in range(draw(st.integers(0, 3)))}
    started = draw(st.sampled_from([1e12, 1.6e12, float("nan")]))
    return report(draw(USAGE), own, bandwidth_in=draw(USAGE), start_timestamp=started)


ROUND = st.dictionaries(st.sampled_from(["a:80", "b:80", "c:80"]), reports(), min_size=1)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROUND, min_size=1, max_size=12))
def test_whatever_is_reported_a_turn_goes_on(seen: list[dict[str, LoadReport]]):
    """Neither an error nor a warning; of each broker there is something to say."""
    learning = Learning()
    for number, one in enumerate(seen):
        now = snapshot(one, TAKEN_AT + 60.0 * number)
        known = learning(now)
        assert summary(loads(now.brokers.ids, known, {}))


def test_brokers_that_are_gone_are_forgotten():
    """Brokers that come under new names for a year, as machines do that are replaced, leave nothing behind."""
    learning = Learning()
    for number in range(50):
        now = snapshot({f"b{number}:80": report(60, {bundle(0): stats(1, 100)})}, TAKEN_AT + GO_STALE_SECONDS * number)
        learning(now)
    assert learning._traffic.keys() == {"b49:80"}
    assert learning._effect_of.keys() <= {"b49:80"}


@pytest.mark.parametrize("absurd", [1e18, 1e200])
def test_a_rate_that_nobody_has_tells_nothing_of_what_moves_did(absurd: float):
    """One report among seven: any multiple of the traffic for no more CPU is no move that cost nothing."""
    learning = Learning()
    known = None
    for number, rate in enumerate([100, 100, 100, absurd, 100, 100, 100]):
        own = {bundle(one): stats(100, rate) for one in range(4)}
        known = learning(snapshot({"a:80": report(60 + number % 2, own)}, TAKEN_AT + 60.0 * number))

    assert known is not None
    assert known.effect is not None
    assert known.effect.tolist() == [[0, np.inf]]


def test_what_moves_did_is_told_by_all_samples_there_are_by_then():
    """A few looks at each sample, and moves to and fro: what was worked out before is never out of date."""
    learning, gathering, told = Learning(), Gathering(SAMPLES_PER_BROKER), set()
    for look in range(120):
        sampled, middle = look // 4 % 2, 4 + 2 * (look // 40 % 2)
        counted = (look + 2) // 4 if look < 60 else look  # a sample waits for its count, or does not
        seen = {}
        for broker, own in (("a:80", range(middle)), ("b:80", range(middle, 8))):
            carried = {bundle(one): stats(1, 1e6 + 1e5 * counted) for one in own}
            seen[broker] = report(10.0 * len(own) + sampled, carried)
        now = snapshot(seen, TAKEN_AT + 15.0 * look)
        gathering.take(now)
        known = learning(now)
        for at, broker in enumerate(now.brokers.ids if known is not None else ()):
            if known.sources[at] not in SURE:
                wanted = effect(gathering.with_waiting(broker), known.measure)
                assert known.effect[at].tolist() == [wanted.slope, wanted.deviation]
                told.add(wanted)
    assert len(told) > 4


def test_settings_count_at_once_and_only_until_samples_tell():
    """A slope that is given, from the first round on, and the truth in the end."""
    learning = Learning(
        LoadSettings.model_validate({"measure": "throughput", "brokers": [{"broker": ".", "slope": 1}]})
    )
    found = [learning(one) for one in rounds(120, THREE)]

    assert found[0] is not None
    assert found[-1] is not None
    assert found[0].sources == ("given",) * 3
    assert found[0].slope[:, CPU].tolist() == [1e-6] * 3
    assert found[-1].sources == ("fitted",) * 3


def lived(minutes: int) -> dict[str, BrokerSamples]:
    """What was gathered of two brokers, up to a minute before the first round."""
    at = TAKEN_AT - 60.0 * np.arange(minutes, 0, -1)
    brokers = quiet(0).brokers
    rates, used, since = np.ones((minutes, 4)), np.ones((minutes, 5)), np.ones(minutes, dtype=np.int32)
    own = BrokerSamples(at, rates, used, since, tuple(brokers.limit[0].tolist()), float(brokers.started_at[0]))
    return {"a:80": own, "b:80": own}


def quiet(minute: int, *brokers: str) -> Snapshot:
    """Brokers with one report that does not change."""
    return snapshot({name: report(Usage(50, 100), {}) for name in brokers or ("a:80", "b:80")}, TAKEN_AT + 60 * minute)


def test_it_goes_on_when_it_has_as_many_samples_as_it_keeps():
    """What traffic costs halves; four hours later, all of them full of new samples, that is what is known."""
    before = list(rounds(SAMPLES_PER_BROKER + 60, THREE))
    cheaper = {**THREE, "points_per_mib": 0.15}
    after = [
        replace(one, taken_at=one.taken_at + 60.0 * len(before)) for one in rounds(SAMPLES_PER_BROKER + 60, cheaper)
    ]
    learning = Learning()
    first = [learning(one) for one in before][-1]
    last = [learning(one) for one in after][-1]

    assert first is not None
    assert last is not None
    assert last.slope[0, CPU] == pytest.approx(first.slope[0, CPU] * 0.15 / 0.33, rel=0.1)


def test_who_is_gone_for_a_day_is_forgotten():
    """A broker that was taken away neither counts for the others nor stays in memory."""
    learning = Learning(samples=lived(30))
    learning(quiet(0))
    learning(quiet(1, "a:80"))
    assert set(learning.samples()) == {"a:80", "b:80"}
    learning(quiet(int(GO_STALE_SECONDS / 60) + 1, "a:80"))
    assert set(learning.samples()) == {"a:80"}
    assert learning.samples()["a:80"].at.size == 0


def test_a_fit_is_made_anew_two_samples_after_traffic_changed(monkeypatch: pytest.MonkeyPatch):
    """Not at once, when nothing tells yet what the change did, and not again while nothing more changes."""
    made: list[float] = []
    times = iter(range(1, 1000))
    monkeypatch.setattr("lbd.turn.learning.MORE", np.inf)
    learning = Learning()
    before = learning.fitted_at
    for minute in times:
        mib = 10 if minute < 5 else 20
        now = snapshot(
            {"a:80": report(40 + minute / 100, {bundle(0): stats(10, mib * 1024.0**2)})}, TAKEN_AT + 60 * minute
        )
        learning(now)
        if learning.fitted_at != before:
            made.append(minute)
            before = learning.fitted_at
        if minute == 12:
            break

    assert made[-1] == 7
    assert all(minute not in made for minute in (5, 6, 8, 9, 10, 11, 12))


def test_one_broker_that_was_never_seen_hides_nothing_of_the_others():
    """A round with a broker that no turn took in: of that one nothing is known, of the others what was learned."""
    learning = Learning()
    for one in rounds(60, THREE):
        known = learning(one)
    assert known is not None
    stranger = snapshot({**dict.fromkeys(one.brokers.ids, report(50.0)), "new:80": report(40.0)}, one.taken_at)
    found = slopes(learning._model, stranger)

    assert found is not None
    assert found.sources is not None
    assert np.isnan(found.slope[stranger.brokers.index()["new:80"]]).all()
    assert found.sources[stranger.brokers.index()["new:80"]] == "unknown"
    for at, broker in enumerate(one.brokers.ids):
        assert found.slope[stranger.brokers.index()[broker], CPU] == pytest.approx(known.slope[at, CPU])
    assert slopes(learning._model, snapshot({"new:80": report(40.0)}, one.taken_at)) is None


def test_what_a_broker_usually_shows_is_the_mean_of_its_last_samples():
    """Of 50, 51 and 52 in three minutes; the number of samples goes with it."""
    learning = Learning()
    for minute, cpu in enumerate((50, 51, 52)):
        found = learning(snapshot({"a:80": report(cpu, {bundle(0): stats(10)})}, TAKEN_AT + 60 * minute))

    assert found is not None
    assert found.usual is not None
    assert found.samples is not None
    assert found.usual[0, CPU] == pytest.approx(51)
    assert found.samples.tolist() == [3]


@pytest.mark.parametrize(("cpu", "wanted", "number"), [(52, 51.0, 3), (90, np.nan, 0)])
def test_samples_of_before_tell_what_is_usual_only_while_the_newest_is_what_is_shown(
    cpu: float, wanted: float, number: int
):
    """For who looks beside a lbd, which writes its samples every few minutes: of what came since they know nothing."""
    before = Learning()
    for minute, one in enumerate((50, 51, 52)):
        before(snapshot({"a:80": report(one, {bundle(0): stats(10)})}, TAKEN_AT + 60 * minute))
    now = snapshot({"a:80": report(cpu, {bundle(0): stats(10)})}, TAKEN_AT + 300)
    found = Learning(samples=before.samples())(now)

    assert found is not None
    assert found.usual is not None
    assert found.samples is not None
    assert found.usual[0, CPU] == pytest.approx(wanted, nan_ok=True)
    assert found.samples.tolist() == [number]
