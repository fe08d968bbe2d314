"""Whether the clients of a moved bundle are back: by what reports tell, and then by topics that were asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from lbd.load.scoring import Weights
from lbd.model import BundleClients, Outcome, Result, Unload
from lbd.observe.parse import TOP_BUNDLES_REPORT, BundleStats
from lbd.permit.evidence import judge as judge_evidence
from lbd.permit.served import (
    BundleTopics,
    Landing,
    Look,
    ReportedClients,
    ServiceResult,
    TopicClients,
    Unserved,
    concluded,
    judge,
    reconnecting,
    recovered,
    sampled,
    served_text,
    unserved_text,
    with_clients,
)
from tests.builders import TAKEN_AT, bundle, report, snapshot, stats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lbd.observe.parse import LoadReport

SOURCE, DESTINATION = "a:8080", "b:8080"
BUNDLE = bundle(7)
LANDED_AT = TAKEN_AT - 200.0
BEFORE = BundleClients(4, 4, 6)
TOPIC = "persistent://t/n/orders"


def landing(before: BundleClients | None = BEFORE, *, ago: float = 200.0, since: str = "") -> Landing:
    """A move that landed so many seconds ago."""
    move = Unload(BUNDLE, SOURCE, DESTINATION, 10.0, 1000.0, clients_before=before)
    landed_at = TAKEN_AT - ago
    return Landing(Outcome(move, Result.LANDED, DESTINATION), landed_at - 1.0, landed_at, since)


def carries(topics: int, producers: int, consumers: int) -> dict[str, BundleStats]:
    """A report of the bundle."""
    return {BUNDLE: BundleStats(1, 1, 100, 100, topics, producers, consumers)}


def found(move: Landing, reports: Mapping[str, LoadReport], **changes: Any) -> ServiceResult | Look | None:
    """What is said of it by these reports."""
    seen = snapshot(reports)
    samples = judge_evidence({}, seen, Weights())
    return judge(move, ReportedClients(seen, (BUNDLE,)), samples, changes.get("interval", 60.0))


def reports(
    destination: Mapping[str, BundleStats] | None = None, source: Mapping[str, BundleStats] | None = None
) -> dict[str, LoadReport]:
    """Of both brokers, which sampled just now."""
    return {SOURCE: report(20.0, source), DESTINATION: report(30.0, destination)}


BACK = Look(back=True, after=BEFORE)
TABLE: dict[str, tuple[Landing, dict[str, LoadReport], ServiceResult | Look | None]] = {
    # the landing, the reports, and what is said
    "all are back, long before its time": (landing(ago=5), reports(carries(4, 4, 6)), BACK),
    "others than before": (landing(ago=5), reports(carries(1, 10, 0)), Look(True, BundleClients(1, 10, 0))),
    "some are back, its time is not over": (landing(ago=149), reports(carries(4, 1, 0)), None),
    "some are back, its time is over": (
        landing(ago=150),
        reports(carries(4, 1, 0)),
        Look(True, BundleClients(4, 1, 0)),
    ),
    "nobody, its time is not over": (landing(ago=149), reports(), None),
    "nobody, its time is over": (landing(ago=150), reports(), Look(back=False)),
    "topics, no client": (landing(), reports(carries(4, 0, 0)), Look(False, BundleClients(4, 0, 0))),
    "clients without a topic are a report read in between": (
        landing(),
        reports(carries(0, 4, 6)),
        Look(False, BundleClients(0, 4, 6)),
    ),
    "still at the source": (
        landing(),
        reports(None, carries(4, 4, 0)),
        Look(back=False, behind=BundleClients(4, 4, 0)),
    ),
    "at the source, without clients": (landing(), reports(None, carries(4, 0, 0)), Look(back=False)),
    "no report of the destination": (landing(), {SOURCE: report(20.0)}, Look(back=False)),
    "a report that names its largest bundles only": (
        landing(),
        {DESTINATION: report(30.0, {}, bundles=[BUNDLE], load_report_type=TOP_BUNDLES_REPORT)},
        Look(back=False),
    ),
    "no clients before": (
        landing(BundleClients(4, 0, 0)),
        reports(),
        ServiceResult("unknown", served_detail="it had no clients before the move"),
    ),
    "not told before": (
        landing(None),
        reports(),
        ServiceResult("unknown", served_detail=f"the report of {SOURCE} told nothing of it before the move"),
    ),
    "moved again": (
        landing(since="it was moved again"),
        reports(),
        ServiceResult("unknown", served_detail="it was moved again"),
    ),
    "an hour later": (
        landing(ago=3601),
        reports(),
        ServiceResult("unknown", served_detail="lbd did not look at it within an hour"),
    ),
    "an hour later, and back": (landing(ago=3601), reports(carries(4, 4, 6)), BACK),
}


@pytest.mark.parametrize("case", TABLE)
def test_a_round_says_of_a_landing(case: str):
    """Reports alone never say that clients are not back."""
    move, told, expected = TABLE[case]
    assert found(move, told) == expected


def test_its_time_is_that_of_two_reports():
    """Brokers that sample every other minute have twice as long."""
    assert found(landing(ago=299), reports(), interval=120.0) is None
    assert found(landing(ago=300), reports(), interval=120.0) == Look(back=False)


def test_a_source_whose_report_is_older_than_the_landing_has_no_clients():
    """Statistics of before stay in a report until the next ones."""
    seen = snapshot(reports(None, carries(4, 4, 6)))
    old = judge_evidence({}, replace(seen, taken_at=LANDED_AT - 60), Weights())
    evidence = judge_evidence(old.samples, seen, Weights())
    assert judge(landing(), ReportedClients(seen, (BUNDLE,)), evidence, 60.0) == Look(back=False)


NOBODY = Look(back=False)
LOADS, FAILS = TopicClients(TOPIC), TopicClients(TOPIC, error="HTTP 500")
TOPICS: dict[str, tuple[Look, BundleTopics, str, str]] = {
    # what reports say, what topics say, and what is told
    "back, by the report": (BACK, BundleTopics((LOADS,)), "yes", ""),
    "back, though one topic fails": (BACK, BundleTopics((FAILS,)), "yes", f"{TOPIC}: HTTP 500"),
    "back, and nobody to ask": (BACK, BundleTopics(error="refused"), "yes", ""),
    "back, by a topic alone": (NOBODY, BundleTopics((LOADS, TopicClients("x", 2))), "yes", ""),
    "a topic does not load": (NOBODY, BundleTopics((LOADS, FAILS)), "no", f"{TOPIC}: HTTP 500"),
    "topics load, clients are at the source": (
        replace(NOBODY, behind=BEFORE),
        BundleTopics((LOADS,)),
        "no",
        f"its clients are still connected to {SOURCE}: {BEFORE.words}",
    ),
    "topics load, nobody comes": (NOBODY, BundleTopics((LOADS,)), "unknown", "no client has come back"),
    "no topics": (
        NOBODY,
        BundleTopics(),
        "unknown",
        "its broker lists no topics of it",
    ),
    "another owner": (NOBODY, BundleTopics(gone="b does not own it"), "unknown", "b does not own it"),
    "nobody to ask": (NOBODY, BundleTopics(error="refused"), "unknown", "could not be asked for: refused"),
}


@pytest.mark.parametrize("case", TOPICS)
def test_topics_say_of_a_landing(case: str):
    """A topic that does not load, or clients that stay behind, are an alarm; all else is none."""
    look, topics, served, detail = TOPICS[case]
    told = concluded(landing(), look, topics)
    assert told.served == served
    assert detail in told.served_detail
    assert bool(detail) == bool(told.served_detail)
    assert told.clients_after == look.after


@pytest.mark.parametrize(
    ("since", "seconds"),
    [((), None), ((3.0,), 3.0), ((0.4, 7.5), 7.5), ((-2.0,), 0.0)],
)
def test_seconds_are_from_the_request_to_the_topic_that_waited_longest(since: tuple[float, ...], seconds: float | None):
    """By the brokers' clocks, which may be a little behind."""
    move = landing()
    topics = tuple(TopicClients(f"{at}", 1, move.asked_at + at) for at in since)
    told = concluded(move, BACK, BundleTopics((*topics, LOADS)))
    assert told.reconnect_seconds == (None if seconds is None else pytest.approx(seconds, abs=1e-4))


def test_a_bundle_recovers():
    """By its clients, or by topics that load while nobody stays at the source: then nothing keeps the clients away."""
    one = Unserved(landing(), TAKEN_AT, "x: HTTP 500")

    def recover(told: Mapping[str, LoadReport], topics: BundleTopics | None) -> tuple[str, bool] | None:
        result = recovered(one, ReportedClients(snapshot(told), (BUNDLE,)), topics)
        return None if result is None else (result.served, result.lifted)

    assert recover(reports(carries(4, 1, 0)), None) == ("yes", False)
    assert recover(reports(), None) is None
    assert recover(reports(), BundleTopics((FAILS,))) is None
    assert recover(reports(), BundleTopics(error="refused")) is None
    assert recover(reports(), BundleTopics((TopicClients(TOPIC, 1),))) == ("yes", False)
    assert recover(reports(), BundleTopics((LOADS,))) == ("no", True)
    assert recover(reports(None, carries(4, 4, 0)), BundleTopics((LOADS,))) is None
    assert recover(reports(None, carries(4, 0, 0)), BundleTopics((LOADS,))) == ("no", True)
    assert recover(reports(), BundleTopics(gone="elsewhere")) == ("no", True)


def test_sampled_topics_are_spread_and_the_users_own():
    """Non-persistent topics are not there until somebody writes; Pulsar's own have no clients that anybody misses."""
    names = [f"persistent://t/n/x{at}" for at in range(9)]
    mixed = [*names, "persistent://t/n/__change_events", "non-persistent://t/n/x"]
    assert sampled(mixed) == [names[0], names[3], names[6]]
    assert sampled(names[:2]) == names[:2]
    assert sampled(["persistent://t/n/__change_events"]) == []


@pytest.mark.parametrize(
    ("source", "destination", "number"),
    [
        ({BUNDLE: BundleStats(topics=4, producer_count=4, consumer_count=6)}, {}, 10),
        (
            {BUNDLE: BundleStats(topics=4, producer_count=4, consumer_count=6)},
            {BUNDLE: BundleStats(topics=4, producer_count=1, consumer_count=2)},
            10,
        ),
        ({}, {BUNDLE: BundleStats(topics=4, producer_count=1, consumer_count=2)}, 3),
        ({}, {}, 0),
    ],
    ids=["its source reports it", "two report it", "only its former broker reports it", "nobody reports it"],
)
def test_clients_of_a_move_count_once(
    source: Mapping[str, BundleStats], destination: Mapping[str, BundleStats], number: int
):
    """Also right after a move, when two reports or none of the owner's have the bundle."""
    both = snapshot({SOURCE: report(10.0, source), DESTINATION: report(10.0, destination)})
    assert reconnecting([Unload(BUNDLE, SOURCE, None, 0.0, 0.0)], both) == [number]


def test_a_plan_is_told_with_what_stands_before_it():
    """By the report of its source, and of no other broker."""
    seen = snapshot({SOURCE: report(20.0, carries(4, 4, 6)), DESTINATION: report(30.0, {bundle(9): stats(1)})})
    moves = [Unload(BUNDLE, SOURCE, DESTINATION, 1, 1), Unload(bundle(9), SOURCE, DESTINATION, 1, 1)]
    assert [one.clients_before for one in with_clients(moves, seen)] == [BEFORE, None]
    assert with_clients([], seen) == ()


@pytest.mark.parametrize(
    ("served", "seconds", "after", "expected"),
    [
        ("yes", 0.44, BEFORE, "clients are back, after 0.4 s"),
        ("yes", 0.44, None, "clients are back, after 0.4 s"),
        ("yes", None, BundleClients(4, 4, 8), "clients are back"),
        ("yes", 3.4, BundleClients(4, 4, 5), "9 of 10 clients are back, after 3.4 s"),
        ("no", None, BundleClients(0, 0, 0), "clients are not back"),
        ("unknown", None, None, "not known whether clients are back"),
    ],
    ids=["all", "not on the report", "more than before", "one is missing", "none", "nobody knows"],
)
def test_the_result_in_words(served: Any, seconds: float | None, after: BundleClients | None, expected: str):
    """A client that has not come back is counted, because it may wait on its old broker for ever."""
    assert served_text(served, seconds, BEFORE, after) == expected


def test_the_hold_names_the_first_and_counts_the_rest():
    """With what it had before and what is wrong."""
    first = Unserved(landing(), TAKEN_AT, "x: HTTP 500")
    told = f"{BUNDLE} on {DESTINATION} (4 topics, 4 producers, 6 consumers before): x: HTTP 500"
    assert unserved_text([first]) == told
    assert unserved_text([first, first, first]) == f"{told}, and 2 more"
