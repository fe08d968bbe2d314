"""What a command does by itself while no daemon runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.daemon import standalone

if TYPE_CHECKING:
    from lbd.config import Settings
    from lbd.store.control import Request, RequestResult


def done(settings: Settings, request: Request) -> RequestResult:
    """One request, to its end."""
    with standalone.working(settings) as work:
        return work(request)
