"""What a fake broker answers about one bundle: its owner, its unload, and the lookup that places it.

Codes and redirects as on 4.0.8 under the modular load manager.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from lbd.model import bundle_namespace, bundle_range
from lbd.pulsar.paths import bounds, knows_destinations
from lbd.simulate.fake_pulsar.http import Reply, Request, crash, ok, page, refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.simulate.fake_pulsar.book import Book


NO_NAMESPACE = refused(404, "Namespace does not exist")


class Closing(Exception):  # noqa: N818 - no error, an unload under way
    """The owner closes the bundle's topics, which takes a moment, and lets go of it then."""

    def __init__(self, bundle: str) -> None:
        super().__init__(bundle)
        self.bundle = bundle


class Bundles:
    """The bundles of one cluster. Not thread-safe."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._ranges = _ranges(book.world.bundles)

    def boundaries(self, _: Request, tenant: str, namespace: str) -> Reply:
        """How a namespace is cut."""
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        starts, bundles = self._ranges[f"{tenant}/{namespace}"]
        last = bundles[-1].rpartition("_")[2]
        return ok({"boundaries": [*(f"0x{start:08x}" for start in starts), last], "numBundles": len(bundles)})

    def positions(self, asked: Request, tenant: str, namespace: str, span: str) -> Reply:
        """200 at the owner, 307 to it elsewhere, 412 when there is none."""
        bundle = f"{tenant}/{namespace}/{span}"
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        wrong = self._unknown(bundle)
        if wrong is not None:
            return wrong
        owner = self._book.owner(bundle)
        if owner is None:
            return refused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
        if owner != asked.broker:
            return self._to_owner(owner, asked)
        return ok({"namespace": bundle_namespace(bundle), "bundle": span, "topicHashPositions": {}})

    def unload(self, asked: Request, tenant: str, namespace: str, span: str) -> Reply:
        """The leader notes a destination before it looks at anything else; the owner closes the bundle.

        Raises :class:`Closing` when the bundle is to be closed: it is free, and 204 answered, after that.
        """
        bundle = f"{tenant}/{namespace}/{span}"
        refused_or_sent_on = self._noted(asked, bundle) or self._unknown(bundle)
        if refused_or_sent_on is not None:
            return refused_or_sent_on
        owner = self._book.owner(bundle)
        if owner is None:
            return Reply(204)
        return self._close(bundle) if owner == asked.broker else self._to_owner(owner, asked)

    def _to_owner(self, owner: str, asked: Request) -> Reply:
        """What the leader says of owners is so, what others say may not be."""
        return _elsewhere(owner, asked, authoritative=str(asked.broker == self._book.leader).lower())

    def _noted(self, asked: Request, bundle: str) -> Reply | None:
        """None where there is no destination, which brokers before 3.0 do not know, or the leader has noted it."""
        book, named = self._book, asked.query.get("destinationBroker")
        if named is None or not knows_destinations(book.version):
            return None
        destination = named.removeprefix("http://").removeprefix("https://")
        if destination not in book.listed:
            return refused(409, "Not allowed unload namespace bundle to inactive destination broker")
        if book.leader is None:
            return refused(412, "Couldn't find leader broker")
        if asked.broker != book.leader:
            return _elsewhere(book.leader, asked, destinationBroker=destination, authoritative="false")
        book.note(bundle, destination)
        return None

    def _close(self, bundle: str) -> Reply:
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is not active")
        self._book.closing.add(bundle)
        raise Closing(bundle)

    def look_up(self, asked: Request, domain: str, tenant: str, namespace: str, topic: str) -> Reply:
        """What nobody owns is placed by the leader, or taken by whoever is asked authoritatively."""
        bundle = self._bundle_of(f"{tenant}/{namespace}", f"{domain}://{tenant}/{namespace}/{topic}")
        if bundle is None:
            return _not_found()
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        if self._book.owner(bundle) is None:
            chosen = self._chosen(asked, bundle)
            if isinstance(chosen, Reply):
                return chosen
            self._book.acquire(bundle, chosen)
        return ok(_found(self._book.owner(bundle) or asked.broker))

    def _chosen(self, asked: Request, bundle: str) -> str | Reply:
        """The broker that was asked, if the bundle is its to take; else where to ask."""
        if asked.query.get("authoritative") == "true":
            return asked.broker
        leader = self._book.leader
        if leader is None:
            return page(503)
        if asked.broker != leader:
            return _elsewhere(leader, asked, authoritative="false")
        chosen = self._book.place(bundle)
        return chosen if chosen == leader else _elsewhere(chosen, asked, authoritative="true")

    def _unknown(self, bundle: str) -> Reply | None:
        """Why it is no bundle of this cluster."""
        if bundle in self._book.bundles:
            return None
        ends = bundle_range(bundle).split("_")
        if bundle_namespace(bundle) not in self._ranges:
            return _not_found()
        if len(ends) != 2:
            return crash("Invalid bundle range")
        strange = next((end.removeprefix("0x") for end in ends if not _is_hex(end)), None)
        if strange is not None:
            return crash(f'For input string: "{strange}"')
        return refused(412, f"Cannot find bundle {bundle} in the bundles list")

    def _bundle_of(self, namespace: str, topic: str) -> str | None:
        """The bundle of a topic: CRC32 of its full name, ranges are [lower, upper)."""
        starts, bundles = self._ranges.get(namespace, ([], []))
        at = bisect_right(starts, zlib.crc32(topic.encode())) - 1
        return bundles[at] if at >= 0 else None


def _ranges(bundles: Sequence[str]) -> dict[str, tuple[list[int], list[str]]]:
    """The lower ends and the names of each namespace's bundles, in order."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for bundle in bundles:
        found[bundle_namespace(bundle)].append((bounds(bundle)[0], bundle))
    return {
        namespace: ([start for start, _ in sorted(ones)], [bundle for _, bundle in sorted(ones)])
        for namespace, ones in found.items()
    }


def _is_hex(end: str) -> bool:
    try:
        int(end, 16)
    except ValueError:
        return False
    return True


def _not_found() -> Reply:
    return refused(404, "Namespace not found")


def _elsewhere(broker: str, asked: Request, **query: str) -> Reply:
    return Reply(307, location=f"http://{broker}{asked.path}?{urlencode(query)}")


def _found(broker: str) -> dict[str, str]:
    return {
        "brokerUrl": f"pulsar://{broker}",
        "httpUrl": f"http://{broker}",
        "nativeUrl": f"pulsar://{broker}",
        "brokerUrlSsl": "",
    }
