"""Names, hashes and paths: what must agree with Pulsar to the bit."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lbd.bundles import topic_namespace
from lbd.errors import UsageError
from lbd.pulsar import paths

WHOLE = "t/n/0x00000000_0xffffffff"
HALF = 1 << 31


LAST = 0xFFFFFFFF
VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "topic-hash.jsonl.gz"


def hash_of(bundle: str) -> int:
    """Where Pulsar hashes the topic that is made up for this bundle: CRC32 of its full name."""
    return zlib.crc32(next(paths.made_up_topics(bundle)).encode())


@pytest.mark.security("a bundle of any width, down to one hash: a topic name in it is computed, not searched for")
@given(st.integers(0, LAST - 1), st.integers(1, LAST), st.text("abc-_=.%ö", min_size=1))
@example(0, 1, "n")
@example(0, LAST, "n")
@example(LAST - 1, 1, "n")
@example(LAST - 2, 1, "n")
def test_a_made_up_topic_falls_into_its_bundle(lower: int, width: int, namespace: str) -> None:
    """Ranges are [lower, upper), and the last one includes its end."""
    upper = min(lower + width, LAST)
    assert lower <= hash_of(f"t/{namespace}/0x{lower:08x}_0x{upper:08x}") < upper + (upper == LAST)


@given(st.integers(0, LAST - 2))
def test_a_bundle_one_hash_wide_has_a_topic(only: int) -> None:
    """Each of the 2**32 hashes is reached."""
    assert hash_of(f"t/n/0x{only:08x}_0x{only + 1:08x}") == only


def test_pulsars_own_hashes_are_reached() -> None:
    """Of 200 topics, as Pulsar 5.0.1 hashed them: a bundle of this hash alone, in the topic's namespace."""
    with gzip.open(VECTORS) as file:
        cases = [json.loads(line) for line in file]
    for case in cases:
        namespace, hashed = topic_namespace(case["input"]["topic"]), case["expected"]["hash"]
        assert hash_of(f"{namespace}/0x{hashed:08x}_0x{hashed + 1:08x}") == hashed
    assert len(cases) == 200


@pytest.mark.parametrize("number", range(16))
def test_a_made_up_topic_falls_into_each_sixteenth(number: int) -> None:
    """The bundles of a namespace split in sixteen, the last of which ends at 0xffffffff."""
    lower, upper = number << 28, min((number + 1) << 28, LAST)
    assert hash_of(f"t/n/0x{lower:08x}_0x{upper:08x}") >> 28 == number


@pytest.mark.security("a made-up topic is never a non-persistent one, which would mark its bundle for good")
def test_made_up_topics_have_plain_names() -> None:
    """Octal digits, always as many: nothing that a path would quote, the same names each time, and none twice."""
    topics = list(paths.made_up_topics(WHOLE))
    assert [topic for topic in topics if not re.fullmatch(r"persistent://t/n/lbd-nudge-[0-7]{12}", topic)] == []
    assert topics == list(paths.made_up_topics(WHOLE))
    assert len(set(topics)) == paths.NAMES_TRIED


@pytest.mark.parametrize(
    ("topic", "hashed"),
    [
        ("persistent://public/default/t", 0x823CD929),
        ("persistent://public/default/t-partition-0", 0x3DA51034),
        ("non-persistent://public/default/t", 0xC9179F49),
    ],
)
def test_crc32_is_pulsars(topic: str, hashed: int) -> None:
    """The check values of Pulsar's own hash function hold for zlib's, with a bundle one hash wide around each."""
    assert zlib.crc32(topic.encode()) == hashed
    assert paths.bounds(f"public/default/0x{hashed:08x}_0x{hashed + 1:08x}") == (hashed, hashed + 1)


@pytest.mark.parametrize(
    ("bundle", "expected"),
    [
        ("t/n/0x00000000_0x80000000", (0, HALF)),
        ("t/n/0x80000000_0xffffffff", (HALF, 1 << 32)),
        (WHOLE, (0, 1 << 32)),
        ("t/n/0xfffffffe_0xffffffff", (0xFFFFFFFE, 1 << 32)),
    ],
)
def test_bounds(bundle: str, expected: tuple[int, int]) -> None:
    """The upper end is outside, but for the last range of the ring."""
    assert paths.bounds(bundle) == expected


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("t/n", "is no bundle"),
        ("", "is no bundle"),
        ("t/0x00000000_0x80000000", "is no bundle"),
        ("a/b/c/0x00000000_0x80000000", "has a cluster in it"),
        ("t/n/0x0_0x80000000", "is no bundle"),
        ("t/n/0x00000000-0x80000000", "is no bundle"),
        ("t/n/0x00000000_0x8000000g", "is no bundle"),
        ("t/n/0x00000000_0x80000000 ", "is no bundle"),
        ("t/n/0x80000000_0x00000000", "the lower end"),
        ("t/n/0x80000000_0x80000000", "the lower end"),
    ],
)
def test_what_is_no_bundle_is_named(name: str, complaint: str) -> None:
    """A wrong name is told with what was wanted instead of a wrong hash range."""
    with pytest.raises(UsageError, match=complaint) as caught:
        paths.bounds(name)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4.0.8", (4, 0, 8)),
        ("5.0.0-M1", (5, 0, 0)),
        ("2.11.0", (2, 11, 0)),
        ("3.3", (3, 3, 0)),
        ("4.0.8-SNAPSHOT", (4, 0, 8)),
        ("10.20.30.40", (10, 20, 30)),
        ("", (0, 0, 0)),
        ("nightly", (0, 0, 0)),
    ],
)
def test_version_of(text: str, expected: tuple[int, int, int]) -> None:
    """Versions as brokers report them; zeros where the text says nothing."""
    assert paths.parse_version(text) == expected


@pytest.mark.parametrize(
    ("version", "expected"), [("2.11.0", False), ("3.0.0", True), ("5.0.0-M1", True), ("", False), ("nightly", False)]
)
def test_destinations_are_known_since_3_0(version: str, expected: bool) -> None:
    """Before 3.0 a destination is ignored and answered 204 all the same; unknown counts as before."""
    assert paths.knows_destinations(version) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *[(version, True) for version in ("3.0.0", "3.3.6", "4.0.9", "4.1.3", "4.2.0")],
        *[(version, False) for version in ("2.11.0", "4.0.10", "4.0.12", "4.2.1", "4.2.4", "5.0.0-M1", "nightly")],
    ],
)
def test_destinations_that_are_kept_by_range(version: str, expected: bool) -> None:
    """From 3.0 on, mended in 4.0.10 and 4.2.1 (#25518)."""
    assert paths.keys_destinations_by_range(version) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *[(version, True) for version in ("3.0.6", "3.0.7", "3.2.4", "3.3.1", "3.3.2")],
        *[(version, False) for version in ("2.11.0", "3.0.5", "3.0.8", "3.3.6", "4.0.0", "5.0.1", "")],
    ],
)
def test_releases_that_lose_avg_shedder(version: str, expected: bool) -> None:
    """Their start-up check compares with a key of another name (#23156)."""
    assert paths.loses_avg_shedder(version) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *[(version, False) for version in ("2.11.0", "4.0.11", "4.1.3", "4.2.2", "", "nightly")],
        *[(version, True) for version in ("4.0.12", "4.0.14", "4.2.3", "4.2.5", "5.0.0", "5.1.0")],
    ],
)
def test_releases_that_stop_without_a_load_manager(version: str, expected: bool) -> None:
    """From 4.0.12 and 4.2.3 on (#26031), as their release notes say; no release of 4.1 that is known here."""
    assert paths.fails_fast(version) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        *[(version, None) for version in ("2.10.6", "3.2.4", "4.0.8", "4.0.14", "4.2.5", "5.0.0-M1", "5.0.1", "")],
        *[("4.0.15", "4.0.14"), ("4.2.6-SNAPSHOT", "4.2.5"), ("5.0.2", "5.0.1")],
        *[(version, "5.0.1") for version in ("5.1.0-M1", "6.0.0", "17.4")],
    ],
)
def test_versions_that_are_newer_than_what_is_known(version: str, expected: str | None) -> None:
    """A newer patch of a known line, and a newer line; an older line in between is none of them."""
    assert paths.newest_known(version) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.brokers("c"), "/admin/v2/brokers/c"),
        (paths.brokers("east/1"), "/admin/v2/brokers/east%2F1"),
        (paths.owned_namespaces("c", "b1:8080"), "/admin/v2/brokers/c/b1:8080/ownedNamespaces"),
        (paths.unload(WHOLE), "/admin/v2/namespaces/t/n/0x00000000_0xffffffff/unload"),
        (
            paths.topic_hash_positions("a b/n/0x00000000_0xffffffff"),
            "/admin/v2/namespaces/a%20b/n/0x00000000_0xffffffff/topicHashPositions",
        ),
        (paths.schema("persistent://t/n/a b"), "/admin/v2/schemas/t/n/a%20b/schema"),
        (paths.bundle_of("persistent://t/n/a b"), "/lookup/v2/topic/persistent/t/n/a%20b/bundle"),
        (paths.scalable_topic("topic://t/n/a/b ü"), "/admin/v2/scalable/t/n/a%2Fb%20%C3%BC"),
        (paths.isolation_policies("c"), "/admin/v2/clusters/c/namespaceIsolationPolicies"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    """Each path as the admin API has it, with names quoted."""
    assert path == expected
