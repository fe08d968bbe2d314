"""The list of rules: each can be explained, documents follow from it, and a new one needs nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lbd.config import Settings
from lbd.observe.parse import BundleStats
from lbd.permit import rules
from lbd.permit.rule import Rule
from lbd.permit.settings import Guardrails
from lbd.reason import Reason
from lbd.store.explain import barred
from tests.builders import bundle, case, report, snapshot, stats
from tests.guardrails_page import PAGE, page

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
POINTS = [field.name for field in fields(Rule) if field.name not in {"reasons", "settings"}]


def test_the_page_of_guardrails_has_the_rules():
    """``python -m tests.guardrails_page`` makes its table."""
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.reason.label)
def test_a_rule_is_whole(rule: Rule):
    """It has a say somewhere, a sentence for each reason, and settings that there are."""
    assert any(getattr(rule, point) is not None for point in POINTS)
    assert all(rule.reasons.values())
    for name in rule.settings:
        section, _, own = name.rpartition(".")
        named: Any = Settings.model_fields[section].annotation if section else Settings
        assert own in Guardrails.model_fields or own in named.model_fields


def test_names_are_asked_for_first():
    """A replay asks those about names once: none of them may stand behind one that it asks in each round."""
    by_name = [rule.by_name for rule in rules.RULES if rule.bars_bundles and rule.reason is not Reason.LEADER_TOPIC]
    first = by_name.index(False)
    assert not any(by_name[first:])


def test_a_rule_is_one_entry(monkeypatch: pytest.MonkeyPatch):
    """The steps of docs/architecture.md: the entry bars, explain says its sentence, and guardrails.md has its row."""
    steps = ARCHITECTURE.read_text(encoding="utf-8").partition("## Add a rule")[2]
    code = re.search(r"```python\n(.*?)```", steps, re.DOTALL)
    assert code is not None
    named: dict[str, Any] = {}
    exec(code[1], named)
    monkeypatch.setattr(rules, "RULES", (*rules.RULES, named["RULE"]))

    crowded = BundleStats(10, 10, 1000, 1000, 1, 20_000, 1)
    seen = snapshot({"a:80": report(50, {bundle(1): crowded, bundle(2): stats(10)})})
    assert [Reason.NOT_CHECKED.code, 0] == rules.barred(case(seen)).tolist()
    sentence = named["RULE"].reasons[Reason.NOT_CHECKED]
    assert barred("not-checked") == f"not-checked: {sentence}"
    assert f"| `not-checked` | a bundle | {sentence} | none |" in page(PAGE.read_text(encoding="utf-8"))
