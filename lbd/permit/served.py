"""Whether the clients of a moved bundle are back: ownership is not service. Pure.

A broker that owns a bundle may still load none of its topics: the reader of a namespace's ``__change_events`` hangs
(apache/pulsar#25294, #25394, #25116), or producers stay with the broker of before (#24792). So, after a landing, the
bundle's clients on the destination's load report are compared with those on the source's before the move.

A report alone never says no. Topics load when a client looks them up (#24494), a report of the extensible manager names
its largest bundles only, and clients may have left by themselves. Where clients are not back after two reports, some
topics of the bundle are asked for themselves: only one that does not load, or clients that are still at the source, is
an alarm. A bundle without clients before is none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from lbd.model import BundleClients, bundle_namespace
from lbd.permit.predicted import UNSHOWN_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lbd.model import Outcome, Snapshot, Unload
    from lbd.permit.evidence import Evidence


Served: TypeAlias = Literal["yes", "no", "unknown"]

TOO_LATE_SECONDS = 3600.0
"""After so long without lbd, the effect of a move cannot be separated from later events."""

SAMPLED = 3
"""Number of topics of a bundle whose statistics are requested: each request may hang for its whole timeout."""


@dataclass(frozen=True)
class Landing:
    """A move that landed, and is to be served. Times are epoch seconds.

    ``asked_at`` is when the unload was asked for, ``landed_at`` when the landing was proven. ``since`` says
    what has happened to the bundle since, if reports can no longer prove anything about this move.
    """

    outcome: Outcome
    asked_at: float
    landed_at: float
    since: str = ""

    @property
    def unload(self) -> Unload:
        """The move."""
        return self.outcome.unload

    @property
    def bundle(self) -> str:
        """The bundle that moved."""
        return self.outcome.unload.bundle


@dataclass(frozen=True)
class ServiceResult:
    """The final result of a landing.

    ``clients_after`` are the clients on the destination's report, None where it has no statistics.
    ``reconnect_seconds`` is how long after the request for the unload the last of the sampled topics with clients had
    one again, None where none of them has any. ``lifted``: the hold of a bundle that is not served is over.
    """

    served: Served
    clients_after: BundleClients | None = None
    reconnect_seconds: float | None = None
    served_detail: str = ""
    lifted: bool = False


@dataclass(frozen=True)
class Look:
    """Topics are to be asked for themselves: for when their clients came back, or for why they did not (not ``back``).

    ``after`` are the clients on the destination's report, ``behind`` those that are still on the source's.
    """

    back: bool
    after: BundleClients | None = None
    behind: BundleClients | None = None


@dataclass(frozen=True)
class TopicClients:
    """One topic by its broker: connected clients, since when the first one is (epoch seconds), or an error."""

    topic: str
    clients: int = 0
    since: float | None = None
    error: str = ""


@dataclass(frozen=True)
class BundleTopics:
    """Sampled topics of a bundle. ``gone``: why it is not the destination's any more; ``error``: why none are known."""

    topics: tuple[TopicClients, ...] = ()
    gone: str = ""
    error: str = ""


class ReportedClients:
    """The clients of some bundles on the reports of a round; the bundles are looked up once."""

    def __init__(self, snapshot: Snapshot, bundles: Iterable[str]) -> None:
        self.taken_at = snapshot.taken_at
        self._rows, self._brokers = snapshot.rows, snapshot.brokers.index()
        self._position = snapshot.positions_of(frozenset(bundles))

    def of(self, bundle: str, broker: str | None) -> BundleClients | None:
        """The clients of a bundle on a broker's report; None where it has no statistics of it."""
        position = self._position.get(bundle)
        if position is None or broker not in self._brokers:
            return None
        own, rows = self._rows.of(self._brokers[broker]), self._rows
        match = np.flatnonzero((rows.bundle[own] == position) & rows.reported[own])
        return BundleClients(*rows.counts[own][match[0]].tolist()) if match.size else None

    def reconnecting(self, move: Unload) -> int:
        """Producers and consumers that a move disconnects; 0 where no report has statistics of its bundle.

        They are those of the source's report. A bundle that landed there lately may be missing on it, and still be on
        the report of its former broker: then that counts. Rule: each text that says how many clients reconnect adds up
        these numbers, so a plan, a drain and a rollout say the same of the same bundles.
        """
        reports = (self.of(move.bundle, broker) for broker in (move.source, *self._brokers))
        return next((clients.connected for clients in reports if clients is not None), 0)


def reconnecting(moves: Iterable[Unload], snapshot: Snapshot) -> list[int]:
    """Clients that each move disconnects, by :meth:`ReportedClients.reconnecting`."""
    plan = tuple(moves)
    reported = ReportedClients(snapshot, (move.bundle for move in plan))
    return [reported.reconnecting(move) for move in plan]


def with_clients(plan: Iterable[Unload], snapshot: Snapshot) -> tuple[Unload, ...]:
    """A plan with what stands before its moves."""
    moves = tuple(plan)
    reported = ReportedClients(snapshot, (move.bundle for move in moves)) if moves else None
    return tuple(replace(move, clients_before=reported.of(move.bundle, move.source)) for move in moves if reported)


def judge(
    landing: Landing, reported: ReportedClients, evidence: Evidence, sample_interval_seconds: float
) -> ServiceResult | Look | None:
    """The verdict of a round on a landing; None while its time is not over and not all clients are back.

    Where only some clients are back, the rest are waited for until then: the numbers show how many came.
    """
    before, move, passed = landing.unload.clients_before, landing.unload, reported.taken_at - landing.landed_at
    if landing.since:
        return ServiceResult("unknown", served_detail=landing.since)
    if before is None:
        return ServiceResult("unknown", served_detail=f"the report of {move.source} told nothing of it before the move")
    if not before.connected:
        return ServiceResult("unknown", served_detail="it had no clients before the move")
    after = reported.of(move.bundle, move.destination)
    back, is_due = _back(before, after), passed >= UNSHOWN_SAMPLES * sample_interval_seconds
    if passed > TOO_LATE_SECONDS and not back:
        return ServiceResult("unknown", after, served_detail="lbd did not look at it within an hour")
    if back == "all" or is_due:
        return Look(back=bool(back), after=after, behind=_behind(landing, reported, evidence))
    return None


def _back(before: BundleClients, after: BundleClients | None) -> Literal["", "some", "all"]:
    """How many of the clients are back. A client counts where its topic is loaded."""
    if after is None or not (after.topics and after.connected):
        return ""
    return "all" if after.connected >= before.connected else "some"


def _behind(landing: Landing, reported: ReportedClients, evidence: Evidence) -> BundleClients | None:
    """Clients that the source still has, by a report that is newer than the landing."""
    source = evidence.samples.get(landing.unload.source)
    if source is None or source.fresh_at <= landing.landed_at:
        return None
    clients = reported.of(landing.bundle, landing.unload.source)
    return clients if clients is not None and clients.connected else None


NO_TOPICS = "its broker lists no topics of it (segments of scalable topics are in no list)"


def concluded(landing: Landing, look: Look, topics: BundleTopics) -> ServiceResult:
    """The result of a landing, from the responses of its topics.

    Any client that is back, and topics that load, are service: clients that are missing may have left by themselves.
    """
    failed = next((topic for topic in topics.topics if topic.error), None)
    detail = f"{failed.topic}: {failed.error}" if failed is not None else ""
    connected = any(topic.clients for topic in topics.topics)
    if look.back or connected:
        return ServiceResult("yes", look.after, _reconnect_seconds(landing, topics.topics), detail)
    if topics.gone or topics.error:
        why = topics.gone or f"its topics could not be asked for: {topics.error}"
        return ServiceResult("unknown", look.after, served_detail=why)
    if failed is not None:
        return ServiceResult("no", look.after, served_detail=detail)
    if look.behind is not None:
        stay = f"its clients are still connected to {landing.unload.source}: {look.behind.words}"
        return ServiceResult("no", look.after, served_detail=stay)
    if not topics.topics:
        return ServiceResult("unknown", look.after, served_detail=NO_TOPICS)
    return ServiceResult("unknown", look.after, served_detail="its topics load, and no client has come back to them")


def recovered(unserved: Unserved, reported: ReportedClients, topics: BundleTopics | None) -> ServiceResult | None:
    """The result for a bundle that was not served; None while it still is not.

    Its clients are back. Or nothing keeps them away, by ``topics`` (None: nobody asked): they load by now and the
    source has no clients of the bundle, or another broker owns it.
    """
    move, late = unserved.landing.unload, f"only after lbd had reported that they are not: {unserved.detail}"
    after, behind = (reported.of(move.bundle, broker) for broker in (move.destination, move.source))
    if after is not None and after.topics and after.connected:
        return ServiceResult("yes", after, served_detail=late)
    if topics is None or topics.error:
        return None
    result = concluded(
        unserved.landing, Look(False, after, behind if behind is not None and behind.connected else None), topics
    )
    if result.served == "yes":
        return replace(result, served_detail=late)
    if result.served == "no":
        return None
    return ServiceResult("no", after, served_detail=f"{unserved.detail}; by now {result.served_detail}", lifted=True)


def _reconnect_seconds(landing: Landing, topics: Iterable[TopicClients]) -> float | None:
    """Seconds until the last sampled topic with clients had its first one; None where no topic has clients."""
    since = [topic.since for topic in topics if topic.since is not None]
    return max(max(since) - landing.asked_at, 0.0) if since else None


def sampled(topics: Iterable[str]) -> list[str]:
    """The topics of a bundle to be asked for, spread over its range: persistent ones, and none of Pulsar's own."""
    own = sorted(
        topic for topic in topics if topic.startswith("persistent://") and not topic.rpartition("/")[2].startswith("__")
    )
    most = min(SAMPLED, len(own))
    return [own[at * len(own) // most] for at in range(most)]


def served_text(
    served: Served, reconnect_seconds: float | None, before: BundleClients | None, after: BundleClients | None
) -> str:
    """The result of a move in words, with the numbers where some clients have not come back."""
    if served != "yes":
        return "clients are not back" if served == "no" else "not known whether clients are back"
    number = ""
    if before is not None and after is not None and after.connected < before.connected:
        number = f"{after.connected} of {before.connected} "
    return f"{number}clients are back" + (f", after {reconnect_seconds:.1f} s" if reconnect_seconds is not None else "")


# --- the hold: what one tenant does can only hold that tenant. What keeps its topics from loading may be its own, and
# comes again after each move; where a second tenant is hit, it is the cluster, and everything rests.


@dataclass(frozen=True)
class Unserved:
    """A landing whose clients are not back: since when that is known (epoch seconds), and why."""

    landing: Landing
    at: float
    detail: str


@dataclass(frozen=True)
class ServiceHold:
    """``namespaces`` whose bundles stay, each with why; ``everything`` is why nothing moves, empty where others may."""

    namespaces: Mapping[str, str] = field(default_factory=dict)
    everything: str = ""

    def ending(self, ends: str) -> ServiceHold:
        """The same, with what ends it."""
        everything = self.everything and f"{self.everything}; {ends}"
        return ServiceHold({namespace: f"{why}; {ends}" for namespace, why in self.namespaces.items()}, everything)


def service_hold(unserved: Iterable[Unserved]) -> ServiceHold:
    """The hold of landings whose clients are not back: on their namespaces, on everything once two tenants are hit."""
    of: dict[str, list[Unserved]] = {}
    for entry in unserved:
        of.setdefault(bundle_namespace(entry.landing.bundle), []).append(entry)
    tenants = {namespace.partition("/")[0] for namespace in of}
    everything = unserved_text([entry for several in of.values() for entry in several]) if len(tenants) > 1 else ""
    return ServiceHold({namespace: unserved_text(several) for namespace, several in of.items()}, everything)


def unserved_text(unserved: Sequence[Unserved]) -> str:
    """The first of them, with its numbers, and how many more there are."""
    first = unserved[0]
    before = first.landing.unload.clients_before
    clients = f" ({before.words} before)" if before is not None else ""
    more = f", and {len(unserved) - 1} more" if len(unserved) > 1 else ""
    return f"{first.landing.bundle} on {first.landing.unload.destination}{clients}: {first.detail}{more}"
