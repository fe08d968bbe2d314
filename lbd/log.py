"""Structured logs on stderr: words on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


@contextmanager
def written_to(file: TextIO, level: str) -> Iterator[None]:
    """JSON lines go to a file for a while."""
    set_up("json", level, file)
    try:
        yield
    finally:
        structlog.reset_defaults()


def set_up(form: str, level: str, file: TextIO | None = None) -> None:
    """Configure structlog once per process; ``form`` is auto, text or json, ``file`` where to, None: stderr.

    The scheduler's own logger is silenced: the service tells its events in its own words.
    """
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL + 1)
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=file or sys.stderr),
    )
