"""What ``lbd place`` and ``lbd unload`` are asked about: bundles, topics and namespaces, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from lbd.daemon.dry import taking_over
from lbd.daemon.situation import owners
from lbd.errors import ObserveError, UsageError
from lbd.model import bundle_namespace
from lbd.permit.eligibility import BROKER_BUNDLE
from lbd.pulsar.admin import Admin
from lbd.pulsar.paths import bounds
from lbd.split.topic_hash import holds, namespace_of, parse_boundaries, range_name, topic_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from lbd.config import Settings
    from lbd.model import Snapshot

    BundlesOf = Callable[[str], list[str]]


@dataclass(frozen=True)
class Target:
    """One word of the command line."""

    text: str
    kind: Literal["bundle", "topic", "namespace"]
    namespace: str


def target(text: str) -> Target:
    """What a word names. Raises :class:`UsageError` that says what would be right."""
    if "://" in text:
        return _movable(Target(text, "topic", namespace_of(text)))
    parts = text.split("/")
    if len(parts) == 2 and all(parts) and not parts[1].startswith("0x"):
        return _movable(Target(text, "namespace", text))
    if len(parts) == 3 and parts[2].startswith("0x"):
        bounds(text)
        return _movable(Target(text, "bundle", bundle_namespace(text)))
    wanted = "tenant/namespace/0xLLLLLLLL_0xUUUUUUUU, persistent://tenant/namespace/topic or tenant/namespace"
    raise UsageError(f"{text!r} is no bundle, topic or namespace; wanted {wanted}")


def _movable(one: Target) -> Target:
    if BROKER_BUNDLE.match(f"{one.namespace}/0x"):
        raise UsageError(f"{one.text!r} belongs to its broker and is never placed or moved")
    return one


@dataclass(frozen=True)
class Meant:
    """The bundles that some words come to, each with the topics by which it was named."""

    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The bundles' namespaces, each once."""
        return tuple(dict.fromkeys(map(bundle_namespace, self.topics)))


def meant(targets: Iterable[Target], bundles_of: BundlesOf) -> Meant:
    """Raises :class:`UsageError` for what is no bundle of its namespace."""
    found: dict[str, tuple[str, ...]] = {}
    cut: dict[str, list[str]] = {}
    for one in targets:
        if one.namespace not in cut:
            cut[one.namespace] = bundles_of(one.namespace)
        for bundle in _bundles(one, cut[one.namespace]):
            topics = (one.text,) if one.kind == "topic" else ()
            found[bundle] = tuple(dict.fromkeys((*found.get(bundle, ()), *topics)))
    return Meant(found)


def _bundles(one: Target, bundles: list[str]) -> list[str]:
    if one.kind == "namespace":
        return bundles
    if one.kind == "topic":
        at = topic_hash(one.text)
        within = [bundle for bundle in bundles if holds(bundle, at)]
        if not within:
            raise UsageError(f"{one.text}: no bundle seen of {one.namespace} holds its hash, 0x{at:08x}")
        return within
    if one.text not in bundles:
        lower, upper = bounds(one.text)
        there = [name for name in bundles if bounds(name)[0] < upper and lower < bounds(name)[1]]
        told = f"; there are {', '.join(there[:3])}{' and others' if len(there) > 3 else ''}" if there else ""
        raise UsageError(f"{one.text} is no bundle of {one.namespace}, which has {len(bundles)}{told}")
    return [one.text]


def live_bundles(admin: Admin) -> BundlesOf:
    """The bundles of a namespace, as the cluster has cut it now."""

    def bundles(namespace: str) -> list[str]:
        texts = admin.boundaries(namespace)
        if texts is None:
            raise UsageError(f"{namespace}: cluster {admin.cluster} has no such namespace")
        cuts = parse_boundaries(texts)
        return [f"{namespace}/{range_name(*ends)}" for ends in pairwise(cuts)]

    return bundles


def owned_bundles(settings: Settings, namespace: str) -> dict[str, str]:
    """The owner of each bundle of a namespace that has one. Raises :class:`UsageError` where there is no namespace."""
    admin = Admin(settings.pulsar)
    if target(namespace).kind != "namespace":
        raise UsageError(f"{namespace!r} is no namespace; wanted tenant/namespace")
    admin.active_brokers()
    bundles, found = live_bundles(admin)(namespace), owners(admin, taking_over(settings, admin))
    if found.unasked:
        broker, why = next(iter(found.unasked.items()))
        raise ObserveError(f"{broker} does not tell which bundles it owns: {why}")
    return {bundle: found.of[bundle] for bundle in bundles if bundle in found.of}


def reported_bundles(snapshot: Snapshot) -> BundlesOf:
    """The bundles of a namespace that brokers report: a recording knows no others."""

    def bundles(namespace: str) -> list[str]:
        found = sorted(name for name in snapshot.bundles if bundle_namespace(name) == namespace)
        if not found:
            raise UsageError(f"{namespace}: no broker reports a bundle of it")
        return found

    return bundles
