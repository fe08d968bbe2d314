"""CPU of now: the process's own counter from turn to turn, and what others use in the report's own minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pytest

from lbd.errors import AdminError
from lbd.load.estimate import CPU
from lbd.model import ProcessCpu
from lbd.observe.live_cpu import LiveCpuReader
from lbd.observe.parse import Usage
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.model import Brokers, Snapshot

BROKER, OTHER = "a:80", "b:80"
TURN_SECONDS = 15
UP_SECONDS = 300
"""Of the process at the first turn."""

LAG = 4.0
"""Points by which the background may be wrong for a minute after a change of 30: of a new sample is only known that it
is from between two turns."""


@dataclass
class Machine:
    """A broker whose process uses ``process(t)`` percent of a core, ``t`` seconds after the first turn, and others
    ``others`` percent. Its report has the mean of each whole minute, five seconds late. lbd's clock is ``ahead``.
    """

    process: Callable[[float], float]
    others: float = 0.0
    limit: float = 100.0
    seconds: float = 0.0
    ahead: float = 0.0
    error: AdminError | None = None
    asked: list[float] = field(default_factory=list)

    def process_cpu(self, broker: str, *, deadline: float) -> ProcessCpu:
        """As :meth:`~lbd.pulsar.admin.Admin.process_cpu`."""
        assert broker == BROKER
        assert deadline > 0
        self.asked.append(self.seconds)
        if self.error is not None:
            raise self.error
        return ProcessCpu(self.spent(self.seconds), UP_SECONDS + self.seconds)

    def spent(self, until: float) -> float:
        """CPU seconds since its start."""
        return sum(self.process(at) for at in np.arange(-UP_SECONDS, until).tolist()) / 100

    def round(self) -> Snapshot:
        """Its load report now, and another broker's."""
        end = (self.seconds - 5) // 60 * 60
        mean = (self.spent(end) - self.spent(end - 60)) / 60 * 100 + self.others
        cpu = Usage(mean + end * 1e-9, self.limit)  # no two samples are equal to the last digit
        busy = {bundle(0): stats(100)}
        return snapshot({BROKER: report(cpu, busy), OTHER: report(33.0)}, TAKEN_AT + self.seconds + self.ahead)


def reading(machine: Machine, boot: Callable[[], float] = lambda: 0.0) -> LiveCpuReader:
    """A reader of its CPU that needs no threads."""
    return LiveCpuReader(machine, lambda work, brokers: [work(broker) for broker in brokers], boot)


def turns(machine: Machine, seconds: float, since: float = 0.0, reader: LiveCpuReader | None = None) -> list[Brokers]:
    """The brokers of each turn for so long; of the one that is watched CPU counts from ``since`` seconds on."""
    reader = reader or reading(machine)
    found = []
    for at in np.arange(machine.seconds, seconds, TURN_SECONDS).tolist():
        machine.seconds = at
        found.append(reader(machine.round(), {BROKER: TAKEN_AT + since}, 60.0).brokers)
    machine.seconds += TURN_SECONDS
    return found


def steady(percent: float) -> Callable[[float], float]:
    """The same all the time."""
    return lambda _: percent


def jump(before: float, after: float, at: float) -> Callable[[float], float]:
    """So much before that second, and so much from it on."""
    return lambda now: before if now < at else after


def cpu(brokers: Brokers) -> float:
    """The watched broker's."""
    return float(brokers.usage[0, CPU])


def test_until_a_report_is_of_a_minute_that_was_watched_the_report_counts():
    """What others use is not known before."""
    found = turns(Machine(steady(40.0)), 120)
    known = [brokers.live is not None and bool(np.isfinite(brokers.live.seconds[0])) for brokers in found]
    assert known == [False] * 5 + [True] * 3


def test_a_change_is_seen_a_minute_before_the_report_shows_it():
    """The mean of the last minute, and the report's beside it."""
    found = turns(Machine(jump(40.0, 80.0, at=180)), 241)[-1]
    assert found.live is not None
    assert cpu(found) == pytest.approx(80, abs=1)
    assert cpu(found.as_reported()) == pytest.approx(40, abs=1)


@pytest.mark.parametrize("ahead", [-3600.0, -60.0, 60.0, 3600.0])
def test_after_the_clock_was_set_a_change_is_noticed_as_before(ahead: float):
    """Four minutes later at the latest: a time to ask again that lies an hour ahead is none."""
    machine = Machine(jump(40.0, 80.0, at=300))
    reader = reading(machine)
    turns(machine, 241, since=-7200, reader=reader)
    machine.ahead = ahead
    assert cpu(turns(machine, 541, since=-7200, reader=reader)[-1]) == pytest.approx(80, abs=LAG)


def test_after_a_move_only_what_was_used_since_counts():
    """Twenty seconds after it they are a sample of their own, and its halves are told apart."""
    found = turns(Machine(jump(80.0, 50.0, at=180)), 211, since=180)[-1]
    assert found.live is not None
    assert (cpu(found), float(found.live.seconds[0])) == (pytest.approx(50, abs=LAG), pytest.approx(30))
    assert float(found.live.apart[0]) == pytest.approx(0, abs=1)


def test_a_load_that_still_changes_is_told_by_its_halves():
    """Fifteen seconds at 80 and fifteen at 50 are thirty points apart."""
    found = turns(Machine(jump(80.0, 50.0, at=195)), 211, since=180)[-1]
    assert found.live is not None
    assert float(found.live.apart[0]) == pytest.approx(30, abs=1)


def test_what_others_use_on_the_machine_is_added():
    """A neighbour is in the report and not in the process."""
    assert cpu(turns(Machine(jump(40.0, 60.0, at=180), others=25.0), 241)[-1]) == pytest.approx(85, abs=LAG)


def test_points_are_of_the_limit():
    """A broker of 0.4 core: its limit is 40."""
    found = turns(Machine(jump(36.0, 20.0, at=195), limit=40.0), 211, since=180)[-1]
    assert found.live is not None
    assert float(found.live.apart[0]) == pytest.approx(40, abs=1)


def test_where_the_process_uses_more_than_the_report_says_the_report_counts():
    """One of both is wrong, and the report is what Pulsar goes by."""
    found = turns(Machine(steady(40.0), others=-20.0), 241)[-1]
    assert found.live is not None
    assert cpu(found) == pytest.approx(20, abs=1)
    assert np.isnan(found.live.seconds[0])


def test_a_broker_that_is_not_watched_is_not_asked():
    """Its CPU is the report's."""
    found = turns(Machine(steady(40.0)), 121)[-1]
    assert found.live is not None
    assert float(found.usage[1, CPU]) == 33.0
    assert np.isnan([found.live.seconds[1], found.live.took[1]]).all()


def test_a_process_that_has_just_started_is_known_with_its_first_report():
    """It had spent nothing when it started, so the minute of that report is known though nobody was asked in it."""
    machine = Machine(steady(40.0))
    machine.spent = lambda until: 40 * max(until + 50, 0) / 100  # type: ignore[method-assign]
    machine.process_cpu = lambda *_, **__: ProcessCpu(machine.spent(machine.seconds), machine.seconds + 50)  # type: ignore[method-assign]
    found = turns(machine, 46)
    assert [brokers.live is not None and bool(np.isfinite(brokers.live.seconds[0])) for brokers in found] == [
        False,
        True,
        True,
        True,
    ]
    assert cpu(found[-1]) == pytest.approx(40, abs=1)


def starting(empty: bool, others: float = 0.0, first_limit: float = 100.0) -> Machine:
    """A process that was started 20 s before the first turn, used all of its CPU for eight, and 5 % since. Its load
    manager has sampled nothing for 50 s, then the mean of those after the eight. It reports ``first_limit`` until then.
    """
    machine = Machine(steady(5.0), others=others)

    def spent(until: float) -> float:
        return min(until + 20, 8.0) + max(until + 12, 0.0) * 0.05

    def round_() -> Snapshot:
        sampled = machine.seconds >= 50
        mean = (spent(42.0) - spent(-12.0)) / 54 * 100 + others
        busy = {bundle(0): stats(0 if empty else 100)}
        own = Usage(mean, 100.0) if sampled else Usage(1e-7, first_limit)
        reports = {BROKER: report(own, busy), OTHER: report(33.0)}
        return snapshot(reports, TAKEN_AT + machine.seconds)

    machine.round = round_  # type: ignore[method-assign]
    machine.process_cpu = lambda *_, **__: ProcessCpu(spent(machine.seconds), machine.seconds + 20)  # type: ignore[method-assign]
    return machine


@pytest.mark.parametrize(
    ("empty", "others", "shown"),
    [(True, 0.0, [None, 5, 5, 5, 5, 5]), (False, 0.0, [None, None, None, None, 5, 5])],
    ids=["empty", "with clients"],
)
def test_a_process_that_has_just_started_and_carries_nothing_is_alone(
    empty: bool, others: float, shown: list[float | None]
):
    """A broker joined two at 94 points and was idle. It took 110 s until its reports could be trusted (4.2.4)."""
    found = turns(starting(empty, others), 76)
    for brokers, percent in zip(found, shown, strict=True):
        assert brokers.live is not None
        assert bool(np.isfinite(brokers.live.seconds[0])) == (percent is not None)
        assert percent is None or cpu(brokers) == pytest.approx(percent, abs=2)


def test_a_process_that_has_just_started_may_use_more_than_the_others_have():
    """A larger machine joins small ones: until its first sample its limit is taken for theirs, and it is known."""
    machine = starting(empty=True, first_limit=500.0)
    count = machine.process_cpu
    machine.process_cpu = lambda *at, **by: count(*at, **by)._replace(spent_seconds=4 * machine.seconds)  # type: ignore[method-assign]
    live = [brokers.live for brokers in turns(machine, 46)]
    assert [bool(found and np.isfinite(found.seconds[0])) for found in live] == [False, True, True, True]


@pytest.mark.parametrize(("first_limit", "limit"), [(500.0, 100.0), (100.0, 100.0), (50.0, 50.0)])
def test_before_its_first_sample_a_broker_is_no_larger_than_the_others(first_limit: float, limit: float):
    """One in a container of 0.4 core reported the two cores of its host at first. After a first wave 9 points were
    expected of it, where 25 to 30 came, and the plan waited two minutes in vain (4.2.4).
    """
    found = turns(starting(empty=True, first_limit=first_limit), 76)
    assert [float(brokers.limit[0, CPU]) for brokers in found] == [limit, limit, limit, limit, 100.0, 100.0]
    assert float(found[0].limit[1, CPU]) == 100.0


def test_its_first_sample_tells_of_others_on_its_machine():
    """At least, as what it spent before its load manager started is not in the sample."""
    found = turns(starting(empty=True, others=40.0), 76)
    assert cpu(found[2]) == pytest.approx(5, abs=2)
    assert 30 < cpu(found[-1]) <= 46


def test_a_process_that_was_started_anew_begins_anew():
    """Its counter begins at nought; until the next whole minute the report counts."""
    machine = Machine(steady(40.0))
    reader = reading(machine)
    turns(machine, 180, reader=reader)
    machine.spent = lambda until: 40 * (until - 170) / 100  # type: ignore[method-assign]
    machine.process_cpu = lambda *_, **__: ProcessCpu(0.4 * (machine.seconds - 170), machine.seconds - 170)  # type: ignore[method-assign]
    found = turns(machine, 211, reader=reader)[-1]
    assert found.live is not None
    assert np.isnan(found.live.seconds[0])


@pytest.mark.parametrize("wrong", [0.0, -60.0, 40.0, 1e6, 1e300])
def test_one_wrong_count_makes_no_cpu(wrong: float):
    """It goes back, or shows more than the machine has: the report counts until counts cover another minute."""
    machine = Machine(steady(40.0))
    count = machine.process_cpu

    def process_cpu(broker: str, *, deadline: float) -> ProcessCpu:
        spent, up_seconds = count(broker, deadline=deadline)
        return ProcessCpu(max(spent + wrong, 0.0) if wrong and machine.seconds == 240 else spent, up_seconds)

    machine.process_cpu = process_cpu  # type: ignore[method-assign]
    found = turns(machine, 481)
    assert [cpu(brokers) for brokers in found] == pytest.approx([40.0] * len(found), abs=LAG)
    assert found[-1].live is not None
    assert np.isfinite(found[-1].live.seconds[0])


@pytest.mark.parametrize(("status", "asked"), [(403, 1), (404, 1), (500, 8), (None, 8)])
def test_who_does_not_tell_is_judged_by_its_reports(status: int | None, asked: int):
    """One that refuses is not asked again for ten minutes; why it does not tell is said."""
    machine = Machine(steady(40.0), error=AdminError("GET http://a:80/x: no", status=status))
    reader = reading(machine)
    found = turns(machine, 120, reader=reader)[-1]
    assert cpu(found) == pytest.approx(40, abs=1)
    assert reader.trouble == ("live CPU of a:80 is not known, load reports count instead: GET http://a:80/x: no")
    assert len(machine.asked) == asked


def test_one_that_is_slow_to_answer_is_asked_less_often():
    """A broker at its limit answers for two fifths of its time at most."""
    clock = iter(np.arange(0, 1000, 1.0).tolist())
    machine = Machine(steady(40.0))
    turns(machine, 121, reader=reading(machine, lambda: 10 * next(clock)))
    assert machine.asked == [0, 30, 60, 90, 120]
