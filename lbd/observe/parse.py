"""Load reports from JSON to columns. Pure: bytes in, values out.

Field names and hazards: Pulsar's LocalBrokerData and NamespaceBundleStats (2.11 to 5.0). Unknown fields are ignored,
missing ones are optional, and the strings ``"NaN"`` and ``"Infinity"`` are numbers, as Jackson writes them.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from lbd.errors import ObserveError, UsageError
from lbd.foreign import is_printable, printable_json
from lbd.model import Brokers, Rows, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lbd.model import FloatArray


MODULAR_REPORT = "LocalBrokerData"
TOP_BUNDLES_REPORT = "TopBundlesLoadData"
"""Name of a report of the extensible manager, which has the statistics of the largest bundles only."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of things. A report with a negative one, or one beyond the range of a column, is refused."""

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of decoding garbage; deep nesting raises the last one."""


class Usage(msgspec.Struct, frozen=True, gc=False):
    """``{usage, limit}`` of one resource; -1 and -1 is a broker that has not sampled yet."""

    usage: float = -1.0
    limit: float = -1.0


class BundleStats(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One entry of ``lastStats``; the first seven fields are the columns of :class:`~lbd.model.Rows`, in order."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    topics: Count = 0
    producer_count: Count = 0
    consumer_count: Count = 0


class BrokerUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Figures that brokers report under every load manager: usages, and totals in messages/s and bytes/s."""

    cpu: Usage = Usage()
    memory: Usage = Usage()
    direct_memory: Usage = Usage()
    bandwidth_in: Usage = Usage()
    bandwidth_out: Usage = Usage()
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0


class LoadReport(BrokerUsage, frozen=True, rename="camel"):
    """The part of a load report that lbd reads."""

    last_stats: dict[str, BundleStats] = {}
    bundles: list[str] = []
    num_topics: Count = 0
    broker_version_string: str = ""
    start_timestamp: float = float("nan")
    load_report_type: str = MODULAR_REPORT
    web_service_url: str | None = None


class ReportRound(msgspec.Struct, frozen=True):
    """One line of a recording: epoch seconds and the load report of each broker."""

    t: float
    reports: dict[str, LoadReport]


_NOTHING = BundleStats()
_REPORT = msgspec.json.Decoder(LoadReport, strict=False)
_ROUND = msgspec.json.Decoder(ReportRound, strict=False)


def parse_report(body: bytes, broker: str) -> LoadReport:
    """Parse one broker's response to ``GET /admin/v2/broker-stats/load-report``.

    Raises :class:`ObserveError` when it is not JSON, has an unreadable number, or belongs to another load manager.
    """
    try:
        report = _REPORT.decode(content := printable_json(body))
    except UNREADABLE as error:
        raise ObserveError(
            f"load report of {broker} cannot be read: {error}; it begins with {body[:40]!r}, wanted a JSON object"
        ) from error
    if content is not body:
        _check_names((*report.last_stats, *report.bundles), broker)
    if report.load_report_type != MODULAR_REPORT:
        raise ObserveError(
            f"load report of {broker} has loadReportType {report.load_report_type[:80]!r}, wanted {MODULAR_REPORT!r}: "
            "the broker runs another load manager (a modular one that failed to start falls back to this silently)"
        )
    return report


def _check_names(bundles: Iterable[str], broker: str) -> None:
    """Raise :class:`ObserveError` for a name that no bundle can have: such a broker may report anything."""
    wrong = next((name for name in bundles if not is_printable(name)), None)
    if wrong is not None:
        raise ObserveError(f"load report of {broker} names a bundle {wrong[:80]!r}, with characters that no name has")


def parse_round(line: bytes, where: str) -> ReportRound:
    """Parse one round of a recording; the :class:`UsageError` for a bad one names ``where`` (file and line number)."""
    try:
        return _ROUND.decode(printable_json(line))
    except UNREADABLE as error:
        raise UsageError(f'{where}: not a round: {error}; wanted {{"t": seconds, "reports": {{...}}}}') from error


def build_snapshot(taken_at: float, reports: Mapping[str, LoadReport]) -> Snapshot:
    """Build the columns of one round. Brokers are ordered by id, a broker's rows as it reports them."""
    ids = tuple(sorted(reports))
    ordered = [reports[broker] for broker in ids]
    bundles, rows = _rows(ordered)
    partial = any(report.load_report_type == TOP_BUNDLES_REPORT for report in ordered)
    return Snapshot(taken_at, _brokers(ids, ordered), bundles, rows, partial=partial)


def _brokers(ids: tuple[str, ...], reports: list[LoadReport]) -> Brokers:
    usages = [(r.cpu, r.memory, r.direct_memory, r.bandwidth_in, r.bandwidth_out) for r in reports]
    totals = [(r.msg_rate_in, r.msg_rate_out, r.msg_throughput_in, r.msg_throughput_out) for r in reports]
    return Brokers(
        ids=ids,
        usage=_table([[u.usage for u in row] for row in usages], 5),
        limit=_table([[u.limit for u in row] for row in usages], 5),
        rates=_table(totals, 4),
        topics=np.array([r.num_topics for r in reports], dtype=np.int64),
        started_at=np.array([r.start_timestamp / 1000.0 for r in reports], dtype=np.float64),
        versions=tuple(r.broker_version_string for r in reports),
    )


def _rows(reports: list[LoadReport]) -> tuple[list[str], Rows]:
    """Rows of all brokers: a broker's statistics first, then the bundles that it lists without statistics."""
    names: list[str] = []
    tables: list[FloatArray] = []
    listed: list[bool] = []  # a list: with one array per broker numpy makes other threads wait for all of them
    reported: list[bool] = []
    start = [0]
    for report in reports:
        has_row, extra = _listing(report)
        names += [*report.last_stats, *extra]
        stats = chain(report.last_stats.values(), [_NOTHING] * len(extra))
        tables.append(_table(map(msgspec.structs.astuple, stats), 7))  # a single table would block every other thread
        listed += has_row + [True] * len(extra)
        reported += [True] * len(has_row) + [False] * len(extra)
        start.append(len(names))
    bundles, position = _distinct(names)
    table = np.concatenate(tables) if tables else np.zeros((0, 7))
    return bundles, Rows(
        start=np.array(start, dtype=np.int32),
        bundle=position,
        rates=np.ascontiguousarray(table[:, :4]),
        counts=table[:, 4:].astype(np.int64),
        reported=np.array(reported, dtype=np.bool_),
        listed=np.array(listed, dtype=np.bool_),
    )


def _listing(report: LoadReport) -> tuple[list[bool], list[str]]:
    """Whether each bundle of the statistics is listed, and the bundles listed without statistics; mostly they agree."""
    if set(report.bundles) == report.last_stats.keys():
        return [True] * len(report.last_stats), []
    listed = set(report.bundles)
    return [name in listed for name in report.last_stats], [n for n in report.bundles if n not in report.last_stats]


def _distinct(names: list[str]) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int32]]]:
    """Each name once, and the position of each row's name among them."""
    position: dict[str, int] = {}
    of = [position.setdefault(name, len(position)) for name in names]
    return list(position), np.array(of, dtype=np.int32)


def _table(rows: Iterable[Iterable[float]], width: int) -> FloatArray:
    flat = np.fromiter(chain.from_iterable(rows), dtype=np.float64)
    return flat.reshape(-1, width)


# --- the extensible load manager: two values per broker, and its owned bundles, become one report
# Field names: Pulsar's BrokerLoadData and TopBundlesLoadData (3.0 to 5.0). Only the largest bundles are reported:
# ``loadBalancerMaxNumberOfBundlesInBundleLoadReport`` of them (10), and none without traffic, of Pulsar's own
# namespaces, or with an isolation policy or anti-affinity group, unless
# ``loadBalancerSheddingBundlesWithPoliciesEnabled`` (TopKBundles). The traffic of the others is unknown.


class ExtensibleLoad(BrokerUsage, frozen=True, rename="camel"):
    """The part of BrokerLoadData that lbd reads."""

    topics: Count = 0


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    bundle_name: str
    stats: BundleStats


class _TopBundles(msgspec.Struct, frozen=True, rename="camel"):
    top_bundles_load_data: list[_Bundle] = []


_BROKER = msgspec.json.Decoder(ExtensibleLoad, strict=False)
_TOP = msgspec.json.Decoder(_TopBundles, strict=False)


def parse_broker_load(value: bytes, broker: str) -> ExtensibleLoad:
    """A value of the broker load data topic. Raises :class:`ObserveError` where it cannot be read."""
    try:
        return _BROKER.decode(printable_json(value))
    except UNREADABLE as error:
        raise _unreadable("broker load data", broker, value, error) from error


def parse_top_bundles(value: bytes, broker: str) -> dict[str, BundleStats]:
    """Statistics by bundle of a value of the top bundles topic. Raises :class:`ObserveError` as above."""
    try:
        top = _TOP.decode(printable_json(value))
    except UNREADABLE as error:
        raise _unreadable("top bundles load data", broker, value, error) from error
    return {bundle.bundle_name: bundle.stats for bundle in top.top_bundles_load_data}


def extensible_report(load: ExtensibleLoad, stats: dict[str, BundleStats], owned: Iterable[str]) -> LoadReport:
    """Combine one broker's load data. The report lists its owned bundles; statistics of others are dropped."""
    bundles = sorted(owned)
    return LoadReport(
        **{name: getattr(load, name) for name in BrokerUsage.__struct_fields__},
        last_stats={bundle: stats[bundle] for bundle in bundles if bundle in stats},
        bundles=bundles,
        num_topics=load.topics,
        load_report_type=TOP_BUNDLES_REPORT,
    )


def recordable(report: LoadReport) -> bytes:
    """The report as JSON, for a recording, without the fields that such brokers never send: version, address, start."""
    fields = msgspec.to_builtins(report)
    absent = ("startTimestamp", "brokerVersionString", "webServiceUrl")
    return msgspec.json.encode(_spelt({name: value for name, value in fields.items() if name not in absent}))


def _spelt(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """The value with numbers that JSON lacks spelled as Jackson writes them."""
    if isinstance(value, dict):
        return {name: _spelt(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _unreadable(what: str, broker: str, value: bytes, error: Exception) -> ObserveError:
    return ObserveError(f"{what} of {broker} cannot be read: {error}; it begins with {value[:40]!r}, wanted JSON")
