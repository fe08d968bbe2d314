"""docs/ is short enough to be read: 30,000 words, and no page longer than a reader has patience for."""

from __future__ import annotations

from tests.docs.words import DOCS, REFERENCE, pages, words

LIMIT = 30_000
PAGE_LIMIT = 3_200


def test_the_pages_are_short():
    """What is said twice goes, and what is measured at length goes into docs/results."""
    counts = {str(path.relative_to(DOCS)): words(path) for path in pages()}
    assert len(counts) > 20
    assert {name: count for name, count in counts.items() if count > PAGE_LIMIT} == {}
    assert sum(counts.values()) <= LIMIT, sorted(counts.items(), key=lambda item: -item[1])


def test_reference_pages_are_there():
    """A page that was renamed does not count as a page of prose, or the other way round, by accident."""
    assert [name for name in REFERENCE if not (DOCS / name).is_file()] == []
