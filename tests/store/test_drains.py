"""Drains on disk: orders that outlive lbd, and what is told of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lbd.errors import UsageError
from lbd.load.estimate import Carried
from lbd.store.drains import Drain, Drains, Work, Works, drains_in_force

if TYPE_CHECKING:
    from pathlib import Path


DRAIN = Drain("b-1:8080", 100.0, 200.0, "ann", "disk", None, 50.0, Carried(40.0, 1000.0, 1e6, 12))
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
    """When in doubt nothing goes to that broker; a release removes it."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    (tmp_path / "control" / "drains" / "b-1:8080.json").write_text("{")
    found = drains.in_force(1e9)["b-1:8080"]
    assert (found.since, found.until, found.by) == (0.0, None, "unknown")
    assert "lbd drain --release removes it" in found.reason
    assert drains.release("b-1:8080") is not None
    assert drains.in_force(1e9) == {}


def test_a_name_that_no_file_can_have_is_told(tmp_path: Path):
    """The API takes 300 characters, and once anything is drained the file system has its say."""
    drains = Drains(tmp_path)
    drains.begin(DRAIN)
    with pytest.raises(UsageError, match="File name too long"):
        drains.release("b" * 300)


def test_names_of_brokers_are_no_paths(tmp_path: Path):
    """Whatever a broker is called, its file stays in its folder."""
    drains = Drains(tmp_path)
    drains.begin(Drain("../../x:1", 1.0, None, "ann"))
    assert list(drains.in_force(2.0)) == ["../../x:1"]
    assert [path.parent.name for path in tmp_path.rglob("*.json")] == ["drains"]


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
    """The drains themselves stand in files of their own."""
    drains = Drains(tmp_path)
    drains.save(Works())
    next(tmp_path.rglob("drains.json")).write_text("{broken")
    with pytest.raises(UsageError, match="remove it, and only how far drains have come is forgotten"):
        drains.works()
