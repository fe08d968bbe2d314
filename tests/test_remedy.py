"""What a person should do about each reason, and when it ends by itself."""

from __future__ import annotations

import string
from dataclasses import fields

import pytest
from click import Context, Group

from lbd.cli import main
from lbd.reason import Reason
from lbd.remedy import REMEDIES, next_step

NAMES = {"broker", "bundle", "namespace", "plan"}
NOW = 1_000_000.0
CUT = (
    "See where the only bundle of the broker would be cut, so that lbd can move a part "
    "(--apply splits it, which cannot be undone)"
)
RESUME = "When the work is done, let lbd go on: `lbd resume`"


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.label)
def test_no_reason_lacks_a_remedy(reason: Reason):
    """Something to do, or a clause on how it ends by itself; one line each, with names that a caller can fill in."""
    remedy = REMEDIES[reason]
    assert remedy.do or remedy.by_itself
    assert not remedy.command or remedy.do
    for field in fields(remedy):
        text = getattr(remedy, field.name)
        assert {name for _, name, _, _ in string.Formatter().parse(text) if name is not None} <= NAMES
        assert text == text.strip().rstrip(".")
        assert "\n" not in text


@pytest.mark.parametrize("reason", Reason, ids=lambda reason: reason.label)
def test_no_remedy_counts_samples(reason: Reason):
    """A person has a watch: an end is a time or an event, never a number of samples still to come."""
    assert "more fresh sample" not in next_step(reason, ends_at=NOW + 90).text(NOW)


@pytest.mark.parametrize(
    ("reason", "ends_at", "names", "text"),
    [
        (
            Reason.WAITING,
            NOW + 497,
            {},
            "Nothing, for about 8 min: lbd moves bundles if the brokers are still too far apart then",
        ),
        (Reason.WAITING, None, {}, "Nothing: lbd moves bundles if the brokers are still too far apart then"),
        (
            Reason.MEMBERSHIP_CHANGED,
            NOW - 1,
            {},
            "Nothing: lbd goes on when no broker has come or gone for a while",
        ),
        (
            Reason.APPROVAL_REQUIRED,
            NOW + 60,
            {"plan": "1fa0"},
            (
                "Approve plan 1fa0, if `lbd plan` shows what you want: `lbd apply 1fa0`; or wait about 60 s: "
                "the plan expires, and a later turn proposes a new one if the brokers are still too far apart"
            ),
        ),
        (
            Reason.SOLE_BUNDLE,
            None,
            {"bundle": "t/n/0x"},
            f"{CUT}: `lbd split t/n/0x`",
        ),
        (
            Reason.SOLE_BUNDLE,
            None,
            {},
            f"{CUT}: `lbd split BUNDLE`",
        ),
        (
            Reason.PAUSED,
            NOW + 1200,
            {},
            f"{RESUME}; or wait about 20 min: lbd goes on when the pause ends",
        ),
    ],
)
def test_a_step_as_a_line(reason: Reason, ends_at: float | None, names: dict[str, str], text: str):
    """The order and its command, or nothing; then the end, with the time that is left where it is known."""
    assert next_step(reason, "what", ends_at, **names).text(NOW) == text


@pytest.mark.parametrize("reason", [one for one in Reason if REMEDIES[one].command], ids=lambda reason: reason.label)
def test_every_command_is_one(reason: Reason):
    """Of lbd with options that it has, or of Pulsar's administration."""
    program, name, *words = (next_step(reason).command or "").split()
    assert program in {"lbd", "pulsar-admin"}
    if program == "lbd":
        command = main.get_command(Context(main), name)
        if isinstance(command, Group) and words and not words[0].startswith("-"):
            command = command.get_command(Context(command), words[0])
        assert command is not None
        options = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options
