"""``lbd split``: where a bundle would be cut and what would lie on each side, and with ``--apply`` the split itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lbd.cli import split_text as text
from lbd.cli.asking import by, handing, new_id, reason_of, say
from lbd.cli.options import format_option, settings_options, timeout_option
from lbd.cli.render import json_out
from lbd.errors import UsageError
from lbd.pulsar.paths import bounds
from lbd.record.control import SplitRequest
from lbd.split.algorithms import ALGORITHMS, SPECIFIED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings
    from lbd.cycle.splitting import Chosen
    from lbd.record.control import Answer
    from lbd.split.algorithms import Algorithm
    from lbd.split.plan import Plan


def _positions(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, ...]:
    """``0x20000000,0x30000000`` or the same in decimals."""
    try:
        return tuple(int(one.strip(), 0) for one in value.split(",")) if value is not None else ()
    except ValueError as error:
        wanted = "wanted hashes such as 0x20000000,0x30000000"
        raise click.BadParameter(f"{value!r} are no positions; {wanted}", ctx, param) from error


@click.command("split")
@click.argument("bundle", required=False)
@click.option("--auto", is_flag=True, help="Every bundle above a limit of the split: section, instead of one bundle.")
@click.option("--algorithm", type=click.Choice(ALGORITHMS), help="Where to cut; default split.algorithm.")
@click.option("--positions", callback=_positions, metavar="HASH,...", help="Where specified_positions_divide cuts.")
@click.option("--apply", "applies", is_flag=True, help="Split, and read the new boundaries back. There is no way back.")
@click.option("--override", metavar="REASON", help="Pass limits such as cool-downs and a pause.")
@timeout_option
@format_option
@settings_options
@click.pass_context
def split(
    ctx: click.Context,
    read: Read,
    form: str,
    bundle: str | None,
    algorithm: Algorithm | None,
    positions: tuple[int, ...],
    override: str | None,
    timeout_seconds: float,
    *,
    auto: bool,
    applies: bool,
) -> None:
    """Print where BUNDLE would be cut, and the topics and traffic on each side; with --apply split it there.

    The parts stay at their owner until they are moved. --auto prints what the leader's rule would split.
    Exit code 0 printed or split, 4 refused or nothing to cut, 5 not split, or elsewhere than wanted.

    \b
    Example: lbd split public/default/0x00000000_0x40000000 --algorithm topic_count_equally_divide
    """
    _check_usage(bundle, algorithm, positions, override, auto=auto, applies=applies)
    reason = reason_of(override)
    settings = read().settings
    plans, document = _chosen(settings, form) if bundle is None else _one(settings, form, bundle, algorithm, positions)
    answers = _answers(settings, plans if applies else [], lambda plan: _request(plan, reason, timeout_seconds))
    if form == "json":
        json_out({**document, "applied": answers if applies else None})
    elif not applies and plans:
        say(form, text.unapplied(len(plans)))
    for answer in answers:
        say(form, answer.sentence)
    ctx.exit(max((answer.exit_code for answer in answers), default=0))


def _check_usage(
    bundle: str | None,
    algorithm: Algorithm | None,
    positions: tuple[int, ...],
    override: str | None,
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
    if override is not None and not applies:
        raise UsageError("--override passes limits of --apply; without it nothing is done")
    if bundle is not None:
        bounds(bundle)


def _one(
    settings: Settings, form: str, bundle: str, algorithm: Algorithm | None, positions: Sequence[int]
) -> tuple[list[Plan], dict[str, Any]]:
    """One bundle's plan, printed, and as JSON."""
    from lbd.daemon.splitting.planning import plan_one  # noqa: PLC0415 - a wrong usage is told without NumPy
    from lbd.split.plan import as_document  # noqa: PLC0415

    found = plan_one(settings, bundle, algorithm or settings.split.algorithm, positions)
    if form == "text":
        text.show_plan(found)
    return [found], as_document(found)


def _chosen(settings: Settings, form: str) -> tuple[list[Plan], dict[str, Any]]:
    """All that the rule chooses, printed, and as JSON."""
    from lbd.daemon.splitting.planning import plan_due  # noqa: PLC0415
    from lbd.split.plan import as_document  # noqa: PLC0415

    found: Chosen = plan_due(settings)
    if form == "text":
        text.show_chosen(found)
    splits = [{**as_document(plan), "reason": due.words} for due, plan in found.plans]
    left = [{"bundle": one.bundle, "reason": one.why} for one in found.left]
    return [plan for _, plan in found.plans], {"splits": splits, "left": left}


def _request(plan: Plan, override: str | None, timeout_seconds: float) -> SplitRequest:
    name, now = new_id()
    ends = (plan.bundle, plan.owner, plan.algorithm, plan.positions)
    return SplitRequest(name, *ends, override, by(), now, now + timeout_seconds)


def _answers(settings: Settings, plans: Sequence[Plan], ask: Callable[[Plan], SplitRequest]) -> list[Answer]:
    """What became of each, whose time begins when it is asked for; after one that was not done no other one is."""
    found: list[Answer] = []
    if plans:
        with handing(settings) as hand:
            for plan in plans:
                found.append(hand(ask(plan)))
                if found[-1].exit_code:
                    break
    return found
