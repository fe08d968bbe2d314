"""``lbd explain`` over state directories that real turns left: what a person reads, JSON, and exit codes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from lbd.cli import main
from lbd.daemon.engine import engine
from lbd.simulate.answers import refused
from lbd.store.database import STORE_NAME, writing
from lbd.store.explain import BrokerAnswer, BundleAnswer, TurnAnswer
from lbd.store.turns import load_bundles, save_bundles
from tests.builders import state_begun
from tests.fake_pulsar import HOT, WARM, FakePulsar, scalable_topic
from tests.test_turn import settings

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lbd.turn.parts import TurnResult

MOVED, LEFT = HOT[:3], HOT[3:]


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LBD_STATE_DIR", str(tmp_path / "state"))


def explain(*words: object) -> Result:
    """One call in this process. What is no SystemExit would be a stack trace, and fails the test."""
    return CliRunner().invoke(main, ["explain", *map(str, words)], catch_exceptions=False)


def ageless(found: Result) -> list[str]:
    """The same without how long ago it was: a second may pass between two calls."""
    return [re.sub(r"\d+ s ago", "ago", line) for line in lines(found)]


def lines(found: Result) -> list[str]:
    """What was printed, with runs of blanks as one."""
    return [" ".join(line.split()) for line in found.stdout.splitlines()]


def balanced(pulsar: FakePulsar, folder: Path, **changes: Any) -> list[TurnResult]:
    """Turn 1 waits, 2 moves three bundles, 3 tells of it, 4 to 6 let the brokers settle."""
    samples = [(80, 45, 10), (81, 46, 11), (81, 46, 11), (64, 44, 30), (62, 45, 35), (60, 46, 36)]
    records = []
    with engine(settings(pulsar, folder, avg_shedder={}, **changes)) as balancer:
        for sample in samples:
            pulsar.sample(*sample)
            records.append(balancer.turn())
            balancer.wait()
    return records


class TestTurn:
    def test_the_turn_that_moved(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Verdict, brokers, pair with the amount wanted, each candidate, and what was predicted and came."""
        records = balanced(pulsar, tmp_path)
        first, _, third = pulsar.ids
        found = explain(2)
        told = lines(found)
        assert (found.exit_code, found.stderr) == (0, "")
        assert [record.number for record in records] == [1, 2, 3, 4, 5, 6]
        assert re.fullmatch(r"turn 2, \d+ s ago \(20[-+0-9T:Z]+\)", told[0])
        assert told[1:3] == ["verdict moving: 3 begun", "said Begins to move 3 bundles."]
        assert f"pair {first} -> {third}: 70.0 points apart, samples low 2 of 8, high 2 of 2" in told
        assert "fired: 7,900 msg/s wanted, 6,000 in 3 bundles taken" in told
        assert f"guardrails foresee: {first} 81.0 -> 50.6; {third} 11.0 -> 41.4" in told
        assert [line for line in told if line.startswith("t/n/")] == [
            *(f"{bundle} 2,000 0.2 taken" for bundle in MOVED),
            *(f"{bundle} 2,000 0.2 passed over: not-needed" for bundle in LEFT),
        ]
        assert sum(f"{first} -> {third}: landed, planned in turn 2" in line for line in told) == 3
        course = f"{first}: 81.0 points, 50.6 predicted, 62.0 measured (turn 5)"
        assert told[-1] == f"{course}; {third}: 11.0 points, 41.4 predicted, 35.0 measured (turn 5)"

    def test_a_source_with_several_destinations(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Sized in points: what was taken is told, and of each bundle to whom it goes."""
        first, second, third = pulsar.ids
        chosen = settings(pulsar, tmp_path, strategy="least-moves")
        with engine(chosen) as balancer:
            for sample in [(80, 12, 10), (81, 11, 10)]:
                pulsar.sample(*sample)
                balancer.turn()
                balancer.wait()
        told = lines(explain(2))
        assert "fired: 6 bundles taken, 12,000 msg/s, 1.2 MB/s" in told
        assert f"guardrails foresee: {first} 81.0 -> 20.2; {second} 11.0 -> 48.8; {third} 10.0 -> 20.1" in told
        assert [line for line in told if line.startswith("t/n/")] == [
            f"{bundle} 2,000 0.2 taken, to {third if bundle == HOT[2] else second}" for bundle in HOT[:6]
        ]

    def test_without_a_name_it_is_the_last_one(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """With its verdict."""
        balanced(pulsar, tmp_path)
        assert lines(explain())[0].startswith("turn 6, ")
        assert ageless(explain("6")) == ageless(explain())

    def test_a_turn_that_waits_says_for_what(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """And one that settles."""
        balanced(pulsar, tmp_path)
        assert "verdict waiting for 1 more fresh sample" in lines(explain(1))
        assert "verdict waiting for 9 more fresh samples" in lines(explain(3))
        assert [line for line in lines(explain(3)) if line.startswith("settling ")] == [
            f"settling {broker}: 2 fresh samples to come before it counts" for broker in pulsar.ids[::2]
        ]

    def test_a_turn_that_saw_nothing(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Unknown, and the error."""
        balanced(pulsar, tmp_path)
        with engine(settings(pulsar, tmp_path)) as balancer:
            for broker in pulsar.ids:
                pulsar.kill(broker)
            assert balancer.turn().number == 7
        assert lines(explain(7))[1].startswith("verdict unknown: GET http")

    def test_once_keeps_the_end_of_its_moves(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """As its own sentence tells them."""
        with engine(settings(pulsar, tmp_path)) as balancer:
            record = balancer.once()
        told = lines(explain())
        assert record.number == 1
        assert "said Moved 3 of 3 bundles: 3 landed." in told
        assert [line.split()[1] for line in told if line.startswith("ended")] == [f"{bundle}:" for bundle in MOVED]

    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The shape that is promised, and nothing on stderr."""
        balanced(pulsar, tmp_path)
        found = explain(2, "--format", "json")
        answer = json.loads(found.stdout)
        assert found.stderr == ""
        assert answer.keys() == set(TurnAnswer.__struct_fields__)
        seen = answer["turn"]
        assert (seen["turn"], seen["verdict"]["kind"], seen["pairs"][0]["wanted"]) == (2, "moving", 7900.0)
        assert [(one["id"], one["score"]) for one in seen["brokers"]] == [
            (pulsar.ids[at], score) for at, score in enumerate((81, 46, 11))
        ]
        assert {move["result"] for move in answer["moves"]} == {"landed"}


class TestBroker:
    def test_a_hot_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Its score and what it is by, why it gives nothing now, what it gave last, and what came of that."""
        balanced(pulsar, tmp_path)
        first, _, third = pulsar.ids
        told = lines(explain(first))
        assert told[0] == f"broker {first}"
        assert told[1].startswith("seen 60.0 points by cpu, 10,000 msg/s, 1.0 MB/s, 5 bundles, in turn 6, ")
        assert told[2].startswith(
            f"because it is 24.0 points above {third}: waiting, low samples 2/8, high samples 0/2"
        )
        assert "cluster waiting for 6 more fresh samples" in told
        assert any(line.startswith("last fired in turn 2, ") for line in told)
        assert f"to {third}, 70.0 points apart: 7,900 msg/s wanted, 6,000 in 3 bundles taken" in told
        assert sum(line.startswith("move ") for line in told) == 3

    def test_its_host_is_name_enough(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Where only one broker has it."""
        balanced(pulsar, tmp_path)
        first = pulsar.ids[0]
        assert ageless(explain(first.partition(":")[0])) == ageless(explain(first))

    def test_a_cold_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What would come to it, and that it has given nothing."""
        balanced(pulsar, tmp_path)
        first, _, third = pulsar.ids
        told = lines(explain(third))
        assert f"because {first} is 24.0 points above it: bundles would come to it, not leave it" in told
        assert "last fired not in the time looked at (--since)" in told

    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The candidates of the last turn in which it gave, taken and passed over."""
        balanced(pulsar, tmp_path)
        answer = json.loads(explain(pulsar.ids[0], "--format", "json").stdout)
        assert answer.keys() == set(BrokerAnswer.__struct_fields__)
        assert [(one["bundle"], one["reason"]) for one in answer["fired"]["candidates"]] == [
            *((bundle, "moves") for bundle in MOVED),
            *((bundle, "not-needed") for bundle in LEFT),
        ]

    def test_its_bundles_and_why_each_stays(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Those that it owns by now, the largest first, each in the words of its own explanation; counted as text."""
        balanced(pulsar, tmp_path)
        owned: dict[str, str] = {}
        for broker in pulsar.ids:
            found = json.loads(explain(broker, "--format", "json").stdout)
            carried = [one["throughput"] for one in found["bundles"]]
            assert carried == sorted(carried, reverse=True)
            for one in found["bundles"]:
                owned[one["bundle"]] = broker
                words = json.loads(explain(one["bundle"], "--format", "json").stdout)["because"]
                assert words == [*one["because"], *(f"its broker: {why}" for why in found["because"])]
        assert owned == pulsar.owners
        resting = [line for line in lines(explain(pulsar.ids[2])) if line.startswith("bundles ")]
        assert resting == ["bundles 4, of which stay for a reason of their own: 3 cool-down"]

    def test_one_that_gives_no_report(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """What it was before is not what it is: the reason is that nothing is known of it now."""
        balanced(pulsar, tmp_path)
        pulsar.fault("load-report", refused(500, "boom"), broker=pulsar.ids[2])
        with engine(settings(pulsar, tmp_path, avg_shedder={})) as balancer:
            balancer.turn()
        told = lines(explain(pulsar.ids[2]))
        assert [line for line in told if line.startswith("because it gives no report now, in turn ")]
        assert "HTTP 500 (boom)" in "\n".join(told)

    def test_a_pause_is_why(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """With who ordered it."""
        state_begun(tmp_path / "state")
        CliRunner().invoke(main, ["pause", "--for-next", "--reason", "upgrade"], catch_exceptions=False)
        balanced(pulsar, tmp_path)
        found = "\n".join(lines(explain(pulsar.ids[0])))
        assert re.search(r"because nothing new is moved: paused: by \S+ until lbd resume: upgrade", found)


class TestBundle:
    def test_one_that_was_moved(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Where it is since, that it rests, and what its move did."""
        balanced(pulsar, tmp_path)
        first, _, third = pulsar.ids
        told = lines(explain(MOVED[0]))
        assert told[:1] == [f"bundle {MOVED[0]}"]
        assert told[1].startswith(f"owner {third}, ")
        assert told[2] == "carries 2,000 msg/s, 0.2 MB/s"
        assert told[3] == "because cool-down: it rests after the last attempt to move it, 30 min left"
        assert any("in turn 2, " in line and line.endswith("it was chosen") for line in told)
        assert told[-1].startswith(f"{first}: 81.0 points, 50.6 predicted, 62.0 measured (turn 5)")

    def test_a_proven_landing_outweighs_the_report_after_it(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """A broker's report still names a bundle up to a minute after it let it go."""
        balanced(pulsar, tmp_path)
        folder = tmp_path / "state"
        found = load_bundles(folder)
        assert found is not None
        owner = found.owner.copy()
        owner[found.bundles.index(MOVED[0])] = found.brokers.index(pulsar.ids[0])
        save_bundles(folder, replace(found, at=found.at + 30, owner=owner))
        assert lines(explain(MOVED[0]))[1].startswith(f"owner {pulsar.ids[2]}, ")
        save_bundles(folder, replace(found, at=found.at + 300, owner=owner))
        assert lines(explain(MOVED[0]))[1].startswith(f"owner {pulsar.ids[0]}, ")

    def test_one_that_was_passed_over(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Why its broker waits, and why it stayed when others went."""
        balanced(pulsar, tmp_path)
        told = lines(explain(LEFT[0]))
        assert told[1].startswith(f"owner {pulsar.ids[0]}, ")
        assert told[3].startswith("because its broker: it is 24.0 points above")
        assert "in turn 2, " in told[4]
        assert told[4].endswith("it was passed over: not-needed")
        assert told[5] == "moves none is known"

    def test_one_on_a_broker_that_nobody_asked(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Nothing is wrong with it, nor with its broker: how far that is from the others, and who is in pairs."""
        balanced(pulsar, tmp_path)
        first, _, third = pulsar.ids
        distances = f"10.0 points above {third}, the lowest of the others, and 14.0 points below {first}, the highest"
        pairs = f"the strategy pairs {first} -> {third}"
        assert lines(explain(WARM))[3] == f"because its broker: it is in no pair: {distances}; {pairs}"

    @pytest.mark.parametrize(
        ("rails", "because"),
        [
            (
                {"excluded_namespaces": ("t/n",)},
                "excluded-namespace: guardrails.excluded_namespaces names its namespace",
            ),
            (
                {"include_namespaces": ("x/y",)},
                "not-included: guardrails.include_namespaces does not name its namespace",
            ),
            (
                {"canary": {"namespaces": ("x/y",)}},
                "canary: guardrails.canary does not name its namespace; widen or remove the canary",
            ),
        ],
    )
    def test_one_that_a_setting_excludes(
        self, rails: dict[str, Any], because: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Which setting it is."""
        balanced(pulsar, tmp_path, guardrails=rails)
        assert lines(explain(HOT[0]))[3] == f"because {because}"

    @pytest.mark.parametrize(
        ("properties", "because"),
        [
            ({"lbd.balance": "off"}, "balance-off: namespace property lbd.balance=off"),
            (
                {"lbd.balance": "none"},
                "property-not-understood: namespace property lbd.balance is 'none', wanted off, low or normal",
            ),
        ],
    )
    def test_one_that_its_namespace_keeps(
        self, properties: dict[str, str], because: str, pulsar: FakePulsar, tmp_path: Path
    ) -> None:
        """Which property it is, and what it says."""
        pulsar.policies.properties = {"t/n": properties}
        balanced(pulsar, tmp_path, guardrails={"namespace_properties": True})
        assert lines(explain(HOT[0]))[3].partition("; its bundles stay")[0] == f"because {because}"

    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Predicted and come, as numbers."""
        balanced(pulsar, tmp_path)
        answer = msgspec.convert(json.loads(explain(MOVED[0], "--format", "json").stdout), BundleAnswer)
        move = answer.moves[0]
        assert (answer.owner, move.planned_in, move.seen_in) == (pulsar.ids[2], 2, 5)
        assert move.came is not None
        assert (move.came.source, move.came.destination) == (62.0, 35.0)
        assert answer.cool_down_left_seconds == pytest.approx(1800, abs=60)


class TestNamespace:
    def test_where_its_bundles_are_and_why_they_stayed(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Counted by broker and reason, each with its traffic, and its moves."""
        balanced(pulsar, tmp_path)
        told = lines(explain("t/n"))
        assert told[0].startswith("namespace t/n: 10 bundles, ")
        assert told[1] == f"owners 5 on {pulsar.ids[0]}, 4 on {pulsar.ids[2]}, 1 on {pulsar.ids[1]}"
        assert told[2] == "reasons 3 cool-down"
        assert any(line.startswith(f"{MOVED[0]} {pulsar.ids[2]} ") and line.endswith(" cool-down") for line in told)
        assert sum(line.startswith("move ") for line in told) == 3

    def test_json(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """The same as numbers."""
        balanced(pulsar, tmp_path)
        answer = json.loads(explain("t/n", "--format", "json").stdout)
        assert (answer["namespace"], answer["number"], sum(answer["owners"].values())) == ("t/n", 10, 10)
        assert len(answer["bundles"]) == 10
        assert {one["broker"] for one in answer["bundles"]} == set(answer["owners"])


class TestNames:
    def test_a_topic_stands_for_its_bundle(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By Pulsar's hash of its full name, once a broker has said that there is such a topic."""
        balanced(pulsar, tmp_path)
        monkeypatch.setenv("LBD_PULSAR__ADMIN_URLS", json.dumps(pulsar.urls))
        pulsar.topic_names = {"persistent://t/n/orders"}
        found = ageless(explain("persistent://t/n/orders"))
        assert found == ageless(explain(found[0].split()[1].rstrip(":,")))

    def test_a_scalable_topic_stands_for_its_segments(
        self, pulsar: FakePulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The brokers list them; each is explained as it would be alone."""
        balanced(pulsar, tmp_path)
        monkeypatch.setenv("LBD_PULSAR__ADMIN_URLS", json.dumps(pulsar.urls))
        pulsar.fault("/scalable/t/n/orders", scalable_topic({1: (0, 0x7FFF), 2: (0x8000, 0xFFFF)}))
        segments = ["segment://t/n/orders/0000-7fff-1", "segment://t/n/orders/8000-ffff-2"]
        each = [[f"segment {name}", *ageless(explain(name))] for name in segments]
        assert ageless(explain("topic://t/n/orders")) == [*each[0], *each[1]]
        told = json.loads(explain("topic://t/n/orders", "--format", "json").stdout)
        assert [one["segment"] for one in told] == segments
        assert [f"bundle {one['bundle']}" for one in told] == [lines[1] for lines in each]

    def test_a_web_address_stands_for_its_broker(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """As people copy it."""
        balanced(pulsar, tmp_path)
        assert ageless(explain(f"http://{pulsar.ids[0]}/")) == ageless(explain(pulsar.ids[0]))


class TestUsage:
    @pytest.mark.parametrize(
        ("what", "wanted"),
        [
            (HOT[0][:-1] + "1", f"did you mean {HOT[0]}?"),
            ("t/nn", "t/nn: no broker reports a bundle of such a namespace; did you mean t/n?"),
            ("other/ns/0x00000000_0x10000000", "no broker reports such a bundle"),
            ("99", "turn 99: not kept; kept are 1 to 6 in "),
            ("9" * 5000, ": no such broker, bundle or turn is known"),
            ("persistent://other/ns/t", "other/ns: cluster c has no such namespace"),
            ("persistent://junk", "'persistent://junk' is no topic; wanted persistent://tenant/namespace/topic"),
            ("http://nowhere:1", "nowhere:1: no such broker, bundle or turn is known"),
            ("127.0.0.1:1", "no such broker, bundle or turn is known; did you mean 127.0.0."),
            ("zookeeper", "no such broker, bundle or turn is known; known brokers are 127.0.0.1:"),
        ],
    )
    def test_what_is_not_known(
        self, pulsar: FakePulsar, tmp_path: Path, what: str, wanted: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Exit 2, one line, and the nearest name that is known."""
        balanced(pulsar, tmp_path)
        monkeypatch.setenv("LBD_PULSAR__ADMIN_URLS", json.dumps(pulsar.urls))
        found = explain(what)
        assert (found.exit_code, found.stdout, found.stderr.count("\n")) == (2, "", 1)
        assert wanted in found.stderr

    def test_nothing_kept_yet(self, tmp_path: Path) -> None:
        """Exit 2, as lbd status has it, and where to look."""
        found = explain()
        assert (found.exit_code, found.stdout) == (2, "")
        assert found.stderr.startswith(f"Error: {tmp_path / 'state'}: no turn is kept yet; ")

    def test_every_turn_is_a_line(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """For grep and jq, the newest first, with every field under its name; a turn that cannot be read is told."""
        balanced(pulsar, tmp_path)
        shown = [json.loads(line) for line in explain("--every").stdout.splitlines()]
        assert [turn["turn"] for turn in shown] == list(range(shown[0]["turn"], 0, -1))
        assert shown[0]["brokers"][0]["id"] == pulsar.ids[0]
        with writing(tmp_path / "state" / STORE_NAME) as store:
            store.write("UPDATE turns SET turn = x'00' WHERE number = 1", [()])
        found = explain("--every")
        assert (found.exit_code, len(found.stdout.splitlines())) == (0, len(shown) - 1)
        assert found.stderr == "Note: 1 kept turn cannot be read; passed over.\n"

    @pytest.mark.parametrize("words", [["1"], ["--api", "http://127.0.0.1:1"]])
    def test_every_turn_and_something_else(self, words: list[str]) -> None:
        """It is one or the other."""
        found = explain("--every", *words)
        assert (found.exit_code, "give neither a name nor --api with it" in found.stderr) == (2, True)

    def test_turns_that_cannot_be_read_are_told(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """Beside the answer."""
        balanced(pulsar, tmp_path)
        with writing(tmp_path / "state" / STORE_NAME) as store:
            store.write("UPDATE turns SET turn = x'00' WHERE number = (SELECT max(number) FROM turns)", [()])
        found = explain()
        assert found.exit_code == 0
        assert found.stderr == "Note: 1 kept turn cannot be read; passed over.\n"

    def test_how_far_back_and_how_many(self, pulsar: FakePulsar, tmp_path: Path) -> None:
        """--last bounds the moves."""
        balanced(pulsar, tmp_path)
        told = lines(explain(pulsar.ids[0], "--last", 1, "--since", "7d"))
        assert sum(line.startswith("move ") for line in told) == 1
