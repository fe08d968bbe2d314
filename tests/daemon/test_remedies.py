"""Doing what lbd says a person should do ends the reason: for each that a simulated cluster can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.situations import SITUATIONS, arranged, named

if TYPE_CHECKING:
    from pathlib import Path

    from tests.situations import Situation


@pytest.mark.parametrize("situation", [one for one in SITUATIONS if one.remedy is not None], ids=named)
def test_what_it_says_ends_the_reason(situation: Situation, tmp_path: Path):
    """The reason stands among the steps, is dealt with as the step says, and is gone some turns later."""
    with arranged(situation, tmp_path) as stand:
        step = next((one for one in stand.steps() if one.reason == situation.reason), None)
        assert step is not None, [one.text(stand.clock[0]) for one in stand.steps()]
        assert situation.remedy is not None
        situation.remedy(stand, step)
        stand.turns(4)
        assert situation.reason not in {one.reason for one in stand.steps()}
