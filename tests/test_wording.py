"""The words of the code: a name says what the value is, and a docstring begins with its verb or its noun."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

LBD = Path(__file__).parent.parent / "lbd"

NAMES = re.compile(r"_*(one|told|tells|asked|seen|found|left|kept|given|begun|ended|wanted|known|said)")
"""Names that do not say what the value is. A method may have one: it is a verb there, not a thing."""

PUBLISHED = {
    ("api/shapes.py", "name 'ended'"),
    ("doctor/findings.py", "name 'seen'"),
    ("load/capacity.py", "name 'wanted'"),
    ("notify/events.py", "name 'ended'"),
    ("model.py", "name 'wanted'"),
    ("store/drains.py", "name 'left'"),
    ("store/explain.py", "name 'seen'"),
    ("store/orders.py", "name 'ended'"),
    ("store/predictions.py", "name 'found'"),
    ("store/rollouts.py", "name 'begun'"),
    ("store/status.py", "name 'left'"),
    ("store/turn_record.py", "name 'wanted'"),
    ("split/plan.py", "name 'left'"),
}
"""Fields of JSON and settings, which programs and files of users name."""

TIMES = re.compile(r"float|At\b|datetime|FloatArray")
"""Types that a value called ``at`` may have: it is a time. An index or an address has a name of its own."""

BEGINNINGS = re.compile(r"(Of|That|What|Who|Whose|Whom|So)\b")
PHRASES = re.compile(r"\b(told|of which|so many|so much)\b", re.IGNORECASE)


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Line and fault of each name, docstring and comment that breaks a rule."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        yield from ((line, f"name {name!r}") for line, name in _names(node) if NAMES.fullmatch(name))
        yield from ((line, "name 'at' for another thing than a time") for line in _no_times(node))
        text = _docstring(node)
        if text is not None and isinstance(node, ast.stmt):
            yield from ((node.lineno, f"begins with {begin[0]!r}") for begin in [BEGINNINGS.match(text)] if begin)
            yield from ((node.lineno, f"says {phrase[0]!r}") for phrase in PHRASES.finditer(text))
    if PHRASES.search(source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield from ((token.start[0], f"says {phrase[0]!r}") for phrase in PHRASES.finditer(token.string))


def _names(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg


def _no_times(node: ast.AST) -> Iterator[int]:
    """Lines that bind ``at`` to something that is not annotated as a time; comprehensions of one line aside."""
    if isinstance(node, ast.arg) and node.arg == "at":
        if node.annotation is not None and not TIMES.search(ast.unparse(node.annotation)):
            yield node.lineno
    elif isinstance(node, ast.AnnAssign):
        if _binds_at(node.target) and not TIMES.search(ast.unparse(node.annotation)):
            yield node.lineno
    elif isinstance(node, ast.Assign | ast.For | ast.withitem | ast.NamedExpr):
        targets = node.targets if isinstance(node, ast.Assign) else [_target(node)]
        if any(_binds_at(target) for target in targets if target is not None):
            yield (node.context_expr if isinstance(node, ast.withitem) else node).lineno
    elif (
        isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        and node.end_lineno != node.lineno
    ):
        yield from (node.lineno for generator in node.generators if _binds_at(generator.target))


def _target(node: ast.For | ast.withitem | ast.NamedExpr) -> ast.expr | None:
    return node.optional_vars if isinstance(node, ast.withitem) else node.target


def _binds_at(target: ast.expr) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "at" for part in ast.walk(target))


def _docstring(node: ast.AST) -> str | None:
    """The text of a docstring, of a module, class, function, constant or field."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return node.value.value.strip()
    return None


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what a person may read: strings with a space that are no docstrings, and help of commands."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from [(node.lineno, node.value)] if " " in node.value else []
        if isinstance(node, ast.FunctionDef) and any("command" in ast.unparse(each) for each in node.decorator_list):
            yield node.lineno, ast.get_docstring(node) or ""


def modules() -> dict[str, list[Path]]:
    """Files by package, and by the pattern for those that are in none."""
    parts: dict[str, list[Path]] = {"*.py": sorted(LBD.glob("*.py"))}
    for path in sorted(LBD.glob("*/**/*.py")):
        parts.setdefault(path.relative_to(LBD).parts[0], []).append(path)
    return parts


@pytest.mark.parametrize("package", sorted(modules()))
def test_the_words_of_a_package(package: str) -> None:
    """None has such a name or sentence."""
    names = {path: str(path.relative_to(LBD)) for path in modules()[package]}
    faults = [
        f"lbd/{name}:{line}: {fault}"
        for path, name in names.items()
        for line, fault in findings(path.read_text(encoding="utf-8"))
        if (name, fault) not in PUBLISHED
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("for one in rows: pass", ["name 'one'"]),
        (
            "class A:\n    def known(self, told: int) -> None: self.kept = 1",
            ["name 'told'", "name 'kept'"],
        ),
        ("x = [one for one in rows]", ["name 'one'"]),
        ("for at, row in enumerate(rows): pass", ["name 'at' for another thing than a time"]),
        ("def send(at: str, time: float): pass", ["name 'at' for another thing than a time"]),
        ("class Line:\n    at: float\n    past: list[float] = [at for at in times]", []),
        ("rows = {\n    at\n    for at in times\n}", ["name 'at' for another thing than a time"]),
        ('"""What is sent."""', ["begins with 'What'"]),
        (
            'LIMIT = 1\n"""So many are sent, of which two count."""',
            ["begins with 'So'", "says 'So many'", "says 'of which'"],
        ),
        ('"""Somebody is not Sophie. Offers count; the one in hand, too."""', []),
        ("x = 1  # as it was told\ny = 'as it was told'", ["says 'told'"]),
    ],
)
def test_a_fault_is_named(source: str, faults: list[str]) -> None:
    """Each rule finds its fault, and leaves alone what only looks like it; a text for users is no docstring."""
    assert [fault for _, fault in findings(source)] == faults


HIT = re.compile(r"\bhits?\b", re.IGNORECASE)
"""Pulsar's word for a sample above a threshold; names of settings (``hit_count_low``) and of metrics keep it."""


def test_no_text_says_hits() -> None:
    """Status, doctor, demo, metrics and help say samples: a hit is a word of the implementation."""
    faults = [
        f"{path.relative_to(LBD)}:{line}: {text!r}"
        for paths in modules().values()
        for path in paths
        for line, text in texts(path.read_text(encoding="utf-8"))
        if HIT.search(text)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('print(f"{hits} hits take")', 1),
        ('"""Hits of a pair."""\nkey = "hits"', 0),
        ('@click.command("x")\ndef x() -> None:\n    """Count hits."""', 1),
        ('say("hit_count_low is 8, white")', 0),
    ],
)
def test_what_a_person_reads_is_looked_at(source: str, number: int) -> None:
    """Strings with a space and the help of commands; neither docstrings nor keys."""
    assert len([text for _, text in texts(source) if HIT.search(text)]) == number
