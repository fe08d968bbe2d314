"""What each of Pulsar's shedders would do about one recorded hot broker, round after round, without lbd's guardrails.

    .venv/bin/python examples/five_shedders.py

The recording goes on as it was, for nobody moved anything: what was chosen rests, and others are chosen next.
"""

from __future__ import annotations

from pathlib import Path

from lbd.replay import replay, rounds

RECORDING = Path(__file__).with_name("hot-broker.jsonl")
SETTINGS = {
    "avg-shedder": {"hit_count_high": 1, "hit_count_low": 2},
    "threshold-shedder": {"bundle_unload_min_throughput_threshold": 0.1},
    "overload-shedder": {"broker_overloaded_threshold_percentage": 80},
    "uniform-load-shedder": {},
    "transfer-shedder": {"broker_load_target_std": 0.1},
}
"""Thresholds for a cluster of 2 MB/s; Pulsar's own are for clusters a hundred times larger."""

PLACEMENT = "least-resource-usage-with-weight"


def main() -> None:
    """Print a row for each strategy."""
    print(f"{'strategy':21} {'first round':>11} {'rounds':>7} {'bundles':>8} {'msg/s':>7}  to")
    for strategy, settings in SETTINGS.items():
        seen = list(replay(rounds(RECORDING), strategy, settings, stock=True, placement=PLACEMENT))
        firing = [one for one in seen if one.decision.unloads]
        unloads = [unload for one in firing for unload in one.decision.unloads]
        first = str(firing[0].round) if firing else "-"
        carried = sum(unload.msg_rate for unload in unloads)
        to = ", ".join(sorted({str(unload.destination).partition(".")[0] for unload in unloads}))
        print(f"{strategy:21} {first:>11} {len(firing):>7} {len(unloads):>8} {carried:>7,.0f}  {to}")


if __name__ == "__main__":
    main()
