"""``lbd split``: show where a bundle would be cut, and the topics and traffic on each side; ``--apply`` splits it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich.text import Text

from lbd.cli.completion import bundles
from lbd.cli.options import override_option, remote_options, timeout_option
from lbd.cli.render import amount, json_out, plain, table
from lbd.cli.request import WITHOUT_APPLY, api_client, by, handing, override_reason, print_note, read, reason_option
from lbd.cli.status_text import console
from lbd.errors import UsageError
from lbd.model import bundle_range
from lbd.pulsar.paths import bounds
from lbd.split.plan import ALGORITHMS, SPECIFIED, DueSplitDocument, DueSplitsDocument, SplitDocument
from lbd.store.control import REFUSED, SplitRequest, new_id
from lbd.text import local, zone_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.split.plan import Algorithm, PartDocument
    from lbd.store.control import RequestResult
    from lbd.store.moves import SplitRecord


LEFT_SHOWN = 10


def show_plan(plan: SplitDocument) -> None:
    """Print the bundle and the parts after the split."""
    out = console()
    why = plan.reason if isinstance(plan, DueSplitDocument) else ""
    heading = f"{plan.bundle} at {plan.owner}{why and f': {why}'}"
    out.print(Text(plain(heading), "bold"))
    out.print(Text(f"{plan.algorithm} cuts at {', '.join(plan.positions)}"))
    rows = table("", "range", ">topics", ">msg/s", ">MB/s")
    rows.add_column("busiest topic", no_wrap=True)
    rows.add_row("before", *_row(plan.before))
    for number, part in enumerate(plan.after):
        rows.add_row("" if number else "after", *_row(part), style="" if part.topics else "dim")
    out.print(rows)
    if empty := [bundle_range(part.bundle) for part in plan.after if not part.topics]:
        out.print(Text(f"No topic falls into {', '.join(empty)}: nothing is gained there."))


def print_due_splits(due: DueSplitsDocument) -> None:
    """Print what would be split, and the bundles above a limit that are skipped, with the reason."""
    out = console()
    for plan in due.splits:
        show_plan(plan)
    for skipped in due.left[:LEFT_SHOWN]:
        out.print(Text(plain(f"not split: {skipped.bundle}: {skipped.reason}")))
    if len(due.left) > LEFT_SHOWN:
        out.print(Text(f"and {len(due.left) - LEFT_SHOWN} more (--format json names all)"))
    if not due.splits:
        more = f"; {len(due.left)} above a limit are left" if due.left else ": none is above a limit"
        out.print(Text(f"Nothing to split{more}.", "bold"))


UNAPPLIED = "Would split 1 bundle; --apply does it. A split cannot be taken back."
"""The note on what --apply would do."""


def _row(part: PartDocument) -> tuple[str, ...]:
    topic = plain(part.busiest_topic).rpartition("/")[2] if part.busiest_topic is not None else "-"
    rates = (amount(part.msg_rate), amount(part.throughput, 1e6, 1))
    return bundle_range(part.bundle), f"{part.topics:,}", *rates, topic


def show_splits(splits: Sequence[SplitRecord], form: str) -> None:
    """Print a line for each split of the journal, the newest last."""
    if form == "json":
        json_out([_document(split) for split in splits])
        return
    if not splits:
        click.echo("No splits.")
        return
    columns = (f"time ({zone_names(split.at for split in splits)})", "bundle", "at", "result", "parts", "why")
    rows = table(*columns)
    for split in splits:
        outcome, cut = split.end, split.cut
        result, parts = (outcome.result.value, len(outcome.parts)) if outcome is not None else ("open", 1)
        why = "; ".join(filter(None, (outcome.detail if outcome is not None else "", cut.reason)))
        rows.add_row(local(split.at), plain(cut.bundle), plain(cut.owner), result, str(parts), plain(why))
    console().print(rows)


def _document(split: SplitRecord) -> dict[str, object]:
    cut = split.cut
    request = {"bundle": cut.bundle, "owner": cut.owner, "algorithm": cut.algorithm, "reason": cut.reason}
    positions = [f"0x{position:08x}" for position in cut.positions]
    return {"at": split.at, **request, "positions": positions, "outcome": msgspec.to_builtins(split.end)}


# --- command


def _positions(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """A click callback: the positions of ``0x20000000,0x30000000``, or the same in decimals."""
    try:
        return tuple(int(position.strip(), 0) for position in value.split(",")) if value is not None else ()
    except ValueError as error:
        example = "wanted hashes such as 0x20000000,0x30000000"
        raise click.BadParameter(f"{value!r} are no positions; {example}", ctx, param) from error


@click.command("split")
@click.argument("bundle", required=False, shell_complete=bundles)
@click.option("--auto", is_flag=True, help="All bundles above a limit of the split: section, instead of one.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="How to choose the cut.  [default: split.algorithm]")
@click.option(
    "--positions", callback=_positions, metavar="HASH,...", help="Cut positions of specified_positions_divide."
)
@click.option("--apply", "applies", is_flag=True, help="Split, and read the new boundaries back. Cannot be undone.")
@reason_option
@override_option
@timeout_option
@remote_options
@click.pass_context
def split(
    ctx: click.Context,
    read: Read,
    form: str,
    bundle: str | None,
    algorithm: Algorithm | None,
    positions: tuple[int, ...],
    reason: str,
    override: str | None,
    timeout_seconds: float,
    api_url: str | None,
    *,
    auto: bool,
    applies: bool,
) -> None:
    """Show where BUNDLE would be cut, and the topics and traffic on each side. With --apply, split it there.

    The parts stay at their owner until they are moved. --auto shows the bundles that the leader's rule would split.
    Exit code 0 shown or split, 4 refused or nothing to cut, 5 not split, or split elsewhere.

    \b
    Example: lbd split public/default/0x00000000_0x40000000 --algorithm topic_count_equally_divide
    """
    _check_usage(bundle, algorithm, positions, override, reason, auto=auto, applies=applies)
    passes, settings = override_reason(override), read().settings
    document = _plans(settings, bundle, algorithm, positions, api_url)
    plans: Sequence[SplitDocument] = document.splits if isinstance(document, DueSplitsDocument) else (document,)
    if form == "text" and isinstance(document, DueSplitsDocument):
        print_due_splits(document)
    elif form == "text":
        show_plan(plans[0])
    answers: list[RequestResult] = []
    if applies and plans:
        with handing(settings, api_url) as hand:
            answers = [hand(_request(plans[0], passes, reason, timeout_seconds))]
    if form == "json":
        json_out({**msgspec.to_builtins(document), "applied": answers if applies else None})
    elif not applies and plans and plans[0].refused is None:
        print_note(form, UNAPPLIED)
    for answer in answers:
        print_note(form, answer.sentence)
    if not applies and plans and plans[0].refused is not None:
        print_note(form, f"Refused: {plans[0].refused}.")
        ctx.exit(REFUSED)
    ctx.exit(max((answer.exit_code for answer in answers), default=0))


def _check_usage(
    bundle: str | None,
    algorithm: Algorithm | None,
    positions: tuple[int, ...],
    override: str | None,
    reason: str,
    *,
    auto: bool,
    applies: bool,
) -> None:
    if auto == (bundle is not None):
        raise UsageError("split: wanted a BUNDLE, or --auto for all that are above a limit")
    if auto and (algorithm or positions):
        raise UsageError("--auto goes by the split: section; --algorithm and --positions are for one bundle")
    if (algorithm == SPECIFIED) != bool(positions):
        raise UsageError(f"--positions go with --algorithm {SPECIFIED}, and it wants them")
    if (override is not None or reason) and not applies:
        raise UsageError(WITHOUT_APPLY)
    if bundle is not None:
        bounds(bundle)


def _plans(
    settings: Settings, bundle: str | None, algorithm: Algorithm | None, positions: Sequence[int], api_url: str | None
) -> SplitDocument | DueSplitsDocument:
    """The plan of one bundle, or of all that the rule chooses."""
    if (client := api_client(settings, api_url)) is not None:
        if bundle is None:
            return read(client.get("split"), DueSplitsDocument)
        query: dict[str, Any] = {"positions": list(positions)} | ({"algorithm": algorithm} if algorithm else {})
        return read(client.get("split", *bundle.split("/"), **query), SplitDocument)
    from lbd.operations.split import plan_due_here, plan_one  # noqa: PLC0415 - usage errors need no NumPy

    if bundle is None:
        return plan_due_here(settings)
    return plan_one(settings, bundle, algorithm or settings.split.algorithm, positions)


def _request(plan: SplitDocument, override: str | None, reason: str, timeout_seconds: float) -> SplitRequest:
    name, now = new_id()
    positions = tuple(int(position, 16) for position in plan.positions)
    ends = (plan.bundle, plan.owner, plan.algorithm, positions)
    return SplitRequest(name, *ends, override, by(), now, now + timeout_seconds, reason)
