"""Settings of ``strategy: transfer-shedder``: those of the extensible load manager, and one in which live differs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lbd.decide.settings import StrategySettings
from lbd.load.scoring import broker_conf
from lbd.model import Hits


class TransferShedderSettings(StrategySettings):
    """Settings of ``strategy: transfer-shedder``."""

    name = "transfer-shedder"
    assumed = "running averages taken as having caught up, and hit counts as reached"
    placed_by = "least-resource-usage-with-weight-extensible"

    broker_load_target_std: float = Field(
        0.25, ge=0, **broker_conf("loadBalancerBrokerLoadTargetStd", "standard deviation of the loads, a fraction")
    )
    shedding_condition_hit_count_threshold: int = Field(
        3, ge=0, **broker_conf("loadBalancerSheddingConditionHitCountThreshold", "samples in a row; one more fires")
    )
    broker_overloaded_threshold_percentage: float = Field(
        85, **broker_conf("loadBalancerBrokerOverloadedThresholdPercentage", "points above which a broker is full")
    )
    max_number_of_broker_shedding_per_cycle: int = Field(
        3, ge=0, **broker_conf("loadBalancerMaxNumberOfBrokerSheddingPerCycle", "brokers that give in one round")
    )
    max_number_of_bundles_in_bundle_load_report: int = Field(
        10, ge=1, **broker_conf("loadBalancerMaxNumberOfBundlesInBundleLoadReport", "largest bundles looked at")
    )
    transfer_enabled: bool = Field(
        True, **broker_conf("loadBalancerTransferEnabled", "name the destination, else leave it to the placement")
    )
    shedding_delay_in_seconds: float = Field(
        180, ge=0, **broker_conf("loadBalanceSheddingDelayInSeconds", "after a broker gave bundles nobody gives any")
    )
    history_resource_percentage: float = Field(
        0.9, ge=0, le=1, **broker_conf("loadBalancerHistoryResourcePercentage", "fraction that history weighs")
    )
    swap: Literal["leave", "plan"] = Field(
        "leave",
        description="a bundle that is too large to move alone: Pulsar moves smaller ones of the destination the other "
        "way, from the less to the more loaded broker, which no guardrail lets through (stock: plan)",
    )

    def stock(self) -> TransferShedderSettings:
        """The same numbers with Pulsar's own behaviour everywhere."""
        return self.model_copy(update={"swap": "plan"})

    def eager(self) -> TransferShedderSettings:
        """As if what is seen now had lasted."""
        return self.model_copy(update={"history_resource_percentage": 0.0, "shedding_condition_hit_count_threshold": 0})

    @property
    def wanted_hits(self) -> Hits:
        """The hit with which a round fires."""
        return Hits(self.shedding_condition_hit_count_threshold + 1, 0)
