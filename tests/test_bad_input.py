"""Whatever a cluster, a file or a person gives: one line, the right exit code, nothing lost, and no unload."""

from __future__ import annotations

import json
import math
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lbd.cli import main
from lbd.config import Settings
from lbd.errors import UsageError
from lbd.model import Hits
from lbd.operations.dry import dry_run_recording
from lbd.replay import replay, rounds
from lbd.simulate.answers import Reply, ok, refused
from lbd.store.state import TurnMemory
from tests import fake_pulsar, journals
from tests.builders import state_begun
from tests.daemon.test_service import running, settings_for
from tests.fake_pulsar import COLD, HOT, WARM, FakePulsar
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from tests.daemon.test_service import Daemon

TEN_MB = 10_000_000
LIMIT_BYTES = 35_000_000


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LBD_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed certificate for the fake brokers, its key, and the certificate of somebody else."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("keys")
    names = ",".join(f"IP:127.0.0.{number}" for number in (1, 2, 3))
    for name in ("broker", "other"):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        about = ["-subj", f"/CN={name}", "-addext", f"subjectAltName={names}", "-days", "2"]
        subprocess.run([*command, *files, *about], check=True, capture_output=True)
    return folder


def lbd(*arguments: object, **environ: str) -> Result:
    """One call in this process. What is no SystemExit would be a stack trace, and fails the test."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments], env=environ, catch_exceptions=False)


def config_of(folder: Path, reach: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A configuration with which one hit is enough to move much, and no broker is waited for long."""
    values: dict[str, Any] = {
        "state_dir": str(folder / "state"),
        "avg_shedder": {"hit_count_high": 1, "low_threshold": 40},
        "guardrails": {"max_traffic_per_turn": 1.0, "membership_settle_seconds": 0, "unload_spacing_seconds": 0},
        "pulsar": {"read_timeout_seconds": LIMIT_SECONDS, **(reach or {})},
    }
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({**values, **changes}), encoding="utf-8")
    return path


def told(found: Result | subprocess.CompletedProcess[str], code: int, words: str) -> None:
    """The exit code, and exactly one line on stderr, which says these words."""
    assert (found.exit_code if not isinstance(found, subprocess.CompletedProcess) else found.returncode) == code
    lines = found.stderr.splitlines()
    assert [line[:7] for line in lines] == ["Error: "]
    assert words in lines[0]
    assert len(lines[0]) < 1000
    assert "Traceback" not in found.stdout + found.stderr


def untouched(pulsar: FakePulsar) -> None:
    """No broker was asked for anything that could move a bundle: no PUT, no lookup."""
    assert [one for one in pulsar.requests if one.method != "GET" or "/schemas/" in one.path] == []


@dataclass(frozen=True)
class Trouble:
    """Something wrong with the cluster or the way to it, and what the one line says of it."""

    name: str
    words: str
    cause: Callable[[FakePulsar, Path], object] = lambda _pulsar, _keys: None
    reach: Callable[[FakePulsar, Path], dict[str, Any]] = lambda pulsar, _: {"admin_urls": [pulsar.brokers[0].base]}


def answers(reply: Reply, part: str = "") -> Callable[[FakePulsar, Path], object]:
    """Every broker answers like this where the path contains ``part``."""
    return lambda pulsar, _: pulsar.fault(part, reply)


def reports(**changes: Any) -> Callable[[FakePulsar, Path], object]:
    """Every broker reports this."""
    return lambda pulsar, _: [broker.report.update(changes) for broker in pulsar.brokers]


def secure(pulsar: FakePulsar, keys: Path) -> None:
    """The brokers speak TLS, and nothing but TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "broker.pem", keys / "broker.key")
    for broker in pulsar.brokers:
        broker.server.socket = context.wrap_socket(broker.server.socket, server_side=True)


def https(**tls: str) -> Callable[[FakePulsar, Path], dict[str, Any]]:
    """Over https, with these files."""
    return lambda pulsar, keys: {
        "admin_urls": [f"https://{pulsar.brokers[0].id}"],
        "tls": {name: str(keys / file) for name, file in tls.items()},
    }


def listed(pulsar: FakePulsar, brokers: list[str]) -> None:
    """These are said to be the active brokers."""
    for broker in pulsar.brokers:
        broker.runtime["clusterName"] = "other"
    pulsar.fault("/brokers/other", ok(brokers))


HALF = b'{"cpu": {"usage": 1'
BRACKETS = b'{"cpu": ' + b"[" * TEN_MB
REPORT = "load-report"

TROUBLES = [
    Trouble("refused", "connection refused; is the address right", reach=lambda *_: {"admin_urls": ["http://127.0.0.1:9"]}),
    Trouble("http where https is spoken", "is this the port for https?", secure),
    Trouble("https where http is spoken", "is this the port for http?", reach=https()),
    Trouble("a CA of somebody else", "certificate verify failed", secure, https(ca_file="other.pem")),
    Trouble("a CA file without a certificate", "pulsar.tls.ca_file", secure, https(ca_file="other.key")),
    Trouble("a CA file that is absent", "absent.pem", secure, https(ca_file="absent.pem")),
    Trouble("401", "HTTP 401 (Who?), wanted 200; the token is missing", answers(refused(401, "Who?"))),
    Trouble("403", "HTTP 403 (No!), wanted 200; the token is missing", answers(refused(403, "No!"))),
    Trouble("401 for the reports alone", "(pulsar.token_file)", answers(refused(401, "Who?"), REPORT)),
    Trouble("404", "HTTP 404, wanted 200; is this a broker's web address?", answers(Reply(404, fake_pulsar.HTML))),
    Trouble("500", "HTTP 500 (boom), wanted 200", answers(refused(500, "boom"))),
    Trouble("HTML", "is this a broker's web address?", answers(fake_pulsar.HTML_PAGE)),
    Trouble("HTML as reports", "begins with b'<html>", answers(fake_pulsar.HTML_PAGE, REPORT)),
    Trouble("half an answer", "the answer broke off", answers(fake_pulsar.HALF_A_JSON)),
    Trouble("half an answer as reports", "the answer broke off", answers(fake_pulsar.HALF_A_JSON, REPORT)),
    Trouble("half a JSON", "the answer cannot be read, it begins with '{\"cpu", answers(Reply(200, HALF))),
    Trouble("half a JSON as reports", "Input data was truncated", answers(Reply(200, HALF), REPORT)),
    Trouble("10 MB of junk", "is this a broker's web address?", answers(Reply(200, b"x" * TEN_MB))),
    Trouble("10 MB of junk as reports", "begins with b'xxxx", answers(Reply(200, b"x" * TEN_MB), REPORT)),
    Trouble("10 MB of brackets", "cannot be read", answers(Reply(200, BRACKETS))),
    Trouble("10 MB of brackets as reports", "begins with b'{\"cpu\": [[", answers(Reply(200, BRACKETS), REPORT)),
    Trouble("10 MB of brackets and 500", "HTTP 500, wanted 200", answers(Reply(500, BRACKETS))),
    Trouble(
        "more than is taken",
        f"answer exceeds {LIMIT_BYTES} bytes",
        answers(Reply(200, b"x" * 4 * TEN_MB)),
    ),
    Trouble(
        "no answer",
        "no answer in time",
        answers(Reply(silent=True)),
    ),
    Trouble(
        "no reports",
        "does not answer since",
        answers(Reply(silent=True), REPORT),
    ),
    Trouble("no broker", "no broker is active", lambda pulsar, _: pulsar.gone.update(pulsar.ids)),
    Trouble("brokers that are no addresses", "names '[b:1'", lambda pulsar, _: listed(pulsar, ["[b:1", ""])),
    Trouble("a leader that is no address", "'http://[b:1'", answers(ok({"serviceUrl": "http://[b:1"}), "leader")),
    Trouble("a negative count", "Expected `int` >= 0 - at `$.numTopics`", reports(numTopics=-1)),
    Trouble("a count that no column holds", "Expected `int` <= ", reports(numTopics=10**30)),
    Trouble("words for a number", "Expected `float`", reports(cpu={"usage": "much", "limit": 100})),
    Trouble("a type of a megabyte", "has loadReportType 'xxx", reports(loadReportType="x" * 1_000_000)),
]  # fmt: skip


@pytest.fixture
def path(trouble: Trouble, pulsar: FakePulsar, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a cluster in trouble; lbd takes answers of at most 35 MB."""
    monkeypatch.setattr("lbd.pulsar.http.MAX_RESPONSE_BYTES", LIMIT_BYTES)
    reach = trouble.reach(pulsar, keys)
    trouble.cause(pulsar, keys)
    return config_of(tmp_path, reach)


@pytest.mark.security("a cluster that answers nonsense, late or not at all: one line, the right exit code, no unload")
@pytest.mark.usefixtures("silence_ends_at_once")
@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
class TestAClusterThatCannotBeObserved:
    """Exit 3, and what was remembered stays as it is."""

    def test_run_once(self, trouble: Trouble, path: Path, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Counters and journal are what they were."""
        state = state_begun(tmp_path / "state")
        state.save(TurnMemory(written_at=time.time(), hits={pulsar.brokers[0].id: Hits(3, 1)}))
        before = state.load()
        told(lbd("run", "--once", "--config", path), 3, trouble.words)
        untouched(pulsar)
        assert state.load() == before
        assert journals.entries(state.path) == []

    def test_dry_run(self, trouble: Trouble, path: Path, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No state directory comes into being."""
        found = lbd("dry-run", "--config", path)
        told(found, 3, trouble.words)
        assert found.stdout == ""
        untouched(pulsar)
        assert not (tmp_path / "state").exists()

    def test_record(self, trouble: Trouble, path: Path, pulsar: FakePulsar, tmp_path: Path) -> None:
        """No file is left behind."""
        told(lbd("record", tmp_path / "r.jsonl", "--rounds", 1, "--config", path), 3, trouble.words)
        untouched(pulsar)
        assert not (tmp_path / "r.jsonl").exists()

    def test_unload(self, trouble: Trouble, path: Path, pulsar: FakePulsar) -> None:
        """What cannot be judged is not moved, in one sentence on stdout."""
        found = lbd("unload", HOT[0], "--apply", "--to", pulsar.brokers[2].id, "--config", path)
        assert (found.exit_code, found.stderr, len(found.stdout.splitlines())) == (3, "", 1)
        assert found.stdout.startswith("Not moved: ")
        assert trouble.words in found.stdout
        untouched(pulsar)


def test_without_trouble_it_moves(pulsar: FakePulsar, tmp_path: Path) -> None:
    """So that nothing was moved above because of the trouble alone."""
    found = lbd("run", "--once", "--config", config_of(tmp_path, {"admin_urls": pulsar.urls[:1]}))
    assert (found.exit_code, found.stderr) == (0, "")
    assert "Moved 3 of 3 bundles" in found.stdout


def hot(**changes: Any) -> Callable[[FakePulsar], object]:
    """The hot broker reports this."""
    return lambda pulsar: pulsar.brokers[0].report.update(changes)


def cold(**changes: Any) -> Callable[[FakePulsar], object]:
    """The broker to which bundles would go reports this."""
    return lambda pulsar: pulsar.brokers[2].report.update(changes)


def bundles(**changes: Any) -> Callable[[FakePulsar], object]:
    """The hot broker reports this of each of its bundles."""

    def change(pulsar: FakePulsar) -> None:
        first = pulsar.brokers[0]
        stats = pulsar.report(first.id)["lastStats"]
        first.report["lastStats"] = {name: {**one, **changes} for name, one in stats.items()}

    return change


def alone(pulsar: FakePulsar) -> None:
    """Two brokers have gone, and the third leads itself."""
    pulsar.gone.update(pulsar.ids[1:])
    pulsar.leader = pulsar.ids[0]


def unreadable(reply: Reply) -> Callable[[FakePulsar], object]:
    """The hot broker gives this for a report."""
    return lambda pulsar: pulsar.fault(REPORT, reply, broker=pulsar.ids[0])


SENTENCES: dict[str, tuple[Callable[[FakePulsar], object], str]] = {
    "one broker": (alone, "too-few-brokers"),
    "no bundles": (lambda pulsar: pulsar.owners.clear(), "No move: "),
    "a usage of NaN": (hot(cpu={"usage": "NaN", "limit": 100}), "impossible-number"),
    "a negative usage": (hot(cpu={"usage": -5, "limit": 100}), "impossible-number"),
    "an absurd usage": (hot(cpu={"usage": 5000, "limit": 100}), "impossible-number"),
    "an infinite usage": (hot(cpu={"usage": "Infinity", "limit": 100}), "impossible-number"),
    "a limit of NaN": (hot(cpu={"usage": 80, "limit": "NaN"}), "impossible-number"),
    "a negative limit": (hot(cpu={"usage": 80, "limit": -100}), "unknown-resources"),
    "a limit of nothing": (hot(cpu={"usage": 80, "limit": 0}), "unknown-resources"),
    "a total of NaN": (hot(msgRateIn="NaN"), "impossible-number"),
    "a negative total": (hot(msgThroughputOut=-1), "impossible-number"),
    "an infinite total": (hot(msgRateOut="Infinity"), "impossible-number"),
    "an absurd total": (hot(msgRateIn=1e300), "impossible-number"),
    "absurd totals": (hot(msgRateIn=1.7e308, msgRateOut=1.7e308, msgThroughputIn=1.7e308), "impossible-number"),
    "an absurd limit": (cold(cpu={"usage": 50, "limit": 1e300}), "impossible-number"),
    "an infinite limit": (cold(cpu={"usage": 50, "limit": "Infinity"}), "impossible-number"),
    "bundles with NaN": (bundles(msgRateIn="NaN"), "No move: "),
    "negative bundles": (bundles(msgRateIn=-1000), "No move: "),
    "half negative bundles": (bundles(msgRateIn=-500, msgRateOut=1500), "No move: "),
    "infinite bundles": (bundles(msgRateIn="Infinity"), "No move: "),
    "absurd bundles": (bundles(msgRateIn=1.7e308, msgThroughputIn=1.7e308), "No move: "),
    "a negative number of topics": (hot(numTopics=-1), "report-missing"),
    "an absurd number of producers": (bundles(producerCount=2**63), "report-missing"),
    "a start in the future": (hot(startTimestamp=9e15), "first-sample"),
    "an absurd sampling interval": (
        lambda pulsar: pulsar.brokers[0].runtime.update(loadBalancerHostUsageCheckIntervalMinutes="9" * 400),
        "Moved 3 of 3",
    ),
    "a web address that is none": (hot(webServiceUrl="http://[b:1"), "Moved 3 of 3"),
    "one report of HTML": (unreadable(fake_pulsar.HTML_PAGE), "report-missing"),
    "one report of brackets": (unreadable(Reply(200, BRACKETS)), "report-missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
@pytest.mark.parametrize("command", [["run", "--once"], ["dry-run"]], ids=" ".join)
def test_what_is_no_error_is_a_sentence(command: list[str], name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Exit 0 and nothing on stderr; a number that cannot be is no ground to move."""
    cause, words = SENTENCES[name]
    path = config_of(tmp_path, {"admin_urls": pulsar.urls[:1]})
    cause(pulsar)
    found = lbd(*command, "--config", path)
    assert (found.exit_code, found.stderr) == (0, "")
    if words.startswith("Moved"):
        assert words in found.stdout.replace("Would move 3 bundles", words)
    else:
        assert words in found.stdout
        assert "No move: " in found.stdout
        untouched(pulsar)


class TestTheDaemon:
    def test_it_says_so_and_goes_on(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """One process lives through all of it, a turn or more for each; when it is over, it moves."""
        troubles = [one for one in TROUBLES if one.name in LIVED_THROUGH]
        assert len(troubles) == len(LIVED_THROUGH)
        reach = {"admin_urls": pulsar.urls[:1], "read_timeout_seconds": LIMIT_SECONDS}
        switch(pulsar, troubles[0])
        chosen = {**settings_for(pulsar, tmp_path, interval_seconds=0.05), "pulsar": reach}
        with running(tmp_path, chosen) as daemon:
            for trouble in troubles:
                switch(pulsar, trouble)
                hears(daemon, "STATUS=No move: ", trouble.words)
            status = says(daemon, trouble.words)
            untouched(pulsar)
            switch(pulsar, None)
            hears(daemon, "STATUS=Begins to move", "3 bundles")
            assert daemon.end() == 0
        assert (status.exit_code, status.stderr) == (0, "")
        assert troubles[-1].words in status.stdout
        assert "Traceback" not in daemon.log.read_text()
        assert {line["level"] for line in daemon.lines() if line["event"].startswith("No move: GET")} == {"error"}

    def test_an_address_that_is_wrong(self, pulsar: FakePulsar, keys: Path, tmp_path: Path) -> None:
        """It waits for somebody to put it right, and ends well."""
        trouble = next(one for one in TROUBLES if one.name == "https where http is spoken")
        chosen = {**settings_for(pulsar, tmp_path), "pulsar": trouble.reach(pulsar, keys)}
        with running(tmp_path, chosen) as daemon:
            for _ in range(2):
                hears(daemon, "STATUS=No move: ", trouble.words)
            assert daemon.end() == 0
        untouched(pulsar)
        assert "Traceback" not in daemon.log.read_text()


LIVED_THROUGH = {
    "401",
    "403",
    "500",
    "HTML",
    "HTML as reports",
    "half an answer",
    "half a JSON as reports",
    "10 MB of junk as reports",
    "10 MB of brackets as reports",
    "no broker",
}


def switch(pulsar: FakePulsar, trouble: Trouble | None) -> None:
    """Another trouble from the next request on; there is no moment without one."""
    with pulsar.lock:
        pulsar.faults.off()
        pulsar.gone.clear()
        if trouble is not None:
            trouble.cause(pulsar, Path())


def hears(daemon: Daemon, start: str, words: str) -> None:
    """The next message with this start that says these words; turns that began before may say others."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if words in daemon.notified.wait_for(start):
            return
    raise AssertionError(f"{words!r} was not heard")


def says(daemon: Daemon, words: str) -> Result:
    """What `lbd status` prints once it says these words; an answer may come too late on a busy machine."""
    for _ in range(20):
        if words in (found := lbd("status", "--config", daemon.config)).stdout:
            break
        hears(daemon, "STATUS=No move: ", words)
    return found


CONFIGURATIONS: dict[str, tuple[bytes | None, list[str]]] = {
    "absent": (None, ["lbd.yaml: cannot be read: No such file"]),
    "no text": (b"\xff\xfe\xff", ["lbd.yaml: cannot be read: it is no text"]),
    "no YAML": (b"pulsar: [1", ["not YAML: line 1, column 11: expected ',' or ']'"]),
    "a list": (b"- 1", ["the file is a list, wanted keys and values"]),
    "no such day": (b"profile: live\nlog: 2024-99-99", ["not YAML: line 2, column 6: no such number, date or tag"]),
    "no such tag": (b"profile: !!timestamp x", ["not YAML: line 1, column 10: no such number, date or tag"]),
    "brackets": (b"a: " + b"[" * 600, ["nested too deeply"]),
    "three problems": (
        b"profile: bold\nintervall_seconds: 5\npulsar: {admin_urls: ['b1:8080']}",
        [
            "profile: 'bold': wanted 'live' or 'stock'",
            "intervall_seconds: no such setting; did you mean interval_seconds?",
            "pulsar.admin_urls: 'b1:8080' is no web address of a broker; wanted http://host:port",
        ],
    ),
    "an address with a path": (b"pulsar: {admin_urls: ['http://b1:8080/admin']}", ["is no web address of a broker"]),
    "an address with a space": (b"pulsar: {admin_urls: ['http://b 1:8080']}", ["is no web address of a broker"]),
    "a port that is none": (b"pulsar: {admin_urls: ['http://b1:99999']}", ["is no web address of a broker"]),
    "another protocol": (b"pulsar: {admin_urls: ['pulsar://b1:6650']}", ["is no web address of a broker"]),
    "an absurd interval": (b"interval_seconds: 1.0e+300", ["interval_seconds: 1e+300: wanted "]),
    "a negative interval": (b"interval_seconds: -1", ["interval_seconds: -1: wanted 0.05 or more"]),
    "absurd time-outs": (
        b"pulsar: {read_timeout_seconds: 1.0e+300, unload_timeout_seconds: .inf}",
        ["read_timeout_seconds", "unload_timeout_seconds"],
    ),
    "no directory": (b'state_dir: "a\\0b"', ["state_dir: 'a\\x00b': wanted a path, neither empty nor with a NUL"]),
    "a key of two lines": (b'"a\\nb": 1', ["a b: no such setting"]),
}  # fmt: skip

COMMANDS = [
    ["config", "check"],
    ["config", "show"],
    ["run", "--once"],
    ["run"],
    ["dry-run"],
    ["record", "never-written.jsonl"],
    ["unload", HOT[0], "--to", "b:8080"],
    ["status"],
    ["history"],
    ["pause"],
    ["resume"],
    ["release"],
]


class TestConfiguration:
    @pytest.mark.parametrize("name", CONFIGURATIONS)
    @pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
    def test_every_problem_in_a_line_of_its_own(self, command: list[str], name: str, tmp_path: Path) -> None:
        """Exit 2, the file, the key, the value and what would be right; no file comes into being."""
        content, wanted = CONFIGURATIONS[name]
        path = tmp_path / "lbd.yaml"
        if content is not None:
            path.write_bytes(content)
        found = lbd(*command, "--config", path)
        lines = found.stderr.splitlines()
        assert (found.exit_code, found.stdout, len(lines)) == (2, "", len(wanted))
        assert all(line.startswith(f"Error: {path}: ") for line in lines)
        assert all(any(words in line for line in lines) for words in wanted)
        assert not Path("never-written.jsonl").exists()

    @pytest.mark.parametrize(
        ("name", "text", "words"),
        [
            ("LBD_INTERVAL", "5", "no such setting; did you mean LBD_INTERVAL_SECONDS?"),
            ("LBD_INTERVAL_SECONDS", "soon", "interval_seconds: 'soon': wanted a number"),
            ("LBD_PULSAR__ADMIN_URLS", '["b1:8080"]', "is no web address of a broker; wanted http://host:port"),
            ("LBD_PULSAR", '{"a":' * 5000, "not JSON"),
            ("LBD_PULSAR", "[" * 5000, "not JSON"),
            ("LBD_WEIGHTS" + "__A" * 5000, "1", "no such setting"),
        ],
        ids=["no such", "no number", "no address", "brackets", "more brackets", "deep"],
    )
    @pytest.mark.parametrize("command", [["config", "check"], ["run", "--once"], ["dry-run"]], ids=" ".join)
    def test_environment(self, command: list[str], name: str, text: str, words: str, tmp_path: Path) -> None:
        """The variable is named."""
        found = lbd(*command, "--config", config_of(tmp_path), **{name: text})
        assert (found.exit_code, found.stdout) == (2, "")
        assert found.stderr.startswith(f"Error: environment {name}: ")
        assert words in found.stderr
        assert len(found.stderr.splitlines()) == 1


BROKEN_LINES: dict[str, tuple[bytes, str]] = {
    "cut off": (b'{"t": 1800000000, "repor', "not a line of a recording: JSON is malformed"),
    "HTML": (b"<html>", "not a line of a recording"),
    "bytes": (b"\xff\xfe\x00", "not a line of a recording"),
    "a list": (b"[1]", "not a line of a recording"),
    "brackets": (b'{"reports": ' + b"[" * 100_000, "not a line of a recording"),
    "no reports": (b'{"t": 1}', "not a round: Object missing required field `reports`"),
    "words for a number": (b'{"t": "soon", "reports": {}}', "not a round: Expected `float`"),
    "a negative count": (b'{"t": 1, "reports": {"b:1": {"numTopics": -1}}}', "not a round: Expected `int` >= 0"),
    "an absurd count": (b'{"t": 1, "reports": {"b:1": {"numTopics": 1' + b"0" * 400 + b"}}}", "not a round"),
    "another format": (b'{"recording": 7}', "recording format 7, this lbd reads format 1"),
    "a header of words": (b'{"recording": 1, "grace_s": "long"}', "header 'grace_s' is 'long', wanted a number"),
    "a header of bytes": (b'{"recording": 1, "x": "\xff"}', "the header cannot be read"),
    "a header of digits": (b'{"recording": 1, "x": ' + b"9" * 5000 + b"}", "the header cannot be read"),
}


@pytest.mark.parametrize("name", BROKEN_LINES)
@pytest.mark.parametrize("command", [["replay"], ["dry-run", "--recording"]], ids=" ".join)
def test_a_recording_with_a_broken_line(command: list[str], name: str, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Exit 2, the file and the number of the line."""
    line, words = BROKEN_LINES[name]
    reports = {broker: pulsar.report(broker) for broker in pulsar.ids}
    good = [json.dumps(one).encode() for one in ({"recording": 1}, {"t": 1_800_000_000, "reports": reports})]
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join([*good, b"", line, b""]))
    found = lbd(*command, path)
    told(found, 2, words)
    assert found.stderr.startswith(f"Error: {path}:4: ")
    assert pulsar.requests == []


@pytest.mark.parametrize("text", ["hit_count_high=2024-99-99", "hit_count_high=!!int x", "hit_count_high=" + "[" * 600])
def test_an_override_that_is_no_yaml(text: str, tmp_path: Path) -> None:
    """Exit 2, and the option."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"recording": 1}\n', encoding="utf-8")
    told(lbd("replay", "--set", text, path), 2, "the value is not YAML")


class TestAsAProcess:
    """The same from outside, where nothing catches a stack trace."""

    @pytest.mark.parametrize(
        ("command", "trouble", "code"),
        [
            (["run", "--once"], next(one for one in TROUBLES if one.name == "10 MB of brackets as reports"), 3),
            (["run"], None, 2),
        ],
        ids=["brackets", "settings"],
    )
    def test_one_line(
        self, command: list[str], trouble: Trouble | None, code: int, pulsar: FakePulsar, keys: Path, tmp_path: Path
    ) -> None:
        """And the exit code."""
        path = config_of(tmp_path, trouble.reach(pulsar, keys) if trouble else {"admin_urls": ["b1:8080"]})
        if trouble is not None:
            trouble.cause(pulsar, keys)
        program = [sys.executable, "-m", "lbd", *command, "--config", str(path)]
        found = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)
        told(found, code, trouble.words if trouble else "is no web address of a broker")
        untouched(pulsar)


IDS = ("b1:8080", "b2:8080", "b3:8080")
BUNDLES = {IDS[0]: HOT, IDS[1]: [WARM], IDS[2]: [COLD]}
RATES = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
USAGES = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
COUNTS = ("topics", "producerCount", "consumerCount")


def healthy() -> dict[str, Any]:
    """The reports of a hot, a warm and a cold broker, as JSON has them."""
    found: dict[str, Any] = {}
    for broker, cpu in zip(IDS, (80.0, 45.0, 10.0), strict=True):
        stats = {name: {**dict.fromkeys(RATES, 1000.0), **dict.fromkeys(COUNTS, 1)} for name in BUNDLES[broker]}
        usages = {name: {"usage": 0.0, "limit": -1.0} for name in USAGES} | {"cpu": {"usage": cpu, "limit": 100.0}}
        totals = dict.fromkeys(RATES, 1000.0 * len(stats))
        found[broker] = {**usages, **totals, "lastStats": stats, "bundles": list(stats), "numTopics": len(stats)}
    return found


ODD = st.sampled_from([0, -1, -1e300, 5e-324, 2**53, 2**64, 10**30, "NaN", "-Infinity", True, None, "", [], {}])
WHOLE = [(broker, field) for broker in IDS for field in (*USAGES, *RATES, "lastStats", "bundles", "numTopics", "new")]
PLACES = [
    *WHOLE,
    *((broker, name, key) for broker in IDS for name in USAGES for key in ("usage", "limit")),
    *((broker, "lastStats", names[0], field) for broker, names in BUNDLES.items() for field in (*RATES, *COUNTS)),
]
JSON = st.recursive(
    ODD | st.integers() | st.floats(allow_nan=False, allow_infinity=False, width=16) | st.text("a/0\n\\", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a/0", max_size=4), inner, max_size=3),
    max_leaves=5,
)
EAGER = Settings.model_validate(
    {
        "avg_shedder": {"hit_count_high": 1, "hit_count_low": 1},
        "guardrails": {"max_traffic_per_turn": 1.0, "membership_settle_seconds": 0},
    }
)


def put(reports: dict[str, Any], place: tuple[str, ...], value: object) -> None:
    """Change one value, where what is around it has not been changed itself."""
    inner: Any = reports
    for key in place[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if isinstance(inner, dict):
        inner[place[-1]] = value


def possible(report: dict[str, Any], bundle: str | None) -> bool:
    """Whether the numbers that a move would rest on are numbers that a broker can have."""
    cpu, stats = report.get("cpu", {}), report.get("lastStats", {})
    rates = [report.get(name, 0) for name in RATES]
    rates += [stats[bundle].get(name, 0) for name in RATES] if bundle in stats else []
    return float(cpu["usage"]) >= 0 and float(cpu["limit"]) > 0 and all(0 <= float(rate) < math.inf for rate in rates)


class TestAnything:
    @pytest.mark.security("impossible and malformed values in load reports: never move a bundle")
    @settings(max_examples=80)
    @given(st.lists(st.tuples(st.sampled_from(PLACES), ODD | JSON), min_size=1, max_size=3))
    def test_in_a_report(self, changes: list[tuple[tuple[str, ...], Any]]) -> None:
        """A plan or a line of words, and never a plan that rests on a number that cannot be."""
        reports = healthy()
        for place, value in changes:
            put(reports, place, value)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.jsonl"
            lines = [{"recording": 1}, {"t": 1_800_000_000, "reports": reports}]
            path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
            try:
                record = dry_run_recording(EAGER, path)
            except UsageError as error:
                assert len(str(error).splitlines()) == 1  # noqa: PT017 - any other exception fails the test by itself
                return
        assert record.error is None
        for unload in record.plan.unloads:
            assert possible(reports[unload.source], unload.bundle)
            assert possible(reports[unload.destination or ""], None)

    @settings(max_examples=80)
    @given(st.lists(st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()), max_size=4))
    def test_in_a_recording(self, lines: list[bytes]) -> None:
        """Rounds, or a line of words that names the file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "r.jsonl"
            path.write_bytes(b'{"recording": 1}\n' + b"\n".join(lines))
            try:
                list(replay(rounds(path), None, {}, stock=True))
            except UsageError as error:
                assert str(error).startswith(f"{path}:")  # noqa: PT017 - see above
