"""What is asked over the API and done by the daemon's own thread: left in its control files, and waited for."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING

from lbd.api.problems import ProblemError, problem
from lbd.record.asking import asked
from lbd.record.control import FAILED, REFUSED, Control

if TYPE_CHECKING:
    from starlette.responses import Response

    from lbd.api.backend import Backend
    from lbd.record.control import Answer, Request

STATUS_OF = {2: 400, 3: 503, REFUSED: 409, FAILED: 502}
"""What an answer's exit code is in HTTP; 0 is 200, any other a bug."""


def handed(backend: Backend, request: Request, ending: threading.Event) -> tuple[Answer | None, bool]:
    """The answer, None where none came until the request expired, or lbd was ``ending``; and whether it was withdrawn
    untouched.
    """
    control = Control(backend.state_dir)
    return asked(control, request, monotonic=lambda: math.inf if ending.is_set() else time.monotonic())


def unanswered(seconds: float, ending: threading.Event, see: str, *, untouched: bool) -> tuple[str, Response]:
    """What is told where no answer came in time. Raises :class:`ProblemError` where nothing was begun."""
    over = ending.is_set()
    status, why = (503, "lbd is ending") if over else (504, f"no answer within {seconds:g} s")
    if untouched:
        raise ProblemError(status, f"{why}: nothing was begun")
    words = f"{why}: it is under way, see {see}"
    return words, problem(status, words)
