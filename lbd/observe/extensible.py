"""From the two values that a broker of the extensible load manager tells of its load, and what it owns, to one report.

Field names: Pulsar's BrokerLoadData and TopBundlesLoadData (3.0 to 5.0). Only the largest bundles are told of:
``loadBalancerMaxNumberOfBundlesInBundleLoadReport`` of them (10), and none without traffic, of Pulsar's own
namespaces, or with an isolation policy or anti-affinity group, unless
``loadBalancerSheddingBundlesWithPoliciesEnabled`` (TopKBundles). What the others carry is not known. Pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.errors import ObserveError
from lbd.observe.parse import TOP_BUNDLES_REPORT, UNREADABLE, BrokerUsage, BundleStats, Count, LoadReport

if TYPE_CHECKING:
    from collections.abc import Iterable


class BrokerLoad(BrokerUsage, frozen=True, rename="camel"):
    """The part of BrokerLoadData that lbd reads."""

    topics: Count = 0


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    bundle_name: str
    stats: BundleStats


class _TopBundles(msgspec.Struct, frozen=True, rename="camel"):
    top_bundles_load_data: list[_Bundle] = []


_BROKER = msgspec.json.Decoder(BrokerLoad, strict=False)
_TOP = msgspec.json.Decoder(_TopBundles, strict=False)


def parse_broker_load(value: bytes, broker: str) -> BrokerLoad:
    """A value of the broker load data topic. Raises :class:`ObserveError` where it cannot be read."""
    try:
        return _BROKER.decode(value)
    except UNREADABLE as error:
        raise _unreadable("broker load data", broker, value, error) from error


def parse_top_bundles(value: bytes, broker: str) -> dict[str, BundleStats]:
    """Statistics by bundle of a value of the top bundles topic. Raises :class:`ObserveError` as above."""
    try:
        found = _TOP.decode(value)
    except UNREADABLE as error:
        raise _unreadable("top bundles load data", broker, value, error) from error
    return {one.bundle_name: one.stats for one in found.top_bundles_load_data}


def report_of(load: BrokerLoad, told: dict[str, BundleStats], owned: Iterable[str]) -> LoadReport:
    """One broker's report. It lists what the broker owns; statistics of a bundle that it has given away are dropped."""
    bundles = sorted(owned)
    return LoadReport(
        **{name: getattr(load, name) for name in BrokerUsage.__struct_fields__},
        last_stats={bundle: told[bundle] for bundle in bundles if bundle in told},
        bundles=bundles,
        num_topics=load.topics,
        load_report_type=TOP_BUNDLES_REPORT,
    )


def recordable(report: LoadReport) -> bytes:
    """The report as JSON, for a recording, without what no such broker tells: its version, address and start."""
    found = msgspec.to_builtins(report)
    untold = ("startTimestamp", "brokerVersionString", "webServiceUrl")
    return msgspec.json.encode(_spelt({name: value for name, value in found.items() if name not in untold}))


def _spelt(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """With numbers that JSON has not as Jackson writes them."""
    if isinstance(value, dict):
        return {name: _spelt(one) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _unreadable(what: str, broker: str, value: bytes, error: Exception) -> ObserveError:
    return ObserveError(f"{what} of {broker} cannot be read: {error}; it begins with {value[:40]!r}, wanted JSON")
