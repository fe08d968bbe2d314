"""Names as they are: a library for terminals reads codes of emoji and colours from text, and a name may have one."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.conftest import lbd

EXAMPLE = Path(__file__).parents[2] / "examples" / "hot-broker.jsonl.gz"


@pytest.mark.parametrize(
    ("name", "other", "words"),
    [
        ("simulated/orders/", "simulated/eu:key:prod/", ("--all",)),
        ("broker-4.example:8080", "[fd00::4]:8080", ("--all",)),
    ],
    ids=["a namespace with colons", "a broker by its address of IPv6"],
)
@pytest.mark.parametrize("strategy", ["avg-shedder", "threshold-shedder"])
def test_what_is_printed_is_what_the_next_command_takes(
    name: str, other: str, words: tuple[str, ...], strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """In the table of unloads, and in that of brokers to be relieved, where a strategy has no pairs."""
    config, recording = tmp_path / "lbd.yaml", tmp_path / "recording.jsonl"
    config.write_text(f"strategy: {strategy}")
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path / "state"))
    recording.write_text(gzip.decompress(EXAMPLE.read_bytes()).decode().replace(name, other))
    before = lbd("dry-run", "--recording", EXAMPLE, "--config", config, *words).stdout
    after = lbd("dry-run", "--recording", recording, "--config", config, *words).stdout
    assert before.count(name) == after.count(other) > 0
