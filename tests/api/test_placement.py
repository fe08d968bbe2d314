"""Where a bundle should go, as other programs ask it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fake_pulsar import COLD, HOT, scalable_topic

if TYPE_CHECKING:
    from tests.api.conftest import Api
    from tests.fake_pulsar import FakePulsar


class TestPlacement:
    def test_a_bundle_gets_one_of_the_brokers_with_the_age_of_the_data(self, api: Api, pulsar: FakePulsar):
        """Owner, answer, reason and all candidates; the same answer when it is asked again."""
        found = api.get(f"/v1/placement/{HOT[0]}").json()
        assert (found["bundle"], found["owner"]) == (HOT[0], pulsar.ids[0])
        assert found["answer"] in pulsar.ids
        assert found["candidates"] == sorted(pulsar.ids)
        assert found["age_seconds"] >= 0
        assert api.get(f"/v1/placement/{HOT[0]}").json()["answer"] == found["answer"]

    def test_a_topic_stands_for_its_bundle(self, shared_api: Api):
        """Of those that brokers report."""
        found = shared_api.get("/v1/placement", params={"topic": f"persistent://{HOT[0].rpartition('/')[0]}/orders"})
        assert found.status_code in {200, 400}, found.text
        if found.status_code == 200:
            assert found.json()["bundle"].startswith(HOT[0].rpartition("/")[0])

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("/v1/placement/t/n/0x1_0x2", "wanted"),
            ("/v1/placement/t/n/0x00000000_0x00000001", "is no bundle of"),
            ("/v1/placement/no/such/0x00000000_0xffffffff", "no such namespace"),
            ("/v1/placement?topic=t/n", "is no topic"),
            ("/v1/placement?topic=persistent://t", "is no topic"),
            ("/v1/placement?topic=topic://t/n/orders", "is a scalable topic; wanted a segment, which /v1/bundles"),
            ("/v1/bundles?topic=topic://t/n/orders", "has no such scalable topic"),
            ("/v1/bundles?topic=t/n", "'t/n' is no topic; wanted"),
        ],
    )
    def test_what_is_none_is_told(self, shared_api: Api, path: str, words: str):
        """400, with what would be right."""
        found = shared_api.get(path)
        assert (found.status_code, words in found.json()["detail"]) == (400, True), found.text

    def test_the_bundles_of_a_topic(self, api: Api, pulsar: FakePulsar):
        """One; of a scalable topic one for each active segment."""
        pulsar.fault("/scalable/t/n/orders", scalable_topic({1: (0, 0x7FFF), 2: (0x8000, 0xFFFF)}))
        first, second = "segment://t/n/orders/0000-7fff-1", "segment://t/n/orders/8000-ffff-2"
        assert api.get("/v1/bundles", params={"topic": "topic://t/n/orders"}).json()["topics"] == [
            {"topic": first, "bundle": HOT[0]},
            {"topic": second, "bundle": COLD},
        ]
        assert api.get("/v1/bundles", params={"topic": second}).json() == {
            "topics": [{"topic": second, "bundle": COLD}]
        }

    def test_an_unknown_strategy_is_told(self, shared_api: Api):
        """With those that there are."""
        found = shared_api.get(f"/v1/placement/{HOT[0]}", params={"strategy": "best"})
        assert (found.status_code, "rendezvous" in found.text) == (400, True)

    def test_a_question_about_what_is_known_asks_no_broker(self, api: Api, pulsar: FakePulsar):
        """The second question about a namespace is answered from memory."""
        api.get(f"/v1/placement/{HOT[0]}")
        asked = len(pulsar.requests)
        assert api.get(f"/v1/placement/{HOT[1]}").status_code == 200
        assert len(pulsar.requests) == asked
