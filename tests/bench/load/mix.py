"""Whether a turn takes longer while everything that can be read is read, and how large the daemon gets by it.

Who asks takes time of the machine's processors, of which the simulated cluster gets what is left. So the same is also
asked of another lbd, which makes no turns meanwhile: what a turn takes longer then is not for answering in its process.
The machine drifts, so in every second round the other lbd is asked last, and the difference is told with its error.
"""

from __future__ import annotations

import math
import statistics
from itertools import cycle
from typing import TYPE_CHECKING

from tests.bench.load.asking import Listening, ask_all, at_quantile
from tests.bench.load.stage import another

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
TURNS, SECONDS = 20, 75.0
PARTS: dict[str, Callable[[Turned], float]] = {
    "all": lambda turn: turn.seconds,
    "observe": lambda turn: turn.observe_seconds,
    "decide, and the rest": lambda turn: turn.rest_seconds,
    "processor": lambda turn: turn.cpu_seconds,
}


def measured(on: Stage, rounds: int) -> None:
    """A line for each part of a turn in each round, then over all rounds, and at last one for each route."""
    on.after(3)
    asked: list[Asked] = []
    found: list[dict[str, list[Turned]]] = []
    with another(on) as other:
        for number in range(rounds):
            alone = on.next_turns(TURNS)
            order = (other, on.url) if number % 2 == 0 else (on.url, other)
            beside = {url: _beside(on, url) for url in order}
            own, answered, listening = beside[on.url]
            found.append({"alone": alone, "other": beside[other][0], "own": own})
            asked += answered
            _compare(found[-1])
            size = listening.bytes / max(listening.events, 1)
            now, most = on.memory()
            print(f"  {listening.events} events of {size:,.0f} bytes; the daemon has {now:.0f} MiB, at most {most:.0f}")
    print("all rounds")
    turns = {name: [turn for one in found for turn in one[name]] for name in found[0]}
    _compare(turns)
    _tell_difference(turns["own"], turns["other"])
    for path in (path for paths in ROUTES for path in paths):
        _tell(path, [one for one in asked if one.path == path])


def _beside(on: Stage, url: str) -> tuple[list[Turned], list[Asked], Listening]:
    """Turns beside requests to one of both, and what these were."""
    clients = [(url, cycle(paths)) for paths in ROUTES]
    before = len(on.turns)
    with Listening(url, STREAMS) as listening:
        asked = [one for client in ask_all(clients, SECONDS, A_SECOND) for one in client]
    return on.turns[before + 1 :], asked, listening


def _compare(turns: dict[str, list[Turned]]) -> None:
    """Medians: alone, beside as many requests to the other lbd, and beside those to its own."""
    for name, part in PARTS.items():
        alone, other, own = (statistics.median(map(part, turns[kind])) for kind in ("alone", "other", "own"))
        told = f"{other:6.3f} s beside requests to another lbd, {own:6.3f} s to this one"
        print(f"{name:22} {alone:6.3f} s alone, {told}: {other / alone:4.2f} x, {own / alone:4.2f} x", flush=True)


def _tell_difference(own: list[Turned], other: list[Turned]) -> None:
    """How much longer a turn takes by answering in its own process, in the mean, with the standard error of that."""
    for name, part in PARTS.items():
        ours, theirs = list(map(part, own)), list(map(part, other))
        longer = statistics.fmean(ours) - statistics.fmean(theirs)
        error = math.hypot(*(statistics.stdev(taken) / math.sqrt(len(taken)) for taken in (ours, theirs)))
        told = f"{1000 * longer:+.0f} ms by the answers, standard error {1000 * error:.0f} ms"
        print(f"{name:22} {told} ({len(ours)} and {len(theirs)} turns)", flush=True)


def _tell(path: str, asked: list[Asked]) -> None:
    wrong = {one.status for one in asked} - {200}
    times, size = [1000 * one.seconds for one in asked], statistics.median(one.size for one in asked)
    quantiles = f"p50 {at_quantile(times, 0.5):7.1f} ms, p99 {at_quantile(times, 0.99):7.1f} ms"
    print(f"{path:52} {size:9,.0f} bytes, {quantiles}{f', answered {wrong}' if wrong else ''}", flush=True)
