"""What a calibration proposes, in one sentence, and which of several is the one that counts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from lbd.config import Settings
from lbd.daemon.status import present_load
from lbd.errors import UsageError
from lbd.store.calibration import (
    CalibratedCpu,
    CalibratedLoad,
    CalibratedMix,
    CalibrationSummary,
    ChangedSetting,
    MeanBroker,
    PresentLoad,
    ReplayedFigures,
    newest,
    proposal_text,
)
from tests.builders import Usage, bundle, first_averages, report, snapshot, stats

if TYPE_CHECKING:
    from pathlib import Path

MONDAY = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
FIRST, SECOND, THIRD, AHEAD = "20261115T031700Z", "20261122T031700Z", "20261123T031700Z", "20270123T031700Z"


def summary(
    present: tuple[float, float | None] | None = (8.6, 5.1),
    proposed: tuple[float, float | None] | None = (5.9, 3.0),
    low: float = 18.0,
) -> CalibrationSummary:
    """A summary by moves and client-minutes a day."""
    figures = [ReplayedFigures(one[0], 13.0, 20.0, one[1]) if one is not None else None for one in (present, proposed)]
    changes = [ChangedSetting("avg_shedder.low_threshold", 15.0, low)] if proposed is not None else []
    return CalibrationSummary(
        at=MONDAY, recommended="low 18" if proposed is not None else None, reason="of a test", changes=changes,
        present=figures[0], proposed=figures[1],
    )  # fmt: skip


def put(state_dir: Path, run: str, content: CalibrationSummary | bytes | None) -> Path:
    """A folder as the unit leaves it; None: it was killed before it had written."""
    folder = state_dir / "calibration" / run
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "summary.json").write_bytes(content if isinstance(content, bytes) else msgspec.json.encode(content))
    return folder


@pytest.mark.parametrize(
    ("found", "gain"),
    [
        (summary(), "cost 3.0 client-minutes a day instead of 5.1, and made 5.9 moves a day instead of 8.6"),
        (
            summary((0.0, 1300.0), (9.0, 20.5)),
            "cost 20.5 client-minutes a day instead of 1,300.0, and made 9.0 moves a day instead of 0.0",
        ),
        (summary((8.6, None), (5.9, None)), "made 5.9 moves a day instead of 8.6"),
    ],
    ids=["fewer moves", "more moves", "of an earlier version"],
)
def test_the_gain_is_one_sentence(found: CalibrationSummary, gain: str):
    """In client-minutes, by which settings are chosen, and in moves."""
    assert found.gain(UTC) == f"a proposal of Monday, 2026-11-23 would have {gain}"


@pytest.mark.parametrize("found", [summary(proposed=None), summary(None, None)], ids=["nothing", "not judged"])
def test_nothing_recommended_has_its_reason(found: CalibrationSummary):
    """In the same place."""
    assert found.gain(UTC) == "nothing is recommended since Monday, 2026-11-23: of a test"


def test_the_newest_that_ended_counts(tmp_path: Path):
    """Not one that a kill ended, and none in a folder that the unit did not make."""
    put(tmp_path, FIRST, summary(low=17.0))
    put(tmp_path, SECOND, summary())
    put(tmp_path, THIRD, None)
    put(tmp_path, "mine", summary(low=20.0))

    assert newest(tmp_path, MONDAY) == (tmp_path / "calibration" / SECOND, summary())


@pytest.mark.parametrize(("run", "at"), [(AHEAD, MONDAY), (THIRD, MONDAY + 1.0)], ids=["at its start", "at its end"])
def test_one_of_a_clock_that_was_ahead_hides_no_other(tmp_path: Path, run: str, at: float):
    """As of a machine that booted with a wrong clock: until that date no later proposal would be shown."""
    put(tmp_path, SECOND, summary())
    put(tmp_path, run, msgspec.structs.replace(summary(low=20.0), at=at))

    assert newest(tmp_path, MONDAY) == (tmp_path / "calibration" / SECOND, summary())


@pytest.mark.parametrize(
    ("content", "settings", "shown"),
    [
        (summary(), {}, True),
        (summary(), {"avg_shedder": {"low_threshold": 18.0}}, False),
        (summary(), {"avg_shedder": {"low_threshold": 19.0}}, True),
        (summary(proposed=None), {}, False),
    ],
    ids=["not taken", "in force", "other settings", "nothing recommended"],
)
def test_a_proposal_is_shown_until_it_is_in_force(
    tmp_path: Path, content: CalibrationSummary, settings: dict[str, object], shown: bool
):
    """As the sentence of its gain, with the command that shows more."""
    put(tmp_path, FIRST, summary(low=17.0))
    put(tmp_path, SECOND, content)
    found = proposal_text(tmp_path, Settings.model_validate(settings), MONDAY)

    assert found == (f"{content.gain()}: lbd calibrate --show" if shown else None)


BY_BYTES = CalibratedCpu("throughput", idle_percent=10.0, slope=2.0, least_traffic=10.0, lowest=0.96, highest=1.04)
"""50 % of CPU for 20 MB/s of the mean broker: 39 to 65 % are like it."""

BY_MESSAGES = msgspec.structs.replace(BY_BYTES, measure="msg_rate")
MIX = CalibratedMix(20.0, 25.0)
"""16 to 31.25 bundles are like it."""

LOAD = CalibratedLoad(5, 6, 200e6, BY_BYTES, MIX)


def using(cpu_percent: float, mb_per_second: float = 20.0) -> PresentLoad:
    """A cluster whose mean broker uses so much CPU for so much traffic."""
    return PresentLoad(6, 6e6 * mb_per_second, MeanBroker(cpu_percent, 1e3 * mb_per_second, 1e6 * mb_per_second))


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (PresentLoad(6, 120e6), ""),
        (PresentLoad(9, 300e6), ""),
        (PresentLoad(6, 1e6), ""),
        (PresentLoad(10, 200e6), "the cluster has 10 brokers, and had 5 to 6"),
        (PresentLoad(3, 90e6), "the cluster has 3 brokers, and had 5 to 6"),
        (PresentLoad(6, 301e6), "the cluster carries 301.0 MB/s, and carried 200.0 MB/s at most"),
        (using(50), ""),
        (using(64.9), ""),
        (using(65.1), "its traffic takes 65 % of CPU, and took 50 %"),
        (using(38), "its traffic takes 38 % of CPU, and took 50 %"),
        (using(90, 9.9), ""),
        (PresentLoad(6, 120e6, half_in=31.2), ""),
        (PresentLoad(6, 120e6, half_in=31.3), "half of the traffic is in 31.3 bundles, and was in 20.0 to 25.0"),
        (PresentLoad(6, 120e6, half_in=15.9), "half of the traffic is in 15.9 bundles, and was in 20.0 to 25.0"),
    ],
    ids=[
        *("as it was", "half as much again", "a calm hour", "more brokers", "fewer brokers", "more traffic"),
        *("the same CPU", "a quarter more", "more than that", "less CPU", "a calm hour's CPU"),
        *("a similar mix", "more even", "less even"),
    ],
)
def test_a_proposal_expires_with_its_load(tmp_path: Path, now: PresentLoad, why: str):
    """Taken or not: it was chosen for another cluster than this. One of an earlier version does not say for which."""
    put(tmp_path, FIRST, msgspec.structs.replace(summary(), load=LOAD))
    expired = f"the proposal of Monday, 2026-11-23 has expired: {why}; calibrate again: lbd calibrate --show"
    taken = Settings.model_validate({"avg_shedder": {"low_threshold": 18.0}})

    assert proposal_text(tmp_path, taken, MONDAY, lambda: now) == (expired if why else None)
    assert proposal_text(tmp_path, Settings(), MONDAY, lambda: now) == (
        expired if why else f"{summary().gain()}: lbd calibrate --show"
    )
    put(tmp_path, SECOND, summary())
    assert proposal_text(tmp_path, taken, MONDAY, lambda: now) is None


def test_a_cluster_of_always_as_many_brokers():
    """One number, not from 6 to 6."""
    assert CalibratedLoad(6, 6, 1.0).outgrown(PresentLoad(12, 0.0)) == "the cluster has 12 brokers, and had 6"
    assert CalibratedMix(6.0, 6.0).unlike(9.0) == "half of the traffic is in 9.0 bundles, and was in 6.0"


@pytest.mark.parametrize(("messages", "like"), [(20_000, True), (10_000, False)])
def test_where_cpu_follows_messages_it_is_compared_by_them(messages: float, *, like: bool):
    """Half as many, each twice as large, took a third less."""
    assert (not BY_MESSAGES.unlike(MeanBroker(50.0, messages, 20e6))) == like


def test_the_present_load_is_that_of_reports():
    """The mean broker of those whose CPU and traffic are known, and the mix of a day, or none yet."""
    reports = {
        "a:80": report(60.0, {bundle(1): stats(3_000), bundle(2): stats(1_000)}),
        "b:80": report(20.0, {bundle(3): stats(1_000)}),
        "c:80": report(Usage(50.0, -1.0), {bundle(4): stats(1_000)}),
    }
    seen = snapshot(reports)
    young = first_averages(seen)
    settled = replace(young, samples=np.full(4, 1000, dtype=np.int32))
    load = present_load(4, seen, young)

    assert load[:2] == (4, 1.2e6)
    assert load.mean == pytest.approx(MeanBroker(40.0, 5_000.0, 500_000.0))
    assert load.half_in is None
    assert present_load(4, seen, settled) == load._replace(half_in=1.0)
    assert present_load(1, snapshot({"c:80": reports["c:80"]}), young).mean is None


def test_nothing_is_proposed_where_nothing_was_calibrated(tmp_path: Path):
    """Nor where calibrations are switched on and none has ended."""
    assert proposal_text(tmp_path, Settings(), MONDAY) is None
    put(tmp_path, FIRST, None)
    assert proposal_text(tmp_path, Settings(), MONDAY) is None


@pytest.mark.parametrize(
    "content", [b"", b"junk", b'{"format": 1}', msgspec.json.encode(summary()).replace(b'"format":1', b'"format":2')]
)
def test_a_summary_that_cannot_be_read_is_named(tmp_path: Path, content: bytes):
    """Empty, junk, half of it, of a later version."""
    folder = put(tmp_path, FIRST, content)
    with pytest.raises(UsageError, match=f"^{folder}/summary.json: cannot be read: "):
        newest(tmp_path, MONDAY)


def test_a_setting_that_is_none_any_more_is_not_in_force():
    """A proposal of an earlier version may name one."""
    old = CalibrationSummary(
        at=MONDAY, recommended="x", reason="", changes=[ChangedSetting("avg_shedder.relays", 1, 2)], present=None,
        proposed=None,
    )  # fmt: skip
    assert not old.in_force(Settings())
