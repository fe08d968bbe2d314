"""A preview and its act share one check: in each situation both refuse with the same reason, or both go."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.config import Settings
from lbd.reason import Reason
from lbd.simulate.answers import Reply, page
from lbd.store.control import Control, Pause, RolloutRequest, new_id
from lbd.store.drains import Drain, Drains
from lbd.store.rollouts import Rollout, Rollouts
from lbd.store.status import write_status
from tests import fake_pulsar
from tests.builders import state_begun
from tests.cli.conftest import lbd
from tests.cli.test_doctor import status
from tests.fake_pulsar import COLD, HOT
from tests.serving import accepting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

NEW = "t/new/0x00000000_0xffffffff"
GONE = "127.0.0.9:8080"


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker with eight bundles, a warm and a cold one with one each, and a bundle that nobody owns."""
    with fake_pulsar.hot_broker() as cluster:
        cluster.own(None, {NEW: 0.0})
        cluster.topic_names = {"persistent://t/n/a", "persistent://t/n/a11"}
        yield cluster


def configured(pulsar: FakePulsar, folder: Path, **settings: Any) -> Path:
    """The settings in a file."""
    guardrails = {"membership_settle_seconds": 0, "unload_spacing_seconds": 0, **settings.pop("guardrails", {})}
    values = {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": str(folder / "state"), "guardrails": guardrails}
    path = folder / "lbd.yaml"
    path.write_text(yaml.safe_dump({**values, **settings}), encoding="utf-8")
    return path


COMMANDS = {
    "place": ("place", NEW),
    "unload": ("unload", HOT[0], "--to", "COLD"),
    "unload, picked": ("unload", HOT[0]),
    "split": ("split", HOT[0]),
    "drain": ("drain", "COLD"),
    "fill": ("fill", "COLD"),
}
"""What a preview is asked with; ``--apply`` makes it the act."""


@dataclass(frozen=True)
class Case:
    """A cluster, and the folder with the settings and the state directory."""

    pulsar: FakePulsar
    folder: Path


def as_it_is(case: Case) -> None:
    """Nothing keeps anything."""


def owner_is_gone(case: Case) -> None:
    """Brokers name an owner that is none of them (apache/pulsar#7679)."""
    for bundle in (NEW, HOT[0]):
        case.pulsar.owners[bundle] = None
        away = f"http://old-broker.example:8080/admin/v2/namespaces/{bundle}/topicHashPositions"
        case.pulsar.fault(f"{bundle}/topicHashPositions", Reply(307, location=away))


def owner_changed(case: Case) -> None:
    """Since the report: another broker answers that it has the bundle."""
    elsewhere = f"{case.pulsar.urls[1]}/admin/v2/namespaces/{HOT[0]}/topicHashPositions"
    case.pulsar.fault(f"{HOT[0]}/topicHashPositions", Reply(307, location=elsewhere), broker=case.pulsar.ids[0])
    document = {"namespace": "t/n", "bundle": HOT[0].rpartition("/")[2], "topicHashPositions": {}}
    case.pulsar.fault(
        f"{HOT[0]}/topicHashPositions", Reply(200, json.dumps(document).encode()), broker=case.pulsar.ids[1]
    )


def paused(case: Case) -> None:
    """By a person."""
    Control(state_begun(case.folder / "state").path).pause(Pause(time.time(), None, "why not", "bob"))


def rolled(case: Case) -> None:
    """A rollout is under way, and no lbd goes on with it yet."""
    ids, now = tuple(case.pulsar.ids), time.time()
    order = Rollout(
        id="r", brokers=ids[:1], members=ids, by="ann", begun_at=now, phase_at=now, broker=ids[0], timeout_seconds=900.0
    )
    Rollouts(state_begun(case.folder / "state").path).begin(order)


def too_old(case: Case) -> None:
    """One broker of 2.10."""
    case.pulsar.brokers[0].version = "2.10.4"
    case.pulsar.fault("topicHashPositions", page(404), broker=case.pulsar.ids[0])


def isolated(case: Case) -> None:
    """Every namespace is bound to the hot broker."""
    parameters = {"policy_type": "min_available", "parameters": {"min_limit": "1"}}
    policy = {"namespaces": ["t/.*"], "primary": [r"127\.0\.0\.1"], "auto_failover_policy": parameters}
    case.pulsar.policies.isolation = {"own": policy}


def nobodys(case: Case) -> None:
    """Every namespace is bound to no broker that there is."""
    isolated(case)
    case.pulsar.policies.isolation["own"]["primary"] = [case.pulsar.ids[0]]


def drained(case: Case) -> None:
    """The warm broker is, and is still there."""
    Drains(state_begun(case.folder / "state").path).begin(Drain(case.pulsar.ids[1], time.time(), None, "ann"))


def drained_and_gone(case: Case) -> None:
    """A broker was, and has left for good."""
    Drains(state_begun(case.folder / "state").path).begin(Drain(GONE, time.time(), None, "ann"))


def leaderless(case: Case) -> None:
    """No broker leads."""
    case.pulsar.leader = None


def sheds(case: Case) -> None:
    """Brokers balance by themselves."""
    for broker in case.pulsar.brokers:
        broker.runtime["loadBalancerSheddingEnabled"] = "true"


def moved_lately(case: Case) -> None:
    """The bundle was moved by hand a moment ago."""
    assert (
        lbd("unload", HOT[0], "--to", case.pulsar.ids[1], "--apply", "--config", case.folder / "lbd.yaml").exit_code
        == 0
    )


def brokers_left(case: Case) -> None:
    """The warm one, since the last turn."""
    lbd("run", "--once", "--observe", "--config", case.folder / "lbd.yaml")
    case.pulsar.gone.add(case.pulsar.ids[1])


MOVES = ("unload", "unload, picked", "drain", "fill")

SITUATIONS: tuple[tuple[Any, ...], ...] = (
    (as_it_is, tuple(COMMANDS), 0, "", {}),
    (drained_and_gone, ("unload", "drain", "fill"), 0, "", {}),
    (drained, ("place", "unload", "fill"), 0, "", {}),
    (drained, ("drain",), 4, "the cluster cannot do without 127.0.0.3:", {}),
    (owner_is_gone, ("place",), 4, "is owned at http://old-broker.example:8080, which is none of", {}),
    (owner_is_gone, ("split",), 3, "is owned at http://old-broker.example:8080, which is none of", {}),
    (owner_changed, ("unload",), 4, "owns it, not 127.0.0.1:", {}),
    (paused, tuple(COMMANDS), 4, "paused: by bob until lbd resume: why not", {}),
    (rolled, tuple(COMMANDS), 4, "rollout, 0 of 1 brokers restarted: 127.0.0.1:", {}),
    (as_it_is, tuple(COMMANDS), 4, "this lbd only observes (mode: observe)", {"mode": "observe"}),
    (too_old, tuple(COMMANDS), 3, "wanted 2.11 or newer", {}),
    (isolated, ("unload", "unload, picked"), 4, "isolation-policy: t/n may not be on", {}),
    (nobodys, ("place", "unload", "unload, picked", "drain"), 4, "matches no active broker", {}),
    (leaderless, MOVES, 4, "leader-unreachable: no broker leads", {}),
    (sheds, MOVES, 4, "in-broker-shedding", {}),
    (moved_lately, ("unload", "split"), 4, "cool-down: it was moved", {}),
    (brokers_left, MOVES, 4, "membership-changed: 127.0.0.2:", {"guardrails": {"membership_settle_seconds": 120}}),
)
"""What is the matter, with which settings; for these commands the exit code and the reason of preview and act."""


def cases() -> Iterator[Any]:
    """One of each command."""
    for situation, commands, code, reason, settings in SITUATIONS:
        for command in commands:
            name = f"{situation.__name__}{'+' * bool(settings)}-{command}"
            yield pytest.param(situation, COMMANDS[command], code, reason, settings, id=name)


@pytest.mark.parametrize(("situation", "words", "code", "reason", "settings"), list(cases()))
def test_both_say_the_same(
    situation: Callable[[Case], None],
    words: tuple[str, ...],
    code: int,
    reason: str,
    settings: dict[str, Any],
    pulsar: FakePulsar,
    tmp_path: Path,
) -> None:
    """The preview sends nothing but questions; the act that follows it at once ends as the preview has said."""
    config = configured(pulsar, tmp_path, **settings)
    command = [word.replace("COLD", pulsar.ids[2]) for word in words]
    situation(Case(pulsar, tmp_path))
    before = len(pulsar.requests)
    preview = lbd(*command, "--config", config)
    assert {request.method for request in pulsar.requests[before:]} == {"GET"}
    act = lbd(*command, "--apply", "--config", config)
    said = [" ".join(ended.output.split()) for ended in (preview, act)]
    assert (preview.exit_code, act.exit_code) == (code, code), said
    assert [reason in text for text in said] == [True, True], said


def two_looks(config: Path, pulsar: FakePulsar) -> None:
    """Turns that know two samples of each broker, so that all have settled."""
    for at in range(3):
        pulsar.sample(80.0 + at, 45.0 + at, 10.0 + at)
        lbd("run", "--once", "--observe", "--config", config)


@pytest.mark.parametrize("settled", [True, False])
def test_a_plan_says_whether_apply_would_be_refused(settled: bool, pulsar: FakePulsar, tmp_path: Path) -> None:
    """Brokers that were moved to or from a moment ago are no reason to say that the cluster has changed."""
    config = configured(pulsar, tmp_path)
    two_looks(config, pulsar)
    if not settled:
        assert lbd("unload", HOT[7], "--to", pulsar.ids[1], "--apply", "--config", config).exit_code == 0
    preview = lbd("plan", "--config", config)
    name = json.loads(lbd("plan", "--format", "json", "--config", config).stdout)["id"]
    act = lbd("apply", name, "--config", config)
    said = " ".join(preview.output.split())
    assert (preview.exit_code, act.exit_code) == ((0, 0) if settled else (4, 4)), (said, act.output)
    assert f"To move it now: lbd apply {name}" in said if settled else f"lbd apply {name} is refused now: " in said
    assert "has changed" not in act.output
    if not settled:
        refusal = act.output.splitlines()[-1].removeprefix("Refused: ").removesuffix("; nothing was begun.")
        assert " ".join(refusal.split()) in said


@pytest.mark.parametrize(
    ("situation", "code", "reason"),
    [
        (as_it_is, 0, ""),
        (drained_and_gone, 0, ""),
        (drained, 4, " is drained; lbd drain "),
        (paused, 4, "paused: by bob"),
    ],
)
def test_a_rollout(
    situation: Callable[[Case], None], code: int, reason: str, pulsar: FakePulsar, tmp_path: Path
) -> None:
    """Drained brokers that have left for good keep no other one from a restart (tikv/pd#9185)."""
    config = configured(pulsar, tmp_path)
    situation(Case(pulsar, tmp_path))
    settings = Settings.model_validate(yaml.safe_load(config.read_text()))
    preview = lbd("rollout", pulsar.ids[2], "--dry-run", "--config", config)
    name, now = new_id()
    request = RolloutRequest(name, (pulsar.ids[2],), False, 20.0, "", "ann", now, now + 20)
    with accepting(settings) as engine:
        answer, _ = engine.requests.ask(request, lambda: False)
    assert answer is not None
    assert (preview.exit_code, answer.exit_code) == (code, code), (preview.output, answer)
    assert (reason in " ".join(preview.output.split()), reason in answer.sentence) == (True, True)


def test_an_lbd_that_only_observes_stops_a_rollout(pulsar: FakePulsar, tmp_path: Path) -> None:
    """As it ends a pause or a drain: an order that cannot be ended would go on once lbd moves again."""
    config = configured(pulsar, tmp_path, mode="observe")
    rolled(Case(pulsar, tmp_path))
    settings = Settings.model_validate(yaml.safe_load(config.read_text()))
    with accepting(settings):
        begun, stopped = (lbd("rollout", word, "--config", config) for word in ("--all", "--stop"))
    order = Rollouts(tmp_path / "state").under_way()
    assert (begun.exit_code, "this lbd only observes" in begun.output) == (4, True), begun.output
    assert (stopped.exit_code, order is not None and order.stopping[:3]) == (0, "by "), stopped.output


@pytest.mark.parametrize(
    ("words", "plan"),
    [
        (("drain", "COLD"), lambda told: [unload["bundle"] for unload in told["unloads"]]),
        (("rollout", "COLD", "--dry-run"), lambda told: [COLD] * told["steps"][0]["bundles"]),
    ],
    ids=["drain", "rollout"],
)
def test_after_a_departure_a_preview_shows_the_plan_with_the_hold_and_asks_the_broker_nothing(
    pulsar: FakePulsar, tmp_path: Path, words: tuple[str, ...], plan: Callable[[dict[str, Any]], list[str]]
) -> None:
    """For half a minute brokers take bundles over, and one that is asked then what it owns can hang."""
    case = Case(pulsar, tmp_path)
    config = configured(pulsar, tmp_path)
    command = [pulsar.ids[2] if word == "COLD" else word for word in words]
    pulsar.sample(40.0, 30.0, 10.0)
    brokers_left(case)
    shown = lbd(*command, "--config", config)
    told = json.loads(lbd(*command, "--config", config, "--format", "json").stdout)
    assert plan(told) == [COLD]
    assert shown.exit_code == 4
    assert "is asked what it owns in" in shown.output
    assert not pulsar.asked("/ownedNamespaces")


def test_a_standby_previews_what_it_would_refuse(
    pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what it says of itself in its status."""
    config = configured(pulsar, tmp_path)
    settings = Settings.model_validate(yaml.safe_load(config.read_text()))
    with accepting(settings, turns=1) as engine:
        monkeypatch.setattr(engine.leading, "hold", lambda: (Reason.NOT_LEADER, "lbd-b leads"))
        write_status(tmp_path / "state", status(hold=Reason.NOT_LEADER.label, leader="lbd-b leads"))
        for words in (("unload", HOT[0], "--to", pulsar.ids[2]), ("drain", pulsar.ids[2]), ("split", HOT[0])):
            ended = [lbd(*words, *acts, "--config", config) for acts in ((), ("--apply",))]
            assert [(one.exit_code, "not-leader: lbd-b leads" in one.output) for one in ended] == [(4, True)] * 2, words
