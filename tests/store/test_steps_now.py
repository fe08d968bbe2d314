"""What a person should do about the process and its orders, whatever the last turn said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.store.drains import Drain, Work
from lbd.store.status import BrokerStatus, Status, steps_now

if TYPE_CHECKING:
    from collections.abc import Collection

NOW = 1000.0


@pytest.mark.parametrize(
    ("reporting", "work", "reasons"),
    [
        (("a:80", "b:80"), None, []),
        (("b:80",), None, ["away"]),
        (
            ("b:80",),
            Work(kind="drain", broker="a:80", request="1", begun_at=1.0, owned=0, ended_at=NOW - 5),
            ["emptied"],
        ),
        ((), None, []),
    ],
    ids=["drained and there", "drained and away", "drained, empty and away", "nothing is known of any broker"],
)
def test_a_drained_broker(reporting: Collection[str], work: Work | None, reasons: list[str]) -> None:
    """A drain of a broker that never comes back is named until somebody ends it."""
    brokers = [BrokerStatus(name, 10.0, "cpu", 1.0, 1.0, 1) for name in reporting]
    status = Status(
        pid=1,
        version="1",
        at=NOW,
        interval_seconds=15,
        next_turn_at=None,
        turns=1,
        cluster="c",
        sentence="",
        brokers=brokers,
    )
    steps = steps_now(status, 1, None, NOW, [(Drain("a:80", by="ann", since=NOW - 60, until=None, reason=""), work)])
    assert [(step.reason, step.command) for step in steps] == [
        (reason, "lbd drain a:80 --release") for reason in reasons
    ]
