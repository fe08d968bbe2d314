"""``lbd doctor``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.text import Text

from lbd.cli.options import format_option, settings_options
from lbd.cli.render import json_out, plain
from lbd.cli.status_text import console, fitted, room
from lbd.doctor.checklist import LEVELS, examine
from lbd.errors import ObserveError, RefusedError
from lbd.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from lbd.cli.options import Read
    from lbd.doctor.checklist import Checkup

STYLES = {"problem": "bold red", "warning": "yellow", "ok": "green"}
WIDTH, INDENT = 100, " " * 9


@click.command("doctor")
@click.option("--notify", is_flag=True, help="Also send a test message to the webhook of notify.url_file.")
@format_option
@settings_options
@click.pass_context
def doctor(ctx: click.Context, read: Read, form: str, *, notify: bool) -> None:
    """Check the cluster, lbd's settings and its state. Changes nothing.

    Each finding names what was seen, why it matters, and how to fix it. Exit code 0 without problems (warnings are
    allowed), 4 with problems, 3 if the cluster cannot be observed.

    \b
    Example: lbd doctor --admin-url http://127.0.0.1:8080
    """
    checkup = examine(read().settings, notify=notify)
    if form == "json":
        counts = {level: checkup.count(level) for level in LEVELS}
        findings = [asdict(finding) for finding in checkup.findings]
        json_out(
            {"findings": findings, "summary": {**counts, "observed": checkup.observed, "requests": checkup.requests}}
        )
    else:
        _show(console(), checkup)
    if not checkup.observed:
        ctx.exit(ObserveError.exit_code)
    if checkup.count("problem"):
        ctx.exit(RefusedError.exit_code)


def _show(out: Console, checkup: Checkup) -> None:
    """Print a summary line, then problems and warnings in full, and the rest in one line each."""
    counts = ", ".join(_counted(checkup.count(level), level) for level in LEVELS)
    style = next(STYLES[level] for level in LEVELS if checkup.count(level) or level == "ok")
    out.print(Text(f"{counts}; {counted(checkup.requests, 'request')}, nothing changed.", style))
    for finding in checkup.findings:
        width = room() if finding.level == "ok" else min(WIDTH, room())
        line = fitted(f"{finding.level:<8} {finding.check}: {plain(finding.seen)}", width, len(INDENT))
        out.print(Text(line[: len(INDENT)], STYLES[finding.level]).append(line[len(INDENT) :], "default"))
        if finding.level != "ok":
            advice = (f"{INDENT}why: {plain(finding.why)}", f"{INDENT}do: {plain(finding.todo)}")
            out.print(Text("\n".join(fitted(line, width, len(INDENT)) for line in advice), "dim"))


def _counted(number: int, level: str) -> str:
    return f"{number} {level}{'s' if level != 'ok' and number != 1 else ''}"
