"""``lbd place``: show where bundles should go, as text or JSON; ``--apply`` places unowned ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from lbd.cli.completion import bundles_or_namespaces
from lbd.cli.options import api_option, format_option, settings_options, timeout_option
from lbd.cli.render import plain, table
from lbd.cli.request import WITHOUT_APPLY, api_client, by, handing, print_answer, reason_option
from lbd.cli.status_text import common_end, console, fitted, room
from lbd.errors import UsageError
from lbd.model import Result
from lbd.operations.place import ask_cluster, ask_recording, placement, target
from lbd.place.placements import DEFAULT, PICKS, PLACEMENTS
from lbd.store.control import REFUSED, PlaceRequest, new_id
from lbd.text import counted, first_names, zoned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.operations.place import Report
    from lbd.place.picker import PlacementAdvice
    from lbd.store.control import PlacedBundle


NOBODY, NO_BROKER = "(nobody)", "(no broker)"

ROWS = 10
"""Bundles that are listed without ``--all``."""


def show_report(report: Report, *, everything: bool) -> None:
    """Print where each bundle without an owner goes, the reasons, what stays where, and what the choice rests on.

    An owned bundle stays where it is, so the broker of its advice is shown only if nothing else was requested, and it
    is listed only where it was named by its topic: that says which bundle the topic is in.
    """
    owned = [advice for advice in report.answers if advice.owner is not None]
    everything = everything or len(report.answers) == 1
    listed = [*report.unowned, *(advice for advice in owned if everything or report.topics.get(advice.bundle))]
    shown = listed if everything else listed[:ROWS]
    _print_rows([(_bundle_text(advice, report), *_destination(advice, report)) for advice in shown])
    if len(shown) < len(listed):
        _print_line(f"{len(listed) - len(shown):,} more bundles go to brokers: --all lists them.")
    if owned and not everything:
        _print_line(f"owners: {_owners(owned)}")
    reasons = _reasons(shown, report)
    basis = [_basis(report)] if reasons else []
    for line in (*reasons, *_excluded_reasons(report), *_unknown(report), *basis):
        _print_line(line)


def _print_rows(cells: Sequence[tuple[str, str, str]]) -> None:
    """Print a bundle and its broker in each row, in a style; the common end of broker names goes if rows do not fit."""
    if not cells:
        return
    end = common_end(broker for _, broker, _ in cells)
    widest = max(len(bundle) for bundle, _, _ in cells) + max(len(broker) for _, broker, _ in cells) + 2
    end = end if widest > room() else ""
    rows = table("bundle", "broker")
    for bundle, broker, style in cells:
        rows.add_row(Text(plain(bundle)), Text(plain(broker.removesuffix(end)), style))
    console().print(rows)


def _print_line(line: str) -> None:
    console().print(Text(fitted(plain(line), room()), "dim"))


def _bundle_text(advice: PlacementAdvice, report: Report) -> str:
    return " ".join((advice.bundle, *report.topics.get(advice.bundle, ())))


def _destination(advice: PlacementAdvice, report: Report) -> tuple[str, str]:
    """Where the bundle stays or goes, and the style of that."""
    if advice.owner is not None:
        return f"stays on {advice.owner}", "dim"
    if advice.bundle in report.refused:
        return "not placed now", "bold red"
    return (f"goes to {advice.placed.broker}", "") if advice.placed.broker else (NO_BROKER, "bold red")


def _owners(owned: Sequence[PlacementAdvice]) -> str:
    """The brokers with their numbers of bundles, the one with most of them first."""
    owners = Counter(advice.owner for advice in owned)
    return first_names([f"{number} on {owner}" for owner, number in owners.most_common()])


def _reasons(shown: Sequence[PlacementAdvice], report: Report) -> list[str]:
    """Each reason once, with its bundles unless it is that of all; of an owned bundle only if it is the only one."""
    if len(report.answers) == 1 and report.answers[0].owner is not None:
        (advice,) = report.answers
        return [f"without an owner it would go to {advice.placed.broker or NO_BROKER}: {advice.placed.reason}"]
    lines = Counter(
        f"not placed now: {report.refused[advice.bundle]}"
        if advice.bundle in report.refused
        else f"{advice.placed.broker}: {advice.placed.reason}"
        for advice in shown
        if advice.owner is None and advice.placed.broker is not None
    )
    return [f"{line} ({counted(number, 'bundle')})" if len(shown) > 1 else line for line, number in lines.items()]


def _excluded_reasons(report: Report) -> list[str]:
    """Each reason once, with the number of bundles that it holds for unless it holds for all."""
    counts: dict[str, int] = {}
    for advice in report.answers:
        for skip in advice.candidates.left_out:
            line = f"no candidate: {skip.what}: {skip.reason.label}{f', {skip.detail}' if skip.detail else ''}"
            counts[line] = counts.get(line, 0) + 1
    total = len(report.answers)
    return [line if count == total else f"{line} ({count} of {total} bundles)" for line, count in counts.items()]


def _unknown(report: Report) -> list[str]:
    return [f"owner not known: {bundle}: {why}" for bundle, why in report.unknown.items()]


def sentence(report: Report) -> str:
    """The answer: which bundles stay, which ones ``--apply`` would place, and what is in the way."""
    total, unowned = len(report.answers), len(report.unowned)
    owned, placed = total - unowned, unowned - len(report.unanswered) - len(report.refused)
    parts = []
    if owned:
        parts.append(
            f"{counted(owned, 'bundle')} {'has an owner and stays' if owned == 1 else 'have an owner and stay'}"
        )
    if placed and not report.hold:
        parts.append(f"{counted(placed, 'bundle')} without an owner: --apply places {'it' if placed == 1 else 'them'}")
    if placed and report.hold:
        parts.append(f"{counted(placed, 'bundle')} without an owner; --apply is refused now: {report.hold}")
    if report.refused:
        parts.append(f"{counted(len(report.refused), 'bundle')} without an owner that cannot be placed now")
    if report.unanswered:
        parts.append(f"{counted(len(report.unanswered), 'bundle')} without an owner that no broker may have")
    if report.unknown:
        parts.append(f"{counted(len(report.unknown), 'bundle')} whose owner is not known")
    nothing = "" if unowned or report.unknown else "; nothing is to be placed"
    return f"{'; '.join(parts)}{nothing}."


def _basis(report: Report) -> str:
    """The placement, and the age of the data."""
    age = "as recorded" if report.age_seconds is None else f"{report.age_seconds:.1f} s old"
    sampled = f"brokers sample CPU every {report.sample_interval_seconds:.0f} s"
    on = f"reports of {zoned(report.taken_at)}, {age}; {sampled}"
    return f"strategy {report.strategy}: {PICKS[report.strategy]}; {on}"


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


def show_placed(placed: Sequence[PlacedBundle], *, everything: bool) -> None:
    """Print what came of each bundle, failures first; of those that were left alone only with ``everything``."""
    listed = sorted(placed, key=lambda bundle: (bundle.result is Result.LANDED, bundle.owner is not None))
    listed = [bundle for bundle in listed if everything or bundle.result is not None or bundle.owner is None]
    shown = listed if everything else listed[:ROWS]
    _print_rows([(bundle.bundle, *_result(bundle)) for bundle in shown])
    if len(shown) < len(listed):
        _print_line(f"{len(listed) - len(shown):,} more bundles: --all lists them.")
    lines = Counter(bundle.detail or bundle.reason for bundle in shown if bundle.result is not Result.LANDED)
    for line, number in lines.items():
        _print_line(f"{line} ({counted(number, 'bundle')})")


def _result(bundle: PlacedBundle) -> tuple[str, str]:
    """Result of a bundle with its broker, and the style of that."""
    if bundle.result is Result.LANDED:
        return f"placed on {bundle.owner}", "green"
    if bundle.result is not None:
        return f"{bundle.result.value}: {bundle.owner or NOBODY}", "bold red"
    return (f"stays on {bundle.owner}", "dim") if bundle.owner else ("not placed", "bold red")


# --- command


@click.command("place")
@click.argument(
    "targets", nargs=-1, required=True, metavar="BUNDLE|TOPIC|NAMESPACE...", shell_complete=bundles_or_namespaces
)
@click.option("--strategy", default=DEFAULT, show_default=True, help=f"Placement to use: {', '.join(PLACEMENTS)}.")
@click.option(
    "--recording", type=click.Path(path_type=Path), help="Use the last round of a recording instead of a cluster."
)
@click.option("--all", "everything", is_flag=True, help="List every bundle, also those that stay.")
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
    everything: bool,
) -> None:
    """Show which broker each bundle without an owner goes to, and why. Changes nothing without --apply.

    A bundle that has an owner stays there, wherever else it might go: lbd place moves nothing (lbd unload does).

    A topic (persistent://tenant/namespace/topic) stands for its bundle, or for those of its partitions, a namespace for
    all of its bundles, a scalable topic (topic://tenant/namespace/topic) for the bundle of each of its segments. With
    --apply, unowned bundles are placed on the brokers shown, by the running lbd if there is one.
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
        ctx.exit(_apply(settings, form, request, api_url, everything=everything))
    query = settings, targets, strategy
    if (client := api_client(settings, api_url)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        report = remote.placed(client, targets, strategy)
    else:
        report = ask_recording(*query, recording) if recording else ask_cluster(*query)
    print_answer(form, document(report), sentence(report), lambda: show_report(report, everything=everything))
    ctx.exit(REFUSED if report.unanswered or report.refused or report.unknown or report.hold else 0)


def _apply(settings: Settings, form: str, request: PlaceRequest, api_url: str | None, *, everything: bool) -> int:
    with handing(settings, api_url) as hand_over:
        answer = hand_over(request)
    print_answer(form, answer, answer.sentence, lambda: show_placed(answer.placed or (), everything=everything))
    return answer.exit_code
