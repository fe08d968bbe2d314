"""The ``guardrails:`` section: limits that hold across strategies."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from lbd.load.scoring import broker_conf


class Guardrails(BaseModel):
    """Each limit with its default and the reason for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    cool_down_minutes: float = Field(
        30,
        ge=0,
        **broker_conf("loadBalancerSheddingGracePeriodMinutes", "a bundle rests this long after each attempt"),
    )
    excluded_namespaces: tuple[str, ...] = Field(
        (), **broker_conf("loadBalancerSheddingExcludedNamespaces", "tenant/namespace or tenant/*: never moved")
    )
    max_unloads_per_turn: int | None = Field(
        None,
        ge=1,
        description="null: max(10, 1 % of the bundles), so that a large cluster is not held to a small one's pace",
    )
    max_traffic_per_turn: float = Field(
        0.1, gt=0, le=1, description="fraction of the cluster's messages or bytes, but at least one bundle a turn"
    )
    max_destination_score: float = Field(
        85,
        gt=0,
        **broker_conf("loadBalancerBrokerOverloadedThresholdPercentage", "points predicted after the move"),
    )
    max_topics_per_broker: int = Field(
        50_000, ge=1, **broker_conf("loadBalancerBrokerMaxTopics", "topics on a destination")
    )
    unload_spacing_seconds: float = Field(
        1,
        ge=0,
        description="from the end of an unload to the next one on the same source: clients of a broker that closes one "
        "bundle after the other stall for seconds",
    )
    max_unloads_at_once: int = Field(4, ge=1, description="unloads in flight, each on a source of its own")
    membership_settle_seconds: float = Field(
        120,
        ge=0,
        description="after a broker came or went: two CPU samples, and time for its bundles to be owned again",
    )

    @field_validator("excluded_namespaces")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [name for name in names if name.count("/") != 1 or name.startswith("/") or name.endswith("/")]
        if wrong:
            raise ValueError(f"{', '.join(map(repr, wrong))}: wanted tenant/namespace or tenant/*")
        return names
