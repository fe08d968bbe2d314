"""The observer finds what is against a rule, and nothing in what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.observer import GONE, NOBODY, Event, Limits, Record, Truth, report, violations

A, B, C = "a:80", "b:80", "c:80"
BUNDLE, TWIN = "t/n/0x00000000_0x80000000", "t/m/0x00000000_0x80000000"
TRUTH = Truth(
    at=0,
    owners={BUNDLE: A, TWIN: C},
    points={A: 70.0, B: 10.0, C: 20.0},
    rise={BUNDLE: 10.0, TWIN: 10.0},
    topics={BUNDLE: 4, TWIN: 4},
    up=frozenset({A, B, C}),
    allowed={"t/n": frozenset({A, B, C}), "t/m": frozenset({A, B, C})},
)
LIMITS = Limits(per_hour=3, topics=10, group=frozenset({"t/n", "t/m"}))


def intent(at: float, move: str = "m1", bundle: str = BUNDLE, who: str = "a1", **more: Any) -> Event:
    """An intent of the topic: from A to B, unless said otherwise."""
    return Event(
        at, "line", who, bundle=bundle, line={"event": "intent", "move": move, "source": A, "destination": B, **more}
    )


def hop(
    at: float, broker: str = A, bundle: str = BUNDLE, who: str = "a1", destination: str = "", detail: str = ""
) -> Event:
    """A request to unload."""
    return Event(at, "unload", who, broker, bundle, destination, detail, {"request": at})


def end(at: float, result: str = "landed", owner: str | None = B, move: str = "m1", who: str = "a1") -> Event:
    """An outcome of the topic."""
    return Event(at, "line", who, line={"event": "outcome", "move": move, "result": result, "owner": owner})


def owned(at: float, broker: str, bundle: str = BUNDLE) -> Event:
    """The bundle has an owner now."""
    return Event(at, "owner", broker=broker, bundle=bundle)


BEGIN = [owned(-100, A), owned(-100, C, TWIN), Event(-60, "report", "a1"), Event(-50, "writer", "a1")]
INTENT, ASKED, LANDED = intent(10), [hop(10.1, C, destination=B), hop(10.2)], [owned(10.3, NOBODY), owned(10.4, B)]
FAIR = [*BEGIN, INTENT, *ASKED, *LANDED, end(10.5)]
UNDONE = [*BEGIN, INTENT, *ASKED]
RETRY = [intent(11, "m2", attempt=2), hop(11.1)]
MOST = [intent(at, f"b{at}", f"t/n/0x0000000{at}_0x1") for at in range(3)]


def record(events: list[Event], **truth: Any) -> Record:
    """What was seen, with the cluster the same all the time."""
    found = Record()
    found.add(*events)
    found.truths = [replace(TRUTH, at=float(at), **truth) for at in range(-100, 200)]
    return found


CASES: dict[str, tuple[list[Event], dict[str, Any], str]] = {
    # what was seen, what is else than usual in the cluster, the rule that is broken
    "fair": (FAIR, {}, ""),
    "fair: a miss that came back, and its retry": (
        [*UNDONE, end(10.5, "failed", A), *RETRY, owned(11.2, B), end(11.5, move="m2")],
        {},
        "",
    ),
    "fair: a note of the owner": ([*FAIR, hop(20, C, destination=B)], {}, ""),
    "fair: late, and amended": ([*UNDONE, end(10.5, "failed", A), owned(40, B), end(41)], {}, ""),
    "fair: its broker died": (
        [*UNDONE, end(10.5, "failed", A), Event(12, "broker", broker=A), owned(40, B)],
        {},
        "",
    ),
    "fair: it lost the topic a moment ago": ([*FAIR, Event(10.15, "writer", "b1")], {}, ""),
    "fair: a split": ([*UNDONE, owned(10.4, GONE), end(10.5, "gone", None)], {}, ""),
    "the destination is dead": (FAIR, {"up": frozenset({A, C})}, "1 destination"),
    "policies forbid it": (FAIR, {"allowed": {"t/n": frozenset({A, C})}}, "1 destination"),
    "too many topics": (FAIR, {"owners": {BUNDLE: A, TWIN: B}, "topics": {BUNDLE: 4, TWIN: 7}}, "1 destination"),
    "too much load": (FAIR, {"points": {A: 99.0, B: 90.0, C: 0.0}}, "1 destination"),
    "more load than the source": (FAIR, {"points": {A: 20.0, B: 25.0, C: 0.0}}, "1 destination"),
    "its group is there": (FAIR, {"owners": {BUNDLE: A, TWIN: B}}, "1 destination"),
    "the source does not own it": ([owned(-20, C), *FAIR], {}, "1 destination"),
    "landed, and did not": ([*UNDONE, end(10.5)], {}, "2 outcome"),
    "landed elsewhere, on the source": ([*UNDONE, end(10.5, "landed-elsewhere", A)], {}, "2 outcome"),
    "unowned, and is not": ([*UNDONE, end(10.5, "unowned", None)], {}, "2 outcome"),
    "gone, and is not": ([*UNDONE, end(10.5, "gone", None)], {}, "2 outcome"),
    "late, and not amended": ([*UNDONE, end(10.5, "failed", A), owned(40, B)], {}, "2 outcome"),
    "two of one range": ([*UNDONE, intent(11, "m2", TWIN, source=C, destination=B)], {}, "3 in flight"),
    "two from one source": ([*UNDONE, intent(11, "m2", "t/n/0x8_0xf")], {}, "3 in flight"),
    "asked for by two": (
        [
            *FAIR,
            Event(10.25, "unload", "b1", C, TWIN, line={"request": -1}),
            Event(10.4, "answer", line={"request": 10.2}),
        ],
        {},
        "3 in flight",
    ),
    "again, after it landed": ([*FAIR, *RETRY], {}, "4 retry"),
    "again, after a healthy third took it": (
        [*UNDONE, owned(10.4, C), end(10.5, "landed-elsewhere", C), intent(11, "m2", attempt=2, source=C)],
        {"owners": {BUNDLE: A}},
        "4 retry",
    ),
    "a third attempt": ([*UNDONE, end(10.5, "failed", A), intent(12, "m2", attempt=3)], {}, "4 retry"),
    "two misses, and on": (
        [
            *BEGIN,
            *(
                one
                for at in (1, 2)
                for one in (intent(at, f"m{at}", f"t/n/{at}"), end(at + 0.5, "unknown", None, f"m{at}"))
            ),
            intent(3, "m3", "t/n/3"),
        ],
        {},
        "4 retry",
    ),
    "shedding": ([*FAIR, Event(-10, "shedding")], {}, "6 shedding"),
    "a broken report": ([*FAIR, Event(-10, "spoilt", broker=B), Event(30, "sound", broker=B)], {}, "7 reports"),
    "membership": ([*FAIR, Event(-5, "listed", broker=C)], {}, "8 membership"),
    "a stranger": ([*FAIR, Event(10, "stray", "a1")], {}, "9 token"),
    "a token in a file": ([*FAIR, Event(10, "secret", detail="log")], {}, "9 token"),
    "late": ([*BEGIN, INTENT, ASKED[0], hop(40)], {}, "10 deadline"),
    "no intent on disk": ([*BEGIN, INTENT, hop(10.1, C, destination=B, detail="no intent on disk")], {}, "10 deadline"),
    "in a pause": ([*FAIR, Event(-50, "pause"), Event(50, "resume")], {}, "10 deadline"),
    "a hop in a pause": ([*UNDONE, Event(11, "pause"), hop(15)], {}, "10 deadline"),
    "no intent": ([*BEGIN, hop(10, C, destination=B)], {}, "10 deadline"),
    "not the leader": ([*FAIR, Event(-20, "writer", "b1")], {}, "11 one active"),
    "places, and never led": ([*FAIR, Event(12, "lookup", "b1", C)], {}, "11 one active"),
    "budget": ([*MOST, intent(200, "m9", "t/x/1_2")], {}, "budget"),
    "cool-down": ([*FAIR, intent(60, "m2", source=B, destination=A)], {}, "cool-down"),
    "a bug": ([*FAIR, Event(10, "bug", "a1")], {}, "bug"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_against_a_rule_is_found(case: str) -> None:
    """And by no other rule but where one thing breaks two."""
    events, truth, rule = CASES[case]
    found = violations(record(events, **truth), LIMITS)
    assert (rule in {one.rule for one in found}) if rule else found == []


def test_the_report_counts_and_shows_what_came_before() -> None:
    """Faults by kind, attempts by their last outcome, and the timeline of a violation."""
    seen = record([*UNDONE, Event(9, "fault", detail="drips"), end(10.5)])
    text = report(seen, violations(seen, LIMITS))
    assert "| drips | 1 |" in text
    assert "1 attempts: 1 landed" in text
    assert "1 untrue outcomes, 0 violations" in text
    assert text.rstrip().splitlines()[-1].split()[:2] == ["10.50", "line"]
