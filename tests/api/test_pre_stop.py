"""The preStop hook of broker pods, by real shells: lbd drains the broker; a bad lbd keeps no pod from stopping."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lbd.reason import Reason
from tests.api.conftest import PATIENCE_SECONDS, TOKEN, Api, listening, own_api, working
from tests.api.test_draining import ended, owned, who
from tests.api.test_tls import OPENSSL, certify
from tests.daemon.test_service import eventually
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lbd.simulate.fake_pulsar import FakePulsar

SCRIPT = Path(__file__).parents[2] / "examples" / "kubernetes" / "pre-stop.sh"
SHELLS = [shell for shell in ("dash", "busybox sh", "bash --posix") if shutil.which(shell.split()[0])]
TOOLS = ("grep", "hostname", "sed", "sleep", "tr")
BROKER = "pulsar-broker-0.pulsar-broker-headless.pulsar.svc.cluster.local:8080"


class Pod:
    """A broker's pod: what its hook is given, what it writes, and how it ends."""

    def __init__(self, folder: Path, url: str, broker: str = BROKER, shell: str = "sh") -> None:
        folder.mkdir(exist_ok=True)
        self.log, self._shell = folder / "log", shell
        (folder / "token").write_text(f"{TOKEN}\n")
        self.environ = {
            "PATH": os.environ["PATH"],
            "LBD_URL": url,
            "LBD_TOKEN_FILE": str(folder / "token"),
            "LBD_BROKER": broker,
            "LBD_POLL_SECONDS": "0.05",
            "LBD_PRE_STOP_LOG": str(self.log),
        }

    def begin(self, **environ: str) -> subprocess.Popen[str]:
        """Kubernetes ends the pod: the hook begins."""
        self.log.unlink(missing_ok=True)
        shell = shutil.which(self._shell.split()[0])
        assert shell is not None
        words = [shell, *self._shell.split()[1:], str(SCRIPT)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(words, env=self.environ | environ, text=True, **pipes)

    def stop(self, **environ: str) -> list[str]:
        """The hook from its beginning to its end; the lines in the pod's log. It ends with 0, and shows no token."""
        with self.begin(**environ) as hook:
            out, err = hook.communicate(timeout=PATIENCE_SECONDS)
        text = self.log.read_text() if self.log.exists() else ""
        assert (hook.returncode, out, err) == (0, "", "")
        assert TOKEN not in text
        assert all(line.startswith("lbd pre-stop: ") for line in text.splitlines()), text
        return [line.removeprefix("lbd pre-stop: ") for line in text.splitlines()]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """Each shell that brokers' images have: Debian's, Alpine's, and bash."""
    return str(request.param)


@pytest.fixture
def api(unpaced_api: Api) -> Api:
    """An lbd that moves without a pause."""
    return unpaced_api


def pod(api: Api, folder: Path, broker: str, shell: str = "sh") -> Pod:
    """A broker's pod beside this lbd."""
    assert api.serving.url is not None
    return Pod(folder, api.serving.url, broker, shell)


class TestDrain:
    def test_the_broker_owns_nothing_when_the_hook_ends(
        self, api: Api, cluster: FakePulsar, tmp_path: Path, shell: str
    ):
        """Two lines: it has begun, it is over. The order is lbd's for ten minutes more than the hook may take."""
        target = cluster.brokers[0]
        lines = pod(api, tmp_path / "pod", target, shell).stop(LBD_PRE_STOP_SECONDS="100")
        assert owned(cluster, target) == 0
        assert [line[: line.index(" bundles")] for line in lines] == [
            f"The drain of {target} has begun: 14",
            f"{target} owns nothing: 14",
        ]
        drain = api.get("/v1/drains").json()["drains"][0]["drain"]
        assert (drain["by"], drain["reason"]) == ("pre-stop", "Kubernetes stops the pod")
        assert round(drain["until"] - drain["since"]) == 700

    def test_a_broker_that_is_back_is_used_again(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """Its report shows another start, under the same name: lbd ends the drain by itself."""
        target = cluster.brokers[0]
        pod(api, tmp_path / "pod", target).stop()
        cluster.leave(target)
        api.turn()
        assert [one["drain"]["broker"] for one in api.get("/v1/drains").json()["drains"]] == [target]
        cluster.start(target)
        cluster.forward(300)
        api.turn()
        assert api.get("/v1/drains").json()["drains"] == []

    def test_two_pods_at_once_are_drained_one_after_the_other(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """The second waits for the first. Bundles for which no broker has room may stay; both pods stop."""
        one, two = (pod(api, tmp_path / name[-6:], name) for name in cluster.brokers[1:])
        with one.begin(LBD_OVERRIDE='the "node" goes') as first, two.begin(LBD_OVERRIDE="the node goes") as second:
            assert (first.wait(PATIENCE_SECONDS), second.wait(PATIENCE_SECONDS)) == (0, 0)
        logs = sorted((each.log.read_text().splitlines() for each in (one, two)), key=len)
        for lines in logs:
            assert re.match(r"lbd pre-stop: [\d.:]+ (owns nothing|still owns \d)", lines[-1]), lines
        assert not [line for line in logs[0] if "Refused" in line]
        refused = [line for line in logs[1] if "Refused" in line]  # none where the first had ended before it asked
        assert all("lbd does not begin yet: Refused: a drain of" in line for line in refused), refused

    def test_a_drain_that_a_person_ordered_keeps_its_end(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """Under way it is waited for; ended it goes on, for what has come back meanwhile."""
        target = cluster.brokers[0]
        before = api.post("/v1/drain", who(target, reason="new disk", for_seconds=7200)).json()["drain"]
        hook = pod(api, tmp_path / "pod", target)
        hook.stop()
        assert owned(cluster, target) == 0
        ended(api, target)
        lines = hook.stop()
        assert lines == [
            f"The drain of {target} goes on: 0 bundles, about 0 s.",
            f"{target} owns nothing, and needed no move.",
        ]
        after = api.get("/v1/drains").json()["drains"][0]["drain"]
        assert (after["until"], after["reason"]) == (before["until"], "new disk")

    def test_in_a_rollout_the_pod_stops_at_once(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """lbd has drained it already, and waits for its restart."""
        target = cluster.brokers[2]
        begun = api.post("/v1/rollout", {"owner": "ann", "brokers": [target], "executes": True})
        assert begun.status_code == 200, begun.text
        eventually(lambda: api.get("/v1/rollout").json()["rollout"]["phase"] == "restart")
        (line,) = pod(api, tmp_path / "pod", target).stop()
        assert line.startswith(f"the drain of {target} had ended before: {target} owns nothing: 2 bundles gone")
        assert api.get("/v1/rollout").json()["rollout"]["phase"] == "restart"

    def test_a_token_with_signs_of_json_and_curl(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """It is quoted on its way."""
        token = 'a"b\\c $d'
        (tmp_path / "token").write_text(token)
        hook = pod(api, tmp_path / "pod", cluster.brokers[2])
        assert "owns nothing" in hook.stop(LBD_TOKEN=token)[-1]

    @pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")
    def test_over_https(self, cluster: FakePulsar, tmp_path: Path):
        """By the CA that it is given; without it the token is not sent."""
        files = certify(tmp_path, "lbd", "subjectAltName=IP:127.0.0.1")
        secure = {**own_api(tmp_path), "tls": files}
        with listening(fakes.settings(cluster, tmp_path / "state", api=secure)) as found:
            found.turn()
            with working(found):
                hook = pod(found, tmp_path / "pod", cluster.brokers[2])
                with hook.begin(LBD_POLL_SECONDS="0.5") as untrusted:
                    eventually(lambda: hook.log.exists() and hook.log.read_text().endswith("\n"))
                    untrusted.terminate()
                assert "SSL certificate problem" in hook.log.read_text().splitlines()[0]
                assert "owns nothing" in hook.stop(LBD_CA_FILE=files["cert_file"])[-1]


class TestRefused:
    """By a real lbd: one line says why, and the pod stops."""

    def test_an_lbd_that_only_observes(self, cluster: FakePulsar, tmp_path: Path):
        """As the chart's default is."""
        with listening(fakes.settings(cluster, tmp_path / "state", api=own_api(tmp_path), mode="observe")) as found:
            found.turn()
            with working(found):
                (line,) = pod(found, tmp_path / "pod", cluster.brokers[0]).stop()
        assert line.startswith("lbd does not drain: Refused: this lbd only observes (mode: observe)")

    def test_a_paused_lbd(self, api: Api, cluster: FakePulsar, tmp_path: Path):
        """Unless a reason is given that passes it."""
        api.post("/v1/pause", {"owner": "bob", "reason": "upgrade"})
        hook = pod(api, tmp_path / "pod", cluster.brokers[2])
        (line,) = hook.stop()
        assert line.startswith("lbd does not drain: Refused: paused: by bob until lbd resume: upgrade")
        assert "owns nothing" in hook.stop(LBD_OVERRIDE="it stops anyway")[-1]

    @pytest.mark.parametrize(
        ("environ", "words"),
        [
            ({"LBD_TOKEN": "another"}, "lbd does not drain (status 401): wrong token"),
            ({"LBD_BROKER": "nobody:1"}, "lbd does not drain (status 400): Not begun: 'nobody:1' is no active broker"),
            ({"LBD_BROKER": "", "advertisedAddress": "me.example", "webServicePort": "99"}, "'me.example:99' is no"),
            ({"LBD_BROKER": 'a";b'}, "no name of this broker: set LBD_BROKER as lbd status lists it"),
        ],
    )
    def test_what_it_does_not_know(self, api: Api, tmp_path: Path, environ: dict[str, str], words: str):
        """The token, or the broker."""
        (line,) = pod(api, tmp_path / "pod", BROKER).stop(**environ)
        assert words in line


Reply = tuple[int, str]
SECONDS = 2
"""The deadline of a hook that would wait for ever."""


@contextmanager
def answering(reply: Callable[[BaseHTTPRequestHandler], Reply | None]) -> Iterator[str]:
    """Something in lbd's place; it answers nothing more where there is no reply."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", 0))
            self.rfile.read(length)
            found = reply(self)
            if found is not None:
                self.send_response(found[0])
                self.end_headers()
                self.wfile.write(found[1].encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.socket.close()


def told(status: int, detail: str) -> Reply:
    """A problem, as lbd answers."""
    return status, f'{{"title":"x","status":{status},"detail":"{detail}"}}'


def drip(handler: BaseHTTPRequestHandler) -> None:
    """An answer that never comes to its end."""
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.1)
    except OSError:
        return


def hang(_: BaseHTTPRequestHandler) -> None:
    """No answer."""
    time.sleep(20 * SECONDS)


def processes() -> list[str]:
    """The arguments of each one on this machine."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return found


OVER = f"{SECONDS} s are over; the broker stops with what it still owns"
STAYS = "; the broker stops as it is"
YET = "no usable answer from lbd yet: "
NOTHING = f"{YET}status {{}}, and nothing that lbd would say"
BAD: dict[str, tuple[Callable[[BaseHTTPRequestHandler], Reply | None], list[str]]] = {
    "forbidden": (
        lambda _: told(403, "this needs a token"),
        [f"lbd does not drain (status 403): this needs a token{STAYS}"],
    ),
    "conflict": (
        lambda _: told(409, "Refused: quiet-hours: until 6"),
        [f"lbd does not drain: Refused: quiet-hours: until 6{STAYS}"],
    ),
    "never settles": (
        lambda _: told(409, "Refused: membership-changed: 9 s to wait"),
        ["lbd does not begin yet: Refused: membership-changed: 9 s to wait", OVER],
    ),
    "many commands": (
        lambda _: told(409, "16 requests are waiting already"),
        ["lbd does not begin yet: 16 requests are waiting already", OVER],
    ),
    "flooded": (lambda _: told(503, "96 reading requests are"), [f"{YET}96 reading requests are", OVER]),
    "broken": (lambda _: (500, "<html>\x1b[31mboom"), [NOTHING.format(500), OVER]),
    "no json": (lambda _: (200, "welcome"), [NOTHING.format(200), OVER]),
    "half json": (lambda _: (200, '{"drains":[{"drain":{"broker":'), [NOTHING.format(200), OVER]),
    "elsewhere": (
        lambda _: (302, ""),
        [f"lbd does not drain (status 302): status 302, and nothing that lbd would say{STAYS}"],
    ),
    "an echo": (lambda one: (200, str(one.headers)), [NOTHING.format(200), OVER]),
    "an echo of errors": (
        lambda one: told(401, one.headers["Authorization"]),
        ["a line that is not shown, because the token is in it"],
    ),
    "drips": (drip, [OVER]),
}


class TestBadLbd:
    """It ends with 0 before its deadline, and one line says with what."""

    @pytest.mark.parametrize("name", BAD)
    def test_it_keeps_no_pod(self, tmp_path: Path, name: str):
        """Whatever answers: one line says what is wrong, and what may pass by itself is asked again until the end."""
        reply, lines = BAD[name]
        seconds = SECONDS if lines[-1] == OVER else 60
        with answering(reply) as url:
            found = Pod(tmp_path / "pod", url).stop(LBD_PRE_STOP_SECONDS=str(seconds), LBD_POLL_SECONDS="0.5")
        assert found in (lines, lines[-1:])  # a machine that stops for so long leaves no time for the first answer

    def test_an_outage_is_waited_out(self, tmp_path: Path):
        """However many requests fail: the drain begins once lbd answers again, and goes on after another outage."""
        none: Reply = (200, '{"drains":[],"fill":null}')
        begun: Reply = (200, f'{{"broker":"{BROKER}","sentence":"It has begun.","at":100.7,"drain":null}}')
        over = told_drain(begun_at="101.1", ended_at="110.3", held='""', sentence='"It owns nothing."')
        flood = [told(503, "96 reading requests are being answered already")] * 15
        answers = [*flood, none, begun, *flood, over]
        with answering(lambda _: answers.pop(0)) as url:
            lines = Pod(tmp_path / "pod", url).stop()
        assert lines[1:] == ["It has begun.", "It owns nothing."]
        assert answers == []

    def test_it_waits_no_longer_than_its_deadline(self, tmp_path: Path, shell: str):
        """For a request that hangs, in each shell; nothing that is left over holds its output."""
        with answering(hang) as url:
            assert Pod(tmp_path / "pod", url, shell=shell).stop(LBD_PRE_STOP_SECONDS=str(SECONDS)) == [OVER]

    def test_nobody_listens(self, tmp_path: Path, shell: str):
        """As where lbd is not there, or restarts elsewhere; a name that is not there is no better."""
        hook = Pod(tmp_path / "pod", "http://127.0.0.1:1", shell=shell)
        *first, last = hook.stop(LBD_PRE_STOP_SECONDS=str(SECONDS), LBD_POLL_SECONDS="0.5")
        assert all(line.startswith(f"{YET}(7) Failed to connect ") for line in first), first
        assert last == OVER
        lines = hook.stop(LBD_URL="http://lbd.invalid:8085", LBD_PRE_STOP_SECONDS=str(SECONDS), LBD_POLL_SECONDS="0.5")
        assert "Could not resolve host: lbd.invalid" in lines[0] or lines == [OVER]

    def test_no_process_waits_for_the_deadline(self, tmp_path: Path, shell: str):
        """Once the hook has ended before it."""
        with answering(lambda _: told(403, "this needs a token")) as url:
            Pod(tmp_path / "pod", url, shell=shell).stop(LBD_PRE_STOP_SECONDS="7654")
        eventually(lambda: not [words for words in processes() if "7654" in words])

    @pytest.mark.parametrize("missing", ["file", "text"])
    def test_without_a_token_nothing_is_asked(self, tmp_path: Path, shell: str, missing: str):
        """The file is not there, or empty."""
        path = tmp_path / "none"
        if missing == "text":
            path.write_text("")
        (line,) = Pod(tmp_path / "pod", "http://127.0.0.1:1", shell=shell).stop(LBD_TOKEN_FILE=str(path))
        assert line == f"no token in {path}; the broker stops as it is"

    def test_an_image_without_curl(self, tmp_path: Path, shell: str):
        """But with the other tools."""
        (tmp_path / "bin").mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (tmp_path / "bin" / tool).symlink_to(found)
        hook = Pod(tmp_path / "pod", "http://127.0.0.1:1", shell=shell)
        assert hook.stop(PATH=str(tmp_path / "bin")) == ["there is no curl in this image; the broker stops as it is"]

    @pytest.mark.parametrize("seconds", ["soon", "08", "-1", "1.5"])
    def test_a_deadline_that_is_none(self, tmp_path: Path, shell: str, seconds: str):
        """The default holds."""
        hook = Pod(tmp_path / "pod", "http://127.0.0.1:1", shell=shell)
        lines = hook.stop(LBD_PRE_STOP_SECONDS=seconds, LBD_TOKEN_FILE="/nowhere/token")
        assert lines[0] == "LBD_PRE_STOP_SECONDS is no whole number; 240 are taken"

    def test_a_log_that_cannot_be_written(self, tmp_path: Path, shell: str):
        """Lines go to stderr, which Kubernetes shows if a hook fails."""
        hook = Pod(tmp_path / "pod", "http://127.0.0.1:1", "", shell=shell)
        with hook.begin(LBD_PRE_STOP_LOG="/nowhere/log", LBD_TOKEN_FILE="/nowhere/token") as running:
            out, err = running.communicate(timeout=PATIENCE_SECONDS)
        assert (running.returncode, out) == (0, "")
        assert err.splitlines()[-1].endswith("the broker stops as it is")

    def test_the_token_is_in_no_list_of_processes(self, tmp_path: Path, shell: str):
        """Looked for while a request is under way, as anybody on the node may."""
        shown: list[str] = []

        def look(_: BaseHTTPRequestHandler) -> Reply:
            shown.extend(processes())
            return told(403, "seen enough")

        with answering(look) as url:
            Pod(tmp_path / "pod", url, shell=shell).stop()
        assert any("curl\0" in words and "/v1/drains" in words for words in shown)
        assert not [words for words in shown if TOKEN in words]


def told_drain(**work: Any) -> Reply:
    """The drains that lbd tells of, with what it would tell of the work."""
    words = ",".join(f'"{name}":{value}' for name, value in work.items())
    drain = f'{{"broker":"{BROKER}","since":1.5,"override":null,"rollout":""}}'
    return 200, f'{{"drains":[{{"drain":{drain},"work":{{{words}}}}}],"fill":null}}'


def test_what_passes_by_itself_is_waited_for(tmp_path: Path, shell: str):
    """Brokers that have come or gone, an lbd that stands by, one that restarts, a drain that waits for reports."""
    none: Reply = (200, '{"drains":[],"fill":null}')
    begun: Reply = (200, f'{{"broker":"{BROKER}","sentence":"It has begun.","at":100.7,"drain":null}}')
    old = told_drain(begun_at="50.1", ended_at="60.2", held='""', sentence='"of another day"')
    waits = told_drain(begun_at="101.1", ended_at="null", held='"settling: reports show it in 9 s at most"')
    answers = [
        *(none, told(409, "Refused: membership-changed: 90 s to wait")),
        *(none, told(409, "Refused: membership-changed: 89 s to wait")),
        *(none, told(409, "Refused: not-leader: this lbd stands by, lbd-0 leads")),
        *(told(503, "lbd is ending"), none, begun, none, old, waits, told(503, "lbd starts"), waits),
        told_drain(
            begun_at="101.1", ended_at="110.3", left='[{"bundle":"x"}]', held='""', sentence='"It owns nothing."'
        ),
    ]
    with answering(lambda _: answers.pop(0)) as url:
        lines = Pod(tmp_path / "pod", url, shell=shell).stop()
    assert lines == [
        "lbd does not begin yet: Refused: membership-changed: 90 s to wait",
        "lbd does not begin yet: Refused: not-leader: this lbd stands by, lbd-0 leads",
        "no usable answer from lbd yet: lbd is ending",
        "It has begun.",
        "the drain waits: settling: reports show it in 9 s at most",
        "no usable answer from lbd yet: lbd starts",
        "the drain waits: settling: reports show it in 9 s at most",
        "It owns nothing.",
    ]
    assert answers == []


def test_a_drain_that_is_released_is_waited_for_no_longer(tmp_path: Path, shell: str):
    """A person has ended it; the pod stops."""
    begun: Reply = (200, f'{{"broker":"{BROKER}","sentence":"It has begun.","at":100.7,"drain":null}}')
    answers = [begun]
    with answering(lambda one: answers.pop() if one.command == "POST" else (200, '{"drains":[],"fill":null}')) as url:
        lines = Pod(tmp_path / "pod", url, shell=shell).stop()
    assert lines == ["It has begun.", f"the drain of {BROKER} was ended; the broker stops as it is"]


def test_the_holds_that_pass_are_lbds():
    """By their labels, which are what lbd answers."""
    (pattern,) = re.findall(r"^ +(\*membership-changed.*)\)$", SCRIPT.read_text(), re.MULTILINE)
    labels = set(re.findall(r"\*([a-z-]+):\*", pattern))
    assert len(labels) == 4
    assert labels <= {reason.label for reason in Reason}


def test_it_is_a_clean_script(shell: str):
    """Each shell reads it, and shellcheck has nothing to say where it is installed."""
    subprocess.run([*shell.split(), "-n", str(SCRIPT)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "-s", "sh", str(SCRIPT)], check=True)
