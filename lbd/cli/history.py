"""``lbd history export`` and ``lbd history import``: between history and recordings."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lbd.cli.options import settings_options
from lbd.cli.times import duration
from lbd.record.history import FOLDER
from lbd.words import counted

if TYPE_CHECKING:
    from lbd.cli.options import Read

ALL_SECONDS = 3_660 * 86_400.0
"""What no history is older than."""


@click.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--since", "since_seconds", callback=duration, metavar="DURATION", help="Only the last 2h, 7d, ...")
@click.option("--history", "root", type=click.Path(path_type=Path), metavar="DIR", help="Default: that of state_dir.")
@settings_options
def export(read: Read, file: Path, since_seconds: float | None, root: Path | None) -> None:
    """Write history as a recording, FILE (.jsonl or .jsonl.gz).

    lbd replay reads it; rates of bundles are as exact as history.step keeps them.

    \b
    Example: lbd history export --since 1d monday.jsonl.gz
    """
    from lbd.daemon.exchange import exported  # noqa: PLC0415 - pyarrow would make lbd history wait

    now = time.time()
    settings = read().settings
    kept = exported(root or settings.state_dir / FOLDER, file, settings, now - (since_seconds or ALL_SECONDS), now)
    click.echo(f"{counted(kept, 'round')} in {file}", err=True)


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--history", "root", type=click.Path(path_type=Path), metavar="DIR", help="Default: that of state_dir.")
@settings_options
def import_(read: Read, files: tuple[Path, ...], root: Path | None) -> None:
    """Add recordings to history. While lbd run writes there it is refused; name another DIR.

    \b
    Example: lbd history import --history ./history monday.jsonl.gz
    """
    from lbd.daemon.exchange import imported  # noqa: PLC0415 - see export

    settings = read().settings
    kept = imported(files, root or settings.state_dir / FOLDER, settings)
    click.echo(f"{counted(kept, 'round')} in {root or settings.state_dir / FOLDER}", err=True)
