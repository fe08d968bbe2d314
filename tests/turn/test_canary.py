"""Turns under a canary: what moves, what is said of the rest, and what a person may do all the same."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from lbd.cli.status_text import show_status
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.decide.strategies import STRATEGIES
from lbd.model import Hits, Pair
from lbd.operations.dry import dry_run
from lbd.operations.place import show_unload
from lbd.reason import Reason
from lbd.store.control import UnloadRequest
from lbd.store.state import StateDir
from lbd.turn.canary import CanaryHold
from lbd.turn.record import turn_record
from lbd.turn.verdict import verdict
from tests import test_turn
from tests.daemon.alone import done
from tests.daemon.test_proposals import applied
from tests.fake_pulsar import HOT
from tests.test_guardrails import landed, settle
from tests.turn.test_strategies import chosen as with_strategy
from tests.turn.test_strategies import firing  # noqa: F401 - a fixture: numbers by which each strategy moves

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.config import Settings
    from tests.fake_pulsar import FakePulsar


SHOP = [name.replace("t/n/", "shop/a/") for name in HOT[:4]]
"""Four bundles more of the hot broker, as large as its others."""

ALL_HELD = "the canary keeps back 3 of 3 bundles of the plan (guardrails.canary)"


@pytest.fixture
def shop(pulsar: FakePulsar) -> FakePulsar:
    """The hot broker has bundles of a second namespace."""
    pulsar.own(pulsar.ids[0], dict.fromkeys(SHOP, 1000.0))
    pulsar.sample(80.0, 45.0, 10.0)
    return pulsar


def settings(cluster: FakePulsar, folder: Path, *namespaces: str, most: int = 1, **changes: Any) -> Settings:
    """A canary of these namespaces; one hit is enough."""
    canary = {"namespaces": namespaces, "max_moves_per_hour": most} if namespaces else None
    rails = {"cool_down_minutes": 0, "canary": canary, **changes.pop("guardrails", {})}
    return test_turn.settings(cluster, folder, guardrails=rails, **changes)


class TestMoves:
    def test_only_bundles_of_its_namespaces_at_its_pace(self, shop: FakePulsar, tmp_path: Path) -> None:
        """The sentence says how much more would have moved; the next turn waits for the hour, and says that."""
        everything = dry_run(settings(shop, tmp_path))
        planned = [one.bundle for one in everything.plan.unloads]
        outside = sum(not one.startswith("shop/") for one in planned)
        assert (len(planned) > 1, outside > 0) == (True, True)
        first = test_turn.once(settings(shop, tmp_path, "shop/*"))
        (moved,) = landed(first)
        assert moved in SHOP
        words = f"the canary keeps back {outside} of {len(planned)} bundles of the plan (guardrails.canary)"
        assert first.sentence == f"Moved 1 of 1 bundle: 1 landed; {words}."
        assert verdict(first).words == f"moving: 1 landed; {words}"
        assert first.plan.counts["canary"] == 8 + 2  # t/n, on all three brokers
        settle(shop, settings(shop, tmp_path, "shop/*"), 80.0, 45.0, 10.0)
        shop.sample(80.5, 45.5, 10.5)
        second = test_turn.once(settings(shop, tmp_path, "shop/*"))
        assert second.plan.unloads == ()
        assert (verdict(second).kind, verdict(second).reason) == ("blocked", "canary-per-hour")
        assert "1 of 1 used, the next one in 1 h (guardrails.canary.max_moves_per_hour)" in second.sentence

    def test_a_pair_without_a_bundle_of_it_is_blocked(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """With the reason, what lifts it, and how much of the plan it is; with new samples and without."""
        ends = f"{pulsar.ids[0]} -> {pulsar.ids[2]} 70.0 points apart"
        why = "3 planned bundles outside of it stay until guardrails.canary is widened"
        with engine(settings(pulsar, tmp_path, "shop/*")) as balancer:
            first, second = balancer.once(), balancer.once()
        test_turn.unmoved(pulsar, first)
        assert first.sentence == f"No move: {ends}, blocked by canary: {why}; {ALL_HELD}."
        assert verdict(first).words == f"blocked by canary: {ends}; {why}"
        (pair,) = turn_record(first, 0.0).pairs
        assert (pair.reason, pair.detail) == ("canary", why)
        assert (verdict(second).kind, verdict(second).reason) == ("blocked", "canary")
        assert "8 of 8 bundles with traffic may not move until guardrails.canary is widened" in second.sentence

    def test_once_it_is_gone_the_pair_moves_at_once(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It has kept its hits, as under any cap: one sample is enough."""
        hits = {"hit_count_high": 2, "hit_count_low": 2}
        for more in (0.1, 0.2, 0.3, 0.4):
            pulsar.sample(80.0 + more, 45.0 + more, 10.0 + more)
            held = test_turn.once(settings(pulsar, tmp_path, "shop/*", avg_shedder=hits))
        assert ALL_HELD in held.sentence
        assert set(StateDir(tmp_path / "state").load().memory.hits.values()) == {Hits(1, 1)}
        pulsar.sample(80.5, 45.5, 10.5)
        assert len(landed(test_turn.once(settings(pulsar, tmp_path, avg_shedder=hits)))) == 3

    @pytest.mark.parametrize("name", list(STRATEGIES))
    def test_whatever_the_strategy(self, name: str, shop: FakePulsar, tmp_path: Path) -> None:
        """Of a namespace without bundles nothing moves, and that is told; of another one its own bundles."""
        held, shop_alone = ({"canary": {"namespaces": [one], "max_moves_per_hour": 2}} for one in ("other/x", "shop/a"))
        record = test_turn.once(with_strategy(shop, tmp_path, name, guardrails=held))
        test_turn.unmoved(shop, record)
        assert (verdict(record).kind, verdict(record).reason) == ("blocked", "canary")
        assert "the canary keeps back " in record.sentence
        shop.sample(80.1, 45.1, 10.1)
        moved = landed(test_turn.once(with_strategy(shop, tmp_path, name, guardrails=shop_alone)))
        assert set(moved) <= set(SHOP)
        assert 0 < len(moved) <= 2

    def test_with_approval_the_plan_is_within_it(self, shop: FakePulsar, tmp_path: Path) -> None:
        """One bundle is proposed, and what the canary keeps back is said beside it; an hour has one plan."""
        with engine(settings(shop, tmp_path, "shop/*", mode="approve")) as balancer:
            record = balancer.once()
            assert balancer.proposal is not None
            shown = balancer.proposal
            (move,) = shown.unloads
            assert applied(balancer).exit_code == 0
            for more in (0.1, 0.2, 0.3):
                shop.sample(80.0 + more, 45.0 + more, 10.0 + more)
                later = balancer.turn()
            assert balancer.proposal is None
            other = next(name for name in SHOP if name != move.bundle)
            again = applied(balancer, replace(shown, unloads=[replace(move, bundle=other)]), name="p1")
        assert verdict(later).reason == "canary-per-hour"
        assert (again.exit_code, again.placed[0].detail.partition(",")[0]) == (4, "canary-per-hour: 1 of 1 used")
        assert move.bundle in SHOP
        assert record.sentence.startswith("Proposes to move 1 bundle (plan ")
        assert record.sentence.endswith(" of the plan (guardrails.canary).")

    def test_a_calm_cluster_says_nothing_of_it(self, shop: FakePulsar, tmp_path: Path) -> None:
        """Nothing is held of no plan."""
        shop.sample(40.0, 40.0, 40.0)
        record = test_turn.once(settings(shop, tmp_path, "shop/*"))
        assert verdict(record).kind == "balanced"
        assert "canary" not in record.sentence


class TestPeople:
    def test_an_unload_by_hand_is_not_held(self, shop: FakePulsar, tmp_path: Path) -> None:
        """Neither by the namespaces nor by the pace, shown or done; it counts for the turns that follow."""
        held, now = settings(shop, tmp_path, "shop/*"), time.time()
        for bundle in HOT[:2]:
            assert "Would move" in show_unload(held, bundle, shop.ids[2]).sentence
            request = UnloadRequest("r", bundle, shop.ids[2], None, "ann", now, now + 60)
            assert done(held, request).exit_code == 0
        usage = {one.name: one.used for one in dry_run(held).plan.usage}
        assert usage["canary-per-hour"] == 2

    def test_status_says_that_it_is_in_force(
        self, pulsar: FakePulsar, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """And what it holds; without one, nothing."""
        for namespaces in (("shop/a", "u/*"), ()):
            chosen = settings(pulsar, tmp_path, *namespaces)
            with engine(chosen) as balancer:
                status = build_status(balancer, balancer.once(), 1, None)
            show_status(status, 1, None, status.at)
            told = capsys.readouterr().out
            line = (
                "canary     only bundles of shop/a, u/* move, at most 1 an hour; it holds 3 of 3 bundles of the last "
                "turn's plan; remove guardrails.canary to widen\n"
            )
            assert (line in told) is bool(namespaces)
            assert (status.canary is not None) is bool(namespaces)


@pytest.mark.parametrize(
    ("hold", "words", "blocked"),
    [
        (CanaryHold(), "", []),
        (CanaryHold(1, {"a": 1}), "the canary keeps back 1 of 1 bundle of the plan (guardrails.canary)", ["a -> b"]),
        (
            CanaryHold(9, {"a": 3, "c": 2}),
            "the canary keeps back 5 of 9 bundles of the plan (guardrails.canary)",
            ["a -> b"],
        ),
    ],
)
def test_what_is_held(hold: CanaryHold, words: str, blocked: list[str]):
    """In words; a pair of whose source something is planned all the same is not blocked by it."""
    pairs = (Pair("a", "b", 50.0, Hits()), Pair("c", "d", 40.0, Hits()), Pair("e", "f", 30.0, Hits()))
    assert hold.words == words
    found = list(hold.blocks(pairs, {"c"}))
    assert [one.what for one in found] == blocked
    assert all(one.reason is Reason.CANARY for one in found)
