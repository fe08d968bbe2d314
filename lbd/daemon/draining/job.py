"""One drain, or fill, that is under way: what of it has ended, and how it is told."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import msgspec

from lbd.daemon.draining.telling import told
from lbd.decide.drain import eta_seconds
from lbd.model import Outcome, Result, Skip
from lbd.reason import Reason
from lbd.record.drains import Left, Work

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lbd.daemon.draining.planning import Look
    from lbd.load.carried import Carried

SECONDS_EACH = 0.5
"""An unload with its checks and its proof, where none was measured yet."""

MEASURED_FROM = 10
"""Moves after which their own pace tells more than an estimate."""

ORDERED = frozenset({Reason.PAUSED, Reason.QUIET_HOURS})
"""What people have ordered to be waited for: a move that was not sent for it is due again afterwards."""

BARREN_PARTS = 3
"""Parts in a row of which nothing was even sent: it has come to its end for now."""


@dataclass(frozen=True)
class Pacing:
    """How fast a job goes: see ``decide/drain_settings.py``."""

    at_once: int
    spacing_seconds: float
    by_name: bool


def estimate(bundles: Collection[str], pacing: Pacing) -> float:
    """How long the moves of these bundles will take, in seconds."""
    each = SECONDS_EACH + pacing.spacing_seconds
    return eta_seconds(bundles, pacing.at_once, each, by_name=pacing.by_name)


class Job:
    """Thread-safe: moves end in threads of their own.

    ``scores`` are those of the beginning, in points, None before the first look; ``carried`` is what the broker carried
    when its drain began. Before ``look_again_at`` (epoch seconds) there is nothing to be looked for. From
    ``untold_since`` on the broker has not told what it owns or carries.
    """

    def __init__(
        self,
        kind: Literal["drain", "fill"],
        broker: str,
        request: str,
        begun_at: float,
        by: str,
        override: str | None,
    ) -> None:
        self.kind, self.broker, self.begun_at, self.by, self.override = kind, broker, begun_at, by, override
        self.carried: Carried | None = None
        self.scores: Mapping[str, float] | None = None
        self.look_again_at = 0.0
        self.untold_since: float | None = None
        self._lock = threading.Lock()
        self._handed: set[str] = set()
        self._ended: dict[str, Outcome] = {}
        self._skipped: dict[str, Skip] = {}
        self._left: list[str] = []
        self._pacing: Pacing | None = None
        self._barren = self._seen = 0
        self._work = Work(kind=kind, broker=broker, request=request, begun_at=begun_at)

    def looked(self, look: Look, pacing: Pacing) -> None:
        """A look has shown what is left to move."""
        self.scores, self.untold_since = self.scores or look.before, None
        self._left, self._pacing = [unload.bundle for unload in look.plan.unloads], pacing
        if look.hold is None:  # what may not move is not tried in vain
            self._barren = 0 if self.tried > self._seen or not self._handed else self._barren + 1
            self._seen = self.tried
        self._work = msgspec.structs.replace(self._work, total=self.tried + len(self._left), held="")

    @property
    def reason(self) -> str:
        """Why its moves are made, for the journal."""
        passed = f", overriding limits: {self.override}" if self.override is not None else ""
        return f"{self.kind} of {self.broker}, by hand, {self.by}{passed}"

    @property
    def barren(self) -> bool:
        """Whether it comes to nothing, part after part."""
        return self._barren >= BARREN_PARTS

    def waits(self, why: str, until: float) -> None:
        """What keeps it from going on, and when that is looked at again (epoch seconds)."""
        self._work, self.look_again_at = msgspec.structs.replace(self._work, held=why), until

    @property
    def held(self) -> str:
        """What keeps it from going on; empty while nothing does."""
        return self._work.held

    @property
    def doubtful(self) -> list[Outcome]:
        """Moves of which nobody knows who owns the bundle."""
        with self._lock:
            return [one for one in self._ended.values() if one.owner is None]

    def amend(self, found: Iterable[Outcome]) -> None:
        """Who owns the bundles of such moves has been asked once more."""
        with self._lock:
            self._ended.update((one.unload.bundle, one) for one in found)

    def hand(self, bundles: Iterable[str]) -> None:
        """The next of its moves are begun."""
        with self._lock:
            self._handed.update(bundles)

    def ended(self, ended: Outcome | Skip) -> None:
        """A move has ended, if it is one of these; what was not sent does not count as moved."""
        with self._lock:
            if isinstance(ended, Skip):
                self._skipped[ended.what] = ended
                if ended.reason in ORDERED:
                    self._handed.discard(ended.what)
            elif ended.unload.bundle in self._handed:
                self._ended[ended.unload.bundle] = ended

    @property
    def handed(self) -> frozenset[str]:
        """The bundles of all moves that were begun, but for those that are to be begun again."""
        with self._lock:
            return frozenset(self._handed)

    def not_sent(self, bundles: Iterable[str]) -> list[Skip]:
        """Why moves of these bundles were not sent, those that were not."""
        with self._lock:
            unsent = [bundle for bundle in bundles if bundle not in self._ended]
            return [self._skipped.get(bundle, Skip(bundle, Reason.ROUND_STOPPED)) for bundle in sorted(unsent)]

    @property
    def tried(self) -> int:
        """Moves that were sent and have ended."""
        with self._lock:
            return len(self._ended)

    def work(self, now: float) -> Work:
        """How far it has come."""
        with self._lock:
            ended = list(self._ended.values())
        landed = sum(one.result is Result.LANDED for one in ended)
        elsewhere = sum(one.result is Result.ELSEWHERE and one.owner != one.unload.source for one in ended)
        counts = {"landed": landed, "elsewhere": elsewhere, "failed": len(ended) - landed - elsewhere}
        return msgspec.structs.replace(self._work, **counts, eta_seconds=self._eta(now))

    def _eta(self, now: float) -> float | None:
        if self._pacing is None:
            return None
        left, tried = [one for one in self._left if one not in self._ended], self.tried
        measured = (now - self.begun_at) / tried * len(left) if tried >= MEASURED_FROM else None
        return round(estimate(left, self._pacing) if measured is None else measured, 1)

    def end(
        self, now: float, owned: Collection[str] | None, stay: Iterable[Skip], alone: Collection[Skip] = ()
    ) -> Work:
        """It has come to its end: how it is told.

        ``owned`` is what a drained broker owns now, None where it was not asked; ``stay`` what was not even tried, and
        why; ``alone`` are bundles of Pulsar's own, which lbd leaves where they are.
        """
        with self._lock:
            missed = [one for one in self._ended.values() if self._missed(one, owned or ())]
        left = [Left(one.unload.bundle, one.result.value, one.detail) for one in missed]
        known, system = {one.bundle for one in left}, {skip.what for skip in alone}
        left += [Left(skip.what, skip.reason.label, skip.detail) for skip in stay if skip.what not in known]
        owns = None if owned is None else sum(bundle not in system for bundle in owned)
        found = msgspec.structs.replace(self.work(now), ended_at=now, left=left, held="", eta_seconds=None, owned=owns)
        code, sentence = told(found, missed=len(missed), system=len(system))
        return msgspec.structs.replace(found, exit_code=code, sentence=sentence)

    def _missed(self, one: Outcome, owned: Collection[str]) -> bool:
        """A drained broker that is rid of a bundle is rid of it, whichever healthy broker has it."""
        if self.kind == "fill":
            return one.result is not Result.LANDED
        return one.owner is None or one.unload.bundle in owned
