"""Hooks of mkdocs: files that pages link to outside of docs/ are pages of the site, too.

A page links to ``../examples/lbd.yaml`` as it does on a forge. On the site that file is the page
``repository/examples/lbd.yaml``; a folder is a page with its files; a Markdown file is itself a page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from collections.abc import Callable

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDER = "repository"
"""Folder of the site with the files of the repository."""

LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
SOURCES: dict[str, Path] = {}
"""The file or folder of each page outside of docs/, by the page's place on the site."""

CODE = re.compile(r"^```.*?^```$|^ {4}[^\n]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside of docs/ that a page links to, directly or by way of another file."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        for target in targets(path):
            if target in known or DOCS in target.parents:
                continue
            known.add(target)
            waiting.append(target)
            SOURCES[site_path(target)] = target
            files.append(File.generated(config, site_path(target), content=page(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Lead the links of a page to where the site has their targets."""
    source = SOURCES.get(page.file.src_uri, DOCS / page.file.src_uri)
    folder = PurePosixPath(page.file.src_uri).parent
    return outside_code(
        markdown,
        lambda text: LINK.sub(lambda link: os.path.relpath(site_path(resolved(source, link[1])), folder), text),
    )


def targets(path: Path) -> list[Path]:
    """What a file links to: the links of a page, the files of a folder."""
    if path.is_dir():
        return children(path)
    if path.suffix != ".md":
        return []
    found: list[Path] = []

    def note(text: str) -> str:
        found.extend(resolved(path, link) for link in LINK.findall(text))
        return text

    outside_code(path.read_text(), note)
    return found


def children(folder: Path) -> list[Path]:
    """Files and folders of a folder, without hidden and compiled ones."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__")))


def resolved(source: Path, link: str) -> Path:
    """The file or folder that a link of a file leads to; a folder with a README is that README."""
    folder = source if source.is_dir() else source.parent
    target = Path(os.path.normpath(folder / link))
    readme = target / "README.md"
    return readme if readme.is_file() else target


def site_path(path: Path) -> str:
    """Where the site has a file or folder of the repository."""
    if DOCS in path.parents:
        return str(path.relative_to(DOCS))
    parts = (part.lstrip(".") for part in path.relative_to(ROOT).parts)  # mkdocs leaves hidden files out
    name = "/".join((FOLDER, *parts))
    if path.is_dir():
        return f"{name}/index.md"
    return name if path.suffix == ".md" else f"{name}.md"


def page(path: Path) -> str:
    """The Markdown of a file or folder outside of docs/."""
    name = path.relative_to(ROOT)
    if path.suffix == ".md":
        return path.read_text()
    head = f"---\nsearch: {{exclude: true}}\n---\n# {name}\n\n"
    if path.is_dir():
        return head + "".join(f"- [{child.name}]({child.name})\n" for child in children(path))
    try:
        return f"{head}````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}\n````\n"
    except UnicodeDecodeError:
        return f"{head}A file of {path.stat().st_size:,} bytes that is no text; a checkout has it.\n"


def outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Change a page, but not its blocks of code."""
    parts: list[str] = []
    end = 0
    for code in CODE.finditer(markdown):
        parts += [change(markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(markdown[end:])])
