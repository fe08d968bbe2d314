"""python -m tests.bench.load [placement] [mix] [page] [turns] [--rounds N] [--size BROKERS BUNDLES]."""

from __future__ import annotations

import argparse

from tests.bench.load import mix, page, placement, turns
from tests.bench.load.cluster import SIZE
from tests.bench.load.stage import stage

PARTS = {"placement": placement.measured, "mix": mix.measured, "page": page.measured, "turns": turns.measured}

INTERVALS = {"placement": 5.0, "mix": 2.5, "page": 1.0, "turns": 15.0}
"""Seconds between turns: the default is 15, and more of them meet more requests."""


def main() -> None:
    """Each part with a cluster and a daemon of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.load")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="so often: machines drift")
    parser.add_argument("--size", type=int, nargs=2, default=SIZE, metavar=("BROKERS", "BUNDLES"))
    chosen = parser.parse_args()
    for name in chosen.parts or PARTS:
        with stage(INTERVALS[name], tuple(chosen.size)) as on:
            PARTS[name](on, chosen.rounds)


if __name__ == "__main__":
    main()
