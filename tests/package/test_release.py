"""What a tag releases: files that anybody can build again, named by an SBOM, from a workflow with least rights."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.package.conftest import EPOCH, PLAIN, ROOT, run

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS = [*sorted((ROOT / ".github" / "workflows").glob("*.yml")), ROOT / "examples" / "gitops" / "workflow.yml"]
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
JOBS: dict[str, Any] = RELEASE["jobs"]
SIGN = {"id-token": "write", "attestations": "write"}


def test_it_is_five_files_with_their_sums(release: Path):
    """Wheel and sdist for PyPI, the chart, the SBOM; the sums leave none of them out."""
    files = release / "files"
    sums = dict(reversed(line.split("  ")) for line in (files / "SHA256SUMS").read_text().splitlines())

    assert set(sums) == {"lbd-0.1.0-py3-none-any.whl", "lbd-0.1.0.tar.gz", "lbd-0.1.0.tgz", "lbd-0.1.0.cdx.json"}
    assert {path.name for path in files.iterdir()} == {*sums, "SHA256SUMS"}
    for name, digest in sums.items():
        assert hashlib.sha256((files / name).read_bytes()).hexdigest() == digest


def test_archives_hold_nothing_of_the_machine(release: Path):
    """The commit's time in every entry, and nobody's name; .ci/release has compared two builds of each."""
    files = release / "files"

    for name in ("lbd-0.1.0.tar.gz", "lbd-0.1.0.tgz"):
        with tarfile.open(files / name) as archive:
            assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in archive} == {(EPOCH, 0, 0, "", "")}
    with zipfile.ZipFile(files / "lbd-0.1.0-py3-none-any.whl") as wheel:
        assert {one.date_time for one in wheel.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_the_chart_in_it_is_the_chart(release: Path):
    """Every file but what .helmignore names."""
    with tarfile.open(release / "files" / "lbd-0.1.0.tgz") as archive:
        packed = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    chart = ROOT / "helm" / "lbd"
    tree = {str(path.relative_to(chart.parent)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}

    left_out = {name for name in tree if name.startswith("lbd/ci/")}
    assert packed.keys() == tree.keys() - left_out
    assert all(packed[name] == tree[name] for name in packed if name != "lbd/Chart.yaml")
    assert yaml.safe_load(packed["lbd/Chart.yaml"]) == yaml.safe_load(tree["lbd/Chart.yaml"])


def test_the_sbom_names_everything_that_the_wheel_installs(release: Path):
    """Name and version of each package, as the lock of the installation has them; lbd is what it describes."""
    text = (release / "files" / "lbd-0.1.0.cdx.json").read_text()
    sbom = json.loads(text)
    named = {(_normal(one["name"]), one["version"]) for one in sbom["components"]}
    lock = [line.split()[0].split("==") for line in (release / "venv" / "lock.txt").read_text().splitlines()]

    root = sbom["metadata"]["component"]
    assert (root["name"], root["version"]) == ("lbd", "0.1.0")
    assert named | {("lbd", "0.1.0")} == {(_normal(name), version) for name, version in lock}
    assert all(one["purl"] == f"pkg:pypi/{_normal(one['name'])}@{one['version']}" for one in sbom["components"])
    assert str(release) not in text


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize(
    ("change", "tag", "message"),
    [
        ({}, "v0.1.1", "tag v0.1.1, but pyproject.toml has version 0.1.0: the tag would be v0.1.0"),
        ({"helm/lbd/Chart.yaml": ("^appVersion: .*$", "appVersion: 0.0.9")}, "", "Chart.yaml: no line matches ^app"),
        ({"lbd/__init__.py": ('"0.1.0"', '"0.2.0"')}, "", "lbd/__init__.py: no line matches ^__version__"),
        ({"CHANGELOG.md": (r"^## 0\.1\.0 .*$", "## 0.1.0 (not yet)")}, "v0.1.0", "CHANGELOG.md: no line matches"),
        ({"CHANGELOG.md": (r"^## 0\.1\.0 .*$", "## 0.1.0 (2026-12-01)")}, "v0.1.0", "uncommitted changes"),
    ],
)
def test_a_release_that_contradicts_itself_is_refused(
    tmp_path: Path, change: dict[str, tuple[str, str]], tag: str, message: str
):
    """Before anything is built."""
    versions = ("pyproject.toml", "lbd/__init__.py", "helm/lbd/Chart.yaml", "Dockerfile", "CHANGELOG.md")
    for name in (".ci/release", *versions):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    run("git", "init", "--quiet", cwd=tmp_path)
    for name, (pattern, text) in change.items():
        changed, count = re.subn(pattern, text, (tmp_path / name).read_text(), flags=re.MULTILINE)
        assert count == 1
        (tmp_path / name).write_text(changed)
    words = ["bash", tmp_path / ".ci" / "release", tmp_path / "new", *([tag] if tag else [])]

    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=PLAIN, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_no_fault(path: Path, lint: Path):
    """By actionlint: syntax, expressions, inputs of actions, contexts, and the shell in it."""
    done = subprocess.run([lint, "-no-color", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.security("an action or base image is replaced under its tag: all of them are pinned by hash")
@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / "Dockerfile"], ids=lambda path: path.name)
def test_what_others_wrote_is_pinned_by_hash(path: Path):
    """Actions at a commit with the version beside it, images at a digest; a stage of this Dockerfile needs none."""
    text = path.read_text()
    stages = set(re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE))
    actions = re.findall(r"\buses: (.*)$", text, re.MULTILINE)
    images = re.findall(r"^FROM (\S+)|\b(?:image[:=]|generator=) ?([\w./-]+:\S+)", text, re.MULTILINE)

    assert actions or images
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one) for one in actions)
    for image in {one for pair in images for one in pair if one} - stages:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)


@pytest.mark.security(
    "a package that builds a release is taken over: the job that runs it can write nothing, and signing jobs run none"
)
def test_each_job_may_do_its_own_part_alone():
    """No right by default. Jobs that sign or publish run no installed package; the job that runs them may only read."""
    assert RELEASE["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "build": {"contents": "read", "actions": "read"},
        "files": SIGN,
        "image": {"contents": "read", "packages": "write"} | SIGN,
        "chart": {"packages": "write"} | SIGN,
        "pypi": {"id-token": "write"},
        "site": {"contents": "write"},
        "github": {"contents": "write"},
    }
    for name, job in JOBS.items():
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False
            assert name == "build" or not re.search(r"\b(python|pip|go)\b|\.ci/", step.get("run", ""))


def test_what_is_tried_here_is_what_is_released():
    """The workflow calls the same script, after CI passed; PyPI waits for all that can still fail, GitHub for PyPI."""
    steps = [step.get("run", "") for step in JOBS["build"]["steps"]]

    assert "actions/workflows/ci.yml/runs?head_sha=$GITHUB_SHA" in steps[0]
    assert [step for step in steps if ".ci/release" in step] == [
        'PYTHON=$RUNNER_TEMP/tools/bin/python .ci/release "$RUNNER_TEMP/release" "$GITHUB_REF_NAME"'
    ]
    assert {name: job.get("needs") for name, job in JOBS.items()} == {
        "build": None,
        "files": "build",
        "image": "build",
        "chart": "build",
        "pypi": ["files", "image", "chart"],
        "site": "pypi",
        "github": "pypi",
    }
