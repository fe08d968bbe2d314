"""``lbd explain``: why a broker, a bundle or a turn moved or did not; the answer first, then its numbers."""

from __future__ import annotations

import time
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from lbd.bundles import is_scalable, names_topic
from lbd.cli.completion import anything
from lbd.cli.options import duration, remote_options, settings_to_look
from lbd.cli.render import amount, broker_table, json_out, plain, table
from lbd.cli.request import api_client, topic_bundles
from lbd.cli.status_text import LABEL_WIDTH, common_end, console, print_lines, room
from lbd.errors import UsageError
from lbd.permit.served import served_text
from lbd.store.control import Control
from lbd.store.drains import drains_in_force
from lbd.store.explain import Answer, BrokerAnswer, BundleAnswer, Explainer, NamespaceAnswer, TurnAnswer
from lbd.store.status import in_force, read_status, running, steps_now
from lbd.store.turns import KeptTurns, named
from lbd.text import DAY_SECONDS, counted, duration_text, zoned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from lbd.cli.options import Read
    from lbd.cli.status_text import Line
    from lbd.remedy import NextStep
    from lbd.store.explain import Fired, MoveStory, SplitStory
    from lbd.store.turn_record import CandidateLine, PairRecord, Planned, TurnRecord


NARROW = 160
"""Columns below which the common end of broker names is omitted."""


def show(answer: Answer, now: float) -> None:
    """Print the whole answer."""
    out = console()
    end = common_end(_brokers(answer)) if room() < NARROW else ""
    if isinstance(answer, TurnAnswer):
        _show_turn(out, answer, now, end)
    elif isinstance(answer, BrokerAnswer):
        _show_broker(out, answer, now, end)
    elif isinstance(answer, NamespaceAnswer):
        _show_namespace(out, answer, now, end)
    else:
        print_lines(out, _bundle_lines(answer, now), end)
        print_lines(out, _move_lines(answer.moves), end)
        print_lines(out, _split_lines(answer.splits), end)
    if end:
        out.print(Text(f"brokers are named without {end}", "dim"))


def _brokers(answer: Answer) -> set[str]:
    turn = answer.turn if isinstance(answer, TurnAnswer) else None
    ends = {end for move in answer.moves for end in (move.source, move.destination or move.source)}
    own = {answer.broker} if isinstance(answer, BrokerAnswer) else set[str]()
    return ends | own | ({broker.id for broker in turn.brokers} if turn is not None else set())


def _show_turn(out: Console, answer: TurnAnswer, now: float, end: str) -> None:
    turn = answer.turn
    print_lines(out, _turn_lines(turn, now), end)
    print_lines(out, _todo_lines(answer.todo), end)
    if turn.brokers:
        out.print()
        out.print(broker_table(turn.brokers, {pair.source for pair in turn.pairs}, end))
        print_lines(out, _trust_lines(turn), end)
    shown = set[str]()
    for pair in turn.pairs:
        out.print()
        print_lines(out, _pair_lines(turn, pair), end)
        if pair.fired and pair.source not in shown:
            shown.add(pair.source)
            _show_candidates(out, [row for row in turn.candidates if row.broker == pair.source], turn.unloads, end)
            print_lines(out, _rest_line(turn.rest.get(pair.source, {})), end)
    print_lines(out, _move_lines(answer.moves), end)
    print_lines(out, _split_lines(answer.splits), end)


def _turn_lines(turn: TurnRecord, now: float) -> Iterator[Line]:
    number = f"{turn.turn}" if not turn.repeated else f"{turn.turn} to {turn.last}, same verdict"
    yield "turn", f"{number}, {_ago(turn.ended_at, now)}", "bold"
    detail_below = turn.verdict.kind in {"waiting", "not-fixable"}
    yield "verdict", turn.verdict.head if detail_below else turn.verdict.words, ""
    if not (turn.pairs and turn.sentence.startswith("No move")):
        yield "said", turn.sentence, ""
    if turn.hold is not None:
        yield "hold", f"{turn.hold.reason}{turn.hold.detail and f': {turn.hold.detail}'}", "yellow"
    if turn.error is not None:
        yield "error", turn.error, "bold red"
    for outcome in turn.outcomes:
        yield "ended", f"{outcome.bundle}: {outcome.source} -> {outcome.destination}: {outcome.words}", ""
    for skip in (*turn.skips, *turn.refused):
        yield "not moved", f"{skip.what}: {skip.reason}{skip.detail and f', {skip.detail}'}", ""


def _todo_lines(todo: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(todo):
        yield "" if number else "to do", text, "bold"


def _trust_lines(turn: TurnRecord) -> Iterator[Line]:
    for broker in turn.brokers:
        if broker.doubt is not None:
            yield "not used", f"the report of {broker.id}: {broker.doubt}", "yellow"
        elif broker.to_settle:
            samples = counted(broker.to_settle, "fresh sample")
            yield "settling", f"{broker.id}: {samples} to come before it counts", ""


def _pair_lines(turn: TurnRecord, pair: PairRecord) -> Iterator[Line]:
    pool = f" in pool {pair.pool}" if pair.pool else ""
    unloads = [unload for unload in turn.unloads if unload.source == pair.source]
    label = "pair" if pair.destination is not None else "broker"
    yield label, f"{pair.ends}{pool}: {pair.apart}{pair.hits and f', samples {pair.hits}'}", "bold"
    if pair.fired:
        yield "", f"fired: {_taken(pair, unloads)}", ""
    if pair.reason is not None:
        yield "", f"{pair.reason}{pair.detail and f': {pair.detail}'}", ""
    taking = {unload.destination for unload in unloads if unload.destination is not None}
    if pair.fired and taking & set(turn.expected):
        names = (pair.source, *sorted(taking))
        ends = [(name, turn.broker(name), turn.expected.get(name)) for name in names]
        scores = "; ".join(
            f"{name} {_points(facts.score if facts else None)} -> {_points(to)}" for name, facts, to in ends
        )
        yield "", f"guardrails foresee: {scores}", ""


def _taken(pair: PairRecord, unloads: Sequence[Planned]) -> str:
    """How much traffic was wanted and taken; without a wanted amount only the latter."""
    bundles, messages, sent = counted(len(unloads), "bundle"), _sum(unloads, "msg_rate"), _sum(unloads, "throughput")
    if pair.wanted is None:
        carried = f"{bundles} taken, {amount(messages)} msg/s, {amount(sent, 1e6, 1)} MB/s"
        return carried if unloads else "nothing was asked of its bundles"
    taken, unit, scale = (messages, "msg/s", 1.0) if pair.measure == "msg_rate" else (sent, "MB/s", 1e6)
    digits = 0 if scale == 1.0 else 1
    need, got = amount(pair.wanted, scale, digits), amount(taken, scale, digits)
    return f"{need} {unit} wanted, {got} in {bundles} taken"


def _sum(unloads: Iterable[Planned], column: str) -> float:
    return sum(getattr(unload, column) or 0.0 for unload in unloads)


def _show_candidates(out: Console, candidates: Sequence[CandidateLine], unloads: Sequence[Planned], end: str) -> None:
    """Print a row for each candidate, with its destination unless all have the same."""
    if not candidates:
        return
    to = {unload.bundle: unload.destination for unload in unloads if unload.destination is not None}
    several = len({to.get(candidate.bundle) for candidate in candidates} - {None}) > 1
    rows = table(" " * LABEL_WIDTH + " bundle", ">msg/s", ">MB/s", "")
    for candidate in candidates:
        taken = f"taken, to {to[candidate.bundle].removesuffix(end)}" if several and candidate.bundle in to else "taken"
        words = taken if candidate.reason == "moves" else f"passed over: {candidate.reason}"
        detail = f"{words}{candidate.detail and f', {candidate.detail}'}"
        rows.add_row(
            Text(" " * LABEL_WIDTH + f" {plain(candidate.bundle)}"),
            amount(candidate.msg_rate),
            amount(candidate.throughput, 1e6, 1),
            Text(plain(detail), "cyan" if candidate.reason == "moves" else ""),
        )
    out.print(rows)


def _rest_line(rest: dict[str, int]) -> Iterator[Line]:
    if rest:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in rest.items())
        yield "", f"and {sum(rest.values()):,} smaller ones: {reasons}", "dim"


def _show_broker(out: Console, answer: BrokerAnswer, now: float, end: str) -> None:
    print_lines(out, _broker_lines(answer, now), end)
    print_lines(out, _todo_lines(answer.todo), end)
    if answer.fired is not None:
        out.print()
        print_lines(out, _fired_lines(answer.fired, now), end)
        _show_candidates(out, answer.fired.candidates, answer.fired.unloads, end)
        print_lines(out, _rest_line(answer.fired.rest), end)
    else:
        print_lines(out, [("last fired", "not in the time looked at (--since)", "")], end)
    if answer.moves:
        out.print()
    print_lines(out, _move_lines(answer.moves), end)


def _broker_lines(answer: BrokerAnswer, now: float) -> Iterator[Line]:
    facts = answer.seen
    report = "no usable load report"
    if facts is not None:
        by = f" by {facts.binding.replace('_', ' ')}" if facts.binding else ""
        load = f"{amount(facts.msg_rate)} msg/s, {amount(facts.throughput, 1e6, 1)} MB/s, {facts.bundles:,} bundles"
        report = f"{_points(facts.score)} points{by}, {load}"
    yield "broker", answer.broker, "bold"
    yield "seen", f"{report}, in turn {answer.turn}, {_ago(answer.at, now)}", ""
    for number, sentence in enumerate(answer.because):
        yield "" if number else "because", sentence, ""
    if answer.load is not None:
        yield "load", answer.load.words, ""
        if answer.load.neighbour:
            yield "", answer.load.neighbour, "yellow"
    reasons = Counter(bundle.because[0].partition(":")[0] for bundle in answer.bundles if bundle.because)
    if reasons:
        report = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
        yield "bundles", f"{len(answer.bundles):,}, of which stay for a reason of their own: {report}", ""
    yield "cluster", answer.verdict.head if answer.pairs else answer.verdict.words, ""


def _fired_lines(fired: Fired, now: float) -> Iterator[Line]:
    yield "last fired", f"in turn {fired.turn}, {_ago(fired.at, now)}", "bold"
    for pair in fired.pairs:
        taken = _taken(pair, fired.unloads)
        to = f"to {pair.destination}, " if pair.destination is not None else ""
        yield "", f"{to}{pair.apart}: {taken}", ""
        if pair.reason is not None:
            yield "", f"{pair.reason}{pair.detail and f': {pair.detail}'}", ""


def _show_namespace(out: Console, answer: NamespaceAnswer, now: float, end: str) -> None:
    load = f"{amount(answer.msg_rate)} msg/s, {amount(answer.throughput, 1e6, 1)} MB/s"
    summary = f"{answer.namespace}: {counted(answer.number, 'bundle')}, {load}, {_ago(answer.at, now)}"
    owners = ", ".join(f"{number} on {broker}" for broker, number in answer.owners.items())
    reasons = ", ".join(f"{number} {reason}" for reason, number in answer.reasons.items())
    lines = [
        ("namespace", summary, "bold"),
        ("owners", owners, ""),
        ("reasons", reasons or "none of them is barred", ""),
        *(("because" if not number else "", text, "bold") for number, text in enumerate(answer.because)),
    ]
    print_lines(out, lines, end)
    rows = table("bundle", "broker", ">msg/s", ">MB/s", "")
    for bundle in answer.bundles:
        carried = amount(bundle.msg_rate), amount(bundle.throughput, 1e6, 1)
        rows.add_row(plain(bundle.bundle), plain(bundle.broker.removesuffix(end)), *carried, bundle.reason)
    out.print()
    out.print(rows)
    if (more := answer.number - len(answer.bundles)) > 0:
        out.print(Text(f"and {counted(more, 'smaller bundle')}", "dim"))
    print_lines(out, _move_lines(answer.moves), end)
    print_lines(out, _split_lines(answer.splits), end)


def _bundle_lines(answer: BundleAnswer, now: float) -> Iterator[Line]:
    yield "bundle", answer.bundle, "bold"
    where = answer.owner or "nobody's, as far as is known"
    age = f", {_ago(answer.at, now)}" if answer.at is not None else ""
    yield "owner", f"{where}{age}", ""
    if answer.msg_rate is not None:
        yield "carries", f"{amount(answer.msg_rate)} msg/s, {amount(answer.throughput, 1e6, 1)} MB/s", ""
    for number, sentence in enumerate(answer.because):
        yield "" if number else "because", sentence, ""
    if answer.passed_over is not None:
        over = answer.passed_over
        words = "chosen" if over.reason == "moves" else f"passed over{over.reason and f': {over.reason}'}"
        text = f"when its broker last fired, in turn {over.turn}, {_ago(over.at, now)}, it was {words}"
        yield "", f"{text}{over.detail and f' ({over.detail})'}", ""
    if not answer.moves:
        yield "moves", "none is known", ""


def _move_lines(moves: Iterable[MoveStory]) -> Iterator[Line]:
    """The outcome of each move; once per turn and pair the scores before, predicted and measured."""
    for _, group in groupby(moves, _plan):
        same = list(group)
        for move in same:
            turn = f", planned in turn {move.planned_in}" if move.planned_in is not None else ""
            owner = f" on {move.owner}" if move.owner not in {None, move.destination} else ""
            ends = f"{move.source} -> {move.destination or '(the broker chooses)'}"
            yield "move", f"{zoned(move.at)} {move.bundle}: {ends}: {move.result or 'open'}{owner}{turn}", ""
            if move.detail or move.reason:
                yield "", "; ".join(filter(None, (move.detail, move.reason))), "dim"
            yield from _service_lines(move)
        yield from _course_lines(same[0])


def _service_lines(move: MoveStory) -> Iterator[Line]:
    """Whether its clients are back, in the numbers of the reports before and after."""
    if move.served is None:
        return
    clients = (move.clients_before, move.clients_after)
    before, after = (each.words if each is not None else "" for each in clients)
    counts = f"before: {before}; after: {after or 'not reported'}" if before else ""
    service = served_text(move.served, move.reconnect_seconds, *clients)
    parts = (service, move.served_detail, counts)
    yield "", "; ".join(filter(None, parts)), "bold red" if move.served == "no" else "dim"


def _split_lines(splits: Iterable[SplitStory]) -> Iterator[Line]:
    for split in splits:
        where = f"{split.algorithm} at {', '.join(split.positions)}"
        yield "split", f"{zoned(split.at)} {split.bundle} on {split.owner}: {split.result or 'open'}, {where}", ""
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
    """A score before the turn's moves, predicted after all of them, and as measured."""
    before, expected, came = (getattr(ends, end, None) for ends in (move.before, move.expected, move.came))
    measured = "not settled since" if move.came is None else f"{_points(came)} measured (turn {move.seen_in})"
    return f"{_points(before)} points, {_points(expected)} predicted, {measured}"


def _points(score: float | None) -> str:
    return amount(score, digits=1)


def _ago(at: float, now: float) -> str:
    return f"{duration_text(now - at)} ago ({zoned(at)})"


# --- command


@click.command("explain")
@click.argument("what", required=False, metavar="[BROKER|BUNDLE|TOPIC|NAMESPACE|TURN]", shell_complete=anything)
@click.option(
    "--last", type=click.IntRange(1, 1_000_000), default=5, show_default=True, help="Number of moves to list."
)
@click.option(
    "--since",
    "since_seconds",
    callback=duration,
    metavar="DURATION",
    help="How far to look back: 15m, 2h, 7d.  [default: 1d]",
)
@click.option("--every", is_flag=True, help="Print every kept turn as one line of JSON, the newest first.")
@remote_options
def explain(
    read: Read,
    form: str,
    what: str | None,
    last: int,
    since_seconds: float | None,
    api_url: str | None,
    *,
    every: bool,
) -> None:
    """Explain why something moved or did not.

    Takes a broker (host:port, or the host), a bundle (tenant/namespace/0x..._0x...), a topic for its bundle, a
    namespace, or the number of a turn, which each log line has; by default the last turn. Reads only the state
    directory, and contacts no broker, except for a topic: brokers are asked for its name, and each partition, or each
    segment of a scalable topic (topic://tenant/namespace/topic), is explained.

    \b
    Example: lbd explain broker-1:8080
    """
    settings, now = settings_to_look(read), time.time()
    if every:
        if what is not None or api_url is not None:
            raise UsageError("--every prints all turns of a state directory; give neither a name nor --api with it")
        turns = KeptTurns(settings.state_dir)
        for turn in turns:
            click.echo(msgspec.json.encode(named(turn)))
        _print_unreadable(turns.unreadable)
        return
    is_topic = what is not None and names_topic(what)
    parts = [part.topic for part in topic_bundles(read().settings, what or "", api_url)] if is_topic else []
    if (client := api_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        back = since_seconds or DAY_SECONDS
        _print_explanation(what, parts, lambda name: remote.explained(client, name, last, back), form, now)
        return
    explainer = Explainer(
        settings.state_dir,
        now=now,
        since=now - (since_seconds or DAY_SECONDS),
        last=last,
        cool_down_seconds=settings.guardrails.cool_down_minutes * 60,
        steps=_steps(settings.state_dir, now),
    )
    _print_explanation(what, parts, explainer.of, form, now)
    _print_unreadable(explainer.unreadable)


def _steps(state_dir: Path, now: float) -> list[NextStep]:
    """Next steps for a person, by the status; none without a status."""
    try:
        status, pause = in_force(read_status(state_dir), Control(state_dir), now)
    except UsageError:
        return []
    drains = drains_in_force(state_dir, now)
    return steps_now(status, running(state_dir), pause, now, drains)


def _print_unreadable(number: int) -> None:
    if number:
        click.echo(f"Note: {counted(number, 'kept turn')} cannot be read; passed over.", err=True)


def _print_explanation(
    what: str | None, parts: Sequence[str], explained: Callable[[str | None], Answer], form: str, now: float
) -> None:
    """Print one answer, or one for each part of a topic: as JSON a list of them, each with the part's name."""
    if not parts or parts == [what]:
        answer = explained(what)
        if form == "json":
            json_out(named(answer))
        else:
            show(answer, now)
        return
    kind = "segment" if is_scalable(what or "") else "partition"
    answers = {name: explained(name) for name in parts}
    if form == "json":
        json_out([{kind: name, **named(answer)} for name, answer in answers.items()])
        return
    for name, answer in answers.items():
        print_lines(console(), [(kind, name, "bold")], "")
        show(answer, now)
