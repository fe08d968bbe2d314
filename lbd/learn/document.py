"""The result of a calibration as a document, from which the text of the command and its JSON are printed. Pure."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.learn.quality import QualityCheck
from lbd.learn.replay import Figures
from lbd.learn.report import answer, caveats, evidence, summary
from lbd.store.calibration import CalibrationSummary
from lbd.store.history import utc_day
from lbd.text import DAY_SECONDS, HOUR_SECONDS

if TYPE_CHECKING:
    from lbd.learn.calibrate import Calibration
    from lbd.learn.prediction import PredictedEffect


class LearnedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history that was learned from: ``days`` that it covers without those left out, hours of a window, samples
    read and used, and the first file that was left out.
    """

    days: float
    window_hours: float
    samples_read: int
    samples_used: int
    first_file_left_out: str | None


class LeftOutDay(msgspec.Struct, frozen=True):
    """A day (UTC) that is left out: the ``share`` of ``record`` that it lacks."""

    day: str
    share: float
    record: str


class ClaimedEffect(msgspec.Struct, frozen=True):
    """Excess of the best settings over the present ones next week: the mean, the ends of the interval (null where there
    is none), and the number of independent days behind it.
    """

    mean: float
    low: float | None
    high: float | None
    days: float


class TriedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that were replayed, as in lbd.yaml: figures on the days to choose on, and on those to judge on (null:
    not on the shortlist). ``front``: of all that were tried none had both fewer moves and a smaller gap.
    """

    name: str
    front: bool
    settings: dict[str, Any]
    chosen_on: Figures
    judged_on: Figures | None


class CalibrationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``lbd calibrate``. ``summary`` is the file summary.json. ``answer`` is the recommendation in words,
    ``caveats`` come before it, and ``evidence`` is all that ``--explain`` prints. ``effects`` are those of the settings
    that did best, by measure; ``refused`` names settings that do worse in an incident, and how.
    """

    summary: CalibrationSummary
    answer: str
    caveats: list[str]
    evidence: list[str]
    effects: dict[str, ClaimedEffect]
    refused: dict[str, str]
    history: LearnedHistory
    left_out_days: list[LeftOutDay]
    checks: list[QualityCheck]
    tried: list[TriedSettings]

    def lines(self, *, explained: bool) -> list[str]:
        """The text of the command: the answer, with its caveats or with all evidence before it."""
        return self.evidence if explained else [*self.caveats, self.answer]


def document(calibration: Calibration, at: float) -> CalibrationDocument:
    """The document of a calibration that ended ``at`` epoch seconds."""
    choice, history = calibration.choice, calibration.history
    return CalibrationDocument(
        summary=summary(calibration, at),
        answer=answer(calibration),
        caveats=list(caveats(calibration)),
        evidence=list(evidence(calibration)),
        effects={measure: _claimed(effect) for measure, effect in choice.effects.items()},
        refused=dict(choice.refused),
        history=LearnedHistory(
            days=history.days,
            window_hours=history.seconds / HOUR_SECONDS,
            samples_read=history.read.samples_read,
            samples_used=history.read.samples_kept,
            first_file_left_out=next(iter(history.torn), None),
        ),
        left_out_days=[LeftOutDay(utc_day(lost.day * DAY_SECONDS), lost.share, lost.what) for lost in history.lost],
        checks=list(history.checks),
        tried=[
            TriedSettings(
                name=judged.name,
                front=judged.front,
                settings=calibration.tried[judged.name].values,
                chosen_on=judged.trained,
                judged_on=judged.held_out,
            )
            for judged in choice.judged
        ],
    )


def _claimed(effect: PredictedEffect) -> ClaimedEffect:
    low, high = (value if isfinite(value) else None for value in (effect.low, effect.high))
    return ClaimedEffect(effect.mean, low, high, effect.days)
