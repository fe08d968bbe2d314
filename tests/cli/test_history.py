"""``lbd history export`` and ``import``: recordings become history, and history recordings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.store.state import StateDir

RECORDING = Path(__file__).parents[1] / "data" / "hot-broker.jsonl"


def lbd(*words: object, state: Path | None = None) -> tuple[int, str, str]:
    """Exit code, what was printed, and what was said."""
    environ = {"LBD_STATE_DIR": str(state)} if state else {}
    found = CliRunner(env=environ).invoke(main, [str(word) for word in words])
    return found.exit_code, found.stdout, found.stderr


def unloads(recording: Path) -> list[object]:
    """What a replay of it would have moved."""
    code, out, _ = lbd("replay", recording, "--format", "json", "--set", "hit_count_high=1", "--set", "hit_count_low=2")
    assert code == 0
    return [json.loads(line)["unloads"] for line in out.splitlines()]


def test_there_and_back(tmp_path: Path):
    """A replay of what comes back unloads the same bundles in the same rounds."""
    root, back = tmp_path / "history", tmp_path / "back.jsonl.gz"
    assert lbd("history", "import", "--history", root, RECORDING) == (0, "", f"9 rounds in {root}\n")
    assert lbd("history", "export", "--history", root, back) == (0, "", f"9 rounds in {back}\n")
    assert any(unloads(RECORDING))
    assert unloads(back) == unloads(RECORDING)


def test_the_state_directorys_own_is_the_default(tmp_path: Path):
    """As lbd run writes it."""
    assert lbd("history", "import", RECORDING, state=tmp_path)[0] == 0
    assert lbd("history", "export", tmp_path / "back.jsonl", state=tmp_path)[0] == 0


@pytest.mark.parametrize("before", [0, 1, 2], ids=["lbd", "history", "export"])
def test_settings_stand_before_and_after_each_word(tmp_path: Path, before: int):
    """A history must not come from, or go to, another place than the one that was named."""
    words: list[object] = ["history", "export"]
    words[before:before] = ["--config", tmp_path / "absent.yaml"]
    code, _, told = lbd(*words, tmp_path / "out.jsonl")
    assert (code, "absent.yaml: cannot be read" in told) == (2, True)


def test_not_beside_a_running_lbd(tmp_path: Path):
    """Two writers would pack the same day."""
    with StateDir(tmp_path).locked():
        code, _, told = lbd("history", "import", RECORDING, state=tmp_path)
    assert code == 4
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["export", "{tmp}/x.jsonl"], "/history: no history between these times; lbd run keeps it where"),
        (["export", "{tmp}/junk.jsonl", "--since", "5x"], "'5x'"),
        (["import", "{tmp}/none.jsonl"], "/none.jsonl: cannot be read: No such file or directory"),
        (["import", "{tmp}/empty.jsonl"], "/empty.jsonl: no rounds in it; a round is a line with t and reports"),
        (["import", "{tmp}/junk.jsonl"], "/junk.jsonl:1: not a line of a recording: "),
    ],
)
def test_what_cannot_be(tmp_path: Path, words: list[str], told: str):
    """Exit 2, and what was seen."""
    (tmp_path / "junk.jsonl").write_text("{")
    (tmp_path / "empty.jsonl").write_text("")
    code, out, err = lbd("history", *(word.format(tmp=tmp_path) for word in words), state=tmp_path / "state")
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_an_existing_file_is_kept(tmp_path: Path):
    """Exit 2."""
    lbd("history", "import", RECORDING, state=tmp_path)
    (tmp_path / "x.jsonl").write_text("mine")
    code, _, err = lbd("history", "export", tmp_path / "x.jsonl", state=tmp_path)
    assert (code, err) == (2, f"Error: {tmp_path / 'x.jsonl'}: exists already; name a new file\n")
    assert (tmp_path / "x.jsonl").read_text() == "mine"
