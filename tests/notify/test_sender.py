"""Messages to a receiver that takes them, refuses them, fails, or hangs: a person is told, and nobody waits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import pytest
import requests
import responses
from structlog.testing import capture_logs

from lbd.notify import sender
from lbd.notify.events import Event
from lbd.notify.message import WebhookMessage
from lbd.notify.sender import LOST, MESSAGES, MOST_WAITING, Notifier, NotTakenError, Receiver
from lbd.notify.settings import NotifySettings
from tests.act.test_executor import no_thread
from tests.daemon.test_service import eventually
from tests.notify.test_events import AT, LANDED, left
from tests.webhook import SECRET, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.webhook import Hook

URL = f"https://hooks.slack.com{SECRET}"


@pytest.fixture
def hook() -> Iterator[Hook]:
    """A receiver that takes everything."""
    with receiving() as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries and stops within a test's time."""
    monkeypatch.setattr(sender, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(sender, "STOP_SECONDS", 1.0)


def settings(folder: Path, url: str, **changes: Any) -> NotifySettings:
    """All events, as JSON, in quick succession."""
    file = folder / "hook"
    file.write_text(f"{url}\n")
    usual = {"format": "json", "events": ["move", "leader"], "min_interval_seconds": 1}
    return NotifySettings.model_validate({"url_file": file, **usual, **changes})


def count(result: str) -> float:
    """Attempts that ended so."""
    return MESSAGES.labels(result)._value.get()  # type: ignore[no-any-return]


def moved(after: float = 0.0, number: int = 1) -> Any:
    """A turn in which bundles were moved."""
    return left(after, ended=(LANDED,) * number)


def kinds(body: dict[str, Any]) -> list[tuple[str, str]]:
    """The events of a message."""
    return [(event["kind"], event["text"]) for event in body["events"]]


# --- the receiver's answer


def posted(folder: Path, url: str = URL, **changes: Any) -> None:
    """One message."""
    receiver = Receiver(settings(folder, url, **changes))
    try:
        receiver.post(WebhookMessage("c", "h", AT, [Event("leader", AT, "b leads")]))
    finally:
        receiver.close()


@pytest.mark.parametrize("form", ["slack", "json"])
def test_what_is_sent(form: str, tmp_path: Path):
    """One POST of JSON to the address in the file."""
    with responses.RequestsMock() as receiver:
        receiver.post(URL, body="ok")
        posted(tmp_path, format=form)
        sent = receiver.calls[0].request
    assert sent.headers["Content-Type"] == "application/json"
    assert "Authorization" not in sent.headers
    assert isinstance(sent.body, bytes)
    assert ("text" in json.loads(sent.body), "events" in json.loads(sent.body)) == (form == "slack", form == "json")


@pytest.mark.parametrize(
    ("answer", "why", "lasting", "retry_seconds"),
    [
        ({"status": 400}, "it answered 400 Bad Request", True, 0),
        ({"status": 404}, "it answered 404 Not Found", False, 0),
        ({"status": 302, "headers": {"Location": "https://elsewhere.example/"}}, "it answered 302 Found", False, 0),
        ({"status": 500}, "it answered 500 Internal Server Error", False, 0),
        ({"status": 429, "headers": {"Retry-After": "30"}}, "it answered 429 Too Many Requests", False, 30),
        ({"status": 503, "headers": {"Retry-After": "999999"}}, "it answered 503 Service Unavailable", False, 3600),
        ({"status": 503, "headers": {"Retry-After": "soon"}}, "it answered 503 Service Unavailable", False, 0),
        ({"body": requests.exceptions.ConnectTimeout(URL)}, "no connection within 3 s", False, 0),
        ({"body": requests.exceptions.ReadTimeout(URL)}, "no answer within 8 s", False, 0),
        ({"body": requests.exceptions.ConnectionError(URL)}, "no connection, or it broke off", False, 0),
        ({"body": requests.exceptions.ProxyError(URL)}, "the proxy gives no connection", False, 0),
        (
            {"body": requests.exceptions.SSLError(URL)},
            "TLS failed: is its certificate valid, and its CA known (REQUESTS_CA_BUNDLE)?",
            False,
            0,
        ),
        (
            {"body": requests.exceptions.ContentDecodingError(URL)},
            "the request failed (ContentDecodingError)",
            False,
            0,
        ),
    ],
)
def test_what_it_answers(answer: dict[str, Any], why: str, lasting: bool, retry_seconds: float, tmp_path: Path):
    """Why a message was not taken, in words without its address, and whether it may be taken later."""
    with responses.RequestsMock() as receiver:
        receiver.post(URL, **answer)
        with pytest.raises(NotTakenError) as caught:
            posted(tmp_path)
    found = caught.value
    assert (str(found), found.lasting, found.retry_seconds) == (why, lasting, retry_seconds)
    assert found.__cause__ is None


def test_a_date_to_retry_after(tmp_path: Path):
    """The other form of the header."""
    later = format_datetime(datetime.now(UTC) + timedelta(minutes=2), usegmt=True)
    with responses.RequestsMock() as receiver:
        receiver.post(URL, status=429, headers={"Retry-After": later})
        with pytest.raises(NotTakenError) as caught:
            posted(tmp_path)
    assert 100 < caught.value.retry_seconds <= 120


@pytest.mark.parametrize(
    "content", ["", "hooks.slack.com/services/T0/B0/x", "ftp://host/x", "https://", "https://h:0/x", "two words"]
)
def test_a_file_without_a_web_address(content: str, tmp_path: Path):
    """The file is named, and nothing of it is shown."""
    with pytest.raises(NotTakenError) as caught:
        posted(tmp_path, content)
    assert str(tmp_path / "hook") in str(caught.value)
    assert not content or content not in str(caught.value)


def test_a_login_in_netrc_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It may be meant for another service of that host."""
    (tmp_path / "netrc").write_text("machine hooks.slack.com login ann password secret-of-ann\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with responses.RequestsMock() as receiver:
        receiver.post(URL)
        posted(tmp_path)
        assert "Authorization" not in receiver.calls[0].request.headers


# --- grouping, retries, and the end


@pytest.fixture
def notifier(hook: Hook, tmp_path: Path) -> Iterator[Notifier]:
    """To this receiver."""
    found = Notifier(settings(tmp_path, hook.url))
    with capture_logs():
        yield found
        found.close()


def test_the_first_is_sent_at_once_and_the_next_ones_together(hook: Hook, notifier: Notifier):
    """What happens within the interval is one message."""
    notifier.tell(moved())
    eventually(lambda: len(hook.bodies) == 1)
    for at in (15, 30, 45):
        notifier.tell(moved(at, 2))
    eventually(lambda: len(hook.bodies) == 2)
    assert hook.arrived[1] - hook.arrived[0] > 0.9
    assert [kinds(body) for body in hook.bodies] == [[("move", "1 bundle moved")], [("move", "6 bundles moved")]]
    assert hook.bodies[1]["cluster"] == "c"


def test_a_thread_that_could_not_be_had_is_tried_again(hook: Hook, notifier: Notifier, monkeypatch: pytest.MonkeyPatch):
    """The system had none left for one turn: no turn fails, it is said, and the next event takes the first with it."""
    with monkeypatch.context() as full:
        no_thread(full, "notify")
        notifier.tell(moved())
    assert "can't start new thread" in notifier.trouble
    notifier.tell(moved(15, 2))
    eventually(lambda: len(hook.bodies) == 1)
    assert kinds(hook.bodies[0]) == [("move", "3 bundles moved")]
    eventually(lambda: notifier.trouble == "")


def test_only_events_that_are_wanted(hook: Hook, notifier: Notifier):
    """Of a turn with a failed move and a moved bundle, the setting names the second."""
    failed = left(ended=(LANDED, LANDED.__class__("x", "failed")))
    notifier.tell(failed)
    eventually(lambda: hook.bodies)
    assert kinds(hook.bodies[0]) == [("move", "1 bundle moved")]


def test_a_failing_receiver_gets_everything_once_it_answers(hook: Hook, notifier: Notifier):
    """It is told of once in the log, stands in the warnings meanwhile, and the next message has all of it."""
    hook.answers, failed, sent = [500, 503, 200], count("failed"), count("sent")
    with capture_logs() as logged:
        notifier.tell(moved())
        eventually(lambda: notifier.trouble)
        assert notifier.trouble.startswith(f"notify: 127.0.0.1:{hook.port} takes no messages since ")
        assert notifier.trouble.endswith(": it answered 500 Internal Server Error")
        eventually(lambda: not notifier.trouble)
    assert [line["event"] for line in logged] == ["notifications are not taken", "notifications are taken again"]
    assert (count("failed") - failed, count("sent") - sent) == (2, 1)
    assert [kinds(body) for body in hook.bodies] == [[("move", "1 bundle moved")]] * 3


def test_it_is_not_asked_before_it_said(hook: Hook, notifier: Notifier):
    """429 with a time."""
    hook.answers, hook.headers = [429, 200], {"Retry-After": "1"}
    notifier.tell(moved())
    eventually(lambda: len(hook.bodies) == 2)
    assert hook.arrived[1] - hook.arrived[0] > 0.9


def test_a_message_that_is_refused_for_good_is_not_repeated(hook: Hook, notifier: Notifier):
    """The next one tells how many events are lost."""
    hook.answers, lost = [400, 200], LOST._value.get()
    notifier.tell(moved())
    eventually(lambda: notifier.trouble)
    notifier.tell(moved(15))
    eventually(lambda: len(hook.bodies) == 2)
    assert (hook.bodies[1]["dropped"], LOST._value.get() - lost) == (1, 1)
    eventually(lambda: not notifier.trouble)


def test_what_finds_no_room_is_counted_and_told(hook: Hook, notifier: Notifier):
    """The newest stay; those that are being sent do not count as lost before they are."""
    hook.answers, lost = [500], LOST._value.get()
    for at in range(MOST_WAITING + 10):
        notifier.tell(moved(at))
    eventually(lambda: LOST._value.get() - lost == 10)
    hook.answers = [200]
    eventually(lambda: hook.bodies and hook.bodies[-1]["dropped"] == 10)
    assert (kinds(hook.bodies[-1]), hook.bodies[-1]["dropped"]) == ([("move", f"{MOST_WAITING} bundles moved")], 10)


def test_a_hanging_receiver_holds_nobody_up(hook: Hook, tmp_path: Path):
    """Neither who tells, nor the end: both return while the receiver still has not answered."""
    hook.hangs = True
    notifier = Notifier(settings(tmp_path, hook.url))
    with capture_logs() as logged:
        for at in range(200):
            notifier.tell(moved(at))
        eventually(lambda: hook.bodies)
        notifier.close()
    assert [line["event"] for line in logged] == ["notifications were not sent before the end"]


def test_the_end_sends_what_waits(hook: Hook, tmp_path: Path):
    """At once, also within the interval."""
    notifier = Notifier(settings(tmp_path, hook.url, min_interval_seconds=600))
    notifier.tell(moved())
    eventually(lambda: len(hook.bodies) == 1)
    notifier.tell(moved(15))
    notifier.close()
    assert len(hook.bodies) == 2


def test_another_receiver_after_a_reload(hook: Hook, tmp_path: Path):
    """What the one before has not taken is sent to it; none takes nothing."""
    with receiving() as broken, capture_logs():
        broken.answers = [500]
        notifier = Notifier(settings(tmp_path, broken.url))
        notifier.tell(moved())
        eventually(lambda: notifier.trouble)
        (tmp_path / "new").mkdir()
        notifier.take(settings(tmp_path / "new", hook.url))
        eventually(lambda: hook.bodies)
        assert notifier.trouble == ""
        notifier.take(NotifySettings())
        notifier.tell(moved(15))
        notifier.close()
    assert (len(hook.bodies), notifier.enabled) == (1, False)


def test_a_reload_ends_the_connection_to_the_receiver_before(hook: Hook, tmp_path: Path):
    """An idle connection for each reload would use up file descriptors."""
    notifier = Notifier(settings(tmp_path, hook.url))
    notifier.tell(moved())
    eventually(lambda: hook.bodies)
    before = notifier._receiver
    assert before is not None
    connections = before._session.get_adapter(hook.url).poolmanager.pools
    assert len(connections) == 1
    notifier.take(NotifySettings())
    assert len(connections) == 0
    notifier.close()


def test_a_new_address_needs_no_reload(hook: Hook, notifier: Notifier, tmp_path: Path):
    """The file is read again when it changes, as other secrets are."""
    with receiving() as other:
        notifier.tell(moved())
        eventually(lambda: hook.bodies)
        (tmp_path / "hook").write_text(other.url)
        notifier.tell(moved(15))
        eventually(lambda: other.bodies)
