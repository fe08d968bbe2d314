"""Moves and gaps of each candidate over the suite, as one small SVG: further left and further down is better."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from tests.scenarios.clusters import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.bench.suite import Ran

WIDTH, HEIGHT, LEFT, BOTTOM = 720, 360, 56, 44
FONT = 'font-family="sans-serif" font-size="12"'
COLOURS = ("#d1495b", "#e9a23b", "#2e7d4f", "#4f86c6", "#7a7a7a", "#8e5ba6")


def drawn(found: Sequence[Ran]) -> str:
    """A dot for each kind of cluster and candidate: mean moves across, median last gap up."""
    names = list(dict.fromkeys(one.candidate for one in found))
    dots = [(name, kind, *_figures(found, name, kind)) for name in names for kind in KINDS]
    most_moves, most_gap = (max(dot[at] for dot in dots) * 1.08 or 1.0 for at in (2, 3))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        *_axes(most_moves, most_gap),
    ]
    for name, kind, moves, gap in dots:
        colour = COLOURS[names.index(name) % len(COLOURS)]
        at = f'cx="{_x(moves, most_moves):.0f}" cy="{_y(gap, most_gap):.0f}"'
        lines.append(f'<circle {at} r="5" fill="{colour}" fill-opacity="0.8"><title>{name}, {kind}</title></circle>')
    for at, name in enumerate(names):
        y = 18 + 16 * at
        lines.append(f'<circle cx="{WIDTH - 150}" cy="{y - 4}" r="5" fill="{COLOURS[at % len(COLOURS)]}"/>')
        lines.append(f'<text x="{WIDTH - 138}" y="{y}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _figures(found: Sequence[Ran], name: str, kind: str) -> tuple[float, float]:
    cards = [one.card for one in found if (one.candidate, one.kind) == (name, kind)]
    return statistics.mean(card.moves for card in cards), statistics.median(card.last.gap_points for card in cards)


def _x(moves: float, most: float) -> float:
    return LEFT + (WIDTH - LEFT - 10) * moves / most


def _y(gap: float, most: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 10) * gap / most


def _axes(most_moves: float, most_gap: float) -> Iterator[str]:
    low = HEIGHT - BOTTOM
    yield f'<path d="M{LEFT} 10V{low}H{WIDTH - 10}" fill="none" stroke="#444"/>'
    for moves in range(0, int(most_moves) + 1, 10):
        yield f'<text x="{_x(moves, most_moves):.0f}" y="{low + 16}" text-anchor="middle">{moves}</text>'
    for gap in range(0, int(most_gap) + 1, 15):
        yield f'<text x="{LEFT - 6}" y="{_y(gap, most_gap) + 4:.0f}" text-anchor="end">{gap}</text>'
    yield f'<text x="{WIDTH / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">moves, mean of a kind of cluster</text>'
    at = f'transform="translate(14 {low / 2:.0f}) rotate(-90)"'
    yield f'<text {at} text-anchor="middle">last gap, points, median</text>'
