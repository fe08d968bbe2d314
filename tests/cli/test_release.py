"""``lbd release`` as people and scripts meet it: one sentence, exit codes, and never against an lbd that runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from lbd.act import override
from lbd.cli import main
from lbd.config import Settings
from lbd.daemon import take_over as taking_over
from lbd.pulsar.admin import Admin
from lbd.store.state import TAKE_OVER, KeptTakeOver, StateDir
from tests import fake_pulsar
from tests.builders import put_value, state_begun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from click.testing import Result

    from tests.fake_pulsar import FakePulsar

KEY = "loadBalancerSheddingEnabled"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(override, "PATIENCE_SECONDS", 0.2)


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """Brokers that shed by an override."""
    with fake_pulsar.started() as cluster:
        cluster.dynamic = {KEY: "true"}
        yield cluster


def config_of(folder: Path, cluster: FakePulsar, **changes: Any) -> Path:
    values = {"pulsar": {"admin_urls": cluster.urls}, "state_dir": str(folder / "state")}
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({**values, "in_broker_shedding": "take-over", **changes}), encoding="utf-8")
    return path


def take_over(config: Path) -> None:
    """What an lbd that has run since has done."""
    settings = Settings.model_validate(yaml.safe_load(config.read_text()))
    state_begun(settings.state_dir)
    taking_over.shedding_switch(settings, Admin(settings.pulsar)).take_over()


def release(config: Path) -> Result:
    return CliRunner().invoke(main, ["release", "--config", str(config)], catch_exceptions=False)


@pytest.mark.parametrize("mode", ["take-over", "refuse"])
def test_it_is_given_back_once(mode: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Also after take-over was taken out of the settings; the second time there is nothing to do."""
    take_over(config_of(tmp_path, pulsar))
    assert pulsar.dynamic == {KEY: "false"}
    config = config_of(tmp_path, pulsar, in_broker_shedding=mode)
    first, second = release(config), release(config)

    assert (first.exit_code, first.stderr) == (0, "")
    assert first.stdout == f"Given back: {KEY} is overridden with true again, as before lbd.\n"
    assert pulsar.dynamic == {KEY: "true"}
    assert second.exit_code == 0
    assert second.stdout.startswith("Nothing to give back: ")


@pytest.mark.parametrize("mode", ["take-over", "refuse"])
def test_nothing_was_taken_over(mode: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """It says so, exit 0, asks no broker and leaves no state directory behind."""
    found = release(config_of(tmp_path, pulsar, in_broker_shedding=mode))
    assert found.exit_code == 0
    assert found.stdout.startswith("Nothing to give back: ")
    assert (pulsar.requests, (tmp_path / "state").exists()) == ([], False)


@pytest.mark.parametrize("taken", [True, False])
def test_an_lbd_that_runs_is_not_fought(taken: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Exit 4, and what to do first; nothing is changed."""
    config = config_of(tmp_path, pulsar)
    if taken:
        take_over(config)
    before = dict(pulsar.dynamic)
    with StateDir(tmp_path / "state").locked():
        found = release(config)
    assert found.exit_code == 4
    assert f"another lbd (process {os.getpid()}) works on this state directory; stop it before lbd rel" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert pulsar.dynamic == before


def test_a_cluster_that_cannot_be_reached(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Exit 3 and one line; the note is kept for the next try."""
    config = config_of(tmp_path, pulsar)
    take_over(config)
    for broker in pulsar.ids:
        pulsar.kill(broker)
    found = release(config)
    assert found.exit_code == 3
    assert len(found.stderr.splitlines()) == 1
    assert KeptTakeOver(tmp_path / "state").load() is not None


def test_a_note_that_cannot_be_read(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Exit 2, where it is, and what to do by hand."""
    config = config_of(tmp_path, pulsar)
    put_value(tmp_path / "state", TAKE_OVER, b"junk")
    found = release(config)
    assert found.exit_code == 2
    assert f"forgets it; before that set or delete the override of {KEY} by hand" in found.stderr


def test_a_token_is_not_told(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Neither when it is refused."""
    (tmp_path / "token").write_text("top-secret")
    config = config_of(tmp_path, pulsar)
    take_over(config)
    pulsar.authorization = "Bearer another"
    urls = {"admin_urls": pulsar.urls, "token_file": str(tmp_path / "token")}
    found = release(config_of(tmp_path, pulsar, pulsar=urls))
    assert (found.exit_code, "top-secret" in found.output) == (3, False)
    assert "HTTP 401" in found.stderr


def test_of_several_another_one_may_have_the_note(pulsar: FakePulsar, tmp_path: Path) -> None:
    """Who gives shedding back on the wrong machine is told of the right one, and only there."""
    service = {"admin_urls": pulsar.urls, "service_url": "pulsar://127.0.0.1:6650"}
    config = config_of(tmp_path, pulsar, leader={"enabled": True}, pulsar=service)
    nothing = release(config)
    take_over(config)
    given = release(config)
    assert nothing.stdout.endswith(
        "Of several lbds the one that led then has the note: run lbd release on its machine.\n"
    )
    assert "Of several lbds" not in given.stdout
