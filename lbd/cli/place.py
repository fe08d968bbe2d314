"""``lbd place``: show where bundles should go, as text or JSON; ``--apply`` places unowned ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lbd.cli.completion import bundles_or_namespaces
from lbd.cli.options import api_option, format_option, settings_options, timeout_option
from lbd.cli.render import plain, table
from lbd.cli.request import WITHOUT_APPLY, by, handing, print_result, reason_option
from lbd.cli.status_text import console
from lbd.errors import UsageError
from lbd.model import Result
from lbd.operations.place import ask_cluster, ask_recording, placement, target
from lbd.place.placements import DEFAULT, PLACEMENTS
from lbd.store.control import REFUSED, PlaceRequest, new_id
from lbd.text import counted, zoned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.operations.place import Report
    from lbd.place.picker import PlacementAdvice
    from lbd.store.control import PlacedBundle


NOBODY, NO_BROKER = "(nobody)", "(no broker)"


def show_report(report: Report) -> None:
    """Print a row for each bundle, then why brokers were no candidates."""
    rows = table(("bundle", "left"), ("owner", "left"), ("answer", "left"), ("why", "left"))
    for advice in report.answers:
        rows.add_row(*_row(advice, report))
    out = console()
    out.print(rows)
    for line in _excluded_reasons(report):
        out.print(Text(plain(line), "dim"))


def _row(advice: PlacementAdvice, report: Report) -> tuple[Text, ...]:
    """A row; the broker of an owned bundle is dim, because the bundle stays where it is."""
    style = "dim" if advice.owner is not None else "" if advice.placed.broker is not None else "bold red"
    named = "".join(f" {topic}" for topic in report.topics.get(advice.bundle, ()))
    why = f"{'if nobody owned it: ' if advice.owner is not None else ''}{advice.placed.reason}"
    why = report.refused.get(advice.bundle, why)
    broker = advice.placed.broker or NO_BROKER
    cells = (plain(advice.bundle + named), plain(advice.owner or NOBODY), plain(broker), plain(why))
    return Text(cells[0]), Text(cells[1]), Text(cells[2], style), Text(cells[3], "dim")


def _excluded_reasons(report: Report) -> list[str]:
    """Each reason once, with the number of bundles that it holds for unless it holds for all."""
    counts: dict[str, int] = {}
    for advice in report.answers:
        for skip in advice.candidates.left_out:
            line = f"no candidate: {skip.what}: {skip.reason.label}{f', {skip.detail}' if skip.detail else ''}"
            counts[line] = counts.get(line, 0) + 1
    total = len(report.answers)
    lines = [line if count == total else f"{line} ({count} of {total} bundles)" for line, count in counts.items()]
    return [*lines, *(f"owner not known: {bundle}: {why}" for bundle, why in report.unknown.items())]


def sentence(report: Report) -> str:
    """The summary: number of bundles, placement, and age of the data."""
    owned = sum(advice.owner is not None for advice in report.answers)
    nowhere = f", {len(report.unanswered)} that no broker may have" if report.unanswered else ""
    age = "as recorded" if report.age_seconds is None else f"{report.age_seconds:.1f} s old"
    sampled = f"brokers sample CPU every {report.sample_interval_seconds:.0f} s"
    on = f"{report.strategy} on reports of {zoned(report.taken_at)}, {age}; {sampled}"
    held = f" Refused with --apply: {report.hold}." if report.hold else ""
    not_now = f", {len(report.refused)} that could not be placed now" if report.refused else ""
    return f"{counted(len(report.answers), 'bundle')}, {owned} owned{nowhere}{not_now}; {on}.{held}"


def document(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "taken_at": report.taken_at,
        "age_seconds": None if report.age_seconds is None else round(report.age_seconds, 3),
        "cluster": report.cluster,
        "strategy": report.strategy,
        "answers": [_answer(advice, report) for advice in report.answers],
        "unknown": dict(report.unknown),
        "hold": report.hold or None,
    }


def _answer(advice: PlacementAdvice, report: Report) -> dict[str, Any]:
    left_out = [
        {"what": skip.what, "reason": skip.reason.label, "detail": skip.detail} for skip in advice.candidates.left_out
    ]
    return {
        "bundle": advice.bundle,
        "topics": list(report.topics.get(advice.bundle, ())),
        "owner": advice.owner,
        "answer": advice.placed.broker,
        "reason": advice.placed.reason,
        "refused": report.refused.get(advice.bundle),
        "choices": list(advice.placed.choices),
        "candidates": list(advice.candidates.brokers),
        "left_out": left_out,
    }


def show_placed(placed: Sequence[PlacedBundle]) -> None:
    """Print a row for each bundle: destination, result, owner."""
    rows = table(("bundle", "left"), ("answer", "left"), ("result", "left"), ("owner", "left"), ("", "left"))
    for bundle in placed:
        cells, why = (bundle.bundle, bundle.answer or NO_BROKER), plain(bundle.detail or bundle.reason)
        rows.add_row(*map(plain, cells), _result(bundle), plain(bundle.owner or NOBODY), Text(why, "dim"))
    if placed:
        console().print(rows)


def _result(bundle: PlacedBundle) -> Text:
    if bundle.result is Result.LANDED:
        return Text("placed", "green")
    if bundle.result is not None:
        return Text(bundle.result.value, "bold red")
    return Text("left alone", "dim") if bundle.owner else Text("not placed", "bold red")


# --- command


@click.command("place")
@click.argument(
    "targets", nargs=-1, required=True, metavar="BUNDLE|TOPIC|NAMESPACE...", shell_complete=bundles_or_namespaces
)
@click.option("--strategy", default=DEFAULT, show_default=True, help=f"Placement to use: {', '.join(PLACEMENTS)}.")
@click.option(
    "--recording", type=click.Path(path_type=Path), help="Use the last round of a recording instead of a cluster."
)
@click.option("--apply", "acts", is_flag=True, help="Place unowned bundles, and verify it.")
@reason_option
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
    reason: str,
    timeout_seconds: float,
    api_url: str | None,
    *,
    acts: bool,
) -> None:
    """Show which broker each bundle should be on if it were unowned, and why. Changes nothing without --apply.

    A topic (persistent://tenant/namespace/topic) stands for its bundle, or for those of its partitions, a namespace for
    all of its bundles, a scalable topic (topic://tenant/namespace/topic) for the bundle of each of its segments. With
    --apply, unowned bundles are placed on the brokers shown, by the running lbd if there is one; owned bundles stay.
    Exit code 0 all shown (or placed), 4 a bundle has no candidate or is refused (without --apply: would be), 5 one is
    not where it should be.

    \b
    Example: lbd place public/default --strategy least-long-term-message-rate
    """
    placement(strategy)
    for word in targets:
        target(word)
    settings = read().settings
    if api_url is not None and recording:
        raise UsageError("--api: asks an lbd elsewhere what it sees; leave --recording out")
    if acts and recording:
        raise UsageError("--apply: a recording is the past; leave --recording out to place bundles of a cluster")
    if reason and not acts:
        raise UsageError(WITHOUT_APPLY)
    if acts:
        name, now = new_id()
        request = PlaceRequest(name, list(targets), strategy, by(), now, now + timeout_seconds, reason)
        ctx.exit(_apply(settings, form, request, api_url))
    query = settings, targets, strategy
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        report = remote.placed(remote.client(api_url, settings), targets, strategy)
    else:
        report = ask_recording(*query, recording) if recording else ask_cluster(*query)
    print_result(form, document(report), sentence(report), lambda: show_report(report))
    ctx.exit(REFUSED if report.unanswered or report.refused or report.unknown or report.hold else 0)


def _apply(settings: Settings, form: str, request: PlaceRequest, api_url: str | None) -> int:
    with handing(settings, api_url) as hand_over:
        answer = hand_over(request)
    print_result(form, answer, answer.sentence, lambda: show_placed(answer.placed or ()))
    return answer.exit_code
