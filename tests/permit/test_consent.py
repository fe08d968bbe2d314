"""Properties of namespaces: what is read of them, what counts as off, and what a turn says of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbd.permit.consent import Consent, Consents, parse_consent
from lbd.permit.quiet_hours import parse_windows
from lbd.reason import Reason

NIGHT = parse_windows("00:00-06:00")
AT_NIGHT, BY_DAY = 3600.0, 12 * 3600.0


@pytest.mark.parametrize(
    ("properties", "consent"),
    [
        ({}, Consent()),
        ({"owner": "team a", "lbdx": "off"}, Consent()),
        ({"lbd.balance": "normal"}, Consent()),
        ({"lbd.balance": " Low "}, Consent("low")),
        ({"lbd.balance": "off", "lbd.quiet-hours": "00:00-06:00"}, Consent("off", NIGHT)),
    ],
)
def test_what_is_understood(properties: dict[str, str], consent: Consent):
    """Properties of others are not looked at."""
    assert parse_consent(properties) == consent


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"lbd.balance": "no"}, "namespace property lbd.balance is 'no', wanted off, low or normal"),
        ({"lbd.balance": ""}, "namespace property lbd.balance is '', wanted off, low or normal"),
        ({"lbd.quiet-hours": "at night"}, "namespace property lbd.quiet-hours is 'at night': wanted windows such as"),
        ({"lbd.quiet_hours": "x"}, "namespace property 'lbd.quiet_hours' is not known, wanted lbd.balance or lbd.q"),
        ({"lbd.balance": "x" * 1000}, f"namespace property lbd.balance is '{'x' * 100}…', wanted off"),
    ],
)
def test_what_is_not_understood_counts_as_off(properties: dict[str, str], problem: str):
    """Its team wanted less to be moved; the text names property and value, and what would be right."""
    refusal = parse_consent(properties).refusal(0.0)

    assert refusal is not None
    assert refusal[0] is Reason.PROPERTY_NOT_UNDERSTOOD
    assert refusal[1].startswith(problem)


@pytest.mark.security("random text as properties of a namespace: its bundles stay or move, never an exception")
@given(
    st.dictionaries(
        st.sampled_from(["lbd.balance", "lbd.quiet-hours", "owner"]) | st.text().map("lbd.".__add__), st.text()
    )
)
def test_any_text_is_read(properties: dict[str, str]):
    """Nothing that a team can write ends a turn, and texts stay printable."""
    consent = parse_consent(properties)

    assert consent.problem.isprintable()
    assert consent.refusal(AT_NIGHT) is None or set(properties) != {"owner"}


@pytest.mark.parametrize(
    ("consent", "at", "reason"),
    [
        (Consent(), AT_NIGHT, None),
        (Consent("low"), AT_NIGHT, None),
        (Consent("off"), BY_DAY, Reason.BALANCE_OFF),
        (Consent(quiet_hours=NIGHT), AT_NIGHT, Reason.NAMESPACE_QUIET),
        (Consent(quiet_hours=NIGHT), BY_DAY, None),
    ],
)
def test_when_bundles_stay(consent: Consent, at: float, reason: Reason | None):
    """Always, within the windows, or never."""
    refusal = Consents({"t/n": consent}, at).refusal("t/n")

    assert (refusal[0] if refusal is not None else None) is reason


def test_a_namespace_that_was_not_read_stays():
    """Its team may have said no."""
    assert Consents().refusal("t/n") == (Reason.POLICY_UNKNOWN, "the properties of t/n were not read in this turn")


def test_what_a_turn_says():
    """Of namespaces that it sees: those that stay, those of low balance that stayed, and those that cannot be read."""
    known = {
        "a/off": Consent("off", unread="HTTP 500"),
        "b/low": Consent("low"),
        "c/low": Consent("low"),
        "d/gone": Consent("off"),
        "e/normal": Consent(),
    }
    skips = list(Consents(known).skips(known.keys() - {"d/gone"}, {"c/low"}))

    assert [(skip.what, skip.reason) for skip in skips] == [
        ("a/off", Reason.PROPERTY_UNREAD),
        ("a/off", Reason.BALANCE_OFF),
        ("b/low", Reason.BALANCE_LOW),
    ]
    assert skips[0].detail.startswith("its properties cannot be read: HTTP 500; those that were read last hold")
    assert skips[1].detail == "namespace property lbd.balance=off"
