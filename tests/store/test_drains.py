"""Drains on disk: orders that outlive lbd, and what is told of each."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import pytest

from lbd.errors import RefusedError, UsageError
from lbd.load.estimate import Carried
from lbd.store.control import Control
from lbd.store.database import STORE_NAME, value
from lbd.store.drains import WORKS, Drain, Drains, Fill, Work, Works, drains_in_force
from lbd.store.journal import Journal
from lbd.store.orders import ORDERS
from lbd.store.rollouts import Rollout, Rollouts
from tests.builders import put_value

if TYPE_CHECKING:
    from pathlib import Path


DRAIN = Drain("b-1:8080", 100.0, 200.0, "ann", "disk", None, 50.0, Carried(40.0, 1000.0, 1e6, 12))
ROLLOUT = Rollout(
    id="r",
    brokers=("b-1:8080",),
    members=("b-1:8080", "other:80"),
    by="ann",
    begun_at=100.0,
    phase_at=100.0,
    broker="b-1:8080",
    timeout_seconds=900.0,
)
WORK = Work(kind="drain", broker="b-1:8080", request="r1", begun_at=100.0, total=12, landed=3)


@pytest.mark.parametrize(("now", "there"), [(100.0, True), (199.9, True), (200.0, False)])
def test_a_drain_is_in_force_until_its_end(now: float, there: bool, tmp_path: Path):
    """What is read is what was written."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    assert drains.in_force(now) == ({"b-1:8080": DRAIN} if there else {})
    assert Drains(tmp_path).all() == [DRAIN]


def test_it_is_released_once(tmp_path: Path):
    """And what was there is told."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    assert (drains.release("b-1:8080"), drains.release("b-1:8080"), drains.release("../b:1")) == (DRAIN, None, None)
    assert drains.all() == []


def test_an_order_that_cannot_be_read_is_a_drain(tmp_path: Path):
    """When in doubt nothing goes to that broker; a release ends it."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    content = value(tmp_path / STORE_NAME, ORDERS) or b""
    put_value(tmp_path, ORDERS, content.replace(b'"since":100.0', b'"since":-1e15'))
    found = drains.in_force(1e9)["b-1:8080"]
    assert (found.since, found.until, found.by) == (0.0, None, "unknown")
    assert "lbd drain --release ends it" in found.reason
    assert drains.release("b-1:8080") is not None
    assert drains.in_force(1e9) == {}


def test_orders_that_cannot_be_read_are_a_pause(tmp_path: Path):
    """Nothing is known of drains; no order is written over them, and what is said names who ends that."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    put_value(tmp_path, ORDERS, b"{")
    assert drains.all() == []
    with pytest.raises(UsageError, match="lbd resume removes them: the pause, the drains, the fill and the rollout"):
        drains.begin(DRAIN)
    assert Control(tmp_path).paused(1e9) is not None
    Control(tmp_path).resume()
    drains.begin(DRAIN)
    assert (drains.all(), Control(tmp_path).paused(1e9)) == ([DRAIN], None)


def test_a_store_that_cannot_be_read_for_a_moment_has_not_lost_its_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A turn would move bundles to a drained broker, and a drain at work would be over; who only looks sees none."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    drains.begin_fill(Fill("f", "c:80", 1e9, "ann", 100.0))

    def unread(*_: object) -> None:
        raise UsageError("lbd.db: store cannot be read or written: disk I/O error")

    monkeypatch.setattr("lbd.store.orders.value", unread)
    for look in (drains.all, lambda: drains.in_force(100.0), lambda: drains.fill(100.0), lambda: drains.has_orders):
        with pytest.raises(UsageError, match="disk I/O error"):
            look()
    assert drains_in_force(tmp_path, 100.0) == []


@pytest.mark.parametrize("name", ["../../x:1", "b" * 300])
def test_names_of_brokers_are_no_paths(name: str, tmp_path: Path):
    """Whatever a broker is called, its order stays in the store."""
    drains = Drains(tmp_path)
    drains.begin(Drain(name, 1.0, None, "ann"))
    assert list(drains.in_force(2.0)) == [name]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [STORE_NAME]


BESIDE = """
import sys
from pathlib import Path
from lbd.store.drains import Drain, Drains
print("goes", flush=True)
for number in range(12):
    Drains(Path(sys.argv[1])).begin(Drain(f"a{number}:80", 1.0, None, "ann"))
"""


def test_no_change_is_lost_between_processes(tmp_path: Path):
    """A running lbd has the store open, and commands write orders beside it."""
    with closing(Journal(tmp_path / STORE_NAME, lambda: 1.0)):
        with subprocess.Popen([sys.executable, "-c", BESIDE, str(tmp_path)], stdout=subprocess.PIPE) as command:
            assert command.stdout is not None
            command.stdout.readline()
            for number in range(12):
                Drains(tmp_path).begin(Drain(f"b{number}:80", 1.0, None, "ann"))
        assert command.returncode == 0
        assert Counter(drain.broker[0] for drain in Drains(tmp_path).all()) == {"a": 12, "b": 12}


def test_what_was_read_before_a_release_is_not_written_back(tmp_path: Path):
    """lbd looks at the cluster between reading a drain and noting what the broker carried."""
    drains, carries = Drains(tmp_path), msgspec.structs.replace(DRAIN, carried=Carried(1.0, 1.0, 1.0, 1))
    drains.begin(DRAIN)
    drains.release("b-1:8080")
    assert not drains.amend(DRAIN, carries)
    assert drains.all() == []
    drains.begin(DRAIN)
    assert drains.amend(DRAIN, carries)
    assert not drains.amend(DRAIN, DRAIN)
    assert drains.release("b-1:8080", only=DRAIN) is None
    assert drains.all() == [carries]


@pytest.mark.parametrize("meanwhile", ["released", "ordered by another person"])
def test_a_drain_is_not_ordered_by_a_look_at_another_one(meanwhile: str, tmp_path: Path):
    """Whoever ends or replaces it while the cluster is looked at is not overruled."""
    drains, again = Drains(tmp_path), msgspec.structs.replace(DRAIN, ordered_at=150.0)
    drains.begin(DRAIN)
    if meanwhile == "released":
        drains.release("b-1:8080")
    else:
        drains.begin(msgspec.structs.replace(DRAIN, by="bob"))
    before = drains.all()
    with pytest.raises(RefusedError, match="was ended or ordered meanwhile"):
        drains.begin(again, instead_of=DRAIN)
    assert drains.all() == before


def test_no_drain_begins_for_a_rollout_that_was_stopped(tmp_path: Path):
    """Its end ends its drains in one step; other drains stay."""
    drains, rollouts = Drains(tmp_path), Rollouts(tmp_path)
    part = msgspec.structs.replace(DRAIN, rollout="r")
    with pytest.raises(RefusedError, match="the rollout was stopped meanwhile"):
        drains.begin(part)
    rollouts.begin(ROLLOUT)
    drains.begin(part)
    drains.begin(Drain("other:80", 1.0, None, "bob"))
    assert rollouts.stop("r", "by ann", 120.0) is not None
    assert [drain.broker for drain in drains.all()] == ["other:80"]
    with pytest.raises(RefusedError, match="the rollout was stopped meanwhile"):
        drains.begin(part)


def test_what_is_told_of_each(tmp_path: Path):
    """Only of drains that are in force; nothing where nothing is there."""
    drains = Drains(tmp_path)
    assert drains_in_force(tmp_path, 150.0) == []
    drains.begin(DRAIN)
    assert drains_in_force(tmp_path, 150.0) == [(DRAIN, None)]
    drains.save(Works(drains={"b-1:8080": WORK, "gone:1": WORK}))
    assert drains_in_force(tmp_path, 150.0) == [(DRAIN, WORK)]
    assert drains.works().of("r1") == WORK
    assert drains.works().of("r2") is None


def test_what_cannot_be_read_says_what_to_do(tmp_path: Path):
    """The drains themselves stand elsewhere."""
    drains = Drains(tmp_path)
    put_value(tmp_path, WORKS, b"{broken")
    with pytest.raises(UsageError, match=r"drains cannot be read: .* forgets it"):
        drains.works()
