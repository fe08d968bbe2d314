"""YAML and JSON documents as plain values; what is no such document is told by line and column, never by its text."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def read_yaml(text: str) -> Any:  # noqa: ANN401 - whatever stands there
    """The document. Raises ``yaml.YAMLError``, and RecursionError where it is nested too deeply or contains itself."""
    found = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    ends(found)
    return found


class _Loader(yaml.SafeLoader):
    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT - PyYAML's signature
        """PyYAML lets Python's own errors through for what looks like a number, date or tag and is none."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            wanted = "no such number, date or tag; a text is put into quotes"
            raise yaml.constructor.ConstructorError(None, None, wanted, node.start_mark) from error


def yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may hold a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{' '.join(problem.split())}"


def ends(found: object) -> None:
    """Raises RecursionError for a document that contains itself, as YAML's anchors allow."""
    if isinstance(found, dict):
        deque(flat(found), maxlen=0)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by their dotted keys."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
