"""Columns of numbers and names as one value of the store."""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from lbd.store.database import value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lbd.model import FloatArray


def packed_arrays(**arrays: object) -> memoryview:
    """Arrays and numbers as bytes."""
    buffer = BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getbuffer()


@contextmanager
def stored_arrays(path: Path, name: str) -> Iterator[Mapping[str, Any] | None]:
    """The arrays of a value; None where there is none.

    Raises :class:`~lbd.errors.UsageError` where the store cannot be read, and one of ``lbd.files.DAMAGED``, or OSError,
    within the block where the value is no such bytes.
    """
    content = value(path, name)
    if content is None:
        yield None
        return
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        yield arrays


def packed_names(names: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Names without a line break as an array: they are much alike, and most of what the numbers belong to."""
    return np.frombuffer(zlib.compress("\n".join(names).encode(errors="replace"), 1), dtype=np.uint8)


def names_of(packed: FloatArray) -> list[str]:
    """The names again; no name is as good as one empty name. Raises one of ``lbd.files.DAMAGED``."""
    text = zlib.decompress(packed.tobytes()).decode()
    return text.split("\n") if text else []
