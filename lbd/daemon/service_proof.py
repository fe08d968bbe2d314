"""Proof that the clients of moved bundles are back, beside the turns; while they are not, their namespace rests.

What is to be proven stands in the journal, and so survives a kill and a change of leaders (``permit/served.py`` has the
rule). A turn's round is judged after the turn; where topics are to be asked for themselves, a thread asks.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING

from lbd.errors import LbdError, ThreadError, as_lbd_error
from lbd.observe.bundle_topics import bundle_topics
from lbd.permit.served import (
    TOO_LATE_SECONDS,
    Landing,
    ReportedClients,
    ServiceHold,
    ServiceResult,
    concluded,
    judge,
    recovered,
    service_hold,
)
from lbd.reason import Reason
from lbd.text import minutes_text
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lbd.permit.facts import Hold
    from lbd.permit.served import BundleTopics, Unserved
    from lbd.pulsar.admin import Admin
    from lbd.store.journal import Journal
    from lbd.turn.parts import TurnResult

    Conclude = Callable[[BundleTopics], ServiceResult | None]
    """Result from the topics of a bundle; None: nothing new."""


class ServiceProof:
    """Judges the landings of a journal. Thread-safe.

    ``hold_seconds`` is how long a bundle that is not served holds its namespace, ``resumed_at`` when a person last
    let lbd go on (epoch seconds). ``on_end`` gets the result of each landing, from the thread that computed it.
    """

    def __init__(
        self,
        journal: Journal,
        admin: Callable[[], Admin],
        now: Callable[[], float],
        hold_seconds: Callable[[], float],
        resumed_at: Callable[[], float],
    ) -> None:
        self._journal, self._admin, self._now = journal, admin, now
        self._hold_seconds, self._resumed_at = hold_seconds, resumed_at
        self._changed = threading.Condition()
        self._pending: dict[str, tuple[Landing, Conclude]] = {}
        self._results: list[tuple[Landing, ServiceResult]] = []
        self._closed = False
        self._thread: threading.Thread | None = None
        self.trouble = ""
        self.on_end: Callable[[Landing, ServiceResult], None] = lambda *_: None

    def hold(self) -> Hold | None:
        """Why nothing may be moved: bundles of two tenants are not served."""
        held = self._held()
        return (Reason.NOT_SERVED, held.everything) if held.everything else None

    def namespaces(self) -> Mapping[str, str]:
        """The namespaces whose bundles may not be moved because some are not served, each with the reason."""
        return self._held().namespaces

    @property
    def ends_at(self) -> float:
        """The end of the hold by itself, in epoch seconds; without a meaning where there is none."""
        now = self._now()
        return max((min(unserved.at, now) for unserved in self._recent()), default=0.0) + self._hold_seconds()

    def _recent(self) -> list[Unserved]:
        """Bundles not served for less than the time of the hold, and since a person resumed lbd."""
        now, resumed_at = self._now(), self._resumed_at()
        since = max(resumed_at if resumed_at <= now else 0.0, now - self._hold_seconds())
        return [unserved for unserved in self._journal.unserved.values() if min(unserved.at, now) > since]

    def _held(self) -> ServiceHold:
        """The present hold; none for bundles not served long ago, and none once a person resumes lbd."""
        if not (recent := self._recent()):
            return ServiceHold()
        wait = minutes_text(self.ends_at - self._now())
        return service_hold(recent).ending(f"lbd resume goes on; by itself in {wait} (guardrails.stand_still_minutes)")

    def after(self, record: TurnResult) -> None:
        """After a turn: judge by its round what is to be proven, and begin to ask for topics."""
        facts = record.facts
        landings, failures = self._journal.landings, self._journal.unserved
        if facts is None or not (landings or failures):
            return
        judged = (*landings.values(), *(unserved.landing for unserved in failures.values()))
        reported = ReportedClients(facts.snapshot, (landing.bundle for landing in judged))
        for move, landing in landings.items():
            verdict = judge(landing, reported, facts.evidence, facts.sample_interval_seconds)
            if isinstance(verdict, ServiceResult):
                self._end(move, landing, verdict)
            elif verdict is not None:
                self._ask(move, landing, partial(concluded, landing, verdict))
        for move, unserved in failures.items():
            if reported.taken_at > unserved.at + max(TOO_LATE_SECONDS, self._hold_seconds()):
                continue
            again = recovered(unserved, reported, None)
            if again is not None:
                self._end(move, unserved.landing, again)
            else:
                self._ask(move, unserved.landing, partial(recovered, unserved, reported))

    def ended(self) -> tuple[tuple[Landing, ServiceResult], ...]:
        """The results since the last call."""
        with self._changed:
            results, self._results = tuple(self._results), []
        return results

    def wait(self, seconds: float | None = None) -> bool:
        """Whether all topics that were to be asked for have been, within that time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending, seconds)

    def close(self) -> None:
        """Ask for no more topics."""
        with self._changed:
            self._closed = True
            self._pending.clear()
            self._changed.notify_all()

    def _ask(self, move: str, landing: Landing, conclude: Conclude) -> None:
        """Have a bundle's topics asked for, unless they are already."""
        with self._changed:
            if self._closed or move in self._pending:
                return
            try:
                self._thread = self._thread or begin(self._work, "lbd-served")
                self._pending[move] = landing, conclude
            except ThreadError as error:  # the next turn asks again
                self.trouble = f"{landing.bundle}: whether it is served is not known: {error}"

    def _work(self) -> None:
        """One bundle after the other, until none is left."""
        while True:
            with self._changed:
                move, (landing, conclude) = next(iter(self._pending.items()), ("", (None, None)))
                if landing is None or conclude is None:
                    self._thread = None
                    return
            try:
                topics = bundle_topics(self._admin(), landing.bundle, landing.unload.destination or "")
                service = conclude(topics)
                if service is not None:
                    self._end(move, landing, service)
            except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the status tells it
                self.trouble = f"{landing.bundle}: whether it is served is not known: {as_lbd_error(error)}"
            finally:
                with self._changed:
                    self._pending.pop(move, None)
                    self._changed.notify_all()

    def _end(self, move: str, landing: Landing, service: ServiceResult) -> None:
        """Write it down, and tell it; what cannot be written is judged again after the next turn."""
        try:
            self._journal.serve(move, landing, service)
        except LbdError as error:
            self.trouble = str(error)
            return
        self.trouble = ""
        with self._changed:
            self._results.append((landing, service))
        self.on_end(landing, service)
