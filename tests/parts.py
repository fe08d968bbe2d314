"""Parts that some tests need and a machine may lack: without one they are skipped, unless LBD_REQUIRE_E2E names it."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

PARTS = ("brokers", "skew", "helm", "browser")


def required() -> set[str]:
    """The parts that must be there."""
    return {part.strip() for part in os.environ.get("LBD_REQUIRE_E2E", "").split(",") if part.strip()}


def check_names() -> None:
    """Raises ``UsageError`` for a part that is none."""
    unknown = required() - set(PARTS)
    if unknown:
        raise pytest.UsageError(f"LBD_REQUIRE_E2E names {', '.join(sorted(unknown))}; known parts: {', '.join(PARTS)}")


def do_without(part: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where the part is required."""
    if part in required():
        pytest.fail(f"LBD_REQUIRE_E2E forbids to skip this: {reason}", pytrace=False)
    pytest.skip(reason)
