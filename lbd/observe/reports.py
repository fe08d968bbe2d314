"""Sources of load reports: the admin API, or the topics of the extensible load manager."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from lbd.errors import ObserveError, UnheardError
from lbd.observe.parse import extensible_report, parse_broker_load, parse_report, parse_top_bundles, recordable
from lbd.pulsar.admin import unsupported
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES, LoadTopics
from lbd.pulsar.paths import is_extensible, load_manager_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.parse import BundleStats, LoadReport
    from lbd.pulsar.admin import Admin
    from lbd.pulsar.load_topics import LatestValue

MODULAR = "ModularLoadManagerImpl"

Say = Callable[[str], None]
"""Hears a sentence for who waits."""

Raw = Callable[[], bytes]
"""The report as a recording has it, made where one is wanted."""

MOST_MINUTES = "loadBalancerReportUpdateMaxIntervalMinutes"
"""How long a broker may tell nothing while its load stays within ``loadBalancerReportUpdateThresholdPercentage``."""

LEAST_MILLISECONDS = "loadBalancerReportUpdateMinIntervalMillis"
AGAIN_SECONDS = 2.0
"""How late a broker may be that looks so often whether its load is to be told."""

SOON_SECONDS = 15.0
"""A turn waits no longer for a broker that is set to look less often."""

STATS_SECONDS = "statsUpdateFrequencyInSecs"
SILENT_SECONDS = 60.0
"""As long as a broker is silent that is set as lbd wants it."""

HEARD_SECONDS = 10.0
"""To connect, and for a broker to tell what it has counted: it looks every five seconds."""

LATE_SECONDS = 60.0
"""A broker looks every few seconds whether its load is to be told, and a busy one looks late."""

STATS_MISSED = 3
"""Largest bundles are told after each statistics run; after so many without, they are not known any more."""


class Reports(Protocol):
    """What one load manager's brokers tell."""

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None: ...
    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]: ...
    def close(self) -> None: ...


class AdminReports:
    """The modular manager's, as each broker answers them. One is taken in at a time: two would take as long."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._taking_in = Lock()

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None:
        """Nothing to wait for: brokers answer when they are asked."""

    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]:  # noqa: ARG002
        """One broker's report, also as it was sent. Raises :class:`ObserveError` where there is no usable one."""
        answer = self._admin.load_report(broker)
        with self._taking_in:
            return parse_report(answer.body, broker), lambda: answer.body

    def close(self) -> None:
        """Nothing is open."""


class TopicReports:
    """The extensible manager's, put together from what each broker told last and what it says that it owns."""

    def __init__(self, admin: Admin, topics: LoadTopics | None = None) -> None:
        """Raises :class:`ObserveError` where ``pulsar.service_url`` is not set."""
        self._admin = admin
        self._topics = topics or LoadTopics(admin.settings)

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None:
        """Wait until each broker has told both: nothing that was told before lbd listened can be had.

        Not for those that may be silent for longer than a minute; ``say`` is told how long it may take.
        """
        told = (60.0 * _number(runtime, MOST_MINUTES, 15), _number(runtime, STATS_SECONDS, 60))
        seconds = min(max(told), SILENT_SECONDS) + HEARD_SECONDS
        say(f"Listening for what the brokers tell of their load, {seconds:.0f} s at most.")
        self._topics.wait(active, seconds)

    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]:
        """As above; for a recording it is spelt as the modular manager spells its reports."""
        if not is_extensible(runtime):
            raise ObserveError(f"{broker} runs {load_manager_class(runtime)}, and others ExtensibleLoadManagerImpl")
        found = self._told(broker, runtime)
        limit = 60.0 * _number(runtime, MOST_MINUTES, 15) + LATE_SECONDS
        if found is None or not found.value or self._topics.age_seconds(found) > limit:
            raise self._silence(broker, found, limit)
        load = parse_broker_load(found.value, broker)
        owned = self._admin.owned(broker)
        report = extensible_report(load, self._bundles(broker, runtime), owned)
        return report, partial(recordable, report)

    def _told(self, broker: str, runtime: Mapping[str, str]) -> LatestValue | None:
        """Its load data. One that took them back for a move is about to tell them anew, and that is waited for."""
        found = self._topics.of(BROKER_LOAD, broker)
        if found is None or found.value:
            return found
        soon = min(_number(runtime, LEAST_MILLISECONDS, 5000) / 1000, SOON_SECONDS) + AGAIN_SECONDS
        return self._topics.again(BROKER_LOAD, broker, soon - self._topics.age_seconds(found))

    def _bundles(self, broker: str, runtime: Mapping[str, str]) -> dict[str, BundleStats]:
        """What its largest bundles carry; nothing is known from a move on until its next statistics run."""
        found = self._topics.of(TOP_BUNDLES, broker)
        limit = STATS_MISSED * _number(runtime, STATS_SECONDS, 60)
        if found is None or not found.value or self._topics.age_seconds(found) > limit:
            return {}
        return parse_top_bundles(found.value, broker)

    def _silence(self, broker: str, found: LatestValue | None, limit: float) -> ObserveError:
        if self._topics.trouble:
            return ObserveError(self._topics.trouble)
        if found is None:
            heard, within = self._topics.heard_seconds(broker), f"a broker does within {limit:.0f} s ({MOST_MINUTES})"
            words = f"told no load data since lbd listens for it, {heard:.0f} s, which {within}"
            return UnheardError(words) if heard < limit else ObserveError(words)
        age = self._topics.age_seconds(found)
        if not found.value:
            return ObserveError(f"took its load data back {age:.0f} s ago, as for a move, and told none since")
        return ObserveError(f"told its load data {age:.0f} s ago, wanted at most {limit:.0f} s ({MOST_MINUTES})")

    def close(self) -> None:
        """Listen no more."""
        self._topics.close()


def report_source(runtime: Mapping[str, str], admin: Admin) -> Reports:
    """Where the reports of brokers with this configuration come from.

    Raises :class:`ObserveError` for a load manager that tells none that lbd could read.
    """
    if is_extensible(runtime):
        return TopicReports(admin)
    if not load_manager_class(runtime).endswith(MODULAR):
        raise ObserveError(unsupported(f"cluster {runtime.get('clusterName', '')!r}", load_manager_class(runtime)))
    return AdminReports(admin)


def _number(runtime: Mapping[str, str], key: str, default: float) -> float:
    """What a broker runs with; the default where it tells no number."""
    try:
        found = float(runtime.get(key, default))
    except ValueError:
        return default
    return max(found, 0.0) if math.isfinite(found) else default
