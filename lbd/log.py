"""Structured logs on stderr: text on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import structlog

from lbd.redaction import redacted, redacted_json

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from typing import Any, TextIO


@contextmanager
def written_to(file: TextIO, level: str) -> Iterator[None]:
    """Write JSON lines to a file for a while."""
    set_up("json", level, file)
    try:
        yield
    finally:
        structlog.reset_defaults()


def set_up(form: str, level: str, file: TextIO | None = None) -> None:
    """Configure structlog once per process; ``form`` is auto, text or json, ``file`` the target, None: stderr.

    The scheduler's own logger is silenced: the service logs its events itself.
    """
    logging.getLogger("apscheduler").setLevel(logging.CRITICAL + 1)
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if text else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redacted_event,
            renderer,
            partial(_redacted, as_json=not text),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=file or sys.stderr),
    )


def _redacted_event(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Redact an event before a renderer puts quotes and backslashes around text."""
    return {key: redacted(value) if isinstance(value, str) else value for key, value in event.items()}


def _redacted(_logger: object, _method: str, line: object, *, as_json: bool) -> str:
    """Redact the rendered line; the last processor."""
    shown = str(line)
    return redacted_json(shown.encode(errors="backslashreplace")).decode() if as_json else redacted(shown)
