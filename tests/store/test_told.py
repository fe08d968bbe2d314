"""What history keeps of brokers that tell of their largest bundles only."""

from __future__ import annotations

import pytest

from lbd.model import MSG_IN
from lbd.observe.parse import MODULAR_REPORT, TOP_BUNDLES_REPORT
from lbd.store.history import known_rates
from tests.builders import bundle, report, snapshot, stats

BUNDLES = [bundle(number) for number in range(4)]


@pytest.mark.parametrize(("kind", "kept"), [(TOP_BUNDLES_REPORT, [1, 3]), (MODULAR_REPORT, [0, 1, 2, 3])])
def test_what_is_not_told_of_is_not_kept(kind: str, kept: list[int]):
    """As 0 it would be taken for idle; of the modular manager everything is known, and kept."""
    first = report(10, {BUNDLES[1]: stats(100)}, bundles=BUNDLES[:2], load_report_type=kind)
    second = report(10, {BUNDLES[3]: stats(300)}, bundles=BUNDLES[2:], load_report_type=kind)
    found = known_rates(snapshot({"a:80": first, "b:80": second}))
    rows = found.rows
    rates = {found.bundles[at]: float(rate) for at, rate in zip(rows.bundle, rows.rates[:, MSG_IN], strict=True)}
    owners = {found.bundles[at]: int(owner) for at, owner in zip(rows.bundle, rows.owner(), strict=True)}
    assert rates == {BUNDLES[at]: {1: 100.0, 3: 300.0}.get(at, 0.0) for at in kept}
    assert owners == {BUNDLES[at]: at // 2 for at in kept}
    assert rows.start.tolist() == [0, len(kept) // 2, len(kept)]
