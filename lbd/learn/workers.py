"""Workers run a calibration's pure functions over parts of a history in parallel; Spark does (:mod:`lbd.learn.job`).

Each part is a file, a day, a window or an hour, and each function takes and returns plain values. So all that a
calibration computes is computed without Spark as well, one part after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from lbd.learn.quality import FileRows
    from lbd.learn.window import Window

    Columns = Mapping[str, pa.DataType]
    Rows = list[dict[str, Any]]
    OfDay = Callable[[pa.Table, pa.Table], Iterable[Mapping[str, object]]]
    """Rows out of a day's rows of ``decisions`` and ``broker_rounds``."""
    OfTask = Callable[[Iterator[Window], Iterator[tuple[int, Window]], "Task"], Iterable[Mapping[str, object]]]
    """Rows out of what was packed of windows, and of hours, each with its number, both in the order of time."""


@dataclass(frozen=True)
class Task:
    """Work on the hours from ``first`` on and before ``end``, counted from 1970. ``argument`` is for the function."""

    first: int
    end: int
    argument: str = ""


@dataclass(frozen=True)
class Packing:
    """How a stretch of ``seconds``, counted from 1970, is packed: a row with these ``columns``, where ``number`` says
    which stretch it is and ``packed`` is its window (:func:`lbd.learn.window.to_bytes`).
    """

    seconds: int
    function: Callable[..., Mapping[str, object]]
    columns: Columns


class PackedHistory(Protocol):
    """Windows without bundles, and hours with them, where the workers can reach them."""

    def windows(self, names: Sequence[str]) -> Rows:
        """These columns of each window, in the order of time."""

    def hours(self, names: Sequence[str]) -> Rows:
        """These columns of each hour, in the order of time."""

    def bundles(self) -> tuple[str, ...]:
        """The names of all bundles, sorted."""

    def run(self, windows: Collection[int], tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """The rows that this function makes of each task, in any order; ``columns`` are their names and types. It gets
        only these ``windows``, and the hours in them.
        """


class Workers(Protocol):
    """Reads a history and runs functions over its parts."""

    def files(self) -> Sequence[FileRows]:
        """The files of the tables, and what each has of :data:`lbd.learn.rounds.NEEDED`. Raises :class:`UsageError`."""

    def reconnect_seconds(self) -> float | None:
        """The median time in which the clients of a moved bundle were back; None where no move was measured."""

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """The rows that this function makes of each day (UTC), without the files of these names."""

    def packed(self, without: Collection[str], windows: Packing, hours: Packing) -> PackedHistory:
        """The history without the files of these names, packed. ``windows`` packs rows of ``decisions`` and
        ``broker_rounds``, ``hours`` those of ``bundle_rounds``, too; hours have the column ``bundles``
        (:func:`lbd.learn.window.names_to_bytes`).
        """


_TYPES = {"int": pa.int64(), "float": pa.float64()}


def columns_of(kind: type) -> dict[str, pa.DataType]:
    """The fields of a dataclass of numbers, as columns with their types: also where all values are null."""
    return {field.name: _TYPES[str(field.type)] for field in fields(kind)}
