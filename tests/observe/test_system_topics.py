"""Which topics of its own Pulsar keeps in namespaces, by what the brokers run with."""

from __future__ import annotations

import pytest

from lbd.observe.system_topics import MOST_PARTITIONS, system_topics

ON = {"systemTopicEnabled": "true", "topicLevelPoliciesEnabled": "true"}
IN = "org.apache.pulsar.broker.service"
TRANSACTIONS = {"systemTopicEnabled": "true", "transactionCoordinatorEnabled": "true"}


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({}, ()),
        ({"topicLevelPoliciesEnabled": "true"}, ()),
        ({"systemTopicEnabled": "true"}, ()),
        (ON, ("__change_events",)),
        (ON | {"allowAutoTopicCreationType": "non-partitioned", "defaultNumPartitions": "8"}, ("__change_events",)),
        (
            ON | {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "2"},
            ("__change_events-partition-0", "__change_events-partition-1"),
        ),
        (ON | {"allowAutoTopicCreationType": "partitioned"}, ("__change_events-partition-0",)),
        (
            ON | {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "-3"},
            ("__change_events-partition-0",),
        ),
        (
            ON | {"topicPoliciesServiceClassName": f"{IN}.SystemTopicBasedTopicPoliciesService"},
            ("__change_events",),
        ),
        (ON | {"topicPoliciesServiceClassName": f"{IN}.MetadataStoreTopicPoliciesService"}, ()),
    ],
)
def test_topic_policies(runtime: dict[str, str], expected: tuple[str, ...]):
    """In ``__change_events``, created as brokers create any topic, where policies are on and kept in topics."""
    assert expected == system_topics([runtime], [], ()).names.get("change-events", ())


@pytest.mark.parametrize(
    ("runtime", "ends"),
    [
        ({"transactionCoordinatorEnabled": "true"}, []),
        (TRANSACTIONS, [""]),
        (TRANSACTIONS | {"transactionBufferSegmentedSnapshotEnabled": "true"}, ["", "_segments", "_indexes"]),
    ],
)
def test_snapshots_of_transaction_buffers(runtime: dict[str, str], ends: list[str]):
    """The two further topics belong to snapshots in segments."""
    names = tuple(f"__transaction_buffer_snapshot{end}" for end in ends)
    assert names == system_topics([runtime], [], ()).names.get("transaction-buffers", ())


def test_function_workers_by_their_namespace():
    """They may run beside the brokers, whose settings then say nothing of them."""
    assert system_topics([{}], [], ("t/n",)).names == {}
    found = system_topics([{}], [], ("t/n", "public/functions")).names
    assert found == {"functions": ("metadata", "assignments", "coordinate")}


def test_brokers_that_differ():
    """What any of them may have created; an absurd number makes no absurd work."""
    many = ON | {"allowAutoTopicCreationType": "partitioned", "defaultNumPartitions": "100000"}
    names = system_topics([ON, {}, many], [], ()).names["change-events"]
    assert (names[0], len(names)) == ("__change_events", 1 + MOST_PARTITIONS)


@pytest.mark.parametrize(
    ("versions", "hang"),
    [
        ([], False),
        (["", "simulated"], False),
        (["2.11.4"], True),
        (["4.0.11"], True),
        (["4.0.12"], False),
        (["4.1.3"], True),
        (["4.2.2"], True),
        (["4.2.3", "4.2.4", "5.0.0-M1", "5.0.1"], False),
        (["4.2.4", "4.0.8"], True),
        (["4.2.4", ""], False),
    ],
)
def test_readers_hang_before_the_fix(versions: list[str], hang: bool):
    """#26025 is in 4.0.12, 4.2.3 and 5.0; one old broker is enough, and one without a version says nothing."""
    assert hang is system_topics([ON], versions, ()).readers_hang
