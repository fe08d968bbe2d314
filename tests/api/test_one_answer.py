"""One fact, one figure: status, explain, plan, doctor, page, API, metrics and text on the same situations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.by import By

from lbd.doctor.checklist import examine
from tests.api.browser import browsing
from tests.api.conftest import lbd
from tests.api.test_dashboard import opened, text
from tests.api.test_same_numbers import metrics
from tests.situations import SITUATIONS, arranged, named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from lbd.doctor.findings import Finding
    from tests.situations import Situation, Stand


def cells(row: WebElement) -> list[str]:
    """The text of each cell of a row of the page."""
    return [str(cell.get_property("textContent")) for cell in row.find_elements(By.CSS_SELECTOR, "th, td")]


class Views:
    """What each surface says of one moment."""

    def __init__(self, stand: Stand, browser: Chrome) -> None:
        get = stand.api.get
        self.status: dict[str, Any] = get("/v1/status").json()
        self.explained: dict[str, Any] = get("/v1/explain").json()
        self.turn: dict[str, Any] = self.explained["turn"]
        self.snapshot: dict[str, Any] = get("/v1/snapshot").json()
        self.chart: dict[str, Any] = get("/v1/history").json()
        plan = get("/v1/plan")
        self.plan: dict[str, Any] | None = plan.json() if plan.status_code == 200 else None
        self.metrics = metrics(stand.api)
        self.text = lbd(stand.api, stand.folder, "status").stdout
        self.explanation = lbd(stand.api, stand.folder, "explain").stdout
        self.own = {broker: get(f"/v1/explain/{broker}").json() for broker in stand.pulsar.ids}
        self.checks = examine(stand.chosen).findings
        opened(browser, stand.api)
        self.page = {name: text(browser, name) for name in ("balance-why", "sentence", "todo", "todo-more")}
        self.rows = [cells(row) for row in browser.find_elements(By.CSS_SELECTOR, "#brokers tr")]

    def label(self, name: str, text: str | None = None) -> str | None:
        """What stands behind a label of ``lbd status``, or of this text; None where there is no such line."""
        return next(iter(self.lines(name, text)), None)

    def lines(self, name: str, text: str | None = None) -> list[str]:
        """The same with the lines below it that go on with it."""
        found = re.search(rf"^{name:<10} (.+(?:\n {{11}}.+)*)$", self.text if text is None else text, re.MULTILINE)
        return [line.strip() for line in found[1].split("\n")] if found else []

    def seen(self, name: str) -> str:
        """What ``lbd doctor`` saw of this."""
        return next(finding.seen for finding in self.checks if finding.check == name and "it says" not in finding.seen)

    def check(self, name: str) -> Finding | None:
        """The first finding of this check of ``lbd doctor``."""
        return next((finding for finding in self.checks if finding.check == name), None)

    def word(self, name: str) -> str | None:
        """The first word of it."""
        return (self.label(name) or "").partition(" ")[0] or None

    def metric(self, name: str, *labels: str) -> float | None:
        """A gauge of the scrape."""
        return self.metrics.get((name, *labels))

    def one_of(self, name: str) -> str | None:
        """The label of a family of gauges of which one at most is 1."""
        return next((key[1] for key, on in self.metrics.items() if key[0] == name and on), None)


Figures = dict[str, Any]
"""A figure by the surface that shows it; surfaces that show none of it are left out."""


def without_countdowns(value: Any) -> Any:
    """The same without what is left of a time: commands ask one after the other, and each minute ends between two."""
    if isinstance(value, list):
        return [without_countdowns(part) for part in value]
    return re.sub(r"for about [^:]+", "for about …", value) if isinstance(value, str) else value


def figures(view: Views) -> Iterator[tuple[str, Figures]]:
    """Every figure that at least two surfaces show."""
    status, turn = view.status, view.turn
    kinds = {"status": status["verdict"]["kind"], "explain": turn["verdict"]["kind"]}
    yield "verdict", {**kinds, "metrics": view.one_of("lbd_verdict")}
    sentences = {"status": status["sentence"], "explain": turn["sentence"], "text": view.label("last turn")}
    page = view.page["sentence"].removeprefix("Last turn: ")
    yield "sentence", {**sentences, "page": page, "doctor": view.seen("lbd").partition(" ago: ")[2]}
    holds = {"status": status["hold"], "explain": (turn.get("hold") or {}).get("reason")}
    yield "hold", {**holds, "metrics": view.one_of("lbd_hold")}
    yield from gaps(view)
    yield from of_brokers(view)
    hour = status["last_hour"]
    moves = {"status": hour["moves"], "metrics": view.metric("lbd_moves_last_hour")}
    yield "moves of the last hour", {**moves, "text": int(view.word("last hour") or -1)}
    yield "under way", {"status": len(status["unfinished"]), "metrics": view.metric("lbd_moves_under_way")}
    for budget in status["budgets"]:
        if budget["limit"] is not None:
            name = budget["name"]
            yield name, {"status": budget["left"], "metrics": view.metric("lbd_budget_left", name)}
            if name == "unloads-per-hour":
                counted = hour["attempts"] - hour["ordered"]
                yield "attempts that budgets count", {"status": counted, "budget": budget["used"]}
    for pair in status["pairs"]:
        ends = [pair["destination"], pair["source"]]
        told = next(one for one in turn["pairs"] if [one["destination"], one["source"]] == ends)
        yield f"apart {ends}", {"status": pair["difference"], "explain": told["difference"],
                                "metrics": view.metric("lbd_pair_difference_points", *ends)}  # fmt: skip
    todo = {"status": status["todo"], "explain": view.explained["todo"], "text": view.lines("to do")}
    yield "what to do", {**todo, "text of explain": view.lines("to do", view.explanation)}
    first, *more = (step.replace("`", "") for step in status["todo"])
    yield (
        "what to do on the page",
        {"status": [first, " · ".join(more)], "page": [view.page["todo"], view.page["todo-more"]]},
    )
    yield from of_doctor(view)
    for broker, own in view.own.items():
        about = [step for step in status["steps"] if broker in step["what"].split(" -> ")]
        yield f"what to do about {broker}", {"status": len(about), "explain broker": len(own["todo"])}


def of_doctor(view: Views) -> Iterator[tuple[str, Figures]]:
    """Figures that ``lbd doctor`` shows, too, and its advice where brokers are too far apart and nothing moves."""
    status, blocked = view.status, view.check("blocked")
    if status["brokers"]:
        scores = sorted((row["score"] for row in status["brokers"]), reverse=True)
        shown = [f"{score:.1f}" for score in scores]
        yield "scores", {"status": shown, "doctor": re.findall(r"\d+\.\d", view.seen("cpu-source"))}
        yield "reports", {"status": str(len(shown)), "doctor": view.seen("reports").partition(" of ")[0]}
        known = view.seen("load-model").removeprefix("not checked: ").partition(", not yet of ")[0]
        yield "load model", {"text": view.label("load model"), "doctor": known}
    words = [status["verdict_text"], status["verdict"]["detail"]]
    if status["verdict"]["kind"] == "blocked":
        assert blocked is not None
        found = [f"blocked {blocked.seen}", blocked.todo]
        yield "blocked", {"status": [": ".join(filter(None, words)), status["todo"][0]], "doctor": found}
    else:
        yield "blocked", {"status": None, "doctor": blocked}


def gaps(view: Views) -> Iterator[tuple[str, Figures]]:
    """The gap, and the one after a plan that waits."""
    gap = view.status["gap_points"]
    known = [point for point in view.chart["gap"]["points"] if point is not None]
    counted = [one["score"] for one in view.turn["brokers"] if one["score"] is not None and one["doubt"] != "drained"]
    shown = {"status": gap, "metrics": view.metric("lbd_score_gap_points")}
    if gap is not None:
        shown |= {"explain": max(counted) - min(counted), "chart": known[-1]}
    mean = {"status": view.status["mean_points"], "metrics": view.metric("lbd_score_mean_points")}
    yield "mean", mean | {"chart": view.chart["mean"]["points"][-1], "explain": sum(counted) / len(counted)}
    line = view.chart["gap"]
    yield "extremes of the chart", {"server": line["highest"], "points": max(known, default=None)}
    page = view.page["balance-why"].partition(" points between")
    texts = {"text": view.word("gap"), "page": page[0] if page[1] else None}
    yield "gap as text", {"status": None if gap is None else f"{gap:.1f}", **texts}
    yield "gap", shown
    if view.plan is not None and view.plan["proposed"]:
        yield "scores after the plan", {"status": view.status["plan_scores"], "plan": view.plan["plan_scores"]}
        yield "gap after the plan", {"status": view.status["gap_after_points"], "plan": view.plan["gap_after_points"]}
        yield "proposal", {"status": view.status["proposal"]["id"], "plan": view.plan["id"]}


def of_brokers(view: Views) -> Iterator[tuple[str, Figures]]:
    """Score, bundles and doubt of each broker with a report."""
    listed = {"status": view.status, "explain": view.turn, "snapshot": view.snapshot}
    by_id = {name: {one["id"]: one for one in shown["brokers"]} for name, shown in listed.items()}
    rows = sorted([row["id"], f"{row['score']:.1f}", f"{row['bundles']:,}"] for row in view.status["brokers"])
    yield "rows", {"status": rows, "page": sorted([row[0], row[1], row[4]] for row in view.rows if len(row) > 1)}
    if view.plan is not None:
        by_id["plan"] = {one["id"]: one for one in view.plan["brokers"]}
    for broker in by_id["status"]:
        own = view.own[broker]["seen"]
        for field, metric in (("score", "lbd_broker_score_points"), ("bundles", "lbd_broker_bundles"), ("doubt", "")):
            shown = {name: brokers[broker][field] for name, brokers in by_id.items() if field in brokers[broker]}
            yield (
                f"{field} of {broker}",
                {**shown, "explain broker": own[field]} | ({"metrics": view.metric(metric, broker)} if metric else {}),
            )


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """One for all situations."""
    with browsing() as found:
        yield found


@pytest.mark.parametrize("situation", SITUATIONS, ids=named)
def test_every_surface_shows_the_same_figure(situation: Situation, browser: Chrome, tmp_path: Path):
    """No two of them differ, whatever lbd is up to."""
    with arranged(situation, tmp_path) as stand:
        shown = list(figures(Views(stand, browser)))
    assert len(shown) > 12
    for name, surfaces in shown:
        values = {surface: without_countdowns(value) for surface, value in surfaces.items()}
        first = next(iter(values.values()))
        expected = pytest.approx(first, abs=0.006) if isinstance(first, float) else first
        assert {**values} == dict.fromkeys(values, expected), name
