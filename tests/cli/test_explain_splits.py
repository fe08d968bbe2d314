"""``lbd explain`` of bundles that were split, of their parts, and of the turn after which they were."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.store.explain import BundleAnswer, TurnAnswer
from lbd.store.moves import read_splits
from tests.simulate.fakes import run, settings
from tests.simulate.test_fake_pulsar_splits import BIG, big

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lbd.store.moves import SplitRecord

HALVES = [f"simulated/big/{span}" for span in ("0x00000000_0x7fffffff", "0x7fffffff_0xffffffff")]


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SplitRecord:
    """The one bundle of a broker, cut in two by the daemon's rule an hour ago; the state directory is the settings'."""
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path))
    with big(begun_at=time.time() - 3600) as cluster:
        chosen = settings(cluster, tmp_path, split={"enabled": True, "max_splits_per_hour": 1})
        with run(cluster, tmp_path, monkeypatch, chosen) as running:
            running.until(lambda: any(one.end is not None for one in read_splits(tmp_path)))
            running.turns(8)
    return read_splits(tmp_path)[0]


def explain(*words: object) -> Result:
    """One call in this process."""
    return CliRunner().invoke(main, ["explain", *map(str, words)], catch_exceptions=False)


def told(found: Result) -> str:
    """What was printed, with runs of blanks as one."""
    return " ".join(found.stdout.split())


def test_a_bundle_that_was_split(split: SplitRecord) -> None:
    """It is no bundle any more, and its parts are named."""
    found = explain(BIG)
    assert (found.exit_code, found.stderr) == (0, "")
    assert f"because it was split at 0x7fffffff, into {' and '.join(HALVES)}: it is no bundle any more" in told(found)
    assert f"{BIG} on {split.cut.owner}: split, range_equally_divide at 0x7fffffff" in told(found)
    assert "exceeds split.max_msg_rate 30,000" in told(found)


def test_a_part_of_it(split: SplitRecord) -> None:
    """It has an owner, and the split that it came out of is told."""
    found = explain(HALVES[0], "--format", "json")
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert set(answer) == set(BundleAnswer.__struct_fields__)
    assert (answer["owner"], answer["splits"][0]["bundle"]) == (split.cut.owner, BIG)
    assert answer["splits"][0]["parts"] == HALVES
    assert "split at" not in " ".join(answer["because"])


def test_the_turn_after_which_it_was_split(split: SplitRecord) -> None:
    """That turn tells of it, and no other one."""
    answers = [json.loads(explain(number, "--format", "json").stdout) for number in range(1, 9)]
    assert set(answers[0]) == set(TurnAnswer.__struct_fields__)
    telling = [one for one in answers if one["splits"]]
    assert {one["turn"]["turn"] for one in telling} == {telling[0]["turn"]["turn"]}
    assert telling[0]["turn"]["at"] <= split.at
    assert [one["bundle"] for one in telling[0]["splits"]] == [BIG]


@pytest.mark.usefixtures("split")
def test_a_range_that_never_was() -> None:
    """One line, exit 2."""
    found = explain("simulated/big/0x00000000_0x10000000")
    assert (found.exit_code, len(found.stderr.splitlines())) == (2, 1)
