"""YAML and JSON documents as plain values; what is no such document is told by line and column, never by its text."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

WANTED = {
    "tuple_type": 'wanted a list, as ["…"]',
    "list_type": 'wanted a list, as ["…"]',
    "dict_type": "wanted keys and values",
    "model_type": "wanted keys and values",
    "int_type": "wanted a whole number",
    "int_parsing": "wanted a whole number",
    "int_from_float": "wanted a whole number",
    "float_type": "wanted a number",
    "float_parsing": "wanted a number",
    "finite_number": "wanted a finite number",
    "bool_type": "wanted true or false",
    "bool_parsing": "wanted true or false",
    "string_type": "wanted text, in quotes where YAML takes it for something else",
    "literal_error": "wanted {expected}",
    "greater_than": "wanted more than {gt}",
    "greater_than_equal": "wanted {ge} or more",
    "less_than": "wanted less than {lt}",
    "less_than_equal": "wanted {le} or less",
    "too_short": "wanted {min_length} or more, not {actual_length}",
    "missing": "is missing",
    "extra_forbidden": "no such key",
}
"""What would be right, for pydantic's types of errors, whose own words are for those who wrote the class."""


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

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - PyYAML's signature
        """PyYAML takes the last of two equal keys, and drops what stands below the first."""
        found: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in found.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, "this key is there twice", key.start_mark)
            seen.add(key.value)
        return found


def yaml_problem(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may hold a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{' '.join(problem.split())}"


def complaint(item: ErrorDetails) -> str:
    """What would be right instead of a value, in words for who wrote the document."""
    words = WANTED.get(item["type"])
    if words is None:
        return item["msg"].removeprefix("Value error, ")
    return words.format(**{name: _whole(value) for name, value in item.get("ctx", {}).items()})


def _whole(limit: object) -> object:
    """1.0 is 1 for people."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


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
