"""What ``lbd demo`` tells in lines: turns and moves where nobody watches a terminal, and the words of its picture."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from lbd.cli.render import plain, table
from lbd.demo.seen import gap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from lbd.demo.seen import Move, Seen
    from lbd.record.turns.lines import Turn
    from lbd.score.scorecard import Scorecard
    from lbd.simulate.fake_pulsar import FakePulsar

_LOOPBACK = re.compile(r"\b127\.0\.0\.1(?=:\d)")


def short(words: str) -> str:
    """Brokers of the demo differ in their ports alone."""
    return _LOOPBACK.sub("", words)


def ends(source: str, destination: str) -> str:
    """From where to where."""
    return plain(f"{short(source)} -> {short(destination) or '(the broker chooses)'}")


def ago(seconds: float) -> str:
    """Minutes and seconds since the beginning."""
    return f"{int(seconds) // 60:2d}:{int(seconds) % 60:02d}"


def gap_words(seen: Seen, low_threshold: float) -> str:
    """How far apart the brokers were at first, and are now."""
    gaps = seen.gaps
    if gaps is None:
        return "fewer than two brokers have a score"
    return f"highest - lowest: {gaps[0]:.1f} points at first, {gaps[1]:.1f} now (balanced below {low_threshold:g})"


def state_words(move: Move, state: str) -> str:
    """Where a move is, or how it ended."""
    return f"{state} {move.detail}" if move.ended else state


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
    urls = ", ".join(cluster.admin_urls[:3]) + (", …" if len(cluster.admin_urls) > 3 else "")
    return (
        f"{plain(about)}\n"
        f"{len(cluster.admin_urls)} simulated brokers ({urls}), their time and lbd's at {cluster.speed:g} x.\n"
        "time   points between the highest and the lowest score; what lbd says of its turn, or how a move ended"
    )


def card(found: Scorecard) -> RenderableType:
    """The scorecard, in short."""
    rows = table(("true scores", "left"), ("first", "right"), ("last", "right"))
    rows.add_row("highest - lowest, points", f"{found.first.gap_points:.1f}", f"{found.last.gap_points:.1f}")
    rows.add_row("standard deviation, points", f"{found.first.std_points:.1f}", f"{found.last.std_points:.1f}")
    rows.add_row("highest / mean", f"{found.first.max_over_mean:.2f}", f"{found.last.max_over_mean:.2f}")
    return Group(Text(), rows, *map(Text, _lines(found)))


def _lines(found: Scorecard) -> Iterator[str]:
    minutes, rounds = found.hours * 60, "1 round" if found.rounds == 1 else f"{found.rounds} rounds"
    yield (
        f"bundles moved: {found.moves} in {rounds}, at least {found.fewest_moves} needed for as low a peak; "
        f"moved twice: {found.bundles_moved_twice}; traffic moved: {found.traffic_moved:.1%}"
    )
    if found.minutes_to_balance is None:
        yield f"balanced: not in the {minutes:.0f} minutes of the cluster's time"
    elif found.minutes_to_balance:
        yield f"balanced: after {found.minutes_to_balance:.0f} of the {minutes:.0f} minutes of the cluster's time"


NEXT = """
What next:
  lbd demo --serve               keeps it up, to try lbd status, explain, pause and unload on it
  lbd simulate demo --set avg_shedder.hit_count_low=4
                                 the same cluster without waiting, another setting, and its scorecard
  lbd doctor --admin-url URL     on your own cluster: what keeps lbd from working there; changes nothing
  lbd dry-run --admin-url URL    what it would move there, and why; changes nothing"""


def serving(admin_url: str, state_dir: str) -> str:
    """What can be tried on a cluster that is kept up."""
    return f"""
It goes on, at the pace of this machine's clock, until Ctrl-C. In another terminal:
  lbd dry-run --admin-url {admin_url}
  lbd doctor --admin-url {admin_url}
  export LBD_STATE_DIR={state_dir}
  lbd status        and lbd explain, lbd history, lbd pause, lbd resume, lbd unload BUNDLE --to BROKER
Its log: {state_dir}/lbd.log
"""
