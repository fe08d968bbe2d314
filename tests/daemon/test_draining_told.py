"""What became of a drain, in one sentence."""

from __future__ import annotations

import pytest

from lbd.operations.drain import drain_result
from lbd.store.drains import Work


@pytest.mark.parametrize(("system", "words"), [(0, ""), (1, "1 bundle"), (2, "2 bundles")])
def test_bundles_of_pulsars_own_namespace_are_told_and_count_for_nothing(system: int, words: str):
    """The broker owns nothing, exit code 0; how many of them it keeps is said, however many those are."""
    gone = Work(kind="drain", broker="a:8080", request="", begun_at=0, ended_at=8, total=3, landed=3, owned=0)
    kept = f"; {words} of pulsar/system left there (guardrails.move_system_namespace)" if system else ""

    assert drain_result(gone, missed=0, system=system) == (0, f"a:8080 owns nothing: 3 bundles gone in 8 s{kept}.")
