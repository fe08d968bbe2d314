"""Settings of ``strategy: avg-shedder``: Pulsar's own, under their own names, and five in which live differs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lbd.decide.settings import StrategySettings
from lbd.load.scoring import broker_conf
from lbd.model import Hits


class AvgShedderSettings(StrategySettings):
    """Settings of ``strategy: avg-shedder``."""

    name = "avg-shedder"
    assumed = "hit counts taken as reached"

    low_threshold: float = Field(15, ge=0, **broker_conf("loadBalancerAvgShedderLowThreshold", "points"))
    high_threshold: float = Field(40, ge=0, **broker_conf("loadBalancerAvgShedderHighThreshold", "points"))
    hit_count_low: int = Field(
        8, ge=0, **broker_conf("loadBalancerAvgShedderHitCountLowThreshold", "samples in a row at the low threshold")
    )
    hit_count_high: int = Field(
        2, ge=0, **broker_conf("loadBalancerAvgShedderHitCountHighThreshold", "samples in a row at the high threshold")
    )
    max_unload_percentage: float = Field(
        0.5, ge=0, **broker_conf("maxUnloadPercentage", "fraction of the difference to move, 0.2 before Pulsar 5.0")
    )
    min_unload_message: float = Field(1000, ge=0, **broker_conf("minUnloadMessage", "msg/s in + out"))
    min_unload_message_throughput: float = Field(
        1024 * 1024, ge=0, **broker_conf("minUnloadMessageThroughput", "bytes/s in + out")
    )
    broker_overloaded_threshold_percentage: float = Field(
        85, **broker_conf("loadBalancerBrokerOverloadedThresholdPercentage", "points above which 5.0 re-plans")
    )
    sole_bundle: Literal["stay", "move"] = Field(
        "stay",
        description="what to do with a broker's only bundle: moving it moves the problem, and its clients, elsewhere "
        "(stock: move)",
    )
    measure: Literal["binding-resource", "message-rate-first"] = Field(
        "binding-resource",
        description="what counts as traffic: bytes where bandwidth makes the source's score, else as Pulsar does, "
        "which prefers messages even when bytes are the problem (stock: message-rate-first)",
    )
    background_load: Literal["leave", "ignore"] = Field(
        "leave",
        description="a gap that stays above the low threshold even if all traffic were levelled is named and left: "
        "moving bundles cannot close it (stock: ignore)",
    )
    relays: Literal["avoid", "make"] = Field(
        "avoid",
        description="a destination that levelling would lift so far above the next colder broker that it had to give "
        "away again is filled to the average only: no bundle moves twice where most brokers are cold (stock: make)",
    )
    negligible_points: float = Field(
        3,
        ge=0,
        description="what may be left of the points that a pair is to exchange, once a bundle goes, and no more than "
        "two fifths of them: the pair is far below the threshold then, and the small bundles that would fill the rest "
        "have clients, too (stock: 0)",
    )
    pulsar_version: Literal["5.0", "4.0.8", "4.0"] = Field(
        "5.0",
        description="whose details to follow: 5.0 replaces an overloaded planned destination; 4.0.8 keeps it; 4.0 also "
        "compares scores as whole points",
    )

    def stock(self) -> AvgShedderSettings:
        """The same numbers with Pulsar's own behaviour everywhere."""
        pulsars = {"sole_bundle": "move", "measure": "message-rate-first", "background_load": "ignore"}
        return self.model_copy(update={**pulsars, "relays": "make", "negligible_points": 0.0})

    def eager(self) -> AvgShedderSettings:
        """Hit counts taken as reached: what would be unloaded if the imbalance lasts."""
        return self.model_copy(
            update={"hit_count_low": min(self.hit_count_low, 1), "hit_count_high": min(self.hit_count_high, 1)}
        )

    @property
    def wanted_hits(self) -> Hits:
        """Hit counts at which a pair fires."""
        return Hits(self.hit_count_low, self.hit_count_high)
