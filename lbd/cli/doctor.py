"""``lbd doctor``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from lbd.cli.options import format_option, loaded, settings_options
from lbd.cli.render import json_out
from lbd.daemon.doctor import examine

if TYPE_CHECKING:
    from lbd.daemon.doctor import Finding

STYLES = {"wrong": "bold red", "warning": "yellow", "note": "cyan"}


@click.command("doctor")
@format_option
@settings_options
@click.pass_context
def doctor(ctx: click.Context, config_file: str | None, admin_urls: tuple[str, ...], form: str) -> None:
    """Check the cluster and what lbd keeps of it; change nothing.

    Each finding says what was seen, why it matters, and what to do. Exit code 0 also when there are some.

    \b
    Example: lbd doctor --admin-url http://127.0.0.1:8080
    """
    found = list(examine(loaded(ctx, config_file, admin_urls).settings))
    if form == "json":
        json_out([asdict(one) for one in found])
        return
    console = Console(highlight=False, soft_wrap=True)
    for one in found:
        _show(console, one)
    console.print(Text(f"{len(found)} findings." if found else "Nothing found.", "bold"))


def _show(console: Console, one: Finding) -> None:
    console.print(Text(f"{one.level}: {one.about}: ", STYLES[one.level]).append(one.seen, "default"))
    console.print(Text(f"    {one.why}; {one.todo}.", "dim"))
