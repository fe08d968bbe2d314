"""Which brokers of a test cluster hang, and where: a test that ran into one says so, and does not wait for an hour."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import requests

from tests.e2e.probe import ProbeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

PATIENCE_SECONDS = 10.0
LINES = 40
_REPORT = "/admin/v2/broker-stats/load-report"
_THREAD = '"metadata-store-'
"""Threads on which everything waits that has to do with ownership; one of them must never wait itself."""


def silent(cluster: Cluster) -> list[str]:
    """The running brokers that take a request and do not answer it."""
    running = [index for index in range(len(cluster.brokers)) if cluster.alive(index)]
    return [cluster.brokers[index] for index in running if not _answers(cluster, index)]


@contextmanager
def named(cluster: Cluster) -> Iterator[None]:
    """Whatever fails while brokers hang fails for that reason, told with the stacks of their metadata threads."""
    try:
        yield
    except (AssertionError, ProbeError, requests.RequestException, subprocess.TimeoutExpired) as error:
        found = silent(cluster)
        if not found:
            raise
        cluster.leave_thread_dumps()
        stacks = "\n".join(f"{broker}:\n{_stack(cluster, broker)}" for broker in found)
        raise AssertionError(f"{', '.join(found)} hang, and answer nothing\n{stacks}") from error


def _answers(cluster: Cluster, index: int) -> bool:
    try:
        cluster.session.get(cluster.admin_urls[index] + _REPORT, timeout=PATIENCE_SECONDS)
    except requests.Timeout:
        return False
    except requests.ConnectionError:  # it has ended meanwhile: another matter
        return True
    return True


def _stack(cluster: Cluster, broker: str) -> str:
    """What metadata threads wait for, by the last thread dump in the broker's log."""
    log = Path(cluster.processes[f"broker-{broker.partition(':')[0]}"].log)
    threads = log.read_text(errors="replace").rpartition("Full thread dump")[2].split("\n\n")
    stuck = [one for one in threads if one.startswith(_THREAD) and "CompletableFuture" in one]
    return "\n".join(line for one in stuck for line in one.splitlines()[:LINES]) or f"none of {_THREAD} is; see {log}"
