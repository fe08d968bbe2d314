"""A broker setting that lbd overrides: one mechanism changes it, after a note, and drops the note when it is undone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lbd.pulsar.override_note import OverrideNote

PACKAGE = Path(__file__).parents[2] / "lbd"


def test_nothing_else_changes_a_setting_of_brokers() -> None:
    """Who wants another one overridden uses the same: intent, act, read back, release."""
    callers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\.(set|delete)_dynamic\(", path.read_text())
    }
    assert callers == {"act/override.py"}


@pytest.mark.parametrize(
    ("phase", "before", "present", "is_lbds"),
    [
        ("taking", None, None, False),
        ("taking", None, "false", True),
        ("taken", None, "true", False),
        ("taken", "true", "true", False),
        ("releasing", None, "true", True),
        ("releasing", None, None, True),
        ("releasing", "true", "true", True),
        ("releasing", None, "other", False),
    ],
)
def test_whose_an_override_is(phase: str, before: str | None, present: str | None, is_lbds: bool) -> None:
    """Between the two steps of giving back, what the first one set is lbd's still."""
    note = OverrideNote(phase=phase, before=before, ran={"a:80": "true"})  # type: ignore[arg-type]
    assert note.lbds(present) is is_lbds
