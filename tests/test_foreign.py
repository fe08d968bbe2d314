"""Text from outside is printable wherever lbd writes it: a table of parsers, and one of outputs."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
import structlog

from lbd import log
from lbd.cli.rollout import _words
from lbd.daemon.status import build_status, turn_end
from lbd.errors import ObserveError, UsageError, as_lbd_error
from lbd.foreign import MARK, is_printable, printable, printable_json
from lbd.notify.events import PAUSED_SECONDS, Announced, news
from lbd.notify.message import WebhookMessage, content
from lbd.observe.parse import parse_report, parse_round, parse_top_bundles
from lbd.pulsar import paths
from lbd.simulate.answers import refused
from lbd.store.shared import Leads, decoded, leads
from tests.api.conftest import QUIET, serving, working
from tests.cli.conftest import lbd
from tests.fake_pulsar import ok

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

HOSTILE = "a\x1b[2Jb\r\nWATCHDOG=trigger\x00c\u202ed\u2028e"
CLEAN = f"a{MARK}[2Jb{MARK}{MARK}WATCHDOG=trigger{MARK}c{MARK}d{MARK}e"
BUNDLE = "t/n/0x00000000_0xffffffff"


@pytest.mark.security("control and bidirectional characters in any text of a broker")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b1:8080", "b1:8080"),
        ("persistent://t/n/Ünïcode-主题\u3000😀", "persistent://t/n/Ünïcode-主题\u3000😀"),
        (HOSTILE, CLEAN),
        ("\x7f", MARK),
        ("\x9b2J", f"{MARK}2J"),
        ("\u200b\u2066", MARK * 2),
        ("\ud800", MARK),
        ("", ""),
        ("tab\t", f"tab{MARK}"),
    ],
)
def test_printable(text: str, expected: str) -> None:
    """Each character that ends a line, controls a terminal or turns text around is a mark; all others stay."""
    assert printable(text) == expected
    assert is_printable(text) is (text == expected)


@pytest.mark.parametrize("escaped", [True, False])
def test_json_is_cleaned_as_it_is_written(escaped: bool) -> None:
    """Keys and values, with escapes and without; numbers, quotes and backslashes stay."""
    document = {HOSTILE: [HOSTILE, 'q"\\n\\u001b/', "😀\u3000"], "n": 12345678901234567890}
    cleaned = {CLEAN: [CLEAN, 'q"\\n\\u001b/', "😀\u3000"], "n": 12345678901234567890}
    content = json.dumps(document, ensure_ascii=escaped, indent=1).encode()
    if not escaped:  # JSON has no raw control characters; bidirectional ones it has
        assert b"\xe2\x80\xae" in content
    assert json.loads(printable_json(content)) == cleaned


def test_a_document_without_such_text_is_the_same_object() -> None:
    """The report of each broker passes here each turn: that costs one look at its bytes."""
    content = b'{"lastStats":{"t/n/0x00000000_0xffffffff":{"msgRateIn":"NaN"}}}'
    assert printable_json(content) is content


@pytest.mark.parametrize("content", [b"\xff", b'{"a":"\xff"}', b"\\", b'{"\\u12'])
def test_what_is_no_document_stays_none(content: bytes) -> None:
    """No decoder takes it, before or after."""
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        msgspec.json.decode(printable_json(content))


@pytest.mark.parametrize("part", ["lastStats", "bundles"])
def test_a_report_that_names_such_a_bundle_is_none(part: str) -> None:
    """That broker is in doubt, and the error can be printed."""
    names = {"lastStats": {HOSTILE: {}}, "bundles": [HOSTILE]}
    with pytest.raises(ObserveError, match="names a bundle") as error:
        parse_report(json.dumps({part: names[part]}).encode(), "b1:8080")
    assert is_printable(str(error.value).replace(MARK, ""))


def test_other_parsers_of_loads() -> None:
    """Values of the load topics, and recordings."""
    top = {"topBundlesLoadData": [{"bundleName": HOSTILE, "stats": {}}]}
    assert list(parse_top_bundles(json.dumps(top).encode(), "b1")) == [CLEAN]
    assert list(parse_round(json.dumps({"t": 0, "reports": {HOSTILE: {}}}).encode(), "r:1").reports) == [CLEAN]


@pytest.mark.security("a name that is not printable, as part of a request")
@pytest.mark.parametrize("name", [HOSTILE, CLEAN])
@pytest.mark.parametrize(
    "build",
    [
        paths.brokers,
        paths.namespace,
        paths.topic,
        paths.topic_stats,
        paths.scalable_topics,
        paths.isolation_policies,
        lambda name: paths.dynamic("k", name),
        lambda name: paths.owned_namespaces("c", name),
        lambda name: paths.anti_affinity_namespaces("c", name, "t"),
        lambda name: paths.subscription("persistent://t/n/x", name),
    ],
)
def test_no_request_is_sent_for_such_a_name(build: object, name: str) -> None:
    """A cleaned name is another name than the cluster's; it must not reach another thing."""
    assert callable(build)
    with pytest.raises(ObserveError, match="no request is sent for"):
        build(name)


@pytest.mark.security("a broker id that becomes an option or another host in rollout --exec")
@pytest.mark.parametrize(
    ("broker", "words"),
    [
        ("b1:8080", ["ssh", "b1", "restart", "b1:8080"]),
        ("[fe80::1]:8080", ["ssh", "fe80::1", "restart", "[fe80::1]:8080"]),
        ("-oProxyCommand=x:8080", None),
        ("fe80::1:8080", None),
        ("b1\n:8080", None),
    ],
)
def test_the_host_of_a_command(broker: str, words: list[str] | None) -> None:
    """Without brackets where it is IPv6; what is no host:port runs nothing."""
    command = "ssh {host} restart {broker}"
    if words is None:
        with pytest.raises(UsageError, match="--exec is not run for"):
            _words(command, broker)
    else:
        assert _words(command, broker) == words


def test_errors() -> None:
    """What began in a broker's answer, or in a library, is one line without control characters."""
    assert str(ObserveError(HOSTILE)) == CLEAN
    assert "\n" not in str(as_lbd_error(ValueError("first\nsecond\x1b")))
    assert "\x1b" not in str(as_lbd_error(ValueError("first\nsecond\x1b")))


COMMANDS = [
    ("dry-run",),
    ("dry-run", "--format", "json"),
    ("dry-run", "--all"),
    ("doctor",),
    ("doctor", "--format", "json"),
    ("run", "--once"),
    ("place", "--namespace", "simulated/a"),
    ("drain", "b1:8080"),
    ("plan",),
    ("config", "from-broker"),
]
HOSTILE_ANSWERS = {
    "an error's reason": ("load-report", refused(500, HOSTILE)),
    "a bundle of a report": ("load-report", ok({"lastStats": {HOSTILE: {"msgRateIn": 5}}, "bundles": [HOSTILE]})),
    "the load manager": ("configuration/runtime", ok({"loadManagerClassName": HOSTILE, "clusterName": HOSTILE})),
    "the version": ("brokers/version", ok(HOSTILE)),
    "policies": ("namespaceIsolationPolicies", ok({HOSTILE: {"namespaces": [HOSTILE], "primary": [HOSTILE]}})),
}


@pytest.mark.security("names full of ESC, line ends, NUL and bidirectional characters in each answer")
@pytest.mark.parametrize("answer", HOSTILE_ANSWERS)
def test_no_output_has_a_character_that_is_not_printable(answer: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Terminal, JSON and log of each command that prints what brokers sent."""
    part, reply = HOSTILE_ANSWERS[answer]
    pulsar.fault(part, reply)
    _check_outputs(pulsar, tmp_path)


@pytest.mark.security("brokers that are listed under names with such characters")
def test_brokers_that_are_listed_under_such_names(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing is refused, and the name in the error can be printed."""
    listed = [*pulsar.ids, HOSTILE, f"{HOSTILE}:8080"]
    monkeypatch.setattr(type(pulsar), "listed", property(lambda _: listed))
    _check_outputs(pulsar, tmp_path)


WHO = {"owner": HOSTILE, "reason": HOSTILE}
REQUESTS = {
    "resume": WHO,
    "pause": WHO,
    "unload": {**WHO, "bundle": HOSTILE, "destination": HOSTILE, "override": HOSTILE},
    "place": {**WHO, "targets": [HOSTILE], "strategy": HOSTILE},
    "split": {**WHO, "bundle": HOSTILE, "broker": HOSTILE, "algorithm": "range_equally_divide", "positions": [1]},
    "drain": {**WHO, "broker": HOSTILE},
    "fill": {**WHO, "broker": HOSTILE, "override": HOSTILE},
    "release": {**WHO, "broker": HOSTILE},
    "rollout": {**WHO, "brokers": [HOSTILE]},
    "plan/p/apply": WHO,
    "pause?": {**WHO, HOSTILE: HOSTILE},
}
PATHS = ("status", "snapshot", "bundles", "capacity", "decisions", "drains", "explain", "history", "moves", "plan")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.security(
    "control characters in answers and requests: log, API, events, metrics and messages of a running lbd"
)
@pytest.mark.parametrize("answer", HOSTILE_ANSWERS)
def test_a_running_lbd_writes_nothing_else(answer: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Each output after a turn of such answers and one of each request that has such text in all of its fields."""
    part, reply = HOSTILE_ANSWERS[answer]
    pulsar.fault(part, reply)
    written = io.StringIO()
    log.set_up("text", "info", written)
    try:
        with serving(pulsar, tmp_path, avg_shedder=QUIET) as api, api.get("/v1/events", stream=True) as stream:
            with working(api):
                documents = [api.post(f"/v1/{name}", body).content for name, body in REQUESTS.items()]
            record = api.turn()
            end = turn_end(api.engine, record, build_status(api.engine, record, 1, None))
            documents += [api.get(f"/v1/{path}").content for path in PATHS]
            metrics = api.get("/metrics").text
            api.serving.stop()
            events = stream.text
    finally:
        structlog.reset_defaults()
    later = msgspec.structs.replace(end.status, at=end.status.at + PAUSED_SECONDS)
    message = WebhookMessage("c", "i", 0.0, news(Announced(), replace(end, status=later))[1])
    documents += [content(message, "json")]
    for document in documents:
        assert printable_json(document) == document
    slack = json.loads(content(message, "slack"))["text"]
    for output in (written.getvalue(), events, slack):
        assert "WATCHDOG=trigger" in output
    for line in "\n".join((COLOUR.sub("", written.getvalue()), metrics, events, slack)).split("\n"):
        assert is_printable(line.replace(MARK, "")), line
        assert not line.startswith("WATCHDOG"), line


def test_each_change_over_the_api_has_its_row(pulsar: FakePulsar, tmp_path: Path) -> None:
    """A new one cannot be left out."""
    with serving(pulsar, tmp_path) as api:
        paths = api.get("/v1/openapi.json").json()["paths"]
    changes = {path for path, methods in paths.items() if "post" in methods}
    assert changes == {f"/v1/{name}".replace("/p/", "/{name}/") for name in REQUESTS if "?" not in name}


@pytest.mark.security("control and bidirectional characters in a line of the leader topic")
def test_lines_of_the_leader_topic() -> None:
    """Whoever may write the topic writes them."""
    assert decoded(leads(1.0, HOSTILE, HOSTILE)) == Leads(1.0, CLEAN, CLEAN)


def _check_outputs(pulsar: FakePulsar, tmp_path: Path) -> None:
    config = tmp_path / "lbd.yaml"
    config.write_text(json.dumps({"pulsar": {"admin_urls": pulsar.urls}, "state_dir": str(tmp_path / "state")}))
    output = ""
    for command in COMMANDS:
        done = lbd(*command, "--config", config)
        output += done.stdout + done.stderr
    assert MARK in output or "\\ufffd" in output
    for line in output.split("\n"):
        assert is_printable(line.replace(MARK, "")), line
        assert not line.startswith("WATCHDOG"), line
