"""``lbd explain``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lbd.cli.explain_text import show
from lbd.cli.options import api_option, format_option, settings_options
from lbd.cli.render import json_out
from lbd.cli.times import duration
from lbd.record.explain import Answer, Explainer
from lbd.record.named import named
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.cli.options import Read

DAY_SECONDS = 86_400.0


@click.command("explain")
@click.argument("what", required=False, metavar="[BROKER|BUNDLE|TOPIC|TURN]")
@click.option("--last", type=click.IntRange(1, 1_000_000), default=5, show_default=True, help="Tell of so many moves.")
@click.option(
    "--since", "since_seconds", callback=duration, metavar="DURATION", help="Look back so far: 15m, 2h, 7d; default 1d."
)
@api_option
@format_option
@settings_options
def explain(
    read: Read, form: str, what: str | None, last: int, since_seconds: float | None, api_url: str | None
) -> None:
    """Tell why something moved or did not: a broker (host:port), a bundle (tenant/namespace/0x..._0x...), a topic for
    its bundle, or a turn by its number, which each line of the log has; without any of them, the last turn.

    It reads the state directory alone, and asks no broker.

    \b
    Example: lbd explain broker-1:8080
    """
    settings, now = read().settings, time.time()
    if api_url is not None:
        from lbd.cli import remote  # noqa: PLC0415 - only who asks elsewhere needs what it loads

        _tell(remote.explained(remote.client(api_url, settings), what, last, since_seconds or DAY_SECONDS), form, now)
        return
    explainer = Explainer(
        settings.state_dir,
        now=now,
        since=now - (since_seconds or DAY_SECONDS),
        last=last,
        cool_down_seconds=settings.guardrails.cool_down_minutes * 60,
    )
    _tell(explainer.of(what), form, now)
    if explainer.torn_lines:
        click.echo(
            f"Note: {counted(explainer.torn_lines, 'line')} of kept turns cannot be read; passed over.", err=True
        )


def _tell(found: Answer, form: str, now: float) -> None:
    if form == "json":
        json_out(named(found))
    else:
        show(found, now)
