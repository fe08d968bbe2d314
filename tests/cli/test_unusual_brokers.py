"""Every command that has bundles assigned, on brokers with unusual settings: nothing that it touched is lost by it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import requests

from lbd.operations import drain
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.store.journal import read
from tests.cli.conftest import lbd, written
from tests.e2e import naming
from tests.silence import LIMIT_SECONDS
from tests.simulate import fakes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lbd.simulate.answers import Request
    from lbd.simulate.fake_pulsar import FakePulsar

SETTINGS = {
    "usual": {},
    "no non-persistent topics": {"enableNonPersistentTopics": "false"},
    "no topics by themselves": {"allowAutoTopicCreation": "false"},
    "only non-persistent topics": {"enablePersistentTopics": "false"},
}


def placed(pulsar: FakePulsar) -> list[str]:
    """Release a bundle, and have lbd place it."""
    bundle = next(iter(pulsar.owners()))
    admin = Admin(PulsarSettings(admin_urls=pulsar.admin_urls))
    assert admin.unload(bundle, None, pulsar.admin_urls[0]).status == 204
    return ["place", bundle, "--apply"]


COMMANDS: dict[str, Callable[[FakePulsar], list[str]]] = {
    "unload": lambda pulsar: ["unload", next(iter(pulsar.owners())), "--to", pulsar.brokers[2], "--apply"],
    "place": placed,
    "drain": lambda pulsar: ["drain", pulsar.brokers[2], "--apply"],
    "split": lambda pulsar: ["split", next(iter(pulsar.owners())), "--apply"],
}


@pytest.mark.security("a command on brokers with unusual settings leaves each bundle as placeable as it was")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("runtime", SETTINGS.values(), ids=SETTINGS)
def test_each_bundle_can_be_released_and_placed_again(
    runtime: dict[str, str], command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """By a client that looks a topic of it up, as after the next unload or the owner's death."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
    with fakes.hot(clients=0, runtime=runtime) as pulsar:
        config = written(fakes.settings(pulsar, tmp_path / "state"), tmp_path)
        arguments, before = COMMANDS[command](pulsar), pulsar.owners()
        found = lbd(*arguments, "--config", config)
        assert found.exit_code == 0, found.output
        assert pulsar.owners() != before
        monkeypatch.setattr(pulsar.configuration, "_own", lambda _: {"allowAutoTopicCreation": "true"})
        admin, lost = Admin(PulsarSettings(admin_urls=pulsar.admin_urls)), []
        for bundle in pulsar.owners():
            assert admin.unload(bundle, None, pulsar.admin_urls[0]).status == 204
            path = naming.topic_in(bundle).replace("://", "/")
            if requests.get(f"{pulsar.admin_urls[0]}/lookup/v2/topic/{path}", timeout=LIMIT_SECONDS).status_code != 200:
                lost.append(bundle)
        assert lost == []


@pytest.mark.security("each unload that brokers receive has its intent in the journal, at each hop")
@pytest.mark.parametrize("command", ["unload", "drain"])
def test_each_unload_has_its_intent_in_the_journal(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """When the request arrives, at the leader and at the owner; no bundle is unloaded more often than intended."""
    monkeypatch.setattr(drain, "UNLOAD_SPACING_SECONDS", 0)
    with fakes.hot(clients=2) as pulsar:
        config, intended = written(fakes.settings(pulsar, tmp_path / "state"), tmp_path), dict[str, bool]()

        def arrived(request: Request) -> None:
            if request.method == "PUT" and request.path.endswith("/unload"):
                bundle = request.path.removeprefix("/admin/v2/namespaces/").removesuffix("/unload")
                opened = {move.bundle for _, move in read(tmp_path / "state" / "lbd.db").open}
                intended[f"{bundle} at {request.broker}"] = bundle in opened

        arguments = COMMANDS[command](pulsar)
        pulsar.on_request = arrived
        assert lbd(*arguments, "--config", config).exit_code == 0
        assert set(intended.values()) == {True}
        let_go = Counter(change.bundle for change in pulsar.history() if change.owner is None)
        assert set(let_go.values()) == {1}
