"""What the guardrails will predict of each destination, move by move: they would refuse the rest of a plan. Pure.

The strategy's own points say where the brokers will end; the guardrails' are on the safe side where nothing was learned
of a destination itself (``permit/predicted.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lbd.permit.predicted import Predictor

if TYPE_CHECKING:
    from lbd.decide.candidates import Offers
    from lbd.load.scoring import Weights
    from lbd.model import FloatArray


class Foreseen:
    """Predicted scores of one round, advanced by each move; without a limit nothing is refused.

    ``scores`` is float64 (B,), the points of the reports.
    """

    def __init__(self, offers: Offers, scores: FloatArray, weights: Weights) -> None:
        known = offers.permission
        self._offers, self._ids = offers, offers.snapshot.brokers.ids
        self._limit, self._scores, self._predicted = known.max_destination_score, scores, scores.copy()
        self._predictor = Predictor(offers.snapshot, scores, known.slopes, weights)

    def allows(self, bundle: int, source: int, destination: int) -> bool:
        """Whether the destination would stay below the limit, and below what its source has now."""
        if self._limit is None:
            return True
        reached = self._reached(bundle, source, destination)
        return bool(reached <= self._limit and reached < self._scores[source])

    def take(self, bundle: int, source: int, destination: int) -> None:
        """Count a move that is planned."""
        if self._limit is not None:
            self._predicted[destination] = self._reached(bundle, source, destination)

    def _reached(self, bundle: int, source: int, destination: int) -> float:
        before = float(self._predicted[destination])
        unload = self._offers.unload(bundle, (self._ids[source], self._ids[destination]), "")
        return before + self._predictor.rise(unload, before).points
