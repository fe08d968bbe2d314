"""The JSON schema of ``lbd calibrate``. ``python -m tests.calibrate_schema`` writes docs/calibrate.schema.json."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lbd.learn.document import CalibrationDocument
from lbd.learn.estimate import CalibrationEstimate
from lbd.store.calibration import ShownProposal

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

PAGE = Path(__file__).parents[1] / "docs" / "calibrate.schema.json"
KINDS = (CalibrationDocument, CalibrationEstimate, ShownProposal)


def page() -> str:
    """A schema that a document of any kind is valid under; the name of each kind leads to its own."""
    alternatives, shared = msgspec.json.schema_components(KINDS, ref_template="#/$defs/{name}")
    for kind in shared.values():
        kind["description"] = " ".join(re.sub(r":\w+:`([^`]*)`|``", r"\1", kind["description"]).split())
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": list(alternatives), "$defs": shared}
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted")).decode() + "\n"


def validator(kind: type) -> Draft202012Validator:
    """A validator of the documents of one kind, as the schema's readers would make it."""
    from jsonschema import Draft202012Validator  # 2 s of CPU, with the grammars of every format

    shared = json.loads(PAGE.read_text(encoding="utf-8"))
    return Draft202012Validator({"$ref": f"#/$defs/{kind.__name__}", "$defs": shared["$defs"]})


def main() -> int:
    """Write the schema."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
