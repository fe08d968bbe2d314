"""Metrics as Prometheus sees them: names by its conventions, labels that do not grow, and alerts that fire."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lbd.api.published import Tally
from lbd.model import Outcome, Result, Unload
from lbd.permit.served import ServiceResult
from lbd.reason import Reason
from lbd.simulate.answers import Reply
from lbd.store.drains import WORKS, Drain, Drains, Work, Works
from tests.api.conftest import PATIENCE_SECONDS, Api, serving
from tests.api.prometheus import DASHBOARD, EXAMPLES, RULES, answer, program, server
from tests.builders import put_value
from tests.daemon.test_service import eventually

if TYPE_CHECKING:
    from tests.fake_pulsar import FakePulsar


def _values(text: str) -> dict[str, float]:
    """The value of each series, named without the label ``cluster``."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    lines = [re.sub(r',?cluster="[^"]*"', "", line).replace("{,", "{").replace("{}", "") for line in lines]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def _of(api: Api, name: str) -> dict[str, float]:
    """The same of those that begin so."""
    return {one: value for one, value in _values(api.get("/metrics").text).items() if one.startswith(name)}


class TestMetrics:
    def test_a_turn_and_its_moves_are_counted(self, pulsar: FakePulsar, tmp_path: Path):
        """Every outcome is there from the start, so that an increase from none is seen."""
        with serving(pulsar, tmp_path) as api:
            before = _values(api.get("/metrics").text)
            planned = api.turn().plan.unloads
            assert api.engine.wait(PATIENCE_SECONDS)
            after = _values(api.get("/metrics").text)
        assert {f'lbd_unloads_total{{outcome="{one.value}"}}' for one in Result} <= before.keys()
        assert after['lbd_unloads_total{outcome="landed"}'] == len(planned) > 0
        assert after["lbd_unload_landing_seconds_count"] == len(planned)
        assert after['lbd_turns_total{result="moving"}'] == 1
        assert after["lbd_score_gap_points"] == 70.0
        assert after["lbd_planned_moves_total"] == len(planned) >= after["lbd_needed_moves_total"] > 0
        unloads = 'code="204",endpoint="/admin/v2/namespaces/{tenant}/{namespace}/{bundle}/unload",method="PUT"'
        asked = f"lbd_admin_request_seconds_count{{{unloads}}}"
        assert after[asked] - before.get(asked, 0) == len(planned)
        assert after[f'lbd_broker_usage_ratio{{broker="{pulsar.ids[0]}",resource="cpu"}}'] == 0.8

    def test_every_series_has_the_cluster(self, pulsar: FakePulsar, tmp_path: Path):
        """Before a broker has said its name the value is empty; once known it stays, also while none gives a report."""
        found = []
        with serving(pulsar, tmp_path) as api:
            for fault in (None, None, Reply(500)):
                if fault is not None:
                    pulsar.fault("load-report", fault)
                if found:
                    assert (api.turn().observation is None) == (fault is not None)
                families = text_string_to_metric_families(api.get("/metrics").text)
                found.append({one.labels.get("cluster") for family in families for one in family.samples})
        assert found == [{""}, {"c"}, {"c"}]

    def test_an_autoscaler_is_told_how_many_brokers_are_wanted(self, pulsar: FakePulsar, tmp_path: Path):
        """Those that are there until more is known, and nothing while no load is seen."""
        with serving(pulsar, tmp_path) as api:
            api.turn()
            seen = _values(api.get("/metrics").text)
            pulsar.fault("load-report", Reply(500))
            api.turn()
            unseen = _values(api.get("/metrics").text)
        assert seen["lbd_brokers_wanted"] == seen['lbd_brokers{state="active"}'] == len(pulsar.ids)
        assert "lbd_brokers_wanted" not in unseen

    def test_who_was_asked_for_its_cpu_of_now_is_told(self, pulsar: FakePulsar, tmp_path: Path):
        """Brokers with hits, from the second turn on; until a whole minute was seen their reports count."""
        with serving(pulsar, tmp_path) as api:
            api.turn()
            assert api.engine.wait(PATIENCE_SECONDS)
            first = _values(api.get("/metrics").text)
            api.turn()
            second = _values(api.get("/metrics").text)
        assert not [name for name in first if name.startswith("lbd_broker_live_cpu")]
        assert second[f'lbd_broker_live_cpu{{broker="{pulsar.ids[0]}"}}'] == 0
        assert second[f'lbd_broker_live_cpu_seconds{{broker="{pulsar.ids[0]}"}}'] >= 0

    def test_an_amended_end_is_counted_by_itself(self):
        """Nothing is counted back: what a move was told to be stays counted, and what it is by now beside it."""
        tally, move = Tally(), Unload("t/n/0x00000000_0xffffffff", "a:1", "b:1", 1.0, 1.0)
        tally.moved(Outcome(move, Result.FAILED, "a:1"))
        tally.moved(Outcome(move, Result.LANDED, "b:1", seconds=9.0, amended=True))
        samples = (one for family in tally.collect() if family.name.startswith("lbd_unload") for one in family.samples)
        values = (one for one in samples if one.value > 0 and not one.name.endswith("_created"))  # a scrape has none
        counted = {(one.name, *one.labels.values()) for one in values}
        assert counted == {("lbd_unloads_total", "failed"), ("lbd_unloads_amended_total", "landed")}

    def test_clients_that_are_back_are_timed_and_those_that_are_not_are_counted(self):
        """Once for each move, whatever is told of it later."""
        tally = Tally()
        for told in (
            ServiceResult("yes", reconnect_seconds=0.42),
            ServiceResult("yes"),
            ServiceResult("unknown"),
            ServiceResult("no"),
            ServiceResult("no", lifted=True),
        ):
            tally.served(told)
        values = {one.name: one.value for family in tally.collect() for one in family.samples}
        assert values["lbd_move_reconnect_seconds_count"] == 1
        assert values["lbd_move_reconnect_seconds_sum"] == 0.42
        assert values["lbd_moves_not_served_total"] == 1

    def test_no_label_grows_with_the_cluster_or_with_who_asks(self, api: Api):
        """No bundle, namespace or path that somebody sent; only brokers and words of closed lists."""
        for path in ("/v1/nope/1", "/v1/nope/2", "/v1/explain/x", "/v1/placement/t/n/0x1"):
            api.get(path)
        for method in ("BREW", "BREW2"):
            requests.request(method, f"{api.serving.url}/healthz", timeout=PATIENCE_SECONDS)
        text = api.get("/metrics").text
        labels = set(re.findall(r'[{,](\w+)="', text))
        closed = {
            "result",
            "outcome",
            "le",
            "method",
            "route",
            "endpoint",
            "code",
            "strategy",
            "verdict",
            "reason",
            "budget",
        }
        closed |= {"version", "resource", "state", "threshold", "broker", "source", "destination", "cluster"}
        assert labels <= closed
        assert not re.search(r"0x[0-9a-f]{8}|nope|t/n|BREW", text)
        assert 'route="/v1/explain/{what}"' in text

    def test_a_drained_broker_and_what_is_still_on_it(self, api: Api):
        """Unknown before the first look and if it was not asked at the end; a standby does not know how far it is."""
        published = api.serving.board.last
        assert published is not None
        drains, (target, *others) = Drains(api.engine.settings.state_dir), [one.id for one in published.status.brokers]
        assert _of(api, "lbd_drain") == {f'lbd_drain_active{{broker="{one}"}}': 0 for one in (target, *others)}
        drains.begin(Drain(target, 1.0, None, "ann"))
        begun = Work(kind="drain", broker=target, request="r", begun_at=1.0)
        under_way = msgspec.structs.replace(begun, total=9, landed=4, elsewhere=1, failed=2)
        left = f'lbd_drain_left_bundles{{broker="{target}"}}'
        for work, value in (
            (begun, None),
            (under_way, 4),
            (msgspec.structs.replace(under_way, ended_at=2.0, owned=3), 3),
            (msgspec.structs.replace(under_way, ended_at=2.0, owned=0), 0),
            (msgspec.structs.replace(under_way, ended_at=2.0), None),
        ):
            drains.save(Works(drains={target: work}))
            found = _of(api, "lbd_drain")
            assert found[f'lbd_drain_active{{broker="{target}"}}'] == 1
            assert found.get(left) == value

        drains.save(Works(drains={target: under_way}))
        api.serving.board.again(msgspec.structs.replace(published.status, hold=Reason.NOT_LEADER.label))
        assert left not in _of(api, "lbd_drain")
        put_value(api.engine.settings.state_dir, WORKS, b"junk")
        assert _of(api, "lbd_drain") == {}
        assert _of(api, "lbd_score_gap") == {"lbd_score_gap_points": 70}

    @pytest.mark.parametrize(
        ("strategy", "points"),
        [
            ("avg-shedder", {"low": 15, "high": 40}),
            ("least-moves", {"low": 7.5, "high": 20}),
            ("threshold-shedder", {}),
        ],
    )
    def test_thresholds_of_the_strategy(
        self, pulsar: FakePulsar, tmp_path: Path, strategy: str, points: dict[str, float]
    ):
        """Of those that have some."""
        with serving(pulsar, tmp_path, strategy=strategy) as api:
            api.turn()
            assert _of(api, "lbd_threshold") == {
                f'lbd_threshold_points{{threshold="{name}"}}': value for name, value in points.items()
            }

    def test_names_are_by_the_conventions(self, api: Api):
        """As promtool has them."""
        done = subprocess.run(
            [program("promtool"), "check", "metrics"],
            input=api.get("/metrics").text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


class TestAlerts:
    def test_each_alert_fires_when_it_should(self):
        """The rules' own tests, and the settings of the example."""
        for words in (["test", "rules", "lbd.rules.test.yml"], ["check", "config", "prometheus.yml"]):
            done = subprocess.run(
                [program("promtool"), *words], cwd=RULES.parent, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr

    def test_rules_and_dashboard_ask_for_metrics_that_there_are(self, api: Api):
        """Every name in them is one that lbd tells."""
        told = set(re.findall(r"^# TYPE (\w+)", api.get("/metrics").text, re.MULTILINE))
        known = told | {f"{name}_{end}" for name in told for end in ("bucket", "count", "sum")}
        asked = {name for path in (RULES, DASHBOARD) for name in re.findall(r"\blbd_\w+", path.read_text())}
        assert asked - known == set()

    def test_autoscalers_ask_for_the_metric_that_there_is(self, api: Api):
        """By its name; its value is the number of replicas of the same StatefulSet, and no pod is removed undrained."""
        told = set(re.findall(r"^# TYPE (\w+)", api.get("/metrics").text, re.MULTILINE))
        keda, hpa, adapter = (_example(name) for name in ("keda", "hpa", "prometheus-adapter"))
        (trigger,), (metric,), (rule,) = keda["spec"]["triggers"], hpa["spec"]["metrics"], adapter["rules"]["external"]
        query = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"]).replace("<<.LabelMatchers>>", "")

        assert trigger["metadata"]["query"] == 'max(lbd_brokers_wanted{cluster="pulsar"})'
        assert query == "max(lbd_brokers_wanted{})"
        assert metric["external"]["metric"]["selector"] == {"matchLabels": {"cluster": "pulsar"}}
        assert metric["external"]["metric"]["name"] == rule["seriesQuery"] == "lbd_brokers_wanted"
        assert "lbd_brokers_wanted" in told
        assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("AverageValue", "1")
        assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}
        assert keda["spec"]["scaleTargetRef"] == hpa["spec"]["scaleTargetRef"]
        behaviors = keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"], hpa["spec"]["behavior"]
        assert [one["scaleDown"] for one in behaviors] == [{"selectPolicy": "Disabled"}] * 2

    def test_a_real_prometheus_scrapes_lbd(self, api: Api, tmp_path: Path):
        """The scrape is up, and lbd's own labels stand where a target has the same ones with another meaning."""
        assert api.serving.url is not None
        target = {"targets": [api.serving.url.removeprefix("http://")], "labels": {"cluster": "k8s", "endpoint": "api"}}
        with server(tmp_path, [target]) as url:
            eventually(lambda: answer(url, "query", query='up{job="lbd"} == 1')["result"] != [])
            (gap,) = answer(url, "query", query="lbd_score_gap_points")["result"]
            assert (gap["metric"]["cluster"], gap["value"][1]) == ("c", "70")
            requests_sent = answer(url, "query", query="lbd_admin_request_seconds_count")["result"]
            assert requests_sent
            assert "api" not in {one["metric"]["endpoint"] for one in requests_sent}


def _example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "kubernetes" / f"{name}.yaml").read_text())
    return found


def test_every_metric_is_on_its_page():
    """docs/metrics.md has the name of each, and no other; counters end with _total there."""
    root = Path(__file__).parents[2]
    listed = set(re.findall(r"`(lbd_[a-z_]+)", (root / "docs" / "metrics.md").read_text()))
    names = {name for path in (root / "lbd").rglob("*.py") for name in re.findall(r'"(lbd_[a-z_]+)"', path.read_text())}
    assert {name.removesuffix("_total") for name in listed} == names
