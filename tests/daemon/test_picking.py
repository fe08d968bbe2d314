"""Placements that are answered from the last round: what is known, and what is asked for again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from lbd.daemon.api_backend import LATEST_SECONDS, POLICIES_SECONDS, Picker
from lbd.errors import UsageError
from tests.api.conftest import serving
from tests.daemon.test_service import eventually
from tests.fake_pulsar import HOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar


@pytest.fixture
def api(pulsar: FakePulsar, tmp_path: Path) -> Iterator[Api]:
    """An lbd that has ended one turn."""
    with serving(pulsar, tmp_path) as found:
        found.turn()
        yield found


class TestPickAtOnce:
    def test_only_what_is_known(self, api: Api):
        """A turn's round once somebody has asked, a namespace once a broker was asked about it."""
        picker, last = Picker(api.engine.settings, api.serving.now), api.serving.board.last
        assert last is not None
        assert picker.pick_at_once(HOT[0], "rendezvous") is None
        asked = picker.pick(last, HOT[0], "rendezvous")
        known = picker.pick_at_once(HOT[0], "rendezvous")
        assert known is not None
        assert (known.answer, known.candidates) == (asked.answer, asked.candidates)
        assert picker.pick_at_once("no/such/0x00000000_0xffffffff", "rendezvous") is None
        with pytest.raises(UsageError, match="not known"):
            picker.pick_at_once(HOT[0], "best")
        picker.close()

    def test_a_question_about_another_strategy_changes_no_answer(self, api: Api, pulsar: FakePulsar):
        """Each has its own memory: an answer of one is no "same as a moment ago" of another."""
        bundles = [f"t/new/0x{digit:x}0000000_0x{digit + 1:x}0000000" for digit in range(15)]
        pulsar.own(None, dict.fromkeys([*bundles, "t/new/0xf0000000_0xffffffff"], 0.0))
        last = api.serving.board.last
        assert last is not None
        answers = []
        for others in ((), ("least-long-term-message-rate", "avg-shedder")):
            picker = Picker(api.engine.settings, api.serving.now)
            for other in others:
                for bundle in bundles:
                    picker.pick(last, bundle, other)
            answers.append([picker.pick(last, bundle, "rendezvous").answer for bundle in bundles])
            picker.close()
        assert answers[0] == answers[1]

    def test_what_cannot_be_laid_out_is_told(self, api: Api, pulsar: FakePulsar):
        """Answers go on by the round before, and say how old it is; a question after the end is none."""
        picker, last = Picker(api.engine.settings, api.serving.now), api.serving.board.last
        assert last is not None
        before = picker.pick(last, HOT[0], "rendezvous")
        api.turn()
        newer = api.serving.board.last
        assert newer is not None
        api.engine.wait()  # a move under way would be judged long after its brokers were gone
        for broker in pulsar.ids:
            pulsar.kill(broker)
        with capture_logs() as logs:
            picker.published(newer)
            eventually(lambda: bool(logs))
        assert [(one["log_level"], "connection refused" in one["why"].lower()) for one in logs] == [("warning", True)]
        again = picker.pick_at_once(HOT[0], "rendezvous")
        assert again is not None
        assert again.taken_at == before.taken_at
        picker.close()
        picker.published(newer)

    def test_policies_are_asked_for_again_beside_the_answers(self, api: Api, pulsar: FakePulsar):
        """After a minute once, while the old ones still answer; after two minutes they do not."""
        now = [api.serving.now()]
        picker, last = Picker(api.engine.settings, lambda: now[0]), api.serving.board.last
        assert last is not None
        picker.pick(last, HOT[0], "rendezvous")
        asked = len(pulsar.requests)
        now[0] += POLICIES_SECONDS - 1
        assert picker.pick_at_once(HOT[0], "rendezvous") is not None
        assert len(pulsar.requests) == asked
        now[0] += 2
        assert picker.pick_at_once(HOT[0], "rendezvous") is not None
        eventually(lambda: len(pulsar.requests) > asked)
        now[0] += LATEST_SECONDS + 1
        assert picker.pick_at_once(HOT[0], "rendezvous") is None
        picker.close()
