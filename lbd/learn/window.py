"""A stretch of history as arrays: what one replay needs, small enough to be sent to where it runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lbd.model import BoolArray, FloatArray, IntArray

LONGEST_SILENCE_SECONDS = 180.0
"""Rounds further apart than three CPU samples have a gap between them, of which nothing is known."""


@dataclass(frozen=True, eq=False)
class Window:
    """``T`` rounds of ``B`` brokers, and the ``K`` changes of their bundles' rates and owners meanwhile.

    ``at`` is float64 (T,), epoch seconds. ``used`` is float64 (T, B, 5), percent of the limit, NaN where none is known
    or the broker is away. ``present``, ``fresh`` and ``doubted`` are bool (T, B): the broker has a report, a new sample
    in it, and the live turn did not trust it.
    ``started_at`` is float64 (T, B), epoch seconds, NaN where not told. Change ``k`` is seen in round
    ``change_round[k]`` (int32, ascending): bundle ``change_bundle[k]`` (int32) is owned by ``change_owner[k]`` (int32
    into the brokers, -1 for nobody) with ``change_rates[k]``, float32 (K, 4).
    """

    brokers: tuple[str, ...]
    bundles: tuple[str, ...]
    at: FloatArray
    used: FloatArray
    present: BoolArray
    fresh: BoolArray
    doubted: BoolArray
    started_at: FloatArray
    change_round: IntArray
    change_bundle: IntArray
    change_owner: IntArray
    change_rates: FloatArray

    def changes(self) -> list[slice]:
        """For each round its changes."""
        edges = np.searchsorted(self.change_round, np.arange(self.at.size + 1))
        return [slice(begin, end) for begin, end in pairwise(edges.tolist())]

    def from_round(self, first: int) -> Window:
        """The same without its first rounds: what changed in them is seen in the first that is left."""
        return Window(
            self.brokers,
            self.bundles,
            self.at[first:],
            self.used[first:],
            self.present[first:],
            self.fresh[first:],
            self.doubted[first:],
            self.started_at[first:],
            np.maximum(self.change_round - first, 0).astype(np.int32),
            self.change_bundle,
            self.change_owner,
            self.change_rates,
        )


_NAMES = ("brokers", "bundles")


def to_bytes(window: Window) -> bytes:
    """Packed; a day of 20 brokers with 2,000 bundles takes some megabytes."""
    values: dict[str, Any] = {field.name: getattr(window, field.name) for field in fields(Window)}
    values |= {name: np.frombuffer("\n".join(values[name]).encode(), dtype=np.uint8) for name in _NAMES}
    buffer = BytesIO()
    np.savez_compressed(buffer, **values)
    return buffer.getvalue()


def from_bytes(packed: bytes) -> Window:
    """What :func:`to_bytes` packed."""
    with np.load(BytesIO(packed), allow_pickle=False) as found:
        values: dict[str, Any] = {name: found[name] for name in found.files}
    return Window(**{**values, **{name: _split(values[name].tobytes().decode()) for name in _NAMES}})


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n")) if text else ()
