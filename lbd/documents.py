"""YAML and JSON documents as plain values; syntax errors are reported by line and column, never with the text."""

from __future__ import annotations

import re
from collections import deque
from typing import IO, TYPE_CHECKING, Any

import yaml

from lbd.errors import UsageError, unread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

LONGEST_DOCUMENT = 512 << 10
"""Largest size, in bytes, of a file that people write; settings for a thousand brokers take a fifth of it."""

DEEPEST, MOST_NODES = 50, 100_000
"""Limits of levels in a document, and of values, counted again for each alias."""

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
    "string_pattern_mismatch": "wanted text as {pattern}",
    "path_type": "wanted the path of a file",
    "missing": "is missing",
    "extra_forbidden": "no such key",
}
"""Right values by pydantic's types of errors, whose own texts are for authors of the class."""


def content_of(path: Path) -> bytes:
    """Read a file that a person wrote. Raises :class:`UsageError` where it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_DOCUMENT + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {unread(error)}") from error
    if len(content) > LONGEST_DOCUMENT:
        raise UsageError(f"{path}: longer than {LONGEST_DOCUMENT >> 10} KiB; is it the right file?")
    return content


def text_of(path: Path) -> str:
    """Read such a file as text. Raises :class:`UsageError` also where it is not in UTF-8."""
    try:
        return content_of(path).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {unread(error)}") from error


def read_yaml(text: str) -> Any:  # noqa: ANN401 - whatever stands there
    """Parse a document; all YAML that lbd reads comes through here.

    Raises ``yaml.YAMLError``, also for a document whose aliases would make it too large, and RecursionError for one
    that contains itself.
    """
    node = compose_yaml(text)
    if node is None:
        return None
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def compose_yaml(text: str) -> yaml.Node | None:
    """The document's nodes, which know their lines. Raises as :func:`read_yaml` does."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
    finally:
        loader.dispose()
    if node is not None and _size(node, {}, set()) > MOST_NODES:
        raise yaml.composer.ComposerError(None, None, f"aliases make it more than {MOST_NODES:,} values")
    return node


def _size(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """Number of values in a node, with those behind an alias each time. Each node is counted once."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) in above:
        raise RecursionError
    if id(node) not in sizes:
        above.add(id(node))
        pairs = isinstance(node, yaml.MappingNode)
        inner = [item for pair in node.value for item in pair] if pairs else node.value
        sizes[id(node)] = 1 + sum(_size(item, sizes, above) for item in inner)
        above.remove(id(node))
    return sizes[id(node)]


class _Loader(yaml.SafeLoader):
    """Numbers as in YAML 1.2: 1:30 is text and not 90, 010 is ten and not eight."""

    def __init__(self, stream: str | IO[str]) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Limit the depth, which PyYAML does not."""
        self._depth += 1
        if self._depth > DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, f"nested too deeply, more than {DEEPEST} levels", mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401, FBT - PyYAML's signature
        """Report what looks like a number, date or tag and is none; PyYAML lets Python's own errors through."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            problem = "no such number, date or tag; a text is put into quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - PyYAML's signature
        """Refuse two equal keys: PyYAML takes the last, and drops the content of the first."""
        mapping: yaml.MappingNode = super().compose_mapping_node(anchor)
        names = set()
        for key in (key for key, _ in mapping.value if isinstance(key, yaml.ScalarNode)):
            if key.value in names:
                raise yaml.composer.ComposerError(None, None, "this key is there twice", key.start_mark)
            names.add(key.value)
        return mapping


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in {_INT, _FLOAT}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _INT, re.compile(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(
        r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=e))(e[-+]?[0-9]+)?$|[-+]?\.inf$|\.nan$",
        re.IGNORECASE,
    ),
    list("-+0123456789."),
)


def yaml_problem(error: yaml.YAMLError) -> str:
    """Position and kind of an error, without the line itself, which may hold a secret."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or str(error)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{where}{' '.join(problem.split())}"


def complaint(item: ErrorDetails) -> str:
    """The right value, in words for the author of the document."""
    words = WANTED.get(item["type"])
    if words is None:
        return item["msg"].removeprefix("Value error, ")
    return words.format(**{name: _whole(value) for name, value in item.get("ctx", {}).items()})


def _whole(limit: object) -> object:
    """The number as people write it: 1.0 as 1."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def ends(document: object) -> None:
    """Raise RecursionError for a document that contains itself, as YAML's anchors allow."""
    if isinstance(document, dict):
        deque(flat(document), maxlen=0)


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by their dotted keys."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
