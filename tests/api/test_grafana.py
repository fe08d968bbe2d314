"""Queries of the dashboard and of the alerts, run by a real Prometheus that has the scrapes of an hour of the demo."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.act.ownership import ActClock
from lbd.clock import Timebase
from lbd.config import Settings
from lbd.daemon import wiring
from lbd.demo import BUSY_PEAK, DAY_SECONDS, RUNTIME
from lbd.simulate.cluster import cluster
from lbd.simulate.scenario import load, settled
from tests.api.conftest import PATIENCE_SECONDS, listening, own_api, working
from tests.api.prometheus import DASHBOARD, EXAMPLES, RULES, answer, program, server
from tests.simulate import faulty
from tests.simulate.faulty import FaultyPulsar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.api.conftest import Api

HOUR_SECONDS, SCRAPE_SECONDS = 3600, 30
PAUSED_AT, DRAINED_AT, UNREPORTED_AT = 600, 2400, 3000
"""Seconds after the beginning: five minutes of pause, a drain that leaves bundles, a minute without load reports."""

DASHBOARD_JSON = json.loads(DASHBOARD.read_text())
ALERTS = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
AGES = "Age of each broker's numbers"
QUERIES = {
    **{
        f"{panel['title']}, {target['refId']}": target["expr"]
        for panel in DASHBOARD_JSON["panels"]
        for target in panel["targets"]
    },
    **{f"annotation {one['name']}": one["expr"] for one in DASHBOARD_JSON["annotations"]["list"]},
}


@dataclass(frozen=True)
class Hour:
    """A server that knows the hour from ``begun_at`` on (epoch seconds) of two clusters.

    ``moves`` and ``drain`` are those of the first one, as the API has them at the end.
    """

    url: str
    begun_at: float
    moves: Sequence[Mapping[str, Any]]
    drain: Mapping[str, Any]

    def series(self, query: str, cluster: str = "simulated", instance: str = ".*") -> list[Mapping[str, Any]]:
        """What Grafana would draw, each with values by time."""
        for name, value in (("cluster", cluster), ("instance", instance), ("__rate_interval", "2m")):
            query = query.replace(f"${name}", value)
        span = {"start": self.begun_at, "end": self.begun_at + HOUR_SECONDS, "step": SCRAPE_SECONDS}
        found = answer(self.url, "query_range", query=query, **span)["result"]
        drawn = [
            {**one, "values": {at: float(value) for at, value in one["values"] if value != "NaN"}} for one in found
        ]
        return [one for one in drawn if one["values"]]

    def lasted(self, query: str) -> float:
        """For how many seconds at most it had an answer without a break."""
        times = [list(one["values"]) for one in self.series(query)]
        unbroken = (
            sum(1 for _ in run) * SCRAPE_SECONDS
            for one in times
            for goes_on, run in groupby(later - before < 1.5 * SCRAPE_SECONDS for before, later in pairwise(one))
            if goes_on
        )
        return max(unbroken, default=0.0)


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    """The demo as it goes on living with ``--serve``, an hour of it in seconds.

    Scrapes are imported with the time of the cluster, as Prometheus scrapes by this machine's clock only. Each is there
    once more, as that of another cluster with an lbd of its own.
    """
    folder = tmp_path_factory.mktemp("hour")
    program("prometheus")
    scenario, begun_at = load("demo"), time.time() - HOUR_SECONDS
    with (
        pytest.MonkeyPatch.context() as patch,
        FaultyPulsar(*cluster(scenario, 1), runtime=RUNTIME, begun_at=begun_at, speed=0.001) as brokers,
    ):
        patch.setattr(wiring, "CLOCK", ActClock(brokers.now, brokers.forward))
        brokers.begin_days(DAY_SECONDS, BUSY_PEAK)
        own = {
            "pulsar": {"admin_urls": brokers.admin_urls},
            "state_dir": str(folder / "state"),
            "interval_seconds": SCRAPE_SECONDS,
            "load": {"live_cpu": False},
            "api": own_api(folder),
        }
        settings = settled(scenario, Settings.model_validate(own), {})
        with listening(settings, Timebase(brokers.now, lambda: 1.0)) as api, working(api):
            _live(api, brokers, folder / "hour.txt", begun_at)
            moves = api.get("/v1/moves?last=1000").json()
            (drain,) = api.get("/v1/drains").json()["drains"]
    words = ["tsdb", "create-blocks-from", "openmetrics", str(folder / "hour.txt"), str(folder / "data")]
    done = subprocess.run([program("promtool"), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with server(folder, []) as url:
        yield Hour(url, begun_at, moves, drain)


def _live(api: Api, brokers: FaultyPulsar, path: Path, begun_at: float) -> None:
    """An hour of turns, each with a scrape, and what happens between them."""
    order = {"owner": "ann", "broker": brokers.brokers[-1], "respect_rest": True}
    events: dict[int, Callable[[], object]] = {
        PAUSED_AT: lambda: api.post("/v1/pause", {"owner": "ann", "for_seconds": 300}).raise_for_status(),
        DRAINED_AT: lambda: api.post("/v1/drain", order).raise_for_status(),
        UNREPORTED_AT: lambda: brokers.faults.on(faulty.Switch(faulty.Fault.UNAVAILABLE, part=faulty.LOAD_REPORT)),
        UNREPORTED_AT + 60: brokers.faults.off,
    }
    with path.open("w") as file:
        for seconds in range(SCRAPE_SECONDS, HOUR_SECONDS, SCRAPE_SECONDS):
            brokers.forward(max(begun_at + seconds - brokers.now(), 0.0))
            api.turn()
            assert api.engine.wait(PATIENCE_SECONDS)
            events.get(seconds, lambda: None)()
            scrape, scraped_at = api.get("/metrics").text, brokers.now()
            for known, instance in (("simulated", "a:8085"), ("other", "b:8085")):
                labels = f'job="lbd",instance="{instance}"'
                for line in ("up{} 1.0", *scrape.splitlines()):
                    if not line.startswith("#"):
                        own = line.replace('cluster="simulated"', f'cluster="{known}"').replace("{", f"{{{labels},", 1)
                        file.write(f"{own.replace(',}', '}')} {scraped_at}\n")
        file.write("# EOF\n")


class TestDashboard:
    def test_every_query_finds_what_the_hour_had(self, hour: Hour):
        """Of the cluster and the lbd that are chosen, of all lbds, and of no others."""
        assert [name for name, query in QUERIES.items() if not hour.series(query)] == []
        assert [name for name, query in QUERIES.items() if not hour.series(query, instance="a:8085")] == []
        assert [name for name, query in QUERIES.items() if hour.series(query, instance="b:8085")] == []
        assert [name for name, query in QUERIES.items() if hour.series(query, cluster="none")] == []

    def test_its_variables_offer_each_cluster_and_the_lbds_of_one(self, hour: Hour):
        """As Grafana asks for label_values(series, label)."""
        asked = {
            one["name"]: re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"])
            for one in DASHBOARD_JSON["templating"]["list"]
            if one["type"] == "query"
        }
        found = {}
        for name, words in asked.items():
            assert words is not None
            series = words[1].replace("$cluster", "other")
            span = {"start": hour.begun_at, "end": hour.begun_at + HOUR_SECONDS}
            found[name] = answer(hour.url, f"label/{words[2]}/values", **{"match[]": series}, **span)
        assert found == {"cluster": ["other", "simulated"], "instance": ["b:8085"]}

    def test_moves_are_marked_when_they_were_made(self, hour: Hour):
        """Each in the two minutes of the query and a scrape; a quarter of the hour or more has no mark."""
        marked = {at for one in hour.series(QUERIES["annotation Moves"]) for at in one["values"]}
        landed = [move["ended_at"] for move in hour.moves if move["result"] == "landed"]
        assert len(landed) >= 10
        assert [at for at in landed if not any(at <= mark <= at + 150 for mark in marked)] == []
        assert [mark for mark in marked if not any(at <= mark <= at + 150 for at in landed)] == []
        assert len(marked) * SCRAPE_SECONDS <= 0.75 * HOUR_SECONDS

    def test_a_drain_is_marked_while_it_lasts_and_shows_what_stays(self, hour: Hour):
        """From its order on; bundles that rest stay, as the API has it."""
        (mark,) = hour.series(QUERIES["annotation Drains"])
        assert mark["metric"] == {"broker": hour.drain["drain"]["broker"]}
        assert min(mark["values"]) == pytest.approx(hour.begun_at + DRAINED_AT, abs=2 * SCRAPE_SECONDS)
        (left,) = hour.series(QUERIES["Bundles still on drained brokers, A"])
        assert list(left["values"].values())[-1] == hour.drain["work"]["owned"] > 0

    def test_lines_are_drawn_at_the_thresholds(self, hour: Hour):
        """Each by its legend has a style of its own; they are those of the settings."""
        panel = next(one for one in DASHBOARD_JSON["panels"] if one["title"].endswith("the thresholds"))
        target = next(one for one in panel["targets"] if "lbd_threshold_points" in one["expr"])
        lines = hour.series(target["expr"])
        legends = {target["legendFormat"].replace("{{threshold}}", one["metric"]["threshold"]) for one in lines}
        assert legends == {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        assert {one["metric"]["threshold"]: set(one["values"].values()) for one in lines} == {"low": {15}, "high": {40}}

    def test_lines_of_alerts_are_where_these_begin(self):
        """The last step of a panel's own thresholds, as it is in the rule."""
        rules = {rule["alert"]: rule["expr"] for rule in ALERTS}
        own = {one["title"]: one["fieldConfig"]["defaults"].get("thresholds") for one in DASHBOARD_JSON["panels"]}
        steps = {title: one["steps"][-1]["value"] for title, one in own.items() if one is not None}
        assert rules["LbdObservationStale"].endswith(f"> {steps.pop(AGES)}")
        assert rules["LbdPausedTooLong"].endswith(f"> {steps.pop('Paused') // 3600} * 3600")
        assert steps == {"Samples of pairs, of those wanted": 1, "Budgets left": 0}

    def test_links_lead_to_sections_of_the_own_dashboard(self):
        """Under the address that the variable has."""
        links = [*DASHBOARD_JSON["links"], *(link for one in DASHBOARD_JSON["panels"] for link in one.get("links", []))]
        page = (EXAMPLES.parent / "lbd" / "api" / "static" / "index.html").read_text()
        assert {one["url"].partition("#")[0] for one in links} == {"${lbd:raw}/"}
        sections = {one["url"].partition("#")[2] for one in links} - {""}
        assert sections
        assert [one for one in sections if f'id="{one}"' not in page] == []
        assert "lbd" in {one["name"] for one in DASHBOARD_JSON["templating"]["list"]}


class TestAlerts:
    def test_every_selector_finds_series(self, hour: Hour):
        """With each of its labels: a word that lbd does not know finds none."""
        asked = {one for rule in ALERTS for one in re.findall(r"\b(?:lbd_\w+|up)\b(?:{[^}]*})?", rule["expr"])}
        assert len(asked) > len(ALERTS)
        assert [one for one in asked if not hour.series(one)] == []

    def test_what_passes_alerts_nobody(self, hour: Hour):
        """Of some the condition held in the hour, and of each for less long than the alert waits."""
        held = {rule["alert"]: hour.lasted(rule["expr"]) for rule in ALERTS if hour.series(rule["expr"])}
        waits = {rule["alert"]: _seconds(rule.get("for", "0s")) for rule in ALERTS}
        assert {"LbdBlind", "LbdDrainIncomplete"} <= set(held)
        assert held["LbdDrainForgotten"] == pytest.approx(HOUR_SECONDS - DRAINED_AT, abs=3 * SCRAPE_SECONDS)
        assert [(name, lasted) for name, lasted in held.items() if lasted >= waits[name]] == []


def _seconds(text: str) -> float:
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
