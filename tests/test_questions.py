"""A question changes nothing: a method that answers yes or no, or why not, leaves its object as it was."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).parents[1] / "lbd"
PACKAGES = ("permit", "act", "turn", "store", "operations")

ANSWERS = {"bool", "Skip | None", "Hold | None", "tuple[Reason, str] | None"}

DEEDS = {
    "Executor._conclude": "writes an outcome, and says whether that worked",
    "Executor._finish": "ends a killed process's move, and says whether it could",
    "Requests._withdraw": "takes a request back, and says whether it still waited",
    "SharedOrders._merge": "takes what the topic has, and says whether any of it is new",
    "Rolling._order": "orders what is due, and says whether the drain of the phase is ordered",
}
"""Commands that say whether they did it."""

MEMOS = {"Policies.forbids": "keeps which brokers a namespace's policies allow, which does not change in a round"}

MUTATORS = {"add", "append", "appendleft", "begin", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft"}
MUTATORS |= {"put", "remove", "save", "setdefault", "take", "take_landing", "take_sending", "update", "write"}


def is_own(node: ast.expr) -> bool:
    """Whether an expression begins at ``self``."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id == "self"


def changes_itself(method: ast.FunctionDef) -> bool:
    """Whether a method assigns to its object, or calls a mutator of one of its parts."""
    for node in ast.walk(method):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        flat = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
        if any(not isinstance(part, ast.Name) and is_own(part) for part in flat):
            return True
        mutates = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS
        if mutates and is_own(node):
            return True
    return False


def own_calls(method: ast.FunctionDef) -> set[str]:
    """The methods of the same object that a method calls."""
    attributes = [node.func for node in ast.walk(method) if isinstance(node, ast.Call)]
    return {
        one.attr
        for one in attributes
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }


def changing_questions(source: str) -> Iterator[str]:
    """``Class.method`` of each question in a module that changes its object, itself or by a method that it calls."""
    for kind in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)):
        methods = {node.name: node for node in kind.body if isinstance(node, ast.FunctionDef)}
        changing = {name for name, method in methods.items() if changes_itself(method)}
        while more := {name for name, method in methods.items() if own_calls(method) & changing} - changing:
            changing |= more
        for name in sorted(changing):
            returns = methods[name].returns
            if returns is not None and ast.unparse(returns) in ANSWERS:
                yield f"{kind.name}.{name}"


def test_questions_change_nothing() -> None:
    """In deciding what may happen, doing it and keeping it; commands that report success are named with why."""
    modules = [path for package in PACKAGES for path in sorted((PACKAGE / package).glob("*.py"))]
    found = {name for path in modules for name in changing_questions(path.read_text())}
    assert found == DEEDS.keys() | MEMOS.keys()


@pytest.mark.parametrize(
    "body",
    [
        "self._predicted[owner] += 1\n        return True",
        "self._seen.add(owner)\n        return True",
        "self._now, self._last = owner, owner\n        return True",
        "return self._count(owner)\n    def _count(self, owner: str) -> int:\n        self.n = 1\n        return 1",
    ],
    ids=["adds up", "remembers", "assigns several", "by another method"],
)
def test_a_question_that_changes_its_answer_is_found(body: str) -> None:
    """The kinds that were there once."""
    source = f"class Ledger:\n    def accepts(self, owner: str) -> bool:\n        {body}\n"
    assert list(changing_questions(source)) == ["Ledger.accepts"]
