"""What bundles hold whose clients are not back: their namespace, and everything once a second tenant is hit."""

from __future__ import annotations

import pytest

from lbd.model import Outcome, Result, Unload
from lbd.permit.served import Landing, Unserved, service_hold

RANGE = "0x00000000_0x80000000"


def unserved(namespace: str) -> Unserved:
    """A bundle of this namespace, on b."""
    move = Unload(f"{namespace}/{RANGE}", "a:80", "b:80", 1.0, 1.0)
    return Unserved(Landing(Outcome(move, Result.LANDED, "b:80"), 0.0, 1.0), 100.0, "topic x: timeout")


@pytest.mark.parametrize(
    ("hit", "held", "everything"),
    [
        ([], [], False),
        (["t/n"], ["t/n"], False),
        (["t/n", "t/n"], ["t/n"], False),
        (["t/n", "t/m"], ["t/n", "t/m"], False),
        (["t/n", "u/n"], ["t/n", "u/n"], True),
    ],
    ids=["none", "one", "two bundles of one", "two of one tenant", "two tenants"],
)
def test_one_tenant_holds_itself_and_two_hold_everything(hit: list[str], held: list[str], everything: bool) -> None:
    """A tenant cannot keep the others' bundles from moving; where two are hit alike, it is the cluster."""
    hold = service_hold(map(unserved, hit)).ending("lbd resume goes on")
    assert (list(hold.namespaces), bool(hold.everything)) == (held, everything)
    for why in (*hold.namespaces.values(), *filter(None, [hold.everything])):
        assert why.endswith(("topic x: timeout; lbd resume goes on", "and 1 more; lbd resume goes on"))
