"""The settings of a process that goes on with them, read again at each reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Loaded, Settings


class Rereading:
    """Reads settings by ``read``: once at the start, and then as often as is asked for."""

    def __init__(self, read: Callable[[], Loaded]) -> None:
        self._read = read
        self._files = frozenset[str]()

    def __call__(self) -> Settings:
        """The settings now. Raises :class:`UsageError` as reading them does, and for a file that has said something and
        is gone, or empty, by now: that is a mishap, and would take guardrails away that nobody meant to give up.
        """
        found = self._read()
        for file in sorted(self._files - found.files):
            raise UsageError(f"{file}: gone, or without settings by now; only a restart goes on with defaults instead")
        self._files = found.files
        return found.settings
