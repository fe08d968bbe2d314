"""``lbd plan`` and ``lbd apply``: the plan that waits for a person, or of now, and exactly its moves."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import msgspec
from rich.text import Text

from lbd.api.shapes import Applied
from lbd.cli.completion import plans
from lbd.cli.options import remote_options, timeout_option
from lbd.cli.render import amount, json_out, plain, shared_notes, table, without_notes
from lbd.cli.request import by, lbd_client, print_note, read, reason_option, send_command
from lbd.cli.status_text import console
from lbd.errors import ObserveError, RefusedError
from lbd.fields import derived
from lbd.model import Result
from lbd.operations.dry import Fixed, live_parts, order_parts
from lbd.operations.parts import observing
from lbd.operations.planned import plan_refusal
from lbd.store.control import REFUSED, PlannedMove, PlanRequest, RequestResult, new_id
from lbd.store.predictions import predictions
from lbd.text import counted, zoned
from lbd.turn.record import PlanDocument, plan_document, proposal
from lbd.turn.turn import turn

if TYPE_CHECKING:
    from lbd.cli.options import Read
    from lbd.config import Settings


def _plan_of_now(settings: Settings) -> PlanDocument:
    """Plan of a dry run. It is not stored, so it does not expire."""
    with observing(settings) as observer:
        record = turn(live_parts(settings, observer))
        if record.error is not None or record.observation is None:
            raise record.error or ObserveError(record.sentence)
        offered = proposal(record)
        refused = plan_refusal(offered, replace(order_parts(settings, observer), observer=Fixed(record.observation)))
    past = predictions(settings.state_dir, time.time())
    plan = msgspec.convert(plan_document(record, offered, refused, past, proposed=False), PlanDocument)
    return msgspec.structs.replace(plan, expires_at=None, skips=msgspec.UNSET)


def _present_plan(settings: Settings, api_url: str | None) -> PlanDocument:
    """The plan that waits for approval, or what the next turn would move."""
    client = lbd_client(settings, api_url)
    return _plan_of_now(settings) if client is None else read(client.get("plan", skips="false"), PlanDocument)


@click.command("plan")
@remote_options
@click.pass_context
def plan(ctx: click.Context, read: Read, form: str, api_url: str | None) -> None:
    """Show the plan that the running lbd proposes (mode: approve), with its id, or what a turn would move now.

    Each move has its reason, the number of clients that will reconnect and, where the settings give moves a cost, its
    points; each broker its score now and after.
    Exit code 0 shown, 4 lbd apply would refuse it now; the last line says why.

    \b
    Example: lbd plan
    """
    settings = read().settings
    shown = _present_plan(settings, api_url)
    if form == "json":
        json_out(shown)
    else:
        print_plan(shown)
    ctx.exit(REFUSED if shown.refused is not None else 0)


COST = "cost: points of guardrails.move_costs and guardrails.topic_costs; cheaper bundles go first"


def print_plan(plan: PlanDocument) -> None:
    """Print a plan as text; the notes that several reasons share stand once below the moves."""
    out, shared = console(), shared_notes(move.reason for move in plan.unloads)
    dear = any(move.cost for move in plan.unloads)
    for source, destination in dict.fromkeys((move.source, move.destination) for move in plan.unloads):
        out.print(Text(plain(f"{source} -> {destination}"), "bold"))
        rows = table("  unload", ">msg/s", ">MB/s", ">clients", *([">cost"] if dear else []), "")
        for move in plan.unloads:
            if (move.source, move.destination) == (source, destination):
                numbers = amount(move.msg_rate), amount(move.throughput, 1e6, 1), f"{move.clients:,}"
                cost = (f"{move.cost:,.10g}",) if dear else ()
                reason = Text(plain(without_notes(move.reason, shared)), "dim")
                rows.add_row(f"  {plain(move.bundle)}", *numbers, *cost, reason)
        out.print(rows)
    if dear:
        out.print(Text(COST, "dim"))
    for note, number in shared.items():
        out.print(Text(plain(f"{number} of {counted(len(plan.unloads), 'bundle')}: {note}"), "dim"))
    if plan.unloads:
        scores = table("broker", ">score", ">after")
        for broker in plan.plan_scores:
            scores.add_row(plain(broker.id), amount(broker.score, digits=1), amount(broker.after, digits=1))
        out.print(scores)
        if plan.gap_after_points is not None:
            text = f"{plan.gap_after_points:.1f} points between highest and lowest when all have landed"
            out.print(Text(text, "dim"))
        out.print(Text(plan.predictions.summary, "dim"))
    out.print(Text(plain(_sentence(plan)), "bold"))


def _sentence(plan: PlanDocument) -> str:
    if not plan.unloads:
        return plan.summary
    moves, clients = counted(len(plan.unloads), "bundle"), counted(plan.clients, "client")
    what, order = f"Plan {plan.id}: {moves}, {clients} reconnect", f"lbd apply {plan.id}"
    order = f"{order} is refused now: {plan.refused}" if plan.refused is not None else order
    if not plan.proposed:
        now = order if plan.refused is not None else f"To move it now: {order}"
        return f"{what}. Nothing waits for approval: this would move if the imbalance lasts. {now}"
    until = zoned(plan.expires_at or plan.made_at)
    last = "" if plan.id in plan.summary else f". The last turn: {plan.summary}"
    approved = f", is approved by {', '.join(plan.approved_by)}" if plan.approved_by else ""
    return f"{what}. Proposed at {zoned(plan.made_at)}{approved}, waits for approval until {until}: {order}{last}"


@click.command("apply")
@click.argument("name", metavar="ID", shell_complete=plans)
@reason_option
@timeout_option
@remote_options
@click.pass_context
def apply(
    ctx: click.Context,
    read: Read,
    form: str,
    name: str,
    reason: str,
    timeout_seconds: float,
    api_url: str | None,
) -> None:
    """Make exactly the moves of the plan ID that lbd plan shows, or none of them.

    Each move is judged again as an unload by hand is. If one is no longer possible, nothing is moved, and each such
    move is listed with its reason. If no lbd runs, the plan must be the one that lbd plan shows now.
    With approvers: 2 the first person's apply is noted and moves nothing; the second one makes the moves.
    Exit code 0 all landed, or noted, 4 refused, 5 one failed, landed elsewhere, or no response in time.

    \b
    Example: lbd apply 1f3a9c2e --reason "evening peak"
    """
    settings, (key, now) = read().settings, new_id()
    request = PlanRequest(key, name, [], reason, by(), now, now + timeout_seconds)
    applied = _applied(settings, request, api_url)
    if form == "json":
        json_out(applied)
    for move in applied.moves:
        if move.result is not Result.LANDED:
            print_note(
                form, f"{move.bundle}: {move.result.value + ', ' if move.result is not None else ''}{move.detail}"
            )
    print_note(form, applied.sentence)
    ctx.exit(applied.exit_code)


def _applied(settings: Settings, request: PlanRequest, api_url: str | None) -> Applied:
    """The result of the plan, by the lbd that runs, else by this process."""
    if (client := lbd_client(settings, api_url)) is not None:
        return read(send_command(client, request), Applied)
    done = _alone(settings, request)
    return derived(Applied, done, moves=done.placed or [])


def _alone(settings: Settings, request: PlanRequest) -> RequestResult:
    """The result of a plan that this process makes again, and applies if it is the one that was asked for."""
    from lbd.daemon import standalone  # noqa: PLC0415 - a running lbd needs no parts that act

    if settings.approvers > 1:
        raise RefusedError("approvers: 2 needs a running lbd, which keeps the first name until the second comes")
    plan = _plan_of_now(settings)
    if plan.id != request.plan or not plan.unloads:
        now = f"the plan of now is {plan.id}" if plan.unloads else "now nothing is planned"
        raise RefusedError(f"plan {request.plan:.100} is not known; {now} (lbd plan)")
    moves = [derived(PlannedMove, move) for move in plan.unloads]
    with standalone.working(settings) as work:
        return work(msgspec.structs.replace(request, moves=moves))
