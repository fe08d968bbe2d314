"""Budgets and calm in whole turns against a fake Pulsar: what is held, what is said, and what a restart remembers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbd.cli.status_text import budget_text
from lbd.daemon.engine import engine
from lbd.daemon.status import build_status
from lbd.model import Result
from lbd.operations.dry import dry_run
from lbd.permit.progress import Progress
from lbd.permit.settings import Guardrails
from lbd.reason import Group, Reason
from lbd.store.control import UnloadRequest
from lbd.store.journal import read
from lbd.store.state import StateDir, TurnMemory
from lbd.turn.record import turn_record
from lbd.turn.verdict import verdict
from tests import test_turn
from tests.builders import state_begun
from tests.daemon.alone import done
from tests.fake_pulsar import COLD, HOT

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.turn.parts import TurnResult
    from tests.fake_pulsar import FakePulsar

ALWAYS = [{"from": "00:00", "to": "24:00"}]


def settings(cluster: FakePulsar, folder: Path, **guardrails: Any) -> Settings:
    """One hit is enough, a turn may move much, and bundles do not rest, unless said; with traffic as it is here stock
    moves for every gap.
    """
    shedder = {"hit_count_high": 1, "hit_count_low": 1}
    rails = {"cool_down_minutes": 0, **guardrails}
    return test_turn.settings(cluster, folder, profile="stock", avg_shedder=shedder, guardrails=rails)


def once(chosen: Settings) -> TurnResult:
    """One turn of a process of its own, and the end of its moves."""
    with engine(chosen) as balancer:
        return balancer.once()


def landed(record: TurnResult) -> list[str]:
    """The bundles that were moved."""
    return sorted(one.unload.bundle for one in record.moves.outcomes if one.result is Result.LANDED)


def told(record: TurnResult, reason: Reason) -> list[str]:
    """What was said with this reason."""
    return [skip.detail for skip in record.skips if skip.reason is reason]


def settle(pulsar: FakePulsar, chosen: Settings, *cpu: float) -> None:
    """Two fresh samples of each broker, seen by turns that a tired lbd cannot fire in."""
    for more in (0.1, 0.2):
        pulsar.sample(*(one + more for one in cpu))
        once(chosen)


def by_hand(pulsar: FakePulsar, override: str | None, number: int = 0, to: int = 2) -> UnloadRequest:
    """A person asks for one bundle."""
    now = time.time()
    return UnloadRequest("r", HOT[number], pulsar.ids[to], override, "ann", now, now + 60)


class TestBudgets:
    def test_they_are_counted_from_the_journal(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Two of three are moved; the next process has nothing left, and says when there is more."""
        chosen = settings(pulsar, tmp_path, max_unloads_per_hour=2)
        first = once(chosen)
        assert (len(landed(first)), len(told(first, Reason.HOUR_UNLOADS))) == (2, 1)
        settle(pulsar, chosen, 90.0, 45.0, 10.0)
        pulsar.sample(95.0, 45.0, 10.0)
        second = once(chosen)
        assert second.plan.unloads == ()
        used_up = "2 of 2 used, the next one in 1 h (guardrails.max_unloads_per_hour)"
        assert told(second, Reason.HOUR_UNLOADS)[0] == used_up
        for record in (second, once(chosen)):  # the other one has no new sample: it is blocked all the same
            pair = f"{pulsar.ids[0]} -> {pulsar.ids[2]} 85.0 points apart"
            assert record.sentence == f"No move: {pair}, blocked by unloads-per-hour: {used_up}."
            assert verdict(record).words == f"blocked by unloads-per-hour: {pair}; {used_up}"
        assert turn_record(record, 0.0).pairs[0].reason == Reason.HOUR_UNLOADS.label

    def test_by_hand_counts_and_a_person_may_pass(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Refused with the budget in words, done with a reason of one's own, and counted either way."""
        chosen = settings(pulsar, tmp_path, max_unloads_per_day=1)
        answers = [done(chosen, by_hand(pulsar, override, number)) for number, override in enumerate((None, None, "x"))]
        assert [answer.exit_code for answer in answers] == [0, 4, 0]
        assert "unloads-per-day: 1 of 1 used" in answers[1].sentence
        assert len(read(chosen.state_dir / "lbd.db").sent) == 2

    def test_status_shows_what_is_left(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """With what this turn sends; brokers by the one that has used most."""
        with engine(settings(pulsar, tmp_path, max_unloads_per_day=0)) as balancer:
            found = build_status(balancer, balancer.once(), 1, None)
        assert [budget_text(one) for one in found.budgets] == [
            "unloads-per-hour 3 of 30, 27 left",
            "unloads-per-day 3, no limit",
            f"unloads-per-source ({pulsar.ids[0]}) 3 of 20, 17 left",
            f"unloads-per-destination ({pulsar.ids[2]}) 3 of 20, 17 left",
        ]


class TestQuietHours:
    def test_nothing_is_moved(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The counters stop one below the limit; the sentence says until when."""
        chosen = settings(pulsar, tmp_path, quiet_hours=ALWAYS)
        record = once(chosen)
        assert record.moves.outcomes == ()
        assert record.sentence.startswith("No move: quiet-hours: 00:00-24:00 UTC, and no time of the week is left")
        assert all(hits.high == 0 for hits in StateDir(chosen.state_dir).load().hits.values())
        pulsar.sample(80.5, 45.5, 10.5)
        assert len(landed(once(settings(pulsar, tmp_path)))) == 3

    def test_a_dry_run_shows_what_would_move_and_says_so(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The hold would only hide the answer."""
        record = dry_run(settings(pulsar, tmp_path, quiet_hours=ALWAYS))
        assert len(record.plan.unloads) == 3
        assert told(record, Reason.QUIET_HOURS)[0].startswith(
            "lbd run would move nothing: 00:00-24:00 UTC, and no time"
        )

    def test_a_person_may_move(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """With a reason; without one the hold is the answer."""
        chosen = settings(pulsar, tmp_path, quiet_hours=ALWAYS)
        assert "quiet-hours" in done(chosen, by_hand(pulsar, None)).sentence
        assert done(chosen, by_hand(pulsar, "an outage")).exit_code == 0

    def test_properties_of_namespaces_do_not_hold_a_request_by_hand(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """They bind turns; a person may move what an application team keeps still."""
        pulsar.policies.properties = {"t/n": {"lbd.balance": "off"}}
        chosen = settings(pulsar, tmp_path, namespace_properties=True)
        assert once(chosen).moves.outcomes == ()
        assert done(chosen, by_hand(pulsar, None)).exit_code == 0

    def test_what_is_planned_stops_when_they_begin(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Asked before each request: the plan was made a moment before."""
        with engine(settings(pulsar, tmp_path)) as balancer:
            parts = balancer._real.parts()
            orders = balancer._real._orders()
            assert orders.held() is None
            balancer._real.settings = settings(pulsar, tmp_path, quiet_hours=ALWAYS)
            held = orders.held()
        assert held is not None
        assert (held[0], parts.planning.guardrails.quiet_hours) == (Reason.QUIET_HOURS, ())


class TestChangedHands:
    def test_a_bundle_that_others_moved_rests(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """From the turn that sees it, also after a restart; what lbd moved itself rests for its attempt alone."""
        chosen = settings(pulsar, tmp_path, cool_down_minutes=30, max_unloads_per_turn=1)
        with engine(chosen) as balancer:
            moved = landed(balancer.once())
            other = next(bundle for bundle in HOT if bundle not in moved)
            pulsar.owners[other] = pulsar.ids[1]
            seen = balancer.once()
        again = once(chosen)
        for record in (seen, again):
            assert (record.plan.counts["changed-hands"], record.plan.counts["cool-down"]) == (1, 1)
        assert list(StateDir(chosen.state_dir).load().changed_at) == [other]

    def test_a_second_lbd_sees_what_the_first_one_moves_and_not_the_other_way_round(
        self, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Each has a journal of its own, as two have that do not elect a leader."""
        with (
            engine(settings(pulsar, tmp_path / "first", max_unloads_per_turn=2)) as first,
            engine(settings(pulsar, tmp_path / "second", max_unloads_per_turn=1, quiet_hours=ALWAYS)) as second,
        ):
            second.once()
            moved = landed(first.once())
            others, own = second.once().facts, first.once().facts
        assert others is not None
        assert own is not None
        assert others.taken_by_others == {bundle: (pulsar.ids[0], pulsar.owner(bundle)) for bundle in moved}
        assert (len(moved), own.taken_by_others) == (2, {})

    def test_a_request_by_hand_takes_no_change_from_the_turns(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """It looks at a round of its own; the next turn still learns of it."""
        with engine(settings(pulsar, tmp_path, cool_down_minutes=30, max_unloads_per_turn=1)) as balancer:
            moved = landed(balancer.once())
            other = next(bundle for bundle in HOT if bundle not in moved)
            pulsar.owners[other] = pulsar.ids[1]
            balancer._dispatcher.begin(by_hand(pulsar, None, HOT.index(moved[0])), balancer._real.beside)
            assert balancer.once().plan.counts["changed-hands"] == 1

    def test_a_person_may_move_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The answer says why not, and how."""
        chosen = settings(pulsar, tmp_path, cool_down_minutes=30)
        state_begun(chosen.state_dir).save(TurnMemory(changed_at={HOT[0]: time.time()}))
        refused = done(chosen, by_hand(pulsar, None))
        assert (refused.exit_code, "its owner changed a while ago" in refused.sentence) == (4, True)
        assert done(chosen, by_hand(pulsar, "x")).exit_code == 0


class TestPingPong:
    def test_nothing_goes_straight_back(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The cold broker is hot now: it gives what it had before, not what it was given."""
        chosen = settings(pulsar, tmp_path)
        moved = landed(once(chosen))
        pulsar.rates.update(dict.fromkeys(moved, 9000.0))
        settle(pulsar, settings(pulsar, tmp_path, quiet_hours=ALWAYS), 20.0, 45.0, 80.0)
        pulsar.sample(20.5, 45.0, 80.5)
        record = once(chosen)
        assert moved
        assert not set(moved) & {one.bundle for one in record.plan.unloads}
        assert record.plan.counts["ping-pong"] == len(moved)

    def test_a_person_may_send_it_back(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Refused with the reason, done when it is overridden."""
        chosen = settings(pulsar, tmp_path)
        assert done(chosen, by_hand(pulsar, None)).exit_code == 0
        pulsar.rates[COLD] = 8000.0
        pulsar.sample(20.0, 45.0, 80.0)
        refused = done(chosen, by_hand(pulsar, None, to=0))
        assert (refused.exit_code, "ping-pong" in refused.sentence) == (4, True)
        assert done(chosen, by_hand(pulsar, "x", to=0)).exit_code == 0


class TestNoImprovement:
    def rounds(self, pulsar: FakePulsar, chosen: Settings, number: int, cold: float = 10.0) -> TurnResult:
        """So many rounds after which the brokers are as far apart as before, each in a process of its own."""
        resting = chosen.model_copy(
            update={"guardrails": chosen.guardrails.model_copy(update={"max_unloads_per_turn": 1})}
        )
        for more in range(number):
            pulsar.sample(80.0 + more / 10, 45.0 + more / 10, cold + more / 10)
            once(resting)
            pulsar.sample(80.05 + more / 10, 45.05 + more / 10, cold + 0.05 + more / 10)
            once(resting)
        pulsar.sample(81.0, 46.0, cold + 1)
        return once(resting)

    def test_it_stands_still_after_three_rounds(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """And says what was tried; a person may still move."""
        chosen = settings(pulsar, tmp_path)
        record = self.rounds(pulsar, chosen, 3)
        assert record.plan.hold is not None
        assert record.plan.hold[0] is Reason.NO_IMPROVEMENT
        first, _, third = pulsar.ids
        assert (
            f"3 rounds of moves in a row brought no brokers closer, at best {first} -> {third}: 70." in record.sentence
        )
        assert len(read(chosen.state_dir / "lbd.db").sent) == 3
        assert told(dry_run(chosen), Reason.NO_IMPROVEMENT)
        left = next(number for number, bundle in enumerate(HOT) if pulsar.owners[bundle] == first)
        assert done(chosen, by_hand(pulsar, None, left)).exit_code == 4
        assert done(chosen, by_hand(pulsar, "x", left)).exit_code == 0

    def test_improvement_begins_anew(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Two rounds in vain, then one that helps."""
        chosen = settings(pulsar, tmp_path)
        self.rounds(pulsar, chosen, 2)
        assert StateDir(chosen.state_dir).load().progress.rounds == 2
        pulsar.sample(70.0, 45.3, 20.0)
        once(chosen)
        pulsar.sample(70.1, 45.4, 20.1)
        record = once(settings(pulsar, tmp_path, quiet_hours=ALWAYS))
        assert record.plan.hold is not None
        assert record.plan.hold[0] is Reason.QUIET_HOURS
        assert StateDir(chosen.state_dir).load().progress == Progress()


def test_every_guardrail_is_in_the_document():
    """Each setting, and each reason of a limit, stands in docs/guardrails.md; each setting says what it means."""
    document = (Path(__file__).parents[1] / "docs" / "guardrails.md").read_text()
    told_elsewhere = {"excluded_namespaces", "move_costs", "move_system_namespace"}
    told_elsewhere |= {"unload_spacing_seconds", "max_unloads_at_once"}
    settings_ = {name for name in Guardrails.model_fields if name not in told_elsewhere}
    limits = {reason.label for reason in Reason if reason.group is Group.LIMIT}
    assert {name for name in settings_ | limits if f"`{name}`" not in document} == set()
    assert all(field.description for field in Guardrails.model_fields.values())
