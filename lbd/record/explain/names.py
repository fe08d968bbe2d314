"""Names as people type them, and the nearest known one for those that nothing has. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from lbd.errors import UsageError
from lbd.model import bundle_namespace
from lbd.split.topic_hash import holds, namespace_of, topic_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ENOUGH = 5_000
"""Names compared at most: likeness is looked for character by character."""


def broker_named(name: str, known: Callable[[], Iterable[str]]) -> str:
    """The one broker of this ``host:port``, host, or beginning up to a dot; ``known`` may be long, and is read twice.

    Raises :class:`UsageError` for any other name.
    """
    if any(one == name for one in known()):
        return name
    brokers = sorted(set(known()))
    fits = [one for one in brokers if one.rpartition(":")[0] == name]
    fits = fits or [one for one in brokers if one.startswith(f"{name}.")]
    if len(fits) == 1:
        return fits[0]
    if fits:
        raise UsageError(f"{name}: may be {' or '.join(fits)}; wanted one of them")
    wanted = f"; known brokers are {', '.join(brokers[:3])}{', ...' if brokers[3:] else ''}" if brokers else ""
    raise UsageError(f"{name}: no such broker, bundle or turn is known{_nearest(name, brokers) or wanted}")


def no_bundle(name: str, known: list[str]) -> str:
    """What to say of a bundle that nothing is known of."""
    own = [bundle for bundle in known if bundle_namespace(bundle) == bundle_namespace(name)]
    if "/0x" not in name:
        own = [bundle for bundle in known if bundle_namespace(bundle) == name]
        if own:
            return f"{name}: is a namespace of {len(own)} bundles; wanted one of them, as {min(own)}"
    return f"{name}: no broker reports such a bundle, and no move of it is known{_nearest(name, own or known)}"


def bundle_with(topic: str, known: list[str]) -> str:
    """The bundle that a topic falls into. Raises :class:`UsageError` where none of these is of its namespace."""
    namespace, position = namespace_of(topic), topic_hash(topic)
    own = [bundle for bundle in known if bundle_namespace(bundle) == namespace]
    found = next((bundle for bundle in own if holds(bundle, position)), None)
    if found is None:
        raise UsageError(f"{topic}: no broker reports a bundle of {namespace} that it falls into")
    return found


def _nearest(name: str, known: list[str]) -> str:
    found = difflib.get_close_matches(name, known[:ENOUGH], n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""
