"""Alerts, dashboards and the scripts of examples/kubernetes in the chart, which cannot reach outside its own folder.

``python -m tests.helm.files`` copies them.
"""

from __future__ import annotations

from pathlib import Path

from tests.helm.readme import CHART

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = CHART / "files"


def wanted() -> dict[str, str]:
    """What should be in the chart, by name."""
    scripts = ("kubernetes/pre-stop.sh", "kubernetes/restart_pod.py")
    found = (EXAMPLES.glob(own) for own in ("prometheus/*.rules.yml", "grafana/*.json", *scripts))
    return {path.name: path.read_text() for paths in found for path in paths}


def there() -> dict[str, str]:
    """What is."""
    return {path.name: path.read_text() for path in FILES.iterdir()}


if __name__ == "__main__":
    FILES.mkdir(exist_ok=True)
    for old in FILES.iterdir():
        old.unlink()
    for name, text in wanted().items():
        (FILES / name).write_text(text)
