"""Real programs of Prometheus: promtool, and a server that scrapes, or that has the samples of an hour."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml

from tests.api.conftest import PATIENCE_SECONDS
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = EXAMPLES / "prometheus" / "lbd.rules.yml"
DASHBOARD = EXAMPLES / "grafana" / "lbd.json"

LISTENS = re.compile(r'msg="Listening on".* address=(\S+)')
"""Prometheus' line once its port is open."""


def program(name: str) -> str:
    """A program of Debian's package ``prometheus``; without it the test is skipped, or fails where it must run."""
    found = shutil.which(name)
    if found is None:
        if os.environ.get("LBD_REQUIRE_PROMETHEUS"):
            pytest.fail(f"{name} is not installed, and LBD_REQUIRE_PROMETHEUS is set; apt-get install prometheus")
        pytest.skip(f"{name} is not installed; apt-get install prometheus")
    return found


@contextmanager
def server(folder: Path, targets: list[dict[str, Any]]) -> Iterator[str]:
    """The address of a server with the example's settings and rules, on a port that the system chose for it.

    It scrapes ``targets``, and what is in ``folder/data`` it has already.
    """
    config = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())
    config["global"]["scrape_interval"] = "1s"
    config["rule_files"] = [str(RULES)]
    config["scrape_configs"][0]["static_configs"] = targets
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [program("prometheus"), *words, "--web.listen-address=127.0.0.1:0"], stdout=log, stderr=log
        )
        try:
            url = f"http://{_address(folder / 'prometheus.log')}"
            eventually(lambda: _ready(url))
            yield url
        finally:
            process.kill()
            process.wait()


def _address(log: Path) -> str:
    """Where the server listens, as its log says once it does."""
    eventually(lambda: LISTENS.search(log.read_text()))
    listens = LISTENS.search(log.read_text())
    assert listens is not None
    return listens[1]


def _ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=PATIENCE_SECONDS).status_code == 200
    except requests.RequestException:
        time.sleep(0.2)
        return False


def answer(url: str, path: str, **words: Any) -> Any:
    """The data of an answer of the server's API."""
    found = requests.get(f"{url}/api/v1/{path}", params=words, timeout=PATIENCE_SECONDS)
    assert found.json()["status"] == "success", (path, words, found.text)
    return found.json()["data"]
