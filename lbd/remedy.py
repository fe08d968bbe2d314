"""Remedies: the action of a person for each reason not to move, and whether it ends by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lbd.reason import Reason
from lbd.text import minutes_text

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Remedy:
    """Remedy of a reason. It has something to ``do``, an end ``by_itself``, or both.

    ``do`` is an imperative without a full stop, empty where a person need do nothing. ``command`` belongs to its last
    clause: it carries that out, or shows what to look at. ``by_itself`` is a clause on the end without anybody's help.
    Names in braces (``{broker}``, ``{bundle}``, ``{namespace}``, ``{plan}``) are filled in with the subject of the
    reason.
    """

    do: str = ""
    command: str = ""
    by_itself: str = ""


_READ_SETTING = "lbd config show"
_FOR_GOOD = "(--apply splits it, which cannot be undone)"
_MOVED_MUCH = "To move sooner, raise {} and reload lbd (SIGHUP), if what moved was right"
_ONE_MORE = "the oldest of these moves is {} old then, and another bundle may move"

REMEDIES: Mapping[Reason, Remedy] = {
    # normal
    Reason.NOT_ASKED: Remedy(by_itself="its broker gives bundles once it is too far above another"),
    Reason.MOVES: Remedy(by_itself="lbd makes the move"),
    Reason.BALANCED: Remedy(by_itself="lbd goes on comparing the brokers in every turn"),
    Reason.WAITING: Remedy(by_itself="lbd moves bundles if the brokers are still too far apart then"),
    Reason.BELOW_MINIMUM: Remedy(
        "If the gap matters at this traffic, lower avg_shedder.min_unload_message or "
        "avg_shedder.min_unload_message_throughput and reload lbd (SIGHUP); what is set",
        _READ_SETTING,
        "it ends when there is more traffic to move",
    ),
    Reason.TOO_LARGE: Remedy(
        f"See where the bundle that is too large to move would be cut {_FOR_GOOD}", "lbd split {bundle}"
    ),
    Reason.NO_TRAFFIC: Remedy(by_itself="it ends when the bundle has traffic"),
    Reason.SOLE_BUNDLE: Remedy(
        f"See where the only bundle of the broker would be cut, so that lbd can move a part {_FOR_GOOD}",
        "lbd split {bundle}",
    ),
    Reason.BACKGROUND_LOAD: Remedy(
        "Find what uses {broker} beside its traffic: another process, compaction, a weaker machine", "lbd doctor"
    ),
    Reason.NOTHING_FITS: Remedy(
        "Read why each bundle of {broker} stays",
        "lbd explain {broker}",
        "it ends when a bundle of the right size may move",
    ),
    Reason.NOT_NEEDED: Remedy(by_itself="other moves suffice"),
    Reason.PLACEMENT_STAYS: Remedy(by_itself="it ends when another broker suits the bundle better"),
    # limits
    Reason.COOL_DOWN: Remedy(by_itself="bundles may move again guardrails.cool_down_minutes after their last move"),
    Reason.TURN_UNLOADS: Remedy(by_itself="the next turn moves more"),
    Reason.TURN_TRAFFIC: Remedy(by_itself="the next turn moves more"),
    Reason.HOUR_UNLOADS: Remedy(
        _MOVED_MUCH.format("guardrails.max_unloads_per_hour"),
        "lbd history --since 1h --last 200",
        _ONE_MORE.format("an hour"),
    ),
    Reason.DAY_UNLOADS: Remedy(
        _MOVED_MUCH.format("guardrails.max_unloads_per_day"),
        "lbd history --since 1d --last 200",
        _ONE_MORE.format("a day"),
    ),
    Reason.SOURCE_UNLOADS: Remedy(
        _MOVED_MUCH.format("guardrails.max_unloads_per_broker_per_hour"),
        "lbd history --since 1h --last 200 --broker {broker}",
        _ONE_MORE.format("an hour"),
    ),
    Reason.DESTINATION_UNLOADS: Remedy(
        _MOVED_MUCH.format("guardrails.max_unloads_per_broker_per_hour"),
        "lbd history --since 1h --last 200",
        _ONE_MORE.format("an hour"),
    ),
    Reason.HOUR_TRAFFIC: Remedy(
        _MOVED_MUCH.format("guardrails.max_traffic_per_hour"),
        "lbd history --since 1h --last 200",
        _ONE_MORE.format("an hour"),
    ),
    Reason.PING_PONG: Remedy(
        "Read the moves of these bundles: a load that comes and goes needs fewer moves, not more",
        "lbd history --since 1d --broker {broker}",
        "bundles may move again guardrails.ping_pong_window_hours after their last move",
    ),
    Reason.CHANGED_HANDS: Remedy(
        "End old pauses, drains or a rollout that are back in `lbd status`; if you know who moved the bundles, "
        "let lbd go on",
        "lbd resume",
        "bundles may move again guardrails.cool_down_minutes after they were moved",
    ),
    Reason.CANARY: Remedy(
        "If lbd is to move more, widen or remove guardrails.canary and reload lbd (SIGHUP); what is set",
        _READ_SETTING,
    ),
    Reason.CANARY_UNLOADS: Remedy(
        "If the canary is too slow, raise its max_moves_per_hour or remove it, and reload lbd (SIGHUP); what is set",
        _READ_SETTING,
        _ONE_MORE.format("an hour"),
    ),
    # policies
    Reason.ISOLATION_POLICY: Remedy(
        "With the owner of {namespace}, let its isolation policy include a broker that has room",
        "pulsar-admin ns-isolation-policy list CLUSTER",
    ),
    Reason.ANTI_AFFINITY: Remedy(
        "Add a broker in a failure domain where the group has no namespace yet",
        "pulsar-admin namespaces get-anti-affinity-group {namespace}",
        "it ends when another namespace of the group leaves a broker",
    ),
    Reason.EXCLUDED_NAMESPACE: Remedy(
        "If bundles of {namespace} may move, take it out of guardrails.excluded_namespaces and reload lbd (SIGHUP); "
        "what is set",
        _READ_SETTING,
    ),
    Reason.BROKER_BUNDLE: Remedy(by_itself="the bundle belongs to its broker and never moves"),
    Reason.POLICY_UNKNOWN: Remedy(
        "Give lbd's role the right to read the policies, or mend the broker that does not answer",
        "lbd doctor",
        "it ends when the policies can be read",
    ),
    Reason.SYSTEM_NAMESPACE: Remedy(by_itself="Pulsar's own topics stay unless guardrails.move_system_namespace is on"),
    Reason.LEADER_TOPIC: Remedy(by_itself="the bundle of leader.topic stays where it is"),
    Reason.DRAINED: Remedy(
        "When the work on {broker} is done, release it",
        "lbd drain {broker} --release",
        "it ends with the drain's time, and when the broker restarts",
    ),
    Reason.NOT_INCLUDED: Remedy(
        "If bundles of {namespace} may move, add it to guardrails.include_namespaces and reload lbd (SIGHUP); "
        "what is set",
        _READ_SETTING,
    ),
    Reason.BALANCE_OFF: Remedy(
        "Ask the owner of the namespace to remove its property lbd.balance",
        "pulsar-admin namespaces get-properties {namespace}",
    ),
    Reason.BALANCE_LOW: Remedy(by_itself="its bundles move after those of other namespaces"),
    Reason.NAMESPACE_QUIET: Remedy(by_itself="it ends with the quiet hours of the namespace"),
    Reason.PROPERTY_NOT_UNDERSTOOD: Remedy(
        "Correct the lbd properties of the namespace",
        "pulsar-admin namespaces get-properties {namespace}",
    ),
    Reason.TOPIC_COST: Remedy(
        "Leave it: on old brokers readers of its topics may hang (docs/guardrails.md); if it must move, do it by hand",
        "lbd unload {bundle}",
    ),
    Reason.NAME_WITH_CLUSTER: Remedy(
        "Move such a bundle with pulsar-admin", "pulsar-admin namespaces unload -b RANGE {namespace}"
    ),
    # safety
    Reason.IN_BROKER_SHEDDING: Remedy(
        "It is not urgent, as the brokers balance themselves. For lbd to do it, set in_broker_shedding to take-over, "
        "or turn their own shedding off",
        "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false",
    ),
    Reason.DESTINATION_OVERLOADED: Remedy(
        "Bring back a broker that is down, or add one: those that are there would be too full; how many are missing",
        "lbd capacity",
        "it ends when the load falls",
    ),
    Reason.DESTINATION_ABOVE_SOURCE: Remedy(
        f"See where the bundle would be cut: whole, it would make its destination fuller than its source {_FOR_GOOD}",
        "lbd split {bundle}",
    ),
    Reason.DESTINATION_FORBIDDEN: Remedy(
        "If it stays so, find why the destination may not have the bundle, or has no usable report",
        "lbd doctor",
        "the next turn takes another destination",
    ),
    Reason.TOPIC_LIMIT: Remedy(
        "Raise guardrails.max_topics_per_broker, as the destinations have as many topics as it allows, or add a broker",
        "lbd capacity",
    ),
    Reason.TOO_FEW_BROKERS: Remedy(
        "Look whether the brokers without a usable report serve their clients",
        "lbd doctor",
        "it ends when half of the brokers, and two at least, have a usable report",
    ),
    Reason.SETTLING: Remedy(by_itself="lbd compares a broker again after two samples that follow a move or restart"),
    Reason.MEMBERSHIP_CHANGED: Remedy(by_itself="lbd goes on when no broker has come or gone for a while"),
    Reason.LEADER_UNREACHABLE: Remedy(
        "If it lasts for two minutes, check the metadata store and the broker that should lead",
        "lbd doctor",
        "it ends when a broker leads again, usually within one session timeout (30 s)",
    ),
    Reason.ROUND_STOPPED: Remedy(by_itself="the next turn plans anew"),
    Reason.MOVES_UNFINISHED: Remedy(by_itself="lbd plans again when the moves under way have ended"),
    Reason.OWNER_CHANGED: Remedy(by_itself="the next turn plans with the new owner"),
    Reason.NOT_CHECKED: Remedy(
        "If it happens again, find the request that fails", "lbd doctor", "the next turn tries again"
    ),
    Reason.PAUSED: Remedy("When the work is done, let lbd go on", "lbd resume", "lbd goes on when the pause ends"),
    Reason.OBSERVE_ONLY: Remedy(
        "For lbd to move bundles, set mode: approve (a person applies each plan) or mode: auto, and restart it; "
        "what it would move",
        "lbd dry-run",
    ),
    Reason.QUIET_HOURS: Remedy(by_itself="lbd goes on when guardrails.quiet_hours are over"),
    Reason.NO_IMPROVEMENT: Remedy(
        "Look for load that no bundle carries: compaction, garbage collection, other processes",
        "lbd doctor",
        "lbd tries again after guardrails.stand_still_minutes",
    ),
    Reason.NOT_LEADER: Remedy(
        "If no lbd leads, find why",
        "lbd doctor",
        "the lbd that leads moves the bundles, and this one takes over if it stops",
    ),
    Reason.STATE_LOST: Remedy(
        "Put the removed files of the state directory back; if they are lost, restart lbd once with --new-journal, "
        "which forgets cool-downs and budgets",
        "lbd doctor",
        "it ends when the files are back",
    ),
    Reason.APPROVAL_REQUIRED: Remedy(
        "Approve plan {plan}, if `lbd plan` shows what you want",
        "lbd apply {plan}",
        "the plan expires, and a later turn proposes a new one if the brokers are still too far apart",
    ),
    Reason.NOT_SERVED: Remedy(
        "Look for the topic that the sentence names in its broker's log; if it does not load, restart that broker",
        "lbd history --last 20",
        "it ends when the clients are back, after guardrails.stand_still_minutes, or with lbd resume",
    ),
    Reason.SLOW_BROKER: Remedy(
        "Look at garbage collection, network and disk of {broker} and at the bookies; if it is sick, drain it "
        "(add --apply) and restart it",
        "lbd drain {broker}",
        "it ends when its health checks are as fast as those of the others",
    ),
    # data
    Reason.REPORT_MISSING: Remedy(
        "{broker} gives no load report: look whether it is up, and at its log; what lbd knows of it",
        "lbd explain {broker}",
        "it ends when the broker answers again",
    ),
    Reason.REPORT_EMPTY: Remedy(by_itself="the broker's next report has its bundles again"),
    Reason.FIRST_SAMPLE: Remedy(by_itself="the broker counts after two samples that follow its start"),
    Reason.NO_NEW_SAMPLE: Remedy(
        "Check {broker} with pulsar-admin brokers healthcheck: the numbers of its report stand still",
        "lbd explain {broker}",
        "it ends when the numbers change",
    ),
    Reason.IMPOSSIBLE_NUMBER: Remedy(
        "Find the number of {broker} that cannot be true", "lbd doctor", "it ends when the report is right"
    ),
    Reason.REPORTED_TWICE: Remedy(
        "If it lasts for more than two minutes, find the broker whose report stands still",
        "lbd doctor",
        "one of the two brokers leaves the bundle out of its next report",
    ),
    Reason.NO_STATISTICS: Remedy(by_itself="it ends with the first report that has statistics of the bundle"),
    Reason.ON_NO_REPORT: Remedy(by_itself="it ends with the first report of the new owner, within a minute or two"),
    Reason.UNKNOWN_RESOURCES: Remedy(
        "Tell the brokers the limits that they do not know, such as loadBalancerOverrideBrokerNicSpeedGbps",
        "lbd doctor",
    ),
    Reason.PROPERTY_UNREAD: Remedy(
        "Give lbd's role the right to read the properties of the namespace",
        "lbd doctor",
        "it ends when the properties can be read",
    ),
}
"""Remedy of every reason: without an entry, no screen could say what to do."""


class NextStep(msgspec.Struct, frozen=True, kw_only=True):
    """Present action of a person.

    ``reason`` is the label of a :class:`~lbd.reason.Reason`, or the word of a state that has none, ``what`` is its
    broker, pair or plan. ``do`` is empty where nothing needs to be done; ``command`` is ready to be run, null where
    there is none. ``by_itself`` is the end without anybody's help, empty where there is none, and ``ends_at`` its
    approximate time, in epoch seconds; null where that is unknown.
    """

    reason: str
    what: str = ""
    do: str = ""
    command: str | None = None
    by_itself: str = ""
    ends_at: float | None = None

    def text(self, now: float) -> str:
        """The step as one line, at ``now`` (epoch seconds)."""
        remaining = 0.0 if self.ends_at is None else self.ends_at - now
        wait = f" about {minutes_text(remaining)}" if remaining > 0 else ""
        if not self.do:
            return f"Nothing{wait and f', for{wait}'}: {self.by_itself}"
        order = self.do + (f": `{self.command}`" if self.command else "")
        return f"{order}; or wait{wait}: {self.by_itself}" if self.by_itself else order


def next_step(reason: Reason, what: str = "", ends_at: float | None = None, **names: str) -> NextStep:
    """Step of a reason's remedy. ``names`` fill in its braces; a missing one stays in capitals."""
    remedy, words = REMEDIES[reason], _Names(names)
    return NextStep(
        reason=reason.label,
        what=what,
        do=remedy.do.format_map(words),
        command=remedy.command.format_map(words) or None,
        by_itself=remedy.by_itself.format_map(words),
        ends_at=ends_at if remedy.by_itself else None,
    )


class _Names(dict[str, str]):
    """Names for the braces; a missing one is the word that ``lbd --help`` uses for it."""

    def __missing__(self, key: str) -> str:
        return key.upper()
