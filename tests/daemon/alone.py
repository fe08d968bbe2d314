"""What a command does by itself while no daemon runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon import byhand

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.record.control import Answer, Request


def done(settings: Settings, request: Request) -> Answer:
    """One request, to its end."""
    with byhand.working(settings) as work:
        return work(request)
