"""OverloadShedder, rule by rule."""

from __future__ import annotations

import pytest

from lbd.decide.overload_shedder import OverloadShedderSettings
from lbd.decide.strategies import build
from lbd.load.scoring import Weights
from lbd.model import Memory
from lbd.reason import Reason
from tests.builders import bundle, first_averages, permission
from tests.decide.asking import ask, broker, cluster, taken
from tests.decide.test_threshold_shedder import ONE_TO_TEN, by_bandwidth

NAME = "overload-shedder"


class TestPulsarsOwnTests:
    """LBT/impl/OverloadShedderTest.java as data."""

    @pytest.mark.parametrize(("resting", "expected"), [((), [9, 8]), ((9, 8), [7, 6])])
    def test_the_largest_go_until_the_need_is_met(self, resting: tuple[int, ...], expected: list[int]):
        """(0.999 - 0.85 + 0.05) x 110 MiB/s = 21.9 MiB/s."""
        seen = cluster(by_bandwidth(999, ONE_TO_TEN), by_bandwidth(0, ()))
        barred = {bundle(number): Reason.COOL_DOWN for number in resting}

        assert [("a", number) for number in expected] == taken(ask(NAME, seen, permit={"barred": barred}))

    def test_weights_count(self):
        """With bandwidth at 0 no broker is loaded."""
        seen = cluster(by_bandwidth(999, ONE_TO_TEN), by_bandwidth(0, ()))
        rule = build(OverloadShedderSettings(), Weights(bandwidth_in=0, bandwidth_out=0))

        assert () == rule(seen, first_averages(seen), permission(seen), Memory()).unloads

    @pytest.mark.parametrize(("used", "bundles"), [(999, 0), (999, 1), (500, 1), (500, 10)])
    def test_nothing_to_give_or_no_need(self, used: float, bundles: int):
        """No bundle, a single one, or half of the bandwidth."""
        assert () == ask(NAME, cluster(by_bandwidth(used, ONE_TO_TEN[:bundles]), by_bandwidth(0, ()))).unloads


class TestPublished:
    """PIP-364: "there are many serious corner cases, so it is not recommended"."""

    def test_full_brokers_shed_to_each_other(self):
        """Published: "it will only switch from one overloaded broker to another, which is meaningless"."""
        found = ask(NAME, cluster(broker(90, (5.0, 5.0)), broker(90, (5.0, 5.0), first=10)))

        assert {"a", "b"} == {source for source, _ in taken(found)}

    def test_a_new_broker_gets_nothing(self):
        """Published: "adding new brokers will not balance the traffic" where nobody reaches the threshold."""
        found = ask(NAME, cluster(broker(84, (5.0, 5.0)), broker(84, (5.0, 5.0), first=10), broker(1)))

        assert () == found.unloads
        assert "highest 84.0 points, overloaded from 85" == found.skips[0].detail


def test_the_most_loaded_broker_is_relieved_first():
    """Guardrails let the first of a plan through."""
    found = ask(NAME, cluster(broker(88, (5.0, 5.0)), broker(95, (5.0, 5.0), first=10), broker(10)))

    assert ["b", "a"] == [source for source, _ in taken(found)]
