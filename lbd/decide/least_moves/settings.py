"""Settings of ``strategy: least-moves``, which is lbd's own; what it shares with AvgShedder has the same names."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from lbd.decide.settings import StrategySettings
from lbd.load.scoring import broker_conf
from lbd.model import Hits

FIRST_PART = (
    "msg/s in + out, of what moves for one broker; a tenth of AvgShedder's, for what is estimated moves in parts"
)


class LeastMovesSettings(StrategySettings):
    """Settings of ``strategy: least-moves``."""

    name = "least-moves"
    assumed = "hit counts taken as reached"
    wants_slopes = True

    low_threshold: float = Field(
        7.5,
        gt=0,
        description="points between a broker and the level at which its pool would be even; and the highest and the "
        "lowest must be twice as many apart",
    )
    high_threshold: float = Field(
        20, gt=0, description="points at which a broker waits for few samples only; at least the low one"
    )
    hit_count_low: int = Field(8, ge=0, description="samples in a row at the low threshold")
    hit_count_high: int = Field(2, ge=0, description="samples in a row at the high threshold")
    aim_points: float = Field(
        3, ge=0, description="points above the level to which a plan brings brokers that are too high"
    )
    full_points: float = Field(85, gt=0, description="a level above it is called a full cluster")
    min_unload_message: float = Field(100, ge=0, **broker_conf("minUnloadMessage", FIRST_PART))
    min_unload_message_throughput: float = Field(
        100 * 1024, ge=0, **broker_conf("minUnloadMessageThroughput", "bytes/s in + out; one of both is enough")
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        """With the high one below, its few samples would count for the low one, too."""
        low, high = self.low_threshold, self.high_threshold
        if high < low:
            raise ValueError(f"high_threshold {high:g} is below low_threshold {low:g}; wanted at least as much")
        return self

    def eager(self) -> LeastMovesSettings:
        """Hit counts taken as reached: what would be unloaded if the imbalance lasts."""
        return self.model_copy(
            update={"hit_count_low": min(self.hit_count_low, 1), "hit_count_high": min(self.hit_count_high, 1)}
        )

    @property
    def gap_points(self) -> float:
        """Highest - lowest from which anything moves: what AvgShedder's low threshold of 15 is to 7.5."""
        return 2 * self.low_threshold

    @property
    def wanted_hits(self) -> Hits:
        """Hit counts at which a broker fires."""
        return Hits(self.hit_count_low, self.hit_count_high)
