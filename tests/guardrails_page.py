"""The table of rules in docs/guardrails.md, from the list of rules. ``python -m tests.guardrails_page`` writes it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lbd.permit import rules
from lbd.permit.settings import Guardrails

if TYPE_CHECKING:
    from collections.abc import Callable

    from lbd.permit.rule import Rule
    from lbd.reason import Reason

PAGE = Path(__file__).parents[1] / "docs" / "guardrails.md"
BEGIN, END = "<!-- rules: python -m tests.guardrails_page -->\n", "<!-- end of rules -->"

POINTS: dict[str, Callable[[Rule], object]] = {
    "every move": lambda rule: rule.hold,
    "a bundle": lambda rule: rule.bars_bundles or rule.refuses,
    "a destination": lambda rule: rule.forbids,
    "a plan": lambda rule: rule.caps,
}


def page(text: str) -> str:
    """The page with its table as it is to be: a row for each reason, where its first rule stands."""
    rows = ["| reason | holds | because | settings |", "|---|---|---|---|"]
    for reason in dict.fromkeys(reason for rule in rules.RULES for reason in rule.reasons):
        own = [rule for rule in rules.RULES if reason in rule.reasons]
        points = [name for name, has in POINTS.items() if any(map(has, own))]
        settings = dict.fromkeys(f"`{name}`{_default(name)}" for rule in own for name in _settings(rule, reason))
        cells = f"`{reason.label}`", ", ".join(points), rules.explained(reason), ", ".join(settings) or "none"
        rows.append(f"| {' | '.join(cells)} |")
    before, _, rest = text.partition(BEGIN)
    return "\n".join((f"{before}{BEGIN}", *rows, "", f"{END}{rest.partition(END)[2]}"))


def _settings(rule: Rule, reason: Reason) -> list[str]:
    """A setting that sentences of the rule name is one of their reasons alone."""
    named = {name: [one for one, why in rule.reasons.items() if f".{name}" in why] for name in rule.settings}
    return [name for name, reasons in named.items() if not reasons or reason in reasons]


def _default(name: str) -> str:
    """A number; what a list or another value means, docs/settings.md says."""
    field = Guardrails.model_fields.get(name)
    number = field is not None and isinstance(field.default, int | float) and not isinstance(field.default, bool)
    return f" ({field.default:g})" if field is not None and number else ""


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
