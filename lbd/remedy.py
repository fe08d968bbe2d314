"""Remedies: the action of a person for each reason not to move, and whether it ends by itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from lbd.reason import Reason
from lbd.text import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Remedy:
    """Remedy of a reason. It has something to ``do``, an end ``by_itself``, or both.

    ``do`` is an imperative without a full stop, empty where a person need do nothing. ``command`` carries it out, or
    shows the facts to check first. ``by_itself`` is a clause on the end without anybody's help. Names in braces
    (``{broker}``, ``{bundle}``, ``{namespace}``, ``{plan}``) are filled in with the subject of the reason.
    """

    do: str = ""
    command: str = ""
    by_itself: str = ""


_READ_SETTING = "lbd config show"

REMEDIES: Mapping[Reason, Remedy] = {
    # normal
    Reason.NOT_ASKED: Remedy(by_itself="its broker gives bundles once it is too far above another"),
    Reason.MOVES: Remedy(by_itself="the move is made, or shown to be made"),
    Reason.BALANCED: Remedy(by_itself="lbd goes on comparing the brokers in every turn"),
    Reason.WAITING: Remedy(by_itself="lbd moves bundles if the brokers are still too far apart then"),
    Reason.BELOW_MINIMUM: Remedy(
        "If the gap matters at this traffic, lower avg_shedder.min_unload_message and min_unload_message_throughput",
        _READ_SETTING,
        "it ends when there is more traffic to move",
    ),
    Reason.TOO_LARGE: Remedy("Split the bundle that is too large to move", "lbd split {bundle}"),
    Reason.NO_TRAFFIC: Remedy(by_itself="it ends when the bundle has traffic"),
    Reason.SOLE_BUNDLE: Remedy("Split the only bundle of the broker", "lbd split {bundle}"),
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
        "Find what moved so much; raise guardrails.max_unloads_per_hour if that was right",
        "lbd history --since 1h",
        "it ends when the oldest of these moves is an hour old",
    ),
    Reason.DAY_UNLOADS: Remedy(
        "Find what moved so much; raise guardrails.max_unloads_per_day if that was right",
        "lbd history --since 1d",
        "it ends when the oldest of these moves is a day old",
    ),
    Reason.SOURCE_UNLOADS: Remedy(
        "Find what moved so much; raise guardrails.max_unloads_per_broker_per_hour if that was right",
        "lbd history --since 1h --broker {broker}",
        "it ends when the oldest of these moves is an hour old",
    ),
    Reason.DESTINATION_UNLOADS: Remedy(
        "Find what moved so much; raise guardrails.max_unloads_per_broker_per_hour if that was right",
        "lbd history --since 1h",
        "it ends when the oldest of these moves is an hour old",
    ),
    Reason.HOUR_TRAFFIC: Remedy(
        "Find what moved so much; raise guardrails.max_traffic_per_hour if that was right",
        "lbd history --since 1h",
        "it ends when the oldest of these moves is an hour old",
    ),
    Reason.PING_PONG: Remedy(
        "Read the moves of these bundles: a load that comes and goes needs fewer moves, not more",
        "lbd history --since 1d --broker {broker}",
        "bundles may move again guardrails.ping_pong_window_hours after their last move",
    ),
    Reason.CHANGED_HANDS: Remedy(
        "If you know who moved the bundles, let lbd go on",
        "lbd resume",
        "bundles may move again guardrails.cool_down_minutes after they were moved",
    ),
    Reason.CANARY: Remedy("Widen guardrails.canary or remove it, then reload the settings", _READ_SETTING),
    Reason.CANARY_UNLOADS: Remedy(
        "Raise guardrails.canary.max_moves_per_hour or remove the canary, then reload the settings",
        _READ_SETTING,
        "it ends when the oldest of these moves is an hour old",
    ),
    # policies
    Reason.ISOLATION_POLICY: Remedy(
        "Let the isolation policy of the namespace include a broker that has room",
        "pulsar-admin ns-isolation-policy list CLUSTER",
    ),
    Reason.ANTI_AFFINITY: Remedy(
        "Add a broker in a failure domain where the group has no namespace yet",
        "pulsar-admin namespaces get-anti-affinity-group {namespace}",
        "it ends when another namespace of the group leaves a broker",
    ),
    Reason.EXCLUDED_NAMESPACE: Remedy(
        "If its bundles may move, take {namespace} out of guardrails.excluded_namespaces", _READ_SETTING
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
        "it ends with the drain's time, or when the broker restarts",
    ),
    Reason.NOT_INCLUDED: Remedy(
        "If its bundles may move, name {namespace} in guardrails.include_namespaces", _READ_SETTING
    ),
    Reason.BALANCE_OFF: Remedy(
        "Ask the owner of the namespace to remove its property lbd.balance",
        "pulsar-admin namespaces remove-property -k lbd.balance {namespace}",
    ),
    Reason.BALANCE_LOW: Remedy(by_itself="its bundles move after those of other namespaces"),
    Reason.NAMESPACE_QUIET: Remedy(by_itself="it ends with the quiet hours of the namespace"),
    Reason.PROPERTY_NOT_UNDERSTOOD: Remedy(
        "Correct the lbd properties of the namespace",
        "pulsar-admin namespaces get-properties {namespace}",
    ),
    Reason.TOPIC_COST: Remedy(
        "If its topics may close for a moment, change guardrails.topic_costs or move it by hand",
        "lbd unload {bundle}",
    ),
    Reason.NAME_WITH_CLUSTER: Remedy(
        "Move such a bundle with pulsar-admin", "pulsar-admin namespaces unload -b RANGE {namespace}"
    ),
    # safety
    Reason.IN_BROKER_SHEDDING: Remedy(
        "Turn the brokers' own shedding off, or set in_broker_shedding to take-over",
        "pulsar-admin brokers update-dynamic-config --config loadBalancerSheddingEnabled --value false",
    ),
    Reason.DESTINATION_OVERLOADED: Remedy(
        "Add a broker: those that are there would be too full",
        "lbd capacity",
        "it ends when the load falls",
    ),
    Reason.DESTINATION_ABOVE_SOURCE: Remedy(
        "Split the bundle: its destination would be fuller than its source is now", "lbd split {bundle}"
    ),
    Reason.DESTINATION_FORBIDDEN: Remedy("Choose a destination that is active and allowed", "lbd place {bundle}"),
    Reason.TOPIC_LIMIT: Remedy(
        "Add a broker, or raise loadBalancerBrokerMaxTopics: the destinations are at their limit of topics",
        "lbd capacity",
    ),
    Reason.TOO_FEW_BROKERS: Remedy(
        "Look at the brokers without a usable report", "lbd doctor", "it ends when two brokers can be compared"
    ),
    Reason.SETTLING: Remedy(by_itself="lbd compares a broker again after two samples that follow a move or restart"),
    Reason.MEMBERSHIP_CHANGED: Remedy(by_itself="lbd goes on when no broker has come or gone for a while"),
    Reason.LEADER_UNREACHABLE: Remedy(
        "Restart the broker that the sentence names, or check the metadata store",
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
        "Set mode: approve or mode: auto and reload the settings, if `lbd plan` shows what you want"
    ),
    Reason.QUIET_HOURS: Remedy(by_itself="lbd goes on when guardrails.quiet_hours are over"),
    Reason.NO_IMPROVEMENT: Remedy(
        "Look for load that no bundle carries: compaction, garbage collection, other processes",
        "lbd doctor",
        "lbd tries again after guardrails.stand_still_minutes",
    ),
    Reason.NOT_LEADER: Remedy(by_itself="the lbd that leads moves the bundles; this one takes over if it stops"),
    Reason.STATE_LOST: Remedy(
        "Put the removed files of the state directory back, or stop lbd and start it again",
        "lbd doctor",
        "it ends when the files are back",
    ),
    Reason.APPROVAL_REQUIRED: Remedy("Approve plan {plan}, if `lbd plan` shows what you want", "lbd apply {plan}"),
    Reason.NOT_SERVED: Remedy(
        "Look for the topic that the sentence names in the broker's log; to go on without its clients, resume",
        "lbd resume",
        "it ends when the clients are back, or after guardrails.stand_still_minutes",
    ),
    Reason.SLOW_BROKER: Remedy(
        "Look at garbage collection, network and disk of {broker}, drain it and restart it",
        "lbd drain {broker}",
        "it ends when its health checks are as fast as those of the others",
    ),
    # data
    Reason.REPORT_MISSING: Remedy(
        "Look at the log of {broker}: it gives no load report",
        "lbd explain {broker}",
        "it ends when the broker answers again",
    ),
    Reason.REPORT_EMPTY: Remedy(by_itself="the broker's next report has its bundles again"),
    Reason.FIRST_SAMPLE: Remedy(by_itself="the broker counts after two samples that follow its start"),
    Reason.NO_NEW_SAMPLE: Remedy(
        "Check {broker}: the numbers of its report stand still",
        "lbd explain {broker}",
        "it ends when the numbers change",
    ),
    Reason.IMPOSSIBLE_NUMBER: Remedy(
        "Find the number of {broker} that cannot be true", "lbd doctor", "it ends when the report is right"
    ),
    Reason.REPORTED_TWICE: Remedy(by_itself="one of the two brokers leaves the bundle out of its next report"),
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
        about = f" about {_about(remaining)}" if remaining > 0 else ""
        if not self.do:
            return f"Nothing{about and f', for{about}'}: {self.by_itself}"
        order = self.do + (f": `{self.command}`" if self.command else "")
        return f"{order}; or wait{about}: {self.by_itself}" if self.by_itself else order


def _about(seconds: float) -> str:
    """An approximate duration: whole minutes from two on."""
    return duration_text(round(seconds / 60) * 60 if seconds >= 120 else seconds)


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
