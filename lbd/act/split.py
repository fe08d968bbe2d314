"""One split: check, send, verify. A 204 is no proof: a broker with nothing to cut also returns it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from lbd.act.fence import Fence
from lbd.act.ownership import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Ownership
from lbd.act.unload import OPEN_AFTER_RESTART
from lbd.bundles import missing, parse_boundaries, range_in_name, range_name
from lbd.errors import AdminError, LbdError, ObserveError, RefusedError, UsageError
from lbd.model import bundle_namespace
from lbd.pulsar.admin import error_reason
from lbd.split.plan import Cut, CutOutcome, SplitResult, judged, split_parts

if TYPE_CHECKING:
    from lbd.act.ownership import ActClock
    from lbd.pulsar.admin import Admin


PROOF_SECONDS = 5.0
"""Time to read new boundaries: they come with the 204, a broker with an old cache may briefly return old ones.
"""

REFUSED_SECONDS = 0.3
OWNER_SECONDS = 0.3

NOT_ACQUIRED = "failed to acquire ownership of split bundle"
"""Text of a 500 from a busy Pulsar that has cut nothing and means "try again" (ServiceUnitNotReadyException).

Source: NamespaceService.splitAndOwnBundleOnceAndRetry, which changes the boundaries only after this step.
"""

RETRY_AFTER_SECONDS = 1.0

UNOWNED = "nobody owns it; for a split the leader would place it, unchecked: lbd place --apply does it first"


class Splitter:
    """Splits single bundles of one cluster."""

    def __init__(self, admin: Admin, clock: ActClock) -> None:
        self._admin, self._clock = admin, clock
        self._ownership = Ownership(admin, clock)

    def boundaries(self, namespace: str) -> tuple[int, ...]:
        """Present boundaries of the namespace's bundles. Raises :class:`UsageError` when there is no namespace.

        Raises :class:`ObserveError` when they cannot be read.
        """
        boundaries = self._admin.boundaries(namespace)
        if boundaries is None:
            raise UsageError(f"{namespace}: the cluster has no such namespace")
        try:
            return parse_boundaries(boundaries)
        except UsageError as error:
            raise ObserveError(f"{namespace}: {error}") from error

    def owner(self, bundle: str, boundaries: tuple[int, ...]) -> str:
        """Owner of a bundle. Raises :class:`UsageError` if it does not exist, :class:`RefusedError` if it has none."""
        namespace, ends = bundle_namespace(bundle), range_in_name(bundle)
        if ends not in pairwise(boundaries):
            raise UsageError(missing(bundle, [f"{namespace}/{range_name(*bounds)}" for bounds in pairwise(boundaries)]))
        owner = self._ownership.owner_within(bundle, OWNER_SECONDS)
        if owner is None:
            raise RefusedError(f"{bundle}: {UNOWNED}")
        return owner

    def check(self, cut: Cut) -> None:
        """Check the split for the last time. Raises :class:`RefusedError`, or the error that prevented the check."""
        owner = self.owner(cut.bundle, self.boundaries(bundle_namespace(cut.bundle)))
        if owner != cut.owner:
            raise RefusedError(f"{cut.bundle}: {owner} owns it, not {cut.owner}; ask again")

    def send(self, cut: Cut, fence: Fence | None = None) -> CutOutcome:
        """Request the split within the ``fence`` that began with its check; after :data:`NOT_ACQUIRED` once more.

        A broker's failure is an outcome with its reason as text, never an error.
        """
        started = self._clock.monotonic()
        fence = fence or Fence(clock=self._clock.boot)
        try:
            outcome = self._request(cut, fence)
            if outcome.result is SplitResult.NOT_SPLIT and NOT_ACQUIRED in outcome.detail:
                outcome = self._request_again(cut, fence, outcome)
        except LbdError as error:
            outcome = CutOutcome(cut, SplitResult.UNKNOWN, detail=str(error))
        return replace(outcome, seconds=self._clock.monotonic() - started)

    def finish(self, cut: Cut, age_seconds: float) -> CutOutcome | None:
        """Outcome of a split that a killed process began so long ago; None while it is open.

        A broker may still be splitting for as long as lbd waits for a response. After twice that time it is UNKNOWN.
        """
        patience = self._admin.settings.read_timeout_seconds
        try:
            result, positions = judged(cut, self.boundaries(bundle_namespace(cut.bundle)))
        except LbdError as error:
            unknown = CutOutcome(cut, SplitResult.UNKNOWN, detail=f"{OPEN_AFTER_RESTART}; {error}")
            return unknown if age_seconds >= 2 * patience else None
        if result is SplitResult.NOT_SPLIT and age_seconds < patience:
            return None
        return self._with_owner(CutOutcome(cut, result, positions, detail=OPEN_AFTER_RESTART))

    def _request_again(self, cut: Cut, fence: Fence, first: CutOutcome) -> CutOutcome:
        self._clock.sleep(RETRY_AFTER_SECONDS)
        try:
            self.check(cut)
        except LbdError as error:
            return _noting(first, f"not sent again: {error}")
        return _noting(self._request(cut, fence), f"the first try: {first.detail}")

    def _request(self, cut: Cut, fence: Fence) -> CutOutcome:
        algorithm, positions = cut.asked_as
        try:
            base = self._admin.base(cut.owner)
            fence.pass_on()
            answer = self._admin.split(
                cut.bundle, algorithm, positions, base, begin_by=fence.until, before_hop=fence.pass_on
            )
        except AdminError as error:
            return self._verify(cut, str(error), PROOF_SECONDS if error.sent else 0.0, in_doubt=error.sent)
        if answer.status == 204:
            return self._verify(cut, "", PROOF_SECONDS)
        return self._verify(cut, f"HTTP {answer.status}{error_reason(answer)}", REFUSED_SECONDS)

    def _verify(self, cut: Cut, message: str, seconds: float, *, in_doubt: bool = False) -> CutOutcome:
        """Outcome by the boundaries; ``in_doubt``: no response came, and a whole range may still be cut later."""
        deadline, pause = self._clock.monotonic() + seconds, FIRST_PAUSE_SECONDS
        while True:
            result, positions = judged(cut, self.boundaries(bundle_namespace(cut.bundle)))
            if result is not SplitResult.NOT_SPLIT or self._clock.monotonic() >= deadline:
                break
            self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        if result is SplitResult.NOT_SPLIT:
            why = message or "the broker answered 204 and did nothing"
            return CutOutcome(cut, SplitResult.UNKNOWN if in_doubt else result, detail=why)
        return self._with_owner(CutOutcome(cut, result, positions, detail=message))

    def _with_owner(self, outcome: CutOutcome) -> CutOutcome:
        """The outcome with its owner. Parts belong to the owner of the whole at first; otherwise a note is added."""
        cut = outcome.cut
        if outcome.result in {SplitResult.NOT_SPLIT, SplitResult.UNKNOWN}:
            return outcome
        try:
            parts = split_parts(cut.bundle, outcome.boundaries)
            missing = [part for part in parts if not self._admin.owns(cut.owner, part)]
        except AdminError as error:
            return _noting(outcome, f"who owns the parts is not known: {error}")
        if missing:
            return _noting(outcome, f"{cut.owner} does not own {', '.join(missing[:3])}")
        return replace(outcome, owner=cut.owner)


def _noting(outcome: CutOutcome, words: str) -> CutOutcome:
    return replace(outcome, detail=f"{outcome.detail}; {words}" if outcome.detail else words)
