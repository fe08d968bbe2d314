"""What is known of brokers, in words and numbers."""

from __future__ import annotations

import numpy as np
import pytest

from lbd.load.estimate import CPU
from lbd.load.summary import loads, summary
from lbd.model import Slopes

BROKERS = ("a:80", "b:80", "c:80")


def slopes(sources: tuple[str, ...], each: list[float], idle: list[float], measure: str = "throughput") -> Slopes:
    slope, background = np.zeros((3, 5)), np.zeros((3, 5))
    slope[:, CPU], background[:, CPU] = each, idle
    unit = "msg_rate" if measure == "msg_rate" else "throughput"
    sure = np.zeros((3, 5))
    return Slopes(slope, sure, unit, sure, background, sources, background_half_width=sure)


LIKE = slopes(("fitted", "given", "class"), [2e-6, 1e-6, 2e-6], [10.0, 8.0, 44.0])


def test_words_of_each_broker():
    """Slope, where it comes from, and what is no traffic's; the neighbour by name."""
    found = loads(BROKERS, LIKE, {})

    assert [one.words for one in found] == [
        "2.00 points for each MB/s, learned from its own samples; 10 points of CPU are no traffic's",
        "1.00 points for each MB/s, given in load.brokers; 8 points of CPU are no traffic's",
        "2.00 points for each MB/s, learned from brokers with the same limits; 44 points of CPU are no traffic's",
    ]
    assert [one.neighbour for one in found] == ["", "", "a co-located process on c:80 uses 34 points"]
    assert [one.state for one in found] == ["known", "known", "pooled"]


@pytest.mark.parametrize("known", [None, slopes(("unknown", "unknown", "no-limit"), [np.nan, np.nan, 0], [50, 9, 80])])
def test_nothing_is_said_of_what_nobody_knows(known: Slopes | None):
    """Neither a slope nor a background, and so no neighbour."""
    found = loads(BROKERS, known, {})

    assert {(one.state, one.slope, one.background, one.beside, one.unlike) for one in found} == {
        ("unknown", None, None, None, None)
    }
    assert "not known" in found[0].words
    assert summary(found).startswith("what traffic costs brokers is not known: a destination is taken to gain")


@pytest.mark.parametrize(
    ("capacity", "unlike"),
    [({}, 4.0), ({"b:80": 0.25}, None), ({"b:80": 4.0}, 16.0)],
    ids=["one takes four times the CPU", "as its capacity says", "against what its capacity says"],
)
def test_a_broker_that_is_unlike_the_others_by_its_capacity(capacity: dict[str, float], unlike: float | None):
    """A third one, that has the slope of all, is never unlike."""
    found = loads(BROKERS, slopes(("fitted", "fitted", "pooled"), [1e-6, 4e-6, 1e-6], [5, 5, 5]), capacity)

    assert [one.unlike for one in found] == [None, unlike, None]
    assert found[2].unlike is None


def test_messages_have_a_unit_of_their_own():
    """A thousand a second."""
    (first, *_) = loads(BROKERS, slopes(("fitted",) * 3, [0.012] * 3, [5] * 3, "msg_rate"), {})

    assert first.words.startswith("12.00 points for each 1,000 msg/s")


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        (("fitted",) * 3, "what traffic costs is known of 3 of 3 brokers"),
        (
            ("fitted", "given", "pooled"),
            "what traffic costs is known of 2 of 3 brokers, taken from the others for 1",
        ),
        (
            ("fitted", "class", "unknown"),
            (
                "what traffic costs is known of 1 of 3 brokers, taken from the others for 1, not known of 1: those are "
                "taken to gain their source's points by share of traffic"
            ),
        ),
    ],
)
def test_how_much_of_a_cluster_is_known(sources: tuple[str, ...], words: str):
    """And what is taken for the rest."""
    assert summary(loads(BROKERS, slopes(sources, [1e-6] * 3, [5] * 3), {})) == words
