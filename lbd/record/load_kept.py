"""``load.npz``: the samples that slopes are fitted to, so that a restart of lbd forgets none of them."""

from __future__ import annotations

import os
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from lbd.files import DAMAGED, FILE_MODE, FRESH, telling
from lbd.load.samples import GO_STALE_SECONDS, BrokerSamples
from lbd.model import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lbd.model import FloatArray, IntArray

NAME = "load.npz"
FORMAT = 1


def load_samples(state_dir: Path, now: float) -> Mapping[str, BrokerSamples]:
    """The samples kept, none older than a day nor from a later time; none where the file is missing or unreadable.

    They are lbd's own and it gathers new ones in an hour: a broken file is no reason to stop.
    """
    try:
        with (state_dir / NAME).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if int(file["format"]) != FORMAT:
                return {}
            found = _brokers(file)
        stale = now - GO_STALE_SECONDS
        recent = {broker: own.where((own.at <= now) & (own.at > stale)) for broker, own in found.items()}
    except (*DAMAGED, OSError):
        return {}
    return {broker: own for broker, own in recent.items() if own.at.size}


def save_samples(state_dir: Path, samples: Mapping[str, BrokerSamples]) -> None:
    """Replace what is kept at once or not at all. Raises :class:`~lbd.errors.UsageError`."""
    own = {broker: one for broker, one in samples.items() if one.at.size}
    buffer = BytesIO()
    np.savez(
        buffer,
        format=FORMAT,
        brokers=np.frombuffer("\n".join(own).encode(), dtype=np.uint8),
        sizes=np.array([one.at.size for one in own.values()], dtype=np.int64),
        started_at=np.array([one.started_at for one in own.values()], dtype=np.float64),
        hardware=np.array([one.hardware for one in own.values()], dtype=np.float64).reshape(-1, len(RESOURCES)),
        at=_joined([one.at for one in own.values()], (0,)),
        carried=_joined([one.carried for one in own.values()], (0, 4)),
        used=_joined([one.used for one in own.values()], (0, len(RESOURCES))),
        since_change=_joined([one.since_change.astype(np.float64) for one in own.values()], (0,)),
    )
    path, fresh = state_dir / NAME, state_dir / f"{NAME}{FRESH}"
    with telling(path):
        with fresh.open("wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)


def _joined(columns: list[FloatArray], empty: tuple[int, ...]) -> FloatArray:
    return np.concatenate(columns) if columns else np.zeros(empty)


def _brokers(file: Mapping[str, FloatArray]) -> dict[str, BrokerSamples]:
    """What the file holds. Raises ValueError, KeyError or IndexError where its columns do not fit together."""
    names = file["brokers"].tobytes().decode().split("\n") if file["brokers"].size else []
    at, carried, used = (file[name].astype(np.float64, casting="safe") for name in ("at", "carried", "used"))
    since: IntArray = file["since_change"].astype(np.int32)
    ends = np.cumsum(file["sizes"]).tolist()
    hardware, started_at = file["hardware"], file["started_at"]
    total, brokers = (ends[-1] if ends else 0), len(names)
    shapes = [at.shape, since.shape, carried.shape, used.shape, hardware.shape, started_at.shape]
    wanted = [(total,), (total,), (total, 4), (total, 5), (brokers, 5), (brokers,)]
    if shapes != wanted or len(ends) != brokers or (np.diff([0, *ends]) < 0).any():
        raise ValueError("columns of unlike length")
    return {
        name: BrokerSamples(
            at[begin:end],
            carried[begin:end],
            used[begin:end],
            since[begin:end],
            tuple(hardware[row].tolist()),
            float(started_at[row]),
        )
        for row, (name, begin, end) in enumerate(zip(names, [0, *ends], ends, strict=False))
    }
