"""Completion of names in a shell: brokers, bundles, namespaces, and the id of the plan that waits.

They come from the state directory of the lbd of this machine, or with ``--api`` from that API, as its last turn had
them. Whatever fails, or takes longer than :data:`WITHIN_SECONDS`, completes nothing and prints nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.cli.options import given
from lbd.cli.request import api_client
from lbd.config import environment, load
from lbd.errors import LbdError
from lbd.threads import begin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import click

    from lbd.config import Settings
    from lbd.store.status import Status

WITHIN_SECONDS = 0.3

MOST_NAMES = 200
"""Above it tenants or namespaces are offered first: no terminal shows more, and no shell is fast with more."""


def brokers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Brokers with a report, as host:port."""
    return _names(ctx, incomplete, lambda settings, api: (row.id for row in _status(settings, api).brokers))


def plans(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The id of the plan that waits for approval."""

    def waiting(settings: Settings, api: str | None) -> tuple[str, ...]:
        plan = _status(settings, api).proposal
        return (plan.id,) if plan is not None else ()

    return _names(ctx, incomplete, waiting)


def bundles(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Bundles with a report."""
    return _names(ctx, incomplete, _bundles)


def bundles_or_namespaces(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The same, and their namespaces."""
    return _names(ctx, incomplete, _with_namespaces)


def anything(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Brokers, bundles and namespaces."""

    def known(settings: Settings, api: str | None) -> list[str]:
        return [*(row.id for row in _status(settings, api).brokers), *_with_namespaces(settings, api)]

    return _names(ctx, incomplete, known)


def _names(ctx: click.Context, incomplete: str, source: Callable[[Settings, str | None], Iterable[str]]) -> list[str]:
    """The names that begin so, sorted."""
    read_names: list[str] = []

    def read() -> None:
        with suppress(LbdError):  # whoever presses Tab wants names, and no message
            read_names.extend(source(_settings(ctx), ctx.params.get("api_url")))

    thread = begin(read, "names")
    thread.join(WITHIN_SECONDS)
    names = [] if thread.is_alive() else read_names
    return shortened(sorted({name for name in names if name.startswith(incomplete)}))


def shortened(names: Sequence[str]) -> list[str]:
    """The names, or of very many their tenants or namespaces, each with a slash at its end."""
    if len(names) > MOST_NAMES:
        for parts in (1, 2):
            stems = {f"{'/'.join(name.split('/')[:parts])}/" for name in names}
            if len(stems) > 1:
                return sorted(stems)
    return list(names)


def _settings(ctx: click.Context) -> Settings:
    """As the command would read them, from what was typed so far."""
    values = given(ctx)
    path = values.get("config_file") or os.environ.get("LBD_CONFIG")
    return load(Path(path) if path else None, environment()).settings


def _status(settings: Settings, api: str | None) -> Status:
    if (client := api_client(settings, api)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        return remote.status(client)[0]
    from lbd.store.status import read_status  # noqa: PLC0415 - the list of commands needs no status

    return read_status(settings.state_dir)


def _bundles(settings: Settings, api: str | None) -> Sequence[str]:
    """The bundles that the last turn kept; of an lbd elsewhere those with most traffic."""
    if (client := api_client(settings, api)) is not None:
        from lbd.cli import remote  # noqa: PLC0415 - loaded only for --api

        return list(remote.bundles(client))
    from lbd.store.turns import load_bundles  # noqa: PLC0415 - it loads NumPy

    stored = load_bundles(settings.state_dir)
    return stored.bundles if stored is not None else ()


def _with_namespaces(settings: Settings, api: str | None) -> list[str]:
    names = _bundles(settings, api)
    return [*{name.rpartition("/")[0] for name in names}, *names]
