"""docs/permissions.md: the tables of requests, with the right and the effect of each."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from lbd.pulsar import paths
from lbd.pulsar.request_table import ADMIN, OTHER, endpoint
from tests.requests_page import PAGE, page

if TYPE_CHECKING:
    from collections.abc import Callable

BUNDLE, TOPIC = "t/n/0x00000000_0x40000000", "persistent://t/n/topic"
SAMPLES: dict[str, object] = {
    "cluster": "c",
    "broker": "b:80",
    "bundle": BUNDLE,
    "group": "g",
    "tenant": "t",
    "key": "k",
    "value": "v",
    "subscription": "s",
    "seconds": 5,
    "topic": TOPIC,
}
OF_TOPICS = ("topic", "topic_stats", "topic_ttl", "topic_permissions", "subscription", "expiry")
NO_PATHS = {"quote"}


def test_the_page_is_made_from_the_table():
    """``python -m tests.requests_page`` makes it."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


def test_each_path_has_a_template():
    """Whoever adds a path is led to the table of rights."""
    constants = [value for name, value in vars(paths).items() if name.isupper() and str(value).startswith(f"{ADMIN}/")]
    functions = [
        function
        for name, function in vars(paths).items()
        if inspect.isfunction(function) and function.__module__ == paths.__name__ and not name.startswith("_")
        if function.__annotations__["return"] == "str" and name not in NO_PATHS
    ]
    made = [function(**arguments(function)) for function in functions]
    assert len(constants) >= 9
    assert len(functions) >= 20
    assert [path for path in (*constants, *made) if endpoint(path) == OTHER] == []


def arguments(function: Callable[..., str]) -> dict[str, object]:
    """What to call it with."""
    name = TOPIC if function.__name__ in OF_TOPICS else "t/n"
    name = "topic://t/n/a" if function.__name__ == "scalable_topic" else name
    return {one: name if one == "name" else SAMPLES[one] for one in inspect.signature(function).parameters}
