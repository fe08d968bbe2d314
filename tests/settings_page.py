"""docs/settings.md and examples/full.yaml, from the settings classes. ``python -m tests.settings_page`` writes them."""

from __future__ import annotations

import types
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel

from lbd.config import Settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
FULL = Path(__file__).parents[1] / "examples" / "full.yaml"

HEAD = """# Settings

Every setting with its default, its values and its meaning. Generated from the code by `python -m tests.settings_page`.

Settings come from YAML in `/etc/lbd/lbd.yaml` or `--config FILE`. Each can also come from the environment, where two
underscores replace a dot (`LBD_AVG_SHEDDER__LOW_THRESHOLD=20`; lists and objects as JSON). `lbd config check` reports
every mistake at once. `lbd config show` prints the effective values and their origin. `lbd config from-broker` copies
the balancing settings of the brokers. Only the address of a broker has to be set: begin with
[examples/lbd.yaml](../examples/lbd.yaml). [examples/full.yaml](../examples/full.yaml) contains every setting.
[guardrails.md](guardrails.md) gives the reasons for the defaults of guardrails.
"""


def page() -> str:
    """All of it: what stands at the top level, then a table for each section."""
    sections = [(name, inner) for name, inner in _models(Settings)]
    plain = {name: field for name, field in Settings.model_fields.items() if name not in dict(sections)}
    parts = [HEAD, _table("", plain)]
    parts += [f"## {name}\n\n{_about(model)}{_table(f'{name}.', model.model_fields)}" for name, model in sections]
    return "\n".join(parts)


def full() -> str:
    """Every setting at its default, with its meaning above it."""
    head = (
        "# Every setting at its default, generated from the code. Begin with examples/lbd.yaml; copy what you change.\n"
    )
    return head + "\n".join(_lines(Settings(), ""))


def _lines(model: BaseModel, indent: str) -> list[str]:
    lines: list[str] = []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        lines += [f"{indent}# {line}" for line in wrap(field.description or "", 118 - len(indent))]
        if isinstance(value, BaseModel):
            lines += [f"{indent}{name}:", *_lines(value, f"{indent}  ")]
        else:
            plain = model.model_dump(mode="json")[name]
            lines.append(
                f"{indent}{name}: {yaml.safe_dump(plain, default_flow_style=True, width=10_000).splitlines()[0]}"
            )
    return [*lines, ""] if not indent else lines


def rows(model: type[BaseModel], above: str = "") -> dict[str, Any]:
    """The fields of a section by their dotted names, those of its own sections included."""
    found: dict[str, Any] = {}
    inner = dict(_models(model))
    for name, field in model.model_fields.items():
        if name in inner:
            found |= rows(inner[name], f"{above}{name}.")
        else:
            found[f"{above}{name}"] = field
    return found


def _table(above: str, fields: dict[str, Any]) -> str:
    lines = ["| setting | default | values | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        inner = _model(field.annotation)
        found = rows(inner, f"{above}{name}.") if inner is not None else {f"{above}{name}": field}
        lines += [_row(path, each) for path, each in found.items()]
    return "\n".join([*lines, ""])


def _row(path: str, field: Any) -> str:
    meaning = (field.description or "").replace("|", "\\|")
    default = "to be given" if field.is_required() else f"`{_shown(field.get_default(call_default_factory=True))}`"
    return f"| `{path}` | {default} | {_values(field) or 'text'} | {meaning} |"


def _shown(value: Any) -> str:
    if isinstance(value, BaseModel):
        return _shown(value.model_dump())
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"[{', '.join(_shown(each) for each in value)}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_shown(each)}' for key, each in value.items())}}}"
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _values(field: Any) -> str:
    bounds = [_bound(each) for each in field.metadata]
    return " ".join(part for part in (_kind(field.annotation), ", ".join(filter(None, bounds))) if part)


def _bound(found: Any) -> str:
    signs = {"Ge": "≥", "Gt": ">", "Le": "≤", "Lt": "<"}
    kind = type(found).__name__
    return f"{signs[kind]} {_shown(getattr(found, kind.lower()))}" if kind in signs else ""


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{each}`" for each in get_args(annotation))
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in {Union, types.UnionType}:
        return _kind(next(each for each in get_args(annotation) if each is not type(None)))
    origin = get_origin(annotation) or annotation
    if origin in {tuple, list, set, frozenset}:
        return "list"
    if origin is dict or (isinstance(origin, type) and issubclass(origin, BaseModel)):
        return "keys and values"
    names = {bool: "true or false", int: "integer", float: "number", Path: "path", str: ""}
    return names.get(origin, "")


def _models(model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    named = ((name, _model(field.annotation)) for name, field in model.model_fields.items())
    return [(name, inner) for name, inner in named if inner is not None]


def _model(annotation: Any) -> type[BaseModel] | None:
    """The section that a field is, also where it may be left out."""
    for each in (annotation, *get_args(annotation)):
        if isinstance(each, type) and issubclass(each, BaseModel) and get_origin(annotation) not in {tuple, list, dict}:
            return each
    return None


def _about(model: type[BaseModel]) -> str:
    first = (model.__doc__ or "").strip().split("\n\n")[0].replace("``", "`")
    return f"{' '.join(first.split())}\n\n" if first else ""


if __name__ == "__main__":
    PAGE.write_text(page())
    FULL.write_text(full())
