"""The ``load:`` section: facts about brokers from an operator or a calibration, before lbd has learned them. Pure."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from lbd.section import Section

UNIT = {"throughput": 1e6, "msg_rate": 1e3}
"""Units of a slope in the settings: MB/s or 1,000 msg/s."""


class KnownBroker(Section):
    """Capacity and slope of one broker, or of all that a pattern matches."""

    broker: str = Field(
        description="host:port, or a regular expression that matches all of host:port or all of the host"
    )
    capacity: float | None = Field(
        None,
        ge=1e-6,
        le=1e6,
        description="Traffic that the broker carries for the same CPU points, relative to a broker of 1. 1 if"
        " only other brokers have an entry",
    )
    slope: float | None = Field(
        None, ge=1e-6, le=1e6, description="CPU points for each MB/s or each 1,000 msg/s in + out, as load.measure says"
    )

    @field_validator("broker")
    @classmethod
    def _a_pattern(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("wanted host:port of a broker, or a regular expression for it")
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"no regular expression: {error}") from error
        return text

    @model_validator(mode="after")
    def _has_a_fact(self) -> KnownBroker:
        if self.capacity is None and self.slope is None:
            raise ValueError("wanted capacity, slope, or both")
        return self

    def means(self, broker: str) -> bool:
        """Whether the entry is for a broker, ``host:port``."""
        names = (broker, broker.rpartition(":")[0])
        return self.broker == broker or any(re.fullmatch(self.broker, name) for name in names)


class LoadSettings(Section):
    """Load of brokers until lbd has learned it. A broker's own samples replace this once they are sufficient."""

    measure: Literal["throughput", "msg_rate"] | None = Field(
        None,
        description="What CPU load follows: bytes (throughput) or messages (msg_rate). With null lbd takes "
        "the one that explains its own samples better",
    )
    live_cpu: bool = Field(
        True,
        description="Ask brokers with samples above a threshold, or that settle after a move, for the CPU of now "
        "(broker-stats/mbeans), not only for their load reports, which show the mean of a minute that ended up to a "
        "minute ago",
    )
    brokers: tuple[KnownBroker, ...] = Field(
        (),
        description="What lbd assumes until it has learned it. Each entry has broker (host:port, or a regular"
        " expression that matches all of host:port or all of the host), capacity (traffic for the"
        " same CPU points, relative to a broker of 1) and slope (CPU points for each MB/s or "
        "1,000 msg/s in + out). The first entry that matches a broker applies",
    )

    @model_validator(mode="after")
    def _in_a_unit(self) -> LoadSettings:
        if self.measure is None and any(broker.slope is not None for broker in self.brokers):
            raise ValueError(
                "measure: wanted beside a slope: throughput (points for each MB/s) or msg_rate (1,000 msg/s)"
            )
        return self

    @property
    def has_capacity(self) -> bool:
        """Whether any broker has a capacity; then the others have 1."""
        return any(broker.capacity is not None for broker in self.brokers)

    def capacity(self, broker: str) -> float:
        """Capacity of a broker relative to one of 1."""
        return next((entry.capacity for entry in self.brokers if entry.capacity and entry.means(broker)), 1.0)

    def slope(self, broker: str) -> float | None:
        """Percent of CPU for a byte/s or message/s in + out; None where it is not set."""
        slopes = (entry.slope for entry in self.brokers if entry.slope is not None and entry.means(broker))
        slope = next(slopes, None)
        return None if slope is None or self.measure is None else slope / UNIT[self.measure]


NOTHING_KNOWN = LoadSettings()
