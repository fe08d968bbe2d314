"""What several lbds really did to a cluster, and whether each rule of the design held.

Nothing of lbd's own code is used here: requests as they reached the brokers, owners as the brokers' book has them,
lines as the topic of leadership and the journals on disk have them. Rules are functions of a :class:`Record`, one for
each; what a rule leaves to lbd (how soon it must see a change, how far a report may lag) stands in :class:`Limits`.
"""

from __future__ import annotations

import bisect
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

HOUR_SECONDS = 3600.0
GONE = "(no bundle)"
"""The owner of a bundle that was split or deleted."""

NOBODY = ""
SHOWN = 20
"""So many events are shown before each violation."""

QUIET = {"ownership", "report"}
"""Kinds of events that say nothing to a reader."""


@dataclass(frozen=True)
class Limits:
    """The settings of the lbds, and what the observer allows.

    ``deadline_seconds`` is from an intent to the last hop of its request, ``late_seconds`` is how long after an end its
    outcome is amended by what its request does. lbd must see within ``notice_seconds`` what
    changed in the cluster, and within ``lost_seconds`` that it leads no more. ``planned_seconds``: a plan may rest on
    reports and averages that old. ``margin_points``: CPU samples are noisy.
    """

    cool_down_seconds: float = 60.0
    settle_seconds: float = 25.0
    per_hour: int = 1000
    per_broker_per_hour: int = 1000
    topics: int = 1000
    score: float = 85.0
    group: frozenset[str] = frozenset()
    deadline_seconds: float = 20.0
    late_seconds: float = 55.0
    notice_seconds: float = 8.0
    lost_seconds: float = 20.0
    planned_seconds: float = 60.0
    margin_points: float = 8.0


@dataclass(frozen=True)
class Event:
    """One thing that happened, at a second of a clock that nobody sets.

    ``who`` is a process of lbd. The kinds: of requests ``unload``, ``lookup``, ``ownership`` and ``report``, with
    ``answer`` for that of an unload; ``owner``; ``line`` (of the topic), ``journal`` (an outcome that stood in a file
    first) and ``retold``; ``writer``; ``stop`` and ``continue`` of a process; ``listed`` and ``broker``; ``stray``;
    ``secret``; ``bug``; ``fault``, and what rules must know of one: ``pause`` and ``resume``, ``shedding`` and ``no
    shedding``, ``spoilt`` and ``sound`` (reports). Others are for the reader.
    """

    at: float
    kind: str
    who: str = ""
    broker: str = ""
    bundle: str = ""
    destination: str = ""
    detail: str = ""
    line: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = [self.who, self.broker, self.bundle, self.destination and f"to {self.destination}", self.detail]
        if self.line:
            told += [
                f"{key}={self.line[key]}" for key in ("event", "move", "attempt", "result", "owner") if key in self.line
            ]
        return f"{self.at:9.2f} {self.kind:9} {' '.join(filter(None, told))}"


@dataclass(frozen=True)
class Truth:
    """The cluster at one moment: ``points`` of each broker and what each bundle adds (``rise``), by the model itself.

    ``up`` are the brokers that answer, ``allowed`` those of each namespace by its policies.
    """

    at: float
    owners: Mapping[str, str]
    points: Mapping[str, float]
    rise: Mapping[str, float]
    topics: Mapping[str, int]
    up: frozenset[str]
    allowed: Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Violation:
    """A rule, and what was against it."""

    at: float
    rule: str
    text: str


@dataclass
class Attempt:
    """An intent with what followed it: the hops of its request, and its outcomes, as each process told them."""

    intent: Event
    requests: list[Event] = field(default_factory=list)
    outcomes: list[Event] = field(default_factory=list)

    @property
    def source(self) -> str:
        return str(self.intent.line["source"])

    @property
    def destination(self) -> str:
        return str(self.intent.line["destination"])

    @property
    def number(self) -> int:
        return int(self.intent.line.get("attempt", 1))

    @property
    def ended_at(self) -> float:
        return min((one.at for one in self.outcomes), default=float("inf"))


class Record:
    """Everything that was seen. Events are added from many threads; the rules come after the last one."""

    def __init__(self) -> None:
        self.truths: list[Truth] = []
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def add(self, *events: Event) -> None:
        """These have happened."""
        with self._lock:
            self._events.extend(events)

    @cached_property
    def events(self) -> list[Event]:
        """All of them, in their order."""
        return sorted(self._events, key=lambda event: event.at)

    def of(self, *kinds: str) -> list[Event]:
        """Those of some kinds."""
        if len(kinds) == 1:
            return self._by_kind.get(kinds[0], [])
        return sorted((event for kind in kinds for event in self.of(kind)), key=lambda event: event.at)

    @cached_property
    def _by_kind(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.kind].append(event)
        return dict(found)

    def before(self, at: float) -> list[Event]:
        """The last ones until then that say something."""
        return [event for event in self.events if event.at <= at and event.kind not in QUIET][-SHOWN:]

    @cached_property
    def attempts(self) -> list[Attempt]:
        """Each intent that was stored, with its requests and outcomes."""
        found = [Attempt(event) for event in self.of("line") if event.line["event"] == "intent"]
        by_move = {one.intent.line["move"]: one for one in found}
        for event in self.of("line", "journal"):
            attempt = by_move.get(event.line.get("move"))
            if attempt is not None and event.line["event"] == "outcome":
                attempt.outcomes.append(event)
        for event in self.of("unload"):
            attempt = self._attempt_of(event, found)
            if attempt is not None:
                attempt.requests.append(event)
        return found

    @staticmethod
    def _attempt_of(event: Event, among: Iterable[Attempt]) -> Attempt | None:
        """Whose hop it is: of the last intent of that process for that bundle, while it has no outcome."""
        own = [one for one in among if (one.intent.who, one.intent.bundle) == (event.who, event.bundle)]
        last = next((one for one in reversed(own) if one.intent.at <= event.at), None)
        ends = [end.at for end in last.outcomes if end.who == event.who] if last is not None else []
        is_over = any(end < event.at for end in ends)
        return None if last is None or is_over or event.destination not in {"", last.destination} else last

    @cached_property
    def strays(self) -> list[Event]:
        """Unload requests of no open intent."""
        own = {id(event) for one in self.attempts for event in one.requests}
        return [event for event in self.of("unload") if id(event) not in own]

    def owners(self, bundle: str, begin: float, end: float) -> set[str]:
        """Who owned it at any moment of that time."""
        times, owners = self._owners.get(bundle, ([], []))
        first, last = bisect.bisect_right(times, begin), bisect.bisect_right(times, end)
        return set(owners[max(first - 1, 0) : last])

    @cached_property
    def _owners(self) -> dict[str, tuple[list[float], list[str]]]:
        found: dict[str, tuple[list[float], list[str]]] = defaultdict(lambda: ([], []))
        for event in self.of("owner"):
            found[event.bundle][0].append(event.at)
            found[event.bundle][1].append(event.broker)
        return dict(found)

    def changes(self, bundle: str, begin: float, end: float) -> list[tuple[float, str]]:
        """When it changed its owner in that time, and who had it before."""
        times, owners = self._owners.get(bundle, ([], []))
        first, last = bisect.bisect_right(times, begin), bisect.bisect_right(times, end)
        return [(times[at], owners[at - 1]) for at in range(max(first, 1), last)]

    def looked(self, begin: float, end: float) -> list[Truth]:
        """The cluster as it was, second by second."""
        times = self._looked_at
        return self.truths[bisect.bisect_left(times, begin) : bisect.bisect_right(times, end)]

    @cached_property
    def _looked_at(self) -> list[float]:
        return [truth.at for truth in self.truths]

    def asked(self, kind: str, who: str, bundle: str, before: float) -> float | None:
        """When a process last asked so before then; None: never."""
        times = self._asked.get((kind, who, bundle), [])
        number = bisect.bisect_left(times, before)
        return times[number - 1] if number else None

    @cached_property
    def _asked(self) -> dict[tuple[str, str, str], list[float]]:
        found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for event in self.of("ownership", "report"):
            found[event.kind, event.who, event.bundle].append(event.at)
        return dict(found)

    def spans(self, begins: str, ends: str, who: str | None = None) -> list[tuple[float, float, Event]]:
        """From each event of one kind to the next one of another of the same process and broker."""
        found = []
        for event in self.of(begins):
            after = (
                other.at
                for other in self.of(ends)
                if other.at >= event.at and (other.who, other.broker) == (event.who, event.broker)
            )
            if who in {None, event.who}:
                found.append((event.at, next(after, float("inf")), event))
        return found

    def lost_for(self, who: str, at: float) -> float:
        """Seconds since a process wrote last, while it ran; 0 while it writes. Who never wrote has lost for good."""
        turns = [event for event in self.of("writer") if event.at <= at]
        if turns and turns[-1].who == who:
            return 0.0
        lost = [after.at for before, after in pairwise(turns) if before.who == who and after.who != who]
        if not lost:
            return float("inf")
        stopped = sum(
            max(0.0, min(end, at) - max(begin, lost[-1])) for begin, end, _ in self.spans("stop", "continue", who)
        )
        return at - lost[-1] - stopped


def _namespace(bundle: str) -> str:
    return bundle.rpartition("/")[0]


def _range(bundle: str) -> str:
    return bundle.rpartition("/")[2]


# -- the rules


def rule_1_destinations(record: Record, limits: Limits) -> Iterator[Violation]:
    """A destination is up, allowed, within its limits and below its source; the source still owns the bundle.

    What lbd looks at just before each hop must hold then, what it plans with when it planned.
    """
    for attempt in record.attempts:
        for number, hop in enumerate(attempt.requests):
            since = (attempt.intent.at if number == 0 else hop.at) - limits.notice_seconds
            planned = attempt.intent.at - limits.planned_seconds
            for wrong, holds, begin in (
                ("it answers nothing", _is_up, since),
                ("policies forbid it", _is_allowed, since),
                (f"it would have more than {limits.topics} topics", _has_room, planned),
                ("its load would be too high", _is_low, planned),
                ("its anti-affinity group is there", _is_spread, planned),
            ):
                looked = record.looked(begin, hop.at)
                if looked and not any(holds(truth, attempt, limits) for truth in looked):
                    yield Violation(hop.at, "1 destination", f"{_name(attempt)}: {wrong}")
            owners = record.owners(attempt.intent.bundle, since, hop.at)
            if attempt.source not in owners:
                told = f"{attempt.source} did not own it, but {owners}"
                yield Violation(hop.at, "1 destination", f"{_name(attempt)}: {told}")


def _is_up(truth: Truth, attempt: Attempt, limits: Limits) -> bool:
    del limits
    return attempt.destination in truth.up


def _is_allowed(truth: Truth, attempt: Attempt, limits: Limits) -> bool:
    del limits
    return attempt.destination in truth.allowed.get(_namespace(attempt.intent.bundle), truth.up)


def _has_room(truth: Truth, attempt: Attempt, limits: Limits) -> bool:
    return _topics(truth, attempt.intent.bundle, attempt.destination) <= limits.topics


def _is_low(truth: Truth, attempt: Attempt, limits: Limits) -> bool:
    after = truth.points.get(attempt.destination, 0.0) + truth.rise.get(attempt.intent.bundle, 0.0)
    above = truth.points.get(attempt.source, 0.0) if attempt.number == 1 else float("inf")
    return after <= min(limits.score, above) + limits.margin_points


def _is_spread(truth: Truth, attempt: Attempt, limits: Limits) -> bool:
    return _spread(truth, attempt.intent.bundle, attempt.destination, limits.group)


def _topics(truth: Truth, bundle: str, broker: str) -> int:
    """Of a broker once it has the bundle."""
    there = sum(truth.topics[one] for one, owner in truth.owners.items() if owner == broker and one != bundle)
    return there + truth.topics.get(bundle, 0)


def _spread(truth: Truth, bundle: str, destination: str, group: frozenset[str]) -> bool:
    namespace = _namespace(bundle)
    if namespace not in group:
        return True
    there: dict[str, set[str]] = defaultdict(set)
    for one, owner in truth.owners.items():
        if _namespace(one) in group and one != bundle:
            there[owner].add(_namespace(one))
    fewest = min((len(there[broker]) for broker in truth.allowed.get(namespace, truth.up)), default=0)
    return len(there[destination]) <= fewest


def rule_2_outcomes(record: Record, limits: Limits) -> Iterator[Violation]:
    """What is told of each end was so when it was told; what came of the request after that is told, too."""
    for attempt in record.attempts:
        bundle, source, destination = attempt.intent.bundle, attempt.source, attempt.destination
        for end in attempt.outcomes:
            result, owner = str(end.line["result"]), end.line.get("owner")
            asked = record.asked("ownership", end.who, bundle, end.at)
            seen = record.owners(bundle, min(asked or end.at, end.at - 1) - 0.5, end.at)
            told = {
                "landed": owner == destination and owner in seen,
                "landed-elsewhere": owner in seen and owner not in {source, destination},
                "failed": owner == source and owner in seen,
                "unowned": NOBODY in seen,
                "unknown": True,
            }.get(result, GONE in seen)
            if not told:
                yield Violation(end.at, "2 outcome", f"{_name(attempt)}: {result} on {owner}, owned by {sorted(seen)}")
        yield from _acts_late(record, attempt, limits)


def _acts_late(record: Record, attempt: Attempt, limits: Limits) -> Iterator[Violation]:
    """A bundle that changes hands within a minute of an end, by nothing else than its request: that is told, too, by a
    process that still leads.
    """
    bundle = attempt.intent.bundle
    others = [one.intent.at for one in record.attempts if one.intent.bundle == bundle]
    for end in attempt.outcomes:
        owner = str(end.line.get("owner") or NOBODY)
        window = (end.at, min([at for at in others if at > end.at] + [end.at + limits.late_seconds]))
        change = next((at for at, was in record.changes(bundle, *window) if was == owner != NOBODY), None)
        if change is None or _has_gone(record, owner, change) or record.owners(bundle, change, change) == {GONE}:
            continue
        told = any(other.at > change for other in attempt.outcomes)
        if record.owners(bundle, window[1], window[1]) == {owner}:
            continue  # let go and taken back: it is where it was said to be
        if not told and record.lost_for(end.who, change + limits.lost_seconds) == 0:
            late = f"{end.line['result']} on {owner}, and it acted {change - end.at:.1f} s later"
            yield Violation(end.at, "2 outcome", f"{_name(attempt)}: {late}")


def _has_gone(record: Record, broker: str, at: float) -> bool:
    """Whether a broker died or left shortly before: its bundles are free then, or with the end of its session."""
    return any(one.broker == broker and at - 60 < one.at < at + 1 for one in record.of("broker"))


def rule_3_in_flight(record: Record, limits: Limits) -> Iterator[Violation]:
    """Never two unloads of one range, nor two from one source: by intents, and by requests that brokers work on."""
    del limits
    for number, attempt in enumerate(record.attempts):
        for other in record.attempts[:number]:
            same = "range" if _range(other.intent.bundle) == _range(attempt.intent.bundle) else ""
            same = same or ("source" if other.source == attempt.source else "")
            if same and other.ended_at > attempt.intent.at:
                text = f"{_name(attempt)}: same {same} as {_name(other)}"
                yield Violation(attempt.intent.at, "3 in flight", text)
    under_way: list[tuple[float, Event]] = []
    ends = {one.line["request"]: one.at for one in record.of("answer")}
    for event in record.of("unload"):
        under_way = [(end, one) for end, one in under_way if end > event.at]
        for _, other in under_way:
            if other.who != event.who and _range(other.bundle) == _range(event.bundle):
                working = f"{other.broker} works for {other.who} since {other.at:.1f}"
                text = f"{event.bundle}: {event.who} asks {event.broker}, while {working}"
                yield Violation(event.at, "3 in flight", text)
        under_way.append((ends.get(event.line["request"], event.at), event))


def rule_4_retries(record: Record, limits: Limits) -> Iterator[Violation]:
    """Once, and only of what came back or may not stay where it landed; two misses from one source stop a round."""
    for number, attempt in enumerate(record.attempts):
        before = record.attempts[:number]
        why = _two_misses(record, attempt, before)
        if attempt.number > 1:
            why = why or _no_retry(record, attempt, before, limits)
        if why:
            yield Violation(attempt.intent.at, "4 retry", f"{_name(attempt)}: {why}")


def _no_retry(record: Record, attempt: Attempt, before: list[Attempt], limits: Limits) -> str:
    """Why this is no second attempt as it may be."""
    own = [one for one in before if one.intent.bundle == attempt.intent.bundle and one.intent.who == attempt.intent.who]
    if attempt.number > 2 or not own or own[-1].number != 1 or not own[-1].outcomes:
        return f"attempt {attempt.number}, and no first one ended before it"
    first, end = own[-1], own[-1].outcomes[0]
    owner = str(end.line.get("owner") or NOBODY)
    looked = record.looked(end.at - limits.planned_seconds, end.at)
    is_doubtful = any(not _may_stay(truth, first, owner, limits) for truth in looked)
    if end.line["result"] in {"failed", "landed-elsewhere"} and (owner == first.source or is_doubtful or not looked):
        return ""
    return f"again, after {end.line['result']} on {owner or 'nobody'}"


def _may_stay(truth: Truth, first: Attempt, owner: str, limits: Limits) -> bool:
    """Whether there is no doubt that a bundle may stay where it landed instead."""
    bundle = first.intent.bundle
    after = truth.points.get(owner, 0.0) + truth.rise.get(bundle, 0.0)
    is_low = after < min(limits.score, truth.points.get(first.source, 0.0)) - 2 * limits.margin_points
    may = owner in truth.allowed.get(_namespace(bundle), truth.up) & truth.up
    return (
        is_low and may and _topics(truth, bundle, owner) < limits.topics and _spread(truth, bundle, owner, limits.group)
    )


NO_MISS = {"landed", "gone"}


def _two_misses(record: Record, attempt: Attempt, before: list[Attempt]) -> str:
    """Two from its source in a row, after which its process has not looked at the cluster again."""
    who, source = attempt.intent.who, attempt.source
    own = [one for one in before if one.intent.who == who and one.source == source and one.number == 1][-2:]
    missed = [one.outcomes[-1].at for one in own if one.outcomes and one.outcomes[0].line["result"] not in NO_MISS]
    looked = record.asked("report", who, "", attempt.intent.at)
    is_blind = len(missed) == 2 and attempt.number == 1 and (looked or 0.0) < missed[-1]
    return f"two misses from {source} did not stop it" if is_blind else ""


def rule_6_own_shedder(record: Record, limits: Limits) -> Iterator[Violation]:
    """No unload while brokers shed by themselves."""
    for begin, end, _ in record.spans("shedding", "no shedding"):
        for hop in _hops(record, begin + limits.notice_seconds, end):
            yield Violation(hop.at, "6 shedding", f"{hop}, {hop.at - begin:.0f} s after in-broker shedding was on")


def rule_7_reports(record: Record, limits: Limits) -> Iterator[Violation]:
    """Nothing goes to or from a broker whose report is missing, broken or full of NaN."""
    for begin, end, spoilt in record.spans("spoilt", "sound"):
        for attempt in record.attempts:
            ends = {attempt.source, attempt.destination}
            if (
                begin + limits.notice_seconds < attempt.intent.at < end
                and spoilt.broker in ends
                and attempt.number == 1
            ):
                yield Violation(
                    attempt.intent.at,
                    "7 reports",
                    f"{_name(attempt)}: the report of {spoilt.broker} is {spoilt.detail}",
                )


def rule_8_membership(record: Record, limits: Limits) -> Iterator[Violation]:
    """Nothing is begun until the brokers that are there have been the same for a while; a process that has just begun
    to look cannot know.
    """
    looks: dict[str, float] = {}
    for event in record.of("report"):
        looks.setdefault(event.who, event.at)
    for change in record.of("listed"):
        for attempt in record.attempts:
            age = attempt.intent.at - change.at
            if (
                limits.notice_seconds < age < limits.settle_seconds
                and looks.get(attempt.intent.who, attempt.intent.at) < change.at
                and attempt.number == 1
            ):
                yield Violation(
                    attempt.intent.at, "8 membership", f"{_name(attempt)}: {age:.0f} s after {change.detail}"
                )


def rule_9_tokens(record: Record, limits: Limits) -> Iterator[Violation]:
    """A token goes to brokers of this cluster only, and into no file."""
    del limits
    for event in record.of("stray"):
        yield Violation(event.at, "9 token", f"{event.who or 'no token'} asked {event.broker}, which is no broker")
    for event in record.of("secret"):
        yield Violation(event.at, "9 token", f"{event.detail} holds a token")


def rule_10_deadline(record: Record, limits: Limits) -> Iterator[Violation]:
    """Each hop of a request comes within the deadline of its intent, which is on disk, and never in a pause."""
    for attempt in record.attempts:
        for number, hop in enumerate(attempt.requests):
            late = hop.at - attempt.intent.at
            if late > limits.deadline_seconds:
                yield Violation(
                    hop.at, "10 deadline", f"{_name(attempt)}: hop {number + 1} came {late:.1f} s after the intent"
                )
            if number == 0 and hop.detail == "no intent on disk":
                yield Violation(hop.at, "10 deadline", f"{_name(attempt)}: {hop.detail}")
        for begin, end, pause in record.spans("pause", "resume"):
            began_in_it = begin + 1 < attempt.intent.at < end
            for number, hop in enumerate(attempt.requests):
                if begin + 2 < hop.at < end and (number > 0 or began_in_it):
                    yield Violation(
                        hop.at, "10 deadline", f"{_name(attempt)}: hop {number + 1} in a pause ({pause.detail})"
                    )
    for event in record.strays:
        if event.destination not in record.owners(event.bundle, event.at - limits.lost_seconds, event.at):
            yield Violation(event.at, "10 deadline", f"{event}: a request of no open intent, and no note of the owner")


def rule_11_one_active(record: Record, limits: Limits) -> Iterator[Violation]:
    """Only who leads unloads and places."""
    for event in record.of("unload", "lookup"):
        lost = record.lost_for(event.who, event.at)
        if lost > limits.lost_seconds:
            yield Violation(event.at, "11 one active", f"{event}: it has not led for {lost:.0f} s")


def rule_budgets(record: Record, limits: Limits) -> Iterator[Violation]:
    """Moves within any hour, of all lbds together: in all, from a source, to a destination."""
    keys: dict[str, tuple[int, Callable[[Attempt], str]]] = {
        "an hour": (limits.per_hour, lambda _: ""),
        "from a source": (limits.per_broker_per_hour, lambda one: one.source),
        "to a destination": (limits.per_broker_per_hour, lambda one: one.destination),
    }
    for name, (limit, key) in keys.items():
        times: dict[str, list[float]] = defaultdict(list)
        for attempt in record.attempts:
            if attempt.number == 1:
                own = times[key(attempt)]
                own.append(attempt.intent.at)
                used = len(own) - bisect.bisect_right(own, attempt.intent.at - HOUR_SECONDS)
                if used > limit:
                    yield Violation(attempt.intent.at, "budget", f"{_name(attempt)}: {used} {name}, {limit} allowed")


def rule_cool_down(record: Record, limits: Limits) -> Iterator[Violation]:
    """A bundle rests after each attempt."""
    last: dict[str, Attempt] = {}
    for attempt in record.attempts:
        before = last.get(attempt.intent.bundle)
        last[attempt.intent.bundle] = attempt
        if before is not None and attempt.number == 1:
            rested = attempt.intent.at - before.intent.at
            if rested < limits.cool_down_seconds - 1:
                yield Violation(
                    attempt.intent.at, "cool-down", f"{_name(attempt)}: {rested:.0f} s after {_name(before)}"
                )


def rule_no_bugs(record: Record, limits: Limits) -> Iterator[Violation]:
    """No process tells of a bug, or ends by one."""
    del limits
    for event in record.of("bug"):
        yield Violation(event.at, "bug", f"{event.who}: {event.detail}")


RULES: tuple[Callable[[Record, Limits], Iterator[Violation]], ...] = (
    rule_1_destinations,
    rule_2_outcomes,
    rule_3_in_flight,
    rule_4_retries,
    rule_6_own_shedder,
    rule_7_reports,
    rule_8_membership,
    rule_9_tokens,
    rule_10_deadline,
    rule_11_one_active,
    rule_budgets,
    rule_cool_down,
    rule_no_bugs,
)


def _hops(record: Record, begin: float, end: float) -> Iterator[Event]:
    """Requests of intents in that time; notes of an owner unload nothing."""
    return (hop for attempt in record.attempts for hop in attempt.requests if begin < hop.at < end)


def _name(attempt: Attempt) -> str:
    ends = f"{attempt.source} -> {attempt.destination}"
    return f"{attempt.intent.line['move']} of {attempt.intent.who}, {attempt.intent.bundle}, {ends}"


def violations(record: Record, limits: Limits) -> list[Violation]:
    """All of them, in their order."""
    return sorted((one for rule in RULES for one in rule(record, limits)), key=lambda one: one.at)


def report(record: Record, found: list[Violation]) -> str:
    """Faults by kind, moves by outcome, violations by rule, and what came before each of the first ones of a rule."""
    faults = Counter(event.detail for event in record.of("fault"))
    moves = Counter(str(one.outcomes[-1].line["result"]) if one.outcomes else "open" for one in record.attempts)
    by_rule = Counter(one.rule for one in found)
    untrue = by_rule.pop("2 outcome", 0)
    lines = ["| fault | times |", "|---|---|", *(f"| {name} | {number} |" for name, number in sorted(faults.items()))]
    leaders = len([event for event in record.of("writer") if event.who])
    told = ", ".join(f"{number} {name}" for name, number in moves.most_common())
    lines += ["", f"{sum(faults.values())} faults, {leaders} times an lbd came to lead"]
    lines += [f"{len(record.attempts)} attempts: {told}", f"{untrue} untrue outcomes, {by_rule.total()} violations"]
    lines += [f"  {rule}: {number}" for rule, number in sorted(by_rule.items())]
    shown: Counter[str] = Counter()
    for one in found:
        shown[one.rule] += 1
        if shown[one.rule] <= 5:
            lines += ["", f"rule {one.rule} at {one.at:.2f}: {one.text}", *map(str, record.before(one.at))]
    return "\n".join(lines)
