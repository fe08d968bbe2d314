"""How long a placement's answer takes, by bundle and by topic, with one client and with several beside turns."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from tests.bench.load.asking import ask, ask_all, at_quantile, beside
from tests.bench.load.cluster import bundles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.load.asking import Asked
    from tests.bench.load.daemon import Turned
    from tests.bench.load.stage import Stage

ONE_SECONDS, MANY_SECONDS = 10.0, 25.0
A_SECOND, CLIENTS = 50.0, 5
TOPICS = 1_000_000
HEAD = f"{'milliseconds':58} {'number':>7} {'p50':>7} {'p99':>7} {'max':>7}"


def measured(on: Stage, rounds: int) -> None:
    """A table: each way of asking ``rounds`` times, beside a process of the same machine that is otherwise idle."""
    names = bundles()
    on.after(3)
    print(HEAD)
    first = {name.rpartition("/")[0]: f"/v1/placement/{name}" for name in names}
    _tell("the first question about a namespace, which asks a broker", ask(on.url, first.values(), 60.0))
    for _ in range(rounds):
        for kind, paths in (("bundle", _of_bundles), ("topic", _of_topics)):
            _tell(f"by {kind}, one client after its answer", ask(on.url, paths(names, 0), ONE_SECONDS))
            _many(on, kind, lambda number, paths=paths: paths(names, number))  # type: ignore[misc]


def _many(on: Stage, kind: str, paths: Callable[[int], Iterator[str]]) -> None:
    begun = time.time()
    clients = [(url, paths(number)) for number in range(CLIENTS) for url in (on.url, on.idle)]
    found = ask_all(clients, MANY_SECONDS, 2 * A_SECOND)
    turns = [turn for turn in on.turns if turn.ended > begun]
    _tell_turns(turns)
    for whose, asked in ((f"by {kind}, {A_SECOND:g} a second", found[0::2]), ("  an idle process", found[1::2])):
        _with_turns(whose, [one for client in asked for one in client], turns)


def _tell_turns(turns: list[Turned]) -> None:
    """Seconds that do not hang on what else the machine does, but for the first."""
    parts = ("seconds", "process_seconds", "cpu_seconds", "collected_seconds")
    found = {part: at_quantile((getattr(one, part) for one in turns), 0.5) for part in parts}
    print(f"{len(turns)} turns, each:", ", ".join(f"{part} {value:.3f}" for part, value in found.items()))


def _with_turns(name: str, asked: list[Asked], turns: list[Turned]) -> None:
    _tell(name, asked)
    _tell(f"{name}, those beside a turn", beside(asked, turns))


def _tell(name: str, asked: list[Asked]) -> None:
    wrong = {one.status for one in asked} - {200}
    times = [1000 * one.seconds for one in asked]
    quantiles = " ".join(f"{at_quantile(times, part):7.1f}" for part in (0.5, 0.99, 1.0))
    print(f"{name:58} {len(times):7,} {quantiles}{f'  answered {wrong}' if wrong else ''}", flush=True)


def _of_bundles(names: list[str], seed: int) -> Iterator[str]:
    chosen = random.Random(seed)
    while True:
        yield f"/v1/placement/{chosen.choice(names)}"


def _of_topics(names: list[str], seed: int) -> Iterator[str]:
    chosen = random.Random(seed)
    while True:
        namespace = chosen.choice(names).rpartition("/")[0]
        yield f"/v1/placement?topic=persistent://{namespace}/topic-{chosen.randrange(TOPICS)}"
