"""What holds for all tests of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.pulsar.broker_health import BrokerHealth

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_probe_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Silent brokers are probed by a thread: it would send its requests through the mocks of later tests."""
    opened: list[BrokerHealth] = []
    begin = BrokerHealth.__init__

    def noted(health: BrokerHealth, *args: float, **named: float) -> None:
        opened.append(health)
        begin(health, *args, **named)

    monkeypatch.setattr(BrokerHealth, "__init__", noted)
    yield
    for health in opened:
        health.close()
