"""Samples that outlive a restart of lbd."""

from __future__ import annotations

import math
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lbd.errors import UsageError
from lbd.load.samples import GO_STALE_SECONDS, BrokerSamples
from lbd.store.arrays import packed_arrays
from lbd.store.database import STORE_NAME, value
from lbd.store.state import SAMPLES, load_samples, save_samples
from tests.builders import put_value

if TYPE_CHECKING:
    from pathlib import Path


NOW = 1_800_000_000.0


def samples(count: int = 3, started_at: float = NOW - 9000.0, limit: float = 100.0) -> BrokerSamples:
    """The last so many minutes of a broker."""
    at = NOW - 60.0 * np.arange(count)[::-1]
    used = np.full((count, 5), np.nan)
    used[:, 0] = np.arange(count)
    since = np.arange(count, dtype=np.int32)
    return BrokerSamples(at, np.ones((count, 4)), used, since, (limit, 1.0, 1.0, -1.0, -1.0), started_at)


def same(first: BrokerSamples, second: BrokerSamples) -> bool:
    columns = ("at", "carried", "used", "since_change", "hardware", "started_at")
    return all(np.array_equal(getattr(first, one), getattr(second, one), equal_nan=True) for one in columns)


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"a:80": samples()},
        {"a:80": samples(), "b:80": samples(5, math.nan, 400.0), "ü.example:80": samples(1)},
        {"none:80": samples(0), "b:80": samples(2)},
    ],
    ids=["nobody", "one broker", "three, one of 2.11", "one without a sample"],
)
def test_what_is_kept_comes_back(kept: dict[str, BrokerSamples], tmp_path: Path):
    """All but brokers without a sample, of which there is nothing to keep."""
    save_samples(tmp_path, kept)
    found = load_samples(tmp_path, NOW)

    assert list(found) == [broker for broker, own in kept.items() if own.at.size]
    assert all(same(found[broker], kept[broker]) for broker in found)


@pytest.mark.parametrize(
    ("now", "count"),
    [(NOW, 3), (NOW - 90.0, 1), (NOW - 9e6, 0), (NOW + GO_STALE_SECONDS - 90, 2), (NOW + GO_STALE_SECONDS, 0)],
    ids=["now", "a clock that went back", "by months", "some are a day old", "all are"],
)
def test_samples_of_another_time_are_forgotten(now: float, count: int, tmp_path: Path):
    """Older than a day, and those that are still to come."""
    save_samples(tmp_path, {"a:80": samples()})
    found = load_samples(tmp_path, now)

    assert [own.at.size for own in found.values()] == ([count] if count else [])


def test_junk_is_as_good_as_nothing(tmp_path: Path):
    """None, a torn value, and columns that do not fit together."""
    save_samples(tmp_path, {"a:80": samples(), "b:80": samples()})
    whole = value(tmp_path / STORE_NAME, SAMPLES) or b""
    with np.load(BytesIO(whole)) as file:
        columns = dict(file)
    assert load_samples(tmp_path / "none", NOW) == {}
    for junk in (b"", b"junk", whole[: len(whole) // 2], whole[:-1]):
        put_value(tmp_path, SAMPLES, junk)
        assert load_samples(tmp_path, NOW) == {}
    words = np.array(["x"] * columns["at"].size)
    changes: list[dict[str, Any]] = [
        *({"at": columns["at"][1:]}, {"sizes": np.array([7, -1])}, {"used": columns["at"]}, {"at": words}),
        *({"sizes": np.array([3.0, 3.0])}, {"sizes": np.array(["3", "3"])}, {"started_at": words[:2]}),
        {"used": np.repeat(words, 5).reshape(-1, 5)},
    ]
    for change in changes:
        put_value(tmp_path, SAMPLES, bytes(packed_arrays(**{**columns, **change})))
        assert load_samples(tmp_path, NOW) == {}
    without = {name: column for name, column in columns.items() if name != "hardware"}
    put_value(tmp_path, SAMPLES, bytes(packed_arrays(**without)))
    assert load_samples(tmp_path, NOW) == {}


def test_a_byte_that_the_disk_lost_is_no_reason_to_stop(tmp_path: Path):
    """In the header of a long array, which is read before its checksum: a bracket that nothing closes."""
    save_samples(tmp_path, {"a:80": samples(1000)})
    whole = value(tmp_path / STORE_NAME, SAMPLES) or b""
    at = whole.rindex(b"(1000, 5), }")
    put_value(tmp_path, SAMPLES, whole[:at] + b"(1000, 5), (" + whole[at + 12 :])

    assert load_samples(tmp_path, NOW) == {}


def test_a_directory_that_is_not_there_is_told(tmp_path: Path):
    """By its path."""
    with pytest.raises(UsageError, match=r"lbd\.db: cannot be opened"):
        save_samples(tmp_path / "gone", {"a:80": samples()})
