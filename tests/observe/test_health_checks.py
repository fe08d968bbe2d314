"""Health checks are made beside the turns, every half minute, and say how long each broker takes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from lbd.observe import health_checks
from lbd.observe.health_checks import EVERY_SECONDS, REFUSED_SECONDS, HealthChecks
from lbd.permit.slow import FAILED_SECONDS
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.simulate.answers import refused
from tests.silence import LIMIT_SECONDS
from tests.simulate import fakes
from tests.simulate.faulty import Fault, Switch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.simulate.fake_pulsar import FakePulsar

HEALTH = "brokers/health"


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    """Three brokers."""
    with fakes.hot() as found:
        yield found


@pytest.fixture
def checks(cluster: FakePulsar) -> Iterator[HealthChecks]:
    """Of these brokers, which lbd knows."""
    admin = Admin(PulsarSettings(admin_urls=list(cluster.admin_urls), read_timeout_seconds=LIMIT_SECONDS))
    admin.active_brokers()
    found = HealthChecks(admin)
    yield found
    found.close()
    admin.close()


def ended(checks: HealthChecks, brokers: list[str], at: float) -> dict[str, float]:
    """One round of checks that begin at this time, or have begun, and what the next look says of them."""
    before = checks(brokers, at)
    for future in list(checks._under_way.values()):
        future.exception(30)
    return before | checks(brokers, at)


def test_a_round_of_checks(checks: HealthChecks, cluster: FakePulsar):
    """The first call waits for nothing; brokers that are well answer at once."""
    assert checks(cluster.brokers, 100.0) == {}
    found = ended(checks, cluster.brokers, 100.0)
    assert found.keys() == set(cluster.brokers)
    assert all(0 < seconds < FAILED_SECONDS for seconds in found.values())
    assert checks.trouble == ""


def test_settings_for_all_other_requests_do_not_end_a_check(checks: HealthChecks, cluster: FakePulsar):
    """A read timeout of half a second would make a slow broker of one that takes longer."""
    slow, sends = cluster.brokers[2], checks._source.http
    sends._settings = sends._settings.model_copy(update={"read_timeout_seconds": 0.5})
    cluster.faults.on(Switch(Fault.SLOW, slow, HEALTH, times=1, seconds=0.8))
    assert 0.8 <= ended(checks, cluster.brokers, 100.0)[slow] < FAILED_SECONDS


def test_how_long_a_slow_one_takes(checks: HealthChecks, cluster: FakePulsar):
    """The turn does not wait for it, and asks it nothing meanwhile."""
    slow = cluster.brokers[2]
    switch = cluster.faults.on(Switch(Fault.SLOW, slow, HEALTH, times=5, seconds=0.4))
    assert ended(checks, cluster.brokers, 100.0)[slow] >= 0.4
    assert switch.times == 4


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.SILENT])
def test_one_that_fails_counts_as_the_longest(
    checks: HealthChecks, cluster: FakePulsar, monkeypatch: pytest.MonkeyPatch, fault: Fault
):
    """5xx, and no answer in time while its load report is answered."""
    monkeypatch.setattr(health_checks, "FAILED_SECONDS", 1.5)
    cluster.faults.on(Switch(fault, cluster.brokers[2], HEALTH, times=5))
    assert ended(checks, cluster.brokers, 100.0)[cluster.brokers[2]] == 1.5


def test_one_that_is_not_there_says_nothing(checks: HealthChecks, cluster: FakePulsar):
    """Its load report is missing, too, and that is what lbd says."""
    cluster.kill(cluster.brokers[2])
    assert cluster.brokers[2] not in ended(checks, cluster.brokers, 100.0)


def test_a_refusal_is_said_and_not_asked_for_again_at_once(checks: HealthChecks, cluster: FakePulsar):
    """A role without the right has it no sooner because it is asked for twice."""
    broker = cluster.brokers[0]
    refusal = refused(401, "Don't have permission")
    switch = cluster.faults.on(Switch(Fault.OTHER_REPLY, broker, HEALTH, times=5, reply=refusal))
    assert broker not in ended(checks, cluster.brokers, 100.0)
    assert checks.trouble.startswith(f"the health check of {broker} is refused, so a slow broker is not found: GET ")
    ended(checks, cluster.brokers, 100.0 + REFUSED_SECONDS - 10)
    assert switch.times == 4
    cluster.faults.off()
    assert broker in ended(checks, cluster.brokers, 100.0 + REFUSED_SECONDS)
    assert checks.trouble == ""


class Counting:
    """A source that counts, and waits where it should hang."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hangs = threading.Event()
        self.hangs.set()

    def check_health(self, broker: str, *, timeout_seconds: float) -> None:
        """Wait, and answer."""
        del timeout_seconds
        self.asked.append(broker)
        self.hangs.wait(30)


@pytest.mark.parametrize(
    ("times", "asked"),
    [
        ([0.0, 10.0, 29.5, 30.0], 2),
        ([0.0, 15.0, 30.0, 45.0, 60.0], 3),
        ([100.0, 50.0], 2),
    ],
    ids=["half a minute, less what turns are not to the second", "every second turn", "the clock went back"],
)
def test_how_often_a_broker_is_checked(times: list[float], asked: int):
    """Every half minute."""
    source = Counting()
    checks = HealthChecks(source)
    for at in times:
        ended(checks, ["a:1"], at)
    checks.close()
    assert source.asked == ["a:1"] * asked


def test_a_check_under_way_is_not_doubled():
    """However long it takes, and whatever the others do."""
    source = Counting()
    source.hangs.clear()
    checks = HealthChecks(source)
    for at in range(10):
        assert checks(["a:1"], at * EVERY_SECONDS) == {}
    source.hangs.set()
    checks._pool.shutdown(wait=True)
    assert source.asked == ["a:1"]
