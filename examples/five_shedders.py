"""What each of Pulsar's shedders would do about one recorded hot broker, round after round, without lbd's guardrails.

    .venv/bin/python examples/five_shedders.py

The recording goes on as it was, for nobody moved anything: what was chosen rests, and others are chosen next.
"""

from __future__ import annotations

from pathlib import Path

from lbd.replay import replay, rounds

RECORDING = Path(__file__).with_name("hot-broker.jsonl.gz")
STRATEGIES = ("avg-shedder", "threshold-shedder", "overload-shedder", "uniform-load-shedder", "transfer-shedder")
"""With Pulsar's own settings."""

PLACEMENT = "least-resource-usage-with-weight"


def main() -> None:
    """Print a row for each strategy."""
    print(f"{'strategy':21} {'first round':>11} {'rounds':>7} {'bundles':>8} {'msg/s':>7}  to")
    for strategy in STRATEGIES:
        seen = list(replay(rounds(RECORDING), strategy, {}, stock=True, placement=PLACEMENT))
        firing = [one for one in seen if one.decision.unloads]
        unloads = [unload for one in firing for unload in one.decision.unloads]
        first = str(firing[0].round) if firing else "-"
        carried = sum(unload.msg_rate for unload in unloads)
        to = ", ".join(sorted({str(unload.destination).partition(".")[0] for unload in unloads}))
        print(f"{strategy:21} {first:>11} {len(firing):>7} {len(unloads):>8} {carried:>7,.0f}  {to}")


if __name__ == "__main__":
    main()
