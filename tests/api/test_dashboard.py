"""The page at / in a real browser: what a person reads, and when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from lbd.store.control import Control
from lbd.store.drains import Drain, Drains, Work, Works
from lbd.store.history_round import HISTORY_FOLDER
from lbd.store.proposal import plan_id
from lbd.store.rollouts import Rollout, Rollouts
from lbd.store.status import BrokerStatus, BudgetStatus, HitStatus, PairStatus
from tests.api.browser import browsing, sized
from tests.api.conftest import TOKEN, serving, working
from tests.api.test_tokens import ADMINISTER, OPERATE, TOKENS
from tests.charts.test_drawn import PAINTED
from tests.fake_pulsar import HOT
from tests.store.test_calibration import SECOND, put, summary
from tests.store.test_history import round_of, two, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from lbd.simulate.fake_pulsar import FakePulsar as SimulatedPulsar
    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def started_browser() -> Iterator[Chrome]:
    """One for all tests: it takes a second to start."""
    with browsing() as found:
        yield found


@pytest.fixture
def browser(started_browser: Chrome) -> Chrome:
    """The browser with a desktop's screen, whatever the test before it had."""
    sized(started_browser, 1280, 900)
    return started_browser


def text(browser: Chrome, what: str) -> str:
    """What stands in an element, shown or not."""
    return str(browser.find_element(By.ID, what).get_property("textContent"))


def opened(browser: Chrome, api: Api) -> None:
    """The page, once it has read the API; the page of the test before asked for its lbd, which has gone."""
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(f"{api.serving.url}/")
    reads(browser, "balance", "…", not_=True)


def reads(browser: Chrome, what: str, wanted: str, *, not_: bool = False) -> str:
    """The text of an element as soon as ``wanted`` is in it (or is not any more)."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (wanted in (found := text(browser, what))) is not_:
        assert time.monotonic() < deadline, f"#{what}: wanted {'no ' if not_ else ''}{wanted!r}, and read {found!r}"
        time.sleep(0.05)
    return found


def shown(browser: Chrome, what: str, *, not_: bool = False) -> WebElement:
    """An element as soon as it can be seen (or cannot any more)."""
    element = browser.find_element(By.ID, what)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while element.is_displayed() is not_:
        assert time.monotonic() < deadline, f"#{what} is {'shown' if not_ else 'hidden'} and has {element.text!r}"
        time.sleep(0.05)
    return element


def test_the_four_answers(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Is it balanced, does lbd act, what did it last do, what will it do next; each broker with its bar."""
    with serving(pulsar, tmp_path, avg_shedder={}) as api:
        api.turn()
        opened(browser, api)
        assert text(browser, "balance") == "No, not yet"
        assert "points between highest and lowest" in text(browser, "balance-why")
        assert text(browser, "acting") == "Ready, nothing under way"
        assert text(browser, "did") == "No move is kept"
        assert reads(browser, "next", "Wait for ") == "Wait for 1 more fresh sample"
        assert "then it would move " in reads(browser, "next-why", "then it would move ")
        assert len(browser.find_elements(By.CSS_SELECTOR, "#brokers tr")) == 3
        assert "samples" in text(browser, "sentence")


def opened_before_a_move(browser: Chrome, api: Api, pulsar: FakePulsar) -> None:
    """The page was open when bundles moved, and for the turn after."""
    api.turn()
    opened(browser, api)
    pulsar.sample(81, 46, 11)
    api.turn()
    api.engine.wait()
    api.turn()


def test_a_turn_is_shown_as_it_ends(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """No reload: what moved, why, and how it ended."""
    with serving(pulsar, tmp_path) as api:
        opened_before_a_move(browser, api, pulsar)
        assert "landed" in reads(browser, "did", "landed")
        assert any(bundle in text(browser, "moves") for bundle in HOT)


def test_the_gap_over_time(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Drawn under the strict content policy, with the moves on it; who sees no chart has its words."""
    with serving(pulsar, tmp_path) as api:
        opened_before_a_move(browser, api, pulsar)
        reads(browser, "did", "landed")
        assert "lbd acts above 15 (slowly) and 40 (soon)" in reads(browser, "gap-words", "Now ")
        chart = browser.find_element(By.ID, "gap")
        assert (chart.aria_role, chart.accessible_name) == ("image", text(browser, "gap-words"))
        entries = browser.find_elements(By.CSS_SELECTOR, "#gap + .legend button")
        assert [one.accessible_name for one in entries] == ["gap", "moves"]
        entries[1].click()
        ActionChains(browser, duration=0).move_to_element(chart.find_element(By.CSS_SELECTOR, ".u-over")).perform()
        WebDriverWait(browser, PATIENCE_SECONDS).until(
            lambda _: chart.find_element(By.CSS_SELECTOR, ".tooltip").text.startswith("gap\n")
        )
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


DRAWN_TEXTS = """
window.drawnTexts = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  drawnTexts.push(text);
  return draw.call(this, text, ...more);
};
"""


def test_no_name_covers_the_curve(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """On the chart stand the numbers of its axes; thresholds have their names in the legend."""
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": DRAWN_TEXTS})
    try:
        with serving(pulsar, tmp_path) as api:
            opened_before_a_move(browser, api, pulsar)
            reads(browser, "gap-words", "Now ")
            texts: list[str] = browser.execute_script("return drawnTexts")
            legend = browser.find_element(By.CSS_SELECTOR, "#gap + .legend").text
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)
    assert "points" in texts
    assert [one for one in texts if "threshold" in one] == []
    assert ("low threshold 15" in legend, "high threshold 40" in legend) == (True, True)


def test_a_week_from_history(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Chosen by keyboard; what an earlier lbd stored is on the chart, and a range is named for who cannot see it."""
    with serving(pulsar, tmp_path, avg_shedder={"low_threshold": 95, "high_threshold": 99}) as api:
        at = time.time() - 3 * 86_400
        stored = (round_of(two(at + 60 * turn), scores=np.array([90.0 - turn, 10.0])) for turn in range(5))
        written(api.engine.settings.state_dir / HISTORY_FOLDER, *stored)
        api.turn()
        opened(browser, api)
        assert ", 70.0 to 70.0 in 0 s" in reads(browser, "gap-words", "Now ")
        ranges = browser.find_elements(By.CSS_SELECTOR, "#overview .ranges input")
        assert [(one.aria_role, one.accessible_name) for one in ranges] == [
            ("radio", name) for name in ("1 hour", "24 hours", "7 days")
        ]
        group = browser.find_element(By.CSS_SELECTOR, "#overview .ranges")
        assert (group.aria_role, group.accessible_name) == ("group", "Time shown of the gap")
        ranges[0].send_keys(Keys.ARROW_LEFT)
        assert " to 80.0 in 3 days until " in reads(browser, "gap-words", "3 days")
        assert "Now 70.0 points" in text(browser, "gap-words")


def test_history_that_cannot_be_read(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Stands where the chart would be; the rest of the page is shown. lbd itself would set such a file aside."""
    with serving(pulsar, tmp_path, history={"enabled": False}) as api:
        api.turn()
        root = api.engine.settings.state_dir / HISTORY_FOLDER
        written(root, round_of(two(time.time() - 600)))
        (torn,) = (root / "v1" / "broker_rounds").rglob("*.parquet")
        torn.write_bytes(b"PAR1")
        opened(browser, api)
        assert torn.name in reads(browser, "gap-words", "cannot be read")
        assert len(browser.find_elements(By.CSS_SELECTOR, "#brokers tr")) == 3


def opened_broker(browser: Chrome, broker: str) -> None:
    """The page of a broker, by the keyboard and from the list of all."""
    browser.find_element(By.CSS_SELECTOR, f'#brokers a[title="{broker}"]').send_keys(Keys.ENTER)
    reads(browser, "broker-facts", " ago")


def column(browser: Chrome, number: int) -> list[str]:
    """The cells of the bundles' table."""
    cells = browser.find_elements(By.CSS_SELECTOR, f"#bundles tr > :nth-child({number})")
    return [one.text for one in cells]


def test_the_page_of_a_broker(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Why it gives bundles or not, its score with the moves on it, its bundles and why each stays, and its moves."""
    with serving(pulsar, tmp_path) as api:
        opened_before_a_move(browser, api, pulsar)
        first, _, third = pulsar.ids
        opened_broker(browser, first)
        assert browser.switch_to.active_element.get_attribute("id") == "h-broker"
        assert browser.switch_to.active_element.accessible_name == f"Broker {first}"
        assert not browser.find_element(By.ID, "overview").is_displayed()
        told = api.get(f"/v1/explain/{first}").json()
        assert [one.text for one in browser.find_elements(By.CSS_SELECTOR, "#broker-why li")] == told["because"]
        assert sorted(column(browser, 1)) == sorted(one for one, owner in pulsar.owners.items() if owner == first)
        assert set(column(browser, 4)) == {"as its broker"}
        assert "0 moves to it, 3 from it" in reads(browser, "score-words", "from it")
        chart = browser.find_element(By.ID, "score")
        assert (chart.aria_role, chart.accessible_name) == ("image", text(browser, "score-words"))
        entries = browser.find_elements(By.CSS_SELECTOR, "#score + .legend button")
        names = ["score", "mean of all", "moves to it", "moves from it"]
        assert [one.accessible_name for one in entries] == names
        canvas = chart.find_element(By.TAG_NAME, "canvas")
        assert browser.execute_script(PAINTED, canvas, "good") > 20
        assert text(browser, "own").count(f"{first} → {third}") == 3

        browser.find_element(By.LINK_TEXT, "← All brokers").send_keys(Keys.ENTER)
        shown(browser, "overview")
        opened_broker(browser, third)
        assert "3 moves to it, 0 from it" in reads(browser, "score-words", "3 moves to it")
        why = dict(zip(column(browser, 1), column(browser, 4), strict=True))
        for bundle in HOT[:3]:
            words = api.get(f"/v1/explain/{bundle}").json()["because"]
            assert why[bundle].partition(",")[0] == words[0].partition(",")[0]
            assert "cool-down" in why[bundle]
        assert [one for one in browser.get_log("browser") if one["level"] == "SEVERE"] == []


def test_bundles_are_searched_and_sorted_by_keyboard(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """By a part of a name or of a reason; by each column, both ways, and how is heard."""
    with serving(pulsar, tmp_path) as api:
        opened_before_a_move(browser, api, pulsar)
        opened_broker(browser, pulsar.ids[2])
        search = browser.find_element(By.ID, "search")
        assert (search.aria_role, search.accessible_name) == ("searchbox", "Search")
        search.send_keys("Cool-Down")
        assert reads(browser, "found", " of ") == "3 of 4 bundles"
        assert sorted(column(browser, 1)) == sorted(HOT[:3])
        search.clear()
        search.send_keys(HOT[1])
        assert column(browser, 1) == [HOT[1]]
        search.send_keys("no such")
        assert column(browser, 1) == ["none has this name or reason"]
        search.clear()
        search.send_keys(Keys.BACKSPACE)
        heads = browser.find_elements(By.CSS_SELECTOR, "#sorts th")
        assert [(one.text, one.get_dom_attribute("aria-sort")) for one in heads] == [
            ("Bundle", None), ("msg/s", None), ("In + out", "descending"), ("Why it stays", None),
        ]  # fmt: skip
        button = heads[0].find_element(By.TAG_NAME, "button")
        button.send_keys(Keys.ENTER)
        assert (heads[0].get_dom_attribute("aria-sort"), column(browser, 1)) == (
            "ascending",
            sorted(column(browser, 1)),
        )
        button.send_keys(Keys.ENTER)
        assert heads[0].get_dom_attribute("aria-sort") == "descending"
        assert column(browser, 1) == sorted(column(browser, 1), reverse=True)


def test_a_broker_that_is_not_known(browser: Chrome, api: Api):
    """By an address that somebody has sent: it is said, and the way back is there."""
    opened(browser, api)
    browser.get(f"{api.serving.url}/#broker/nobody%3A1")
    assert "no such broker" in reads(browser, "broker-facts", "no such broker")
    assert browser.find_element(By.LINK_TEXT, "← All brokers").is_displayed()


def test_a_broker_is_drained_and_released_on_its_page(browser: Chrome, unpaced_api: Api, cluster: SimulatedPulsar):
    """What would move is shown first; the token, then it begins, and its end is told; so is a refusal."""
    api, target = unpaced_api, cluster.brokers[0]
    opened(browser, api)
    browser.get(f"{api.serving.url}/#broker/{target}")
    reads(browser, "broker-facts", " ago")
    browser.find_element(By.ID, "drain").send_keys(Keys.ENTER)
    assert "14 bundles would move" in reads(browser, "steer-about", "would move")
    steered(browser, who="ann", why="new disk", steer_token=TOKEN)
    assert reads(browser, "said", "Drain").startswith(f"Drain {target}: ")
    reads(browser, "drain", "Release")
    found = Drains(api.engine.settings.state_dir).in_force(time.time())
    assert [(name, drain.by, drain.reason) for name, drain in found.items()] == [(target, "ann", "new disk")]
    assert any("ann drains it" in one for one in reads(browser, "broker-why", "ann drains it").splitlines())
    browser.find_element(By.ID, "drain").send_keys(Keys.ENTER)
    steered(browser)
    reads(browser, "drain", "Drain")
    assert Drains(api.engine.settings.state_dir).in_force(time.time()) == {}


def test_a_rollout_shows_what_it_would_do(browser: Chrome, unpaced_api: Api, cluster: SimulatedPulsar):
    """Begun with a name and a token, it is among the work, and can be stopped."""
    api = unpaced_api
    opened(browser, api)
    browser.find_element(By.ID, "rollout").send_keys(Keys.ENTER)
    assert f"{len(cluster.brokers)} brokers, " in reads(browser, "steer-about", "and the restarts themselves")
    steered(browser, who="ann", steer_token=TOKEN)
    reads(browser, "said", "Begin a rollout: ")
    reads(browser, "rollout", "Stop the rollout")
    assert "by ann" in reads(browser, "works", "by ann")
    browser.find_element(By.ID, "rollout").send_keys(Keys.ENTER)
    steered(browser)
    reads(browser, "said", "Stop the rollout: ")
    reads(browser, "rollout", "Rollout…")


def large(api: Api) -> None:
    """The last turn as if it had been one of a hundred brokers, with limits, pairs and alerts."""
    last = api.serving.board.last
    assert last is not None
    names = [f"pulsar-broker-{number:03d}.pulsar.svc.cluster.local:8080" for number in range(100)]
    hits = HitStatus(3, 8, 0, 2)
    status = msgspec.structs.replace(
        last.status,
        brokers=[BrokerStatus(one, 20.0 + at % 50, "cpu", 1e5, 1e8, 650) for at, one in enumerate(names)],
        pairs=[PairStatus(names[at], names[-1 - at], 30.0 - at, hits) for at in range(9)],
        budgets=[
            BudgetStatus("unloads-per-hour", "", 28, 30, 2),
            BudgetStatus("unloads-per-source", names[0], 7, 20, 13),
            BudgetStatus("traffic", "", 7, None, None),
        ],
        warnings=["<b>the disk is slow</b>"],
        error="no broker answers",
    )
    api.serving.board.again(status)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_hundred_brokers_on_a_desktop(browser: Chrome, pulsar: FakePulsar, tmp_path: Path, scheme: str):
    """No half of it is empty: what stands side by side is equally high, whatever it holds, and scrolls in itself."""
    with serving(pulsar, tmp_path) as api:
        sized(browser, 1440, 900, scheme)
        opened_before_a_move(browser, api, pulsar)
        for brokers in (3, 100):
            assert len(browser.find_elements(By.CSS_SELECTOR, "#brokers tr")) == brokers
            heights = browser.execute_script(
                "return [...document.querySelectorAll('#overview .pair')].map("
                "(row) => [...row.children].map((one) => Math.round(one.getBoundingClientRect().height)))"
            )
            assert [left == right for left, right in heights] == [True, True], heights
            assert browser.execute_script("return document.documentElement.scrollHeight") < 1700
            large(api)
            reads(browser, "alerts", "the disk is slow")
        place = browser.find_element(By.CSS_SELECTOR, "section[aria-labelledby=h-brokers] .scroll")
        assert browser.execute_script("return arguments[0].scrollHeight > arguments[0].clientHeight", place)
        assert (place.aria_role, place.accessible_name) == ("region", "Brokers")


def test_a_hundred_brokers_on_a_phone(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """It is scrolled three screens, and shows all of a table to who wants all."""
    with serving(pulsar, tmp_path) as api:
        sized(browser, 390, 844)
        opened_before_a_move(browser, api, pulsar)
        large(api)
        reads(browser, "alerts", "the disk is slow")
        assert browser.execute_script("return document.documentElement.scrollHeight") < 2900
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
        assert len(browser.find_elements(By.CSS_SELECTOR, "#brokers tr")) == 5
        button = browser.find_element(By.XPATH, "//button[. = 'Show all 100']")
        button.send_keys(Keys.ENTER)
        assert len(browser.find_elements(By.CSS_SELECTOR, "#brokers tr")) == 100
        assert browser.switch_to.active_element.accessible_name == "Brokers"


def test_a_phone_scrolls_little(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Of a small cluster that has moved bundles; it was five thousand pixels once."""
    with serving(pulsar, tmp_path) as api:
        sized(browser, 390, 844)
        opened_before_a_move(browser, api, pulsar)
        reads(browser, "did", "landed")
        assert browser.execute_script("return document.documentElement.scrollHeight") < 2500


def test_limits_and_alerts_can_be_heard(browser: Chrome, api: Api):
    """Each limit as a meter with its name and number; alerts as a list; what has no limit is left out."""
    opened(browser, api)
    assert not browser.find_element(By.ID, "alerts").is_displayed()
    large(api)
    reads(browser, "alerts", "the disk is slow")
    alerts = browser.find_element(By.ID, "alerts")
    assert (alerts.aria_role, alerts.accessible_name) == ("list", "Alerts")
    told = [one.text for one in alerts.find_elements(By.TAG_NAME, "li")]
    assert told == ["The last turn failed: no broker answers", "<b>the disk is slow</b>"]
    meters = browser.find_elements(By.CSS_SELECTOR, "#limits meter")
    assert [(one.aria_role, one.accessible_name) for one in meters] == [
        ("meter", "unloads-per-hour: 28 of 30 used"),
        ("meter", "unloads-per-source, pulsar-broker-000: 7 of 20 used"),
    ]


def test_a_blocked_pair(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Nothing about it is ready: each of the answers names the budget that is used up."""
    with serving(pulsar, tmp_path, guardrails={"max_unloads_per_hour": 1}) as api:
        api.turn()
        pulsar.sample(81, 46, 11)
        api.turn()
        api.engine.wait()
        api.turn()
        opened(browser, api)
        assert text(browser, "balance") == "No, and blocked"
        assert text(browser, "acting") == "No: blocked by unloads-per-hour"
        assert text(browser, "next") == "Nothing while it is blocked"
        assert "1 of 1 used, the next one in 1 h" in text(browser, "next-why")
        assert text(browser, "blocked").startswith("Blocked by unloads-per-hour: ")


def test_a_state_that_blocks_is_named_in_words(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """As lbd status names it, and not by its label."""
    with serving(pulsar, tmp_path) as api:
        assert api.post("/v1/pause", {"owner": "ann", "reason": "broker upgrade"}).status_code == 200
        api.turn()
        pulsar.sample(81, 46, 11)
        api.turn()
        assert api.get("/v1/status").json()["verdict_text"] == "blocked while lbd is paused"
        opened(browser, api)
        assert text(browser, "blocked").startswith("Blocked while lbd is paused: ")


def test_a_plan_that_waits(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """lbd does not act, and why; what a person can do."""
    with serving(pulsar, tmp_path, mode="approve") as api:
        name = plan_id(api.turn().plan.unloads)
        opened(browser, api)
        assert text(browser, "acting") == "No: a plan waits for approval"
        assert text(browser, "next") == "Wait for a person's approval"
        assert text(browser, "next-why") == f"lbd apply {name}"
        assert f"Plan {name}: 3 moves, " in text(browser, "plan-about")
        rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#planned tr")]
        assert [row.startswith(tuple(HOT)) for row in rows] == [True] * 3
        scores = [row.text.split() for row in browser.find_elements(By.CSS_SELECTOR, "#after tr")]
        plan = api.get("/v1/plan").json()
        assert scores == [[name_of(one), f"{one['score']:.1f}", f"{one['after']:.1f}"] for one in plan["plan_scores"]]
        assert len(scores) == 3
        assert f" {plan['gap_after_points']:.1f} points between highest and lowest when all" in text(
            browser, "plan-about"
        )
        assert f" lbd apply {name}; or wait about " in text(browser, "todo")
        assert browser.find_elements(By.CSS_SELECTOR, "#todo code")[-1].text == f"lbd apply {name}"
        assert reads(browser, "plan-trust", "prediction") == plan["predictions"]["summary"]


def name_of(broker: dict[str, Any]) -> str:
    """The brokers of the fake cluster have no port in common, so their names are whole."""
    return str(broker["id"])


def approved(browser: Chrome, **words: str) -> None:
    """The plan on the page, approved by keyboard."""
    shown(browser, "approve").send_keys(Keys.ENTER)
    steered(browser, who="ann", **words)


def test_a_plan_is_approved_on_the_page(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """With a name and the token; what came of it is told where the plan stood, and aloud."""
    with serving(pulsar, tmp_path, mode="approve") as api, working(api):
        moves = api.turn().plan.unloads
        opened(browser, api)
        approved(browser, steer_token="wrong-one")
        assert "wrong token" in reads(browser, "steer-trouble", "Not done")
        steered(browser, steer_token=TOKEN)
        assert "3 landed" in reads(browser, "plan-said", "landed")
        assert reads(browser, "h-plan", "Approved by") == "Approved by ann"
        shown(browser, "approve", not_=True)
        assert {pulsar.owners[move.bundle] for move in moves} == {move.destination for move in moves}


def test_the_first_of_two_people_begins_nothing(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Who has approved is shown to the second one, whose approval begins the moves."""
    (tmp_path / "tokens").write_text(TOKENS)
    named = {"tokens_file": str(tmp_path / "tokens")}
    with serving(pulsar, tmp_path, named, mode="approve", approvers=2) as api, working(api):
        api.turn()
        opened(browser, api)
        approved(browser, steer_token=OPERATE)
        assert "approved by ann and waits for another person" in reads(browser, "plan-said", "another person")
        opened(browser, api)
        api.turn()
        assert "Approved by ann; one more person is needed." in reads(browser, "plan-about", "one more person")
        approved(browser, steer_token=ADMINISTER)
        assert "3 landed" in reads(browser, "plan-said", "landed")


def test_a_plan_that_has_become_another_one_is_refused_on_the_page(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """Nothing is begun, and the form says what is different."""
    with serving(pulsar, tmp_path, mode="approve") as api, working(api):
        moved, *others = api.turn().plan.unloads
        opened(browser, api)
        pulsar.owners[moved.bundle] = pulsar.ids[1] if moved.destination == pulsar.ids[2] else pulsar.ids[2]
        approved(browser, steer_token=TOKEN)
        assert moved.bundle in reads(browser, "steer-trouble", "Not done")
        assert {pulsar.owners[move.bundle] for move in others} == {move.source for move in others}


def test_a_rollout_is_shown_as_it_goes(browser: Chrome, api: Api):
    """Who, why, and how many brokers of how many."""
    now, brokers = time.time(), ("127.0.0.8:8080", "127.0.0.9:8080")
    order = {"id": "r", "brokers": brokers, "members": brokers, "by": "ann", "begun_at": now, "phase_at": now}
    found = Rollout(**order, broker=brokers[1], timeout_seconds=900, reason="4.0.14", done=brokers[:1])
    Rollouts(api.engine.settings.state_dir).begin(found)
    opened(browser, api)
    assert "by ann: 4.0.14" in reads(browser, "works", "1 of 2 brokers restarted: 127.0.0.9:8080 is being drained")
    bar = browser.find_element(By.CSS_SELECTOR, "#works progress")
    assert [bar.get_property("value"), bar.accessible_name] == [1, "brokers restarted, of 2"]


def test_a_pause_is_told_with_its_reason(browser: Chrome, api: Api):
    """Who, until when, why; whatever stands there is text."""
    opened(browser, api)
    reason = "<img src=x onerror=alert(1)> maintenance"
    assert api.post("/v1/pause", {"owner": "ann", "reason": reason}).status_code == 200
    api.turn()
    assert "Paused by ann" in reads(browser, "paused", "Paused by")
    assert reason in text(browser, "paused")
    assert browser.find_elements(By.TAG_NAME, "img") == []
    assert text(browser, "acting") == "No: paused"


def steered(browser: Chrome, **words: str) -> None:
    """The form, filled in by keyboard and sent."""
    for field, value in words.items():
        box = browser.find_element(By.ID, field.replace("_", "-"))
        box.clear()
        box.send_keys(value)
    browser.find_element(By.ID, "why").send_keys(Keys.ENTER)


def test_a_pause_from_the_page_and_its_end(browser: Chrome, api: Api):
    """With who and why; a wrong token is told and asked for again, a right one is asked for once and kept nowhere."""
    opened(browser, api)
    browser.find_element(By.ID, "steer").click()
    assert browser.switch_to.active_element.get_attribute("id") == "who"
    steered(browser, who="ann", why="broker upgrade", steer_token="wrong-one")
    assert "wrong token" in reads(browser, "steer-trouble", "Not done")
    assert Control(api.engine.settings.state_dir).paused(0.0) is None
    assert browser.switch_to.active_element.get_attribute("id") == "steer-token"
    steered(browser, steer_token=TOKEN)
    assert "Paused by ann" in reads(browser, "paused", "Paused by ann")
    pause = Control(api.engine.settings.state_dir).paused(0.0)
    assert pause is not None
    assert (pause.by, pause.reason, pause.until) == ("ann", "broker upgrade", None)

    reads(browser, "steer", "Resume")
    browser.find_element(By.ID, "steer").click()
    assert not browser.find_element(By.ID, "steer-token").is_displayed()
    steered(browser)
    reads(browser, "steer", "Pause")
    assert Control(api.engine.settings.state_dir).paused(0.0) is None
    kept = browser.execute_script("return document.cookie + JSON.stringify([localStorage, sessionStorage])")
    assert kept == "[{},{}]"


def test_at_one_that_stands_by_a_pause_is_said_to_be_the_leaders(browser: Chrome, api: Api):
    """Another one takes orders."""
    last, words = api.serving.board.last, "this lbd stands by, lbd-b leads"
    assert last is not None
    api.serving.board.again(msgspec.structs.replace(last.status, hold="not-leader", leader=words))
    opened(browser, api)
    browser.find_element(By.ID, "steer").click()
    assert f"Only the leader takes orders: {words}." in text(browser, "steer-about")


def test_the_form_is_left_by_keyboard(browser: Chrome, api: Api):
    """Escape closes it, and leads back to the button; without a reason nothing is sent."""
    opened(browser, api)
    button = browser.find_element(By.ID, "steer")
    button.send_keys(Keys.ENTER)
    steered(browser, who="ann")
    assert browser.find_element(By.ID, "steering").is_displayed()
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.find_element(By.ID, "steering").is_displayed()
    assert browser.switch_to.active_element.get_attribute("id") == "steer"
    assert Control(api.engine.settings.state_dir).paused(0.0) is None


def test_a_drain_is_shown_as_it_goes(browser: Chrome, api: Api):
    """Who, why, how many of how many, as a bar that is one for who cannot see it; then its end, also aloud."""
    opened(browser, api)
    assert not browser.find_element(By.ID, "drains").is_displayed()
    now, broker = time.time(), "127.0.0.9:8080"
    drains = Drains(api.engine.settings.state_dir)
    drains.begin(Drain(broker, now, now + 3600, "ann", "new disk"))
    work = Work(kind="drain", broker=broker, request="r", begun_at=now, total=40, landed=12, eta_seconds=30.0)

    def tell(found: Work) -> None:
        drains.save(Works(drains={broker: found}))
        api.engine.draining.on_work(found)

    tell(work)
    assert "by ann" in reads(browser, "works", "12 of 40 bundles, about 30 s left")
    bar = browser.find_element(By.CSS_SELECTOR, "#works progress")
    shown = [bar.get_property("value"), bar.get_property("max"), bar.aria_role, bar.accessible_name]
    assert shown == [12, 40, "progressbar", "bundles moved, of 40"]
    tell(msgspec.structs.replace(work, landed=40, ended_at=now + 9, sentence="It owns nothing: 40 gone."))
    assert "It owns nothing: 40 gone." in reads(browser, "drain-said", "It owns nothing")
    assert not browser.find_element(By.CSS_SELECTOR, "#works progress").is_displayed()
    drains.release(broker)
    api.turn()
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda one: not one.find_element(By.ID, "drains").is_displayed())


def test_a_daemon_that_is_gone(browser: Chrome, api: Api):
    """Said, also aloud, and that what is shown is old."""
    opened(browser, api)
    api.serving.stop()
    told = reads(browser, "trouble", "lbd does not answer")
    assert "What is shown below is old." in told
    trouble = browser.find_element(By.ID, "trouble")
    assert (trouble.get_dom_attribute("role"), trouble.get_dom_attribute("aria-live")) == ("alert", None)
    buttons = [browser.find_element(By.ID, name) for name in ("steer", "approve", "drain", "fill", "rollout")]
    assert [button.is_enabled() for button in buttons] == [False] * 5
    assert reads(browser, "todo", "lbd status") == "Look at lbd on its machine, it does not answer here: lbd status"


def test_a_page_that_is_hidden_holds_no_connection(browser: Chrome, api: Api):
    """A browser opens six to an lbd, and the stream of each page that it remembers would take one for minutes."""
    opened(browser, api)
    for hidden in (True, False):
        browser.execute_script(
            f"Object.defineProperty(document, 'hidden', {{ value: {str(hidden).lower()}, configurable: true }})"
        )
        browser.execute_script("document.dispatchEvent(new Event('visibilitychange'))")
        assert browser.execute_script("return events === null") is hidden


def test_data_that_is_stale(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """The page of an lbd that answers and does not turn; it is late by the rule of ``lbd status``."""
    with serving(pulsar, tmp_path, interval_seconds=1) as api:
        api.turn()
        last = api.serving.board.last
        assert last is not None
        api.serving.board.again(msgspec.structs.replace(last.status, at=last.status.at - 10))
        opened(browser, api)
        assert text(browser, "trouble") == ""
        api.serving.board.again(msgspec.structs.replace(last.status, at=last.status.at - 40))
        assert "wanted every 1 s" in reads(browser, "trouble", "The data is stale")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_nothing_is_wider_than_the_screen(browser: Chrome, api: Api, width: int, scheme: str):
    """On a phone tables scroll, the page does not; in the dark it is dark."""
    sized(browser, width, 900, scheme)
    opened(browser, api)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    shade = sum(int(part) for part in background.removeprefix("rgb(").removesuffix(")").split(",")) / 3
    assert (shade < 128) is (scheme == "dark"), background


def test_nothing_is_asked_of_others_and_nothing_goes_wrong(browser: Chrome, api: Api):
    """Every request goes to lbd; no script or style breaks the content security policy."""
    opened(browser, api)
    asked: list[Any] = browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert asked
    assert [name for name in asked if not name.startswith((str(api.serving.url), "data:"))] == []
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_everything_that_can_be_used_has_a_name(browser: Chrome, api: Api, pulsar: FakePulsar):
    """Links, buttons, fields, regions and charts, on both pages; no two regions have the same one."""
    opened(browser, api)

    def check() -> None:
        used = "a, button, input, select, meter, [role=region], [role=img]"
        shown = [one for one in browser.find_elements(By.CSS_SELECTOR, used) if one.is_displayed()]
        assert len(shown) > 10
        assert [one.get_attribute("outerHTML") for one in shown if not one.accessible_name] == []
        regions = [one.accessible_name for one in shown if one.get_attribute("role") == "region"]
        assert len(regions) == len(set(regions)) > 1

    check()
    opened_broker(browser, pulsar.ids[0])
    check()


def test_the_keyboard_alone(browser: Chrome, api: Api, pulsar: FakePulsar):
    """The first key leads past the header; from there to the ranges, the brokers, a broker's page, and its fields."""
    opened(browser, api)
    focused: list[str] = []

    def step() -> str:
        browser.switch_to.active_element.send_keys(Keys.TAB)
        one = browser.switch_to.active_element
        return str(one.get_attribute("id") or one.get_attribute("title") or one.text or one.accessible_name)

    browser.find_element(By.ID, "skip").send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "answers"
    while not focused or focused[-1] != pulsar.ids[0]:
        focused.append(step())
        assert len(focused) < 20, focused
    assert focused[0] == "steer"
    assert "1 hour" in focused
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    reads(browser, "broker-facts", " ago")
    focused = [step() for _ in range(12)]
    assert {"drain", "fill", "search", "Bundle"} <= set(focused), focused


def test_every_table_can_be_heard(browser: Chrome, api: Api):
    """Headings name their columns and rows; what changes is said; the keyboard skips to the answers."""
    opened(browser, api)
    assert browser.find_elements(By.CSS_SELECTOR, "th:not([scope])") == []
    named = "return [...document.querySelectorAll('input, select')].every((one) => one.labels.length)"
    assert browser.execute_script(named)
    assert browser.find_element(By.ID, "sentence").get_attribute("aria-live") == "polite"
    assert (
        browser.execute_script("return document.querySelector('a, button, input').getAttribute('href')") == "#answers"
    )


def test_a_proposal_of_settings(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """In the sentence of ``lbd status``."""
    with serving(pulsar, tmp_path) as api:
        put(api.engine.settings.state_dir, SECOND, summary())
        api.turn()
        opened(browser, api)
        assert reads(browser, "calibration", f"{summary().gain()}: lbd calibrate --show")
