"""How a fake broker splits a bundle: codes, words and redirects as on 4.0.8."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from lbd.model import bundle_range
from lbd.simulate.fake_pulsar.bundles import malformed
from lbd.simulate.fake_pulsar.http import Reply, Request, crash, refused
from lbd.split.algorithms import (
    ALGORITHMS,
    SPECIFIED,
    range_equally_divide,
    specified_positions_divide,
    topic_count_equally_divide,
)
from lbd.split.plan import inside
from lbd.split.topic_hash import range_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lbd.simulate.fake_pulsar.book import Book
    from lbd.simulate.fake_pulsar.bundles import Bundles

CLOSED_AFTER_SECONDS = 0.024
"""When a part that is unloaded after the split is free: an unload takes as long (4.0.8, p50)."""

_UNSUPPORTED = f"Unsupported namespace bundle split algorithm, supported algorithms are [{', '.join(ALGORITHMS)}]"
_NO_POSITIONS = f"With {SPECIFIED} split algorithm, splitBoundaries must not be empty"
_OPTIONS = [f"org.apache.pulsar.common.naming.{kind}BundleSplitOption" for kind in ("", "FlowOrQpsEquallyDivide")]
_WRONG_OPTION = (
    f"class {_OPTIONS[0]} cannot be cast to class {_OPTIONS[1]} "
    f"({' and '.join(_OPTIONS)} are in unnamed module of loader 'app')"
)
"""Of ``flow_or_qps_equally_divide`` where another algorithm is the broker's default."""


class Splits:
    """Splits of one cluster's bundles. Not thread-safe."""

    def __init__(self, book: Book, bundles: Bundles) -> None:
        self._book, self._bundles = book, bundles

    def split(self, asked: Request, tenant: str, namespace: str, span: str) -> Reply:
        """204, also where nothing was cut. The parts stay with the bundle's owner, unless they are to be unloaded."""
        bundle, algorithm = f"{tenant}/{namespace}/{span}", asked.query.get("splitAlgorithmName") or ALGORITHMS[0]
        try:
            given = msgspec.json.decode(asked.body or b"[]", type=list[int])
        except msgspec.MsgspecError as error:
            return Reply(400, f"Cannot deserialize value: {error}".encode(), content_type="text/plain")
        if algorithm not in ALGORITHMS:
            return refused(412, _UNSUPPORTED)
        if algorithm == SPECIFIED and not given:
            return refused(412, _NO_POSITIONS)
        return self._no_bundle(bundle) or self._elsewhere(asked, bundle) or self._cut(asked, bundle, algorithm, given)

    def _no_bundle(self, bundle: str) -> Reply | None:
        """As of an unload, but that ranges which are none are refused in words."""
        wrong, span = self._bundles.unknown(bundle), bundle_range(bundle)
        if wrong is None or wrong.status != 500:
            return wrong
        more = f": {span}" if span.count("_") != 1 else " under radix 16"
        return refused(412, malformed(span) + more)

    def _elsewhere(self, asked: Request, bundle: str) -> Reply | None:
        """Redirects keep the whole query; what nobody owns is placed first, as by a lookup."""
        owner = self._book.owner(bundle)
        found = self._bundles.chosen(asked, bundle) if owner is None else owner
        if isinstance(found, Reply):
            return _keeping(asked, found)
        if found != asked.broker:
            return _keeping(asked, self._bundles.to_owner(found, asked))
        self._book.acquire(bundle, found)
        return None

    def _cut(self, asked: Request, bundle: str, algorithm: str, given: Sequence[int]) -> Reply:
        if bundle in self._book.closing:
            return crash(f"Namespace bundle {bundle} is being unloaded")
        topics = self._book.topics(bundle)
        if algorithm == "flow_or_qps_equally_divide":
            return crash(_WRONG_OPTION)
        if algorithm == SPECIFIED:
            positions = specified_positions_divide(*range_of(bundle), topics, given)
        elif algorithm == "topic_count_equally_divide":
            positions = topic_count_equally_divide(topics)
        else:
            positions = range_equally_divide(*range_of(bundle))
        wanted = inside(bundle, set(positions or ()))
        if wanted:
            self._made(self._book.split(bundle, wanted), unload=asked.query.get("unload") == "true")
        return Reply(204)

    def _made(self, parts: Sequence[str], *, unload: bool) -> None:
        self._bundles.look_again()
        for part in parts if unload else ():
            self._book.closing.add(part)
            self._book.at(self._book.seconds + CLOSED_AFTER_SECONDS, partial(self._book.closed, part))


def _keeping(asked: Request, reply: Reply) -> Reply:
    own = {key: value for key, value in asked.query.items() if key != "authoritative"}
    return replace(reply, location=f"{reply.location}&{urlencode(own)}") if own and reply.location else reply
