"""Pulsar's own topics in namespaces, by the configuration of the brokers. Pure.

Source: SystemTopicBasedTopicPoliciesService, BrokerService.isDefaultTopicTypePartitioned and SystemTopicNames (4.2.4).
A broker that owns a bundle of a namespace creates the topic if it is not there. It has as many partitions as any topic
that is created automatically, or is not partitioned. Policies of a namespace that say otherwise
(autoTopicCreationOverride) are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.permit.topic_costs import FUNCTION_TOPICS, KINDS, SystemTopics
from lbd.pulsar.paths import mends_policy_readers, parse_version

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.permit.topic_costs import TopicKind

MOST_PARTITIONS = 64
"""Limit of partitions: beyond it nearly every bundle of a namespace has one."""

POLICIES = "SystemTopicBasedTopicPoliciesService"


def system_topics(
    runtimes: Iterable[Mapping[str, str]], versions: Iterable[str], namespaces: Collection[str]
) -> SystemTopics:
    """System topics by the brokers' effective configurations; ``versions`` are the brokers', empty where unknown.

    Function workers may run beside the brokers, but always have their namespace.
    """
    names: dict[TopicKind, dict[str, None]] = {}
    if KINDS["functions"].namespace in namespaces:
        names["functions"] = dict.fromkeys(FUNCTION_TOPICS)
    for runtime in runtimes:
        if _is_on(runtime, "systemTopicEnabled", "topicLevelPoliciesEnabled") and _keeps_policies(runtime):
            names.setdefault("change-events", {}).update(dict.fromkeys(_created(runtime, "__change_events")))
        if _is_on(runtime, "systemTopicEnabled", "transactionCoordinatorEnabled"):
            segmented = _is_on(runtime, "transactionBufferSegmentedSnapshotEnabled")
            for end in ("", "_segments", "_indexes") if segmented else ("",):
                created = _created(runtime, f"__transaction_buffer_snapshot{end}")
                names.setdefault("transaction-buffers", {}).update(dict.fromkeys(created))
    hang = any(parse_version(version) > (0, 0, 0) and not mends_policy_readers(version) for version in versions)
    return SystemTopics({kind: tuple(topics) for kind, topics in names.items()}, readers_hang=hang)


def _is_on(runtime: Mapping[str, str], *keys: str) -> bool:
    return all(runtime.get(key) == "true" for key in keys)


def _keeps_policies(runtime: Mapping[str, str]) -> bool:
    """Whether topic policies are in a topic of the namespace: since 4.0.12 they may be in the metadata store."""
    return runtime.get("topicPoliciesServiceClassName", POLICIES).rpartition(".")[2] == POLICIES


def _created(runtime: Mapping[str, str], name: str) -> list[str]:
    """The topic, or its partitions, as a broker creates them automatically."""
    if runtime.get("allowAutoTopicCreationType") != "partitioned":
        return [name]
    text = runtime.get("defaultNumPartitions", "1")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(2**31)) else 1
    return [f"{name}-partition-{index}" for index in range(min(max(number, 1), MOST_PARTITIONS))]
