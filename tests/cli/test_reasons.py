"""Wherever a person acts, ``--reason`` says why, and it is kept where the act is kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from lbd.cli import COMMANDS, main
from tests import fake_pulsar
from tests.cli.conftest import lbd
from tests.cli.test_preview_is_act import NEW, configured
from tests.fake_pulsar import COLD, HOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

ACTS = {"pause", "resume", "apply", "unload", "place", "split", "drain", "fill", "rollout"}
"""Commands by which a person changes what lbd or the cluster does."""

OTHERS = {
    "run": "the daemon: nobody acts but lbd",
    "release": "restores what a take-over stored, and keeps nothing of its own; lbd does not run then",
    **dict.fromkeys(("dry-run", "plan", "doctor", "status", "explain", "capacity", "history"), "shows"),
    **dict.fromkeys(("record", "replay", "simulate", "demo", "compare", "calibrate"), "changes no cluster"),
    "config": "shows",
}
"""All others, each with why it has no ``--reason``."""


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker, a warm and a cold one, and a bundle that nobody owns."""
    with fake_pulsar.hot_broker() as cluster:
        cluster.own(None, {NEW: 0.0})
        yield cluster


def test_every_command_that_acts_takes_a_reason() -> None:
    """A new command has to be put into one of the tables."""
    assert {*ACTS, *OTHERS} == set(COMMANDS)
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--reason" in options) is (name in ACTS), name
        assert name in ACTS or not options & {"--apply", "--override"}, name


@pytest.mark.parametrize(
    "words",
    [
        ("unload", HOT[0], "--to", "COLD"),
        ("place", NEW),
        ("drain", "COLD"),
        ("fill", "COLD"),
        ("apply",),
    ],
    ids=lambda words: words[0],
)
def test_the_reason_stands_with_each_move_in_the_history(
    pulsar: FakePulsar, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """In one line, whatever was typed."""
    config = configured(pulsar, tmp_path)
    if words == ("apply",):
        words = "apply", json.loads(lbd("plan", "--format", "json", "--config", config).stdout)["id"]
    else:
        words = *words, "--apply"
    command = [pulsar.ids[2] if word == "COLD" else word for word in words]
    found = lbd(*command, "--reason", "new\ndisk", "--config", config)
    assert found.exit_code == 0, found.output
    moves = json.loads(lbd("history", "--format", "json", "--config", config).stdout)
    moves = moves["moves"] if isinstance(moves, dict) else moves
    assert moves
    for move in moves:
        assert ": new disk" in move["reason"], move


@pytest.mark.parametrize(
    "words",
    [("unload", COLD), ("place", NEW), ("split", COLD), ("drain", "b:80"), ("fill", "b:80")],
    ids=lambda words: words[0],
)
def test_a_preview_takes_no_reason(pulsar: FakePulsar, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Nothing is done that could have one."""
    found = lbd(*words, "--reason", "x", "--config", configured(pulsar, tmp_path))
    assert (found.exit_code, "--reason" in found.stderr) == (2, True)
