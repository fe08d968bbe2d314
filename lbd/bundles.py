"""Names of bundles: their namespaces, and where those of one round stood in another. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

    IntArray = NDArray[np.int32]

PIECE = 64
NEAR = 1000
"""A broker that came or went puts others some hundreds of names further; one more or less bundle, a single one."""


@dataclass(frozen=True, eq=False)
class Namespaces:
    """The distinct ``names``, and of each bundle its position among them: ``of`` is int32 (N,)."""

    names: tuple[str, ...]
    of: IntArray


def namespaces(bundles: list[str]) -> Namespaces:
    """The bundles' namespaces, told apart."""
    names = [bundle.rpartition("/")[0] for bundle in bundles]  # bundle_namespace, without a call for each
    position = {name: at for at, name in enumerate(dict.fromkeys(names))}
    of = np.fromiter(map(position.__getitem__, names), dtype=np.int32, count=len(names))
    return Namespaces(tuple(position), of)


def positions_of(wanted: Collection[str], bundles: list[str], known: Namespaces) -> dict[str, int]:
    """Where some bundles stand, looked for in their namespaces only; one that stands nowhere is left out."""
    own = {name.rpartition("/")[0] for name in wanted}
    may = np.array([name in own for name in known.names], dtype=np.bool_)[known.of]
    return {bundles[at]: at for at in np.flatnonzero(may).tolist() if bundles[at] in wanted}


def positions(names: list[str], known: list[str]) -> IntArray:
    """Where each name stands in ``known``, int32 (N,), -1 of one that does not; both hold each name once.

    From one round to the next most names stay behind one another: only pieces that do not are looked up.
    """
    if names == known:
        return np.arange(len(names), dtype=np.int32)
    shifts = np.repeat(_shifts(names, known), PIECE)[: len(names)]
    found = np.where(shifts < len(known), np.arange(len(names)) + shifts, -1).astype(np.int32)
    left = np.ones(len(known), dtype=np.bool_)
    left[found[found >= 0]] = False
    position = {known[at]: at for at in np.flatnonzero(left).tolist()}
    rest = np.flatnonzero(found < 0)
    found[rest] = [position.get(names[at], -1) for at in rest.tolist()]
    return found


class Positions:
    """Where ``bundles`` stand in other lists. Asked for the very list it was asked for last, it answers at once."""

    def __init__(self, bundles: list[str]) -> None:
        self._bundles = bundles
        self._last: tuple[list[str], IntArray] | None = None

    def __call__(self, known: list[str]) -> IntArray:
        """As :func:`positions`; not to be written to."""
        last = self._last
        if last is None or last[0] is not known:
            self._last = last = known, positions(self._bundles, known)
            last[1].flags.writeable = False
        return last[1]


def _shifts(names: list[str], known: list[str]) -> list[int]:
    """How much further on each piece of the names stands in ``known``; ``len(known)`` where it is no piece there."""
    found, shift = [], 0
    for at in range(0, len(names), PIECE):
        piece, then = names[at : at + PIECE], at + shift
        same = then >= 0 and piece == known[then : then + len(piece)]
        found.append(shift if same else len(known))
        if not same:
            last = then + len(piece) - 1
            shift += _near(piece[-1], known, last) - last
    return found


def _near(name: str, known: list[str], about: int) -> int:
    """Where the name is, if that is not far from there; else ``about`` itself."""
    try:
        return known.index(name, max(about - NEAR, 0), max(about + NEAR, 0))
    except ValueError:
        return about
