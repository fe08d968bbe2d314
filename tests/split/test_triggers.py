"""When a bundle is too large: the rule of the modular load manager's leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from lbd.observe.parse import BundleStats
from lbd.split.triggers import Due, SplitSettings, too_large, within_namespaces
from tests.builders import bundle, first_averages, report, snapshot

if TYPE_CHECKING:
    from lbd.model import Averages, Snapshot

B1, B2 = "b1:8080", "b2:8080"
ENOUGH = {"t/n": 4}


def seen(*statistics: BundleStats, other: dict[str, BundleStats] | None = None) -> Snapshot:
    """Two brokers; the first has these bundles, in their order."""
    own = {bundle(number): one for number, one in enumerate(statistics)}
    return snapshot({B1: report(statistics=own), B2: report(statistics=other or {})})


def counted(topics: int = 5, **changes: Any) -> BundleStats:
    """A bundle with topics and no traffic."""
    return BundleStats(**{"topics": topics, **changes})


def found(round_: Snapshot, averages: Averages | None = None, **changes: Any) -> list[str]:
    """The bundles that the leader would split."""
    due = too_large(round_, averages or first_averages(round_), SplitSettings(**changes))
    return [one.bundle for one in due]


class TestLeader:
    @pytest.mark.parametrize(
        ("at_limit", "above"),
        [
            (counted(1000), counted(1001)),
            (counted(producer_count=400, consumer_count=600), counted(producer_count=401, consumer_count=600)),
            (counted(msg_rate_in=20_000, msg_rate_out=10_000), counted(msg_rate_in=20_000, msg_rate_out=10_001)),
            (
                counted(msg_throughput_in=60 * 2**20, msg_throughput_out=40 * 2**20),
                counted(msg_throughput_in=60 * 2**20, msg_throughput_out=40 * 2**20 + 1),
            ),
        ],
        ids=["topics", "sessions", "message rate", "bandwidth"],
    )
    def test_a_limit_must_be_exceeded(self, at_limit: BundleStats, above: BundleStats):
        """Pulsar's own defaults, in + out; what equals a limit stays."""
        assert found(seen(at_limit, above)) == [bundle(1)]

    def test_the_limit_is_told(self):
        """With the value and the setting's name."""
        due = too_large(round_ := seen(counted(1500)), first_averages(round_), SplitSettings())
        assert due == (Due(bundle(0), B1, "max_topics", 1500, 1000),)
        assert due[0].words == "1,500 exceeds split.max_topics 1,000"

    def test_one_topic_is_never_split(self):
        """BundleSplitterTaskTest: one topic with the maximum rate + 1."""
        assert found(seen(counted(1, msg_rate_in=30_001))) == []

    def test_no_session_limit(self):
        """0 or less is none."""
        assert found(seen(counted(producer_count=5000)), max_sessions=0) == []

    def test_rates_are_long_term_ones(self):
        """A burst of one round in a hundred is none; topics and sessions are this round's."""
        round_ = seen(counted(msg_rate_in=60_000))
        calm = first_averages(seen(counted(msg_rate_in=600)))
        assert found(round_, calm) == []

    def test_a_single_broker_splits_nothing(self):
        """There is nowhere to move the parts to."""
        alone = snapshot({B1: report(statistics={bundle(0): counted(5000)})})
        assert found(alone) == []

    def test_the_furthest_above_a_limit_comes_first(self):
        """By how many times over, whatever the limit; then by name."""
        round_ = seen(counted(2000), counted(4000), counted(msg_rate_in=90_000), counted(2000))
        assert found(round_) == [bundle(1), bundle(2), bundle(0), bundle(3)]

    def test_a_bundle_on_two_reports_counts_once(self):
        """It was moved a moment ago."""
        assert found(seen(counted(2000), other={bundle(0): counted(2000)})) == [bundle(0)]

    @pytest.mark.parametrize(
        "name", ["t/n/0x00000001_0x00000002", "junk", "t/n/0xzz_0x10", "t/n/0x00000010_0x00000001"]
    )
    def test_what_cannot_be_cut_is_left(self, name: str):
        """A range of one hash, and names that are none."""
        assert found(snapshot({B1: report(statistics={name: counted(5000)}), B2: report()})) == []

    def test_numbers_that_are_none_exceed_nothing(self):
        """NaN compares with nothing."""
        assert found(seen(counted(msg_rate_in=float("nan")))) == []


class TestRoomInANamespace:
    @pytest.mark.parametrize("bundles", [0, 1, 2, 3, 4])
    def test_three_bundles_of_which_only_some_have_room(self, bundles: int):
        """BundleSplitterTaskTest: at most 3 bundles, three due, ``bundles`` there already: 3 - bundles are chosen."""
        settings = SplitSettings(max_bundles_per_namespace=3)
        round_ = seen(*[counted(5, msg_rate_in=60_000)] * 3)
        due = too_large(round_, first_averages(round_), settings)
        chosen, left = within_namespaces(due, {"t/n": bundles}, settings)
        assert (len(chosen), len(left)) == (max(3 - bundles, 0), min(bundles, 3))

    def test_an_unknown_namespace_has_no_room(self):
        """It may be gone."""
        due = Due(bundle(0), B1, "max_topics", 2000, 1000)
        assert within_namespaces([due], {}, SplitSettings()) == ((), (due,))
