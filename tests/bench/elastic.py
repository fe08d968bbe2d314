"""Pulsar's own published table, simulated: 5 brokers become 10, 10 become 5, and ten are restarted one after the other.

    python -m tests.bench.elastic

100 bundles (1,000 for the restart) at the constants measured on real brokers: a JVM without traffic is cold, at six
times its usual CPU, and an unload takes 0.15 s. Pulsar's shedders run once a minute at the defaults of broker.conf
and under no limit of lbd's, lbd every 15 s at its own. Each figure is the median of three seeds.
"""

from __future__ import annotations

from multiprocessing import Pool
from statistics import median
from typing import TYPE_CHECKING, Any

from lbd.config import Settings
from lbd.score.scorecard import scorecard
from lbd.simulate.run import Simulation
from lbd.simulate.scenario import Scenario, settled

if TYPE_CHECKING:
    from lbd.score.scorecard import Scorecard

SEEDS = range(1, 4)
LOW, HIGH = 15.0, 40.0
"""Points by which all cells are measured: AvgShedder's thresholds."""

PULSAR = {
    "profile": "stock",
    "guardrails": {
        "cool_down_minutes": 30,  # loadBalancerSheddingGracePeriodMinutes
        "max_unloads_per_turn": 1_000_000,
        "max_unloads_per_hour": 0,
        "max_unloads_per_day": 0,
        "max_unloads_per_broker_per_hour": 0,
        "max_traffic_per_turn": 1,
        "max_traffic_per_hour": 1000,
        "max_moves_per_bundle": 0,
        "ping_pong_window_hours": 0,
        "stand_still_minutes": 0,
        "membership_settle_seconds": 0,
        "max_destination_score": 100,
    },
}
"""Pulsar's own balancing, of which lbd's guardrails are no part."""

CELLS: dict[str, dict[str, object]] = {
    "ThresholdShedder": {"strategy": "threshold-shedder", **PULSAR},
    "AvgShedder": {"strategy": "avg-shedder", **PULSAR},
    "TransferShedder": {"strategy": "transfer-shedder", **PULSAR},
    "lbd": {"interval_seconds": 15},
    "lbd, least-moves": {"strategy": "least-moves", "interval_seconds": 15},
}


def _scenario(brokers: list[dict[str, Any]], mib_per_second: int, bundles: int, hours: float) -> Scenario:
    load = {"name": "all", "mib_per_second": mib_per_second, "bundles": bundles, "spread": 0.5}
    return Scenario.model_validate(
        {"about": "Published table", "hours": hours, "cold_times": 6, "load": [load]}
        | {"brokers": [{"background": 15, **part} for part in brokers]}
    )


RESTARTS = {"first_at_minutes": 10, "every_minutes": 5, "away_seconds": 30}
SCENARIOS = {
    "5 to 10": _scenario([{"id": "old", "number": 5}, {"id": "new", "number": 5, "joins_at_minutes": 10}], 680, 100, 2),
    "10 to 5": _scenario([{"id": "a", "number": 5}, {"id": "b", "number": 5, "leaves_at_minutes": 10}], 680, 100, 2),
    "restart of ten": _scenario([{"id": "broker", "number": 10, "restarts": RESTARTS}], 900, 1000, 4),
}


def run(job: tuple[str, str, int]) -> Scorecard:
    """Run one cell with one seed."""
    name, cell, seed = job
    scenario = SCENARIOS[name]
    simulation = Simulation(scenario, settled(scenario, Settings(), CELLS[cell]), seed)
    for _ in simulation.turns():
        pass
    return scorecard(simulation.trace(), LOW, HIGH)


def main() -> None:
    """Print the table, as Markdown, a row as soon as its runs have ended."""
    jobs = [(name, cell, seed) for name in SCENARIOS for cell in CELLS for seed in SEEDS]
    print("| | balancer | minutes to balance | not balanced | minutes above 15 points | moves | gap at last |")
    print("|---|---|---|---|---|---|---|")
    with Pool(2) as pool:
        cards = pool.imap(run, jobs)
        for name in SCENARIOS:
            for cell in CELLS:
                print(f"| {name} | {cell} | {' | '.join(_row([next(cards) for _ in SEEDS]))} |", flush=True)


def _row(cards: list[Scorecard]) -> tuple[str, ...]:
    balanced = [card.minutes_to_balance for card in cards if card.minutes_to_balance is not None]
    return (
        f"{median(balanced):.1f}" if balanced else "-",
        f"{len(cards) - len(balanced)} of {len(cards)}",
        f"{median(card.minutes_over_low for card in cards):.1f}",
        f"{median(card.moves for card in cards):g}",
        f"{median(card.last.gap_points for card in cards):.1f}",
    )


if __name__ == "__main__":
    main()
