"""What the API needs of the daemon behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.api.board import Board, Published
    from lbd.api.shapes import Placement, Plan
    from lbd.config import Settings


class Backend(Protocol):
    """One running lbd. Everything here is called from the API's threads, and waits for no turn.

    ``now`` is epoch seconds. The last turn or move ended ``silent_seconds`` ago; more than ``patience_seconds`` of that
    is a daemon that is stuck.
    """

    board: Board

    @property
    def settings(self) -> Settings: ...
    @property
    def state_dir(self) -> Path: ...
    def now(self) -> float: ...
    def silent_seconds(self) -> float: ...
    def patience_seconds(self) -> float: ...
    def plan(self, published: Published) -> Plan: ...
    def planned(self, name: str) -> Plan | None: ...
    def pick_at_once(self, text: str, strategy: str) -> Placement | None: ...
    def pick(self, published: Published, text: str, strategy: str) -> Placement: ...
