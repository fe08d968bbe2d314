"""The table of rules in docs/guardrails.md, from the list of rules. ``python -m tests.guardrails_page`` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

from lbd.permit import rules
from lbd.permit.settings import Guardrails

PAGE = Path(__file__).parents[1] / "docs" / "guardrails.md"
BEGIN, END = "<!-- rules: python -m tests.guardrails_page -->\n", "<!-- end of rules -->"


def page(text: str) -> str:
    """The page with its table as it is to be: a row for each reason, where its first rule stands."""
    rows = ["| reason | holds | because | settings |", "|---|---|---|---|"]
    for reason in dict.fromkeys(reason for rule in rules.RULES for reason in rule.reasons):
        own = [rule for rule in rules.RULES if reason in rule.reasons]
        points = ["every move"] * any(rule.hold for rule in own) + ["a bundle"] * any(rule.bars_bundles for rule in own)
        settings = dict.fromkeys(f"`{name}`{_default(name)}" for rule in own for name in rule.settings)
        cells = f"`{reason.label}`", ", ".join(points), rules.explained(reason), ", ".join(settings) or "none"
        rows.append(f"| {' | '.join(cells)} |")
    before, _, rest = text.partition(BEGIN)
    return "\n".join((f"{before}{BEGIN}", *rows, "", f"{END}{rest.partition(END)[2]}"))


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
