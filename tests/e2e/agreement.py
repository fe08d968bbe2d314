"""The same calls to a real and to a fake cluster, told in words in which both can be compared.

Brokers are told by their roles: the ``leader``, and two ``other`` ones; answers by code, redirects, and the keys and
JSON types of the body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import requests

from tests.e2e import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_HOPS = 6
LEADER, OTHER, THIRD = "leader", "other", "third"
TENANT, NAMESPACE, BUNDLES = "simulated", "agree", 16
_BUNDLE = re.compile(r"[^\s]+/0x[0-9a-f]{8}_0x[0-9a-f]{8}")


@dataclass(frozen=True)
class Call:
    """One call: asked at a broker of that role; ``{leader}`` and so on in path and destination stand for its id."""

    method: str
    path: str
    at: str = LEADER
    query: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None


@dataclass(frozen=True)
class Told:
    """What came: status and redirect of each hop, and the shape of the last body."""

    hops: tuple[str, ...]
    body: Any

    def __str__(self) -> str:
        return ", ".join(self.hops)


class Side:
    """One of the two clusters. ``ids``: broker id by role; ``others``: what else the names in a call stand for."""

    def __init__(self, ids: Mapping[str, str], others: Mapping[str, str], session: requests.Session) -> None:
        self.ids = ids
        self._names = {**ids, **others}
        self._roles = {broker: role for role, broker in ids.items()}
        self.session = session

    def ask(self, call: Call) -> Told:
        """The answer, redirects followed."""
        url = f"http://{self.ids[call.at]}{call.path.format(**self._names)}"
        query: dict[str, str] | None = {key: value.format(**self._names) for key, value in call.query.items()}
        hops: list[str] = []
        sent = {} if call.body is None else {"data": call.body, "headers": {"Content-Type": "application/json"}}
        for _ in range(MAX_HOPS):
            try:
                answer = self.session.request(call.method, url, params=query, allow_redirects=False, timeout=75, **sent)
            except requests.ConnectionError:
                return Told((*hops, "no connection"), None)
            if answer.status_code != 307:
                return Told((*hops, str(answer.status_code)), self._shape(answer))
            url, query = answer.headers["Location"], None
            hops.append(self._redirect(url, call))
        raise AssertionError(f"{call}: redirected for ever: {hops}")

    def _redirect(self, url: str, call: Call) -> str:
        """Where to, and with which query; the path must not change."""
        place, _, query = url.removeprefix("http://").partition("?")
        broker, _, path = place.partition("/")
        asked = call.path.format(**self._names)
        assert "/" + unquote(path) == unquote(asked), f"{call}: sent to {url}"
        told = "&".join(sorted(self._named(unquote(query)).split("&")))
        return f"307 {self._roles[broker]}{told and '?'}{told}"

    def _shape(self, answer: requests.Response) -> Any:
        """Keys and types of JSON; of an error the words; of what is no JSON its kind."""
        if "html" in answer.headers.get("Content-Type", ""):
            return "HTML"
        try:
            found = answer.json()
        except ValueError:
            return "words" if answer.text else ""
        if isinstance(found, dict) and set(found) == {"reason"}:
            lines = [line for line in str(found["reason"]).splitlines() if line.strip()]
            return {"reason": self._named(lines[0].strip())}
        return self._shaped(found)

    def _shaped(self, found: Any) -> Any:
        """Bundles are alike, and so is what stands beside them."""
        if isinstance(found, dict):
            return {_BUNDLE.sub("<bundle>", self._named(key)): self._shaped(value) for key, value in found.items()}
        if isinstance(found, list):
            return sorted({str(self._shaped(one)) for one in found})
        return {str: "text", bool: "boolean", int: "number", float: "number"}.get(type(found), str(found))

    def _named(self, words: str) -> str:
        """Ids by their roles."""
        for broker, role in self._roles.items():
            words = words.replace(broker, f"<{role}>")
        return words


def row(call: Call, told: Told) -> str:
    """A line of the table in the documents."""
    query = "&".join(f"{key}={value}" for key, value in call.query.items())
    sent = f" {call.body}" if call.body is not None else ""
    return f"| `{call.method} {call.path}{query and '?'}{query}{sent}` | {call.at} | `{told}` |"


def roles(leader: str, brokers: Iterable[str]) -> dict[str, str]:
    """Broker id by role."""
    other, third = sorted(set(brokers) - {leader})
    return {LEADER: leader, OTHER: other, THIRD: third}


def names() -> dict[str, str]:
    """``b0`` and so on: the bundles; ``t0``: a topic in each; ``low``: the lower half of the first bundle."""
    bundles = [f"{TENANT}/{NAMESPACE}/{span}" for span in naming.bundle_ranges(BUNDLES)]
    topics = [naming.topic_in(bundle, "topic", "non-persistent").replace("://", "/") for bundle in bundles]
    halves = {"low": f"{TENANT}/{NAMESPACE}/0x00000000_0x08000000"}
    return (
        halves
        | {f"b{at}": bundle for at, bundle in enumerate(bundles)}
        | {f"t{at}": one for at, one in enumerate(topics)}
    )


def arranged(side: Side) -> None:
    """The first bundle is the leader's, the second and third the others', and nobody has the rest."""
    for at in range(BUNDLES):
        assert side.ask(Call("PUT", unload(at))).hops[-1] == "204"
    for at, role in enumerate((LEADER, OTHER, THIRD)):
        place(side, at, role)


def place(side: Side, at: int, role: str) -> None:
    """Have a broker take a bundle that nobody owns."""
    told = side.ask(Call("GET", look_up(at), role, {"authoritative": "true"}))
    assert told.hops == ("200",), told


def unload(at: int) -> str:
    """The path of a bundle's unload."""
    return f"/admin/v2/namespaces/{{b{at}}}/unload"


def split(at: int) -> str:
    """The path of a bundle's split."""
    return f"/admin/v2/namespaces/{{b{at}}}/split"


def positions(at: int) -> str:
    """The path at which a bundle's owner is told."""
    return f"/admin/v2/namespaces/{{b{at}}}/topicHashPositions"


def look_up(at: int) -> str:
    """The path of a lookup in a bundle."""
    return f"/lookup/v2/topic/{{t{at}}}"


_CONFIGURATION, _NS = "/admin/v2/brokers/configuration", "/admin/v2/namespaces"
_TO_THIRD = {"destinationBroker": "{third}"}

CALLS = (
    Call("GET", "/admin/v2/clusters"),
    Call("GET", "/admin/v2/brokers"),
    Call("GET", "/admin/v2/brokers/c"),
    Call("GET", "/admin/v2/brokers/nocluster"),
    Call("GET", "/admin/v2/brokers/leaderBroker"),
    Call("GET", "/admin/v2/brokers/leaderBroker", OTHER),
    Call("GET", "/admin/v2/brokers/ready"),
    Call("GET", "/admin/v2/brokers/health"),
    Call("GET", "/admin/v2/brokers/version"),
    Call("GET", "/admin/v2/brokers/c/{leader}/ownedNamespaces"),
    Call("GET", "/admin/v2/brokers/c/{other}/ownedNamespaces"),
    Call("GET", "/admin/v2/brokers/nocluster/{other}/ownedNamespaces", OTHER),
    Call("GET", "/admin/v2/brokers/c/127.0.0.9:18080/ownedNamespaces"),
    Call("GET", "/admin/v2/broker-stats/nope"),
    Call("GET", f"{_CONFIGURATION}/runtime"),
    Call("GET", f"{_CONFIGURATION}/values"),
    Call("POST", f"{_CONFIGURATION}/loadBalancerSheddingEnabled/false", OTHER),
    Call("GET", f"{_CONFIGURATION}/values"),
    Call("POST", f"{_CONFIGURATION}/loadBalancerSheddingIntervalMinutes/abc"),
    Call("POST", f"{_CONFIGURATION}/loadBalancerEnabled/false"),
    Call("POST", f"{_CONFIGURATION}/nosuchkey/1"),
    Call("DELETE", f"{_CONFIGURATION}/loadBalancerSheddingEnabled"),
    Call("DELETE", f"{_CONFIGURATION}/loadBalancerSheddingEnabled"),
    Call("DELETE", f"{_CONFIGURATION}/loadBalancerSheddingIntervalMinutes"),
    Call("DELETE", f"{_CONFIGURATION}/nosuchkey"),
    Call("GET", f"{_NS}/simulated/agree/bundles"),
    Call("GET", f"{_NS}/simulated/nosuch/bundles"),
    Call("GET", f"{_NS}/simulated/agree/antiAffinity"),
    Call("GET", f"{_NS}/c/antiAffinity/apart", query={"tenant": "simulated"}),
    Call("GET", "/admin/v2/clusters/c/namespaceIsolationPolicies"),
    Call("GET", "/admin/v2/clusters/c/failureDomains"),
    Call("GET", positions(0)),
    Call("GET", positions(1)),
    Call("GET", positions(1), THIRD),
    Call("GET", positions(4)),
    Call("GET", f"{_NS}/simulated/agree/0x01000000_0x02000000/topicHashPositions"),
    Call("GET", f"{_NS}/simulated/nosuch/0x01000000_0x02000000/topicHashPositions"),
    Call("GET", look_up(0)),
    Call("GET", look_up(0), OTHER, {"authoritative": "true"}),
    Call("GET", look_up(1)),
    Call("GET", "/lookup/v2/topic/non-persistent/simulated/nosuch/topic"),
    Call("GET", unload(0)),
    Call("PUT", unload(0), query={"destinationBroker": "127.0.0.9:18080"}),
    Call("PUT", unload(0), OTHER, {"destinationBroker": "127.0.0.9:18080"}),
    Call("PUT", unload(0), query={"destinationBroker": "127.0.0.3"}),
    Call("PUT", unload(0), query={"destinationBroker": "pulsar://{third}"}),
    Call("PUT", f"{_NS}/simulated/agree/0x01000000_0x02000000/unload"),
    Call("PUT", f"{_NS}/simulated/agree/0x01000000_0x02000000/unload", query=_TO_THIRD),
    Call("PUT", f"{_NS}/simulated/agree/0x01000000/unload"),
    Call("PUT", f"{_NS}/simulated/agree/0xzz_0x02000000/unload"),
    Call("PUT", f"{_NS}/simulated/nosuch/0x01000000_0x02000000/unload"),
    Call("PUT", f"{_NS}/nosuch/agree/0x01000000_0x02000000/unload", query=_TO_THIRD),
    Call("PUT", unload(5), query=_TO_THIRD),
    Call("GET", look_up(5), OTHER),
    Call("GET", positions(5), THIRD),
    Call("PUT", unload(6), OTHER, _TO_THIRD),
    Call("GET", look_up(6)),
    Call("PUT", unload(7), query={"destinationBroker": "http://{third}"}),
    Call("GET", look_up(7)),
    Call("PUT", unload(0), query=_TO_THIRD),
    Call("GET", positions(0)),
    Call("GET", look_up(0)),
    Call("GET", look_up(0), OTHER),
    Call("PUT", unload(1), query=_TO_THIRD),
    Call("GET", look_up(1)),
    Call("PUT", unload(2), THIRD, {"destinationBroker": "{leader}"}),
    Call("GET", look_up(2), THIRD),
    Call("GET", positions(2)),
    Call("PUT", unload(5), OTHER),
    Call("GET", look_up(5), OTHER, {"authoritative": "true"}),
)
"""In this order: those that unload leave a bundle to those behind them."""

LOAD_REPORT = Call("GET", "/admin/v2/broker-stats/load-report")
"""Asked once the broker has counted the topic of its own health check."""

WITH_POLICIES = (
    Call("GET", f"{_NS}/simulated/agree/antiAffinity"),
    Call("GET", f"{_NS}/c/antiAffinity/apart", query={"tenant": "simulated"}),
    Call("GET", f"{_NS}/c/antiAffinity/apart", query={"tenant": "nosuch"}),
    Call("GET", "/admin/v2/clusters/c/namespaceIsolationPolicies"),
    Call("GET", "/admin/v2/clusters/c/failureDomains"),
)
"""When each sort of policy is set."""

TOPIC_STATS = Call("GET", "/admin/v2/broker-stats/topics", THIRD)
"""Asked once the broker has counted the one topic that it has loaded, which has no clients."""

_SPECIFIED = {"splitAlgorithmName": "specified_positions_divide", "unload": "false"}
_BY_COUNT = {"splitAlgorithmName": "topic_count_equally_divide", "unload": "false"}
_IN_HALVES = {"splitAlgorithmName": "range_equally_divide", "unload": "false"}

SPLITS = (
    Call("GET", f"{_NS}/simulated/agree/topics", query={"mode": "ALL", "includeSystemTopic": "true"}),
    Call("GET", f"{_NS}/simulated/nosuch/topics", query={"mode": "ALL", "includeSystemTopic": "true"}),
    Call("GET", split(0)),
    Call("PUT", split(0), query={"splitAlgorithmName": "nosuch"}),
    Call("PUT", split(1), query={"splitAlgorithmName": "nosuch"}),
    Call("PUT", split(0), query=_SPECIFIED),
    Call("PUT", split(0), query=_SPECIFIED, body="[]"),
    Call("PUT", split(0), query=_SPECIFIED, body="{x"),
    Call("PUT", split(0), query=_SPECIFIED, body='["a"]'),
    Call("PUT", split(0), query=_SPECIFIED, body="[2147483648]"),
    Call("PUT", split(0), query={"splitAlgorithmName": "flow_or_qps_equally_divide"}),
    Call("PUT", f"{_NS}/simulated/agree/0x01000000_0x02000000/split"),
    Call("PUT", f"{_NS}/simulated/agree/0x01000000/split"),
    Call("PUT", f"{_NS}/simulated/agree/0xzz_0x02000000/split"),
    Call("PUT", f"{_NS}/simulated/nosuch/0x01000000_0x02000000/split"),
    Call("PUT", split(2), THIRD, _BY_COUNT),
    Call("GET", positions(2), THIRD),
    Call("PUT", unload(4), query=_TO_THIRD),
    Call("PUT", split(4), OTHER, _BY_COUNT),
    Call("GET", positions(4)),
    Call("PUT", split(0), OTHER, _IN_HALVES),
    Call("GET", f"{_NS}/simulated/agree/bundles"),
    Call("GET", positions(0)),
    Call("GET", positions(0), OTHER),
    Call("PUT", unload(0)),
    Call("PUT", split(0)),
    Call("GET", f"{_NS}/{{low}}/topicHashPositions", THIRD),
    Call("PUT", split(2)),
    Call("PUT", split(1), OTHER, {**_IN_HALVES, "unload": "true"}),
)
"""As at the beginning; each bundle has one topic."""

LEADER_DEAD = (
    Call("GET", "/admin/v2/brokers/leaderBroker", OTHER),
    Call("GET", "/admin/v2/brokers/c", OTHER),
    Call("GET", "/admin/v2/brokers/c/{leader}/ownedNamespaces", OTHER),
    Call("GET", "/admin/v2/broker-stats/load-report", LEADER),
    Call("GET", positions(0), OTHER),
    Call("GET", look_up(0), OTHER),
    Call("GET", positions(1), OTHER),
    Call("PUT", unload(1), OTHER, _TO_THIRD),
    Call("GET", positions(1), OTHER),
)
"""While the session of a leader that was killed lives."""

LEADER_REPLACED = (
    Call("GET", "/admin/v2/brokers/leaderBroker", OTHER),
    Call("GET", "/admin/v2/brokers/c/{dead}/ownedNamespaces", OTHER),
    Call("GET", positions(0), OTHER),
    Call("PUT", unload(0), OTHER, {"destinationBroker": "{other}"}),
    Call("GET", look_up(0), OTHER),
    Call("PUT", unload(0), OTHER, {"destinationBroker": "{dead}"}),
)
"""When its session has ended, and one of the two others leads."""
