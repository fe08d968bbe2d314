"""What is read of policies, for a plan and before each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.errors import AdminError
from lbd.model import Unload
from lbd.operations import parts
from lbd.operations.parts import PolicyReader
from lbd.permit.policies import Groups
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.faults import refused
from tests import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_pulsar import FakePulsar

MOVE = "t/n/0x00000000_0x40000000"


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Three brokers."""
    with fake_pulsar.hot_broker() as cluster:
        cluster.policies.groups = {"t/n": "Rack", "t/m": "rack", "u/o": "rack"}
        yield cluster


def reader(pulsar: FakePulsar) -> PolicyReader:
    """On a connection of its own."""
    return PolicyReader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))))


def move(pulsar: FakePulsar) -> Unload:
    """From the first to the third broker."""
    return Unload(MOVE, pulsar.ids[0], pulsar.ids[2], 1, 1)


class TestGroups:
    def test_those_of_the_namespaces_asked_about(self, pulsar: FakePulsar) -> None:
        """Members are asked for tenant by tenant; domains only where the brokers look at them."""
        found = reader(pulsar).groups(
            (
                "t/m",
                "t/free",
            ),
            frozenset({"t", "u"}),
        )
        assert found == Groups(frozenset({"t/free"}), {"t/m": "rack"}, {"rack": frozenset({"t/n", "t/m", "u/o"})}, {})

    def test_failure_domains(self, pulsar: FakePulsar) -> None:
        """By broker."""
        pulsar.policies.domains = {"d1": pulsar.ids[:2], "d2": pulsar.ids[2:]}
        for broker in pulsar.brokers:
            broker.runtime["failureDomainsEnabled"] = "true"
        found = reader(pulsar).groups(("t/m",), frozenset({"t"}))
        assert found.domains == dict(zip(pulsar.ids, ("d1", "d1", "d2"), strict=True))

    @pytest.mark.parametrize("part", ["antiAffinity/rack", "configuration/runtime"])
    def test_members_that_cannot_be_read(self, pulsar: FakePulsar, part: str) -> None:
        """The group is known, its members are not."""
        asking = reader(pulsar)
        assert asking.isolation().known  # the cluster's name has been asked for
        pulsar.fault(part, refused(500, "no"))
        found = asking.groups(("t/m",), frozenset({"t"}))
        assert (dict(found.grouped), dict(found.members)) == ({"t/m": "rack"}, {})

    def test_a_group_that_cannot_be_read(self, pulsar: FakePulsar) -> None:
        """Neither free nor grouped, and no further one is asked about."""
        pulsar.fault("t/m/antiAffinity", refused(403, "no"))
        found = reader(pulsar).groups(("t/free", "t/m", "t/n"), frozenset({"t"}))
        assert found == Groups(frozenset({"t/free"}), unread=frozenset({"t/m"}))
        assert pulsar.asked("t/n/antiAffinity", "GET") == []

    def test_with_too_many_tenants_groups_are_unknown(
        self, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each would cost a request for each group; within a turn none is asked for twice."""
        asking = reader(pulsar)
        monkeypatch.setattr(parts, "MEMBER_REQUESTS_A_TURN", 2)
        pulsar.policies.groups["t/x"] = "second"
        for names in (("t/m",), ("t/n", "t/x")):
            asking.groups(names, frozenset({"t", "u"}))
        found = asking.groups(("t/m", "t/x"), frozenset({"t", "u"}))
        assert (found.members.keys(), len(pulsar.asked("antiAffinity/", "GET"))) == ({"rack"}, 2)
        asking.isolation()
        assert asking.groups(("t/x",), frozenset({"t", "u"})).members.keys() == {"second"}

    def test_members_that_cannot_be_read_end_the_asking(self, pulsar: FakePulsar) -> None:
        """A time-out for each would make a turn of many minutes."""
        pulsar.fault("antiAffinity/rack", refused(500, "no"))
        assert reader(pulsar).groups(("t/m",), frozenset({"t"})).unread == {"t/m"}


class TestBeforeARequest:
    def test_nothing_forbids(self, pulsar: FakePulsar) -> None:
        """The group is the one that was planned with."""
        asking = reader(pulsar)
        asking.groups(("t/n",), frozenset({"t"}))
        assert asking.forbids(move(pulsar), planned=True) is None

    def test_a_policy_reserves_the_destination(self, pulsar: FakePulsar) -> None:
        """It was set, or changed, since the plan."""
        pulsar.policies.isolation = {"p": {"namespaces": ["x/.*"], "primary": ["127[.]0[.]0[.]3"], "secondary": []}}
        found = reader(pulsar).forbids(move(pulsar), planned=True)
        assert found is not None
        assert found.reason is Reason.ISOLATION_POLICY

    @pytest.mark.parametrize("before", [None, "other"])
    def test_another_group_than_planned(self, pulsar: FakePulsar, before: str | None) -> None:
        """Where the rest of this one is was not looked at."""
        asking = reader(pulsar)
        if before is not None:
            pulsar.policies.groups["t/n"] = before
            asking.groups(("t/n",), frozenset({"t"}))
            pulsar.policies.groups["t/n"] = "Rack"
        found = asking.forbids(move(pulsar), planned=True)
        assert found is not None
        assert (found.reason, "'rack'" in found.detail) == (Reason.ANTI_AFFINITY, True)

    def test_what_a_killed_process_planned(self, pulsar: FakePulsar) -> None:
        """It looked at the group; isolation policies are looked at again."""
        asking = reader(pulsar)
        assert asking.forbids(move(pulsar), planned=False) is None
        pulsar.policies.isolation = {"p": {"namespaces": ["x/.*"], "primary": ["127[.]0[.]0[.]3"], "secondary": []}}
        assert asking.forbids(move(pulsar), planned=False) is not None

    @pytest.mark.parametrize("part", ["namespaceIsolationPolicies", "antiAffinity"])
    def test_what_cannot_be_read_is_raised(self, pulsar: FakePulsar, part: str) -> None:
        """The move is not sent: its check has failed."""
        pulsar.fault(part, refused(500, "no"))
        with pytest.raises(AdminError, match="HTTP 500"):
            reader(pulsar).forbids(move(pulsar), planned=True)
