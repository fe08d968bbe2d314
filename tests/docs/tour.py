"""docs/tour.md and its pictures, from a session. ``python -m tests.docs.tour`` writes them."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tests.api.browser import browsing
from tests.docs.session import PORT, session
from tests.docs.snippets import ROOT

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from tests.docs.session import Session

PAGE, PICTURES = ROOT / "docs" / "tour.md", ROOT / "docs" / "tour"

HEAD = """# Tour

Five situations of an operator, with all that is typed and shown: a hot broker at night, a rolling restart, a wrong
command, a lost broker, and a forgotten pause. Everything here is real output of the commands and of the dashboard, on
the cluster of `lbd demo` with its time set forward. `python -m tests.docs.tour` makes this page, and a test
holds that it is current. To try the commands yourself, start `lbd demo --serve`."""


def hot_broker(at: Session) -> None:
    """Plan, apply, and the step to mode auto."""
    at.says("## A hot broker at night")
    at.says(
        "It is 02:02. Consumers of `orders` lag, and Ann is called. lbd has run with `mode: approve` for a week: it "
        "proposes plans, and moves nothing without a person. She looks whether the load is uneven."
    )
    at.passes(124)
    shown = at.types("lbd status")
    plan = re.search(r"lbd apply (\w+)", shown)[1]  # type: ignore[index]
    at.says("One broker is hot, and a plan waits. She reads what it would do, and what each broker would have then.")
    at.types("lbd plan")
    at.picture("plan", "The dashboard: a plan waits for approval", "a plan waits for approval", plan)
    at.says("The dashboard shows the same. The plan is small and takes only from the hot broker, so she applies it.")
    at.types(f'lbd apply {plan} --reason "orders lag"')
    at.passes(225)
    at.types("lbd history")
    at.says(
        "All five landed where they should, and their clients are back. The pair is still 30 points apart: one turn "
        "moves at most a tenth of the cluster's traffic. She no longer wants to be called for this, and lets lbd act "
        "by itself."
    )
    at.types("sudo sed -i s/approve/auto/ /etc/lbd/lbd.yaml")
    at.types("lbd config check")
    at.types("sudo systemctl reload lbd")
    at.passes(600)
    at.types("lbd status")
    at.says("Ten minutes later lbd has moved five more bundles, and the cluster is balanced. Ann goes back to bed.")


def rolling_restart(at: Session) -> None:
    """Shown first, then done, and watched from a second terminal."""
    at.says("## A rolling restart")
    at.hours(7)
    at.passes(290)
    at.says("At nine all six brokers are to get a new version. Ann looks first at the order, and at the peaks.")
    at.types("lbd rollout --all --dry-run")
    at.says(
        "All stay far below 85 points (`guardrails.max_destination_score`). She begins; the command restarts each "
        "broker when it owns nothing."
    )

    def elsewhere() -> None:
        at.passes(20)
        at.says("While it ran, a second terminal and the dashboard showed how far it was:")
        at.types("lbd status | head -n 7")
        at.picture("rollout", "The dashboard during a rollout", "2 of 6 brokers restarted")

    at.types(
        'lbd rollout --all --exec "ssh {host} sudo systemctl restart pulsar-broker"',
        during=(lambda: at.restarted == 2, elsewhere),
    )
    at.passes(30)
    at.says("And half a minute after the end:")
    at.types("lbd status | head -n 6")
    at.says(
        "Every bundle moved once or twice, instead of at each restart. The last broker has less than the others; lbd "
        "evens that out when the bundles have rested."
    )


def wrong_command(at: Session) -> None:
    """What is refused, and what was wrong and is put right."""
    at.says("## A wrong command")
    at.says("Ann is in a hurry, and wants to empty 127.0.0.2. A typing error, and a broker that does not exist:")
    at.types("lbd drian 127.0.0.2")
    at.types("lbd drain 127.0.0.7")
    at.says("The plan of the night, from the history of her shell, and a bundle that moved a moment ago:")
    (plan,) = set(re.findall(r"lbd apply (\w+)", "".join(at.text)))
    at.types(f"lbd apply {plan}")
    at.types(f"lbd unload simulated/orders/0xeaaaaaaa_0xf5555555 --to 127.0.0.2:{PORT} --apply")
    at.says("None of these did anything. The next one is valid, and wrong: it names 127.0.0.3.")
    at.types('lbd drain 127.0.0.3 --apply --reason "new disk"')
    at.types("lbd status | head -n 3")
    at.says("She sees it, releases the broker, and has it filled again.")
    at.types("lbd drain 127.0.0.3 --release")
    at.types("lbd fill 127.0.0.3 --apply")
    at.passes(60)
    at.types("lbd status | head -n 6")
    at.says(
        "Clients of these bundles have reconnected twice; nothing else came of it. Without `--apply` the drain would "
        "only have been shown."
    )


def lost_broker(at: Session) -> None:
    """Lost, sat out, back, and used again."""
    at.says("## A lost broker")
    lost = at.cluster.brokers[3]
    at.hours(1)
    at.passes(120)
    at.cluster.kill(lost)
    at.passes(15)
    at.says("The machine of 127.0.0.4 loses power. A few seconds later:")
    at.types("lbd status")
    at.says("Half a minute later its session has ended, and Pulsar has given its bundles to other brokers.")
    at.passes(45)
    at.types("lbd status | head -n 7")
    at.types("lbd explain 127.0.0.4 | head -n 4")
    at.says("lbd waits two minutes, because a broker that restarts comes back. This one does not, and lbd goes on:")
    at.passes(540)
    at.types("lbd status")
    at.says("The others carry the load. Ten minutes after the loss the machine has power again.")
    at.types("ssh 127.0.0.4 sudo systemctl start pulsar-broker")
    at.passes(60)
    at.types("lbd status | head -n 6")
    at.passes(900)
    at.types("lbd history --last 8")
    at.types("lbd status | tail -n 8")
    at.says("Nobody had to order anything.")


def forgotten_pause(at: Session) -> None:
    """Why nothing moved, who did that, and how it goes on."""
    at.says("## A forgotten pause")
    at.hours(7)
    at.passes(60)
    at.says("In the evening Ann pauses lbd for a load test.")
    at.types('lbd pause --reason "load test"')
    at.passes(60)
    at.hours(14)
    busy = at.cluster.brokers[1]
    at.cluster.scale(dict.fromkeys((one for one, owner in at.cluster.owners().items() if owner == busy), 2.0))
    at.passes(600)
    at.says("The next morning `LbdPausedTooLong` fires, and a broker is hot. Bob is called, who knows of no load test.")
    with mock.patch.dict(os.environ, {"SUDO_USER": "bob"}):
        at.types("lbd status")
        at.picture("pause", "The dashboard while lbd is paused", "load test")
        at.types('lbd doctor | grep -A 6 "^warning  blocked"')
        at.says("Both name the person and the reason. Ann says that the test is over, and Bob ends the pause.")
        at.types("lbd resume")
        at.passes(180)
        at.types("lbd status")
        at.types("lbd history --last 5")
    at.says("With `lbd pause --for 2h` lbd would have gone on by itself.")


CHAPTERS = hot_broker, rolling_restart, wrong_command, lost_broker, forgotten_pause


def page(folder: Path, browser: Chrome | None = None, pictures: Path | None = None) -> str:
    """All of it; ``folder`` is empty."""
    with session(folder, browser, pictures) as at:
        at.text.append(HEAD)
        for chapter in CHAPTERS:
            chapter(at)
        return "\n\n".join(at.text) + "\n"


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as own, browsing() as found:
        PAGE.write_text(page(Path(own), found, PICTURES))
