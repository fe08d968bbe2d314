"""Whatever stands in a file of the state directory: every command that reads it ends in words, and never in a bug."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from lbd.cli import main
from lbd.daemon.engine import engine
from lbd.pulsar.override_note import TakeOverNote
from lbd.store.control import Control, Pause
from lbd.store.database import STORE_NAME, reading, value
from lbd.store.drains import Drain, Drains, RemainingBundle, Work, Works
from lbd.store.orders import ORDERS
from lbd.store.state import MEMORY, TAKE_OVER, KeptTakeOver
from tests import fake_pulsar
from tests.builders import put_value
from tests.test_turn import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fake_pulsar import FakePulsar

BROKER = "a.example:8080"
LOOKING = (
    ["status"],
    ["status", "--format", "json"],
    ["history"],
    ["history", "--splits"],
    ["explain"],
    ["explain", fake_pulsar.HOT[0]],
    ["dry-run"],
    ["doctor"],
)
ACTING = (["run", "--once"], ["resume"], ["drain", BROKER, "--release"], ["release"])


@pytest.fixture(scope="module")
def pulsar() -> Iterator[FakePulsar]:
    """A cluster that lbd has moved bundles in."""
    with fake_pulsar.hot_broker() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def whole(pulsar: FakePulsar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory with something of everything in it."""
    folder, now = tmp_path_factory.mktemp("whole"), time.time()
    with engine(settings(pulsar, folder)) as found:
        found.once()
    state = folder / "state"
    assert run(["run", "--once"], state, pulsar) in {0, 4}
    Control(state).pause(Pause(now, now + 3600, "a reason", "ann"))
    Drains(state).begin(Drain(BROKER, now, now + 3600, "ann", "a reason", None, now - 3600))
    work = Work(
        kind="drain",
        broker=BROKER,
        request="q",
        begun_at=now,
        total=3,
        left=[RemainingBundle("b", "c")],
        eta_seconds=9.0,
    )
    Drains(state).save(Works(drains={BROKER: work}, fill=work))
    KeptTakeOver(state).save(
        TakeOverNote(phase="taken", before=None, ran={"a": "true"}, cluster="c", at=now, asked_at=now, seen_at=now)
    )
    return state


def run(command: list[str], state: Path, pulsar: FakePulsar) -> int:
    """The exit code of a command; what is told of a bug fails the test."""
    environ = {
        "LBD_STATE_DIR": str(state),
        "LBD_PULSAR__ADMIN_URLS": json.dumps(pulsar.urls),
        "LBD_AVG_SHEDDER__HIT_COUNT_HIGH": "1",
        "LBD_GUARDRAILS__MEMBERSHIP_SETTLE_SECONDS": "0",
        "LBD_HISTORY__ENABLED": "false",
    }
    done = CliRunner().invoke(main, command, env=environ, catch_exceptions=False)
    assert "bug in lbd" not in done.output, (command, done.output)
    assert done.exit_code != 1, (command, done.output)
    return done.exit_code


def parts(state: Path) -> list[tuple[str, str]]:
    """All files of it, and all values in its store with their names, in order."""
    files = sorted(str(path.relative_to(state)) for path in state.rglob("*") if path.is_file())
    with reading(state / STORE_NAME) as store:
        assert store is not None
        names = sorted(name for (name,) in store.rows("SELECT name FROM state"))
    return [*((name, "") for name in files), *((STORE_NAME, name) for name in names)]


WRONG: tuple[Any, ...] = (
    *(1e15, 1e300, -1.0, -1e300, 0, 10**400, 2**63, True, None, "", "x" * 5000, "\ud800", [], {}, [[]], [1e15]),
    *(float("nan"), float("inf")),
)
"""What no field, or hardly any, is."""

NESTED = (b"[" * 100_000, b'{"hits":' * 100_000, b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
JUNK = (b"", b"null", b"7", b"[]", b"{}", b'""', b"\xff\xfe", b"\0" * 5000, b'{"format": 99}', *NESTED)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from leaves(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    """The document with something else at one place."""
    if not path:
        return wrong
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], wrong)
    return copy


def documents(content: bytes) -> list[tuple[int, Any]]:
    """The JSON values on the lines of a file, with their numbers."""
    found = []
    for number, line in enumerate(content.split(b"\n")):
        try:
            found.append((number, json.loads(line)))
        except ValueError:
            continue
    return found


def garbled(draw: Callable[..., Any], content: bytes) -> bytes:
    """Junk, a part, a changed byte, or the same document with one value that is not right."""
    known = documents(content)
    how = draw(st.sampled_from(["junk", "part", "byte", *(["value"] * 6 if known else [])]))
    if how == "junk":
        return draw(st.sampled_from(JUNK))
    if how == "part":
        return content[: draw(st.integers(0, len(content)))]
    if how == "byte":
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        return content[:at] + bytes([draw(st.integers(0, 255))]) + content[at + 1 :]
    number, document = draw(st.sampled_from(known))
    path, wrong = draw(st.sampled_from(list(leaves(document)))), draw(st.sampled_from(WRONG))
    lines = content.split(b"\n")
    lines[number] = json.dumps(changed(document, path, wrong)).encode()
    return b"\n".join(lines)


@examples(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_command_ends_in_words(data: st.DataObject, pulsar: FakePulsar, whole: Path, tmp_path: Path) -> None:
    """Those that only look, and one that acts after them."""
    state = tmp_path / "state"
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(whole, state)
    file, name = data.draw(st.sampled_from(parts(whole)))
    if name:
        put_value(state, name, garbled(data.draw, value(whole / STORE_NAME, name) or b""))
    else:
        (state / file).write_bytes(garbled(data.draw, (state / file).read_bytes()))
    for command in (data.draw(st.sampled_from(LOOKING)), data.draw(st.sampled_from(ACTING))):
        run(command, state, pulsar)


def order(key: str, body: bytes) -> bytes:
    """A file with one order."""
    return b'{"format": 1, "orders": {"i": {"id": "i", "key": "%s", "body": %s}}}' % (key.encode(), body)


@pytest.mark.parametrize("command", [*LOOKING, *ACTING], ids=" ".join)
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (MEMORY, NESTED[0]),
        (MEMORY, NESTED[1]),
        (ORDERS, order("pause", b'{"since": 0, "until": 1e15, "reason": "", "by": "ann"}')),
        (ORDERS, order("pause", b'{"since": 1e15, "until": null, "reason": "", "by": "ann"}')),
        (ORDERS, order("drain a", b'{"broker": "a", "since": -1e15, "until": 1e300, "by": "ann"}')),
        (ORDERS, order("rollout", b'{"id": "r"}')),
        (ORDERS, b'{"orders": {}, "number": -1, "ended": {"a": 1e300}}'),
        (TAKE_OVER, b'{"cluster": "c", "phase": "taken", "before": null, "ran": {}, "at": 1e15, "asked_at": 0}'),
    ],
    ids=[
        "nested lists",
        "nested objects",
        "a late end",
        "a late begin",
        "a drain out of time",
        "half a rollout",
        "a late order",
        "a late take-over",
    ],
)
def test_what_was_a_bug(command: list[str], name: str, content: bytes, pulsar: FakePulsar, whole: Path, tmp_path: Path):
    """Found by hand."""
    shutil.copytree(whole, tmp_path / "state")
    put_value(tmp_path / "state", name, content)
    run(command, tmp_path / "state", pulsar)
