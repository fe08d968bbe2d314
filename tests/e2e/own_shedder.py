"""Pulsar's own shedder at work in the brokers, in the place of lbd: what its moves are, as ownership shows them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self

from tests.e2e import placing, probe
from tests.e2e.daemon import SHEDDER

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster
    from tests.e2e.journal import Move
    from tests.e2e.witness import Witness

_PACKAGE = "org.apache.pulsar.broker.loadbalance.impl."
_ENABLED = "/admin/v2/brokers/configuration/loadBalancerSheddingEnabled"
_MIB = 1024 * 1024
TRANSFER = "TransferShedder"
"""That of the extensible load manager."""

BROKER_SETTINGS = {
    "AvgShedder": {
        "loadBalancerLoadSheddingStrategy": f"{_PACKAGE}AvgShedder",
        "loadBalancerLoadPlacementStrategy": f"{_PACKAGE}AvgShedder",
        "loadBalancerAvgShedderHitCountLowThreshold": str(SHEDDER["hit_count_low"]),
        "loadBalancerAvgShedderHitCountHighThreshold": str(SHEDDER["hit_count_high"]),
        "minUnloadMessage": str(SHEDDER["min_unload_message"]),
        "minUnloadMessageThroughput": str(SHEDDER["min_unload_message_throughput"]),
        "maxUnloadPercentage": "0.5",
    },
    TRANSFER: {
        "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder"
    },
    "ThresholdShedder": {
        "loadBalancerLoadSheddingStrategy": f"{_PACKAGE}ThresholdShedder",
        "loadBalancerBundleUnloadMinThroughputThreshold": str(SHEDDER["min_unload_message_throughput"] / _MIB),
    },
}
"""Of brokers that shed by themselves, by the shedder's name. Hits, minimums and the part that is moved are those of lbd
in the same runs; all else is Pulsar's default."""


class OwnShedder:
    """The shedder that the brokers are configured with, switched on for a time."""

    def __init__(self, cluster: Cluster, witness: Witness) -> None:
        self._cluster, self._witness = cluster, witness
        self._begun_at = 0.0

    def __enter__(self) -> Self:
        self._begun_at = time.time()
        self._switch(on=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._switch(on=False)

    def moves(self) -> list[Move]:
        """Bundles of the tests that changed hands since it was switched on."""
        return self._witness.moves(self._begun_at, f"{placing.TENANT}/")

    def turns(self) -> list[dict[str, Any]]:
        """None: it writes no record."""
        return []

    def contradictions(self, _: Witness) -> list[str]:
        """None: it claims nothing."""
        return []

    def _switch(self, *, on: bool) -> None:
        url = f"{self._cluster.admin_urls[0]}{_ENABLED}/{str(on).lower()}"
        answer = probe.ask(self._cluster, "POST", url)
        if not answer.ok:
            raise probe.ProbeError(f"POST {url}: HTTP {answer.status_code}, wanted 200 or 204")
