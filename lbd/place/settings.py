"""Settings of the placements: Pulsar's own under their own names, and those of lbd's picker."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from lbd.load.scoring import broker_conf


class PlacementSettings(BaseModel):
    """What all placements' settings have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ByHashSettings(PlacementSettings):
    """The hash-based picker has none."""


class RoundRobinSettings(PlacementSettings):
    """The round robin has none."""


class LeastLongTermMessageRateSettings(PlacementSettings):
    """Settings of ``least-long-term-message-rate``."""

    broker_overloaded_threshold_percentage: float = Field(
        85, **broker_conf("loadBalancerBrokerOverloadedThresholdPercentage", "points above which a broker is full")
    )


class LeastResourceUsageExtensibleSettings(PlacementSettings):
    """Settings of ``least-resource-usage-with-weight-extensible``."""

    average_resource_usage_difference_threshold_percentage: float = Field(
        10,
        **broker_conf(
            "loadBalancerAverageResourceUsageDifferenceThresholdPercentage", "points below the average to be chosen"
        ),
    )


class LeastResourceUsageSettings(LeastResourceUsageExtensibleSettings):
    """Settings of ``least-resource-usage-with-weight``."""

    history_resource_percentage: float = Field(
        0.9, ge=0, le=1, **broker_conf("loadBalancerHistoryResourcePercentage", "fraction that the past counts")
    )


class RendezvousSettings(PlacementSettings):
    """Settings of ``rendezvous``, lbd's own picker."""

    full_at: float = Field(85, gt=0, description="points of score at which a broker has no free capacity")
    slack: float = Field(
        0.25, gt=0, description="how far above its share of the recent answers a broker may go, as a fraction of it"
    )
    stale_seconds: float = Field(
        180, ge=0, description="reports older than this (three CPU samples) say nothing of free capacity"
    )
    remember_seconds: float = Field(
        300, ge=0, description="answers count until reports show them: within two stats intervals, and time to spare"
    )
