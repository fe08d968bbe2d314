"""The files that a calibration leaves."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lbd.files import telling
from lbd.learn import proposal
from lbd.learn.report import page

if TYPE_CHECKING:
    from pathlib import Path

    from lbd.learn.calibrate import Calibration


def write(found: Calibration, out: Path) -> list[str]:
    """Write all of them into a directory; returns the evidence in words, the recommendation last."""
    rows = [
        {"name": one.name, "front": one.front, "settings": json.dumps(found.tried[one.name].values)}
        | {
            f"{part}_{key}": value
            for part in ("trained", "held_out")
            for key, value in asdict(getattr(one, part)).items()
        }
        for one in found.choice.judged
    ]
    with telling(out):
        (out / "proposal.yaml").write_text(proposal.settings_file(found), encoding="utf-8")
        (out / "broker.conf").write_text(proposal.broker_conf(found), encoding="utf-8")
        (out / "report.html").write_text(page(found), encoding="utf-8")
        pq.write_table(pa.Table.from_pylist(rows), out / "candidates.parquet")
    lines = list(proposal.evidence(found))
    last = next(at for at, line in enumerate(lines) if line.startswith(("Recommended", "Nothing is")))
    return [*lines[:last], *lines[last + 1 :], lines[last]]
