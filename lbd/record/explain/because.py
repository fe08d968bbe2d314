"""Why a broker gives nothing away, and why a bundle is where it is, in sentences. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.reason import Reason
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.record.turns.lines import PairSeen, Turn

BARRED = {
    Reason.COOL_DOWN: "it rests after the last attempt to move it",
    Reason.CHANGED_HANDS: "it rests because it changed its broker without lbd",
    Reason.PING_PONG: "lbd moved it lately: guardrails.max_moves_per_bundle, second_move_points",
    Reason.SYSTEM_NAMESPACE: "Pulsar's own topics are in its namespace",
    Reason.LEADER_TOPIC: "the topic by which lbds agree on their leader is in it (leader.topic)",
    Reason.ISOLATION_POLICY: "an isolation policy binds its namespace to brokers that exclude the destination",
    Reason.ANTI_AFFINITY: "its namespace's anti-affinity group forbids the destination",
    Reason.EXCLUDED_NAMESPACE: "guardrails.excluded_namespaces names its namespace",
    Reason.BROKER_BUNDLE: "it is a broker's own heartbeat or SLA bundle and belongs to that broker",
    Reason.POLICY_UNKNOWN: "the policies of its namespace could not be read",
    Reason.IMPOSSIBLE_NUMBER: "its statistics hold a number that no bundle can have",
    Reason.REPORTED_TWICE: "two brokers report it: it was moved a moment ago, or one of the reports is stale",
    Reason.NO_STATISTICS: "no report carries its statistics: not yet, or its broker tells of larger bundles only",
    Reason.TOO_LARGE: "it carries more than was to be moved",
    Reason.NOT_NEEDED: "others filled the amount: what was left then was less than it carries",
    Reason.NO_TRAFFIC: "it carries no traffic, so moving it changes nothing",
    Reason.PLACEMENT_STAYS: "the placement would put it on the broker that it is on, or finds none",
    Reason.SOLE_BUNDLE: "it is its broker's only bundle: moving it would move the problem; split it",
}
"""What a bundle's code means, in words."""


def barred(label: str) -> str | None:
    """Why a bundle of this label stayed; None where its broker was not asked to give any."""
    reason = next((reason for reason in Reason if reason.label == label), None)
    if reason in {None, Reason.NOT_ASKED, Reason.MOVES}:
        return None
    words = BARRED.get(reason) if reason is not None else None
    return f"{label}: {words}" if words else label


def gone(turn: Turn, broker: str) -> str:
    """Why the newest turn has no report of a broker; empty where it has one, or saw none at all."""
    if turn.broker(broker) is not None or not turn.brokers:
        return ""
    owed = next((skip for skip in turn.skips if skip.what == broker), None)
    if owed is None:
        return f"it is not among the active brokers of turn {turn.last} any more"
    return f"it gives no report now, in turn {turn.last}: {owed.detail}"


def of_broker(turn: Turn, broker: str) -> Iterator[str]:
    """Why a broker gives bundles away, or why it does not."""
    seen = turn.broker(broker)
    if seen is None:
        yield "it gave no usable load report in that turn"
        return
    if seen.doubt == Reason.DRAINED.label:
        return
    if seen.doubt is not None:
        yield f"its report is no ground to move on: {seen.doubt}"
    if seen.to_settle:
        samples = counted(seen.to_settle, "more fresh sample")
        yield f"it was moved to or from, or restarted: {samples} must come before its score counts"
    if turn.hold is not None:
        yield f"nothing new is moved: {turn.hold.reason}{turn.hold.detail and f': {turn.hold.detail}'}"
    yield from _of_pairs(turn, broker)


def _of_pairs(turn: Turn, broker: str) -> Iterator[str]:
    giving = [pair for pair in turn.pairs if pair.source == broker]
    taking = [pair for pair in turn.pairs if pair.destination == broker]
    for pair in giving:
        above = f"it is {pair.difference:.1f} points above {pair.destination}"
        yield f"{above if pair.destination is not None else f'it has {pair.why}'}: {outcome(turn, pair)}"
    for pair in taking:
        yield f"{pair.source} is {pair.difference:.1f} points above it: bundles would come to it, not leave it"
    if not (giving or taking):
        yield _in_no_pair(turn)


def _in_no_pair(turn: Turn) -> str:
    if any(pair.destination is None for pair in turn.pairs):
        return "the strategy does not count it among those to be relieved"
    return (
        "it is in no pair: it is not far enough from its partner, or has none (the middle one of an odd number, or "
        "alone in its pool)"
    )


def outcome(turn: Turn, pair: PairSeen) -> str:
    """What came of a pair in a turn."""
    number = sum(one.source == pair.source for one in turn.unloads)
    if number:
        return f"{counted(number, 'bundle')} {'begun' if turn.acts else 'would move'}"
    if pair.reason is None:
        return "every bundle that was chosen was refused" if pair.fired else "nothing came of it"
    return f"{pair.reason}{pair.detail and f', {pair.detail}'}"
