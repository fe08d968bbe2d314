"""Why something moved or did not: from the state directory alone, with a running lbd or without.

Kept turns say what was seen and decided, the journal what was moved and how it ended, ``bundles.npz`` who owned what.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.reason import Reason
from lbd.record.drains import told_of
from lbd.record.explain import because, cuts
from lbd.record.explain.answers import Answer, BrokerAnswer, BundleAnswer, Fired, PassedOver, TurnAnswer
from lbd.record.explain.names import broker_named, bundle_with, no_bundle
from lbd.record.explain.stories import PLANNED_WITHIN_SECONDS, Story, stories
from lbd.record.journal import history, splits_of
from lbd.record.status import read_status
from lbd.record.turns import FOLDER
from lbd.record.turns.bundles import load_bundles
from lbd.record.turns.reading import KeptTurns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lbd.load.told import BrokerLoad
    from lbd.record.explain.answers import SplitStory
    from lbd.record.journal import Move
    from lbd.record.turns.bundles import Seen
    from lbd.record.turns.lines import Turn

__all__ = ["Answer", "Explainer"]

ATTEMPTS = 2
"""A miss is tried once more."""

REPORTED_WITHIN_SECONDS = 120.0
"""A report seen so soon after a landing may be older than it: brokers renew theirs about once a minute."""


class Explainer:
    """Answers about one state directory. ``cool_down_seconds`` is the settings', ``since`` (epoch seconds) how far back
    turns are looked at, ``last`` how many moves are told.

    Every method raises :class:`UsageError`: for what is not known, with the nearest name that is, and where nothing is
    kept yet.
    """

    def __init__(self, state_dir: Path, *, now: float, since: float, last: int, cool_down_seconds: float) -> None:
        self._state_dir, self._now, self._since, self._last = state_dir, now, since, last
        self._cool_down_seconds = cool_down_seconds
        self._turns = KeptTurns(state_dir / FOLDER)

    @property
    def torn_lines(self) -> int:
        """Lines of kept turns that could not be read."""
        return self._turns.torn_lines

    def of(self, what: str | None) -> Answer:
        """About a turn by its number (the last one without), a bundle or topic by its full name, or a broker."""
        if what is None:
            return self._of_turn(self._newest())
        if "://" in what:
            scheme, _, address = what.partition("://")
            if scheme.endswith("persistent"):
                return self.bundle(self._bundle_of(what))
            what = address.rstrip("/")
        if what.isascii() and what.isdigit():
            return self.turn(int(what))
        return self.bundle(what) if "/" in what else self.broker(what)

    def _bundle_of(self, topic: str) -> str:
        """The bundle that a topic falls into, of those that brokers reported last."""
        self._newest()
        bundles = load_bundles(self._state_dir / FOLDER)
        return bundle_with(topic, bundles.bundles if bundles is not None else [])

    def turn(self, number: int) -> TurnAnswer:
        """One turn, and what became of its moves."""
        newest = self._newest()
        found = self._turns.find(number)
        if found is None:
            first, last = self._turns.oldest(), newest.last
            raise UsageError(f"turn {number}: not kept; kept are {first} to {last} in {self._state_dir / FOLDER}")
        return self._of_turn(found)

    def _of_turn(self, turn: Turn) -> TurnAnswer:
        planned = {one.bundle for one in turn.unloads}
        begun = (turn.at, turn.at + PLANNED_WITHIN_SECONDS)
        attempts = ATTEMPTS * len(planned)
        moves = self._moves(lambda move: move.bundle in planned and begun[0] <= move.at <= begun[1], attempts)
        told = stories(moves)
        self._walk(told, lambda _: False, turn.at)
        following = self._turns.find(turn.last + 1)
        until = self._now if following is None else following.at
        begun_after = [split for split in splits_of(self._state_dir) if turn.at <= split.at < until]
        return TurnAnswer(turn, [story.told() for story in told], cuts.stories(begun_after))

    def broker(self, name: str) -> BrokerAnswer:
        """One broker: its score, its pairs, what it waits for, and what it gave."""
        newest = self._newest()
        broker = broker_named(name, lambda: (one for turn in self._back() for one in _names(turn)))
        last = next((turn for turn in self._back() if turn.broker(broker) is not None), newest)
        told = stories(self._moves(lambda move: broker in {move.source, move.destination, move.owner}))
        fired = self._walk(told, lambda turn: turn.asked(broker))
        gone = because.gone(newest, broker)
        pairs = [] if gone else [pair for pair in last.pairs if broker in {pair.source, pair.destination}]
        return BrokerAnswer(
            broker,
            last.last,
            last.ended_at,
            newest.verdict,
            last.broker(broker),
            [*self._drained(broker), *([gone] if gone else because.of_broker(last, broker))],
            pairs,
            _fired(fired, broker) if fired is not None else None,
            [story.told() for story in told],
            _load(self._state_dir, broker),
        )

    def _drained(self, broker: str) -> Iterator[str]:
        """Since when, and what has become of it."""
        for drain, work in told_of(self._state_dir, self._now):
            if drain.broker == broker:
                ago = f", {(self._now - drain.since) / 60:.0f} min ago" if drain.since else ""
                yield f"{drain.by} drains it{ago}{drain.reason and f': {drain.reason}'}"
                if work is not None and work.sentence:
                    yield work.sentence.rstrip(".")

    def bundle(self, name: str) -> BundleAnswer:
        """One bundle: where it is and why, its moves, and why it was passed over."""
        newest, kept = self._newest(), load_bundles(self._state_dir / FOLDER)
        seen = kept.of(name) if kept is not None else None
        last = next((turn for turn in self._back() if turn.brokers), newest)
        told = stories(self._moves(lambda move: move.bundle == name))
        splits = cuts.about(name, splits_of(self._state_dir))
        if not (seen or told or splits):
            raise UsageError(no_bundle(name, kept.bundles if kept is not None else []))
        cut = cuts.gone(name, splits)
        owner, known_at = _owner(seen, told, cut)
        fired = self._walk(told, lambda turn: turn.named(name) or any(one.broker == owner for one in turn.candidates))
        left, label = self._cool_down_left(told), seen.label if seen is not None else ""
        return BundleAnswer(
            name,
            owner,
            known_at,
            seen.msg_rate if seen is not None else None,
            seen.throughput if seen is not None else None,
            [cuts.sentence(cut)] if cut is not None else list(_because(last, owner, label, left)),
            left,
            _passed_over(fired, name) if fired is not None else None,
            [story.told() for story in told],
            splits[: self._last],
        )

    def _cool_down_left(self, told: list[Story]) -> float | None:
        left = max((story.move.at for story in told), default=-float("inf")) + self._cool_down_seconds - self._now
        return left if left > 0 else None

    def _newest(self) -> Turn:
        newest = next(iter(self._turns), None)
        if newest is None:
            raise UsageError(
                f"{self._state_dir}: no turn is kept yet; lbd run keeps each of its turns there, "
                "name another directory with state_dir in --config FILE or LBD_STATE_DIR"
            )
        return newest

    def _back(self) -> Iterator[Turn]:
        """The newest turn, and those before it, as far back as was asked for."""
        for at, turn in enumerate(self._turns):
            if at and turn.ended_at < self._since:
                return
            yield turn

    def _walk(self, told: list[Story], wanted: Callable[[Turn], bool], since: float | None = None) -> Turn | None:
        """Show the turns to each move, the newest first, until all is known; returns the newest one ``wanted``."""
        found: Turn | None = None
        for turn in self._turns:
            if turn.ended_at < (self._since if since is None else since):
                break
            for story in told:
                story.take(turn)
            found = turn if found is None and wanted(turn) else found
            if found is not None and all(story.done for story in told):
                break
        return found

    def _moves(self, wanted: Callable[[Move], bool], last: int | None = None) -> list[Move]:
        """The last moves of the journal that are asked about."""
        newest = self._last if last is None else last
        return list(deque((move for move in history(self._state_dir) if wanted(move)), newest))


def _names(turn: Turn) -> Iterator[str]:
    """Those with a report, and those that owe one."""
    yield from (broker.id for broker in turn.brokers)
    yield from (skip.what for skip in turn.skips if skip.reason == Reason.REPORT_MISSING.label)


def _fired(turn: Turn, broker: str) -> Fired:
    return Fired(
        turn.turn,
        turn.at,
        [pair for pair in turn.pairs if pair.source == broker and pair.fired],
        [one for one in turn.unloads if one.source == broker],
        [one for one in turn.candidates if one.broker == broker],
        turn.rest.get(broker, {}),
    )


def _load(state_dir: Path, broker: str) -> BrokerLoad | None:
    """What the last turn's status tells of a broker's load; where there is none to be read the rest is still told."""
    try:
        status = read_status(state_dir)
    except UsageError:
        return None
    return next((one.load for one in status.brokers if one.id == broker), None)


def _owner(seen: Seen | None, told: list[Story], cut: SplitStory | None) -> tuple[str | None, float | None]:
    """Who owns a bundle, and since when that is known: by its last report, a move since, or the split that ended it."""
    if cut is not None:
        return None, cut.at
    moved = next((story.move for story in told if story.move.owner is not None), None)
    reported_at = (seen.at if seen is not None else 0.0) - REPORTED_WITHIN_SECONDS
    if moved is not None and moved.ended_at is not None and moved.ended_at > reported_at:
        return moved.owner, moved.ended_at
    return (seen.owner, seen.at) if seen is not None else (None, None)


def _passed_over(turn: Turn, bundle: str) -> PassedOver:
    found = next((one for one in turn.candidates if one.bundle == bundle), None)
    if found is not None:
        return PassedOver(turn.turn, turn.at, found.reason, found.detail)
    return PassedOver(turn.turn, turn.at, "", "not kept by name: it was elsewhere then, or not among the largest")


def _because(turn: Turn, owner: str | None, label: str, cool_down_left: float | None) -> Iterator[str]:
    """The bundle's own reason first, then its broker's."""
    if owner is None:
        yield "no broker reports it"
        return
    own = because.barred(label)
    if cool_down_left is not None:
        yield f"cool-down: {because.BARRED[Reason.COOL_DOWN]}, {cool_down_left / 60:.0f} min are left"
    if own is not None and label != Reason.COOL_DOWN.label:
        yield own
    yield from (f"its broker: {one}" for one in because.of_broker(turn, owner))
