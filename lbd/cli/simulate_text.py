"""A simulated run as a person reads it: what was moved and when, the scorecard, and what the last turn said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from lbd.cli import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.config import Settings
    from lbd.model import Unload
    from lbd.score.scorecard import Evenness, Scorecard
    from lbd.simulate.run import Turned
    from lbd.simulate.scenario import Scenario


@dataclass(frozen=True)
class Told:
    """What there is to tell of a run, turn by turn; ``turn_seconds`` is what all its turns took."""

    name: str
    seed: int
    scenario: Scenario
    begun: tuple[tuple[float, tuple[Unload, ...]], ...] = ()
    last: str = ""
    turn_seconds: float = 0.0
    card: Scorecard | None = None

    def after(self, turned: Turned) -> Told:
        """The same with one more turn."""
        begun = ((turned.seconds, turned.record.unloads),) if turned.record.unloads else ()
        took = self.turn_seconds + turned.took_seconds
        return replace(self, begun=(*self.begun, *begun), last=turned.record.sentence, turn_seconds=took)


def as_text(told: Told, settings: Settings) -> None:
    """Print the run."""
    assert told.card is not None
    console = Console(highlight=False, soft_wrap=True)
    console.print(Text(f"{told.name}, seed {told.seed}: {' '.join(told.scenario.about.split())}", "bold"))
    if told.scenario.stock:
        console.print(Text(f"Pulsar alone: {' '.join(told.scenario.stock.split())}", "dim"))
    if told.begun:
        console.print(_moves(told))
    console.print(_evenness(told.card.first, told.card.last))
    for line in _lines(told, told.card, settings):
        console.print(Text(line))
    console.print(Text(f"In the end: {told.last}", "bold"))


def _moves(told: Told) -> object:
    found = render.table(("at", "right"), ("from", "left"), ("to", "left"), ("bundles", "right"), ("MB/s", "right"))
    for seconds, unloads in told.begun:
        for pair in dict.fromkeys((unload.source, unload.destination) for unload in unloads):
            own = [unload for unload in unloads if (unload.source, unload.destination) == pair]
            volume = render.amount(sum(unload.throughput for unload in own), 1e6, 1)
            found.add_row(_clock(seconds), render.plain(pair[0]), render.plain(pair[1] or "?"), str(len(own)), volume)
    return found


def _evenness(first: Evenness, last: Evenness) -> object:
    found = render.table(("scores", "left"), ("first", "right"), ("last", "right"))
    found.add_row("highest - lowest, points", f"{first.gap_points:.1f}", f"{last.gap_points:.1f}")
    found.add_row("standard deviation, points", f"{first.std_points:.1f}", f"{last.std_points:.1f}")
    found.add_row("highest / mean", f"{first.max_over_mean:.2f}", f"{last.max_over_mean:.2f}")
    return found


def _lines(told: Told, card: Scorecard, settings: Settings) -> Iterator[str]:
    needed = "" if card.fewest_moves is None else f", at least {card.fewest_moves} needed for as low a peak"
    rounds = f"{card.rounds} {'round' if card.rounds == 1 else 'rounds'}"
    yield (
        f"moves: {card.moves} in {rounds}{needed}; bundles moved twice: {card.bundles_moved_twice}; "
        f"traffic moved: {card.traffic_moved:.1%}"
    )
    low, high = settings.avg_shedder.low_threshold, settings.avg_shedder.high_threshold
    yield f"apart by {low:g} points: {card.minutes_over_low:.0f} min; by {high:g}: {card.minutes_over_high:.0f} min"
    if card.minutes_to_balance is None:
        yield f"balanced: not in {card.hours:g} h"
    elif card.minutes_to_balance:
        yield f"balanced: after {card.minutes_to_balance:.0f} min"
    if card.first_move_after_seconds is not None:
        yield f"first move: {card.first_move_after_seconds:.0f} s after reports first showed {high:g} points"
    yield f"{card.turns} turns, which took {told.turn_seconds:.1f} s of this machine"


def _clock(seconds: float) -> str:
    """Hours and minutes since the beginning."""
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}"
