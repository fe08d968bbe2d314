"""Proposal of a calibration: ``summary.json`` beside ``proposal.yaml``, read by a running lbd and the commands.

The unit and the chart's CronJob calibrate into ``calibration/`` of the state directory, in a folder named by the time.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from pydantic import Field

from lbd.files import At, decoded, refused
from lbd.load.settings import UNIT
from lbd.section import Section
from lbd.text import counted, weekday

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import tzinfo
    from pathlib import Path


CALIBRATION_FOLDER = "calibration"
SUMMARY, PROPOSAL, REPORT = "summary.json", "proposal.yaml", "report.html"
SHOW = "lbd calibrate --show"
_RUN, _RUN_FORMAT = re.compile(r"[0-9]{8}T[0-9]{6}Z"), "%Y%m%dT%H%M%SZ"
"""Folders of the unit and of the CronJob; any other is a person's."""


class CalibrateSettings(Section):
    """How ``lbd calibrate`` weighs what settings do to clients."""

    overload_minutes: float = Field(
        60,
        ge=1,
        le=100_000,
        description="A client's minutes on an overloaded broker that weigh as much as one minute without a connection. "
        "More: proposals move less",
    )


class ChangedSetting(msgspec.Struct, frozen=True):
    """A setting by its key in lbd.yaml, as it was when it was calibrated, and as it is proposed."""

    key: str
    now: Any
    proposed: Any


class ReplayedFigures(msgspec.Struct, frozen=True):
    """Figures of settings in a replay of the days that they were not chosen on; gaps in points.

    ``client_minutes_per_day`` is what they cost clients, by which ``lbd calibrate`` chooses; None where that was not
    measured, as in history and by earlier versions.
    """

    moves_per_day: float
    mean_gap: float
    p95_gap: float
    client_minutes_per_day: float | None = None


OUTGROWN = 1.5
"""A proposal holds for a load like the one that it was chosen on: up to as many times of it, or down to that part."""


UNLIKE = 1.25
"""Times beyond its range in a history from which on CPU for traffic, or the mix of bundles, has changed: in weeks
without a change both stay within a tenth of it (docs/results/calibrate.md)."""


class MeanBroker(NamedTuple):
    """CPU in percent, messages/s and bytes/s (in + out) of the mean broker."""

    cpu_percent: float
    messages_per_second: float
    bytes_per_second: float


class PresentLoad(NamedTuple):
    """The brokers now, and the bytes/s of all, in + out. ``mean`` is the mean broker, None where no CPU is known, and
    ``half_in`` the number of busiest bundles that carry half of the traffic, None before it is known of a day.
    """

    brokers: int
    bytes_per_second: float
    mean: MeanBroker | None = None
    half_in: float | None = None


class CalibratedCpu(msgspec.Struct, frozen=True):
    """CPU of the mean broker by its traffic in a history: ``idle_percent``, and ``slope`` percent for each MB/s, or for
    each 1,000 messages/s where ``measure`` is ``msg_rate``.

    From ``least_traffic`` on, two thirds of what a twentieth of the time exceeds, it was ``lowest`` to ``highest`` of
    that, as a factor, but for one minute in a hundred at each end.
    """

    measure: Literal["throughput", "msg_rate"]
    idle_percent: float
    slope: float
    least_traffic: float
    lowest: float
    highest: float

    def unlike(self, now: MeanBroker) -> str:
        """Clause that says how unlike the present CPU is; empty where it is like it, or traffic is less."""
        in_all = now.messages_per_second if self.measure == "msg_rate" else now.bytes_per_second
        traffic = in_all / UNIT[self.measure]
        expected = self.idle_percent + self.slope * traffic
        if traffic < self.least_traffic or self.lowest / UNLIKE <= now.cpu_percent / expected <= self.highest * UNLIKE:
            return ""
        return f"its traffic takes {now.cpu_percent:.0f} % of CPU, and took {expected:.0f} %"


class CalibratedMix(msgspec.Struct, frozen=True):
    """The ``fewest`` and ``most`` bundles that carried half of a day's traffic, the busiest first."""

    fewest: float
    most: float

    def unlike(self, half_in: float) -> str:
        """Clause that says how unlike the present mix is; empty where it is like it."""
        if self.fewest / UNLIKE <= half_in <= self.most * UNLIKE:
            return ""
        before = " to ".join(dict.fromkeys(f"{number:,.1f}" for number in (self.fewest, self.most)))
        return f"half of the traffic is in {half_in:,.1f} bundles, and was in {before}"


class CalibratedLoad(msgspec.Struct, frozen=True):
    """The load of a history: fewest and most brokers of a day, and the bytes/s of its busiest hour, in + out of all.

    ``cpu`` is what that took, ``mix`` how it was spread over bundles; None where that is not known, as in calibrations
    of earlier versions.
    """

    fewest_brokers: int
    most_brokers: int
    most_bytes_per_second: float
    cpu: CalibratedCpu | None = None
    mix: CalibratedMix | None = None

    def outgrown(self, now: PresentLoad) -> str:
        """Clause that says how unlike the present cluster is; empty where it is like it. A calm hour is like it."""
        if not self.fewest_brokers / OUTGROWN <= now.brokers <= self.most_brokers * OUTGROWN:
            before = " to ".join(map(str, sorted({self.fewest_brokers, self.most_brokers})))
            return f"the cluster has {counted(now.brokers, 'broker')}, and had {before}"
        if now.bytes_per_second > self.most_bytes_per_second * OUTGROWN:
            carried, most = now.bytes_per_second / 1e6, self.most_bytes_per_second / 1e6
            return f"the cluster carries {carried:,.1f} MB/s, and carried {most:,.1f} MB/s at most"
        if self.cpu is not None and now.mean is not None and (why := self.cpu.unlike(now.mean)):
            return why
        return self.mix.unlike(now.half_in) if self.mix is not None and now.half_in is not None else ""


class CalibrationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration ``at`` epoch seconds. ``recommended`` is the name of the proposed settings, None if there are none;
    ``reason`` says why. ``present`` and ``proposed`` are None where nothing was judged, or nothing is recommended.
    ``load`` is what it was made of; None in those of earlier versions.
    """

    format: Literal[1] = 1
    at: At
    recommended: str | None
    reason: str
    changes: list[ChangedSetting]
    present: ReplayedFigures | None
    proposed: ReplayedFigures | None
    load: CalibratedLoad | None = None

    def expired(self, now: PresentLoad | None, zone: tzinfo | None = None) -> str | None:
        """The sentence where the load has changed; ``now`` is None where it is unknown.

        Also where the proposal is in force: it was chosen for another load.
        """
        if self.recommended is None or self.load is None or now is None or not (why := self.load.outgrown(now)):
            return None
        return f"the proposal of {weekday(self.at, zone)} has expired: {why}; calibrate again"

    def in_force(self, settings: object) -> bool:
        """Whether these settings have all proposed values; not where nothing is proposed."""
        return bool(self.changes) and all(_value(settings, change.key) == change.proposed for change in self.changes)

    def gain(self, zone: tzinfo | None = None) -> str:
        """``a proposal of Monday, 2026-11-23 would have cost 3.0 client-minutes a day instead of 5.1, and ...``."""
        day = weekday(self.at, zone)
        if self.present is None or self.proposed is None:
            return f"nothing is recommended since {day}: {self.reason}"
        before, cost = self.present.client_minutes_per_day, self.proposed.client_minutes_per_day
        words = f"a proposal of {day} would have"
        moves = f"made {self.proposed.moves_per_day:.1f} moves a day instead of {self.present.moves_per_day:.1f}"
        if before is None or cost is None:
            return f"{words} {moves}"
        return f"{words} cost {cost:,.1f} client-minutes a day instead of {before:,.1f}, and {moves}"


class MeasuredFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Figures measured over ``seconds`` of history ``since`` epoch seconds, when the proposal came into force."""

    since: At
    seconds: float
    figures: ReplayedFigures


class ShownProposal(msgspec.Struct, frozen=True, kw_only=True):
    """The newest scheduled proposal, whose files are in ``folder``. ``measured`` is null unless it is in force and
    history has a round since; ``expired`` unless the load has changed.
    """

    folder: str
    summary: CalibrationSummary
    in_force: bool
    measured: MeasuredFigures | None
    expired: str | None = None


def scheduled(folder: Path) -> list[Path]:
    """The folders of the unit and of the CronJob, the newest first. Raises :class:`UsageError`."""
    try:
        return sorted((run for run in folder.iterdir() if _RUN.fullmatch(run.name)), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise refused(folder, error, "read") from error


def newest(state_dir: Path, now: float) -> tuple[Path, CalibrationSummary] | None:
    """The folder and summary of the last scheduled calibration that ended until ``now``, epoch seconds; None if there
    is none. One that began or ended later ran while a clock was ahead.

    Raises :class:`UsageError` for a folder or a summary that cannot be read.
    """
    latest = f"{datetime.fromtimestamp(now, UTC):{_RUN_FORMAT}}"
    runs = (run for run in scheduled(state_dir / CALIBRATION_FOLDER) if run.name <= latest)
    summaries = ((run, decoded(run / SUMMARY, CalibrationSummary)) for run in runs)
    return next(((run, summary) for run, summary in summaries if summary is not None and summary.at <= now), None)


def proposal_text(
    state_dir: Path, settings: object, now: float, load: Callable[[], PresentLoad | None] = lambda: None
) -> str | None:
    """The sentence of status, API and dashboard on the newest proposal at ``now``; None if there is none, or it is in
    force and the ``load`` is as it was, which is only looked at where there is one.

    Raises :class:`UsageError` as :func:`newest` does.
    """
    latest = newest(state_dir, now)
    if latest is None or latest[1].recommended is None:
        return None
    expired = latest[1].expired(load())
    if expired is None and latest[1].in_force(settings):
        return None
    return f"{expired or latest[1].gain()}: {SHOW}"


def _value(settings: object, key: str) -> object:
    """A setting by its dotted key; None where this version has no such setting."""
    for name in key.split("."):
        settings = getattr(settings, name, None)
    return settings
