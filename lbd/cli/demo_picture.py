"""Output of ``lbd demo``: a live picture on a terminal, one line per event elsewhere.

The picture shows brokers as bars, pairs with their samples above the thresholds, messages and moves.

Every value is the daemon's own, from its last turn or from a move that has just ended. Everything but the two stages at
the end (:class:`Picture`, :class:`Lines`) is pure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from lbd.cli.render import amount, plain, table
from lbd.cli.status_text import common_end
from lbd.demo import DAY_SECONDS, NOT_SENT, SENT, WAITS, DemoProgress
from lbd.text import minutes_text
from lbd.turn.record import gap_points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console, RenderableType

    from lbd.config import ApiSettings, Settings
    from lbd.demo import DemoMove, Stage
    from lbd.score.scorecard import Scorecard
    from lbd.simulate.fake_pulsar import FakePulsar
    from lbd.store.turn_record import BrokerRecord, PairRecord, TurnRecord


AVG_SHEDDER = "avg-shedder"
"""The strategy whose condition for a move the picture can print."""


def ends(source: str, destination: str, end: str = "") -> str:
    """Source and destination, without the common end of all names."""
    return plain(f"{source.removesuffix(end)} -> {destination.removesuffix(end) or '(the broker chooses)'}")


def ago(seconds: float) -> str:
    """Minutes and seconds since the start."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def rule(settings: Settings) -> str:
    """The condition under which lbd moves something."""
    if settings.strategy != AVG_SHEDDER:
        return f"Strategy: {settings.strategy}."
    it = settings.avg_shedder
    return (
        f"A pair {it.low_threshold:g} points apart for {it.hit_count_low} CPU samples, "
        f"or {it.high_threshold:g} for {it.hit_count_high}, is levelled."
    )


def gap_text(progress: DemoProgress, settings: Settings) -> str:
    """The gap between the brokers at the start and now."""
    gaps = progress.gaps
    if gaps is None:
        return "fewer than two brokers have a score"
    gap = f"highest - lowest: {gaps[0]:.1f} points at first, {gaps[1]:.1f} now"
    compares_scores = settings.strategy == AVG_SHEDDER
    return f"{gap} (balanced below {settings.avg_shedder.low_threshold:g})" if compares_scores else gap


def state_text(move: DemoMove, state: str) -> str:
    """The state of a move, or its outcome."""
    if not move.ended:
        return state
    return f"{state}: {move.detail}" if state == NOT_SENT else f"{state} {move.detail}"


def turn_line(turn: TurnRecord, begun_at: float) -> str:
    """The line of one turn."""
    apart = gap_points(turn.brokers)
    gap_words = "no scores" if apart is None else f"{apart:.1f} apart"
    return plain(f"{ago(turn.at - begun_at)}  {gap_words:>10}  {turn.sentence}")


def move_line(move: DemoMove, begun_at: float) -> str:
    """The line of one move's outcome."""
    words = state_text(move, move.state)
    return plain(f"{ago(move.at - begun_at)}  {'':>10}  {move.bundle} {move.source} -> {move.destination}: {words}")


def opening(about: str, cluster: FakePulsar) -> str:
    """The first lines: what is shown, and how to read it."""
    first, *others = cluster.admin_urls
    more = f" and {len(others)} more" if others else ""
    return (
        f"{plain(about)}\n"
        f"Simulated brokers: {first}{more}. The cluster's time and lbd's run at {cluster.speed:g} x.\n"
        "A line is of a turn: time, points between the highest and the lowest score, and what lbd says; or of a move."
    )


def card(scorecard: Scorecard, gaps: tuple[float, float] | None) -> RenderableType:
    """The short scorecard; ``gaps`` are those of the reports, at first and at last."""
    rows = table("true scores", ">first", ">last")
    rows.add_row("highest - lowest, points", f"{scorecard.first.gap_points:.1f}", f"{scorecard.last.gap_points:.1f}")
    rows.add_row("standard deviation, points", f"{scorecard.first.std_points:.1f}", f"{scorecard.last.std_points:.1f}")
    rows.add_row("highest / mean", f"{scorecard.first.max_over_mean:.2f}", f"{scorecard.last.max_over_mean:.2f}")
    return Group(Text(), rows, *map(Text, (*_reported(gaps), *_lines(scorecard))))


def _reported(gaps: tuple[float, float] | None) -> Iterator[str]:
    """The gap as lbd knows it, and why it is another one."""
    if gaps is not None:
        first, last = gaps
        yield f"by load reports {first:.1f} and {last:.1f} points apart: their CPU is a noisy sample of the last minute"


def _lines(scorecard: Scorecard) -> Iterator[str]:
    lasted = minutes_text(scorecard.hours * 3600)
    yield (
        f"bundles moved: {scorecard.moves}, {scorecard.traffic_moved:.1%} of the traffic; "
        f"moved twice: {scorecard.bundles_moved_twice}"
    )
    if scorecard.fewest_moves_as_even is not None:
        yield f"needed at least, to be as even: {scorecard.fewest_moves_as_even}"
    if scorecard.minutes_to_balance is None:
        yield f"balanced: not in the {lasted} of the cluster's time"
    elif scorecard.minutes_to_balance:
        yield f"balanced: after {minutes_text(scorecard.minutes_to_balance * 60)} of the {lasted} of the cluster's time"


NEXT = """
What next:
  lbd demo --serve              keeps it up, to try lbd status and explain on it
  lbd simulate demo --set avg_shedder.hit_count_low=4
                                the same without waiting, with another setting
  lbd doctor --admin-url URL    what keeps lbd from working on your own cluster
  lbd dry-run --admin-url URL   what it would move there; both change nothing"""


def serving(admin_url: str, state_dir: str, api: str | None, settings: ApiSettings) -> str:
    """Commands to try on a cluster that keeps running; its API has another port if its own is taken."""
    taken = "" if api == settings.url() else f" ({settings.listen} is taken)"
    shown = f"{api}{taken} shows it in a browser, and is its API; changes need the token in {state_dir}/token"
    served = shown if api else "Its API and dashboard do not listen: no port is free"
    return f"""
It goes on at the pace of this machine's clock, until Ctrl-C. Each simulated day of {DAY_SECONDS / 60:.0f} minutes
the bundles of another broker are busy; the next moves come after ten minutes or so. In another terminal:
  export LBD_PULSAR__ADMIN_URLS='["{admin_url}"]'
  export LBD_STATE_DIR={state_dir}    and then
  lbd doctor, dry-run, plan, status, explain, history, pause, unload BUNDLE, split BUNDLE, place BUNDLE, drain BROKER
{served}.
The log of its lbd is {state_dir}/lbd.log
"""


# --- brokers as bars: each score, and its change since the start

NARROW, WIDE_ENOUGH = 60, 76
"""Columns below which numbers beside the bars are omitted, and from which each broker has room for a remark."""

LEAST_BAR, LONGEST_BAR = 13, 40
LEGEND = "░ less ▓ more"
"""Signs of a score that has risen or fallen since the start."""


def brokers(frame: Frame, turn: TurnRecord, width: int, number: int) -> RenderableType:
    """A bar for each broker, up to a maximum, and the gap between the brokers."""
    first = {row.id: row.score for row in frame.progress.first.brokers} if frame.progress.first is not None else {}
    longest = max((len(row.id) for row in turn.brokers), default=0)
    beside = longest + 9 + (18 if width >= NARROW else 0) + (20 if width >= WIDE_ENOUGH else 0)
    bar = min(max(width - beside, LEAST_BAR), LONGEST_BAR)
    rows = table(*_columns(width))
    shown, gone_at = _extreme_brokers(turn.brokers, number)
    sources = {pair.source for pair in turn.pairs}
    for index, broker in enumerate(shown):
        if index == gone_at:
            rows.add_row(f"… {len(turn.brokers) - len(shown)} more")
        hot = broker.id in sources
        row = (
            Text(plain(broker.id), "bold red" if hot else ""),
            Text(amount(broker.score, digits=1), "bold red" if hot else ""),
            _bar(broker.score or 0.0, first.get(broker.id), bar, "bold red" if hot else "green"),
            amount(broker.throughput, 1e6, 1),
            str(broker.bundles),
            Text(_remark(broker), "dim"),
        )
        rows.add_row(*row[: len(_columns(width))])
    gaps = (Text(line, "bold") for line in folded(gap_text(frame.progress, frame.settings), width))
    return Group(rows, *gaps)


def _columns(width: int) -> list[str]:
    columns = ["broker", ">score", LEGEND]
    if width >= NARROW:
        columns += [">MB/s", ">bundles"]
    if width >= WIDE_ENOUGH:
        columns.append("")
    return columns


def _extreme_brokers(brokers: Sequence[BrokerRecord], rows: int) -> tuple[Sequence[BrokerRecord], int | None]:
    """All brokers by name; if too many, the most and the least loaded, and the index where others are omitted."""
    if len(brokers) <= rows:
        return brokers, None
    ordered = sorted(brokers, key=lambda row: -(row.score or 0.0))
    highest, lowest = rows // 2, (rows - 1) // 2
    return [*ordered[:highest], *ordered[len(ordered) - lowest :]], highest


def _bar(score: float, first: float | None, width: int, style: str) -> Text:
    """The bar of a score, and its change since the start."""
    points = (score, score if first is None else first)
    now, then = (round(min(max(each, 0.0), 100.0) / 100 * width) for each in points)
    bar = (
        Text()
        .append("█" * min(now, then), style)
        .append("▓" * (now - then), "cyan")
        .append("░" * (then - now), "dim red")
    )
    return bar.append("·" * (width - max(now, then)), "dim")


def _remark(broker: BrokerRecord) -> str:
    if broker.doubt is not None:
        return plain(broker.doubt)
    return f"settling, {broker.to_settle} to come" if broker.to_settle else ""


def folded(words: str, width: int, indent: int = 0, most: int | None = None) -> list[str]:
    """The lines of a text that fit beside ``indent`` columns, ``most`` of them at most.

    Only a word that is longer than a line is broken.
    """
    columns = max(width - indent, LEAST_BAR)
    return wrap(words, columns, break_on_hyphens=False, max_lines=most, placeholder=" …") or [""]


def short_bundle(bundle: str) -> str:
    """``orders/0x20000000`` of ``tenant/orders/0x20000000_0x40000000``: where a range begins says which one it is."""
    namespace, _, ends_of_range = bundle.rpartition("/")
    return f"{namespace.rpartition('/')[2]}/{ends_of_range.partition('_')[0]}"


# --- the picture: layout and rows

VERDICT_LINES, HIGH_ENOUGH = 2, 30
"""Lines of the verdict in a lower terminal, and the lines from which on it may have twice as many."""

CELLS = 12
"""Counts of samples above it are printed as numbers, without cells."""

VERDICT_STYLES = {
    "balanced": "bold green",
    "moving": "bold cyan",
    "blocked": "bold red",
    "held": "bold yellow",
    "not-fixable": "bold yellow",
}
STATE_STYLES = {WAITS: "dim", SENT: "cyan", "landed": "green"}


@dataclass(frozen=True)
class Frame:
    """The state to draw. ``now`` and ``begun_at`` are the cluster's time (epoch seconds), which runs at ``speed``.

    ``left_seconds`` of real time remain. ``flying`` are the bundles whose unload was sent and has no outcome.
    """

    progress: DemoProgress
    now: float
    begun_at: float
    speed: float
    left_seconds: float
    about: str
    settings: Settings
    flying: frozenset[str] = frozenset()

    @property
    def end(self) -> str:
        """The common end of all broker names; the table of brokers has whole names."""
        return common_end(row.id for row in self.progress.last.brokers) if self.progress.last is not None else ""


@dataclass(frozen=True)
class _Rows:
    """The number of rows of each part."""

    brokers: int
    pairs: int
    lower: int
    spaced: bool


def picture(frame: Frame, width: int, height: int) -> Group:
    """The picture in the given columns and lines; rows without room are counted instead."""
    turn = frame.progress.last
    title = _title(frame, width)
    parts: list[RenderableType] = [*title]
    if turn is None:
        return Group(*parts, Text("the brokers start; lbd's first turn comes", "dim"))
    verdict = _verdict(frame, turn, width, VERDICT_LINES if height < HIGH_ENOUGH else 2 * VERDICT_LINES)
    texts = len(title) + len(verdict) + len(folded(gap_text(frame.progress, frame.settings), width))
    rows = _rows(turn, height - 1 - texts)
    sentences = _recent_sentences(frame, max(rows.lower // 3, rows.lower - len(frame.progress.moves), 1), width)
    sections: tuple[list[RenderableType], ...] = (
        [brokers(frame, turn, width, rows.brokers)],
        [_pairs(frame, turn, turn.pairs[: rows.pairs], width)] if turn.pairs else [],
        [*verdict, *sentences],
        _moves(frame, rows.lower - len(sentences), width),
    )
    for section in filter(None, sections):
        parts += [Text(), *section] if rows.spaced else section
    return Group(*parts)


def _rows(turn: TurnRecord, room: int) -> _Rows:
    """Rows for brokers first, then for the widest pairs; messages and moves share the ``lower`` ones."""
    spaced = room >= 26
    pairs = min(len(turn.pairs), 3 if spaced else 2)
    headings = 2 + (1 if pairs else 0) + (1 if len(turn.pairs) > pairs else 0) + (4 if spaced else 0)
    room = max(room - headings - pairs, 6)
    bars = min(len(turn.brokers), max(room - 3, 3))
    return _Rows(bars, pairs, max(room - bars, 2), spaced)


def _title(frame: Frame, width: int) -> list[Text]:
    passed, wide = ago(frame.now - frame.begun_at).strip(), width >= WIDE_ENOUGH
    clock = f"  {passed} of its time ({frame.speed:g} x), {frame.left_seconds:.0f} s left"
    whole = "lbd demo: the real lbd, a simulated cluster"
    title = Text().append(whole if len(whole) + len(clock) <= width else "lbd demo", "bold").append(clock, "dim")
    words = (plain(frame.about), rule(frame.settings)) if wide else ()
    return [title, *(Text(line, "dim") for text in words for line in folded(text, width))]


def _pairs(frame: Frame, turn: TurnRecord, pairs: Sequence[PairRecord], width: int) -> RenderableType:
    wide, points = width >= WIDE_ENOUGH, frame.settings.avg_shedder
    low, high = points.low_threshold, points.high_threshold
    rows = table("pair", ">apart", f"samples {low:g}+", f"samples {high:g}+")
    if wide:
        rows.add_column(no_wrap=True)
    for pair in pairs:
        row = (
            Text(ends(pair.source, pair.destination or "", frame.end), "bold"),
            f"{pair.difference:.1f}",
            _hits(pair.low, pair.low_wanted, cells=wide),
            _hits(pair.high, pair.high_wanted, cells=wide),
            Text("fires" if pair.fired else pair.reason or "", "bold cyan" if pair.fired else "dim"),
        )
        rows.add_row(*row[: 5 if wide else 4])
    more = len(turn.pairs) - len(pairs)
    return Group(rows, Text(f"… {more} more pairs", "dim")) if more else rows


def _hits(hits: int, required: int, *, cells: bool) -> Text:
    """A count of samples as cells."""
    filled = (
        Text().append("■" * hits, "yellow").append("□" * (required - hits), "dim")
        if cells and required <= CELLS
        else Text()
    )
    return filled.append(f"{' ' if filled else ''}{hits} of {required}")


def _verdict(frame: Frame, turn: TurnRecord, width: int, most: int) -> list[Text]:
    style = VERDICT_STYLES.get(turn.verdict.kind, "bold")
    return _beside("verdict  ", _short(frame, turn.error or turn.verdict.words), style, width, most)


def _beside(label: str, words: str, style: str, width: int, most: int | None = None) -> list[Text]:
    """Words beside a label, in lines below one another."""
    lines = folded(words, width, len(label), most)
    labels = [label, *[" " * len(label)] * (len(lines) - 1)]
    return [Text().append(first, "dim").append(line, style) for first, line in zip(labels, lines, strict=True)]


def _recent_sentences(frame: Frame, number: int, width: int) -> list[Text]:
    """The last messages of its turns, the latest at the bottom, in that many lines; the latest is always there."""
    lines: list[Text] = []
    for message in reversed(frame.progress.sentences):
        turns = f"  ({message.turns} turns)" if message.turns > 1 else ""
        own = _beside(f"{ago(message.at - frame.begun_at)}  ", _short(frame, message.sentence) + turns, "", width)
        if len(lines) + len(own) > number:
            return lines or own[:number]
        lines = [*own, *lines]
    return lines


def _short(frame: Frame, words: str) -> str:
    return plain(words.replace(frame.end, "") if frame.end else words)


def _moves(frame: Frame, number: int, width: int) -> list[RenderableType]:
    """Moves in flight first, then the latest outcomes."""
    moves = frame.progress.moves
    if not moves:
        return []
    landed = sum(move.state == "landed" for move in moves)
    heading = Text(f"moves: {len(moves)} planned, {landed} landed", "bold")
    rows = table("", "", "")
    rows.show_header, rows.columns[2].no_wrap = False, False
    shown = sorted(moves, key=lambda move: (move.ended, -move.at))[:number]
    cells = [_move_cells(frame, move) for move in shown]
    room = width - sum(max((len(cell[at]) for cell in cells), default=0) + 2 for at in (0, 1))
    whole = room >= max((len(move.bundle) for move in shown), default=0)
    for move, (pair, words) in zip(shown, cells, strict=True):
        bundle = plain(move.bundle if whole else short_bundle(move.bundle)) if width >= NARROW else ""
        rows.add_row(pair, words, bundle)
    return [heading, rows]


def _move_cells(frame: Frame, move: DemoMove) -> tuple[str, Text]:
    """Its ends, and its state."""
    state = SENT if move.state == WAITS and move.bundle in frame.flying else move.state
    words = Text(plain(state_text(move, state)), STATE_STYLES.get(state, "bold red"))
    return ends(move.source, move.destination, frame.end), words


# --- stages: the picture on a terminal, lines elsewhere

PICTURES_A_SECOND = 8


class Picture:
    """A live picture until it is closed; the last one stays on the screen."""

    def __init__(self, stage: Stage, console: Console, about: str, ends_at: float) -> None:
        self._stage, self._console, self._about, self._ends_at = stage, console, about, ends_at
        self._live = Live(get_renderable=self._drawn, console=console, refresh_per_second=PICTURES_A_SECOND)
        self._live.start(refresh=True)

    def close(self) -> None:
        """Draw the last picture."""
        self._live.stop()

    def _drawn(self) -> RenderableType:
        cluster = self._stage.cluster
        frame = Frame(
            progress=self._stage.progress,
            now=cluster.now(),
            begun_at=cluster.begun_at,
            speed=cluster.speed,
            left_seconds=max(self._ends_at - time.monotonic(), 0.0),
            about=self._about,
            settings=self._stage.settings,
            flying=self._stage.flying,
        )
        return picture(frame, self._console.width, self._console.height)


class Lines:
    """A line for each turn and each outcome. The stage ends when stdout is closed."""

    def __init__(self, stage: Stage, about: str = "") -> None:
        self._stage, self._begun_at = stage, stage.cluster.begun_at
        if about:
            self._say(opening(about, stage.cluster))
        stage.on_turn, stage.on_move = self._turned, self._moved

    def close(self) -> None:
        """Print no further lines."""
        self._stage.on_turn, self._stage.on_move = (lambda _: None), (lambda _: None)

    def _turned(self, turn: TurnRecord) -> None:
        self._say(turn_line(turn, self._begun_at))

    def _moved(self, progress: DemoProgress) -> None:
        self._say(move_line(progress.moves[-1], self._begun_at))

    def _say(self, line: str) -> None:
        try:
            click.echo(line)
        except OSError:
            self.close()
            self._stage.end()
