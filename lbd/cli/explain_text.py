"""What ``lbd explain`` answers, as a person reads it: the answer first, then the numbers behind it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from lbd.cli.operate_text import LABEL_WIDTH, common_end, console, room
from lbd.cli.render import amount, broker_table, plain, table
from lbd.cli.times import spoken, zoned
from lbd.record.explain.answers import BrokerAnswer, BundleAnswer, TurnAnswer
from lbd.record.status import BrokerStatus
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console

    from lbd.record.explain.answers import Answer, Ends, Fired, MoveStory, SplitStory
    from lbd.record.turns.lines import Candidate, PairSeen, Planned, Turn

NARROW = 160
"""Columns below which brokers are named without their common end."""

Line = tuple[str, str, str]
"""Label, words, style; a line without a label goes on with the one before."""


def show(found: Answer, now: float) -> None:
    """The whole answer on stdout."""
    out = console()
    end = common_end(_brokers(found)) if room() < NARROW else ""
    if isinstance(found, TurnAnswer):
        _show_turn(out, found, now, end)
    elif isinstance(found, BrokerAnswer):
        _show_broker(out, found, now, end)
    else:
        _print(out, _bundle_lines(found, now), end)
        _print(out, _move_lines(found.moves), end)
        _print(out, _split_lines(found.splits), end)
    if end:
        out.print(Text(f"brokers are named without {end}", "dim"))


def _print(out: Console, lines: Iterable[Line], end: str) -> None:
    for label, words, style in lines:
        short = plain(words.replace(end, "") if end else words)
        out.print(Text(f"{label:<{LABEL_WIDTH}} ", "dim").append(short, style))


def _brokers(found: Answer) -> set[str]:
    turn = found.turn if isinstance(found, TurnAnswer) else None
    ends = {end for move in found.moves for end in (move.source, move.destination or move.source)}
    own = {found.broker} if isinstance(found, BrokerAnswer) else set[str]()
    return ends | own | ({broker.id for broker in turn.brokers} if turn is not None else set())


def _show_turn(out: Console, found: TurnAnswer, now: float, end: str) -> None:
    turn = found.turn
    _print(out, _turn_lines(turn, now), end)
    if turn.brokers:
        out.print()
        rows = [BrokerStatus(b.id, b.score, b.binding, b.msg_rate, b.throughput, b.bundles) for b in turn.brokers]
        out.print(broker_table(rows, {pair.source for pair in turn.pairs}, end))
        _print(out, _trust_lines(turn), end)
    shown = set[str]()
    for pair in turn.pairs:
        out.print()
        _print(out, _pair_lines(turn, pair), end)
        if pair.fired and pair.source not in shown:
            shown.add(pair.source)
            _show_candidates(out, [one for one in turn.candidates if one.broker == pair.source], turn.unloads, end)
            _print(out, _rest_line(turn.rest.get(pair.source, {})), end)
    _print(out, _move_lines(found.moves), end)
    _print(out, _split_lines(found.splits), end)


def _turn_lines(turn: Turn, now: float) -> Iterator[Line]:
    number = f"{turn.turn}" if not turn.repeated else f"{turn.turn} to {turn.last}, which all said the same"
    yield "turn", f"{number}, {_ago(turn.ended_at, now)}", "bold"
    told_below = turn.verdict.kind in {"waiting", "not-fixable"}
    yield "verdict", turn.verdict.head if told_below else turn.verdict.words, ""
    if not (turn.pairs and turn.sentence.startswith("No move")):
        yield "said", turn.sentence, ""
    if turn.hold is not None:
        yield "hold", f"{turn.hold.reason}{turn.hold.detail and f': {turn.hold.detail}'}", "yellow"
    if turn.error is not None:
        yield "error", turn.error, "bold red"
    for outcome in turn.outcomes:
        told = f"{outcome.bundle}: {outcome.source} -> {outcome.destination}: {outcome.result}"
        yield "ended", f"{told} in {outcome.seconds:.2f} s{outcome.detail and f': {outcome.detail}'}", ""
    for skip in (*turn.skips, *turn.refused):
        yield "not moved", f"{skip.what}: {skip.reason}{skip.detail and f', {skip.detail}'}", ""


def _trust_lines(turn: Turn) -> Iterator[Line]:
    for broker in turn.brokers:
        if broker.doubt is not None:
            yield "not used", f"the report of {broker.id}: {broker.doubt}", "yellow"
        elif broker.to_settle:
            samples = counted(broker.to_settle, "fresh sample")
            yield "settling", f"{broker.id}: {samples} to come before it counts", ""


def _pair_lines(turn: Turn, pair: PairSeen) -> Iterator[Line]:
    pool = f" in pool {pair.pool}" if pair.pool else ""
    label = "pair" if pair.destination is not None else "broker"
    yield label, f"{pair.ends}{pool}: {pair.apart}{pair.hits and f', hits {pair.hits}'}", "bold"
    if pair.fired:
        yield "", f"fired: {_taken(pair, [one for one in turn.unloads if one.source == pair.source])}", ""
    if pair.reason is not None:
        yield "", f"{pair.reason}{pair.detail and f': {pair.detail}'}", ""
    taking = _destinations(turn, pair.source)
    if pair.fired and taking & set(turn.expected):
        names = (pair.source, *sorted(taking))
        ends = [(name, turn.broker(name), turn.expected.get(name)) for name in names]
        told = "; ".join(f"{name} {_points(seen.score if seen else None)} -> {_points(to)}" for name, seen, to in ends)
        yield "", f"guardrails foresee: {told}", ""


def _destinations(turn: Turn, source: str) -> set[str]:
    return {one.destination for one in turn.unloads if one.source == source and one.destination is not None}


def _taken(pair: PairSeen, unloads: Sequence[Planned]) -> str:
    """How much was wanted, and how much was taken; where no traffic is asked for only the latter."""
    bundles, messages, sent = counted(len(unloads), "bundle"), _sum(unloads, "msg_rate"), _sum(unloads, "throughput")
    if pair.wanted is None:
        carried = f"{bundles} taken, {amount(messages)} msg/s, {amount(sent, 1e6, 1)} MB/s"
        return carried if unloads else "nothing was asked of its bundles"
    taken, unit, scale = (messages, "msg/s", 1.0) if pair.measure == "msg_rate" else (sent, "MB/s", 1e6)
    digits = 0 if scale == 1.0 else 1
    wanted, got = amount(pair.wanted, scale, digits), amount(taken, scale, digits)
    return f"{wanted} {unit} wanted, {got} in {bundles} taken"


def _sum(unloads: Iterable[Planned], column: str) -> float:
    return sum(getattr(one, column) or 0.0 for one in unloads)


def _show_candidates(out: Console, candidates: Sequence[Candidate], unloads: Sequence[Planned], end: str) -> None:
    """A row for each; with where it goes, if not all go to one broker."""
    if not candidates:
        return
    to = {one.bundle: one.destination for one in unloads if one.destination is not None}
    several = len({to.get(one.bundle) for one in candidates} - {None}) > 1
    found = table((" " * LABEL_WIDTH + " bundle", "left"), ("msg/s", "right"), ("MB/s", "right"), ("", "left"))
    for one in candidates:
        taken = f"taken, to {to[one.bundle].removesuffix(end)}" if several and one.bundle in to else "taken"
        words = taken if one.reason == "moves" else f"passed over: {one.reason}"
        found.add_row(
            Text(" " * LABEL_WIDTH + f" {plain(one.bundle)}"),
            amount(one.msg_rate),
            amount(one.throughput, 1e6, 1),
            Text(plain(f"{words}{one.detail and f', {one.detail}'}"), "cyan" if one.reason == "moves" else ""),
        )
    out.print(found)


def _rest_line(rest: dict[str, int]) -> Iterator[Line]:
    if rest:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in rest.items())
        yield "", f"and {sum(rest.values()):,} smaller ones: {reasons}", "dim"


def _show_broker(out: Console, found: BrokerAnswer, now: float, end: str) -> None:
    _print(out, _broker_lines(found, now), end)
    if found.fired is not None:
        out.print()
        _print(out, _fired_lines(found.fired, now), end)
        _show_candidates(out, found.fired.candidates, found.fired.unloads, end)
        _print(out, _rest_line(found.fired.rest), end)
    else:
        _print(out, [("last fired", "not in the time looked at (--since)", "")], end)
    if found.moves:
        out.print()
    _print(out, _move_lines(found.moves), end)


def _broker_lines(found: BrokerAnswer, now: float) -> Iterator[Line]:
    seen = found.seen
    told = "no usable load report"
    if seen is not None:
        by = f" by {seen.binding.replace('_', ' ')}" if seen.binding else ""
        load = f"{amount(seen.msg_rate)} msg/s, {amount(seen.throughput, 1e6, 1)} MB/s, {seen.bundles:,} bundles"
        told = f"{_points(seen.score)} points{by}, {load}"
    yield "broker", found.broker, "bold"
    yield "seen", f"{told}, in turn {found.turn}, {_ago(found.at, now)}", ""
    for number, one in enumerate(found.because):
        yield "" if number else "because", one, ""
    if found.load is not None:
        yield "load", found.load.words, ""
        if found.load.neighbour:
            yield "", found.load.neighbour, "yellow"
    yield "cluster", found.verdict.head if found.pairs else found.verdict.words, ""


def _fired_lines(fired: Fired, now: float) -> Iterator[Line]:
    yield "last fired", f"in turn {fired.turn}, {_ago(fired.at, now)}", "bold"
    for pair in fired.pairs:
        taken = _taken(pair, fired.unloads)
        to = f"to {pair.destination}, " if pair.destination is not None else ""
        yield "", f"{to}{pair.apart}: {taken}", ""
        if pair.reason is not None:
            yield "", f"{pair.reason}{pair.detail and f': {pair.detail}'}", ""


def _bundle_lines(found: BundleAnswer, now: float) -> Iterator[Line]:
    yield "bundle", found.bundle, "bold"
    where = found.owner or "nobody's, as far as is known"
    seen = f", {_ago(found.at, now)}" if found.at is not None else ""
    yield "owner", f"{where}{seen}", ""
    if found.msg_rate is not None:
        yield "carries", f"{amount(found.msg_rate)} msg/s, {amount(found.throughput, 1e6, 1)} MB/s", ""
    for number, one in enumerate(found.because):
        yield "" if number else "because", one, ""
    if found.passed_over is not None:
        over = found.passed_over
        words = "chosen" if over.reason == "moves" else f"passed over{over.reason and f': {over.reason}'}"
        told = f"when its broker last fired, in turn {over.turn}, {_ago(over.at, now)}, it was {words}"
        yield "", f"{told}{over.detail and f' ({over.detail})'}", ""
    if not found.moves:
        yield "moves", "none is known", ""


def _move_lines(moves: Iterable[MoveStory]) -> Iterator[Line]:
    """What happened to each; once for those of one turn and pair, the scores before, as predicted, and as they came."""
    for _, group in groupby(moves, _plan):
        same = list(group)
        for move in same:
            turn = f", planned in turn {move.planned_in}" if move.planned_in is not None else ""
            owner = f" on {move.owner}" if move.owner not in {None, move.destination} else ""
            ends = f"{move.source} -> {move.destination or '(the broker chooses)'}"
            yield "move", f"{zoned(move.at)} {move.bundle}: {ends}: {move.result or 'open'}{owner}{turn}", ""
            if move.detail or move.reason:
                yield "", "; ".join(filter(None, (move.detail, move.reason))), "dim"
        yield from _course_lines(same[0])


def _split_lines(splits: Iterable[SplitStory]) -> Iterator[Line]:
    for split in splits:
        at = f"{split.algorithm} at {', '.join(split.positions)}"
        yield "split", f"{zoned(split.at)} {split.bundle} on {split.owner}: {split.result or 'open'}, {at}", ""
        if split.parts:
            yield "", f"into {' and '.join(split.parts)}", ""
        if split.detail or split.reason:
            yield "", "; ".join(filter(None, (split.detail, split.reason))), "dim"


def _course_lines(move: MoveStory) -> Iterator[Line]:
    if move.before is not None and move.expected is not None:
        yield "", f"{move.source}: {_course(move, 'source')}; {move.destination}: {_course(move, 'destination')}", ""


def _plan(move: MoveStory) -> tuple[int | None, str, str | None]:
    return move.planned_in, move.source, move.destination


def _course(move: MoveStory, end: str) -> str:
    """A score before the turn's moves, as predicted after all of them, and as it came."""
    before, expected, came = (_of(ends, end) for ends in (move.before, move.expected, move.came))
    told = f"{_points(before)} points, {_points(expected)} predicted"
    return (
        f"{told}, {_points(came)} came (turn {move.seen_in})" if move.came is not None else f"{told}, not settled since"
    )


def _of(ends: Ends | None, end: str) -> float | None:
    return None if ends is None else (ends.source if end == "source" else ends.destination)


def _points(score: float | None) -> str:
    return amount(score, digits=1)


def _ago(at: float, now: float) -> str:
    return f"{spoken(now - at)} ago ({zoned(at)})"
