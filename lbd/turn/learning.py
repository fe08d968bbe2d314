"""Learn from a live lbd's own turns what traffic costs each broker, for strategies that use it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from lbd.load.effects import NONE as NO_EFFECT
from lbd.load.effects import Effect, effect
from lbd.load.estimate import CPU, Source
from lbd.load.fit import fit
from lbd.load.samples import GO_STALE_SECONDS, IS_SAMPLED, MOST_SAMPLES, MOST_SECONDS, Gathering, percent_used, usual
from lbd.load.settings import NOTHING_KNOWN
from lbd.model import BYTES_IN, BYTES_OUT, IMPOSSIBLE_NUMBER, Slopes
from lbd.permit.predicted import OWN
from lbd.text import HOUR_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.load.estimate import LoadModel, Measure
    from lbd.load.samples import BrokerSamples
    from lbd.load.settings import LoadSettings
    from lbd.model import BoolArray, FloatArray, Snapshot


SAMPLES_PER_BROKER = 240
"""Samples of a broker: four hours of them."""

MORE = 1.1
"""A new fit is made at this multiple of the last fit's samples, and each hour, since a full buffer does not grow."""

SURE = OWN | {Source.UNLIMITED.value}
"""Sources of a slope that need no measured effects of moves beside them."""

CHANGED_SHARE = 0.25
SAMPLES_SECONDS = 120.0
"""A change of a broker's traffic by this share leads to a fit this much later: two samples then show the effect."""


class Learning:
    """Slopes fitted to the rounds so far; a broker that was restarted, or has other limits, begins anew.

    ``settings`` hold the slopes to use where no samples show one; ``samples`` are from before lbd's last restart.
    """

    def __init__(
        self, settings: LoadSettings = NOTHING_KNOWN, samples: Mapping[str, BrokerSamples] | None = None
    ) -> None:
        self.settings = settings
        self._gathering = Gathering(SAMPLES_PER_BROKER, samples)
        self._model: LoadModel | None = None
        self._fitted: tuple[tuple[str, ...], int] = ((), 0)
        self.fitted_at = 0.0
        """Time of the round of the last fit, epoch seconds; 0 before the first one."""
        self._traffic: dict[str, float] = {}
        self._changed_at = inf
        self._effect_of: dict[str, tuple[object, Effect]] = {}

    def __call__(self, snapshot: Snapshot) -> Slopes | None:
        """The slopes with one more round, later than those before; None while none is known."""
        self.take(snapshot)
        return self.known(snapshot)

    def known(self, snapshot: Snapshot) -> Slopes | None:
        """The slopes of this round's brokers, by the rounds so far."""
        self._notice(snapshot)
        sizes, now = self._gathering.sizes(), snapshot.taken_at
        has_settled = now >= self._changed_at + SAMPLES_SECONDS
        if has_settled or self._is_due(sizes, now):
            self._fitted, self.fitted_at = (tuple(sizes), sum(sizes.values())), now
            with np.errstate(all="ignore"):  # absurd numbers of a report must not end a turn
                self._model = fit(self._gathering.samples(), self.settings)
        if has_settled:
            self._changed_at = inf
        current = slopes(self._model, snapshot, self._usual(snapshot))
        return current and replace(current, effect=self._effects(snapshot.brokers.ids, current))

    def _effects(self, brokers: tuple[str, ...], learned: Slopes) -> FloatArray:
        """Measured effects of moves on brokers without a sure slope of their own, float64 (B, 2)."""
        effects = [NO_EFFECT] * len(brokers)
        for row, broker in enumerate(brokers):
            if learned.sources is None or learned.sources[row] not in SURE:
                effects[row] = self._effect(broker, learned.measure)
        return np.array([(effect.slope, effect.deviation) for effect in effects])

    def _effect(self, broker: str, measure: Measure) -> Effect:
        """Computed again only after a new sample, one a minute: for hundreds of brokers it takes its time."""
        version = (self._gathering.version(broker), measure)
        last = self._effect_of.get(broker)
        if version[0] is not None and last is not None and last[0] == version:
            return last[1]
        samples = self._gathering.with_waiting(broker)
        if samples is None:
            return NO_EFFECT
        believable = np.asarray((samples.carried <= IMPOSSIBLE_NUMBER).all(axis=1))
        measured = effect(samples if believable.all() else samples.where(believable), measure)
        self._effect_of[broker] = version, measured
        return measured

    def _usual(self, snapshot: Snapshot) -> tuple[FloatArray, FloatArray]:
        """Percent that each broker used on average lately, float64 (B, 5), and of how many samples, (B,).

        NaN and 0 for a broker whose report is not its newest gathered sample: what happened since is not known.
        """
        since, shown = snapshot.taken_at - MOST_SECONDS, np.where(IS_SAMPLED, percent_used(snapshot), np.nan)
        newest = [self._gathering.latest(broker, MOST_SAMPLES, since) for broker in snapshot.brokers.ids]
        current = [
            np.array_equal(used, np.where(IS_SAMPLED, latest[0], np.nan), equal_nan=True) if latest else False
            for used, latest in zip(shown, newest, strict=True)
        ]
        averages = [usual(latest if is_current else []) for latest, is_current in zip(newest, current, strict=True)]
        return np.array([used for used, _ in averages]), np.array([float(number) for _, number in averages])

    def take(self, snapshot: Snapshot) -> None:
        """Gather the samples of one more round."""
        with np.errstate(all="ignore"):
            self._gathering.take(snapshot)
        self._gathering.forget(snapshot.taken_at - GO_STALE_SECONDS)
        for gone in self._traffic.keys() - self._gathering.sizes().keys() - set(snapshot.brokers.ids):
            del self._traffic[gone]
            self._effect_of.pop(gone, None)

    def samples(self) -> Mapping[str, BrokerSamples]:
        """The samples of each broker."""
        return self._gathering.samples()

    def configure(self, settings: LoadSettings) -> None:
        """Use other settings from the next fit on."""
        self.settings, self._fitted = settings, ((), 0)

    def _is_due(self, sizes: Mapping[str, int], now: float) -> bool:
        """Theil-Sen over hundreds of brokers takes a second: not in every turn."""
        brokers, total = tuple(sizes), sum(sizes.values())
        fitted, last = self._fitted
        is_old = not 0 <= now - self.fitted_at < HOUR_SECONDS
        return brokers != fitted or total >= MORE * max(last, 1) or total < last or is_old

    def _notice(self, snapshot: Snapshot) -> None:
        """Note when some broker first carried a traffic that the last fit did not know."""
        for broker, rates in zip(snapshot.brokers.ids, snapshot.brokers.rates.tolist(), strict=True):
            carries = rates[BYTES_IN] + rates[BYTES_OUT]
            noted = self._traffic.setdefault(broker, carries)
            if abs(carries - noted) > CHANGED_SHARE * max(carries, noted):
                self._traffic[broker] = carries
                self._changed_at = min(self._changed_at, snapshot.taken_at)


def slopes(
    model: LoadModel | None, snapshot: Snapshot, used: tuple[FloatArray, FloatArray] | None = None
) -> Slopes | None:
    """The model's slopes for the brokers of a round, NaN where unknown; None where it knows none of the brokers.

    ``used`` is what each usually uses in percent, float64 (B, 5), and the number of samples behind it, (B,).
    """
    if model is None or set(snapshot.brokers.ids).isdisjoint(model.brokers):
        return None
    learned = set(model.brokers)
    modelled = np.array([broker in learned for broker in snapshot.brokers.ids], dtype=np.bool_)
    own = model.of([broker for broker in snapshot.brokers.ids if broker in learned])
    unknown = np.array([[source is Source.UNKNOWN for source in row] for row in own.sources])
    sources = iter(own.sources)
    return Slopes(
        slope=_rows(modelled, np.where(unknown, np.nan, own.slope), np.nan),
        noise=_rows(modelled, own.noise, np.inf),
        measure=own.measure,
        half_width=_rows(modelled, own.half_width, np.inf),
        background=_rows(modelled, own.background, np.nan),
        background_half_width=_rows(modelled, own.background_half_width, np.inf),
        sources=tuple(next(sources)[CPU].value if has_model else Source.UNKNOWN.value for has_model in modelled),
        usual=None if used is None else used[0],
        samples=None if used is None else used[1],
    )


def _rows(chosen: BoolArray, values: FloatArray, otherwise: float) -> FloatArray:
    """Values (K, 5) of the brokers that are known, among all, (B, 5)."""
    rows = np.full((chosen.size, values.shape[1]), otherwise)
    rows[chosen] = values
    return rows
