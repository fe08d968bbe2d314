"""``lbd calibrate`` elsewhere than in this process: at a Connect server, on a master with two workers, and from S3."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyarrow.fs import S3FileSystem, copy_files

from tests.learn.conftest import calibrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.spark, pytest.mark.soak]
PATIENCE_SECONDS = 300
MOTO = "moto[s3,server]==5.2.5"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
"""In the version of Spark's own Hadoop, as docs/calibrate.md has it; 660 MB with what it needs."""

KEYS = {"access_key": "any", "secret_key": "any"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Starts daemons of Spark, and ends them; what each says is in the file that is returned."""
    pyspark = pytest.importorskip("pyspark")
    home = Path(pyspark.__file__).parent
    environ = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1",
               "PYSPARK_PYTHON": sys.executable}  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *words: str) -> Path:
        said = tmp_path / f"{name}.log"
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{words[0]}", *words[1:]]
        with said.open("wb") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=file, env=environ, cwd=tmp_path))
        return said

    yield begin
    for process in reversed(running):
        process.terminate()
    for process in running:
        process.wait(timeout=PATIENCE_SECONDS)


def told(said: Path, pattern: str, times: int = 1) -> list[str]:
    """What a daemon says, once it has said it so often."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found = re.findall(pattern, said.read_text(errors="replace"))
        if len(found) >= times:
            return found
        time.sleep(0.2)
    pytest.fail(f"{said.name} did not say {pattern!r} {times} times: {said.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def bucket(history: Path, tmp_path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The history in a bucket of a server that speaks S3: its path, and the options that lead there."""
    uv = shutil.which("uv") or pytest.skip("no uv command, which runs moto's server")
    said, command = tmp_path / "s3.log", [uv, "tool", "run", "--from", MOTO, "moto_server", "-p", "0"]
    with said.open("wb") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        (address,) = told(said, r"Running on http://(127\.0\.0\.1:\d+)")
        s3 = S3FileSystem(endpoint_override=address, scheme="http", allow_bucket_creation=True, **KEYS)
        s3.create_dir("lbd")
        copy_files(str(history), "lbd/history", destination_filesystem=s3)
        options = {"endpoint": f"http://{address}", "path.style.access": "true",
                   "access.key": KEYS["access_key"], "secret.key": KEYS["secret_key"]}  # fmt: skip
        words = [word for name, value in options.items() for word in ("--conf", f"spark.hadoop.fs.s3a.{name}={value}")]
        yield "s3a://lbd/history", ("--packages", HADOOP_AWS, *words)
    finally:
        server.terminate()
        server.wait(timeout=PATIENCE_SECONDS)


@pytest.fixture
def own(proposed: tuple[Path, object]) -> bytes:
    """What a Spark of lbd's own proposes."""
    return (proposed[0] / "proposal.yaml").read_bytes()


def test_a_connect_server(start: Callable[..., Path], history: Path, own: bytes, tmp_path: Path):
    """It makes the proposal that a Spark of lbd's own makes, to the byte."""
    options = {"spark.connect.grpc.binding.port": "0", "spark.ui.enabled": "false"}
    words = [word for key, value in options.items() for word in ("--conf", f"{key}={value}")]
    kind = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    server = start("connect", "SparkSubmit", *kind, "--master", "local[1]", *words, "spark-internal")
    (port,) = told(server, r"Spark Connect server started at: \S+:(\d+)")

    calibrated(history, tmp_path / "remote", f"sc://127.0.0.1:{port}")
    assert (tmp_path / "remote" / "proposal.yaml").read_bytes() == own


def test_a_standalone_cluster(start: Callable[..., Path], history: Path, own: bytes, tmp_path: Path):
    """Two workers of one core each do the work, and what comes of it is where the command ran."""
    loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    master = start("master", "master.Master", *loopback)
    (url,) = told(master, r"Starting Spark master at (spark://\S+)")
    for number in (1, 2):
        folder = ("--work-dir", str(tmp_path / f"work-{number}"))
        start(f"worker-{number}", "worker.Worker", *loopback, "--cores", "1", "--memory", "1500m", *folder, url)
    told(master, r"Registering worker", 2)
    calibrated(history, out := tmp_path / "calibration", url)
    assert (out / "candidates.parquet").is_file()
    assert (out / "proposal.yaml").read_bytes() == own
    assert len(set(told(master, r"Launching executor app-\S+ on worker (\S+)", 2))) == 2


def test_an_s3_bucket(bucket: tuple[str, tuple[str, ...]], own: bytes, tmp_path: Path):
    """What is read from there is what is read from a disk; the proposal is the same to the byte."""
    history, options = bucket
    calibrated(history, tmp_path / "calibration", "local[1]", *options)
    assert (tmp_path / "calibration" / "proposal.yaml").read_bytes() == own
