"""Every request that lbd sends to brokers: its effects in Pulsar, the settings that add effects, and its guards.

Rule: a request that can disconnect a client has its intent in the journal and passes fence, holds and limits each time
it is sent. Every other one is harmless under every setting of the brokers, or is not sent where it would not be.
docs/permissions.md shows the table, and tests/pulsar/test_request_table.py compares it with the requests that are sent.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

OTHER = "other"
ADMIN = "/admin/v2"
OBSERVE, MOVE, SPLIT, HEALTH, OVERRIDE, LEADER = "*observe*", "*move*", "*split*", "*health*", "*override*", "*leader*"


@dataclass(frozen=True)
class SettingEffect:
    """A broker setting with which some request does more; ``harmless`` is the value with which none does.

    ``advice`` is the remedy where lbd may have to refuse moves because of it; empty where it need not.
    """

    key: str
    harmless: str
    effect: str
    advice: str = ""


NON_PERSISTENT = SettingEffect(
    "enableNonPersistentTopics",
    "true",
    "a lookup of a non-persistent topic, by whatever client, makes Pulsar place the topic's bundle on no such broker "
    "from then on; lbd names persistent topics only",
)
ASSIGNER = SettingEffect(
    "topicBundleAssignmentStrategy",
    "org.apache.pulsar.common.naming.ConsistentHashingTopicBundleAssigner",
    "brokers put topics into bundles by a rule of their own; lbd asks them for a topic of each bundle, and moves none "
    "for which it finds no topic",
    "nothing, unless moves are refused with the name of this setting: then take Pulsar's own rule",
)
EFFECTS = (NON_PERSISTENT, ASSIGNER)
"""Read from each broker's runtime configuration; ``lbd doctor`` (``requests``) names the brokers with another value."""


@dataclass(frozen=True)
class BrokerRequest:
    """One kind of request, by method and path with ``{names}``.

    ``right`` is the permission that Pulsar checks where authorization is on, ``purpose`` what lbd sends it for.
    ``changes`` is its effect in Pulsar (empty: none), ``more`` its effect under some settings, ``guard`` what keeps
    that from doing harm.
    """

    method: str
    path: str
    right: str
    purpose: str
    changes: str = ""
    more: str = ""
    guard: str = ""
    effects: tuple[SettingEffect, ...] = field(default=())


NAMESPACE, TOPIC = "namespaces/{tenant}/{namespace}", "persistent/{tenant}/{namespace}/{topic}"
LIKE_A_LOOKUP = "if nobody owns the bundle of the topic, has the leader place it, as a client's lookup does"

REQUESTS = (
    BrokerRequest("GET", "brokers/ready", "a valid identity", f"{OBSERVE}, {MOVE}"),
    BrokerRequest(
        "GET",
        "brokers/health",
        "superuser, or broker `HEALTH_CHECK`",
        HEALTH,
        "writes a message to the broker's own health topic and reads it; the topic is created if it is missing",
        guard="each broker every half minute, by a daemon that moves bundles only; within a deadline",
    ),
    BrokerRequest("GET", "brokers/version", "a valid identity", f"{OBSERVE}, {MOVE}"),
    BrokerRequest("GET", "brokers/leaderBroker", "superuser, or broker `GET_LEADER_BROKER`", f"{OBSERVE}, {MOVE}"),
    BrokerRequest(
        "GET", "brokers/configuration/runtime", "superuser, or broker `LIST_RUNTIME_CONFIGURATIONS`", OBSERVE
    ),
    BrokerRequest("GET", "brokers/configuration/values", "superuser, or broker `LIST_DYNAMIC_CONFIGURATIONS`", OBSERVE),
    BrokerRequest(
        "DELETE",
        "brokers/configuration/{setting}",
        "superuser, or broker `DELETE_DYNAMIC_CONFIGURATION`",
        OVERRIDE,
        "takes the override of a setting away, on all brokers",
        "2.11 keeps the value until a restart",
        "only where lbd set it: its note of the earlier value is stored before, and each broker is read after",
    ),
    BrokerRequest(
        "POST",
        "brokers/configuration/{setting}/{value}",
        "superuser, or broker `UPDATE_DYNAMIC_CONFIGURATION`",
        OVERRIDE,
        "overrides a setting on all brokers: `loadBalancerSheddingEnabled`, and during a rollout "
        "`loadBalancerAutoBundleSplitEnabled`",
        guard="ordered by a person or a setting; a note of the earlier value is stored before, and each broker is read "
        "after",
    ),
    BrokerRequest("GET", "brokers/{cluster}", "superuser, or broker `LIST_BROKERS`", OBSERVE),
    BrokerRequest(
        "GET",
        "brokers/{cluster}/{broker}/ownedNamespaces",
        "superuser, or broker `LIST_OWNED_NAMESPACES`",
        f"{OBSERVE} (extensible manager), {MOVE} (drain)",
        more="2.11 to 5.0.0-M1, modular manager: a broker that is taking bundles over when it comes can hang for good",
        guard="sent to a broker before its drain and after it only; not while lbd moves bundles to it, nor within 30 s "
        "of its joining or of any broker's departure; who owns one bundle is asked with `topicHashPositions` instead",
    ),
    BrokerRequest("GET", "broker-stats/load-report", "superuser", OBSERVE),
    BrokerRequest("GET", "broker-stats/topics", "superuser", SPLIT),
    BrokerRequest("GET", "broker-stats/mbeans", "superuser", f"{OBSERVE}, unless `load.live_cpu: false`"),
    BrokerRequest(
        "GET", "clusters", "a valid identity", f"{OBSERVE}, if `pulsar.cluster` is null and brokers give no name"
    ),
    BrokerRequest(
        "GET",
        "clusters/{cluster}/failureDomains",
        "superuser, or cluster `GET_FAILURE_DOMAIN`",
        f"{OBSERVE}, if `failureDomainsEnabled`",
    ),
    BrokerRequest(
        "GET",
        "clusters/{cluster}/namespaceIsolationPolicies",
        "superuser, or policy `NAMESPACE_ISOLATION` `READ` of the cluster",
        OBSERVE,
    ),
    BrokerRequest(
        "GET",
        "namespaces/{cluster}/antiAffinity/{group}",
        "policy `ANTI_AFFINITY` `READ`",
        f"{OBSERVE}, for each group",
    ),
    BrokerRequest("GET", NAMESPACE, "policy `ALL` `READ`", f"{LEADER}: whether the topic's lines are kept"),
    BrokerRequest("GET", f"{NAMESPACE}/antiAffinity", "policy `ANTI_AFFINITY` `READ`", OBSERVE),
    BrokerRequest("GET", f"{NAMESPACE}/bundles", "namespace `GET_BUNDLE`", f"{MOVE}, {SPLIT}"),
    BrokerRequest(
        "GET",
        f"{NAMESPACE}/properties",
        "an admin of the tenant",
        f"{OBSERVE}, if `guardrails.namespace_properties`",
    ),
    BrokerRequest("GET", f"{NAMESPACE}/topics", "namespace `GET_TOPICS`", SPLIT),
    BrokerRequest(
        "GET",
        "namespaces/{tenant}/{cluster}/{namespace}/antiAffinity",
        "policy `ANTI_AFFINITY` `READ`",
        f"{OBSERVE}, namespaces with a cluster in their name",
    ),
    BrokerRequest(
        "PUT",
        f"{NAMESPACE}/{{bundle}}/split",
        "superuser",
        SPLIT,
        "cuts a bundle in two or more; the parts stay with its owner, and no client is disconnected",
        "a bundle that nobody owns is placed by the leader first",
        "intent in the journal; owner and boundaries just before; fence and holds at each hop; boundaries after",
    ),
    BrokerRequest(
        "GET",
        f"{NAMESPACE}/{{bundle}}/topicHashPositions",
        "policy `PERSISTENCE` `READ`",
        f"{MOVE}: who owns a bundle, and its topics",
    ),
    BrokerRequest(
        "PUT",
        f"{NAMESPACE}/{{bundle}}/unload",
        "superuser",
        MOVE,
        "the owner closes the bundle's topics and disconnects their clients; before that the leader notes the "
        "destination for the next lookup of the bundle that nobody owns",
        "before 4.0.10 and 4.2.1 the note holds for every namespace with this range; a note that is not used up stays "
        "until the leader changes",
        "intent in the journal; owner, leader, destination and policies just before and at each hop; fence, holds and "
        "limits; one request a move, and none to change a note; the owner after",
    ),
    BrokerRequest(
        "PUT",
        TOPIC,
        "namespace `CREATE_TOPIC`",
        LEADER,
        "creates `leader.topic`, if it is missing",
        guard="only with `leader.enabled`",
    ),
    BrokerRequest(
        "GET",
        f"{TOPIC}/messageTTL",
        "not read in the sources",
        f"{LEADER}, in `lbd doctor` and a warning",
        more=LIKE_A_LOOKUP,
        guard="`leader.topic` only",
    ),
    BrokerRequest("GET", f"{TOPIC}/permissions", "an admin of the tenant", f"{LEADER}, in `lbd doctor`"),
    BrokerRequest(
        "GET",
        f"{TOPIC}/stats",
        "topic `GET_STATS`",
        f"{MOVE}: clients after a move; {LEADER}",
        "loads the topic, as for a client",
        LIKE_A_LOOKUP,
        "sent to the bundle's owner, redirects not followed; for `leader.topic` to any broker",
    ),
    BrokerRequest(
        "PUT",
        f"{TOPIC}/subscription/{{name}}",
        "topic `SUBSCRIBE` (from 3.0.4 and 3.2.2)",
        LEADER,
        "creates a subscription of `leader.topic`, which keeps its messages",
        guard="only with `leader.enabled`",
    ),
    BrokerRequest(
        "POST",
        f"{TOPIC}/subscription/{{name}}/expireMessages/{{seconds}}",
        "topic `EXPIRE_MESSAGES`",
        LEADER,
        "lets that subscription pass over old messages of `leader.topic`",
        guard="lbd's own subscription only",
    ),
    BrokerRequest(
        "GET",
        "scalable/{tenant}/{namespace}",
        "not read in the sources",
        f"{OBSERVE}, {SPLIT}, if `scalableTopicsEnabled` (5.0)",
    ),
    BrokerRequest(
        "GET",
        "scalable/{tenant}/{namespace}/{topic}",
        "not read in the sources",
        f"{OBSERVE}, {MOVE}, {SPLIT} of scalable topics",
    ),
    BrokerRequest(
        "GET",
        "schemas/{tenant}/{namespace}/{topic}/schema",
        "topic `GET_METADATA`, of a topic that does not exist in the namespace",
        f"{MOVE}: has a broker take a bundle",
        "a bundle that nobody owns goes to the broker that is asked, or where its leader wants it, which uses up the "
        "leader's note of a destination; a bundle with an owner stays",
        f"`{ASSIGNER.key}`: the topic, and so what is placed, may be in another bundle",
        "persistent topics only; that broker has said that it puts the topic into the bundle; after an unload with its "
        "intent in the journal, or when a person orders it; fence; the owner after",
        (NON_PERSISTENT, ASSIGNER),
    ),
    BrokerRequest(
        "GET",
        "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}/bundle",
        "namespace `GET_BUNDLE`",
        f"{MOVE}: a topic of a bundle",
        more=f"`{NON_PERSISTENT.key}=false`: of a non-persistent topic it marks the bundle, which no such broker gets "
        "then",
        guard="persistent topics only",
        effects=(NON_PERSISTENT,),
    ),
)
"""Requests over HTTP. The first match counts: a word stands before a name."""

CLIENT_CALLS = (
    BrokerRequest(
        "create_reader",
        "`leader.topic`",
        "topic `CONSUME`",
        LEADER,
        f"loads the topic, as for any reader; {LIKE_A_LOOKUP}",
        guard="only with `leader.enabled`",
    ),
    BrokerRequest(
        "create_producer",
        "`leader.topic`, exclusive",
        "topic `PRODUCE`",
        LEADER,
        "keeps every other producer off the topic for as long as this lbd leads",
        guard="only with `leader.enabled`; refused while another one has it",
    ),
    BrokerRequest(
        "subscribe",
        "non-persistent topics of `pulsar/system`",
        "topic `CONSUME`",
        f"{OBSERVE} (extensible manager)",
        "a subscription that ends with lbd's connection",
        f"a lookup of non-persistent topics (`{NON_PERSISTENT.key}`)",
        "only where brokers run the extensible manager, which has these topics itself",
        (NON_PERSISTENT,),
    ),
)
"""Calls of the client library, over the binary protocol: call and topic stand for method and path."""

_BY_LENGTH: dict[int, list[tuple[str, list[str]]]] = {}
for _request in REQUESTS:
    _path = _request.path if _request.path.startswith("/") else f"{ADMIN}/{_request.path}"
    _BY_LENGTH.setdefault(_path.count("/"), []).append((_path, _path.split("/")))


@lru_cache(1_000)
def endpoint(path: str) -> str:
    """Path of a request in the table, whatever names stand in it; ``other`` for one that lbd does not send.

    Metrics have it as a label: there are as many values as rows in the table, however many bundles a cluster has.
    """
    parts = path.partition("?")[0].split("/")
    for name, words in _BY_LENGTH.get(len(parts) - 1, ()):
        if all(word.startswith("{") or word == part for word, part in zip(words, parts, strict=True)):
            return name
    return OTHER
