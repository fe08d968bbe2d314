"""The simulated executor: its pace, what it journals, and what it tells the turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.act.executor import Pace
from lbd.model import Outcome, Result, Skip, Unload
from lbd.reason import Reason
from lbd.simulate.run import UNLOAD_SECONDS, Moving, unload_seconds
from tests.limits import SameForAll

BEGUN = 1000.0


def unload(bundle: str, source: str = "a", destination: str = "z") -> Unload:
    """A bundle of 10 msg/s."""
    return Unload(bundle, source, destination, 10.0, 1000.0, "why")


class Bench:
    """An actuator and its clock; ``refused`` are bundles that the last check does not let through."""

    def __init__(self, spacing: float = 1.0, at_once: int = 4) -> None:
        self.now, self.refused = BEGUN, set[str]()
        self.moving = Moving(Pace(spacing, at_once), lambda: self.now, self._refusal)

    def _refusal(self, one: Unload) -> Skip | None:
        return Skip(one.bundle, Reason.OWNER_CHANGED) if one.bundle in self.refused else None

    def hand_over(self, *plan: Unload) -> None:
        self.moving.hand_over(plan, SameForAll())

    def landed(self, after: float) -> list[str]:
        """What lands until so long after the beginning."""
        self.now = BEGUN + after
        return [one.bundle for one, _ in self.moving.landed()]


def test_one_source_is_spaced():
    """From the end of one unload to the next one."""
    bench = Bench()
    bench.hand_over(unload("1"), unload("2"), unload("3"))
    assert bench.landed(0.1) == []
    assert bench.landed(UNLOAD_SECONDS) == ["1"]
    assert bench.landed(1.2) == []
    assert bench.landed(2 * UNLOAD_SECONDS + 1.01) == ["2"]
    assert bench.landed(10) == ["3"]


def test_sources_go_beside_each_other():
    """As many at once as allowed."""
    bench = Bench(at_once=2)
    bench.hand_over(unload("1", "a"), unload("2", "b"), unload("3", "c"))
    assert bench.landed(UNLOAD_SECONDS + 0.01) == ["1", "2"]
    assert bench.landed(2 * UNLOAD_SECONDS + 0.01) == ["3"]


def test_what_was_sent_is_journaled_when_it_is_sent():
    """Cool-downs and budgets read it; what is planned only does not count."""
    bench = Bench()
    bench.hand_over(unload("1"), unload("2"))
    bench.landed(0.1)
    assert bench.moving.attempted_at == {"1": BEGUN}
    bench.landed(5)
    assert {one.bundle: one.at for one in bench.moving.sent} == {"1": BEGUN, "2": BEGUN + UNLOAD_SECONDS + 1}
    assert [(one.source, one.destination, one.attempt, one.msg_rate) for one in bench.moving.sent] == [
        ("a", "z", 1, 10.0)
    ] * 2


def test_after_a_day_a_move_is_in_no_budget():
    """And after a week its bundle is as if it had never moved."""
    bench = Bench()
    bench.hand_over(unload("1"))
    bench.landed(1)
    bench.now += 86_400
    bench.moving.collect()
    assert bench.moving.sent == ()
    assert "1" in bench.moving.attempted_at
    bench.now += 7 * 86_400
    bench.moving.collect()
    assert bench.moving.attempted_at == {}


def test_collect_tells_each_end_once():
    """And what is under way, whether asked for or not."""
    bench = Bench()
    bench.hand_over(unload("1"), unload("2"))
    bench.landed(0.5)
    ended = bench.moving.collect()
    assert ended.outcomes == (Outcome(unload("1"), Result.LANDED, "z", seconds=UNLOAD_SECONDS),)
    assert ended.unfinished == (unload("2"),)
    assert ended.touched == {"a", "z"}
    assert bench.moving.collect().outcomes == ()


def test_brokers_are_touched_until_it_is_noted():
    """As with the real executor."""
    bench = Bench()
    bench.hand_over(unload("1"))
    bench.landed(1)
    bench.moving.collect()
    assert bench.moving.collect().touched == {"a", "z"}
    bench.moving.settled()
    assert bench.moving.collect().touched == frozenset()


def test_a_halt_ends_what_was_not_begun():
    """What is in flight lands."""
    bench = Bench()
    bench.hand_over(unload("1"), unload("2"))
    bench.landed(0.1)
    bench.moving.halt(Reason.PAUSED, "by hand")
    assert bench.landed(10) == ["1"]
    ended = bench.moving.collect()
    assert ended.skips == (Skip("2", Reason.PAUSED, "by hand"),)
    assert ended.unfinished == ()


def test_what_is_refused_before_the_request_was_not_sent():
    """It is told, and does not rest for it."""
    bench = Bench()
    bench.refused = {"1"}
    bench.hand_over(unload("1"), unload("2"))
    assert bench.landed(10) == ["2"]
    assert bench.moving.collect().skips == (Skip("1", Reason.OWNER_CHANGED),)
    assert set(bench.moving.attempted_at) == {"2"}


@given(
    st.lists(st.sampled_from("abcde"), max_size=20),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_the_pace_holds(sources: list[str], at_once: int, spacing: float):
    """Never more at once, nor closer on one source, than allowed; all land, and each once."""
    bench = Bench(spacing, at_once)
    bench.hand_over(*(unload(str(number), source) for number, source in enumerate(sources)))
    assert sorted(bench.landed(100)) == sorted(map(str, range(len(sources))))
    sent = sorted(bench.moving.sent, key=lambda one: one.at)
    for at, one in enumerate(sent):
        flying = [other for other in sent[: at + 1] if other.at + UNLOAD_SECONDS > one.at + 1e-9]
        assert len(flying) <= at_once
        before = [other.at for other in sent[:at] if other.source == one.source]
        assert not before or one.at - before[-1] > UNLOAD_SECONDS + spacing - 1e-6


@pytest.mark.parametrize(
    ("topics", "cold", "wanted"), [(1, False, 0.15), (1250, False, 1.02), (1, True, 1.3), (5000, True, 3.65)]
)
def test_how_long_a_bundle_is_served_by_nobody(topics: int, cold: bool, wanted: float):
    """Longer with more topics, and where the destination has owned nothing yet."""
    assert unload_seconds(topics, cold=cold) == pytest.approx(wanted, abs=0.01)
