"""A plan is worked off one by one: intent before the request, outcome after it, and no more after two misses."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from lbd.act.executor import Executor, close_open
from lbd.act.ownership import Clock
from lbd.act.unloader import Unloader
from lbd.model import Outcome, Result, Unload
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.record.journal import Journal, read
from tests import fake_pulsar
from tests.fake_pulsar import FakePulsar, Reply, refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BUNDLES = [f"t/n/0x{number << 28:08x}_0x{(number + 1) << 28:08x}" for number in range(6)]


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A cluster of its own for each test: broker 1 owns six bundles, broker 2 leads."""
    with fake_pulsar.started() as cluster:
        cluster.own(cluster.ids[0], dict.fromkeys(BUNDLES, 100.0))
        yield cluster


@dataclass
class Diary:
    """A journal in memory that also notes what had been asked of the brokers when each line was written."""

    pulsar: FakePulsar
    lines: list[tuple[str, str, int, int]] = field(default_factory=list)

    def intend(self, unload: Unload, attempt: int) -> str:
        """Note the attempt and how many unloads had been sent before it."""
        self.lines.append(("intent", unload.bundle, attempt, self._sent()))
        return str(len(self.lines))

    def conclude(self, move: str, outcome: Outcome) -> None:
        """Note the outcome."""
        assert self.lines[int(move) - 1][0] == "intent"
        self.lines.append((outcome.result.value, outcome.unload.bundle, outcome.attempts, self._sent()))

    def _sent(self) -> int:
        return len(self.pulsar.asked("/unload", "PUT"))


def accepting(unload: Unload, owner: str) -> bool:
    """Any third broker will do."""
    del unload, owner
    return True


def refusing(unload: Unload, owner: str) -> bool:
    """No third broker will do."""
    del unload, owner
    return False


def unloader(pulsar: FakePulsar) -> Unloader:
    """An unloader that waits for nothing."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return Unloader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), Clock(lambda: now[0], sleep))


def plan(pulsar: FakePulsar, *numbers: int, source: int = 0) -> list[Unload]:
    """Unloads of these bundles to the third broker."""
    return [Unload(BUNDLES[number], pulsar.ids[source], pulsar.ids[2], 200.0, 20_000.0) for number in numbers]


def results(outcomes: list[Outcome]) -> list[tuple[str, int]]:
    """How each ended, and after how many attempts."""
    return [(outcome.result.value, outcome.attempts) for outcome in outcomes]


class TestJournal:
    def test_intent_before_the_request_and_outcome_after(self, pulsar: FakePulsar) -> None:
        """At each intent no request of that unload was sent yet; each takes two: leader and owner."""
        diary = Diary(pulsar)
        outcomes = list(Executor(unloader(pulsar), diary, accepting).run(plan(pulsar, 0, 1)))
        assert results(outcomes) == [("landed", 1), ("landed", 1)]
        assert diary.lines == [
            ("intent", BUNDLES[0], 1, 0),
            ("landed", BUNDLES[0], 1, 2),
            ("intent", BUNDLES[1], 1, 2),
            ("landed", BUNDLES[1], 1, 4),
        ]

    def test_nothing_is_done_before_it_is_asked_for(self, pulsar: FakePulsar) -> None:
        """Outcomes come as they end; who stops asking stops the round."""
        outcomes = Executor(unloader(pulsar), Diary(pulsar), accepting).run(plan(pulsar, 0, 1))
        assert pulsar.requests == []
        assert next(outcomes).result is Result.LANDED
        assert pulsar.owners[BUNDLES[1]] == pulsar.ids[0]

    def test_a_retry_has_lines_of_its_own(self, pulsar: FakePulsar) -> None:
        """Every attempt starts a cool-down, so every attempt is written."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[0]]
        diary = Diary(pulsar)
        list(Executor(unloader(pulsar), diary, accepting).run(plan(pulsar, 0)))
        assert [line[:3] for line in diary.lines] == [
            ("intent", BUNDLES[0], 1),
            ("landed-elsewhere", BUNDLES[0], 1),
            ("intent", BUNDLES[0], 2),
            ("landed", BUNDLES[0], 2),
        ]


class TestRetry:
    @pytest.mark.parametrize(
        ("thieves", "accepts", "expected"),
        [
            ([0], True, ("landed", 2)),
            ([0, 0], True, ("landed-elsewhere", 2)),
            ([0, 1], True, ("landed-elsewhere", 2)),
            ([1], True, ("landed-elsewhere", 1)),
        ],
        ids=["came back", "came back twice", "came back, then elsewhere", "a healthy third broker"],
    )
    def test_once_more_when_it_came_back(
        self, thieves: list[int], accepts: bool, expected: tuple[str, int], pulsar: FakePulsar
    ) -> None:
        """A bundle back on its source is tried once more; one on a healthy third broker stays there."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[thief] for thief in thieves]
        executor = Executor(unloader(pulsar), Diary(pulsar), accepting if accepts else refusing)
        assert results(list(executor.run(plan(pulsar, 0)))) == [expected]

    def test_once_more_when_it_must_not_stay_there(self, pulsar: FakePulsar) -> None:
        """It landed where policy or load forbid: it is moved on from where it is now, to where it was meant to go."""
        pulsar.steals[BUNDLES[0]] = [pulsar.ids[1]]
        outcomes = list(Executor(unloader(pulsar), Diary(pulsar), refusing).run(plan(pulsar, 0)))
        assert results(outcomes) == [("landed", 2)]
        assert pulsar.owners[BUNDLES[0]] == pulsar.ids[2]

    @pytest.mark.parametrize(
        "reply", [refused(409, "inactive"), refused(412, "split"), refused(500, "not active"), refused(503, "busy")]
    )
    def test_a_refusal_is_not_tried_again(self, reply: Reply, pulsar: FakePulsar) -> None:
        """The broker said no; the next turn decides anew."""
        pulsar.fault("/unload", reply, broker=pulsar.ids[0])
        assert results(list(Executor(unloader(pulsar), Diary(pulsar), refusing).run(plan(pulsar, 0)))) == [
            ("failed", 1)
        ]
        assert len(pulsar.asked("/unload")) == 2

    def test_silence_is_not_tried_again(self, pulsar: FakePulsar) -> None:
        """What may have happened is judged, never repeated."""
        pulsar.fault("/unload", fake_pulsar.SILENCE, broker=pulsar.ids[0], after_acting=True)
        executor = Executor(unloader(pulsar), Diary(pulsar), refusing)
        assert results(list(executor.run(plan(pulsar, 0)))) == [("unowned", 1)]
        assert len(pulsar.asked("/unload")) == 2


class TestStopping:
    @pytest.mark.parametrize(
        ("stolen", "expected"),
        [
            ([], ["landed"] * 6),
            ([0], ["landed-elsewhere"] + ["landed"] * 5),
            ([0, 1], ["landed-elsewhere"] * 2),
            ([1, 2], ["landed", "landed-elsewhere", "landed-elsewhere"]),
            ([0, 2, 4], ["landed-elsewhere", "landed", "landed-elsewhere", "landed", "landed-elsewhere", "landed"]),
            ([0, 4, 5], ["landed-elsewhere", "landed", "landed", "landed", "landed-elsewhere", "landed-elsewhere"]),
        ],
        ids=["none", "one", "the first two", "two in a row", "every other", "the last two"],
    )
    def test_two_misses_in_a_row_stop_the_round(
        self, stolen: list[int], expected: list[str], pulsar: FakePulsar
    ) -> None:
        """A landing between two misses begins the count anew."""
        for number in stolen:
            pulsar.steals[BUNDLES[number]] = [pulsar.ids[1]]
        outcomes = list(Executor(unloader(pulsar), Diary(pulsar), accepting).run(plan(pulsar, *range(6))))
        assert [outcome.result.value for outcome in outcomes] == expected

    def test_misses_are_counted_for_each_source(self, pulsar: FakePulsar) -> None:
        """One miss each from two sources stops nothing."""
        for number in (0, 1):
            pulsar.steals[BUNDLES[number]] = [pulsar.ids[number ^ 1]]
        pulsar.owners[BUNDLES[1]] = pulsar.ids[1]
        mixed = [*plan(pulsar, 0), *plan(pulsar, 1, source=1), *plan(pulsar, 2)]
        outcomes = list(Executor(unloader(pulsar), Diary(pulsar), accepting).run(mixed))
        assert [outcome.result.value for outcome in outcomes] == ["landed-elsewhere", "landed-elsewhere", "landed"]

    def test_a_dead_leader_stops_the_round(self, pulsar: FakePulsar) -> None:
        """Nothing that would need it is sent."""
        pulsar.kill(pulsar.ids[1])
        outcomes = list(Executor(unloader(pulsar), Diary(pulsar), accepting).run(plan(pulsar, *range(6))))
        assert results(outcomes) == [("failed", 1)] * 2
        assert pulsar.asked("/unload") == []

    def test_an_empty_plan(self, pulsar: FakePulsar) -> None:
        """Asks nobody."""
        assert list(Executor(unloader(pulsar), Diary(pulsar), accepting).run([])) == []
        assert pulsar.requests == []


class TestAfterAKill:
    @pytest.mark.parametrize(
        ("owner", "result"),
        [(2, "landed"), (0, "failed"), (1, "landed-elsewhere"), (None, "unowned")],
        ids=["it landed", "it never left", "it went elsewhere", "nobody owns it"],
    )
    def test_an_open_intent_is_closed_by_who_owns_it(
        self, owner: int | None, result: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Nothing is sent; the outcome is in the journal, and with it the intent is no longer open."""
        before = Journal(tmp_path / "j", time.time)
        before.intend(plan(pulsar, 0)[0], 1)
        before.close()
        pulsar.owners[BUNDLES[0]] = None if owner is None else pulsar.ids[owner]
        journal = Journal(tmp_path / "j", time.time)
        close_open(journal, unloader(pulsar))
        journal.close()
        assert read(tmp_path / "j").open == ()
        assert f'"result":"{result}"' in (tmp_path / "j").read_text(encoding="utf-8")
        assert pulsar.asked("/unload") == []

    def test_what_is_closed_is_left_alone(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A journal without open intents asks nobody and grows by nothing."""
        journal = Journal(tmp_path / "j", time.time)
        list(Executor(unloader(pulsar), journal, accepting).run(plan(pulsar, 0)))
        journal.close()
        before, asked = (tmp_path / "j").read_bytes(), len(pulsar.requests)
        journal = Journal(tmp_path / "j", time.time)
        close_open(journal, unloader(pulsar))
        journal.close()
        assert (tmp_path / "j").read_bytes() == before
        assert len(pulsar.requests) == asked


def test_a_stop_before_the_first_unload(pulsar: FakePulsar) -> None:
    """Nothing is begun: no intent, no request, no outcome."""
    diary = Diary(pulsar)
    assert list(Executor(unloader(pulsar), diary, accepting, lambda: True).run(plan(pulsar, 0, 1))) == []
    assert diary.lines == []
    assert pulsar.requests == []


def test_a_stop_between_two_unloads(pulsar: FakePulsar) -> None:
    """The one in flight is brought to its end, and the next is not begun."""
    diary = Diary(pulsar)
    executor = Executor(unloader(pulsar), diary, accepting, lambda: bool(diary.lines))
    assert results(list(executor.run(plan(pulsar, 0, 1)))) == [("landed", 1)]
    assert [line[0] for line in diary.lines] == ["intent", "landed"]


def test_an_open_intent_on_what_is_gone_is_closed(pulsar: FakePulsar, tmp_path: Path) -> None:
    """A namespace that was deleted has no owner: the intent ends, and the next start finds none open."""
    journal = Journal(tmp_path / "j", time.time)
    journal.intend(Unload("gone/ns/0x00000000_0xffffffff", pulsar.ids[0], pulsar.ids[2], 1.0, 1.0), 1)
    close_open(journal, unloader(pulsar))
    journal.close()
    assert read(tmp_path / "j").open == ()
