"""What is read of policies, for a plan and before each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.errors import AdminError
from lbd.model import Unload
from lbd.operations import parts
from lbd.operations.parts import PolicyReader
from lbd.permit.consent import Consent
from lbd.permit.policies import Groups
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import refused
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
        assert asking.isolation().is_known  # the cluster's name has been asked for
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


class TestProperties:
    @staticmethod
    def reader_at(pulsar: FakePulsar, clock: list[float]) -> PolicyReader:
        """A reader whose time is the last of these."""
        return PolicyReader(Admin(PulsarSettings(admin_urls=tuple(pulsar.urls))), lambda: clock[-1])

    def test_of_most_namespaces_nothing_is_kept(self, pulsar: FakePulsar) -> None:
        """Of those in no group, and those whose properties say nothing, once they were read long ago."""
        clock = [0.0]
        asking = self.reader_at(pulsar, clock)
        pulsar.policies.properties = {"t/off": {"lbd.balance": "off"}}
        for name in ("t/m", "t/off", "t/free"):
            asking.isolation()
            asking.groups((name,), frozenset({"t"}))
            asking.consents((name,))
            clock[0] += parts.PROPERTIES_SECONDS
        asking.isolation()
        assert (asking._planned.keys(), asking._consents.keys()) == ({"t/m"}, {"t/off"})

    def test_they_are_read_again_after_a_while(self, pulsar: FakePulsar) -> None:
        """Until then what was read counts, and what nobody asks for anew is not read again."""
        clock, properties = [0.0], {"lbd.balance": "off"}
        pulsar.policies.properties = {"t/n": properties}
        asking = self.reader_at(pulsar, clock)
        assert asking.consents(("t/n", "t/m")) == {"t/n": Consent("off"), "t/m": Consent()}
        properties["lbd.balance"] = "low"
        clock.append(parts.PROPERTIES_SECONDS - 1)
        assert asking.consents(())["t/n"] == Consent("off")
        clock.append(parts.PROPERTIES_SECONDS)
        assert asking.consents(()) == {}
        assert asking.consents(("t/n",)) == {"t/n": Consent("low")}
        assert len(pulsar.asked("/properties", "GET")) == 3

    def test_what_cannot_be_read(self, pulsar: FakePulsar) -> None:
        """What was read last holds on, else nothing does; others are read all the same."""
        clock = [0.0]
        pulsar.policies.properties = {name: {"lbd.balance": "off"} for name in ("t/n", "t/o")}
        asking = self.reader_at(pulsar, clock)
        asking.consents(("t/n",))
        clock.append(parts.PROPERTIES_SECONDS)
        for name in ("t/n", "t/m"):
            pulsar.fault(f"{name}/properties", refused(500, "no"))
        found = asking.consents(("t/m", "t/n", "t/o"))
        assert {name: one.balance for name, one in found.items()} == {"t/m": "normal", "t/n": "off", "t/o": "off"}
        assert {name for name, one in found.items() if "HTTP 500" in one.unread} == {"t/m", "t/n"}
        [warning] = asking.warnings
        assert warning.startswith("properties of t/m and 1 more cannot be read: GET ")
        asking.isolation()
        assert list(asking.warnings) == []

    def test_after_no_answer_no_more_are_asked_for_in_a_turn(self, pulsar: FakePulsar) -> None:
        """It would wait for a time-out each."""
        asking = reader(pulsar)
        pulsar.fault("t/m/properties", fake_pulsar.SILENCE)
        found = asking.consents(("t/m", "t/n"))
        assert all(one.unread for one in found.values())
        assert pulsar.asked("t/n/properties", "GET") == []
        asking.isolation()
        assert asking.consents(("t/n",)) == {"t/n": Consent()}

    def test_so_many_in_a_turn(self, pulsar: FakePulsar, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of the others nothing is known."""
        monkeypatch.setattr(parts, "PROPERTIES_A_TURN", 2)
        asking = reader(pulsar)
        assert asking.consents(("t/a", "t/b", "t/c")).keys() == {"t/a", "t/b"}
        asking.isolation()
        assert asking.consents(("t/c",)).keys() == {"t/a", "t/b", "t/c"}

    def test_many_that_are_not_understood(self, pulsar: FakePulsar) -> None:
        """The first are warnings of their own, the others are counted."""
        names = tuple(f"t/{number}" for number in range(5))
        pulsar.policies.properties = {name: {"lbd.balance": "no"} for name in names}
        asking = reader(pulsar)
        asking.consents(names)
        told = list(asking.warnings)
        assert [one.partition(":")[0] for one in told[:3]] == ["t/0", "t/1", "t/2"]
        assert told[3:] == ["properties of 2 more namespaces are not understood: lbd dry-run names them"]

    def test_a_namespace_that_is_gone(self, pulsar: FakePulsar) -> None:
        """It has no properties; its bundles end with it."""
        pulsar.fault("/properties", refused(404, "Namespace does not exist"))
        assert reader(pulsar).consents(("t/n",)) == {"t/n": Consent()}


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
