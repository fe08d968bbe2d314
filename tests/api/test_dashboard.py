"""The page at / in a real browser: what a person reads, and when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from lbd.store.control import Control
from lbd.store.drains import Drain, Drains, Work, Works
from lbd.store.proposal import plan_id
from lbd.store.rollouts import Rollout, Rollouts
from tests.api.browser import browsing, sized
from tests.api.conftest import TOKEN, serving, working
from tests.api.test_tokens import ADMINISTER, OPERATE, TOKENS
from tests.fake_pulsar import HOT
from tests.store.test_calibration import SECOND, put, summary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from selenium.webdriver import Chrome

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar

PATIENCE_SECONDS = 60


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """One for all tests: it takes a second to start."""
    with browsing() as found:
        yield found


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
    told = f"#{what}: wanted {'no ' if not_ else ''}{wanted!r}"
    WebDriverWait(browser, PATIENCE_SECONDS).until(lambda one: (wanted in text(one, what)) is not not_, told)
    return text(browser, what)


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
        assert "hits" in text(browser, "sentence")


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
        assert "lbd acts above 15 (slowly) and 40 (soon)" in reads(browser, "gap-words", "at most in")
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
        assert "1 of 1 used, the next one in 60 min" in text(browser, "next-why")


def test_a_plan_that_waits(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """lbd does not act, and why; what a person can do."""
    with serving(pulsar, tmp_path, mode="approve") as api:
        name = plan_id(api.turn().unloads)
        opened(browser, api)
        assert text(browser, "acting") == "No: a plan waits for approval"
        assert text(browser, "next") == "Wait for a person's approval"
        assert text(browser, "next-why") == f"lbd apply {name}"
        assert f"Plan {name}: 3 moves, " in text(browser, "plan-about")
        rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#planned tr")]
        assert [row.startswith(tuple(HOT)) for row in rows] == [True] * 3


def approved(browser: Chrome, **words: str) -> None:
    """The plan on the page, approved by keyboard."""
    browser.find_element(By.ID, "approve").send_keys(Keys.ENTER)
    steered(browser, who="ann", **words)


def test_a_plan_is_approved_on_the_page(browser: Chrome, pulsar: FakePulsar, tmp_path: Path):
    """With a name and the token; what came of it is told where the plan stood, and aloud."""
    with serving(pulsar, tmp_path, mode="approve") as api, working(api):
        moves = api.turn().unloads
        opened(browser, api)
        approved(browser, steer_token="wrong-one")
        assert "wrong token" in reads(browser, "steer-trouble", "Not done")
        steered(browser, steer_token=TOKEN)
        assert "3 landed" in reads(browser, "plan-said", "landed")
        assert text(browser, "h-plan") == "Approved by ann"
        assert not browser.find_element(By.ID, "approve").is_displayed()
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
        moved, *others = api.turn().unloads
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
    Rollouts(api.engine.settings.state_dir).save(found)
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


def test_at_one_that_stands_by_a_pause_is_said_to_hold_there_only(browser: Chrome, api: Api):
    """Another one goes on moving meanwhile."""
    last, words = api.serving.board.last, "this lbd stands by, lbd-b leads"
    assert last is not None
    api.serving.board.again(msgspec.structs.replace(last.status, hold="not-leader", leader=words))
    opened(browser, api)
    browser.find_element(By.ID, "steer").click()
    assert f"Here only, until this lbd leads: {words}." in text(browser, "steer-about")


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
        assert reads(browser, "notes", f"{summary().gain()}: lbd calibrate --show")
