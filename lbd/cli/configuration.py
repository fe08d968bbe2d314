"""``lbd config check``, ``show``, ``diff`` and ``from-broker``."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click
import yaml

from lbd.cli.options import format_option, settings_options
from lbd.cli.render import change_table, plain, yaml_text
from lbd.cli.status_text import console
from lbd.config import load
from lbd.documents import content_of, flat, read_yaml, text_of
from lbd.errors import LbdError, UsageError
from lbd.model import bundle_namespace
from lbd.operations.from_broker import from_broker_conf
from lbd.operations.parts import broker_addresses, broker_configuration, observing
from lbd.pulsar.broker_conf import read_broker_conf
from lbd.store.turns import load_bundles
from lbd.text import counted
from lbd.turn.unmatched import names_anything, unmatched

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from lbd.cli.options import Read
    from lbd.config import Settings


@click.group()
def config() -> None:
    """Check, show or compare settings, or derive them from a broker."""


@config.command()
@settings_options
def check(read: Read) -> None:
    """Report every problem at once. Exit code 2 if there is one.

    Names of namespaces and brokers are compared with the cluster, as the lbd of state_dir reported it within the last
    hour, or else as its brokers report it now. Names that match nothing are warnings: they may come later.
    """
    loaded = read()
    set_values = f"{counted(len(loaded.origins), 'value')} set" if loaded.origins else "all defaults"
    for warning in loaded.warnings:
        click.echo(plain(f"warning: {warning}"), err=True)
    click.echo(f"ok: {set_values}", err=True)
    if names_anything(loaded.settings):
        for line in _names_without_match(loaded.settings):
            click.echo(plain(line), err=True)


KEPT_SECONDS = 3600.0
"""Age up to which the stored names of the cluster count."""


def _names_without_match(settings: Settings) -> Iterator[str]:
    """Lines on names in the settings that match nothing, or on why that is not known."""
    try:
        namespaces, brokers = _present(settings)
    except LbdError as error:
        yield f"warning: names of namespaces and brokers are not compared with the cluster: {error}"
        return
    for setting in unmatched(settings, namespaces, brokers):
        yield f"warning: {setting.text}; {setting.todo}"


def _present(settings: Settings) -> tuple[Collection[str], Collection[str]]:
    """The namespaces with loaded bundles, and the brokers. Raises :class:`LbdError` where neither source has them."""
    with suppress(UsageError):  # a state directory of another user, or a damaged one: the cluster knows better
        stored = load_bundles(settings.state_dir)
        if stored is not None and 0 <= time.time() - stored.at < KEPT_SECONDS:
            return {bundle_namespace(bundle) for bundle in stored.bundles}, stored.brokers
    with observing(settings) as observer:
        observation = observer.observe()
    return observation.snapshot.namespaces.names, observation.active


@config.command()
@format_option
@settings_options
def show(read: Read, form: str) -> None:
    """Print the effective values and their origin."""
    loaded = read()
    if form == "json":
        values = {"settings": loaded.settings.model_dump(mode="json"), "origins": dict(loaded.origins)}
        click.echo(json.dumps(values, indent=2))
        return
    for line in _annotated(loaded.settings.model_dump(mode="json"), loaded.origins):
        click.echo(line)


@config.command()
@click.argument("proposal", type=click.Path(path_type=Path))
@format_option
@settings_options
def diff(read: Read, proposal: Path, form: str) -> None:
    """Print which settings a proposal would change.

    PROPOSAL is a file of settings, as lbd calibrate writes one. Its values replace those in force, a list the whole
    list. Nothing is written: put into lbd.yaml what you want of it.

    \b
    Example: lbd config diff calibration/proposal.yaml
    """
    load(proposal, {})
    now = dict(_by_key(read().settings.model_dump(mode="json")))
    then = dict(_by_key(read(**(read_yaml(text_of(proposal)) or {})).settings.model_dump(mode="json")))
    changes = [(key, now.get(key), then.get(key)) for key in {**now, **then} if now.get(key) != then.get(key)]
    if form == "json":
        names = ("key", "now", "proposed")
        click.echo(json.dumps({"changes": [dict(zip(names, change, strict=True)) for change in changes]}, indent=2))
    elif changes:
        console().print(change_table(changes))
    if not changes:
        click.echo(f"{proposal}: all of its values are in force", err=True)


def _by_key(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values by dotted key; of a list of brokers each one by its name, as ``load.brokers[b1:8080].slope``."""
    for key, value in flat(values):
        if isinstance(value, list) and value and all(isinstance(entry, dict) and "broker" in entry for entry in value):
            for entry in value:
                rest = {name: own for name, own in entry.items() if name != "broker"}
                yield from flat(rest, f"{key}[{entry['broker']}].")
        elif value != []:
            yield key, value


def _annotated(values: Mapping[str, Any], origins: Mapping[str, str], path: str = "", indent: str = "") -> list[str]:
    lines: list[str] = []
    for key, value in values.items():
        dotted = f"{path}{key}"
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{key}:")
            lines.extend(_annotated(value, origins, f"{dotted}.", f"{indent}  "))
        else:
            lines.append(f"{indent}{key}: {yaml_text(value)}{_origin(dotted, origins)}")
    return lines


def _origin(dotted: str, origins: Mapping[str, str]) -> str:
    return f"  # {origins[dotted]}" if dotted in origins else ""


@config.command("from-broker")
@click.argument("broker_conf", type=click.Path(path_type=Path), required=False)
@settings_options
def from_broker(read: Read, broker_conf: Path | None) -> None:
    """Print settings that match a broker's own.

    They are read from BROKER_CONF or else from a live broker. BROKER_CONF is a broker.conf, or the PULSAR_PREFIX_
    environment of one; keys that are absent count with Pulsar's defaults. Comments name what lbd does differently.
    Settings that are left out, and steps to take first, are also printed on stderr.

    \b
    Example: lbd config from-broker --admin-url http://127.0.0.1:8080 > lbd.yaml
    """
    reached: dict[str, Any] = {}
    left_out: list[str] = []
    notes: list[str] = []
    values: Mapping[str, str]
    if broker_conf is not None:
        content, source = content_of(broker_conf), str(broker_conf)
        try:
            file = read_broker_conf(content)
        except UsageError as error:
            raise UsageError(f"{source}: {error}") from None
        values = file.values
        left_out, notes = [f"left out: {line}" for line in file.left_out], [f"note: {line}" for line in file.notes]
    else:
        settings = read().settings
        values = broker_configuration(settings)
        source = ", ".join(settings.pulsar.admin_urls)
        connection = settings.pulsar.model_dump(mode="json", exclude_unset=True)
        reached = {"pulsar": {**connection, "admin_urls": broker_addresses(settings)}}
    taken = from_broker_conf(values)
    left_out.extend(f"left out: {line}" for line in taken.left_out)
    todo = [f"to do: {line}" for line in taken.todo]
    click.echo(f"# Taken from {plain(source)}. What lbd does differently from these brokers:")
    for line in _comments([*taken.differences, *notes, *left_out, *todo]):
        click.echo(line)
    click.echo(yaml.safe_dump({**reached, **taken.settings}, sort_keys=False), nl=False)
    for line in (*notes, *left_out, *todo):
        click.echo(plain(line), err=True)


def _comments(sentences: Sequence[str]) -> list[str]:
    """Sentences as YAML comments, one per line."""
    return [
        line
        for sentence in sentences
        for line in wrap(plain(sentence), 112, initial_indent="# - ", subsequent_indent="#   ", break_long_words=False)
    ]
