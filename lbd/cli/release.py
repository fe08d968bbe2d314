"""``lbd release``."""

from __future__ import annotations

import click

from lbd.cli.options import loaded, settings_options
from lbd.daemon import taking_over


@click.command("release")
@settings_options
@click.pass_context
def release(ctx: click.Context, config_file: str | None, admin_urls: tuple[str, ...]) -> None:
    """Give the brokers' own shedding back, exactly as it was before lbd took it over.

    For in_broker_shedding: take-over; stop lbd first. What was there is noted in take-over.json in the state directory.
    An override that somebody else has changed meanwhile is left as it is.

    \b
    Example: lbd release --config /etc/lbd/lbd.yaml
    """
    click.echo(taking_over.release(loaded(ctx, config_file, admin_urls).settings))
