"""How a running lbd is asked for something through its control files, and waited for."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.record.control import Answer, Control, Request


def asked(
    control: Control,
    request: Request,
    on_asked: Callable[[], object] = lambda: None,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[Answer | None, bool]:
    """The running lbd's answer until the request expires, None when there was none.

    ``on_asked`` is called once the request is there. What was not taken by then is withdrawn, also when the waiting is
    broken off; whether that was so is told. ``monotonic`` is seconds; infinity ends the waiting.
    """
    answer = None
    control.ask(request)
    on_asked()
    try:
        answer = control.wait(request.id, request.expires_at - request.at, time.sleep, monotonic)
    finally:
        untouched = answer is None and control.withdraw(request.id)
    return answer, untouched


def new_id() -> tuple[str, float]:
    """A name that no other request has, and the time, epoch seconds."""
    now = time.time()
    return f"{int(now * 1000):x}-{os.getpid():x}-{secrets.token_hex(4)}", now
