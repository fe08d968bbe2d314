"""The answers of ``lbd explain`` as JSON values, from the state directory alone, with a running lbd or without.

Kept turns have observations and decisions, the journal has moves and outcomes, ``bundles`` of the store has owners.
Times are epoch seconds, scores points, rates in + out.
"""

from __future__ import annotations

import difflib
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from lbd.bundles import holds, split_into, topic_hash, topic_namespace
from lbd.errors import UsageError
from lbd.fields import derived
from lbd.load.summary import BrokerLoad
from lbd.model import BundleClients, brokers_named, bundle_namespace
from lbd.permit.rules import explained
from lbd.permit.served import Served
from lbd.permit.topic_costs import dear_topics
from lbd.reason import Reason
from lbd.split.plan import SplitResult
from lbd.spread import crowded_text, members_in
from lbd.store.drains import drains_in_force
from lbd.store.moves import MoveRecord, history, read_splits
from lbd.store.status import read_status
from lbd.store.turn_record import BrokerRecord, CandidateLine, PairRecord, Planned, TurnRecord, Verdict
from lbd.store.turns import KeptTurns, load_bundles
from lbd.text import counted, minutes_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from lbd.remedy import NextStep
    from lbd.store.moves import SplitRecord
    from lbd.store.turns import ReportedBundle, ReportedBundles


class Ends(msgspec.Struct, frozen=True):
    """Scores of the two brokers of a move; None where one is not known."""

    source: float | None
    destination: float | None


class MoveStory(msgspec.Struct, frozen=True):
    """A move of the journal, with its predicted and measured effect on its brokers.

    ``before`` and ``expected`` are the scores that the turn ``planned_in`` saw and predicted. ``came`` are those of the
    first kept turn, ``seen_in``, in which both brokers had settled after the landing: other load may have changed, too.
    ``served`` and what goes with it is as in :class:`~lbd.store.moves.MoveRecord`.
    """

    at: float
    bundle: str
    source: str
    destination: str | None
    result: str | None
    owner: str | None
    reason: str
    detail: str
    planned_in: int | None = None
    before: Ends | None = None
    expected: Ends | None = None
    seen_in: int | None = None
    came: Ends | None = None
    clients_before: BundleClients | None = None
    clients_after: BundleClients | None = None
    served: Served | None = None
    reconnect_seconds: float | None = None
    served_detail: str = ""


class SplitStory(msgspec.Struct, frozen=True):
    """A split of the journal with its outcome: ``result`` is None while it is open, ``parts`` are the new bundles."""

    at: float
    bundle: str
    owner: str
    algorithm: str
    positions: list[str]
    result: str | None
    parts: list[str]
    reason: str
    detail: str


class Fired(msgspec.Struct, frozen=True):
    """The last turn in which a broker was to give bundles: its pairs, the planned moves and the other candidates."""

    turn: int
    at: float
    pairs: list[PairRecord]
    unloads: list[Planned]
    candidates: list[CandidateLine]
    rest: dict[str, int]


class TurnAnswer(msgspec.Struct, frozen=True):
    """One turn, with the outcomes of the moves that it began. Fields missing in ``turn`` were empty.

    ``splits`` are those that were begun before the next turn. ``todo`` is what a person should do now, in the words of
    ``lbd status``; empty for any turn but the last.
    """

    turn: TurnRecord
    moves: list[MoveStory]
    splits: list[SplitStory]
    todo: list[str] = []


class OwnBundle(msgspec.Struct, frozen=True, array_like=True):
    """A bundle of a broker: messages/s and bytes/s in + out, and why it stays, beside what is true of its broker.

    The two rates are None where no broker reports it yet.
    """

    bundle: str
    msg_rate: float | None
    throughput: float | None
    because: list[str]


class BrokerAnswer(msgspec.Struct, frozen=True):
    """One broker. ``because`` is why it gives bundles away or does not, in sentences.

    ``load`` is what the last lbd on this state directory had learned about it; None where it had learned nothing.
    ``bundles`` are the 2,000 with most bytes/s at most, the largest first. ``todo`` is what a person should do now
    about this broker or its pair, in the words of ``lbd status``.
    """

    broker: str
    turn: int
    at: float
    verdict: Verdict
    seen: BrokerRecord | None
    because: list[str]
    pairs: list[PairRecord]
    fired: Fired | None
    moves: list[MoveStory]
    load: BrokerLoad | None = None
    bundles: list[OwnBundle] = []
    todo: list[str] = []


class PassedOver(msgspec.Struct, frozen=True):
    """How the last turn in which its broker fired decided on a bundle; ``reason`` ``moves``: it was chosen."""

    turn: int
    at: float
    reason: str
    detail: str


class BundleAnswer(msgspec.Struct, frozen=True):
    """One bundle. ``owner`` is who reported it at ``at``, or who it was moved to since; ``because`` why it is there.

    ``splits`` are those that cut it, and the one that it came out of.
    """

    bundle: str
    owner: str | None
    at: float | None
    msg_rate: float | None
    throughput: float | None
    because: list[str]
    cool_down_left_seconds: float | None
    passed_over: PassedOver | None
    moves: list[MoveStory]
    splits: list[SplitStory]


class NamespaceAnswer(msgspec.Struct, frozen=True):
    """One namespace, as brokers reported it at ``at``: how many bundles, messages/s and bytes/s.

    ``owners`` and ``reasons`` count bundles by their broker and by why they stayed; ``bundles`` are the largest.
    ``because`` is what holds for all of them, in sentences.
    """

    namespace: str
    at: float
    number: int
    msg_rate: float
    throughput: float
    owners: dict[str, int]
    reasons: dict[str, int]
    bundles: list[CandidateLine]
    moves: list[MoveStory]
    splits: list[SplitStory]
    because: list[str] = []


Answer = TurnAnswer | BrokerAnswer | BundleAnswer | NamespaceAnswer


# --- names as typed, and the nearest known one for an unknown name

ENOUGH = 5_000
"""Names compared at most: likeness is looked for character by character."""


def broker_named(name: str, names: Callable[[], Iterable[str]]) -> str:
    """The one broker of this ``host:port``, host, or beginning up to a dot; ``names`` may be long, and is read twice.

    Raises :class:`UsageError` for any other name.
    """
    if any(broker == name for broker in names()):
        return name
    brokers = sorted(set(names()))
    fits = brokers_named(name, brokers)
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(f"{name}: may be {' or '.join(fits)}; wanted one of them")
    examples = f"; known brokers are {', '.join(brokers[:3])}{', ...' if brokers[3:] else ''}" if brokers else ""
    raise UsageError(f"{name}: no such broker, bundle or turn is known{nearest(name, brokers) or examples}")


def no_bundle(name: str, bundles: list[str]) -> str:
    """The error message for an unknown bundle."""
    own = [bundle for bundle in bundles if bundle_namespace(bundle) == bundle_namespace(name)]
    return f"{name}: no broker reports such a bundle, and no move of it is known{nearest(name, own or bundles)}"


def bundle_with(topic: str, bundles: list[str]) -> str:
    """The bundle that a topic falls into. Raises :class:`UsageError` where none of these is of its namespace."""
    namespace, position = topic_namespace(topic), topic_hash(topic)
    own = [bundle for bundle in bundles if bundle_namespace(bundle) == namespace]
    bundle = next((bundle for bundle in own if holds(bundle, position)), None)
    if bundle is None:
        raise UsageError(f"{topic}: no broker reports a bundle of {namespace} that it falls into")
    return bundle


def nearest(name: str, names: list[str]) -> str:
    """The nearest known name, as the end of an error message; empty where none is near."""
    matches = difflib.get_close_matches(name, names[:ENOUGH], n=1, cutoff=0.5)
    return f"; did you mean {matches[0]}?" if matches else ""


# --- why a broker gives nothing away, and why a bundle is where it is

BARRED = {
    Reason.TOO_LARGE: "it carries more than was to be moved",
    Reason.NOT_NEEDED: "others filled the amount: what was left then was less than it carries",
    Reason.NO_TRAFFIC: "it carries no traffic, so moving it changes nothing",
    Reason.PLACEMENT_STAYS: "the placement would put it on the broker that it is on, or finds none",
    Reason.SOLE_BUNDLE: "it is its broker's only bundle: moving it would move the problem; split it",
}
"""The meaning of a bundle's code that is no rule's."""


def barred(label: str) -> str | None:
    """Why a bundle of this label stayed; None where its broker was not asked to give any."""
    reason = next((reason for reason in Reason if reason.label == label), None)
    if reason in {None, Reason.NOT_ASKED, Reason.MOVES}:
        return None
    words = BARRED.get(reason) or explained(reason) if reason is not None else ""
    return f"{label}: {words}" if words else label


def absent(turn: TurnRecord, broker: str) -> str:
    """Why the newest turn has no report of a broker; empty where it has one, or saw none at all."""
    if turn.broker(broker) is not None or not turn.brokers:
        return ""
    owed = next((skip for skip in turn.skips if skip.what == broker), None)
    if owed is None:
        return f"it is not among the active brokers of turn {turn.last} any more"
    return f"it gives no report now, in turn {turn.last}: {owed.detail}"


def of_broker(turn: TurnRecord, broker: str) -> Iterator[str]:
    """Why a broker gives bundles away, or why it does not."""
    report = turn.broker(broker)
    if report is None:
        yield "it gave no usable load report in that turn"
        return
    if report.doubt == Reason.DRAINED.label:
        return
    if report.doubt == Reason.SLOW_BROKER.label:
        details = [skip.detail for skip in turn.skips if skip.what == broker and skip.reason == report.doubt]
        yield ": ".join((f"{report.doubt}: nothing is moved to it, and it is compared with no other broker", *details))
    elif report.doubt is not None:
        yield f"its report is no ground to move on: {report.doubt}"
    if report.to_settle:
        samples = counted(report.to_settle, "more fresh sample")
        yield f"it was moved to or from, or restarted: {samples} must come before its score counts"
    if turn.hold is not None:
        yield f"nothing new is moved: {turn.hold.reason}{turn.hold.detail and f': {turn.hold.detail}'}"
    yield from _of_pairs(turn, broker)


def crowded_with(turn: TurnRecord, broker: str, bundle: str) -> Iterator[str]:
    """A bundle's members of these groups, and its cost: pairs that are together on its broker, in shares."""
    for group in turn.crowded:
        members = members_in(bundle, group.group, group.total) if group.broker == broker else 0
        if members:
            cost = members * (group.members - members) / group.share
            what = (
                f"it has {members} of these; spread cost {cost:.1f}: of bundles of like size it goes first (spread.by)"
            )
            yield f"its broker: {crowded_text(group)}; {what}"


def _of_pairs(turn: TurnRecord, broker: str) -> Iterator[str]:
    giving = [pair for pair in turn.pairs if pair.source == broker]
    taking = [pair for pair in turn.pairs if pair.destination == broker]
    for pair in giving:
        above = f"it is {pair.difference:.1f} points above {pair.destination}"
        yield f"{above if pair.destination is not None else f'it has {pair.why}'}: {outcome(turn, pair)}"
    for pair in taking:
        yield f"{pair.source} is {pair.difference:.1f} points above it: bundles would come to it, not leave it"
    if not (giving or taking):
        yield _in_no_pair(turn, broker)


def _in_no_pair(turn: TurnRecord, broker: str) -> str:
    """Why no pair has this broker: its distance from the others of the record, and the pairs that there are."""
    if any(pair.destination is None for pair in turn.pairs):
        return "the strategy does not count it among those to be relieved"
    own, others = _score(turn.broker(broker)), [row for row in turn.brokers if row.id != broker and row.doubt is None]
    scores = [(row.score, row.id) for row in others if row.score is not None]
    if own is None or not scores:
        return "it is in no pair: no other broker has a score to compare with its own"
    (low, lowest), (high, highest) = min(scores), max(scores)
    above, below = (f"{abs(own - end):.1f} points {'above' if own >= end else 'below'}" for end in (low, high))
    pairs = f"; the strategy pairs {', '.join(pair.ends for pair in turn.pairs[:3])}" if turn.pairs else ""
    return f"it is in no pair: {above} {lowest}, the lowest of the others, and {below} {highest}, the highest{pairs}"


def outcome(turn: TurnRecord, pair: PairRecord) -> str:
    """The result of a turn for a pair."""
    number = sum(unload.source == pair.source for unload in turn.unloads)
    if number:
        return f"{counted(number, 'bundle')} {'begun' if turn.acts else 'would move'}"
    if pair.reason is None:
        return "every bundle that was chosen was refused" if pair.fired else "nothing came of it"
    return f"{pair.reason}{pair.detail and f', {pair.detail}'}"


# --- splits that cut a bundle or created it, and splits after a turn

MADE = {SplitResult.SPLIT.value, SplitResult.ELSEWHERE.value}
"""Results after which the whole bundle no longer exists."""


def split_stories(splits: Iterable[SplitRecord]) -> list[SplitStory]:
    """A story for each split, the newest first."""
    return [_split_story(split) for split in sorted(splits, key=lambda split: split.at, reverse=True)]


def about(bundle: str, splits: Iterable[SplitRecord]) -> list[SplitStory]:
    """The splits that cut the bundle, or tried to, and the split that made it."""
    return [split for split in split_stories(splits) if bundle in {split.bundle, *split.parts}]


def sentence(parts: Sequence[str], positions: Sequence[str] = ()) -> str:
    """The sentence on a bundle that was cut."""
    where = f" at {', '.join(positions)}" if positions else ""
    return f"it was split{where}, into {' and '.join(parts)}: it is no bundle any more"


def _split_story(split: SplitRecord) -> SplitStory:
    cut, outcome = split.cut, split.end
    return derived(
        SplitStory,
        cut,
        at=split.at,
        positions=[f"0x{position:08x}" for position in cut.positions],
        result=outcome.result.value if outcome is not None else None,
        parts=list(outcome.parts) if outcome is not None and outcome.result.value in MADE else [],
        detail=outcome.detail if outcome is not None else "",
    )


# --- effects of moves, predicted and measured: the journal beside the kept turns


@dataclass
class Story:
    """One move, with the turns that planned and measured it, taken from the newest to the oldest."""

    move: MoveRecord
    planned: TurnRecord | None = None
    measured: TurnRecord | None = None
    done: bool = field(default=False, init=False)
    """Whether older turns have nothing to add."""

    def take(self, turn: TurnRecord) -> None:
        """Take one more turn, older than the previous ones."""
        if self.done:
            return
        ended_at = self.move.ended_at
        if ended_at is not None and turn.at > ended_at and self._settled(turn):
            self.measured = turn
        if turn.at <= self.move.at:
            self.planned = turn if any(unload.bundle == self.move.bundle for unload in turn.unloads) else None
            self.done = self.planned is not None or turn.at < self.move.at - PLANNED_WITHIN_SECONDS

    def _settled(self, turn: TurnRecord) -> bool:
        ends = [turn.broker(name) for name in (self.move.source, self.move.owner or self.move.destination or "")]
        return all(end is not None and end.to_settle == 0 and end.doubt is None for end in ends)

    def answer(self) -> MoveStory:
        """The move with its scores."""
        move, planned, measured = self.move, self.planned, self.measured
        ends = move.source, move.destination or ""
        return derived(
            MoveStory,
            move,
            planned_in=planned.turn if planned is not None else None,
            before=_scores(planned, *ends) if planned is not None else None,
            expected=Ends(*(planned.expected.get(end) for end in ends)) if planned is not None else None,
            seen_in=measured.turn if measured is not None else None,
            came=_scores(measured, *ends) if measured is not None else None,
        )


PLANNED_WITHIN_SECONDS = 900.0
"""A plan is executed one unload after the other on each source; a later move was ordered by hand."""


def move_stories(moves: Iterable[MoveRecord]) -> list[Story]:
    """A story for each move, the newest first."""
    return [Story(move) for move in sorted(moves, key=lambda move: move.at, reverse=True)]


def _scores(turn: TurnRecord, source: str, destination: str) -> Ends:
    return Ends(_score(turn.broker(source)), _score(turn.broker(destination)))


def _score(broker: BrokerRecord | None) -> float | None:
    return broker.score if broker is not None else None


# --- answers

ATTEMPTS = 2
"""A miss is tried once more."""

TURN_DIGITS = 18
"""Digits of a turn's number at most: the store has it in 64 bits."""

LARGEST = 50
"""Bundles of a namespace that are listed; it may have thousands."""

MOST_BUNDLES = 2000
"""Bundles of a broker that are listed, to be searched and sorted: three times what brokers of large clusters have."""

REPORTED_WITHIN_SECONDS = 120.0
"""A report seen so soon after a landing may be older than it: brokers renew theirs about once a minute."""


class Explainer:
    """Answers about one state directory. ``cool_down_seconds`` is the settings', ``since`` (epoch seconds) how far back
    turns are read, ``last`` how many moves an answer has, ``steps`` what a person should do now.

    Every method raises :class:`UsageError` for an unknown name, with the nearest known one, and where no turn is kept
    yet.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        now: float,
        since: float,
        last: int,
        cool_down_seconds: float,
        steps: Sequence[NextStep] = (),
    ) -> None:
        self._state_dir, self._now, self._since, self._last = state_dir, now, since, last
        self._steps = steps
        self._cool_down_seconds = cool_down_seconds
        self._turns = KeptTurns(state_dir)

    @property
    def unreadable(self) -> int:
        """Kept turns that could not be read."""
        return self._turns.unreadable

    def of(self, what: str | None) -> Answer:
        """About a turn by its number (the last one without), a broker, or a bundle, topic or namespace by full name."""
        if what is None:
            return self._of_turn(self._newest())
        if "://" in what:
            scheme, _, address = what.partition("://")
            if scheme.endswith("persistent") or scheme in {"segment", "topic"}:
                return self.bundle(self._bundle_of(what))
            what = address.rstrip("/")
        if what.isascii() and what.isdigit() and len(what) <= TURN_DIGITS:
            return self.turn(int(what))
        if "/" not in what:
            return self.broker(what)
        return self.bundle(what) if "/0x" in what else self.namespace(what)

    def _bundle_of(self, topic: str) -> str:
        """The bundle that a topic falls into, of those that brokers reported last."""
        self._newest()
        bundles = load_bundles(self._state_dir)
        return bundle_with(topic, bundles.bundles if bundles is not None else [])

    def turn(self, number: int) -> TurnAnswer:
        """One turn, with the outcomes of its moves."""
        newest = self._newest()
        turn = self._turns.find(number)
        if turn is None:
            first, last = self._turns.oldest(), newest.last
            raise UsageError(f"turn {number}: not kept; kept are {first} to {last} in {self._state_dir}")
        return self._of_turn(turn)

    def _of_turn(self, turn: TurnRecord) -> TurnAnswer:
        planned = {unload.bundle for unload in turn.unloads}
        window = (turn.at, turn.at + PLANNED_WITHIN_SECONDS)
        attempts = ATTEMPTS * len(planned)
        moves = self._moves(lambda move: move.bundle in planned and window[0] <= move.at <= window[1], attempts)
        stories = move_stories(moves)
        self._walk(stories, lambda _: False, turn.at)
        following = self._turns.find(turn.last + 1)
        until = self._now if following is None else following.at
        begun_after = [split for split in read_splits(self._state_dir) if turn.at <= split.at < until]
        todo = [step.text(self._now) for step in self._steps] if following is None else []
        return TurnAnswer(turn, [story.answer() for story in stories], split_stories(begun_after), todo)

    def broker(self, name: str) -> BrokerAnswer:
        """One broker: its score, its pairs, why it gives bundles or not, and its moves."""
        newest = self._newest()
        broker = broker_named(name, lambda: (broker_name for turn in self._back() for broker_name in _names(turn)))
        last = next((turn for turn in self._back() if turn.broker(broker) is not None), newest)
        reports = load_bundles(self._state_dir)
        reported_at = reports.at if reports is not None else self._now
        recent_at = min(self._now - self._cool_down_seconds, reported_at - PLANNED_WITHIN_SECONDS)
        moves, recent = deque[MoveRecord](maxlen=self._last), dict[str, list[MoveRecord]]()
        for move in history(self._state_dir):
            if broker in {move.source, move.destination, move.owner}:
                moves.append(move)
            if move.at > recent_at:
                recent.setdefault(move.bundle, []).insert(0, move)
        stories = move_stories(moves)
        fired = self._walk(stories, lambda turn: turn.fired(broker))
        gone = absent(newest, broker)
        crowded = [crowded_text(group) for group in last.crowded if group.broker == broker]
        pairs = [] if gone else [pair for pair in last.pairs if broker in {pair.source, pair.destination}]
        return BrokerAnswer(
            broker,
            last.last,
            last.ended_at,
            newest.verdict,
            last.broker(broker),
            [*self._drained(broker), *([gone] if gone else [*of_broker(last, broker), *crowded])],
            pairs,
            _fired(fired, broker) if fired is not None else None,
            [story.answer() for story in stories],
            _load(self._state_dir, broker),
            self._bundles_on(broker, last, reports, recent) if reports is not None else [],
            [step.text(self._now) for step in self._steps if broker in step.what.split(" -> ")],
        )

    def _bundles_on(
        self, broker: str, turn: TurnRecord, reports: ReportedBundles, moves: Mapping[str, Sequence[MoveRecord]]
    ) -> list[OwnBundle]:
        """The largest bundles of a broker. ``moves`` are the recent ones of each bundle, the newest first."""
        reported, listed = dict(reports.all()), list[OwnBundle]()
        for bundle in dict.fromkeys((*reported, *moves)):
            report, own_moves = reported.get(bundle), moves.get(bundle, ())
            owner, known_at = _owner(report, own_moves, None)
            gone = report is None and (known_at or 0.0) < reports.at - REPORTED_WITHIN_SECONDS
            if owner == broker and not gone:
                label = report.label if report is not None else ""
                carried = report.msg_rate if report is not None else None
                sent = report.throughput if report is not None else None
                why = _own_reasons(turn, bundle, label, self._remaining_cool_down(own_moves))
                listed.append(OwnBundle(bundle, carried, sent, [*why, *crowded_with(turn, broker, bundle)]))
        return sorted(listed, key=lambda line: -(line.throughput or 0.0))[:MOST_BUNDLES]

    def _drained(self, broker: str) -> Iterator[str]:
        """Sentences on the drain of this broker, if there is one."""
        for drain, work in drains_in_force(self._state_dir, self._now):
            if drain.broker == broker:
                ago = f", {minutes_text(self._now - drain.since)} ago" if drain.since else ""
                yield f"{drain.by} drains it{ago}{drain.reason and f': {drain.reason}'}"
                if work is not None and work.sentence:
                    yield work.sentence.rstrip(".")

    def bundle(self, name: str) -> BundleAnswer:
        """One bundle: where it is and why, its moves, and why it was passed over."""
        newest, reports = self._newest(), load_bundles(self._state_dir)
        reported = reports.of(name) if reports is not None else None
        last = next((turn for turn in self._back() if turn.brokers), newest)
        stories = move_stories(self._moves(lambda move: move.bundle == name))
        splits = about(name, read_splits(self._state_dir))
        cut = next((split for split in splits if split.bundle == name and split.result in MADE), None)
        parts = split_into(name, reports.bundles) if reports is not None and cut is None else []
        if not (reported or stories or splits or parts):
            raise UsageError(no_bundle(name, reports.bundles if reports is not None else []))
        owner, known_at = _owner(reported, [story.move for story in stories], cut)
        fired = self._walk(
            stories, lambda turn: turn.named(name) or any(candidate.broker == owner for candidate in turn.candidates)
        )
        gone = sentence(cut.parts, cut.positions) if cut is not None else sentence(parts) if parts else ""
        remaining = self._remaining_cool_down([story.move for story in stories])
        label = reported.label if reported is not None else ""
        return BundleAnswer(
            name,
            owner,
            known_at,
            reported.msg_rate if reported is not None else None,
            reported.throughput if reported is not None else None,
            [gone] if gone else list(_reason_sentences(last, name, owner, label, remaining)),
            remaining,
            _passed_over(fired, name) if fired is not None else None,
            [story.answer() for story in stories],
            splits[: self._last],
        )

    def namespace(self, name: str) -> NamespaceAnswer:
        """One namespace: where its bundles are, why they stayed, and its moves."""
        newest = self._newest()
        last = next((turn for turn in self._back() if turn.brokers), newest)
        reports = load_bundles(self._state_dir)
        reported = reports.of_namespace(name) if reports is not None else []
        if reports is None or not reported:
            namespaces = sorted({bundle_namespace(bundle) for bundle in reports.bundles}) if reports is not None else []
            raise UsageError(f"{name}: no broker reports a bundle of such a namespace{nearest(name, namespaces)}")
        stories = move_stories(self._moves(lambda move: bundle_namespace(move.bundle) == name))
        self._walk(stories, lambda _: False)
        splits = [
            split for split in split_stories(read_splits(self._state_dir)) if bundle_namespace(split.bundle) == name
        ]
        return NamespaceAnswer(
            name,
            reports.at,
            len(reported),
            sum(report.msg_rate for _, report in reported),
            sum(report.throughput for _, report in reported),
            dict(Counter(report.owner for _, report in reported).most_common()),
            dict(Counter(report.label for _, report in reported if barred(report.label)).most_common()),
            [
                CandidateLine(bundle, row.owner, row.msg_rate, row.throughput, row.label if barred(row.label) else "")
                for bundle, row in sorted(reported, key=lambda pair: -pair[1].throughput)[:LARGEST]
            ],
            [story.answer() for story in stories],
            splits[: self._last],
            [f"{skip.reason}: {skip.detail}" for skip in last.skips if skip.what == name],
        )

    def _remaining_cool_down(self, moves: Sequence[MoveRecord]) -> float | None:
        last = max((move.at for move in moves), default=-float("inf"))
        remaining = last + self._cool_down_seconds - self._now
        return remaining if remaining > 0 else None

    def _newest(self) -> TurnRecord:
        newest = next(iter(self._turns), None)
        if newest is None:
            raise UsageError(
                f"{self._state_dir}: no turn is kept yet; lbd run keeps each of its turns there, "
                "name another directory with state_dir in --config FILE or LBD_STATE_DIR"
            )
        return newest

    def _back(self) -> Iterator[TurnRecord]:
        """The turns since the requested time, the newest first; the newest one in any case."""
        for index, turn in enumerate(self._turns):
            if index and turn.ended_at < self._since:
                return
            yield turn

    def _walk(
        self, stories: list[Story], condition: Callable[[TurnRecord], bool], since: float | None = None
    ) -> TurnRecord | None:
        """Give the turns to each story, newest first, until all are complete; returns the newest that meets it."""
        newest: TurnRecord | None = None
        for turn in self._turns:
            if turn.ended_at < (self._since if since is None else since):
                break
            for story in stories:
                story.take(turn)
            newest = turn if newest is None and condition(turn) else newest
            if newest is not None and all(story.done for story in stories):
                break
        return newest

    def _moves(self, condition: Callable[[MoveRecord], bool], last: int | None = None) -> list[MoveRecord]:
        """The last moves of the journal that meet the condition."""
        newest = self._last if last is None else last
        return list(deque((move for move in history(self._state_dir) if condition(move)), newest))


def _names(turn: TurnRecord) -> Iterator[str]:
    """Brokers with a report, and brokers whose report is missing."""
    yield from (broker.id for broker in turn.brokers)
    yield from (skip.what for skip in turn.skips if skip.reason == Reason.REPORT_MISSING.label)


def _fired(turn: TurnRecord, broker: str) -> Fired:
    return Fired(
        turn.turn,
        turn.at,
        [pair for pair in turn.pairs if pair.source == broker and pair.fired],
        [unload for unload in turn.unloads if unload.source == broker],
        [candidate for candidate in turn.candidates if candidate.broker == broker],
        turn.rest.get(broker, {}),
    )


def _load(state_dir: Path, broker: str) -> BrokerLoad | None:
    """A broker's load by the last turn's status; None if there is no readable status."""
    try:
        status = read_status(state_dir)
    except UsageError:
        return None
    return next((status_broker.load for status_broker in status.brokers if status_broker.id == broker), None)


def _owner(
    reported: ReportedBundle | None, moves: Sequence[MoveRecord], cut: SplitStory | None
) -> tuple[str | None, float | None]:
    """The owner of a bundle, and since when it is known: by the last report, a later move, or a split that cut it.

    ``moves`` are its own, the newest first.
    """
    if cut is not None:
        return None, cut.at
    moved = next((move for move in moves if move.owner is not None), None)
    reported_at = (reported.at if reported is not None else 0.0) - REPORTED_WITHIN_SECONDS
    if moved is not None and moved.ended_at is not None and moved.ended_at > reported_at:
        return moved.owner, moved.ended_at
    return (reported.owner, reported.at) if reported is not None else (None, None)


def _passed_over(turn: TurnRecord, bundle: str) -> PassedOver:
    candidate = next((line for line in turn.candidates if line.bundle == bundle), None)
    if candidate is not None:
        return PassedOver(turn.turn, turn.at, candidate.reason, candidate.detail)
    return PassedOver(turn.turn, turn.at, "", "not kept by name: it was elsewhere then, or not among the largest")


def _reason_sentences(
    turn: TurnRecord, bundle: str, owner: str | None, label: str, cool_down_left: float | None
) -> Iterator[str]:
    """The bundle's own reason first, then what properties of its namespace say, then its broker's."""
    if owner is None:
        yield "no broker reports it"
        return
    yield from _own_reasons(turn, bundle, label, cool_down_left)
    yield from (f"its broker: {reason}" for reason in of_broker(turn, owner))
    yield from crowded_with(turn, owner, bundle)


def _own_reasons(turn: TurnRecord, bundle: str, label: str, cool_down_left: float | None) -> Iterator[str]:
    own = barred(label)
    if cool_down_left is not None:
        yield f"cool-down: {explained(Reason.COOL_DOWN)}, {minutes_text(cool_down_left)} left"
    of_namespace = [skip for skip in turn.skips if skip.what == bundle_namespace(bundle)]
    if own is not None and label not in {Reason.COOL_DOWN.label, *(skip.reason for skip in of_namespace)}:
        yield own
    yield from dear_topics(bundle, turn.dear_kinds)
    yield from (f"{skip.reason}: {skip.detail}" for skip in of_namespace)
