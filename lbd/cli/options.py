"""Options that commands share, and the settings made from them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import yaml

from lbd.config import Loaded, environment, load
from lbd.cycle.chosen import configured
from lbd.documents import read_yaml
from lbd.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.config import Settings

A_DAY = 86_400
Command = TypeVar("Command", bound="Callable[..., Any]")


class Seconds(click.FloatRange):
    """A range that NaN, which no bound keeps out, is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """The number, or a complaint that shows it."""
        number = super().convert(value, param, ctx)
        if number != number:  # noqa: PLR0124
            self.fail(f"{number} is not in the range {self._describe_range()}.", param, ctx)
        return number


def settings_options(command: Command) -> Command:
    """``--config`` and ``--admin-url``, accepted after the subcommand as well as before it."""
    command = click.option(
        "--admin-url", "admin_urls", multiple=True, metavar="URL", help="Web address of a broker; repeatable."
    )(command)
    return click.option(
        "--config", "config_file", metavar="FILE", help="Settings; default /etc/lbd/lbd.yaml where it exists."
    )(command)


def format_option(command: Command) -> Command:
    """``--format text|json``: JSON goes to stdout, words beside it to stderr."""
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output."
    )(command)


def api_option(command: Command) -> Command:
    """``--api URL``: an lbd on another machine."""
    words = "Ask the lbd whose API is there, with api.token_file's token, and not this machine's state_dir."
    return click.option("--api", "api_url", metavar="URL", help=words)(command)


def timeout_option(command: Command) -> Command:
    """``--timeout SECONDS``: how long a running lbd is waited for."""
    return click.option(
        "--timeout",
        "timeout_seconds",
        type=Seconds(1, A_DAY),
        default=120,
        show_default=True,
        metavar="SECONDS",
        help="Wait so long for a running lbd to answer.",
    )(command)


def loaded(ctx: click.Context, config_file: str | None, admin_urls: tuple[str, ...]) -> Loaded:
    """Settings from file, environment and options; what stands after the subcommand wins over what stands before."""
    above: dict[str, Any] = ctx.find_root().obj or {}
    chosen = config_file or above.get("config_file") or os.environ.get("LBD_CONFIG")
    urls = admin_urls or above.get("admin_urls") or ()
    options = {"pulsar": {"admin_urls": list(urls)}} if urls else {}
    return load(Path(chosen) if chosen else None, environment(), options)


def assignment(text: str, option: str = "--set") -> tuple[str, object]:
    """Key and value of a ``--set KEY=VALUE``; the value is YAML."""
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{option} {text!r}: wanted KEY=VALUE")
    try:
        return key.strip(), read_yaml(value)
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{option} {text!r}: the value is not YAML") from error


def recording_header(file: Path, settings: Settings, interval_seconds: float, source: str) -> dict[str, object]:
    """What a recording that is made under these settings says of itself."""
    return {
        "id": file.name.partition(".")[0],
        "strategy": settings.strategy,
        "settings": configured(settings).model_dump(mode="json", exclude_unset=True),
        "weights": settings.weights.model_dump(mode="json"),
        "interval_s": interval_seconds,
        "grace_s": settings.guardrails.cool_down_minutes * 60,
        "source": source,
    }
