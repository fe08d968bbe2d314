"""``turns/bundles.npz``: which broker reported each bundle in one of the last turns, and why each stayed."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from lbd.errors import UsageError
from lbd.files import DAMAGED, FRESH, refused
from lbd.reason import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.model import CodeArray, FloatArray, IntArray

NAME = "bundles.npz"


@dataclass(frozen=True)
class Seen:
    """One bundle: when (epoch seconds) and by whom it was reported, why it stayed, messages/s and bytes/s in + out."""

    at: float
    owner: str
    label: str
    msg_rate: float
    throughput: float


@dataclass(frozen=True, eq=False)
class Bundles:
    """``bundles`` as ``brokers`` reported them at ``at`` (epoch seconds).

    ``owner`` is int32 (N,) into ``brokers``, ``codes`` int8 (N,) a :class:`~lbd.reason.Reason` code, ``rates`` float64
    (N, 2) messages/s and bytes/s in + out, short-term averages.
    """

    at: float
    brokers: tuple[str, ...]
    bundles: list[str]
    owner: IntArray
    codes: CodeArray
    rates: FloatArray

    def of(self, bundle: str) -> Seen | None:
        """What there is of a bundle by its full name; None of one that nobody reported."""
        if bundle not in self.bundles:
            return None
        at = self.bundles.index(bundle)
        owner, label = self.brokers[int(self.owner[at])], Reason.of(int(self.codes[at])).label
        return Seen(self.at, owner, label, *map(float, self.rates[at]))


def save_bundles(folder: Path, found: Bundles) -> None:
    """Replace the file, at once or not at all; not synced, for it is written anew all the time. Raises OSError."""
    buffer, path = BytesIO(), folder / NAME
    names = np.frombuffer("\n".join(found.bundles).encode(errors="replace"), dtype=np.uint8)
    brokers = np.frombuffer("\n".join(found.brokers).encode(errors="replace"), dtype=np.uint8)
    with np.errstate(over="ignore"):  # of a broken report; nothing is decided on it
        rates = found.rates.astype(np.float32)
    np.savez(buffer, at=found.at, bundles=names, brokers=brokers, owner=found.owner, codes=found.codes, rates=rates)
    fresh = path.with_name(NAME + FRESH)
    fresh.write_bytes(buffer.getbuffer())
    fresh.replace(path)


def load_bundles(folder: Path) -> Bundles | None:
    """What was saved last; None where nothing was. Raises :class:`UsageError` for a file that cannot be read."""
    path = folder / NAME
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            bundles, brokers = (file[name].tobytes().decode().split("\n") for name in ("bundles", "brokers"))
            columns = file["owner"], file["codes"], file["rates"].astype(np.float64)
            found = Bundles(float(file["at"]), tuple(brokers), bundles, *columns)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise refused(path, error, "read") from error
    except DAMAGED as error:
        raise _torn(path) from error
    if not _aligned(found):
        raise _torn(path)
    return found


def _torn(path: Path) -> UsageError:
    mends = "lbd run writes it anew every few turns; without it, moves alone are told"
    return UsageError(f"{path}: is torn or not of this format; {mends}")


def _aligned(found: Bundles) -> bool:
    size = len(found.bundles)
    shapes = (found.owner.shape, found.codes.shape, found.rates.shape)
    known = found.owner.size == 0 or (found.owner.min() >= 0 and found.owner.max() < len(found.brokers))
    return shapes == ((size,), (size,), (size, 2)) and bool(known)
