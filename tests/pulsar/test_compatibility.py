"""docs/compatibility.md has every release; docs/results/requests.md has every request that lbd can send."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lbd.pulsar import paths
from lbd.pulsar.request_table import ADMIN

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
RELEASES = DOCS / "compatibility.md"
REQUESTS = DOCS / "results" / "requests.md"

ARGUMENTS = {
    "cluster": "{cluster}",
    "broker": "{broker}",
    "key": "{setting}",
    "value": "{value}",
    "group": "{group}",
    "tenant": "{tenant}",
    "bundle": "{tenant}/{namespace}/0x00000000_0xffffffff",
    "subscription": "{subscription}",
    "seconds": "{seconds}",
    "topic": "persistent://{tenant}/{namespace}/{topic}",
}
"""What to call the functions of ``paths`` with; a new parameter is to be named here."""

NO_PATHS = {"runtime", "path"}
"""Parameters of functions that return something else."""

OF_TOPICS = {"topic", "topic_stats", "topic_ttl", "topic_permissions", "subscription", "expiry"}


def table() -> set[str]:
    """The paths of the page's table."""
    return set(re.findall(r"^\| (?:GET|PUT|POST|DELETE) \| `([^`]+)`", REQUESTS.read_text(), re.MULTILINE))


def sent() -> Iterator[str]:
    """Every path that a constant or a function of ``paths`` gives, with the names of the table."""
    for name, value in vars(paths).items():
        if isinstance(value, str) and value.startswith(f"{ADMIN}/"):
            yield value
        if not inspect.isfunction(value) or value.__module__ != paths.__name__ or name.startswith("_"):
            continue
        parameters = inspect.signature(value).parameters
        if name == "quote" or value.__annotations__["return"] != "str" or set(parameters) <= NO_PATHS:
            continue
        of_topic = name in OF_TOPICS or name == "scalable_topic"
        scheme = "topic://" * (name == "scalable_topic")
        named = ARGUMENTS | {"name": f"{scheme}{{tenant}}/{{namespace}}{'/{topic}' * of_topic}"}
        for given in (parameters, [one for one in parameters if parameters[one].default is inspect.Parameter.empty]):
            path = unquote(value(**{one: named[one] for one in given})).partition("?")[0]
            if path.startswith("/"):
                yield path.replace("0x00000000_0xffffffff", "{bundle}")


def test_every_request_is_in_the_table() -> None:
    """And the table has no other."""
    assert set(sent()) == table()


def test_every_release_that_doctor_knows_is_on_the_page() -> None:
    """With what was done with it."""
    for (major, minor), patch in paths.NEWEST_KNOWN.items():
        assert re.search(rf"^\| {major}\.{minor}(\.{patch})? \| (run|read): ", RELEASES.read_text(), re.MULTILINE)
