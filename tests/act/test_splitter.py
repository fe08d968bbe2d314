"""One split against a small Pulsar: what is sent, and how it is proven."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from lbd.act.fence import Fence
from lbd.act.ownership import ActClock
from lbd.act.split import Splitter
from lbd.errors import ObserveError, RefusedError, UsageError
from lbd.pulsar.admin import Admin
from lbd.pulsar.settings import PulsarSettings
from lbd.reason import Reason
from lbd.simulate.answers import Reply, refused
from lbd.split.plan import SPECIFIED, Algorithm, Cut, CutOutcome, SplitResult
from tests import fake_splits
from tests.fake_pulsar import SILENCE
from tests.fake_splits import LOW, NAMESPACE, UNOWNED
from tests.silence import LIMIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fake_splits import SplittingPulsar

MIDDLE = 0x40000000
BUSY = "failed to acquire ownership of split bundle for namespace [shop/orders], timed out"


@pytest.fixture
def pulsar() -> Iterator[SplittingPulsar]:
    """Two bundles with topics, and one that nobody owns."""
    with fake_splits.busy() as cluster:
        yield cluster


def splitter(pulsar: SplittingPulsar) -> Splitter:
    """A splitter of this cluster."""
    settings = PulsarSettings(admin_urls=pulsar.urls, read_timeout_seconds=LIMIT_SECONDS)
    admin = Admin(settings)
    admin.active_brokers()
    passed = [0.0]

    def sleep(seconds: float) -> None:
        passed[0] += seconds

    return Splitter(admin, ActClock(lambda: time.monotonic() + passed[0], sleep))


def cut(pulsar: SplittingPulsar, algorithm: Algorithm = "range_equally_divide", *positions: int) -> Cut:
    """The lower bundle, in the middle unless said."""
    return Cut(LOW, pulsar.ids[0], algorithm, positions or (MIDDLE,))


class TestSend:
    def test_split(self, pulsar: SplittingPulsar):
        """The boundaries prove it; the parts are at their owner."""
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, found.boundaries, found.owner, found.detail) == (
            SplitResult.SPLIT,
            (MIDDLE,),
            pulsar.ids[0],
            "",
        )
        assert found.parts == (f"{NAMESPACE}/0x00000000_0x40000000", f"{NAMESPACE}/0x40000000_0x80000000")
        assert pulsar.owners[found.parts[0]] == pulsar.ids[0]

    @pytest.mark.parametrize(
        ("algorithm", "asked", "body"),
        [
            ("range_equally_divide", "range_equally_divide", b""),
            ("topic_count_equally_divide", SPECIFIED, b"[268435456,1342177280]"),
            ("flow_or_qps_equally_divide", SPECIFIED, b"[268435456,1342177280]"),
            (SPECIFIED, SPECIFIED, b"[268435456,1342177280]"),
        ],
    )
    def test_what_is_asked_for(self, algorithm: Algorithm, asked: str, body: bytes, pulsar: SplittingPulsar):
        """Positions are sent as they were planned; the halves are never unloaded by the broker; the owner is asked."""
        splitter(pulsar).send(cut(pulsar, algorithm, 0x10000000, 0x50000000))
        request = pulsar.asked("/split", "PUT")[0]
        assert request.query == {"unload": "false", "splitAlgorithmName": asked}
        assert (request.broker, request.body) == (pulsar.ids[0], body)

    def test_a_redirect_takes_the_positions_along(self, pulsar: SplittingPulsar):
        """The owner may have changed since the check; then the new one splits."""
        pulsar.owners[LOW] = pulsar.ids[2]
        found = splitter(pulsar).send(cut(pulsar, SPECIFIED, MIDDLE))
        assert (found.result, found.owner) == (SplitResult.SPLIT, None)
        assert [(one.broker, one.body) for one in pulsar.asked("/split", "PUT")] == [
            (pulsar.ids[0], b"[1073741824]"),
            (pulsar.ids[2], b"[1073741824]"),
        ]

    def test_what_came_on_its_way_stops_it(self, pulsar: SplittingPulsar):
        """Another lbd that leads, or a pause: the broker that it was redirected to is not asked."""
        pulsar.owners[LOW] = pulsar.ids[2]
        came = iter([None, (Reason.PAUSED, "by ann")])
        found = splitter(pulsar).send(cut(pulsar), Fence(held=lambda: next(came)))
        assert (found.result, "by ann" in found.detail) == (SplitResult.NOT_SPLIT, True)
        assert [one.broker for one in pulsar.asked("/split", "PUT")] == [pulsar.ids[0]]

    def test_204_is_no_proof(self, pulsar: SplittingPulsar):
        """A broker that finds nothing to cut answers so, too."""
        pulsar.rated = {}
        found = splitter(pulsar).send(cut(pulsar, SPECIFIED, MIDDLE))
        assert (found.result, found.detail) == (SplitResult.NOT_SPLIT, "the broker answered 204 and did nothing")
        assert found.parts == (LOW,)

    def test_cut_elsewhere(self, pulsar: SplittingPulsar):
        """Its own split came before; what is there is told."""
        pulsar.cuts[LOW] = [0x12345678]
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, found.boundaries) == (SplitResult.ELSEWHERE, (0x12345678,))

    def test_further_cuts_are_a_later_splits(self, pulsar: SplittingPulsar):
        """What was wanted is there."""
        pulsar.cuts[LOW] = [0x10000000, MIDDLE]
        assert splitter(pulsar).send(cut(pulsar)).result is SplitResult.SPLIT

    @pytest.mark.parametrize(
        ("reply", "result", "words"),
        [
            (refused(412, "Unsupported algorithm"), SplitResult.NOT_SPLIT, "HTTP 412 (Unsupported algorithm)"),
            (refused(500, "Message: class cast"), SplitResult.NOT_SPLIT, "HTTP 500"),
            (SILENCE, SplitResult.UNKNOWN, "closed connection without response"),
            (Reply(silent=True), SplitResult.UNKNOWN, "no answer in time"),
        ],
        ids=["412", "500", "no answer", "silent"],
    )
    @pytest.mark.usefixtures("silence_ends_at_once")
    def test_what_did_not_happen(self, reply: Reply, result: SplitResult, words: str, pulsar: SplittingPulsar):
        """A refusal is one; without an answer it may happen yet."""
        pulsar.fault("/split", reply)
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, words in found.detail) == (result, True), found.detail

    @pytest.mark.parametrize(
        ("reply", "times", "result", "requests"),
        [
            (refused(500, BUSY), 1, SplitResult.SPLIT, 2),
            (refused(500, BUSY), 9, SplitResult.NOT_SPLIT, 2),
            (refused(500, "Message: class cast"), 1, SplitResult.NOT_SPLIT, 1),
            (refused(412, "Unsupported algorithm"), 1, SplitResult.NOT_SPLIT, 1),
            (SILENCE, 1, SplitResult.UNKNOWN, 1),
        ],
        ids=["busy once", "busy for long", "another 500", "412", "no answer"],
    )
    def test_a_split_is_sent_again_only_to_a_busy_broker(
        self, reply: Reply, times: int, result: SplitResult, requests: int, pulsar: SplittingPulsar
    ):
        """Once more, after boundaries and owner were looked at again; the outcome has the first answer."""
        pulsar.fault("/split", reply, method="PUT", times=times)
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, len(pulsar.asked("/split", "PUT"))) == (result, requests), found.detail
        assert ("the first try: HTTP 500" in found.detail) == (requests == 2)

    def test_a_bundle_that_moved_meanwhile_is_not_split_again(self, pulsar: SplittingPulsar):
        """Its new owner was not in what was planned."""

        def moved() -> None:
            pulsar.owners[LOW] = pulsar.ids[2]

        pulsar.fault("/split", refused(500, BUSY), method="PUT", times=1, then=moved)
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, len(pulsar.asked("/split", "PUT"))) == (SplitResult.NOT_SPLIT, 1)
        assert f"not sent again: {LOW}: {pulsar.ids[2]} owns it, not {pulsar.ids[0]}" in found.detail

    @pytest.mark.parametrize("reply", [refused(500, "boom"), SILENCE], ids=["500", "no answer"])
    def test_what_happened_all_the_same(self, reply: Reply, pulsar: SplittingPulsar):
        """The boundaries decide, not the answer."""
        pulsar.fault("/split", reply, after_acting=True)
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, found.detail != "") == (SplitResult.SPLIT, True)

    def test_boundaries_that_cannot_be_read(self, pulsar: SplittingPulsar):
        """It is not known, and that is told."""
        pulsar.fault("/bundles", refused(500, "boom"))
        assert splitter(pulsar).send(cut(pulsar)).result is SplitResult.UNKNOWN

    def test_a_part_that_is_elsewhere_is_told(self, pulsar: SplittingPulsar):
        """Clients may have had one moved meanwhile."""
        part = f"{NAMESPACE}/0x00000000_0x40000000"

        def taken() -> None:
            pulsar.owners[part] = pulsar.ids[2]

        pulsar.fault("/bundles", Reply(200, b'{"boundaries":["0x00000000","0x40000000","0x80000000","0xffffffff"]}'))
        pulsar.fault("/split", Reply(204), after_acting=True, then=taken)
        found = splitter(pulsar).send(cut(pulsar))
        assert (found.result, found.owner) == (SplitResult.SPLIT, None)
        assert found.detail == f"{pulsar.ids[0]} does not own {part}"


class TestCheck:
    @pytest.mark.parametrize(
        ("bundle", "words"),
        [
            (
                UNOWNED,
                "nobody owns it; for a split the leader would place it, unchecked: lbd place --apply does it first",
            ),
            (
                f"{NAMESPACE}/0x00000000_0x90000000",
                f"is no bundle of {NAMESPACE}, which has 2; there are {LOW}, {NAMESPACE}/0x8",
            ),
            ("shop/none/0x00000000_0xffffffff", "shop/none: the cluster has no such namespace"),
        ],
    )
    def test_refused(self, bundle: str, words: str, pulsar: SplittingPulsar):
        """Nothing is sent."""
        with pytest.raises((RefusedError, UsageError), match=words):
            splitter(pulsar).check(Cut(bundle, pulsar.ids[0], "range_equally_divide", (1,)))
        assert not pulsar.asked("/split", "PUT")

    def test_another_owner(self, pulsar: SplittingPulsar):
        """It was moved since the plan."""
        pulsar.owners[LOW] = pulsar.ids[2]
        with pytest.raises(RefusedError, match=f"{pulsar.ids[2]} owns it, not {pulsar.ids[0]}; ask again"):
            splitter(pulsar).check(cut(pulsar))

    def test_boundaries_that_are_none(self, pulsar: SplittingPulsar):
        """Exit 3: the brokers' answer cannot be used."""
        pulsar.fault("/bundles", Reply(200, b'{"boundaries":["0x80000000","junk"]}'))
        with pytest.raises(ObserveError, match=f"{NAMESPACE}: .* are no boundaries"):
            splitter(pulsar).check(cut(pulsar))


class TestFoundOpen:
    def finished(self, pulsar: SplittingPulsar, age_seconds: float) -> CutOutcome | None:
        """By a process that has asked no broker before, and knows one of them by its settings."""
        admin = Admin(PulsarSettings(admin_urls=pulsar.urls[-1:], read_timeout_seconds=LIMIT_SECONDS))
        return Splitter(admin, ActClock(time.monotonic, time.sleep)).finish(cut(pulsar), age_seconds)

    def test_split(self, pulsar: SplittingPulsar):
        """The boundaries are there."""
        pulsar.split(LOW, [MIDDLE])
        found = self.finished(pulsar, 0.0)
        assert found is not None
        assert (found.result, found.owner, found.detail) == (
            SplitResult.SPLIT,
            pulsar.ids[0],
            "found open after a restart",
        )

    @pytest.mark.parametrize(
        ("age_seconds", "result"), [(0.5 * LIMIT_SECONDS, None), (1.5 * LIMIT_SECONDS, SplitResult.NOT_SPLIT)]
    )
    def test_whole(self, age_seconds: float, result: SplitResult | None, pulsar: SplittingPulsar):
        """A broker may still be at it for as long as an answer is waited for."""
        found = self.finished(pulsar, age_seconds)
        assert (found.result if found is not None else None) is result

    @pytest.mark.parametrize(
        ("age_seconds", "result"), [(1.5 * LIMIT_SECONDS, None), (2.5 * LIMIT_SECONDS, SplitResult.UNKNOWN)]
    )
    def test_not_to_be_told(self, age_seconds: float, result: SplitResult | None, pulsar: SplittingPulsar):
        """In the end it is unknown."""
        pulsar.fault("/bundles", refused(500, "boom"))
        found = self.finished(pulsar, age_seconds)
        assert (found.result if found is not None else None) is result
