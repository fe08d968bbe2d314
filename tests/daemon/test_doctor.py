"""The doctor's checks as pure functions: whatever brokers tell, each check ends in findings and not in a trace."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.config import Settings
from lbd.doctor import brokers, checklist, own_state, traffic
from lbd.doctor.findings import broker_names, named
from lbd.doctor.survey import ClockOffset, Survey
from lbd.errors import AdminError
from lbd.observe.observer import Observation
from lbd.observe.parse import Usage
from lbd.permit.policies import Isolation
from lbd.pulsar.admin import Leader
from tests import builders
from tests.webhook import receiving

NOWHERE = Path("/nowhere/at/all")
BROKERS = ("a:8080", "b:8080", "c:8080")
KEYS = [
    "loadManagerClassName",
    "loadBalancerEnabled",
    "loadBalancerSheddingEnabled",
    brokers.SHEDS_WITH,
    brokers.PLACES_WITH,
    brokers.EVENLY,
    brokers.SAMPLE_MINUTES,
    brokers.STATS_SECONDS,
    brokers.UNLOAD_TIMEOUT_MS,
    "minUnloadMessage",
]
TEXTS = st.sampled_from(["", "true", "false", "1", "60", "-1", "1e400", "NaN", "²", "[a, b]"]) | st.text(max_size=5)
NUMBERS = st.floats() | st.sampled_from([-1000.0, 0.0, 50.0, 1e6])


def survey(reports: dict[str, Any], **changes: Any) -> Survey:
    """A cluster that gave these reports; nothing else is known of it."""
    snapshot = builders.snapshot(reports)
    seen = Observation(snapshot, "c", tuple(reports), Leader("a:8080", "http://a:8080"))
    values: dict[str, Any] = {
        "settings": Settings(state_dir=NOWHERE),
        "taken_at": builders.TAKEN_AT,
        "observation": seen,
        "active": tuple(reports),
        "dynamic": {},
        "isolation": Isolation(),
    }
    return Survey(**{**values, **changes})


@st.composite
def surveys(draw: st.DrawFn) -> Survey:
    """Any numbers in the reports, any texts in the configuration, any versions and clocks."""
    usage = st.builds(Usage, NUMBERS, NUMBERS)
    reports = {
        broker: builders.report(
            draw(usage),
            {
                builders.bundle(at, f"t/{broker[0]}"): builders.stats(draw(NUMBERS))
                for at in range(draw(st.integers(0, 3)))
            },
            bandwidth_in=draw(usage),
        )
        for broker in BROKERS[: draw(st.integers(1, 3))]
    }
    runtimes = st.dictionaries(st.sampled_from(KEYS), TEXTS)
    clocks = st.builds(ClockOffset, st.floats(-1e9, 1e9), st.floats(0, 10))
    return survey(
        reports,
        runtime={broker: draw(runtimes) for broker in reports},
        versions={broker: draw(st.sampled_from(["4.0.8", "2.11.0", "5.0.1"]) | TEXTS) for broker in reports},
        clocks={broker: draw(clocks) for broker in reports},
        dynamic=draw(st.none() | runtimes),
    )


def test_all_brokers_that_are_missing_for_one_reason_are_named():
    """Three listed brokers, one report: the other two gave none, and both for the same reason."""
    seen = survey({"a:8080": builders.report(10)})
    assert seen.observation is not None
    missing = dict.fromkeys(BROKERS[1:], "it gives no load report")
    looked = replace(seen.observation, active=BROKERS, missing=missing)
    (found,) = (one for one in brokers.check_cluster(seen, looked) if one.check == "reports")
    assert "b:8080, c:8080: it gives no load report" in found.seen


@given(surveys())
@settings(max_examples=200, deadline=None)
def test_no_check_fails_on_what_brokers_tell(seen: Survey):
    """Every finding has words, and asks for something exactly when it is not ok."""
    found = list(checklist._checks(seen))
    assert {"reports", "settings", "state-dir"} <= {one.check for one in found}
    for one in found:
        assert one.seen
        assert one.why
        assert bool(one.todo) == (one.level != "ok")


@given(st.lists(st.integers(0, 300), min_size=3, max_size=3), st.floats(0, 1), st.floats(0, 2000))
def test_minimums_block_exactly_when_no_pair_passes_them(rates: list[int], share: float, least: float):
    """Against every pair, one by one."""
    reports = {
        broker: builders.report(50.0, {builders.bundle(0, f"t/{broker[0]}"): builders.stats(float(rate), 0.0)})
        for broker, rate in zip(BROKERS, rates, strict=True)
    }
    chosen = {"max_unload_percentage": share, "min_unload_message": least}
    seen = survey(reports, settings=Settings.model_validate({"avg_shedder": chosen, "state_dir": NOWHERE}))
    passes = any((2 * one - 2 * other) * share > least for one in rates for other in rates)
    levels = {one.check: one.level for one in traffic.check_traffic(seen, seen.observation.snapshot)}  # type: ignore[union-attr]
    assert (levels["minimums"] == "ok") == passes


@pytest.mark.parametrize(
    ("stored", "runs", "taken"),
    [
        ("true", "true", True),
        ("TRUE", "true", True),
        ("0.2", "0.20", True),
        ("10", "10.0", True),
        ("a,b", "[a, b]", True),
        (" 5 ", "5", True),
        ("maybe", "false", False),
        ("5", "6", False),
        ("abc", "1000", False),
    ],
)
def test_a_stored_value_that_is_taken(stored: str, runs: str, taken: bool):
    """Java prints what it read in its own way."""
    runtime = {"a:8080": {"minUnloadMessage": runs}}
    seen = survey({}, active=("a:8080",), runtime=runtime, dynamic={"minUnloadMessage": stored})
    assert [one.level for one in brokers.check_overrides(seen)] == ["ok" if taken else "warning"]


@pytest.mark.parametrize(
    ("ahead", "unsure", "level"), [(5.4, 0.5, "ok"), (5.6, 0.5, "warning"), (-6.0, 0.5, "warning"), (20.0, 16.0, "ok")]
)
def test_a_slow_answer_is_no_skewed_clock(ahead: float, unsure: float, level: str):
    """What the way there and back may have taken is not held against the broker."""
    seen = survey({"a:8080": builders.report(50.0)}, clocks={"a:8080": ClockOffset(ahead, unsure)})
    assert {one.check: one.level for one in brokers.check_machines(seen, seen.observation)}["clocks"] == level  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("some", "everybody", "told"),
    [
        (["b", "a"], ["a", "b", "c"], "a, b"),
        (["c", "b", "a"], ["a", "b", "c"], "all 3 brokers"),
        (["a", "b"], ["a", "b"], "both brokers"),
        (["a"], ["a"], "a"),
        (list("edcba"), list("abcdef"), "a, b, c and 2 more"),
    ],
)
def test_many_brokers_are_counted(some: list[str], everybody: list[str], told: str):
    """A line names three, and never hundreds."""
    assert broker_names(some, everybody) == told
    assert named([]) == ""


@pytest.mark.parametrize(
    ("mode", "level", "seen"),
    [
        (0o600, "ok", "nobody else may read or write"),
        (0o440, "ok", "nobody else may read or write"),
        (0o640, "ok", "nobody else may read or write"),
        (0o644, "warning", "everybody may read it (mode 0644)"),
        (0o660, "problem", "its group may write it (mode 0660)"),
        (0o666, "problem", "everybody may write it (mode 0666)"),
        (None, "warning", "not checked: {name}: {path}: No such file or directory"),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "pulsar.token_file",
        "pulsar.basic.password_file",
        "pulsar.oauth2.private_key_file",
        "api.token_file",
        "api.tokens_file",
        "notify.url_file",
    ],
)
def test_files_with_secrets(tmp_path: Path, name: str, mode: int | None, level: str, seen: str):
    """The owner and a group that may read are meant; anybody else is told, and what to do."""
    path = tmp_path / "secret"
    if mode is not None:
        path.write_text("ann administer 0123456789abcdef0123" if name == "api.tokens_file" else "a secret of its own")
        path.chmod(mode)
    section, _, key = name.partition(".")
    group, _, setting = key.partition(".")
    others = {"basic": {"username": "u"}, "oauth2": {"issuer_url": "https://issuer.example"}}
    values = {setting: path, **others[group]} if setting else path
    chosen = Settings.model_validate({section: {group: values}, "state_dir": NOWHERE})
    (found,) = own_state.check_secret_files(survey({}, settings=chosen))
    assert found.level == level
    assert seen.format(name=name, path=path) in found.seen
    assert bool(found.todo) == (level != "ok")


@pytest.mark.parametrize(
    ("text", "settings", "check", "level", "seen"),
    [
        ("", {}, "secret-files", "problem", "tokens is empty"),
        (" \n", {}, "secret-files", "problem", "tokens is empty"),
        ("ann operate 0123456789abcdef", {}, "api-tokens", "warning", "none with the role administer, but operate"),
        ("ann owner 0123456789abcdef", {}, "api-tokens", "problem", "the second word is no role"),
        (
            "ann administer 0123456789abcdef",
            {"mode": "approve", "approvers": 2},
            "secret-files",
            "ok",
            "there, and nobody else",
        ),
        (
            "ann read 0123456789abcdef",
            {"mode": "approve", "approvers": 2},
            "api-tokens",
            "warning",
            "approvers=2, and 0 named tokens may apply a plan",
        ),
    ],
)
def test_named_tokens(tmp_path: Path, text: str, settings: dict[str, Any], check: str, level: str, seen: str):
    """A file that lets nobody in, or nobody who may do what is asked for, is not ok."""
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(text)
    chosen = Settings.model_validate({"api": {"tokens_file": path}, "state_dir": NOWHERE, **settings})
    found = [one for one in own_state.check_secret_files(survey({}, settings=chosen)) if one.check == check]
    assert [one for one in found if one.level == level and seen in one.seen], found


def test_a_directory_in_the_place_of_a_secret(tmp_path: Path):
    """Kubernetes and Docker make one where the file that is to be mounted is not there."""
    chosen = Settings.model_validate({"pulsar": {"token_file": tmp_path}, "state_dir": NOWHERE})
    (found,) = own_state.check_secret_files(survey({}, settings=chosen))
    assert (found.level, found.seen) == ("problem", f"pulsar.token_file: {tmp_path} is no file")


def test_a_token_that_others_may_read_hides_no_finding_on_the_tokens_of_the_api(tmp_path: Path):
    """Each file is looked at, whatever is wrong with another."""
    broker_token, tokens = tmp_path / "token", tmp_path / "tokens"
    broker_token.touch(0o644)
    broker_token.write_text("a secret of its own")
    tokens.touch(0o600)
    tokens.write_text("ann operate 0123456789abcdef")
    values = {"pulsar": {"token_file": broker_token}, "api": {"tokens_file": tokens}, "state_dir": NOWHERE}
    found = own_state.check_secret_files(survey({}, settings=Settings.model_validate(values)))
    assert [(one.check, one.level) for one in found] == [("secret-files", "warning"), ("api-tokens", "warning")]


def test_a_state_directory_that_this_user_may_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As one that root made; root itself may write all, so the kernel's answer is given here."""
    monkeypatch.setattr(own_state.os, "access", lambda _, mode: not mode & os.W_OK)
    chosen = Settings.model_validate({"state_dir": tmp_path})
    found = next(one for one in own_state.check_state_dir(survey({}, settings=chosen)) if one.check == "state-dir")
    assert (found.level, "may not write it" in found.seen) == ("warning", True), found


def test_a_refused_access_token_names_its_issuer():
    """Whoever can help has to know which client of which issuer it is."""
    client = {"issuer_url": "https://issuer.example/realm", "private_key_file": "/etc/lbd/oauth2.json"}
    chosen = Settings.model_validate({"pulsar": {"oauth2": client}, "state_dir": NOWHERE})
    refused = {"leaderBroker": AdminError("HTTP 401", status=401)}
    (found,) = [
        one for one in brokers.check_rights(survey({}, settings=chosen, failed=refused)) if one.check == "rights"
    ]
    assert found.level == "problem"
    assert "the client of /etc/lbd/oauth2.json at https://issuer.example/realm a superuser" in found.todo


def test_no_files_with_secrets():
    """Nothing to say."""
    assert not list(own_state.check_secret_files(survey({})))


@pytest.mark.parametrize(
    ("send", "answer", "level", "seen", "posts"),
    [
        (False, 404, "warning", "not checked: 127.0.0.1:{port}, slack: no message was sent", 0),
        (True, 200, "ok", "127.0.0.1:{port}, slack, took a test message", 1),
        (True, 404, "warning", "127.0.0.1:{port}: it answered 404 Not Found", 1),
    ],
)
def test_the_webhook(tmp_path: Path, send: bool, answer: int, level: str, seen: str, posts: int):
    """A message is posted only where a person asks for one."""
    with receiving() as hook:
        hook.answers = [answer]
        (tmp_path / "hook").write_text(hook.url)
        chosen = Settings.model_validate({"notify": {"url_file": tmp_path / "hook"}})
        (found,) = own_state.check_notify(chosen, send=send)
    assert (found.level, found.seen) == (level, seen.format(port=hook.port))
    assert ["test: a person tries the webhook" in body["text"] for body in hook.bodies] == [True] * posts


def test_a_webhook_whose_file_is_of_no_use(tmp_path: Path):
    """Nothing of it is shown."""
    (tmp_path / "hook").write_text("hooks.slack.com/services/T0/B0/4xAm")
    chosen = Settings.model_validate({"notify": {"url_file": tmp_path / "hook"}})
    (found,) = own_state.check_notify(chosen, send=False)
    assert (found.level, "no web address in it" in found.seen, "4xAm" in found.seen) == ("warning", True, False)


@pytest.mark.parametrize(("send", "levels"), [(False, []), (True, ["warning"])])
def test_no_webhook(send: bool, levels: list[str]):
    """It is off by default; who wants to try it is told what is missing."""
    assert [found.level for found in own_state.check_notify(Settings(), send=send)] == levels
