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
        self.look_again()

    def look_again(self) -> None:
        """Some namespace has other bundles than before."""
        self._ranges = _ranges(self._book.world.bundles)

    def topics(self, _: Request, tenant: str, namespace: str) -> Reply:
        """All topics of a namespace."""
        if f"{tenant}/{namespace}" not in self._ranges:
            return NO_NAMESPACE
        bundles = self._ranges[f"{tenant}/{namespace}"][1]
        return ok([topic.name for bundle in bundles for topic in self._book.topics(bundle)])

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
        wrong = self.unknown(bundle)
        if wrong is not None:
            return wrong
        owner = self._book.owner(bundle)
        if owner is None:
            return refused(412, f"Failed to find ownership for ServiceUnit:{bundle}")
        if owner != asked.broker:
            return self.to_owner(owner, asked)
        found = {topic.name: topic.position for topic in self._book.topics(bundle)}
        return ok({"namespace": bundle_namespace(bundle), "bundle": span, "topicHashPositions": found})

    def unload(self, asked: Request, tenant: str, namespace: str, span: str) -> Reply:
        """The leader notes a destination before it looks at anything else; the owner closes the bundle.

        Raises :class:`Closing` when the bundle is to be closed: it is free, and 204 answered, after that.
        """
        bundle = f"{tenant}/{namespace}/{span}"
        refused_or_sent_on = self._noted(asked, bundle) or self.unknown(bundle)
        if refused_or_sent_on is not None:
            return refused_or_sent_on
        owner = self._book.owner(bundle)
        if owner is None:
            return Reply(204)
        return self._close(bundle) if owner == asked.broker else self.to_owner(owner, asked)

    def to_owner(self, owner: str, asked: Request) -> Reply:
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
            chosen = self.chosen(asked, bundle)
            if isinstance(chosen, Reply):
                return chosen
            self._book.acquire(bundle, chosen)
        return ok(_found(self._book.owner(bundle) or asked.broker))

    def chosen(self, asked: Request, bundle: str) -> str | Reply:
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

    def unknown(self, bundle: str) -> Reply | None:
        """Why it is no bundle of this cluster."""
        if bundle in self._book.bundles:
            return None
        if bundle_namespace(bundle) not in self._ranges:
            return _not_found()
        strange = malformed(bundle_range(bundle))
        return crash(strange) if strange else refused(412, self._missing(bundle))

    def _missing(self, bundle: str) -> str:
        """A range that begins where a bundle does is told from one that does not."""
        starts, bundles = self._ranges[bundle_namespace(bundle)]
        lower = int(bundle_range(bundle).partition("_")[0], 16)
        if lower not in starts:
            return f"Cannot find bundle {bundle} in the bundles list"
        found = bundles[starts.index(lower)]
        return f"Invalid upper boundary for bundle {bundle}. Expected upper boundary of {found}"

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


def malformed(span: str) -> str:
    """What brokers say of a range that is none, nothing of others."""
    ends = span.split("_")
    if len(ends) != 2:
        return "Invalid bundle range"
    strange = next((end.removeprefix("0x") for end in ends if not _is_hex(end)), None)
    return "" if strange is None else f'For input string: "{strange}"'


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
