"""What a move is predicted to add to its destination: by what was learned of it, or by its source's share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.load.estimate import CPU
from lbd.load.scoring import Weights, scores
from lbd.model import RESOURCES, Slopes, Unload
from lbd.permit.limits import Ledger, permit
from lbd.permit.policies import Groups, Isolation, Policies
from lbd.permit.settings import Guardrails
from tests.builders import bundle, ledger_of, permission, report, snapshot, stats

if TYPE_CHECKING:
    from lbd.model import Snapshot
    from lbd.permit.limits import Permitted

NAMES = [bundle(number) for number in range(40)]
EACH = 5_000.0
"""Bytes/s in + out of a bundle; 40 of them are the hot broker's 60 points, so one is 1.5 points there."""

PER_BYTE = 1.5 / EACH


def cluster(hot: float = 60, cold: float = 20) -> Snapshot:
    """A hot broker with 40 equal bundles, and an empty one."""
    return snapshot({"a:80": report(hot, {name: stats(25, 2500) for name in NAMES}), "b:80": report(cold)})


def learned(source: str, slope: float, half_width: float = 0.0) -> Slopes:
    """Slopes of CPU: the hot broker's is 1.5 points a bundle, the other's is given, for each byte/s."""
    slopes, widths = np.zeros((2, len(RESOURCES))), np.zeros((2, len(RESOURCES)))
    slopes[:, CPU], widths[:, CPU] = (PER_BYTE, slope), (0.0, half_width)
    return Slopes(slopes, np.zeros_like(slopes), "throughput", widths, np.zeros_like(slopes), ("fitted", source))


def shown(slope: float, deviation: float, source: str = "unknown") -> Slopes:
    """What moves did to the destination; else nothing is known of it, or what others tell: a third of the source's."""
    nothing = learned(source, PER_BYTE / 3 if source == "class" else np.nan)
    return replace(nothing, effect=np.array([(0.0, np.inf), (slope, deviation)]))


def plan(count: int) -> list[Unload]:
    return [Unload(NAMES[number], "a:80", "b:80", 50, EACH, "even") for number in range(count)]


def ledger(seen: Snapshot, moves: list[Unload], slopes: Slopes | None, limit: float = 85) -> Ledger:
    rails = Guardrails(max_traffic_per_turn=1, max_unloads_per_turn=40, max_destination_score=limit)
    unlimited = {name: 0 for name in Guardrails.model_fields if name.endswith(("_hour", "_day"))}
    rails = rails.model_copy(update={**unlimited, "max_traffic_per_hour": np.inf})
    known = Policies(Isolation(), Groups(frozenset({"t/n"})), seen.brokers.ids)
    found = scores(seen.brokers, Weights())
    return ledger_of(seen, found, known, rails, moves, permission=permission(seen, slopes=slopes))


def through(seen: Snapshot, moves: list[Unload], slopes: Slopes | None, limit: float = 85) -> Permitted:
    return permit(moves, ledger(seen, moves, slopes, limit))


@pytest.mark.parametrize(
    ("slopes", "moved"),
    [
        (None, 26),
        (learned("fitted", PER_BYTE / 3), 40),
        (learned("given", PER_BYTE / 3), 40),
        (learned("fitted", PER_BYTE / 3, PER_BYTE * 2 / 3), 26),
        (learned("fitted", PER_BYTE * 3), 8),
        (learned("class", PER_BYTE / 3), 26),
        (learned("pooled", PER_BYTE * 3), 8),
        (learned("unknown", np.nan), 26),
        (Slopes(np.zeros((2, 5)), np.zeros((2, 5))), 26),
        (shown(PER_BYTE / 6, PER_BYTE / 6 / 1.96), 40),
        (shown(PER_BYTE / 6, PER_BYTE / 6 / 1.96, "class"), 40),
        (shown(PER_BYTE / 6, PER_BYTE), 26),
        (shown(-PER_BYTE, PER_BYTE / 3 / 1.96), 40),
        (shown(PER_BYTE * 4, PER_BYTE / 1.96), 8),
        (shown(PER_BYTE * 4, PER_BYTE * 3), 26),
    ],
    ids=[
        "nothing learned",
        "a stronger destination takes what it has room for",
        "the operator's word is as good",
        "a slope within wide bounds counts at its upper one",
        "a weaker destination takes less than its source's share says",
        "what only others tell never makes it lower",
        "and may make it higher",
        "a destination of which nothing is known",
        "slopes without bounds",
        "moves showed that the share is too high",
        "and that what others tell is",
        "moves that show it too vaguely",
        "usage that fell with a move has another cause: its bounds count from 0",
        "moves showed that the share is too low",
        "too vaguely",
    ],
)
def test_how_many_bundles_a_destination_takes(slopes: Slopes | None, moved: int):
    """Of forty bundles of 1.5 points on their source, until the destination would pass its source's 60 points."""
    assert len(through(cluster(), plan(40), slopes).unloads) == moved


def test_above_what_a_line_tells_the_higher_of_both_counts():
    """From 74.5 points on the small steps of a strong destination are not believed any more."""
    told = through(cluster(hot=84, cold=73), plan(40), learned("fitted", 0.5 / EACH))

    assert len(told.unloads) == 4 + 4
    assert "by its source's share; by what traffic costs it +0.5" in told.skips[0].detail


def test_above_what_a_line_tells_what_moves_did_is_not_enough():
    """A destination that took bundles at a third of their share takes no more than before beyond 75 points."""
    told = through(cluster(hot=84, cold=73), plan(40), shown(0.25 / EACH, 0.25 / EACH / 1.96))

    assert len(told.unloads) == 4 + 4
    assert "by its source's share; by what moves did to it +0.5" in told.skips[0].detail


def test_which_of_both_counts_is_said():
    """In the reason of what moves and of what does not; not where both say the same."""
    strong, weak = learned("fitted", PER_BYTE / 3), learned("fitted", PER_BYTE * 3)
    alike = through(cluster(), plan(1), learned("fitted", PER_BYTE))

    assert through(cluster(), plan(1), strong).unloads[0].reason == (
        "even; b:80 (+0.5 by what traffic costs it; by its source's share +1.5)"
    )
    assert through(cluster(), plan(9), weak).skips[0].detail == (
        "b:80 would reach 60.5 (+4.5 by what traffic costs it; by its source's share +1.5), a:80 has 60.0"
    )
    assert alike.unloads[0].reason == "even"
    assert through(cluster(), plan(1), learned("class", PER_BYTE / 3)).unloads[0].reason == (
        "even; b:80 (+1.5 by its source's share; by what traffic costs it +0.5)"
    )


BUSY = [bundle(number) for number in range(40, 140)]


@pytest.mark.parametrize(
    ("cold", "bundles", "slopes", "moved", "adds"),
    [
        (20, 50, learned("unknown", np.nan), 37, 0.6),
        (20, 50, learned("class", PER_BYTE / 6), 37, 0.6),
        (20, 100, learned("class", PER_BYTE / 3), 40, 0.5),
        (20, 100, learned("pooled", PER_BYTE * 3), 8, 4.5),
        (20, 100, shown(PER_BYTE / 3, PER_BYTE / 30 / 1.96), 40, 0.45),
        (20, 100, None, 26, 1.5),
        (20, 2, learned("unknown", np.nan), 26, 1.5),
        (20, 0, learned("unknown", np.nan), 26, 1.5),
        (0, 0, learned("unknown", np.nan), 39, 1.5),
        (0.1, 100, learned("unknown", np.nan), 40, 0.375),
        (74.8, 100, learned("unknown", np.nan), 4, 2.1),
    ],
    ids=[
        "half as much again as it uses for its own traffic",
        "others' slopes are no less",
        "others' slopes make it higher",
        "by much",
        "moves showed that it is too low",
        "a strategy without a load model goes by the source's share",
        "a destination with little traffic costs as much as the source",
        "and one without any",
        "and one that does nothing",
        "hardly any usage for much traffic is not believed",
        "above what a line tells the source's share counts",
    ],
)
def test_a_destination_uses_about_what_it_does_now(
    cold: float, bundles: int, slopes: Slopes | None, moved: int, adds: float
):
    """A stronger machine with much traffic shows what traffic costs it; the first of forty bundles adds so much."""
    busy = report(cold, {name: stats(25, 2500) for name in BUSY[:bundles]})
    hot = report(60 if cold < 60 else 84, {name: stats(25, 2500) for name in NAMES})
    seen = snapshot({"a:80": hot, "b:80": busy})

    assert len(through(seen, plan(40), slopes).unloads) == moved
    assert ledger(seen, plan(40), slopes).rise(plan(1)[0]) == pytest.approx(adds)


def test_a_source_falls_by_its_own_slope():
    """Half of its 60 points are background: four bundles take 3 points, and not the 6 of their share."""
    seen = cluster()
    known = learned("fitted", PER_BYTE / 2)
    known.slope[0, CPU] = PER_BYTE / 2
    rails = Guardrails(max_traffic_per_turn=1)
    policies = Policies(Isolation(), Groups(frozenset({"t/n"})), seen.brokers.ids)
    ledger = ledger_of(
        seen, scores(seen.brokers, Weights()), policies, rails, plan(4), permission=permission(seen, slopes=known)
    )

    assert ledger.expected(permit(plan(4), ledger).unloads) == pytest.approx({"a:80": 57.0, "b:80": 23.0})


SLOPE = st.floats(0, 10).map(lambda times: times * PER_BYTE)


@settings(max_examples=150, deadline=None)
@given(
    hot=st.floats(1, 120),
    cold=st.floats(0, 120),
    count=st.integers(1, 40),
    slope=SLOPE,
    width=SLOPE,
    source=st.sampled_from(["fitted", "given", "class", "pooled", "unknown"]),
)
def test_no_prediction_passes_a_limit(hot: float, cold: float, count: int, slope: float, width: float, source: str):
    """Whatever is known: by the prediction that counts never above 85 nor the source; unknown: as if nothing were."""
    seen, known = cluster(hot, cold), learned(source, np.nan if source == "unknown" else slope, width)
    moved, plainly = through(seen, plan(count), known), through(seen, plan(count), None)
    share, upper = hot / 40 * len(moved.unloads), (slope + width) * EACH * len(moved.unloads)
    most = min(85.0, hot) + 1e-3

    if source == "unknown":
        assert [one.bundle for one in moved.unloads] == [one.bundle for one in plainly.unloads]
    if not moved.unloads:
        return
    assert cold + (share if source == "unknown" else upper) <= most
    if source in {"class", "pooled", "unknown"}:
        assert cold + share <= most
