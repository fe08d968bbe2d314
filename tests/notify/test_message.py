"""How a message looks: to a person who reads Slack, and to a program."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lbd.notify.events import EndedMove, Event
from lbd.notify.message import LISTED, MOST_CHARACTERS, MOST_MOVES, WebhookMessage, content
from lbd.redaction import remember
from tests.notify.test_events import AT, A, B, left, plan, told


def message(*events: Event, dropped: int = 0) -> WebhookMessage:
    """From this machine."""
    return WebhookMessage("prod", "host-1", AT, list(events), dropped)


def slack(*events: Event, dropped: int = 0) -> str:
    """The text that Slack is sent, which is all that it is sent."""
    found: dict[str, Any] = json.loads(content(message(*events, dropped=dropped), "slack"))
    assert list(found) == ["text"]
    text: str = found["text"]
    return text


def proposed(number: int = 2) -> Event:
    """A plan that waits."""
    return told(left(plan=plan((A, B), number=number)))[0][0]


def moves(number: int) -> Event:
    """So many moves that failed."""
    ends = [EndedMove(f"t/n/0x{at}_0x{at + 1}", "failed", A, B, A, "no answer") for at in range(number)]
    return Event("failure", AT, f"{number} moves", moves=ends)


def test_a_plan():
    """Its name, its moves, scores now and then, and the command that approves it."""
    waits = "plan 1f3a9c2e waits for approval: 2 moves, 8 clients would reconnect: lbd apply 1f3a9c2e"
    assert slack(proposed()).splitlines() == [
        "lbd on host-1, cluster prod",
        f"• 2027-01-15T08:00:00Z plan: {waits}",
        "    t/n/0x0_0x1: a:8080 -&gt; b:8080",
        "    t/n/0x1_0x2: a:8080 -&gt; b:8080",
        "    scores now -&gt; then: a:8080 80.0 -&gt; 60.0, b:8080 ? -&gt; 40.0",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!channel> by ann", "&lt;!channel&gt; by ann"),
        ("<http://evil|lbd resume>", "&lt;http://evil|lbd resume&gt;"),
        ("a & b -> c", "a &amp; b -&gt; c"),
        ("&lt;", "&amp;lt;"),
        ('it\'s "so"', 'it\'s "so"'),
    ],
)
def test_nobody_can_be_called_and_no_link_made(text: str, shown: str):
    """Slack decodes three characters and no other one; reasons of pauses are written by people."""
    assert slack(Event("pause", AT, text)).endswith(f"pause: {shown}")


def test_many_moves_are_counted():
    """A text lists some of them and names the command that has them all; JSON lists more."""
    text = slack(moves(1000))
    assert text.count("failed: no answer") == LISTED
    assert text.endswith(f"and {1000 - LISTED} more: lbd history")
    assert slack(proposed(30)).count("a:8080 -&gt; b:8080") == LISTED
    found = json.loads(content(message(moves(1000)), "json"))
    assert (len(found["events"][0]["moves"]), found["events"][0]["text"]) == (MOST_MOVES, "1000 moves")


def test_a_text_has_an_end():
    """Slack would cut it anywhere, and an entity is never cut."""
    found = slack(Event("pause", AT, "<" * 50_000))
    assert found.count("&lt;") * 4 + found.index("&lt;") == len(found)
    assert found.count("&lt;") <= MOST_CHARACTERS


def test_what_was_lost_is_told():
    """In both formats."""
    assert slack(moves(1), dropped=3).endswith("3 events before these are lost, as no message was taken")
    assert json.loads(content(message(dropped=3), "json"))["dropped"] == 3


def test_json():
    """Every field that an event has; a reader finds the plan as GET /v1/plan names it."""
    found = json.loads(content(message(proposed(1), Event("leader", AT, "b leads", ended=True)), "json"))
    assert {key: found[key] for key in ("cluster", "instance", "at", "dropped")} == {
        "cluster": "prod",
        "instance": "host-1",
        "at": AT,
        "dropped": 0,
    }
    assert found["events"][0] == {
        "kind": "plan",
        "at": AT,
        "text": proposed(1).text,
        "plan": msgspec.to_builtins(plan((A, B))),
        "scores": {A: 80.0},
    }
    assert found["events"][1] == {"kind": "leader", "at": AT, "text": "b leads", "ended": True}


@pytest.mark.parametrize("form", ["slack", "json"])
def test_no_secret_leaves(form: str):
    """Text of people and brokers may repeat one."""
    remember("s3cr3t-0f-th3-t3sts")
    assert b"s3cr3t" not in content(message(Event("pause", AT, "it is s3cr3t-0f-th3-t3sts")), form)
