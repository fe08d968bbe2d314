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
    """The saved peaks; none where there is no file.

    Raises :class:`~lbd.errors.UsageError` for a file that is damaged or of another format.
    """
    path = state_dir / NAME
    saved = decoded(path, _KeptPeaks)
    if saved is None:
        return Peaks()
    if saved.format != FORMAT:
        raise UsageError(f"{path}: format {saved.format}, wanted {FORMAT}")
    if not all(map(_is_sound, saved.hours)):
        raise UsageError(f"{path}: cannot be read: it holds an hour that no clock shows")
    return Peaks(saved.hours)


def save_peaks(state_dir: Path, peaks: Peaks) -> None:
    """Replace what is kept at once or not at all. Raises :class:`~lbd.errors.UsageError`."""
    put(state_dir / NAME, _KeptPeaks(hours=peaks.hours))


def _is_sound(peak: Peak) -> bool:
    """A load that has lasted for minutes may belong to the hour before."""
    return 0 <= peak.at < YEAR_10000 and 0 <= peak.hour - hour_of(peak.at) <= 1
