"""A broker's effective configuration: Pulsar's defaults, and everything that lbd derives from a setting. Pure.

A broker.conf (:mod:`lbd.pulsar.broker_conf`) and a live broker (``configuration/runtime``) give the same texts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SHEDDING_ENABLED = "loadBalancerSheddingEnabled"
AUTO_SPLIT_ENABLED = "loadBalancerAutoBundleSplitEnabled"
BALANCER_ENABLED = "loadBalancerEnabled"
SAMPLE_MINUTES = "loadBalancerHostUsageCheckIntervalMinutes"
LOAD_MANAGER = "loadManagerClassName"
SHEDS_WITH = "loadBalancerLoadSheddingStrategy"
PLACES_WITH = "loadBalancerLoadPlacementStrategy"
MODULAR_MANAGER, SIMPLE_MANAGER = "ModularLoadManagerImpl", "SimpleLoadManagerImpl"

DEFAULTS: Final[Mapping[str, bool | int | float | str | tuple[str, ...]]] = {
    "authorizationEnabled": False,
    "defaultNamespaceBundleSplitAlgorithm": "range_equally_divide",
    "failureDomainsEnabled": False,
    "loadBalanceSheddingDelayInSeconds": 180,
    AUTO_SPLIT_ENABLED: True,
    "loadBalancerAverageResourceUsageDifferenceThresholdPercentage": 10,
    "loadBalancerAvgShedderHighThreshold": 40,
    "loadBalancerAvgShedderHitCountHighThreshold": 2,
    "loadBalancerAvgShedderHitCountLowThreshold": 8,
    "loadBalancerAvgShedderLowThreshold": 15,
    "loadBalancerBandwidthInResourceWeight": 1.0,
    "loadBalancerBandwidthOutResourceWeight": 1.0,
    "loadBalancerBandwithInResourceWeight": 1.0,
    "loadBalancerBandwithOutResourceWeight": 1.0,
    "loadBalancerBrokerLoadTargetStd": 0.25,
    "loadBalancerBrokerMaxTopics": 50_000,
    "loadBalancerBrokerOverloadedThresholdPercentage": 85,
    "loadBalancerBrokerThresholdShedderPercentage": 10,
    "loadBalancerBundleUnloadMinThroughputThreshold": 10.0,
    "loadBalancerCPUResourceWeight": 1.0,
    "loadBalancerDirectMemoryResourceWeight": 0.0,
    "loadBalancerDistributeBundlesEvenlyEnabled": True,
    BALANCER_ENABLED: True,
    "loadBalancerHistoryResourcePercentage": 0.9,
    SAMPLE_MINUTES: 1,
    PLACES_WITH: "org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate",
    SHEDS_WITH: "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
    "loadBalancerMaxNumberOfBrokerSheddingPerCycle": 3,
    "loadBalancerMaxNumberOfBundlesInBundleLoadReport": 10,
    "loadBalancerMemoryResourceWeight": 0.0,
    "loadBalancerMsgRateDifferenceShedderThreshold": 50.0,
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": 4.0,
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": 100,
    "loadBalancerNamespaceBundleMaxMsgRate": 30_000,
    "loadBalancerNamespaceBundleMaxSessions": 1000,
    "loadBalancerNamespaceBundleMaxTopics": 1000,
    "loadBalancerNamespaceMaximumBundles": 128,
    "loadBalancerReportUpdateMaxIntervalMinutes": 15,
    "loadBalancerReportUpdateMinIntervalMillis": 5000,
    "loadBalancerSheddingConditionHitCountThreshold": 3,
    SHEDDING_ENABLED: True,
    "loadBalancerSheddingExcludedNamespaces": (),
    "loadBalancerSheddingGracePeriodMinutes": 30,
    "loadBalancerSheddingIntervalMinutes": 1,
    "loadBalancerTransferEnabled": True,
    LOAD_MANAGER: "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    "lowerBoundarySheddingEnabled": False,
    "maxUnloadBundleNumPerShedding": -1,
    "maxUnloadPercentage": 0.2,
    "minUnloadMessage": 1000,
    "minUnloadMessageThroughput": 1_048_576,
    "statsUpdateFrequencyInSecs": 60,
}
"""Keys that lbd reads, with the defaults of ``ServiceConfiguration`` from 4.0 to 5.0.0-M1, each in its field's type.

Later releases of 5.0 shed and place with AvgShedder (#26609). Before 3.3 direct memory weighs 1, before 4.0 memory.
"""


def is_on(runtime: Mapping[str, str], key: str) -> bool:
    """Whether a switch is on, by its default where it is absent. Only ``true``, in any case, is on for Pulsar."""
    text = runtime.get(key)
    return bool(DEFAULTS[key]) if text is None else text.strip().lower() == "true"


def number(runtime: Mapping[str, str], key: str) -> float:
    """A number, at least 0; its default where the key is absent or its value is no finite number."""
    default = DEFAULTS[key]
    try:
        value = float(runtime.get(key, str(default)))
    except ValueError:
        value = math.nan
    return max(value, 0.0) if math.isfinite(value) else float(str(default))


def minutes(runtime: Mapping[str, str], key: str) -> float:
    """Minutes of an interval of the load manager, which Pulsar schedules in whole minutes, at least one."""
    return max(1.0, number(runtime, key))


def bandwidth_weight(runtime: Mapping[str, str], key: str) -> str | None:
    """Weight of ``key`` or of its older spelling (Bandwith); None where neither is present.

    Before 4.0 (PIP-357) only the older one exists. Since then the newer spelling counts unless it is 1.0, its default.
    """
    newer, older = runtime.get(key), runtime.get(key.replace("Bandwidth", "Bandwith"))
    is_default = newer is None or number({key: newer}, key) == DEFAULTS[key]
    return older if is_default and older is not None else newer


def sheds(runtime: Mapping[str, str]) -> bool:
    """Whether a broker with this configuration moves bundles by itself."""
    return is_on(runtime, BALANCER_ENABLED) and is_on(runtime, SHEDDING_ENABLED)


def splits(runtime: Mapping[str, str]) -> bool:
    """Whether a leader with this configuration splits bundles by itself."""
    return is_on(runtime, BALANCER_ENABLED) and is_on(runtime, AUTO_SPLIT_ENABLED)


def load_manager_class(runtime: Mapping[str, str]) -> str:
    """Class name, without its package, of the load manager that a broker with this configuration runs.

    A live broker whose setting is blank runs SimpleLoadManagerImpl (``LoadManager.create``, #24570). In a broker.conf a
    blank is no value, and the default holds.
    """
    name = runtime.get(LOAD_MANAGER)
    return MODULAR_MANAGER if name is None else name.strip().rpartition(".")[2] or SIMPLE_MANAGER


def is_extensible(runtime: Mapping[str, str]) -> bool:
    """Whether the load manager is the extensible one (PIP-192), which sends load on topics and transfers bundles."""
    return load_manager_class(runtime) == "ExtensibleLoadManagerImpl"


def shedder_class(runtime: Mapping[str, str]) -> str:
    """Class name, without its package, of the shedder; empty where it is unknown.

    The extensible manager runs TransferShedder where a shedder of the modular one is configured (UnloadScheduler).
    """
    package, _, name = runtime.get(SHEDS_WITH, "").rpartition(".")
    modulars = package in {"", "org.apache.pulsar.broker.loadbalance.impl"}
    return "TransferShedder" if is_extensible(runtime) and modulars else name
