"""What ``lbd demo`` tells in lines: turns and moves where nobody watches a terminal, and the words of its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from lbd.cli.render import plain, table
from lbd.demo.seen import NOT_SENT, gap
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lbd.api.settings import ApiSettings
    from lbd.config import Settings
    from lbd.demo.seen import Move, Seen
    from lbd.record.turns.lines import Turn
    from lbd.score.scorecard import Scorecard
    from lbd.simulate.fake_pulsar import FakePulsar


AVG_SHEDDER = "avg-shedder"
"""The strategy of which the picture can say when it moves."""


def ends(source: str, destination: str, end: str = "") -> str:
    """From where to where, without what all names end in."""
    return plain(f"{source.removesuffix(end)} -> {destination.removesuffix(end) or '(the broker chooses)'}")


def ago(seconds: float) -> str:
    """Minutes and seconds since the beginning."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def rule(settings: Settings) -> str:
    """When lbd moves something."""
    if settings.strategy != AVG_SHEDDER:
        return f"Strategy: {settings.strategy}."
    it = settings.avg_shedder
    return (
        f"A pair {it.low_threshold:g} points apart for {it.hit_count_low} CPU samples, "
        f"or {it.high_threshold:g} for {it.hit_count_high}, is levelled."
    )


def gap_words(seen: Seen, settings: Settings) -> str:
    """How far apart the brokers were at first, and are now."""
    gaps = seen.gaps
    if gaps is None:
        return "fewer than two brokers have a score"
    told = f"highest - lowest: {gaps[0]:.1f} points at first, {gaps[1]:.1f} now"
    known = settings.strategy == AVG_SHEDDER
    return f"{told} (balanced below {settings.avg_shedder.low_threshold:g})" if known else told


def state_words(move: Move, state: str) -> str:
    """Where a move is, or how it ended."""
    if not move.ended:
        return state
    return f"{state}: {move.detail}" if state == NOT_SENT else f"{state} {move.detail}"


def turn_line(turn: Turn, begun_at: float) -> str:
    """One turn."""
    apart = gap(turn)
    told = "no scores" if apart is None else f"{apart:.1f} apart"
    return plain(f"{ago(turn.at - begun_at)}  {told:>10}  {turn.sentence}")


def move_line(move: Move, begun_at: float) -> str:
    """One move's end."""
    words = state_words(move, move.state)
    return plain(f"{ago(move.at - begun_at)}  {'':>10}  {move.bundle} {move.source} -> {move.destination}: {words}")


def opening(about: str, cluster: FakePulsar) -> str:
    """What is shown, and how to read the lines."""
    first, *others = cluster.admin_urls
    more = f" and {len(others)} more" if others else ""
    return (
        f"{plain(about)}\n"
        f"Simulated brokers: {first}{more}. The cluster's time and lbd's run at {cluster.speed:g} x.\n"
        "A line is of a turn: time, points between the highest and the lowest score, and what lbd says; or of a move."
    )


def card(found: Scorecard) -> RenderableType:
    """The scorecard, in short."""
    rows = table(("true scores", "left"), ("first", "right"), ("last", "right"))
    rows.add_row("highest - lowest, points", f"{found.first.gap_points:.1f}", f"{found.last.gap_points:.1f}")
    rows.add_row("standard deviation, points", f"{found.first.std_points:.1f}", f"{found.last.std_points:.1f}")
    rows.add_row("highest / mean", f"{found.first.max_over_mean:.2f}", f"{found.last.max_over_mean:.2f}")
    return Group(Text(), rows, *map(Text, _lines(found)))


def _lines(found: Scorecard) -> Iterator[str]:
    lasted, rounds = f"{found.hours * 60:.0f} min", counted(found.rounds, "round")
    yield (
        f"bundles moved: {found.moves} in {rounds}, {found.traffic_moved:.1%} of the traffic; "
        f"moved twice: {found.bundles_moved_twice}"
    )
    if found.fewest_moves_as_even is not None:
        yield f"needed at least, to be as even: {found.fewest_moves_as_even}"
    if found.minutes_to_balance is None:
        yield f"balanced: not in the {lasted} of the cluster's time"
    elif found.minutes_to_balance:
        yield f"balanced: after {found.minutes_to_balance:.0f} of the {lasted} of the cluster's time"


NEXT = """
What next:
  lbd demo --serve              keeps it up, to try lbd status and explain on it
  lbd simulate demo --set avg_shedder.hit_count_low=4
                                the same without waiting, with another setting
  lbd doctor --admin-url URL    what keeps lbd from working on your own cluster
  lbd dry-run --admin-url URL   what it would move there; both change nothing"""


def serving(admin_url: str, state_dir: str, api: str | None, wanted: ApiSettings) -> str:
    """What can be tried on a cluster that is kept up; its API is on another port where the ``wanted`` one is taken."""
    taken = "" if api == wanted.url() else f" ({wanted.listen} is taken)"
    shown = f"{api}{taken} shows it in a browser, and is its API; changes need the token in {state_dir}/token"
    served = shown if api else "Its API and dashboard do not listen: no port is free"
    return f"""
It goes on at the pace of this machine's clock, until Ctrl-C. In another terminal:
  export LBD_PULSAR__ADMIN_URLS='["{admin_url}"]'
  export LBD_STATE_DIR={state_dir}    and then
  lbd doctor, dry-run, status, explain, history, pause, unload BUNDLE, split BUNDLE, place BUNDLE, drain BROKER
{served}.
The log of its lbd is {state_dir}/lbd.log
"""
