"""The figures of a scorecard as a person reads them: a label, a unit, and how many digits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Figure:
    """One figure of a :class:`~lbd.score.scorecard.Scorecard`, by its dotted name; times ``factor`` it has the unit."""

    name: str
    label: str
    digits: int = 0
    unit: str = ""
    factor: float = 1.0

    def told(self, value: float | None) -> str:
        """The number in its unit; a dash where there is none."""
        return "-" if value is None else f"{value * self.factor:,.{self.digits}f}{self.unit}"

    def at(self, section: str, when: str) -> Figure:
        """The same figure of one section of the scorecard."""
        return replace(self, name=f"{section}.{self.name}", label=f"{self.label}, {when}")


EVENNESS = (
    Figure("gap_points", "highest - lowest, points", 1),
    Figure("std_points", "standard deviation, points", 1),
    Figure("max_over_mean", "highest / mean", 2),
    Figure("variation", "standard deviation / mean", 2),
    Figure("near_mean", "brokers within 10 % of the mean", 0, " %", 100),
)
"""How even brokers are at one moment, or on average."""

WHEN = {"first": "at first", "last": "at last", "mean": "on average", "unmoved": "had nothing moved"}
"""The sections of a scorecard that have them."""

RUN = (
    Figure("minutes_over_low", "apart by the low threshold", 0, " min"),
    Figure("minutes_over_high", "apart by the high threshold", 0, " min"),
    Figure("minutes_to_balance", "balanced after", 0, " min"),
    Figure("first_move_after_seconds", "first move after it was shown", 0, " s"),
    Figure("moves", "moves"),
    Figure("rounds", "in rounds"),
    Figure("splits", "bundles split"),
    Figure("peak_points", "peak since the last move, points", 1),
    Figure("fewest_moves", "fewest moves that any plan needs for it"),
    Figure("redundant_moves", "redundant moves"),
    Figure("fewest_moves_as_even", "fewest moves for that and as high a lowest score"),
    Figure("redundant_moves_as_even", "redundant moves, as even"),
    Figure("best_peak_points", "lowest peak for as many moves, points", 1),
    Figure("bundles_moved_twice", "bundles moved more than once"),
    Figure("traffic_moved", "traffic moved", 1, " %", 100),
    Figure("thrashing", "thrashing", 0, " %", 100),
    Figure("thrashing_unmoved", "thrashing of the load alone", 0, " %", 100),
    Figure("policy_violations", "policy violations"),
    Figure("unserved_bundle_seconds", "unserved, bundles x seconds", 1),
    Figure("turn_p50_seconds", "half of the turns took at most", 1, " ms", 1000),
    Figure("turn_p99_seconds", "99 of 100 turns took at most", 1, " ms", 1000),
    Figure("turns", "turns"),
    Figure("hours", "simulated", 1, " h"),
)
"""What is told of a run as a whole."""

FIGURES = (*(figure.at(section, when) for section, when in WHEN.items() for figure in EVENNESS), *RUN)
"""Every figure, in the order in which they are told."""
