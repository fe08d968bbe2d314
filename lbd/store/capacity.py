"""The peaks of the load by hour, over a week, in the store, so that a restart wants as many brokers as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.files import YEAR_10000
from lbd.load.capacity import Peak, Peaks, hour_of
from lbd.store.database import STORE_NAME, json_value, put_json

if TYPE_CHECKING:
    from pathlib import Path


PEAKS = "peaks"
"""Their name in the store."""


def load_peaks(state_dir: Path) -> Peaks:
    """The saved peaks; none where there are none. Raises :class:`~lbd.errors.UsageError` where they are damaged."""
    hours = json_value(state_dir / STORE_NAME, PEAKS, tuple[Peak, ...])
    if not all(map(_is_sound, hours or ())):
        raise UsageError(f"{state_dir / STORE_NAME}: {PEAKS} cannot be read: it has an hour that no clock shows")
    return Peaks(hours or ())


def save_peaks(state_dir: Path, peaks: Peaks) -> None:
    """Replace what is kept, on disk when this returns. Raises :class:`~lbd.errors.UsageError`."""
    put_json(state_dir / STORE_NAME, PEAKS, peaks.hours)


def _is_sound(peak: Peak) -> bool:
    """A load that has lasted for minutes may belong to the hour before."""
    return 0 <= peak.at < YEAR_10000 and 0 <= peak.hour - hour_of(peak.at) <= 1
