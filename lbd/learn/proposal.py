"""What a person is given: settings with their evidence, the same as broker.conf, and why in plain words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from lbd.config import section_of
from lbd.decide.avg_shedder.settings import AvgShedderSettings
from lbd.learn.candidates import PRESENT
from lbd.learn.choosing import cost, moves_per_day
from lbd.load.linear import CPU, Source
from lbd.load.settings import UNIT
from lbd.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lbd.learn.calibrate import Calibration
    from lbd.learn.candidates import Candidate
    from lbd.learn.choosing import Judged
    from lbd.learn.scoring import Figures
    from lbd.load.linear import LoadModel


def settings_file(found: Calibration) -> str:
    """``proposal.yaml``: what differs from the present settings, with the evidence as comments, and what traffic costs
    each broker that showed it. ``lbd config check`` accepts it; where nothing is recommended no strategy's setting is
    in it.
    """
    lines = [f"# {line}" for line in evidence(found)]
    best = found.recommended
    if best is not None:
        lines += ["", yaml.safe_dump(_changed(best, found.tried[PRESENT]), sort_keys=False).rstrip()]
    known = _load(found.model)
    if known:
        lines += ["", yaml.safe_dump({"load": known}, sort_keys=False).rstrip()]
    return "\n".join(lines) + "\n"


def _changed(best: Candidate, present: Candidate) -> dict[str, Any]:
    """What differs from the present settings; all of another strategy's own where its defaults do not say it."""
    strategy = type(best.settings).name
    same = strategy == type(present.settings).name
    before = (present.settings if same else type(best.settings)()).model_dump(mode="json")
    values = {key: value for key, value in best.settings.model_dump(mode="json").items() if value != before[key]}
    section = {section_of(strategy): values} if values else {}
    return section if same else {"strategy": strategy, **section}


def _load(model: LoadModel) -> dict[str, object]:
    """The ``load:`` section with what brokers' own samples tell, in its units; empty where none tells anything.

    Traffic that costs nothing is told by noise, and no setting.
    """
    brokers = [
        {"broker": broker, "slope": float(f"{model.slope[at, CPU] * UNIT[model.measure]:.4g}")}
        for at, broker in enumerate(model.brokers)
        if model.sources[at][CPU] is Source.FITTED and model.slope[at, CPU] > 0
    ]
    return {"measure": model.measure, "brokers": brokers} if brokers else {}


def broker_conf(found: Calibration) -> str:
    """The same for clusters that balance with the brokers' own AvgShedder."""
    best = found.recommended
    lines = [f"# {line}" for line in evidence(found)]
    if best is not None and not isinstance(best.settings, AvgShedderSettings):
        lines.append(f"# {type(best.settings).name} is lbd's own: brokers do not have it.")
    elif best is not None:
        fields = type(best.settings).model_fields
        present = _before(found)
        for key, value in best.settings.model_dump(mode="json").items():
            extra = fields[key].json_schema_extra
            if value != present[key] and isinstance(extra, dict) and "broker_conf" in extra:
                lines.append(
                    f"{extra['broker_conf']}={value:g}"
                    if isinstance(value, float)
                    else f"{extra['broker_conf']}={value}"
                )
    return "\n".join(lines) + "\n"


def _before(found: Calibration) -> dict[str, Any]:
    """AvgShedder's settings in force, or its defaults where another strategy is."""
    present = found.tried[PRESENT].settings
    return (present if isinstance(present, AvgShedderSettings) else AvgShedderSettings()).model_dump(mode="json")


def evidence(found: Calibration) -> Iterator[str]:
    """Why these numbers, in plain words."""
    yield f"{found.days:.1f} days of history in windows of {found.window_hours:g} h, {len(found.tried)} settings tried."
    yield from _read(found)
    if found.torn:
        yield f"{len(found.torn):,} files could not be read and are left out, the first: {found.torn[0]}."
    yield _model_error(found)
    yield from found.remarks
    yield answer(found)
    for one in found.choice.judged:
        if one.name in {PRESENT, found.choice.best}:
            yield from _judged(one)


def _read(found: Calibration) -> Iterator[str]:
    """What was read and left out."""
    read = found.read
    back = read["rounds_overtaken"]
    twice = read["rounds_read"] - read["rounds_kept"] - back
    yield (
        f"{read['samples_read']:,} samples read, {read['samples_kept']:,} used, {read['samples_doubted']:,} of them "
        f"not trusted; {twice:,} rounds were there twice, {read['gaps']:,} gaps."
    )
    if back:
        yield f"{back:,} rounds are left out: later turns have earlier times, as when a clock was set back."


def answer(found: Calibration) -> str:
    """What is recommended, or that nothing is, and why."""
    choice = found.choice
    if choice.recommended is None:
        return f"Nothing is recommended: {choice.why}."
    return f"Recommended: {choice.recommended}; {choice.why}."


def changes(best: Candidate, present: Candidate) -> list[tuple[str, object, object]]:
    """Each setting that differs, by its name in lbd.yaml: what it is, and what is proposed."""
    strategy, before = type(best.settings).name, present.settings.model_dump(mode="json")
    found: list[tuple[str, object, object]] = []
    if strategy != type(present.settings).name:
        found.append(("strategy", type(present.settings).name, strategy))
    for key, value in best.settings.model_dump(mode="json").items():
        if value != before.get(key):
            found.append((f"{section_of(strategy)}.{key}", before.get(key, "-"), value))
    return found


def _judged(one: Judged) -> Iterator[str]:
    for when, figures in (("chosen on", one.trained), ("judged on", one.held_out)):
        yield f"{one.name}, {when} {figures.days:.1f} replayed days: {told(figures)}"


def told(found: Figures) -> str:
    """Figures in a line."""
    over, twice = a_day(found, found.minutes_over), a_day(found, found.moved_twice)
    return (
        f"{moves_per_day(found):.1f} moves a day, brokers {found.mean_gap:.1f} points apart on average, 95 % of the "
        f"time at most {found.p95_gap:.1f}, worst hour {found.worst_hour_gap:.1f}, {over:.0f} min a day over the "
        f"present threshold, {twice:.1f} bundles a day moved twice, cost {cost(found):.1f} points"
    )


def a_day(found: Figures, total: float) -> float:
    """A sum over all replays of all windows, of a day: some settings were replayed five times, and others once."""
    return total / found.days if found.days else 0.0


def _model_error(found: Calibration) -> str:
    error = found.error
    if not error.number:
        return "No move in this history tells how good the load model is."
    return (
        f"The load model was off by {error.mean_absolute:.1f} points on average ({error.p95:.1f} at most in 95 of 100) "
        f"on {counted(error.number, 'broker')} whose bundles really changed; taking nothing to change errs by "
        f"{error.unchanged_mean_absolute:.1f}."
    )
