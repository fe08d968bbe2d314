"""Sources of load reports: the admin API, or the topics of the extensible load manager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from lbd.errors import ObserveError, UnheardError
from lbd.observe.parse import extensible_report, parse_broker_load, parse_report, parse_top_bundles, recordable
from lbd.pulsar.admin import unsupported
from lbd.pulsar.broker_configuration import is_extensible, load_manager_class, number
from lbd.pulsar.load_topics import BROKER_LOAD, TOP_BUNDLES, LoadTopics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.parse import BundleStats, LoadReport
    from lbd.pulsar.admin import Admin
    from lbd.pulsar.load_topics import LatestValue

MODULAR = "ModularLoadManagerImpl"

Say = Callable[[str], None]
"""Shows a sentence to the person who waits."""

Raw = Callable[[], bytes]
"""Makes the report in the form of a recording, where one is needed."""

MOST_MINUTES = "loadBalancerReportUpdateMaxIntervalMinutes"
"""Longest pause of a broker whose load stays within ``loadBalancerReportUpdateThresholdPercentage``."""

LEAST_MILLISECONDS = "loadBalancerReportUpdateMinIntervalMillis"
AGAIN_SECONDS = 2.0
"""Delay of a broker that often checks whether to publish its load."""

SOON_SECONDS = 15.0
"""Longest wait within a turn for a broker that is configured to check less often."""

STATS_SECONDS = "statsUpdateFrequencyInSecs"
SILENT_SECONDS = 60.0
"""Longest silence of a broker with the configuration that lbd recommends."""

HEARD_SECONDS = 10.0
"""Time to connect, and for a broker to publish its counts: it checks every five seconds."""

LATE_SECONDS = 60.0
"""Delay of a busy broker: it should check every few seconds whether to publish its load."""

STATS_MISSED = 3
"""Statistics runs without the largest bundles, published after each of them, until they are unknown."""


class Reports(Protocol):
    """Load reports of the brokers of one load manager."""

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None: ...
    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]: ...
    def close(self) -> None: ...


class AdminReports:
    """Reports of the modular manager, requested from each broker. They are parsed one by one: two take as long."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._taking_in = Lock()

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None:
        """Return at once: brokers respond to each request."""

    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]:  # noqa: ARG002
        """Report of one broker, and its raw form. Raises :class:`ObserveError` where there is no usable one."""
        answer = self._admin.load_report(broker)
        with self._taking_in:
            return parse_report(answer.body, broker), lambda: answer.body

    def close(self) -> None:
        """Do nothing: nothing is open."""


class TopicReports:
    """Reports of the extensible manager: each broker's latest load data, combined with the bundles that it owns."""

    def __init__(self, admin: Admin, topics: LoadTopics | None = None) -> None:
        """Start to listen. Raises :class:`ObserveError` where ``pulsar.service_url`` is not set."""
        self._admin = admin
        self._topics = topics or LoadTopics(admin.settings)

    def listen(self, active: list[str], runtime: Mapping[str, str], say: Say) -> None:
        """Wait until each broker has sent both kinds of data: data sent before lbd listened cannot be read.

        It does not wait for brokers that may be silent for longer than a minute. ``say`` gets the longest wait.
        """
        intervals = (60.0 * number(runtime, MOST_MINUTES), number(runtime, STATS_SECONDS))
        seconds = min(max(intervals), SILENT_SECONDS) + HEARD_SECONDS
        say(f"Listening for the brokers' load data, {seconds:.0f} s at most.")
        self._topics.wait(active, seconds)

    def of(self, broker: str, runtime: Mapping[str, str]) -> tuple[LoadReport, Raw]:
        """Report of one broker; the raw form for a recording has the format of the modular manager's reports."""
        if not is_extensible(runtime):
            raise ObserveError(f"{broker} runs {load_manager_class(runtime)}, and others ExtensibleLoadManagerImpl")
        latest = self._load_data(broker, runtime)
        limit = 60.0 * number(runtime, MOST_MINUTES) + LATE_SECONDS
        if latest is None or not latest.value or self._topics.age_seconds(latest) > limit:
            raise self._silence(broker, latest, limit)
        load = parse_broker_load(latest.value, broker)
        owned = self._admin.owned(broker)
        report = extensible_report(load, self._bundles(broker, runtime), owned)
        return report, partial(recordable, report)

    def _load_data(self, broker: str, runtime: Mapping[str, str]) -> LatestValue | None:
        """Latest load data of a broker. A broker that retracted them for a move sends new ones soon: wait for those."""
        latest = self._topics.of(BROKER_LOAD, broker)
        if latest is None or latest.value:
            return latest
        soon = min(number(runtime, LEAST_MILLISECONDS) / 1000, SOON_SECONDS) + AGAIN_SECONDS
        return self._topics.again(BROKER_LOAD, broker, soon - self._topics.age_seconds(latest))

    def _bundles(self, broker: str, runtime: Mapping[str, str]) -> dict[str, BundleStats]:
        """Traffic of a broker's largest bundles; empty between a move and the broker's next statistics run."""
        latest = self._topics.of(TOP_BUNDLES, broker)
        limit = STATS_MISSED * number(runtime, STATS_SECONDS)
        if latest is None or not latest.value or self._topics.age_seconds(latest) > limit:
            return {}
        return parse_top_bundles(latest.value, broker)

    def _silence(self, broker: str, latest: LatestValue | None, limit: float) -> ObserveError:
        if self._topics.trouble:
            return ObserveError(self._topics.trouble)
        if latest is None:
            heard, within = self._topics.heard_seconds(broker), f"a broker sends some within {limit:.0f} s"
            words = f"sent no load data in the {heard:.0f} s that lbd has listened for it; {within} ({MOST_MINUTES})"
            return UnheardError(words) if heard < limit else ObserveError(words)
        age = self._topics.age_seconds(latest)
        if not latest.value:
            return ObserveError(f"withdrew its load data {age:.0f} s ago, as for a move, and has sent none since")
        return ObserveError(f"sent its load data {age:.0f} s ago, wanted at most {limit:.0f} s ({MOST_MINUTES})")

    def close(self) -> None:
        """Stop listening."""
        self._topics.close()


def report_source(runtime: Mapping[str, str], admin: Admin) -> Reports:
    """Source of the reports of brokers with this configuration.

    Raises :class:`ObserveError` for a load manager whose reports lbd cannot read.
    """
    if is_extensible(runtime):
        return TopicReports(admin)
    if not load_manager_class(runtime).endswith(MODULAR):
        raise ObserveError(unsupported(f"cluster {runtime.get('clusterName', '')!r}", load_manager_class(runtime)))
    return AdminReports(admin)
