"""An observer that takes shedding over: only a round with shedding proven off lets a turn move."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.act import override
from lbd.config import Settings
from lbd.daemon import take_over
from lbd.observe.observer import Observer
from lbd.pulsar.admin import Admin
from lbd.simulate.answers import refused
from lbd.store.state import KeptTakeOver
from tests import fake_pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lbd.turn.parts import RoundSource
    from tests.fake_pulsar import FakePulsar

KEY = "loadBalancerSheddingEnabled"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(override, "PATIENCE_SECONDS", 0.2)


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Brokers that shed."""
    with fake_pulsar.hot_broker() as cluster:
        for broker in cluster.brokers:
            broker.runtime = {KEY: "true"}
        yield cluster


def settings_of(pulsar: FakePulsar, folder: Path, **changes: object) -> Settings:
    values = {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": folder, "in_broker_shedding": "take-over"}
    return Settings.model_validate({**values, **changes})


@pytest.fixture
def watcher(pulsar: FakePulsar, tmp_path: Path) -> Iterator[RoundSource]:
    """What a daemon with take-over observes through."""
    settings = settings_of(pulsar, tmp_path)
    observer = Observer(Admin(settings.pulsar), time.time)
    yield take_over.watching(settings, observer, observer.admin)
    observer.close()


def test_refuse_changes_nothing(pulsar: FakePulsar, tmp_path: Path) -> None:
    """The plain observer, which says who sheds."""
    settings = settings_of(pulsar, tmp_path, in_broker_shedding="refuse")
    observer = Observer(Admin(settings.pulsar), time.time)
    found = take_over.watching(settings, observer, observer.admin)
    assert found is observer
    assert len(found.observe().shedding_on) == 3
    assert (pulsar.dynamic, list(tmp_path.iterdir())) == ({}, [])
    observer.close()


def test_shedding_is_off_in_the_round_that_counts(watcher: RoundSource, pulsar: FakePulsar) -> None:
    """The round is had again after the take-over, so that the turn may move at once; the next ones change nothing."""
    seen = watcher.observe()
    assert (seen.shedding_on, seen.shedding_note) == ((), "")
    assert pulsar.dynamic == {KEY: "false"}
    watcher.observe()
    assert len(pulsar.asked(KEY)) == 1


def test_on_again_by_hand(watcher: RoundSource, pulsar: FakePulsar) -> None:
    """Off again in the same turn."""
    watcher.observe()
    pulsar.dynamic = {KEY: "true"}
    assert watcher.observe().shedding_on == ()
    assert pulsar.dynamic == {KEY: "false"}


def test_a_take_over_that_fails_holds_the_turn(watcher: RoundSource, pulsar: FakePulsar) -> None:
    """The first round stays, with who sheds and why that could not be ended."""
    pulsar.fault(KEY, refused(401, "Unauthorized"), method="POST")
    seen = watcher.observe()
    assert seen.shedding_on == tuple(sorted(pulsar.ids))
    assert seen.shedding_note.startswith("take-over failed: POST http://")
    assert "HTTP 401" in seen.shedding_note


def test_one_that_is_not_proven_holds_the_turn(watcher: RoundSource, pulsar: FakePulsar) -> None:
    """Also when those that answer are off: a broker that could not be asked may be the one that sheds."""
    third = pulsar.ids[2]
    pulsar.fault("/runtime", refused(500, "boom"), broker=third)
    first, second = watcher.observe(), watcher.observe()
    assert first.shedding_on == tuple(pulsar.ids[:2])
    assert second.shedding_on == (third,)
    assert "HTTP 500" in second.shedding_note
    pulsar.faults.off()
    assert watcher.observe().shedding_on == ()


def test_last_seen(watcher: RoundSource, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A round that shows all brokers is noted, for who asks since when shedding is off; one with a gap is not."""

    def seen_at() -> float:
        return note.seen_at if (note := KeptTakeOver(tmp_path).load()) is not None else 0.0

    watcher.observe()
    before, later = seen_at(), time.time() + 100
    monkeypatch.setattr(watcher._switch, "_now", lambda: later)  # type: ignore[attr-defined]
    pulsar.fault("/load-report", refused(503, "later"), broker=pulsar.ids[2])
    watcher.observe()
    assert seen_at() == before
    pulsar.faults.off()
    watcher.observe()
    assert seen_at() == later


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"restore_on_stop": True}, None),
        ({}, "false"),
        ({"restore_on_stop": True, "in_broker_shedding": "refuse"}, "false"),
    ],
)
def test_at_a_plain_stop(
    changes: dict[str, object], left: str | None, watcher: RoundSource, pulsar: FakePulsar, tmp_path: Path
) -> None:
    """It stays off, unless restore_on_stop is set."""
    watcher.observe()
    settings = settings_of(pulsar, tmp_path, **changes)
    told = take_over.release_at_stop(settings, Admin(settings.pulsar))
    assert pulsar.dynamic.get(KEY) == left
    assert bool(told) == (left is None)
