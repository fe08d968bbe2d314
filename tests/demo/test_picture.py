"""The picture of the demo at many moments, widths and heights, drawn from what real turns said."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from lbd.cli.demo_picture import Frame, gap_text, picture, short_bundle
from lbd.config import Settings
from lbd.demo import DemoProgress
from lbd.model import Outcome, Result, Unload
from lbd.simulate.run import BEGUN_AT, Simulation
from lbd.simulate.scenario import load, settled
from lbd.turn.record import turn_record

MINUTES = (0.0, 0.25, 0.5, 6.5, 10.0)
"""At first, moves begun, moves landed, hits almost full, balanced."""


@cache
def frames(name: str = "demo", until: float = 10.0) -> dict[float, Frame]:
    """The moments of a run by their minute."""
    scenario = load(name)
    settings = settled(scenario, Settings(interval_seconds=15), {})
    seen, found = DemoProgress(), {}
    for turned in Simulation(scenario, settings, 1).turns():
        at = BEGUN_AT + turned.seconds
        for outcome in turned.record.moves.outcomes:
            seen = seen.ended(outcome, at)
        seen = seen.turned(turn_record(turned.record, at))
        found[turned.seconds / 60] = Frame(seen, at, BEGUN_AT, 12.0, 30.0, scenario.about, settings)
        if turned.seconds >= until * 60:
            break
    return found


def drawn(frame: Frame, width: int = 80, height: int = 24, *, colour: bool = False) -> list[str]:
    """The lines of a picture."""
    system = "truecolor" if colour else None
    console = Console(width=width, height=height, force_terminal=colour, color_system=system, record=True)
    with console.capture() as captured:
        console.print(picture(frame, width, height))
    return captured.get().splitlines()


def line(lines: list[str], start: str) -> str:
    """The first line with this start."""
    return next(one for one in lines if one.strip().startswith(start))


def test_before_the_first_turn():
    """It says what comes."""
    frame = Frame(DemoProgress(), BEGUN_AT, BEGUN_AT, 12.0, 60.0, "Six brokers.", Settings())
    assert drawn(frame)[-1] == "the brokers start; lbd's first turn comes"


def test_what_happens_and_why_is_there_at_once():
    """Who is hot, which pair is compared, how its hits fill, and what lbd waits for."""
    lines = drawn(frames()[0.0])
    assert line(lines, "broker-1:8080").split()[1] == "85.2"
    assert "■□□□□□□□ 1 of 8  ■□ 1 of 2    waiting" in line(lines, "broker-1 -> broker-6")
    assert line(lines, "verdict").startswith(
        "verdict  waiting for 1 more fresh sample: broker-1 -> broker-6 55.1 points"
    )
    assert line(lines, "highest") == "highest - lowest: 55.1 points at first, 55.1 now (balanced below 15)"
    assert "A pair 15 points apart for 8 CPU samples, or 40 for 2, is levelled." in lines
    assert not any("moves:" in one for one in lines)


def test_moves_as_they_go():
    """They wait, are sent, and land."""
    frame = frames()[0.25]
    first = frame.progress.moves[0].bundle
    lines = drawn(replace(frame, flying=frozenset({first})))
    assert line(lines, "verdict") == "verdict  moving: 5 begun"
    assert "moves: 5 planned, 0 landed" in lines
    assert "■■ 2 of 2    fires" in line(lines, "broker-1 -> broker-6")
    assert f"broker-1 -> broker-6  sent   {first}" in lines
    assert sum("waits" in one for one in lines) == 4
    assert sum("landed in 0.15 s" in one for one in drawn(frames()[0.5], 80, 26)) == 5


def test_where_load_went():
    """Bars show by how much a broker has less or more than at first; balanced brokers need no pairs."""
    lines = drawn(frames()[10.0])
    assert "░░░" in line(lines, "broker-1:8080")
    assert "▓▓▓" in line(lines, "broker-6:8080")
    assert line(lines, "verdict").startswith("verdict  balanced: largest difference")
    assert not any(one.startswith("pair") for one in lines)


def test_a_miss_is_told_in_full():
    """Where it landed instead stands there, not only that it did not land."""
    unload = Unload("t/n/0x00000000_0xffffffff", "broker-1:8080", "broker-6:8080", 1.0, 1.0)
    missed = Outcome(unload, Result.ELSEWHERE, "broker-2:8080", "broker-2:8080 owns it", seconds=0.4)
    frame = frames()[10.0]
    lines = drawn(replace(frame, progress=frame.progress.ended(missed, frame.now)), 140, 40)
    assert any("landed-elsewhere in 0.40 s; broker-2:8080 owns it" in one for one in lines)


@pytest.mark.parametrize("minute", MINUTES)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (76, 24), (60, 24), (50, 20), (200, 60)])
def test_it_fits(minute: float, width: int, height: int):
    """No line is wider, and no picture higher, than the terminal; every broker is there."""
    lines = drawn(frames()[minute], width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    assert sum(":8080 " in one for one in lines) >= 6


@pytest.mark.parametrize("minute", MINUTES)
@pytest.mark.parametrize("width", [60, 80])
def test_no_line_ends_inside_a_word_or_before_the_reason(minute: float, width: int):
    """What the last turn said stands there to its end, and of each bundle enough to tell which it is."""
    frame = frames()[minute]
    lines = drawn(frame, width, 30)
    assert not [one for one in lines if "…" in one]
    text = " ".join(" ".join(lines).split())
    for said in (frame.progress.sentences[-1].sentence, gap_text(frame.progress, frame.settings)):
        assert said.replace(frame.end, "") in text
    shown = [one.split()[-1] for one in lines if " landed in " in one]
    bundles = {move.bundle for move in frame.progress.moves}
    short = {short_bundle(bundle) for bundle in bundles}
    assert len(short) == len(bundles)
    assert set(shown) <= (bundles if width == 80 else short)


@pytest.mark.parametrize("minute", MINUTES)
def test_colour_changes_no_word(minute: float):
    """Who sees none reads the same."""
    from rich.text import Text

    coloured = [Text.from_ansi(one).plain.rstrip() for one in drawn(frames()[minute], colour=True)]
    assert coloured == [one.rstrip() for one in drawn(frames()[minute])]


def test_two_hundred_brokers():
    """The most and the least loaded are shown, the others counted."""
    frame = frames("hundred-new", 1.0)[1.0]
    lines = drawn(frame, 100, 30)
    assert len(lines) < 30
    shown = [one.split(":")[0] for one in lines if ":8080  " in one and "->" not in one]
    half = len(shown) // 2
    assert f"… {200 - len(shown)} more" in [one.strip() for one in lines]
    assert {name[:3] for name in shown[:half]} == {"hot"}
    assert {name[:3] for name in shown[-half:]} == {"new"}
    assert any(one.startswith("… ") and one.endswith(" more pairs") for one in lines)


def test_what_a_report_says_does_not_steer_the_terminal():
    """Control characters of an error are spaces."""
    frame = frames()[0.0]
    assert frame.progress.last is not None
    import msgspec

    last = msgspec.structs.replace(frame.progress.last, error="broken \x1b[2J here")
    assert "verdict  broken  [2J here" in drawn(replace(frame, progress=replace(frame.progress, last=last)))


def test_the_readme_shows_this_picture():
    """Its first screen is what the demo draws: the same headings, brokers and pairs."""
    shown = (Path(__file__).parents[2] / "README.md").read_text().split(".venv/bin/lbd demo\n", 1)[1]
    lines = [one.removeprefix("    ") for one in shown.splitlines()[1:23]]
    drawn_lines = [_any_name(one) for one in drawn(frames()[0.25])]
    assert lines[0].startswith("lbd demo: the real lbd, a simulated cluster")
    assert [_any_name(one) for one in lines[1:3]] == drawn_lines[1:3]
    for heading in (
        "broker score ░ less ▓ more MB/s bundles",
        "pair apart samples 15+ samples 40+",
        "verdict moving: 5 begun",
    ):
        assert heading in map(_any_name, lines)
        assert heading in drawn_lines
    assert _any_name(line(lines, "highest")) == line(drawn_lines, "highest")
    assert [_any_name(one) for one in lines if "->" in one][:2] == [one for one in drawn_lines if "->" in one][:2]


def _any_name(line: str) -> str:
    """Without what differs between a broker of the simulation and its address in the demo, and between columns."""
    return re.sub(r" +", " ", re.sub(r"127\.0\.0\.(\d)", r"broker-\1", line)).strip()
