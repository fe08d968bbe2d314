"""What runs a calibration's pure functions over the parts of a history, in parallel: Spark does (:mod:`lbd.learn.job`).

Each part is a file, a day or a window, and each function takes and returns plain values. So all that a calibration
computes is computed without Spark as well, one part after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from lbd.learn.quality import FileRows
    from lbd.learn.window import Window

    Columns = Mapping[str, pa.DataType]
    Rows = list[dict[str, Any]]
    OfDay = Callable[[pa.Table, pa.Table], Iterable[Mapping[str, object]]]
    """Rows out of a day's rows of ``decisions`` and ``broker_rounds``."""
    OfWindow = Callable[[pa.Table, pa.Table, pa.Table], Mapping[str, object]]
    """A row out of a window's rows of ``decisions``, ``broker_rounds`` and ``bundle_rounds``."""
    OfTask = Callable[[Window, Window | None, "Task"], Iterable[Mapping[str, object]]]
    """Rows out of a window and the one before it."""


@dataclass(frozen=True)
class Task:
    """Work on the ``window`` of this number. The window ``before`` it is handed over, too, whatever time lies between;
    None: none is. ``argument`` is for the function.
    """

    window: int
    before: int | None = None
    argument: str = ""


class Windows(Protocol):
    """Windows that were packed, where the workers can reach them."""

    def rows(self, names: Sequence[str]) -> Rows:
        """These columns of each window, in the order of windows."""

    def run(self, tasks: Sequence[Task], function: OfTask, columns: Columns) -> Rows:
        """The rows that this function makes of each task, in any order. ``columns`` are their names and types."""


class Workers(Protocol):
    """Reads a history and runs functions over its parts."""

    def files(self) -> Sequence[FileRows]:
        """What each file of the tables holds (:data:`lbd.learn.rounds.NEEDED`). Raises :class:`UsageError`."""

    def days(self, without: Collection[str], function: OfDay, columns: Columns) -> Rows:
        """The rows that this function makes of each day (UTC), without the files of these names."""

    def windows(self, without: Collection[str], seconds: int, function: OfWindow, columns: Columns) -> Windows:
        """Windows of so many seconds, counted from 1970: the row that this function makes of each, with its number as
        ``window``. The column ``packed`` is the window itself (:func:`lbd.learn.window.to_bytes`).
        """


_TYPES = {"int": pa.int64(), "float": pa.float64()}


def columns_of(kind: type) -> dict[str, pa.DataType]:
    """The fields of a dataclass of numbers, as columns with their types: also where all values are null."""
    return {field.name: _TYPES[str(field.type)] for field in fields(kind)}
