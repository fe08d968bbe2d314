"""``lbd place``, and ``lbd unload`` to a broker that lbd picks: words, JSON, exit codes, and nothing done on junk."""

from __future__ import annotations

import json
import re
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lbd.config import Settings
from lbd.place.placements import PICKS, PLACEMENTS
from lbd.simulate.answers import Reply, refused
from lbd.store.control import Control, Pause
from lbd.store.journal import read
from lbd.store.moves import history
from tests import fake_pulsar
from tests.builders import state_begun
from tests.cli.conftest import lbd
from tests.fake_pulsar import COLD, HOT, SILENCE, WARM
from tests.serving import accepting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from lbd.daemon.engine import Engine
    from tests.fake_pulsar import FakePulsar

RECORDING = Path(__file__).parents[1] / "data" / "hot-broker.jsonl"
NEW = [f"t/new/0x{number << 28:08x}_0x{min((number + 1) << 28, 0xFFFFFFFF):08x}" for number in range(16)]
LOWER, UPPER = "segment://t/new/orders/0000-7fff-1", "segment://t/new/orders/8000-ffff-2"
SCALABLE = fake_pulsar.scalable_topic({2: (0x8000, 0xFFFF), 1: (0, 0x7FFF)})
LAST_TOPIC = "persistent://t/new/geceaccceeeecegcaaaaaaaaaaaaaaaaaaaaaaaa"


@pytest.fixture
def pulsar() -> Iterator[FakePulsar]:
    """A hot broker, a warm and a cold one, and a namespace of sixteen bundles that nobody owns."""
    with fake_pulsar.hot_broker() as cluster:
        cluster.own(None, dict.fromkeys(NEW, 0.0))
        cluster.topic_names = {"persistent://t/new/orders", "persistent://t/n/a11", LAST_TOPIC}
        yield cluster


@pytest.fixture
def config(pulsar: FakePulsar, tmp_path: Path) -> Path:
    """Settings of that cluster."""
    guardrails = {"membership_settle_seconds": 0, "unload_spacing_seconds": 0, "max_traffic_per_hour": 1}
    path = tmp_path / "lbd.yaml"
    values = {"pulsar": {"admin_urls": pulsar.urls}, "state_dir": str(tmp_path / "state"), "guardrails": guardrails}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def answered(config: Path, *words: str) -> dict[str, Any]:
    """What a call that changes nothing printed as JSON, its answers by bundle."""
    found = lbd("place", *words, "--format", "json", "--config", config)
    assert found.exit_code == 0, found.stderr
    return {one["bundle"]: one for one in json.loads(found.stdout)["answers"]}


class TestAsking:
    def test_a_namespace(self, pulsar: FakePulsar, config: Path):
        """The answer, a row for each bundle, each reason once, and how old the data is; nothing is changed."""
        before = dict(pulsar.owners)
        found = lbd("place", "t/new", "--all", "--config", config)
        lines = found.stdout.splitlines()
        rows = [line for line in lines if line.startswith("t/new/")]
        assert (found.exit_code, found.stderr, len(rows)) == (0, "", 16)
        assert lines[0] == "16 bundles without an owner: --apply places them."
        assert lines[1].split() == ["bundle", "broker"]
        assert all("  goes to " in row for row in rows)
        reasons = [line for line in lines if " of all free points" in line]
        assert sum(int(re.search(r"\((\d+) bundles?\)$", line)[1]) for line in reasons) == 16  # type: ignore[index]
        assert lines[-1].startswith("strategy rendezvous: the hash of a bundle's name picks its broker, in proportion ")
        assert lines[-1].endswith(" s old; brokers sample CPU every 60 s")
        assert pulsar.owners == before
        assert [one.method for one in pulsar.requests if one.method != "GET"] == []

    def test_ten_rows_unless_all_are_wanted(self, config: Path):
        """The others are counted."""
        lines = lbd("place", "t/new", "--config", config).stdout.splitlines()
        assert len([line for line in lines if line.startswith("t/new/")]) == 10
        assert "6 more bundles go to brokers: --all lists them." in lines

    def test_bundles_that_have_an_owner_do_not_look_wrong(self, pulsar: FakePulsar, config: Path):
        """A namespace whose bundles are all owned: they stay, no other broker is named, and nothing is to be done."""
        found = lbd("place", "t/n", "--config", config)
        everything = lbd("place", "t/n", "--all", "--config", config)
        assert found.stdout.splitlines()[0] == "10 bundles have an owner and stay; nothing is to be placed."
        assert found.stdout.splitlines()[1].startswith("owners: 8 on ")
        assert len(found.stdout.splitlines()) == 2
        owners = {line.split()[0]: line.split()[-1] for line in everything.stdout.splitlines() if "  stays on " in line}
        assert owners == {bundle: owner for bundle, owner in pulsar.owners.items() if bundle.startswith("t/n/")}

    def test_every_placement_says_how_it_picks(self):
        """Its name alone explains nothing."""
        assert PICKS.keys() == PLACEMENTS.keys()

    def test_a_topic_stands_for_its_bundle(self, config: Path):
        """The CRC32 of the topic's full name is 0x25258607."""
        found = answered(config, "persistent://t/new/orders")
        assert [one["topics"] for one in found.values()] == [["persistent://t/new/orders"]]
        assert list(found) == [NEW[0x2]]

    def test_a_topic_at_the_end_of_the_last_bundle(self, config: Path):
        """The last range includes its upper end; this name's CRC32 is 0xffffffff."""
        assert zlib.crc32(LAST_TOPIC.encode()) == 0xFFFFFFFF
        assert list(answered(config, LAST_TOPIC)) == [NEW[-1]]

    def test_a_segment_stands_for_its_bundle(self, pulsar: FakePulsar, config: Path):
        """The CRC32 of its full name is 0xd99e47b1."""
        pulsar.fault("/scalable/t/new/orders", SCALABLE)
        assert list(answered(config, LOWER)) == [NEW[0xD]]

    def test_a_scalable_topic_stands_for_the_bundles_of_its_active_segments(self, pulsar: FakePulsar, config: Path):
        """A row with bundle and owner for each; the sealed one is left out."""
        pulsar.own(pulsar.ids[1], {NEW[0xD]: 10.0})
        pulsar.fault("/scalable/t/new/orders", SCALABLE)
        found = answered(config, "topic://t/new/orders")
        assert {one["topics"][0]: (bundle, one["owner"]) for bundle, one in found.items()} == {
            LOWER: (NEW[0xD], pulsar.ids[1]),
            UPPER: (NEW[0x3], None),
        }

    def test_a_scalable_topic_that_there_is_not(self, config: Path):
        """Nor are there any in a recording. Exit 2."""
        found = lbd("place", "topic://t/new/none", "--config", config)
        told = "topic://t/new/none: cluster c has no such scalable topic (from Pulsar 5.0 on)"
        assert (found.exit_code, told in found.stderr) == (2, True)
        found = lbd("place", "topic://t/new/none", "--recording", RECORDING, "--config", config)
        assert (found.exit_code, "a recording has no segments; wanted one, segment://" in found.stderr) == (2, True)

    def test_an_owned_bundle_is_answered_as_if_it_were_not(self, pulsar: FakePulsar, config: Path):
        """Its owner, and where it would go."""
        found = answered(config, HOT[0])[HOT[0]]
        assert found["owner"] == pulsar.ids[0]
        assert found["answer"] in pulsar.ids
        lines = lbd("place", HOT[0], "--config", config).stdout.splitlines()
        assert lines[0] == "1 bundle has an owner and stays; nothing is to be placed."
        assert f"{HOT[0]}  stays on {pulsar.ids[0]}" in lines
        assert f"without an owner it would go to {found['answer']}: {found['reason']}" in lines

    def test_who_is_no_candidate_is_told(self, pulsar: FakePulsar, config: Path):
        """Isolation keeps the namespace on two brokers; the reason stands below the rows, once."""
        pulsar.policies.isolation["p"] = {"namespaces": ["t/new"], "primary": ["127[.]0[.]0[.][12]"], "secondary": []}
        found = lbd("place", "t/new", "--config", config)
        told = (
            f"no candidate: {pulsar.ids[2]}: isolation-policy, t/new may not be on {pulsar.ids[2]}: isolation policy p"
        )
        assert told in found.stdout.splitlines()
        assert {one["answer"] for one in answered(config, "t/new").values()} <= set(pulsar.ids[:2])

    def test_an_anti_affinity_group_is_read_also_of_a_tenant_that_nobody_reports(
        self, pulsar: FakePulsar, config: Path
    ):
        """Of the group only t/n lies anywhere, on all three brokers but not once it has left the third."""
        new = "u/new/0x00000000_0xffffffff"
        pulsar.own(None, {new: 0.0})
        pulsar.policies.groups.update({"t/n": "g", "u/new": "g"})
        assert len(answered(config, new)[new]["candidates"]) == 3
        pulsar.owners[COLD] = pulsar.ids[1]
        assert answered(config, new)[new]["candidates"] == [pulsar.ids[2]]

    def test_what_may_be_nowhere(self, pulsar: FakePulsar, config: Path):
        """Exit 4, and why of each broker."""
        pulsar.policies.isolation["p"] = {"namespaces": ["t/new"], "primary": ["10[.]0[.]0[.]1"], "secondary": []}
        found = lbd("place", NEW[0], "--config", config)
        assert found.exit_code == 4
        assert "(no broker)" in found.stdout
        assert found.stdout.splitlines()[0] == "1 bundle without an owner that no broker may have."

    @pytest.mark.parametrize(
        "strategy", ["avg-shedder", "least-long-term-message-rate", "least-resource-usage-with-weight", "round-robin"]
    )
    def test_every_strategy_answers(self, strategy: str, config: Path):
        """And says how it picks."""
        found = lbd("place", "t/new", "--strategy", strategy, "--config", config)
        assert found.exit_code == 0
        assert f"\nstrategy {strategy}: {PICKS[strategy]}; reports of " in found.stdout

    def test_a_recording(self):
        """Its last round, without a cluster; the answers are of its time."""
        found = lbd("place", "shop/orders", "--recording", RECORDING)
        assert found.exit_code == 0
        assert found.stdout.splitlines()[0] == "32 bundles have an owner and stay; nothing is to be placed."
        last = lbd("place", "shop/orders/0x00000000_0x08000000", "--recording", RECORDING).stdout.splitlines()[-1]
        assert last.endswith(", as recorded; brokers sample CPU every 60 s")

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (
                ["x"],
                "'x' is no bundle, topic or namespace; wanted tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, persistent://",
            ),
            (["t/n/orders"], "'t/n/orders' is no bundle, topic or namespace"),
            (["persistent://t/n"], "'persistent://t/n' is no topic"),
            (["t/nope"], "t/nope: cluster c has no such namespace"),
            (
                ["t/new/0x00000000_0x08000000"],
                "is no bundle of t/new, which has 16; there are t/new/0x00000000_0x10000000",
            ),
            (["t/new/0x10000000_0x00000000"], "the lower end of the range must be below the upper one"),
            (["pulsar/b:8080/0x00000000_0xffffffff"], "belongs to its broker and is never placed or moved"),
            (["pulsar/b:8080"], "'pulsar/b:8080' belongs to its broker and is never placed or moved"),
            (["persistent://sla-monitor/b:8080/x"], "belongs to its broker and is never placed or moved"),
            (["t/new", "--strategy", "best"], "placement 'best' is not known; wanted rendezvous, avg-shedder, "),
            (["t/new", "--recording", str(RECORDING), "--apply"], "--apply: a recording is the past"),
            (["t/new", "--recording", str(RECORDING)], "t/new: no broker reports a bundle of it"),
            (["t/new", "--recording", "none.jsonl"], "none.jsonl"),
        ],
    )
    @pytest.mark.parametrize("acts", [[], ["--apply"]])
    def test_junk_is_one_line_and_exit_2(
        self, words: list[str], told: str, acts: list[str], pulsar: FakePulsar, config: Path
    ):
        """Nothing is done, also with --apply."""
        before = dict(pulsar.owners)
        found = lbd("place", *words, *acts, "--config", config)
        said = (found.stderr + found.stdout).splitlines()
        assert (found.exit_code, len(said)) == (2, 1)
        assert told in said[0] or (acts and "--apply: a recording is the past" in said[0])
        assert pulsar.owners == before


class TestApplying:
    def test_each_bundle_is_placed_where_it_was_answered(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """As asked before; every one is in the journal, rests, and counts in no budget."""
        wanted = {bundle: one["answer"] for bundle, one in answered(config, "t/new").items()}
        found = lbd("place", "t/new", "--apply", "--config", config)
        assert (found.exit_code, found.stdout.splitlines()[0]) == (0, "16 bundles: 16 placed.")
        assert {bundle: pulsar.owners[bundle] for bundle in NEW} == wanted
        moves = list(history(tmp_path / "state"))
        assert {(move.bundle, move.source, move.owner) for move in moves} == {(one, "", wanted[one]) for one in NEW}
        assert all(move.result is not None and "; rendezvous: " in move.reason for move in moves)
        past = read(tmp_path / "state" / "lbd.db")
        assert set(past.attempted_at) == set(NEW)
        assert (past.sent, past.open) == ((), ())
        assert "(nobody) -> " in lbd("history", "--config", config).stdout

    def test_owned_bundles_are_left_alone(self, pulsar: FakePulsar, config: Path):
        """Twice asked is once placed; the hot broker keeps its own."""
        lbd("place", NEW[3], "--apply", "--config", config)
        owner = pulsar.owners[NEW[3]]
        found = lbd("place", "t/new", "t/n", "--apply", "--config", config)
        assert (found.exit_code, found.stdout.splitlines()[0]) == (
            0,
            "26 bundles: 15 placed, 11 owned already and left alone.",
        )
        assert (pulsar.owners[NEW[3]], pulsar.owners[HOT[0]]) == (owner, pulsar.ids[0])

    def test_two_that_nobody_takes_end_it(
        self, pulsar: FakePulsar, config: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ):
        """Exit 5: the others are not asked for, and what was asked for is in the journal as it ended."""
        monkeypatch.setattr("lbd.act.place.PROOF_SECONDS", 0.05)
        pulsar.fault("/schemas/", refused(503, "no"))
        found = lbd("place", "t/new", "--apply", "--format", "json", "--config", config)
        told = json.loads(found.stdout)
        assert found.exit_code == told["exit_code"] == 5
        assert [one["result"] for one in told["placed"]] == ["unowned", "unowned", *[None] * 14]
        assert told["placed"][2]["detail"] == "not asked for: two in a row could not be placed"
        assert len(list(history(tmp_path / "state"))) == 2

    def test_a_pause_holds_it(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """Exit 4, nothing placed."""
        (tmp_path / "state").mkdir()
        Control(state_begun(tmp_path / "state").path).pause(Pause(time.time(), None, "upgrade", "ann"))
        found = lbd("place", "t/new", "--apply", "--config", config)
        assert (found.exit_code, found.stdout) == (4, "Refused: paused: by ann until lbd resume: upgrade\n")
        assert {pulsar.owners[bundle] for bundle in NEW} == {None}

    def test_the_running_lbd_does_it(self, pulsar: FakePulsar, config: Path):
        """Through its socket; it answers for all bundles at once."""
        with running(config):
            found = lbd("place", "t/new", "--apply", "--config", config)
        assert found.exit_code == 0
        assert "16 bundles: 16 placed." in found.stdout
        assert "Asked lbd (process " in found.stderr
        assert None not in {pulsar.owners[bundle] for bundle in NEW}

    def test_a_bundle_whose_owner_is_not_known(self, pulsar: FakePulsar, config: Path):
        """It is named with the reason, here and there, and is not taken for one that nobody owns."""
        pulsar.fault("topicHashPositions", Reply(500, b"{}"))
        shown = lbd("place", HOT[0], "--config", config)
        done = lbd("place", HOT[0], "--apply", "--config", config)
        assert (shown.exit_code, done.exit_code, pulsar.owners[HOT[0]]) == (4, 4, pulsar.ids[0])
        assert f"owner not known: {HOT[0]}: " in shown.stdout
        assert "its owner is not known: " in done.stdout

    def test_no_broker_is_asked_for_all_that_it_owns(self, pulsar: FakePulsar, config: Path):
        """One that takes bundles over at that moment can hang for good by it."""
        for words in (("place", "t/new", "--apply"), ("place", "t/new"), ("unload", "t/new")):
            lbd(*words, "--config", config)
        assert not [request for request in pulsar.requests if "ownedNamespaces" in request.path]


def running(config: Path) -> AbstractContextManager[Engine]:
    """A running lbd that executes commands."""
    return accepting(Settings.model_validate(yaml.safe_load(config.read_text())))


class TestShownUnloads:
    def test_one_bundle(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """From where to where, with the scores of both before and after; nothing is done."""
        found = lbd("unload", HOT[0], "--to", pulsar.ids[2].partition(":")[0], "--config", config)
        assert found.exit_code == 0, found.output
        ends = rf"from {pulsar.ids[0]} \([\d.]+ points, then [\d.]+\) to {pulsar.ids[2]} \([\d.]+ points, then [\d.]+\)"
        assert re.fullmatch(rf"Would move {HOT[0]} \(.*\) {ends}\. Nothing was done; --apply does it\.\n", found.stdout)
        assert (pulsar.asked("/unload"), (tmp_path / "state").exists()) == ([], False)

    @pytest.mark.parametrize("topic", ["persistent://t/n/a11", "segment://t/n/a11/0000-ffff-4"])
    def test_a_topic_stands_for_its_bundle(self, topic: str, pulsar: FakePulsar, config: Path):
        """CRC32 0x1ec8f98e and 0x1b18e28f: both are in the same bundle."""
        pulsar.fault("/scalable/t/n/a11", fake_pulsar.scalable_topic({4: (0, 0xFFFF)}))
        found = lbd("unload", topic, "--config", config)
        assert (found.exit_code, found.stdout.startswith(f"Would move {HOT[1]} (")) == (0, True), found.output

    def test_a_scalable_topic_of_several_segments_is_refused(self, pulsar: FakePulsar, config: Path):
        """Exit 2 and one line that lists them; of a single segment it stands for that."""
        pulsar.fault("/scalable/t/new/orders", SCALABLE)
        found = lbd("unload", "topic://t/new/orders", "--apply", "--config", config)
        assert (found.exit_code, found.stdout, pulsar.asked("/unload")) == (2, "", [])
        listed = f"{LOWER} ({NEW[0xD][6:]}), {UPPER} ({NEW[0x3][6:]})"
        assert f"topic://t/new/orders has 2 segments; wanted one of {listed}\n" in found.stderr
        pulsar.fault("/scalable/t/n/a11", fake_pulsar.scalable_topic({4: (0, 0xFFFF)}))
        found = lbd("unload", "topic://t/n/a11", "--config", config)
        assert found.stdout.startswith(f"Would move {HOT[1]} ("), found.output

    def test_as_json(self, pulsar: FakePulsar, config: Path):
        """The same shape as what --apply answers, with the picked broker."""
        found = json.loads(lbd("unload", HOT[0], "--format", "json", "--config", config).stdout)
        assert (found["exit_code"], found["result"], found["owner"]) == (0, None, pulsar.ids[0])
        assert found["placed"][0]["answer"] in pulsar.ids[1:]
        assert found["placed"][0]["reason"] == "the coolest broker that may have it"

    def test_what_would_be_refused(self, pulsar: FakePulsar, config: Path):
        """Exit 4, with the words of --apply."""
        pulsar.sample(80.0, 84.0, 84.0)
        found = lbd("unload", HOT[0], "--config", config)
        assert (found.exit_code, found.stdout) == (4, "")
        assert f"{HOT[0]}: no other broker may have it: destination-overloaded: {pulsar.ids[1]}" in found.stderr

    def test_a_namespace(self, pulsar: FakePulsar, config: Path):
        """The bundles that would be tried."""
        found = lbd("unload", "t/n", "--to", pulsar.ids[2], "--config", config)
        *bundles, told = found.stdout.splitlines()
        assert (found.exit_code, len(bundles), HOT[0] in bundles) == (0, 9, True)
        assert told.startswith("Would move 9 bundles one after another, each judged when its turn comes.")
        assert pulsar.asked("/unload") == []

    def test_no_reason_without_apply(self, config: Path):
        """It would pass nothing."""
        found = lbd("unload", HOT[0], "--override", "x", "--config", config)
        assert (found.exit_code, "--override and --reason go with --apply" in found.stderr) == (2, True)


class TestUnloading:
    def test_a_broker_is_picked(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """The coolest one that every guardrail allows; the journal says why that one."""
        found = lbd("unload", HOT[0], "--apply", "--config", config)
        assert found.exit_code == 0, found.stdout
        assert pulsar.owners[HOT[0]] == pulsar.ids[2]
        (move,) = history(tmp_path / "state")
        assert move.destination == pulsar.owners[HOT[0]]
        assert move.reason.endswith("; the coolest broker that may have it")

    def test_a_picked_broker_obeys_isolation(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """Only a warmer broker may have it, and the answer says why not the cooler one."""
        pulsar.policies.isolation["p"] = {"namespaces": ["t/n"], "primary": ["127[.]0[.]0[.][12]"], "secondary": []}
        found = lbd("unload", HOT[0], "--apply", "--config", config)
        assert (found.exit_code, pulsar.owners[HOT[0]]) == (0, pulsar.ids[1])
        (move,) = history(tmp_path / "state")
        words = "; the coolest broker that may have it; of 1 cooler broker isolation-policy: "
        assert words in move.reason

    @pytest.mark.parametrize("apply", [(), ("--apply",)], ids=["preview", "applied"])
    def test_a_broker_without_a_report_is_not_picked(self, apply: tuple[str, ...], pulsar: FakePulsar, config: Path):
        """It has no score; another broker is picked, and where none is left the refusal names it."""
        pulsar.fault("/load-report", SILENCE, broker=pulsar.ids[2])
        found = lbd("unload", HOT[0], *apply, "--config", config)
        assert (found.exit_code, pulsar.ids[1] in found.stdout, pulsar.ids[2] in found.stdout) == (0, True, False)

        pulsar.fault("/load-report", SILENCE, broker=pulsar.ids[1])
        found = lbd("unload", HOT[1], *apply, "--config", config)
        assert found.exit_code == 4
        assert f"{HOT[1]}: no other broker may have it: report-missing: " in found.output

    def test_where_nobody_may_have_it_nothing_is_done(self, pulsar: FakePulsar, config: Path):
        """Exit 4, with the reason of each broker."""
        pulsar.sample(80.0, 84.0, 84.0)
        found = lbd("unload", HOT[0], "--apply", "--config", config)
        assert found.exit_code == 4
        assert (
            f"Refused: {HOT[0]}: no other broker may have it: destination-overloaded: {pulsar.ids[1]}" in found.stdout
        )
        assert pulsar.owners[HOT[0]] == pulsar.ids[0]

    def test_a_namespace_is_emptied_as_far_as_limits_go(self, pulsar: FakePulsar, config: Path):
        """One line a bundle, a sum, and exit 4 for what was refused."""
        found = lbd("unload", "t/n", "--apply", "--config", config)
        lines = found.stdout.splitlines()
        landed = [line for line in lines[:-1] if ": landed in " in line]
        assert found.exit_code == 4
        assert lines[-1] == f"t/n: {len(landed)} of 10 landed, {10 - len(landed)} refused, 0 failed."
        moved = dict.fromkeys(HOT, pulsar.ids[0]) | {WARM: pulsar.ids[1], COLD: pulsar.ids[2]}
        assert len(landed) == sum(pulsar.owners[bundle] != owner for bundle, owner in moved.items())
        assert len(landed) >= 3

    def test_a_namespace_through_the_running_lbd(self, pulsar: FakePulsar, config: Path):
        """Each bundle is a request of its own; what the named broker has already is left out."""
        with running(config):
            found = lbd(
                "unload",
                "t/n",
                "--apply",
                "--to",
                pulsar.ids[2].partition(":")[0],
                "--format",
                "json",
                "--config",
                config,
            )
        told = json.loads(found.stdout)
        assert {one["owner"] for one in told if one["exit_code"] == 0} == {pulsar.ids[2]}
        assert len(told) == 9

    def test_a_hold_ends_it_at_once(self, pulsar: FakePulsar, config: Path, tmp_path: Path):
        """A pause would refuse every bundle with the same words."""
        (tmp_path / "state").mkdir()
        Control(state_begun(tmp_path / "state").path).pause(Pause(time.time(), None, "", "ann"))
        found = lbd("unload", "t/n", "--apply", "--config", config)
        assert found.exit_code == 4
        assert (
            found.stdout.splitlines()[-1] == "t/n: 0 of 10 landed, 1 refused, 0 failed; stopped, 9 not tried: paused."
        )
        assert pulsar.asked("/unload") == []

    def test_a_spent_budget_ends_it(self, pulsar: FakePulsar, config: Path):
        """Whatever broker is picked, the hour's unloads are used."""
        values = yaml.safe_load(config.read_text())
        values["guardrails"]["max_unloads_per_hour"] = 2
        config.write_text(yaml.safe_dump(values))
        found = lbd("unload", "t/n", "--apply", "--config", config)
        told = "t/n: 2 of 10 landed, 1 refused, 0 failed; stopped, 7 not tried: unloads-per-hour."
        assert (found.exit_code, found.stdout.splitlines()[-1]) == (4, told)
        assert len(pulsar.asked("/unload", "PUT")) > 0

    def test_two_failures_in_a_row_end_it(self, pulsar: FakePulsar, config: Path):
        """Bundles that land elsewhere twice: something is wrong there."""
        pulsar.steals.update({bundle: [pulsar.ids[1]] * 3 for bundle in HOT})
        found = lbd("unload", "t/n", "--apply", "--to", pulsar.ids[2], "--config", config)
        assert found.exit_code == 5
        assert found.stdout.splitlines()[-1].endswith("2 failed; stopped, 7 not tried: 2 in a row failed.")

    @pytest.mark.parametrize(
        ("words", "code", "told"),
        [
            (["t/nope"], 2, "t/nope: cluster c has no such namespace"),
            (["t/0x0"], 2, "'t/0x0' is no bundle, topic or namespace"),
            (["t/new"], 4, "t/new: nobody owns a bundle of it, nothing to unload; lbd place names their brokers"),
            ([NEW[0]], 4, f"Refused: {NEW[0]}: on-no-report: no broker reports it: is it a bundle, and in use?"),
            (["t/n/0x00000000_0x00000001"], 2, "t/n/0x00000000_0x00000001 is no bundle of t/n, which has "),
            ([HOT[0], "--to", "127.0.0.9:1"], 2, "'127.0.0.9:1' is no active broker; wanted one of 127.0.0.1:"),
            ([HOT[0], "--to", "127.0.0.9"], 2, "'127.0.0.9' is no active broker; wanted one of 127.0.0.1:"),
            (["t/n", "--to", ""], 2, "--to: the broker is empty"),
        ],
    )
    def test_what_cannot_be_unloaded(self, words: list[str], code: int, told: str, pulsar: FakePulsar, config: Path):
        """One clear line, nothing done."""
        found = lbd("unload", *words, "--apply", "--config", config)
        said = (found.stderr + found.stdout).splitlines()
        assert (found.exit_code, len(said)) == (code, 1)
        assert told in said[0]
        assert pulsar.asked("/unload") == []
