"""Beside a broker that is listed and answers nothing: turns, what people read, and drains to it and of it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lbd.daemon.api_backend import Serving
from lbd.doctor.brokers import check_cluster
from lbd.doctor.survey import survey
from lbd.errors import AdminError
from lbd.model import Outcome, Result, Unload
from lbd.operations.drain import looked_for_again, show_drain
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.store.drains import Drains
from tests.daemon.test_draining import asked, ended, give, owned, settings
from tests.daemon.test_draining_troubles import begun
from tests.silence import LIMIT_SECONDS
from tests.simulate import fakes
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.pulsar.broker_health import BrokerHealth
    from lbd.simulate.fake_pulsar import FakePulsar
    from tests.simulate.fakes import Run

ENDLESS = 1_000_000
"""Requests that a switch takes before it is used up; how many are gone says how often the broker was asked."""


@pytest.fixture
def lbd(cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A live lbd beside it, whose strategy wants nothing by itself."""
    chosen = settings(cluster, tmp_path)
    with fakes.run(cluster, tmp_path, monkeypatch, chosen) as found:
        yield found


def hang(cluster: FakePulsar, broker: str) -> Switch:
    """From now on it answers nothing."""
    return cluster.faults.on(Switch(Fault.SILENT, broker, times=ENDLESS))


def asked_for(switch: Switch) -> int:
    """How many requests it has left unanswered."""
    return ENDLESS - (switch.times or 0)


def silences(lbd: Run) -> BrokerHealth:
    """Those of a lbd that asks again every tenth of a second."""
    found = lbd.engine.silences
    found._again_seconds = 0.1
    return found


def until_heard(known: BrokerHealth, broker: str) -> None:
    """Until it is known to answer again; that takes a tenth of a second, or more where the machine is busy."""
    for _ in range(600):
        if known.since(f"http://{broker}") is None:
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"{broker} answers, and is still taken for silent")


def asking() -> int:
    """How many threads of this process wait to ask brokers again."""
    return sum(thread.name == "lbd-asks-again" for thread in threading.enumerate())


class TestTurns:
    def test_it_is_waited_for_once(self, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """By the turn that finds out, and by none after it; the others are balanced meanwhile, without it."""
        hot, warm, cold = cluster.brokers
        cluster.lead(warm)
        switch = hang(cluster, cold)
        chosen = fakes.settings(cluster, tmp_path)
        with fakes.run(cluster, tmp_path, monkeypatch, chosen) as lbd:
            first = lbd.turn()
            found_out = asked_for(switch)
            later = lbd.turns(4)
            moves = lbd.true_moves()
        assert first.observation is not None
        assert first.observation.silent == (cold,)
        assert asked_for(switch) == found_out
        assert {move.source for move in moves} == {hot}
        assert cold not in {move.destination for move in moves}
        for record in (first, *later):
            assert f"; {cold} does not answer since " in record.sentence, record.sentence

    def test_one_that_answers_again_takes_part_again(self, lbd: Run, cluster: FakePulsar):
        """Without a restart of lbd."""
        known, switch = silences(lbd), hang(cluster, cluster.brokers[2])
        lbd.turn()
        cluster.faults.off(switch)
        until_heard(known, cluster.brokers[2])
        seen = lbd.turn()
        assert seen.observation is not None
        assert dict(seen.observation.missing) == {}
        assert "does not answer" not in seen.sentence

    def test_a_leader_that_answers_nothing_holds_every_move_and_is_named(self, lbd: Run, cluster: FakePulsar):
        """Its session lives, so nobody replaces it: somebody has to."""
        assert cluster.leader is not None
        hang(cluster, cluster.leader)
        lbd.turns(2)
        record = lbd.turn()
        assert record.plan.hold is not None
        assert record.plan.hold[0] is Reason.LEADER_UNREACHABLE
        assert f"{cluster.leader} does not answer since" in record.sentence
        assert f"one that hangs, as {cluster.leader} may, leads until it is restarted" in record.sentence

    def test_who_answers_people_knows_what_turns_know(self, lbd: Run, cluster: FakePulsar):
        """Also once settings were read again: each question takes one more of a hung broker's threads."""
        silent = f"http://{cluster.brokers[2]}"
        serving = Serving(lbd.engine, lambda: 0.0, lambda: 60.0)
        hang(cluster, cluster.brokers[2])
        with pytest.raises(AdminError, match="no answer in time"):
            lbd.engine.looking.admin.http.send("GET", f"{silent}/admin/v2/brokers/version")
        serving.take(serving.settings)
        for admin in (serving._picker._admin, serving._planner._admin):
            with pytest.raises(AdminError, match="does not answer since"):
                admin.http.send("GET", f"{silent}/admin/v2/brokers/version")
        assert asking() == 1
        serving.stop()
        assert asking() == 1

    def test_who_is_shown_a_drain_waits_for_it_no_more(self, lbd: Run, cluster: FakePulsar):
        """The API looks at the cluster anew for each such question, and knows what turns know."""
        switch = hang(cluster, cluster.brokers[2])
        lbd.turn()
        found_out = asked_for(switch)
        shown = show_drain(lbd.engine.settings, cluster.brokers[1], lbd.engine.looking)
        assert shown.look.observation.silent == (cluster.brokers[2],)
        assert asked_for(switch) == found_out

    def test_other_settings_leave_known_what_was_known(self, lbd: Run, cluster: FakePulsar):
        """A broker that was mistrusted is so however often settings are read, and however long it is waited for."""
        broker, engine = cluster.brokers[2], lbd.engine
        engine.looking.admin.mistrust(broker)
        since, looking = engine.silences.since(f"http://{broker}"), engine.looking
        engine.take(engine.settings)
        assert engine.looking is looking
        longer = engine.settings.pulsar.model_copy(update={"read_timeout_seconds": 2 * LIMIT_SECONDS})
        engine.take(engine.settings.model_copy(update={"pulsar": longer}))
        assert engine.looking is not looking
        assert engine.looking.admin.silent_since(broker) == since

    def test_other_addresses_end_what_was_asked_at_those_before(self, lbd: Run, cluster: FakePulsar):
        """They may be another cluster's, or no longer in the clear: what hung there gets no token of these."""
        engine = lbd.engine
        hang(cluster, cluster.brokers[2])
        lbd.turn()
        assert asking() == 1
        others = engine.settings.pulsar.model_copy(update={"admin_urls": (f"http://{cluster.brokers[0]}",)})
        engine.take(engine.settings.model_copy(update={"pulsar": others}))
        for _ in range(600):
            if not asking():
                break
            threading.Event().wait(0.05)
        assert asking() == 0
        assert engine.looking.admin.silent_since(cluster.brokers[2]) is None

    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_of_a_leader_that_hangs_the_doctor_promises_no_end(self, cluster: FakePulsar, tmp_path: Path):
        """Its session lives: waiting for that to end is no advice."""
        assert cluster.leader is not None
        hang(cluster, cluster.leader)
        seen = survey(settings(cluster, tmp_path), cluster.now)
        assert seen.observation is not None
        told = next(one for one in check_cluster(seen, seen.observation) if one.check == "leader")
        assert f"restart {cluster.leader}" in told.todo

    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_the_doctor_says_what_to_do(self, cluster: FakePulsar, tmp_path: Path):
        """Keep what tells why, then end it: it stays listed for as long as it hangs."""
        hang(cluster, cluster.brokers[2])
        seen = survey(settings(cluster, tmp_path), cluster.now)
        assert seen.observation is not None
        told = next(one for one in check_cluster(seen, seen.observation) if one.check == "reports")
        assert f"{cluster.brokers[2]}: does not answer since" in told.seen
        assert f"thread dump of {cluster.brokers[2]}" in told.todo


class TestDrainBeside:
    def test_nothing_is_planned_to_go_there(self, lbd: Run, cluster: FakePulsar):
        """The drain comes to its end on the others."""
        healthy, silent, target = cluster.brokers
        cluster.lead(healthy)
        hang(cluster, silent)
        work = ended(lbd, asked(target))
        assert (work.exit_code, work.owned) == (0, 0), work
        assert {move.destination for move in lbd.true_moves()} == {healthy}

    def test_it_hangs_in_the_middle(self, lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch):
        """What is left goes to the one that answers, and the drain ends; what nobody took is on its source again."""
        target, healthy, silent = cluster.brokers
        cluster.lead(healthy)
        begun(lbd, asked(target), monkeypatch, part=4)
        before = len(lbd.moves())
        hang(cluster, silent)
        lbd.engine.draining.to_the_end(lbd.engine.go_on)
        work = lbd.engine.draining.works.of("r1")
        assert work is not None
        assert work.ended_at is not None
        moves = lbd.true_moves()[before:]
        left = {one.bundle for one in work.left}
        last = {move.bundle: move for move in moves if move.bundle not in left}
        assert {move.result for move in last.values()} <= {Result.LANDED, Result.ELSEWHERE}, moves
        assert {move.destination for move in moves if move.result is Result.LANDED} == {healthy}
        assert owned(cluster, target) == sorted(left.bundle for left in work.left)
        assert None not in cluster.owners().values()

    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_who_owns_what_nobody_was_seen_to_own_is_asked_once_more(self):
        """At the end of a drain: found, owned by nobody, or still not to be told, each is said."""
        with fakes.hot(clients=0) as cluster:
            target, healthy, silent = cluster.brokers
            known, free, hidden = owned(cluster, healthy)[0], *owned(cluster, target)[:2]
            give(cluster, hidden, silent)
            with cluster._lived():
                cluster._book.free(free)
            hang(cluster, silent)
            moves = [Unload(one, target, silent, 1.0, 1.0) for one in (known, free, hidden)]
            doubtful = [Outcome(one, Result.UNKNOWN, None, "no answer") for one in moves]
            admin = Admin(PulsarSettings(admin_urls=cluster.admin_urls, read_timeout_seconds=LIMIT_SECONDS))
            found = looked_for_again(doubtful, admin)
        assert [(one.result, one.owner) for one in found] == [
            (Result.ELSEWHERE, healthy),
            (Result.UNOWNED, None),
            (Result.UNKNOWN, None),
        ]
        assert found[0].detail == f"no answer; at the end: {healthy} owns it"
        assert found[1].detail == "no answer; at the end: nobody owns it"


class TestDrainOfIt:
    def test_it_holds_the_others_for_a_minute_and_no_longer(
        self, lbd: Run, cluster: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        """Turns say what they wait for and how long; then the drain says why it is left off, and stands."""
        target = cluster.brokers[0]
        cluster.lead(cluster.brokers[1])
        begun(lbd, asked(target), monkeypatch, part=4)
        hang(cluster, target)
        lbd.engine.go_on()
        hold = lbd.engine.draining.hold()
        assert hold is not None
        assert f"{target} is being drained, 4 bundles so far; it waits: {target}: what it carries" in hold[1]
        assert "left off in 60 s" in hold[1]
        for _ in range(12):
            cluster.forward(6)
            lbd.engine.go_on()
        assert lbd.engine.draining.hold() is None
        work = Drains(tmp_path).works().drains[target]
        assert (work.exit_code, work.landed, work.owned) == (4, 4, None), work
        assert "does not answer since" in work.sentence
        assert "the drain stands" in work.sentence
        assert lbd.engine.draining.drained() == {target}
        cluster.forward(700)
        lbd.engine.go_on()
        assert lbd.engine.draining.hold() is None

    def test_it_goes_on_once_it_answers(self, lbd: Run, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch):
        """Ten minutes after it was left off, as with what comes back."""
        known, target = silences(lbd), cluster.brokers[0]
        cluster.lead(cluster.brokers[1])
        begun(lbd, asked(target), monkeypatch, part=4)
        switch = hang(cluster, target)
        for _ in range(12):
            cluster.forward(6)
            lbd.engine.go_on()
        assert not lbd.engine.draining.busy
        cluster.faults.off(switch)
        until_heard(known, target)
        cluster.forward(600)
        lbd.engine.go_on()
        lbd.engine.draining.to_the_end(lbd.engine.go_on)
        assert owned(cluster, target) == []
