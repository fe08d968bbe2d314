"""Error of the load model, measured on moves that really happened. Pure.

For each broker whose bundles changed: the model is fitted to earlier samples (:data:`GROWN`), with the background that
the broker then had; its prediction for the traffic afterwards is compared with the second fresh sample after the
change, the first that was taken wholly with the new bundles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.estimate import CPU, Source, background_as_recorded, driving, scores
from lbd.load.fit import fit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lbd.load.estimate import LoadModel
    from lbd.load.samples import BrokerSamples
    from lbd.load.scoring import Weights


SMALLEST_POINTS = 1.0
"""Smallest predicted change that tests the model."""

BEFORE = 3
"""Samples over which the background before a move is averaged, against the noise of one."""

GROWN = 1.1
"""Growth of the history after which the model is fitted again, so that a long history has few fits."""


@dataclass(frozen=True)
class ModelError:
    """Predicted minus measured scores, in points, over ``number`` brokers whose bundles changed by a point or more.

    ``mean_absolute``, ``p95`` of the absolute, and ``bias`` (above 0: predicted too high) are NaN where ``number`` is
    0. ``unchanged_mean_absolute`` is the error of assuming unchanged scores. ``unpredicted`` changes came before a
    slope was known.
    """

    number: int
    mean_absolute: float
    p95: float
    bias: float
    unchanged_mean_absolute: float
    unpredicted: int


@dataclass(frozen=True)
class _Change:
    """Change of a broker's bundles between two trusted samples, at these positions."""

    broker: str
    before: int
    after: int


def measure(samples: Mapping[str, BrokerSamples], weights: Weights, model: LoadModel | None = None) -> ModelError:
    """Error over all changes in these samples: of this model, else of the one fitted before each of them."""
    model_at = _ModelAtTime(samples) if model is None else lambda _: model
    errors: list[tuple[float, float]] = []
    unpredicted = 0
    for change in sorted(_changes(samples), key=lambda change: float(samples[change.broker].at[change.before])):
        error = _error(samples[change.broker], change, model_at, weights)
        if error is None:
            unpredicted += 1
        elif error[0] >= SMALLEST_POINTS:
            errors.append(error[1:])
    return _summary(np.array(errors).reshape(-1, 2), unpredicted)


class _ModelAtTime:
    """Models by time, requested in the order of time."""

    def __init__(self, samples: Mapping[str, BrokerSamples]) -> None:
        self._samples = samples
        self._at = np.sort(np.concatenate([np.zeros(0), *(own.at for own in samples.values())]))
        self._model: LoadModel | None = None
        self._had = 0

    def __call__(self, at: float) -> LoadModel:
        """The model of that time, or of a little earlier."""
        there = int(np.searchsorted(self._at, at, side="right"))
        if self._model is None or there > GROWN * self._had:
            self._model = fit({broker: own.where(own.at <= at) for broker, own in self._samples.items()})
            self._had = there
        return self._model


def _changes(samples: Mapping[str, BrokerSamples]) -> Iterator[_Change]:
    for broker, own in samples.items():
        trusted = np.flatnonzero(own.trusted)
        for before, after in zip(trusted[:-1].tolist(), trusted[1:].tolist(), strict=True):
            if after > before + 1:
                yield _Change(broker, before, after)


def _error(
    own: BrokerSamples, change: _Change, model_at: Callable[[float], LoadModel], weights: Weights
) -> tuple[float, float, float] | None:
    """Points by which the model moves the score, predicted - measured, and before - measured; None without a slope."""
    model = model_at(float(own.at[change.before])).of([change.broker])
    if model.sources[0][CPU] is Source.UNKNOWN:
        return None
    past = np.flatnonzero(own.trusted[: change.before + 1])[-BEFORE:]
    idle = np.median([background_as_recorded(model, own.used[[row]], own.carried[[row]])[0] for row in past], axis=0)
    now, then = (driving(own.carried[[row]], model.measure) for row in (change.after, change.before))
    predicted = scores(idle + model.slope * now, weights)[0]
    measured, before = scores(own.used[[change.after, change.before]], weights)
    moved = float(scores(np.abs(model.slope * (now - then)), weights)[0])
    return moved, float(predicted - measured), float(before - measured)


def _summary(errors: np.ndarray[tuple[int, int], np.dtype[np.float64]], unpredicted: int) -> ModelError:
    if not len(errors):
        return ModelError(0, np.nan, np.nan, np.nan, np.nan, unpredicted)
    off = np.abs(errors)
    return ModelError(
        number=len(errors),
        mean_absolute=float(off[:, 0].mean()),
        p95=float(np.percentile(off[:, 0], 95)),
        bias=float(errors[:, 0].mean()),
        unchanged_mean_absolute=float(off[:, 1].mean()),
        unpredicted=unpredicted,
    )
