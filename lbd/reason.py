"""Reasons for which something was not moved: one closed list of words for text, log, metrics and programs."""

from __future__ import annotations

from enum import Enum


class Group(Enum):
    """Why something was not moved, roughly: the words that metrics and API group by."""

    NORMAL = "normal"
    LIMIT = "limit"
    POLICY = "policy"
    SAFETY = "safety"
    DATA = "data"


class Reason(Enum):
    """Every reason not to move a bundle, a broker pair, or anything at all. The enum is closed."""

    NOT_ASKED = (0, "not-asked", Group.NORMAL)
    MOVES = (1, "moves", Group.NORMAL)
    BALANCED = (2, "balanced", Group.NORMAL)
    WAITING = (3, "waiting", Group.NORMAL)
    BELOW_MINIMUM = (4, "below-minimum", Group.NORMAL)
    TOO_LARGE = (5, "too-large", Group.NORMAL)
    NO_TRAFFIC = (6, "no-traffic", Group.NORMAL)
    SOLE_BUNDLE = (7, "sole-bundle", Group.NORMAL)
    BACKGROUND_LOAD = (8, "background-load", Group.NORMAL)
    NOTHING_FITS = (9, "nothing-fits", Group.NORMAL)
    NOT_NEEDED = (10, "not-needed", Group.NORMAL)
    PLACEMENT_STAYS = (11, "placement-stays", Group.NORMAL)
    COOL_DOWN = (20, "cool-down", Group.LIMIT)
    TURN_UNLOADS = (21, "unloads-per-turn", Group.LIMIT)
    TURN_TRAFFIC = (22, "traffic-per-turn", Group.LIMIT)
    HOUR_UNLOADS = (23, "unloads-per-hour", Group.LIMIT)
    DAY_UNLOADS = (24, "unloads-per-day", Group.LIMIT)
    SOURCE_UNLOADS = (25, "unloads-per-source", Group.LIMIT)
    DESTINATION_UNLOADS = (26, "unloads-per-destination", Group.LIMIT)
    HOUR_TRAFFIC = (27, "traffic-per-hour", Group.LIMIT)
    PING_PONG = (28, "ping-pong", Group.LIMIT)
    CHANGED_HANDS = (29, "changed-hands", Group.LIMIT)
    CANARY = (30, "canary", Group.LIMIT)
    CANARY_UNLOADS = (31, "canary-per-hour", Group.LIMIT)
    ISOLATION_POLICY = (40, "isolation-policy", Group.POLICY)
    ANTI_AFFINITY = (41, "anti-affinity", Group.POLICY)
    EXCLUDED_NAMESPACE = (42, "excluded-namespace", Group.POLICY)
    BROKER_BUNDLE = (43, "broker-bundle", Group.POLICY)
    POLICY_UNKNOWN = (44, "policy-unknown", Group.POLICY)
    SYSTEM_NAMESPACE = (45, "system-namespace", Group.POLICY)
    LEADER_TOPIC = (46, "leader-topic", Group.POLICY)
    DRAINED = (47, "drained", Group.POLICY)
    NOT_INCLUDED = (48, "not-included", Group.POLICY)
    BALANCE_OFF = (49, "balance-off", Group.POLICY)
    BALANCE_LOW = (50, "balance-low", Group.POLICY)
    NAMESPACE_QUIET = (51, "namespace-quiet-hours", Group.POLICY)
    PROPERTY_NOT_UNDERSTOOD = (52, "property-not-understood", Group.POLICY)
    TOPIC_COST = (53, "topic-cost", Group.POLICY)
    NAME_WITH_CLUSTER = (54, "name-with-cluster", Group.POLICY)
    IN_BROKER_SHEDDING = (60, "in-broker-shedding", Group.SAFETY)
    DESTINATION_OVERLOADED = (61, "destination-overloaded", Group.SAFETY)
    DESTINATION_ABOVE_SOURCE = (62, "destination-above-source", Group.SAFETY)
    DESTINATION_FORBIDDEN = (63, "destination-forbidden", Group.SAFETY)
    TOPIC_LIMIT = (64, "topic-limit", Group.SAFETY)
    TOO_FEW_BROKERS = (65, "too-few-brokers", Group.SAFETY)
    SETTLING = (66, "settling", Group.SAFETY)
    MEMBERSHIP_CHANGED = (67, "membership-changed", Group.SAFETY)
    LEADER_UNREACHABLE = (68, "leader-unreachable", Group.SAFETY)
    ROUND_STOPPED = (69, "round-stopped", Group.SAFETY)
    MOVES_UNFINISHED = (70, "moves-unfinished", Group.SAFETY)
    OWNER_CHANGED = (71, "owner-changed", Group.SAFETY)
    NOT_CHECKED = (72, "not-checked", Group.SAFETY)
    PAUSED = (73, "paused", Group.SAFETY)
    OBSERVE_ONLY = (74, "observe-only", Group.SAFETY)
    QUIET_HOURS = (75, "quiet-hours", Group.SAFETY)
    NO_IMPROVEMENT = (76, "no-improvement", Group.SAFETY)
    NOT_LEADER = (77, "not-leader", Group.SAFETY)
    STATE_LOST = (78, "state-lost", Group.SAFETY)
    APPROVAL_REQUIRED = (79, "approval-required", Group.SAFETY)
    NOT_SERVED = (90, "not-served", Group.SAFETY)
    SLOW_BROKER = (91, "slow-broker", Group.SAFETY)
    REPORT_MISSING = (80, "report-missing", Group.DATA)
    REPORT_EMPTY = (81, "report-empty", Group.DATA)
    FIRST_SAMPLE = (82, "first-sample", Group.DATA)
    NO_NEW_SAMPLE = (83, "no-new-sample", Group.DATA)
    IMPOSSIBLE_NUMBER = (84, "impossible-number", Group.DATA)
    REPORTED_TWICE = (85, "reported-twice", Group.DATA)
    NO_STATISTICS = (86, "no-statistics", Group.DATA)
    ON_NO_REPORT = (88, "on-no-report", Group.DATA)
    UNKNOWN_RESOURCES = (87, "unknown-resources", Group.DATA)
    PROPERTY_UNREAD = (89, "property-unread", Group.DATA)

    def __init__(self, code: int, label: str, group: Group) -> None:
        self.code = code
        self.label = label
        self.group = group

    def message(self, detail: str) -> str:
        """The label, and what there is to say beside it."""
        return f"{self.label}: {detail}" if detail else self.label

    @classmethod
    def of(cls, code: int) -> Reason:
        """The reason that a code column stands for."""
        return _BY_CODE[code]


_BY_CODE = {reason.code: reason for reason in Reason}

STATES = {
    Reason.CHANGED_HANDS: "because bundles changed their owner without lbd",
    Reason.POLICY_UNKNOWN: "while policies cannot be read",
    Reason.TOO_FEW_BROKERS: "while too few brokers have a usable report",
    Reason.MEMBERSHIP_CHANGED: "after a change of brokers",
    Reason.LEADER_UNREACHABLE: "while the leader broker is unreachable",
    Reason.ROUND_STOPPED: "because the round was stopped",
    Reason.PAUSED: "while lbd is paused",
    Reason.OBSERVE_ONLY: "because lbd only observes",
    Reason.NO_IMPROVEMENT: "because moves bring no improvement",
    Reason.NOT_LEADER: "because this lbd does not lead",
    Reason.STATE_LOST: "because the state directory is lost",
    Reason.APPROVAL_REQUIRED: "until a person approves the plan",
    Reason.NOT_SERVED: "while clients of moved bundles are not back",
}
"""Reasons that are a state of lbd or of the cluster, as text after ``blocked`` or ``held``."""

_CAUSES = {reason.label: text for reason, text in STATES.items()}


def cause(label: str | None) -> str:
    """Text after ``blocked`` or ``held``, by the label of a reason: ``by cool-down``, ``while lbd is paused``."""
    return _CAUSES.get(label or "", f"by {label}")
