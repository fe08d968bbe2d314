"""The source of the dashboard: it prints what the API says, and makes no figure of its own."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from lbd.api.shapes import DrainPlan, DrainsResponse, RolloutPlan, RolloutResponse, ScoreHistory
from lbd.store.status import StatusResponse
from lbd.turn.record import PlanDocument

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = (files("lbd.api") / "static" / "app.js").read_text()
ANSWERS = (StatusResponse, PlanDocument, ScoreHistory, DrainsResponse, DrainPlan, RolloutPlan, RolloutResponse)

TIMES = re.compile(r"(?:^|_)(?:at|since|until|seconds|pid|turn|format)$")
"""Ages go on counting between two answers, so that the page computes with times."""

MAKES_ONE_OF_MANY = re.compile(r"Math\.(?!round|floor)\w+|\.reduce\w*\(")

DRAWN = {
    "if (seconds < 120) return `${Math.max(0, Math.round(seconds))} s`;": "a duration as text",
    "const width = (score) => `${Math.min(score ?? 0, 100)}%`;": "a bar ends at its track",
    "behind(one) - behind(other) || (other.score ?? -1) - (one.score ?? -1)": "the order of rows",
    "at < (hits * Math.min(wanted, 12)) / wanted": "twelve marks at most stand for all hits",
    "= [one.limit, one.limit * 0.8, 0, one.used];": "from here on a meter is yellow",
    "x: Math.min(move.at, to), y: valueAt(line, move.at)": "a mark of a move stands on the line",
}
"""What is computed for a drawing, and is no figure that anybody reads."""


def numbers(schema: Any) -> Iterator[str]:
    """Names of the numeric members of an answer, at any depth."""
    for name, member in schema.get("properties", {}).items():
        kinds = {kind.get("type") for kind in (member, *member.get("anyOf", ()))}
        if kinds & {"number", "integer"} and not TIMES.search(name):
            yield name


def figures() -> set[str]:
    """Names of all figures of the answers that the page prints."""
    _, components = msgspec.json.schema_components(ANSWERS)
    return {name for schema in components.values() for name in numbers(schema)}


def computed(source: str) -> list[str]:
    """Lines that compute with a figure, or make one figure of many."""
    named = rf"\.(?:{'|'.join(sorted(figures()))})\b(?: \?\? -?\d+)?\)?"
    sums = re.compile(rf"{named} [-+*/%] |(?<=[\w)]) [-+*/%] \(?\w+{named}|[-+*/]= \w+{named}")
    return [line.strip() for line in source.splitlines() if MAKES_ONE_OF_MANY.search(line) or sums.search(line)]


def test_the_page_computes_no_figure():
    """Means, extremes, sums and differences come from the server, which makes each once for all who show it."""
    lines = computed(SOURCE)
    assert [line for line in lines if not any(drawn in line for drawn in DRAWN)] == []
    assert [drawn for drawn in DRAWN if not any(drawn in line for line in lines)] == []


def test_arithmetic_is_found():
    """Each kind that the page once had: a mean, an extreme, a sum of counts, a difference, a share."""
    once = [
        "const mean = scores.reduce((sum, score) => sum + score, 0) / scores.length;",
        "const full = Math.max(100, ...scores);",
        "const tried = work.landed + work.elsewhere;",
        "const gap = first.score - last.score;",
        "limits.sort((one, other) => other.used / other.limit)",
        "total += broker.bundles;",
    ]
    assert computed("\n".join([*once, "const age = now() - status.at;"])) == once


def test_the_page_reads_what_there_is():
    """A member of the status that is misspelt, or is gone, would be shown as nothing."""
    read = set(re.findall(r"\bstatus\.(\w+)", SOURCE))
    assert read - set(StatusResponse.__struct_encode_fields__) == set()
