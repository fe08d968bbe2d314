"""Topic names are read beside the turns: a few in each, once an hour, and what cannot be read is not known."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.errors import AdminError
from lbd.model import Pool
from lbd.observe.topic_names import FAILED_SECONDS, NAMESPACES_A_TURN, READ_AGAIN_SECONDS, SpreadReader, TopicNames
from lbd.spread import SpreadSettings
from tests.act.test_executor import no_thread
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.model import Snapshot

WAIT_SECONDS = 10.0


@dataclass
class Lists:
    """The topics of each namespace: a topic of four partitions. ``now`` is epoch seconds."""

    now: float = TAKEN_AT
    failing: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def read(self, namespace: str) -> list[str]:
        """As :meth:`~lbd.pulsar.admin.Admin.topics`."""
        self.asked.append(namespace)
        if namespace in self.failing:
            raise AdminError(f"{namespace}: 403 Forbidden")
        return [f"persistent://{namespace}/orders-partition-{at}" for at in range(4)]

    def names(self) -> TopicNames:
        """What is read of them; each look reads it."""
        return TopicNames(self.read, lambda: self.now, inf)


def seen(namespaces: Sequence[str] = ("t/n",), bundles: int = 256) -> Snapshot:
    """Two brokers that share the bundles of each namespace."""
    names = [bundle(at, namespace) for namespace in namespaces for at in range(bundles)]
    parts = names[::2], names[1::2]
    return snapshot(
        {f"{id_}:80": report(10, {one: stats(1) for one in own}) for id_, own in zip("ab", parts, strict=True)}
    )


class TestReading:
    def test_a_list_is_read_once_an_hour(self) -> None:
        """Every other look costs nothing; a namespace that is gone is forgotten."""
        lists = Lists()
        names = lists.names()
        for later in (0.0, 60.0, READ_AGAIN_SECONDS - 1, READ_AGAIN_SECONDS):
            lists.now = TAKEN_AT + later
            assert set(names.by_namespace(seen())) == {"t/n"}
        assert lists.asked == ["t/n"] * 2

        assert names.by_namespace(seen(["t/other"])).keys() == {"t/other"}
        assert lists.asked == ["t/n", "t/n", "t/other"]

    def test_a_few_in_each_turn(self) -> None:
        """All are known after some turns."""
        lists, all_of_them = Lists(), [f"t/n{at}" for at in range(NAMESPACES_A_TURN + 5)]
        names = lists.names()

        assert [len(names.by_namespace(seen(all_of_them, 2))) for _ in range(2)] == [
            NAMESPACES_A_TURN,
            len(all_of_them),
        ]
        assert sorted(lists.asked) == sorted(all_of_them)

    @pytest.mark.parametrize(("namespace", "bundles"), [("t/single", 1), ("t/cluster/old", 2)])
    def test_not_of_one_bundle_nor_of_an_old_name(self, namespace: str, bundles: int) -> None:
        """One bundle is on one broker in any case."""
        lists = Lists()

        assert lists.names().by_namespace(seen([namespace], bundles)) == {}
        assert lists.asked == []

    def test_what_cannot_be_read_is_not_known_and_read_again_later(self) -> None:
        """The trouble is named; the other lists wait for the next turn, and this one for ten minutes."""
        lists = Lists(failing={"t/a"})
        names = lists.names()

        assert names.by_namespace(seen(["t/a", "t/b"])) == {}
        assert names.trouble == "topics of t/a are not known, spread.by does not count them: t/a: 403 Forbidden"
        assert names.by_namespace(seen(["t/a", "t/b"])).keys() == {"t/b"}

        lists.failing.clear()
        lists.now += FAILED_SECONDS
        assert names.by_namespace(seen(["t/a", "t/b"])).keys() == {"t/a", "t/b"}
        assert (names.trouble, lists.asked) == ("", ["t/a", "t/b", "t/a"])

    def test_a_slow_broker_holds_no_turn(self) -> None:
        """A look without a wait returns at once, and begins nothing more while a list is read."""
        lists, answers = Lists(), threading.Event()

        def slowly(namespace: str) -> list[str]:
            assert answers.wait(WAIT_SECONDS)
            return lists.read(namespace)

        names = TopicNames(slowly, lambda: lists.now)
        assert [names.by_namespace(seen()) for _ in range(3)] == [{}, {}, {}]
        answers.set()
        for _ in range(1000):
            if names.by_namespace(seen()):
                break
            threading.Event().wait(0.01)
        assert (set(names.by_namespace(seen())), lists.asked) == ({"t/n"}, ["t/n"])

    def test_a_thread_that_could_not_be_had_fails_no_turn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is said, and the next turn begins to read."""
        lists = Lists()
        names = TopicNames(lists.read, lambda: lists.now, WAIT_SECONDS)
        with monkeypatch.context() as full:
            no_thread(full, "lbd-topics")
            assert names.by_namespace(seen()) == {}
        assert "can't start new thread" in names.trouble
        assert (set(names.by_namespace(seen())), names.trouble) == ({"t/n"}, "")


class TestSpread:
    @pytest.mark.parametrize(("by", "asked"), [("none", 0), ("namespace", 0), ("topic", 1)])
    def test_only_topics_cost_requests(self, by: str, asked: int) -> None:
        """Off costs nothing, and namespaces are in the names of bundles."""
        lists = Lists()
        found = SpreadReader(SpreadSettings.model_validate({"by": by}), lists.names())(seen(), ())

        assert len(lists.asked) == asked
        assert (found is None) is (by == "none")

    def test_partitions_on_each_broker(self) -> None:
        """Those of bundles that a broker reports; what two brokers report is on none of them."""
        lists, both = Lists(), seen()
        twice = snapshot({"a:80": report(10, {bundle(0): stats(1)}), "b:80": report(10, {bundle(0): stats(1)})})
        read = SpreadReader(SpreadSettings(by="topic"), lists.names())

        found = read(both, ())
        assert found is not None
        assert (found.groups, found.on.sum(), found.share.tolist()) == (("persistent://t/n/orders",), 4, [2.0])

        single = SpreadReader(SpreadSettings(by="namespace"), lists.names())(twice, ())
        assert single is not None
        assert single.on.sum() == 0

    def test_a_share_is_that_of_the_pool(self) -> None:
        """Bundles that may be on one broker only are not apart anywhere."""
        both = seen()
        pool = Pool("own", np.array([True, False]), np.ones(len(both.bundles), dtype=np.bool_))

        found = SpreadReader(SpreadSettings(by="topic"), Lists().names())(both, (pool,))
        assert found is not None
        assert found.share.tolist() == [4.0]
