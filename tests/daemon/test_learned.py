"""What a live lbd learns of brokers, over its own restarts and theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.config import Settings
from lbd.doctor import own_state as checks
from lbd.doctor.survey import Survey
from lbd.load.estimate import CPU
from lbd.operations import parts
from lbd.operations.parts import Learned, stored_learning
from lbd.store.database import STORE_NAME
from lbd.store.state import load_samples
from tests.builders import TAKEN_AT
from tests.load.histories import THREE, TRUE_SLOPE, WAVE, rounds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.model import Slopes, Snapshot

TRUE = TRUE_SLOPE / np.array([1, 1, 2])
MINUTES = 150
NOISY = [*THREE["brokers"][:1], {**THREE["brokers"][1], "background": 60}, *THREE["brokers"][2:]]


@pytest.fixture(scope="module")
def history() -> list[Snapshot]:
    """Three brokers under a wave of traffic, one of them with a neighbour of 60 points."""
    low = {**THREE["load"][0], "mib_per_second": 120, "shape": WAVE}
    return list(rounds(MINUTES, {**THREE, "brokers": NOISY, "load": [low]}))


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.time, "time", lambda: TAKEN_AT + 60.0 * MINUTES)


def lived(folder: Path, history: list[Snapshot], **load: Any) -> Settings:
    """An lbd that saw this and was stopped; its settings."""
    settings = Settings.model_validate({"state_dir": folder, "load": load})
    learning = Learned(settings, history[0].taken_at)
    for one in history:
        learning(one)
    learning.saved.close()
    assert learning.saved.trouble == ""
    return settings


def later(seen: Snapshot, **changes: Any) -> Snapshot:
    """The same a minute later, with some columns of the brokers changed."""
    return replace(seen, taken_at=seen.taken_at + 60, brokers=replace(seen.brokers, **changes))


def known(slopes: Slopes | None) -> list[bool]:
    assert slopes is not None
    return np.isfinite(slopes.slope[:, CPU]).tolist()


def test_a_restart_of_lbd_forgets_nothing(history: list[Snapshot], tmp_path: Path):
    """The first round after it knows each slope within a tenth."""
    settings = lived(tmp_path, history)
    found = Learned(settings, history[-1].taken_at + 30)(later(history[-1]))

    assert found is not None
    assert found.slope[:, CPU] == pytest.approx(TRUE, rel=0.1)
    assert found.sources == ("fitted",) * 3


@pytest.mark.parametrize(
    ("changed", "still"),
    [
        (lambda one: later(one, started_at=np.array([one.taken_at - 5, *one.brokers.started_at[1:]])), 2),
        (lambda one: later(one, limit=one.brokers.limit * np.array([[4], [1], [1]])), 2),
        (later, 3),
    ],
    ids=["a broker was restarted", "a broker has more CPU", "nothing happened"],
)
def test_other_machines_begin_anew(
    changed: Callable[[Snapshot], Snapshot], still: int, history: list[Snapshot], tmp_path: Path
):
    """What the others tell stands in for it, and it is said where a slope comes from."""
    settings = lived(tmp_path, history)
    found = stored_learning(settings)(changed(history[-1]))

    assert found is not None
    assert found.sources is not None
    assert found.sources.count("fitted") == still


def test_samples_go_to_disk_now_and_then(history: list[Snapshot], tmp_path: Path):
    """A kill -9 loses five minutes at most."""
    learning = Learned(Settings(state_dir=tmp_path), history[0].taken_at)
    for one in history[:40]:
        learning(one)
    kept = load_samples(tmp_path, history[40].taken_at)

    assert {own.at.max() >= history[39].taken_at - 420 for own in kept.values()} == {True}


def test_a_command_beside_the_daemon_knows_as_many_brokers(history: list[Snapshot], tmp_path: Path):
    """lbd doctor said "known of 1 of 6 brokers" for minutes, where lbd status said 2."""
    settings = Settings(state_dir=tmp_path)
    learning = Learned(settings, history[0].taken_at)
    for one in history[:60]:
        fitted = learning(one)
        assert known(stored_learning(settings)(one)) == known(fitted)


def test_a_full_disk_stops_no_learning(history: list[Snapshot], tmp_path: Path):
    """It is told, and told no more when it is over."""
    folder = tmp_path / "state"
    folder.write_text("in the way")
    learning = Learned(Settings(state_dir=folder), history[0].taken_at)
    for one in history[:60]:
        found = learning(one)
    assert any(known(found))
    assert learning.saved.trouble.startswith(
        f"what was learned of brokers is not kept: {folder / STORE_NAME}: cannot be opened"
    )

    folder.unlink()
    folder.mkdir()
    learning(later(history[60], usage=history[60].brokers.usage))
    learning.saved.close()
    for one in history[61:67]:
        learning(one)
    assert learning.saved.trouble == ""


def test_other_settings_hold_from_the_next_round_on(history: list[Snapshot], tmp_path: Path):
    """With what was learned before."""
    learning = Learned(Settings(state_dir=tmp_path), history[0].taken_at)
    found = [learning(one) for one in history[:3]][-1]
    assert not any(known(found))

    given = {"measure": "throughput", "brokers": [{"broker": ".*", "slope": 1}]}
    learning.configure(Settings.model_validate({"state_dir": tmp_path, "load": given}).load)
    assert all(known(learning(history[3])))


def findings(settings: Settings, seen: Snapshot) -> list[tuple[str, str]]:
    survey = Survey(settings, seen.taken_at, None)
    return [(one.level, f"{one.check}: {one.seen}") for one in checks.check_learned(survey, seen)]


def test_the_doctor_names_a_neighbour_and_an_unlike_broker(history: list[Snapshot], tmp_path: Path):
    """The second broker has 60 points of a neighbour's, the third half of the others' slope."""
    found = dict(reversed(pair) for pair in findings(lived(tmp_path, history), later(history[-1])))
    (neighbour,) = (one for one in found if one.startswith("background"))
    unlike = [one for one in found if one.startswith("unlike-brokers")]

    assert found["load-model: known of 3 of 3 brokers"] == "ok"
    assert neighbour.startswith("background: a co-located process on b:8080 uses 4")
    assert found[neighbour] == "warning"
    assert "unlike-brokers: c:8080: the same traffic takes 0.5 times the CPU of the others" in unlike


def test_a_capacity_that_is_known_is_no_news(history: list[Snapshot], tmp_path: Path):
    """Nor is an unlike broker a warning where moves are sized by slopes; an entry that names nobody is."""
    brokers = [{"broker": "c", "capacity": 2}, {"broker": "d-.*", "capacity": 2}]
    settings = lived(tmp_path, history, brokers=brokers)
    found = findings(settings, later(history[-1]))
    by_points = findings(settings.model_copy(update={"strategy": "least-moves", "load": Settings().load}), history[-1])

    assert not [told for _, told in found if told.startswith("unlike-brokers")]
    assert {level for level, told in by_points if told.startswith("unlike-brokers")} == {"ok"}


def test_without_a_state_directory_the_doctor_says_so(history: list[Snapshot], tmp_path: Path):
    """What counts instead, and what would make it known; it is made for nothing."""
    ((level, told),) = findings(Settings(state_dir=tmp_path / "gone"), history[0])

    assert level == "warning"
    assert told.startswith("load-model: not checked: known of 0 of 3 brokers, not yet of ")
    assert not (tmp_path / "gone").exists()
