"""docs/permissions.md names the right for each request that lbd can send."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.pulsar import paths
from lbd.pulsar.paths import ADMIN, OTHER, TEMPLATES, endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "permissions.md"
ROW = re.compile(r"^\| (?:GET|PUT|POST|DELETE) `([^`]+)` \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
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
}
OF_TOPICS = ("topic", "topic_stats", "topic_ttl", "topic_permissions", "subscription", "expiry")
NO_PATHS = {"endpoint", "load_manager_class", "shedder_class", "topic_in"}


def test_each_template_has_a_row():
    """And each row a template: one that lbd sends no more goes."""
    named = ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert sorted(named) == sorted([*TEMPLATES, "/lookup/v2/topic"])


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
