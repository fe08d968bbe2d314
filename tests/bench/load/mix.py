"""Whether a turn takes longer while everything that can be read is read, and how large the daemon gets by it."""

from __future__ import annotations

import statistics
from itertools import cycle
from typing import TYPE_CHECKING

from tests.bench.load.asking import Listening, ask_all, at_quantile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.load.asking import Asked
    from tests.bench.load.daemon import Turned
    from tests.bench.load.stage import Stage

ROUTES = (
    ("/v1/plan",),
    ("/v1/explain", "/v1/decisions", "/v1/snapshot?last=1000", "/v1/snapshot"),
    ("/v1/status", "/metrics", "/v1/moves", "/v1/gaps", "/v1/strategy"),
    ("/healthz", "/readyz", "/", "/static/app.js", "/v1/openapi.json", "/v1/placement?topic=persistent://simulated/n00/t"),
)  # fmt: skip
"""By client: what is slow to answer must not stand before the rest."""

A_SECOND, STREAMS = 10.0, 5
TURNS, SECONDS = 5, 75.0
PARTS: dict[str, Callable[[Turned], float]] = {
    "all": lambda turn: turn.seconds,
    "observe": lambda turn: turn.observe_seconds,
    "decide, and the rest": lambda turn: turn.rest_seconds,
    "processor": lambda turn: turn.cpu_seconds,
}


def measured(on: Stage, rounds: int) -> None:
    """A line for each round, and at last one for each route."""
    on.after(3)
    asked: list[Asked] = []
    for _ in range(rounds):
        quiet = on.next_turns(TURNS)
        clients = [(on.url, cycle(paths)) for paths in ROUTES]
        before = len(on.turns)
        with Listening(on.url, STREAMS) as listening:
            asked += [one for client in ask_all(clients, SECONDS, A_SECOND) for one in client]
        _compare(quiet, on.turns[before + 1 :])
        size = listening.bytes / max(listening.events, 1)
        now, most = on.memory()
        print(f"  {listening.events} events of {size:,.0f} bytes; the daemon has {now:.0f} MiB, at most {most:.0f}")
    for path in (path for paths in ROUTES for path in paths):
        _tell(path, [one for one in asked if one.path == path])


def _compare(quiet: list[Turned], mixed: list[Turned]) -> None:
    for name, part in PARTS.items():
        before, beside = (statistics.median(map(part, turns)) for turns in (quiet, mixed))
        print(f"{name:22} {before:6.3f} s alone, {beside:6.3f} s beside requests: {beside / before:4.2f} x", flush=True)


def _tell(path: str, asked: list[Asked]) -> None:
    wrong = {one.status for one in asked} - {200}
    times, size = [1000 * one.seconds for one in asked], statistics.median(one.size for one in asked)
    quantiles = f"p50 {at_quantile(times, 0.5):7.1f} ms, p99 {at_quantile(times, 0.99):7.1f} ms"
    print(f"{path:52} {size:9,.0f} bytes, {quantiles}{f', answered {wrong}' if wrong else ''}", flush=True)
