"""What examples/spark-k8s asks Kubernetes for: Spark's own client against an API server that takes notes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest

from tests.learn.histories import CALM, settled, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 300
SUBMIT = Path(__file__).parents[2] / "examples" / "spark-k8s" / "submit.sh"
IMAGE = "registry.example/lbd-learn:0.1.0"
KINDS = {"pods": "Pod", "configmaps": "ConfigMap", "persistentvolumeclaims": "PersistentVolumeClaim"}


class Noting(BaseHTTPRequestHandler):
    """Has nothing, takes everything, and says that it is there."""

    made: list[dict[str, Any]]

    def do_GET(self) -> None:
        kind = KINDS.get(self.path.partition("?")[0].rpartition("/")[2])
        if kind is None:
            self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})
        elif "watch=true" in self.path:
            self._answer(200, None)
        else:
            self._answer(200, {"kind": f"{kind}List", "apiVersion": "v1", "metadata": {}, "items": []})

    def do_POST(self) -> None:
        found = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        named = re.search(r"/namespaces/([^/]+)/", self.path)
        found["metadata"].update(namespace=named[1] if named else None)
        self.made.append(found)
        self._answer(201, found)

    do_PUT = do_POST  # noqa: N815 - the class above looks for it

    def do_DELETE(self) -> None:
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the class above
        """Nothing is printed."""

    def _answer(self, code: int, body: dict[str, Any] | None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@contextmanager
def kubernetes() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and what it was asked to make."""
    handler = type("Handler", (Noting,), {"made": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"k8s://http://127.0.0.1:{server.server_port}", handler.made
        server.shutdown()
        thread.join()


@contextmanager
def submitted(folder: Path, *words: str, **environ: str) -> Iterator[Path]:
    """``submit.sh``, ended in the end: no executor ever comes. What it says is in the file."""
    pyspark = pytest.importorskip("pyspark")
    programs = Path(pyspark.__file__).parent / "bin"
    python = {"PYTHON": sys.executable, "DRIVER_PYTHON": sys.executable, "PYTHONPATH": str(SUBMIT.parents[2])}
    around = {
        **os.environ,
        **python,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        **environ,
    }
    said = folder / "said"
    with said.open("wb") as file:
        pipes = {"stdout": file, "stderr": file, "cwd": folder, "env": around}
        process = subprocess.Popen(["bash", str(SUBMIT), *words], start_new_session=True, **pipes)
    try:
        yield said
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # at SIGTERM it would wait for Spark, and Spark for its pods
        process.wait(PATIENCE_SECONDS)


@pytest.mark.spark
@pytest.mark.soak
def test_executors_are_pods_that_kubernetes_takes(tmp_path: Path):
    """Of the image and in the namespace that were named, as many as were asked for, and told where the driver is."""
    simulated(tmp_path / "history", settled(**CALM), hours=2)
    words = ("--history", str(tmp_path / "history"), "--out", str(tmp_path / "out"), "--candidates", "3")
    with (
        kubernetes() as (master, made),
        submitted(tmp_path, *words, MASTER=master, IMAGE=IMAGE, NAMESPACE="learning", DRIVER_HOST="127.0.0.1") as said,
    ):
        until = time.monotonic() + PATIENCE_SECONDS
        while sum(one["kind"] == "Pod" for one in made) < 2 and time.monotonic() < until:
            time.sleep(0.2)
        pods = [one for one in made if one["kind"] == "Pod"][:2]

    assert len(pods) == 2, said.read_text()[-3000:]
    for pod in pods:
        kubernetes_validate.validate(pod, "1.36", strict=False)
        (container,) = pod["spec"]["containers"]
        assert (pod["metadata"]["namespace"], container["image"]) == ("learning", IMAGE)
        assert container["args"] == ["executor"]
        environ = {each["name"]: each.get("value") for each in container["env"]}
        assert re.fullmatch(r"spark://CoarseGrainedScheduler@127\.0\.0\.1:\d+", environ["SPARK_DRIVER_URL"] or "")
        assert environ["SPARK_EXECUTOR_MEMORY"] == "2048m"


@pytest.mark.parametrize(
    ("environ", "told"), [({}, "MASTER: the address of Kubernetes"), ({"MASTER": "k8s://x"}, "IMAGE: an image")]
)
def test_what_is_not_said_is_asked_for(environ: dict[str, str], told: str):
    """Before Spark is started."""
    around = {name: value for name, value in os.environ.items() if name not in {"MASTER", "IMAGE"}}
    done = subprocess.run(["bash", str(SUBMIT)], capture_output=True, text=True, env={**around, **environ}, check=False)
    assert (done.returncode, told in done.stderr) == (1, True)
