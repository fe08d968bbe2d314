"""The ``split:`` section: whether lbd splits bundles by itself, when, how, and how many."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from lbd.load.scoring import broker_conf
from lbd.split.algorithms import Flow


class SplitSettings(BaseModel):
    """When a bundle is too large, as the leader of the modular load manager decides it, and lbd's own limits."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    enabled: bool = Field(
        False,
        description="split bundles above a limit below; off, for a split cannot be taken back. While the brokers split "
        "by themselves (loadBalancerAutoBundleSplitEnabled) lbd does not",
    )
    algorithm: Literal["range_equally_divide", "topic_count_equally_divide", "flow_or_qps_equally_divide"] = Field(
        "range_equally_divide", **broker_conf("defaultNamespaceBundleSplitAlgorithm", "where a bundle is cut")
    )
    max_topics: int = Field(1000, ge=1, **broker_conf("loadBalancerNamespaceBundleMaxTopics", "topics of a bundle"))
    max_sessions: int = Field(
        1000,
        **broker_conf("loadBalancerNamespaceBundleMaxSessions", "producers and consumers of a bundle; 0: no limit"),
    )
    max_msg_rate: float = Field(
        30_000, gt=0, **broker_conf("loadBalancerNamespaceBundleMaxMsgRate", "msg/s in + out, long-term average")
    )
    max_bandwidth_mbytes: float = Field(
        100,
        gt=0,
        **broker_conf("loadBalancerNamespaceBundleMaxBandwidthMbytes", "MiB/s in + out, long-term average"),
    )
    max_bundles_per_namespace: int = Field(
        128, ge=1, **broker_conf("loadBalancerNamespaceMaximumBundles", "a namespace is split up to so many bundles")
    )
    flow_or_qps_difference_percentage: float = Field(
        10,
        ge=0,
        **broker_conf(
            "flowOrQpsDifferenceThresholdPercentage",
            "flow_or_qps_equally_divide cuts only what is so far above a limit",
        ),
    )
    max_splits_per_turn: int = Field(
        1, ge=1, description="what a split did is seen in the next reports; until then one is enough"
    )
    max_splits_per_hour: int = Field(
        10, ge=0, description="splits cannot be taken back, so a fault must not make hundreds of them; 0: no limit"
    )

    @property
    def flow(self) -> Flow:
        """What a part may carry by ``flow_or_qps_equally_divide``."""
        return Flow(self.max_msg_rate, self.max_bandwidth_mbytes, self.flow_or_qps_difference_percentage)
