"""``lbd place``: where bundles should go, and why; ``--apply`` places those that nobody owns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lbd.cli import place_text as text
from lbd.cli.asking import by, handing, new_id, say
from lbd.cli.options import api_option, format_option, settings_options, timeout_option
from lbd.cli.render import json_out
from lbd.daemon.answering import ask_cluster, ask_recording, placement
from lbd.daemon.targets import target
from lbd.errors import UsageError
from lbd.place import DEFAULT, PLACEMENTS
from lbd.record.control import REFUSED, PlaceRequest

if TYPE_CHECKING:
    from lbd.cli.options import Read
    from lbd.config import Settings


@click.command("place")
@click.argument("targets", nargs=-1, required=True, metavar="BUNDLE|TOPIC|NAMESPACE...")
@click.option("--strategy", default=DEFAULT, show_default=True, help=f"One of {', '.join(PLACEMENTS)}.")
@click.option("--recording", type=click.Path(path_type=Path), help="Ask the last round of a recording, no cluster.")
@click.option("--apply", "acts", is_flag=True, help="Place the bundles that nobody owns, and prove it.")
@api_option
@timeout_option
@format_option
@settings_options
@click.pass_context
def place(
    ctx: click.Context,
    read: Read,
    form: str,
    targets: tuple[str, ...],
    strategy: str,
    recording: Path | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    acts: bool,
) -> None:
    """Tell which broker each bundle should be on if nobody owned it, and why; change nothing.

    A topic (persistent://tenant/namespace/topic) stands for the bundle that it falls into, a namespace for all of its
    bundles. With --apply those that nobody owns are placed on the brokers answered, through the running lbd where there
    is one; those that somebody owns are left alone.
    Exit code 0 all answered (placed), 4 a bundle may be nowhere or was refused, 5 one is not where it should be.

    \b
    Example: lbd place public/default --strategy least-long-term-message-rate
    """
    placement(strategy)
    for word in targets:
        target(word)
    settings = read().settings
    if api_url is not None and (acts or recording):
        raise UsageError("--api: asks an lbd elsewhere what it sees; leave --apply and --recording out")
    if acts and recording:
        raise UsageError("--apply: a recording is the past; leave --recording out to place bundles of a cluster")
    if acts:
        ctx.exit(_apply(settings, form, targets, strategy, timeout_seconds))
    asked = settings, targets, strategy
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

        found = remote.placed(remote.client(api_url, settings), targets, strategy)
    else:
        found = ask_recording(*asked, recording) if recording else ask_cluster(*asked)
    if form == "json":
        json_out(text.document(found))
    else:
        text.show_report(found)
    say(form, text.sentence(found))
    ctx.exit(REFUSED if found.unanswered else 0)


def _apply(settings: Settings, form: str, targets: tuple[str, ...], strategy: str, timeout_seconds: float) -> int:
    name, now = new_id()
    request = PlaceRequest(name, list(targets), strategy, by(), now, now + timeout_seconds)
    with handing(settings) as hand_over:
        answer = hand_over(request)
    if form == "json":
        json_out(answer)
    else:
        text.show_placed(answer.placed or ())
    say(form, answer.sentence)
    return answer.exit_code
