"""The site is built from docs/ without a warning, and leads its readers as docs/README.md does."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.site import ROOT, resolved, site_path
from tests.docs.words import DOCS

RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
CONFIG = ROOT / "mkdocs.yml"
HOME = (DOCS / "README.md").read_text()


class Tagged(yaml.SafeLoader):
    """Reads settings of mkdocs, without the Python objects in them."""


Tagged.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SETTINGS = yaml.load(CONFIG.read_text(), Tagged)


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Run ``mkdocs build``; mkdocs.yml makes it strict."""
    words = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environ, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as it is published."""
    folder = tmp_path_factory.mktemp("site")
    done = build(CONFIG, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path):
    """And so is what pages link to outside of docs/: text as a page, a folder as a list of its files."""
    made = {str(path.relative_to(site)) for path in site.rglob("index.html")}
    pages = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    assert {str(path.with_suffix("") / "index.html") for path in pages if path.name != "README.md"} <= made
    assert {"index.html", "decisions/index.html", "repository/CONTRIBUTING/index.html"} <= made
    assert "mode: observe" in text(site / "repository/examples/lbd.yaml/index.html")
    assert 'href="lbd.rules.yml/"' in (site / "repository/examples/prometheus/index.html").read_text()


def test_the_site_has_what_readers_use(site: Path):
    """Search over all pages, a light and a dark look, and nothing from another host."""
    home = (site / "index.html").read_text()
    assert '"location":"guardrails/#canary"' in (site / "search/search_index.json").read_text()
    assert 'data-md-color-scheme="slate"' in home
    assert re.findall(r'(?:src|href)="(https?:)?//', home) == []


def test_a_dead_link_fails_the_build(tmp_path: Path):
    """To a page, to a file of the repository, or to a heading; each is named."""
    docs = tmp_path / "docs"
    docs.mkdir()
    shutil.copy(DOCS / "tokens.md", docs)
    dead = {"nowhere.md": "nowhere.md", "../examples/nowhere.yaml": "nowhere.yaml", "tokens.md#nowhere": "#nowhere"}
    (docs / "README.md").write_text("".join(f"[x]({link})\n\n" for link in dead))
    config = SETTINGS | {"docs_dir": str(docs), "nav": None, "hooks": [str(ROOT / "tests/docs/site.py")]}
    config |= {"markdown_extensions": ["tables"], "plugins": []}
    path = tmp_path / "mkdocs.yml"
    path.write_text(yaml.safe_dump(config))
    done = build(path, tmp_path / "site")

    assert done.returncode == 1
    assert [message for message in dead.values() if message not in done.stdout + done.stderr] == []


def test_a_release_adds_its_version(tmp_path: Path):
    """Beside those of before, and latest is the highest; git alone pushes what .ci/site has put into a bundle."""
    origin, checkout = tmp_path / "origin", tmp_path / "checkout"
    for name in (".ci/site", "tests/docs/site.py", "docs/tokens.md"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    (checkout / "docs" / "README.md").write_text("# lbd\n")
    settings = SETTINGS | {"nav": None, "markdown_extensions": ["tables"]}
    settings["validation"] = {"links": {"not_found": "info"}}
    (checkout / "mkdocs.yml").write_text(yaml.safe_dump(settings))
    git(tmp_path, "init", "-q", "--bare", str(origin))
    git(tmp_path, "init", "-q", str(checkout))
    git(checkout, "remote", "add", "origin", str(origin))
    git(checkout, "add", ".")
    git(checkout, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "all")

    (push,) = [step["run"] for step in RELEASE["jobs"]["site"]["steps"] if "gh-pages" in step.get("run", "")]
    environ = os.environ | {"SITE": str(tmp_path / "site.bundle"), "ORIGIN": str(origin), "TOKEN": "x"}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    for version in ("v0.1.0", "v0.2.1", "v0.1.1"):
        subprocess.run([".ci/site", tmp_path / "site.bundle", version], cwd=checkout, env=environ, check=True)
        subprocess.run(["bash", "-ec", push], cwd=tmp_path, env=environ, check=True)
        git(checkout, "branch", "-D", "gh-pages")  # the next release is another checkout

    assert json.loads(git(origin, "show", "gh-pages:versions.json")) == [
        {"version": "0.2", "title": "0.2.1", "aliases": ["latest"]},
        {"version": "0.1", "title": "0.1.1", "aliases": []},
    ]
    assert {"0.1", "0.2", "latest", "index.html"} <= set(git(origin, "ls-tree", "--name-only", "gh-pages").split())


def git(folder: Path, *words: str) -> str:
    """What git prints in a folder."""
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def test_what_publishes_the_site_is_pinned_by_hash():
    """tests/site.txt has each package of the extra, and all that these need."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["site"]
    pinned = re.findall(
        r"^([\w.-]+)==\S+ \\\n +--hash=sha256:", (ROOT / "tests" / "site.txt").read_text(), re.MULTILINE
    )
    assert {re.split(r"[<>=]", name)[0] for name in extra} <= set(pinned)


def test_the_navigation_is_that_of_the_first_page():
    """Four readers, at most five pages each, in the same order; what is to be looked up is there, too."""
    paths = {
        title: links(part) for title, part in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", HOME, re.MULTILINE | re.DOTALL)
    }
    sections = {title: value for entry in SETTINGS["nav"] for title, value in entry.items() if title != "Home"}
    lookup = [page for group in sections.pop("Look up") for pages in group.values() for page in flat(pages)]

    assert sorted(lookup) == sorted(paths.pop("Look something up"))
    assert {title: flat(pages) for title, pages in sections.items()} == paths
    assert list(paths) == ["Try it", "Run it", "Understand it", "Change it"]
    assert {title: len(pages) for title, pages in paths.items() if len(pages) > 5} == {}


def test_lists_within_lists_are_indented_for_both_readers():
    """Four spaces: with two GitHub shows a list within the list, and the site does not."""
    for path in DOCS.rglob("*.md"):
        plain = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"^ {1,3}- .*$", plain, re.MULTILINE) == [], path


def links(text_: str) -> list[str]:
    """The pages of the site that a part of the first page links to."""
    return [site_path(resolved(DOCS / "README.md", link)) for link in re.findall(r"\]\(([^)#]+)", text_)]


def flat(pages: list[dict[str, str]]) -> list[str]:
    """The pages of a part of the navigation."""
    return [path for page in pages for path in page.values()]


def text(path: Path) -> str:
    """A page without its tags."""
    return re.sub(r"<[^>]+>", "", path.read_text())
