"""``capacity.json``: the peaks of the load by hour, over a week, so that a restart wants as many brokers as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lbd.errors import UsageError
from lbd.files import YEAR_10000, decoded, put
from lbd.load.capacity import Peak, Peaks, hour_of

if TYPE_CHECKING:
    from pathlib import Path


FORMAT = 1
NAME = "capacity.json"


class _KeptPeaks(msgspec.Struct, frozen=True):
    format: int = FORMAT
    hours: tuple[Peak, ...] = ()


def load_peaks(state_dir: Path) -> Peaks:
    """The peaks kept; none where the file is missing, damaged or of another format.

    It is lbd's own: until a new day is known no fewer brokers are wanted, so a broken file is no reason to stop.
    """
    try:
        found = decoded(state_dir / NAME, _KeptPeaks)
    except UsageError:
        return Peaks()
    if found is None or found.format != FORMAT:
        return Peaks()
    return Peaks(tuple(one for one in found.hours if _is_sound(one)))


def save_peaks(state_dir: Path, peaks: Peaks) -> None:
    """Replace what is kept at once or not at all. Raises :class:`~lbd.errors.UsageError`."""
    put(state_dir / NAME, _KeptPeaks(hours=peaks.hours))


def _is_sound(peak: Peak) -> bool:
    """A load that has lasted for minutes may belong to the hour before."""
    return 0 <= peak.at < YEAR_10000 and 0 <= peak.hour - hour_of(peak.at) <= 1
