"""Hooks of MkDocs: add the generated pages and their navigation, and mend links that leave docs/."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website import errors, pages
from website.names import FAMILIES, find_name, operators
from website.notebooks import notebook_page, title
from website.pictures import BY_NAME

ROOT = Path(__file__).parents[1]
# Files of the repository outside docs/ that are pages, too.
_OTHERS = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/METHODS.md": "benchmarks-methods.md",
    "benchmarks/results/README.md": "benchmarks-tables.md",
    "benchmarks/peers.svg": "peers.svg",
    "examples/README.md": "examples.md",
}
# What a search finds first: operators and guides, then the reference; last what explains why.
_BOOSTS = {
    "operators/": 3.0,
    "which-operator.md": 3.0,
    "errors.md": 1.0,
    "state-formats.md": 0.5,
    "changelog.md": 0.3,
    "contributing.md": 0.3,
    "examples/": 0.5,
    "notebooks/": 0.5,
    # The titles of these name operators, and titles count a thousandfold.
    "benchmarks": 0.001,
    "decisions/": 0.001,
}
# Headings, links and code spans that are marked otherwise are matched first, and left alone.
_NAMES = re.compile(
    r"^#[^\n]*$|(?s:\A---\n.*?^---$)|!?\[(?:[^\[\]]|\[[^\]]*\])*\]\([^)\n]*\)|^ {4,}[^\n]+$|^:::[^\n]*$"
    r"|`(?P<code>[^`\n]+)`(?!`)",
    re.MULTILINE,
)
_PICTURE = re.compile(r"<!-- picture: ([\w-]+) -->")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?P<target>[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill in the generated parts of the navigation."""
    config.nav = _filled(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    texts: dict[str, str | bytes] = {"operators/index.md": pages.overview_page()}
    texts |= {f"operators/{family}.md": pages.family_page(family) for family in FAMILIES}
    texts |= {name.page: pages.operator_page(name) for name in operators()}
    for source, page in _OTHERS.items():
        if page != "index.md":
            texts[page] = (ROOT / source).read_text()
    texts |= {_page_of_example(path): _example_page(path) for path in _examples()}
    for path in _decisions():
        texts[f"decisions/{path.name}"] = path.read_text()
    for path in _notebooks():
        text, pictures = notebook_page(path)
        texts[f"notebooks/{path.stem}.md"] = text
        texts |= {f"notebooks/{name}": data for name, data in pictures.items()}
        texts[f"notebooks/{path.name}"] = path.read_bytes()
    texts |= {f"pictures/{picture.name}.svg": picture.svg() for picture in BY_NAME.values()}
    for uri, content in texts.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Prepare Markdown that was written for GitHub."""
    here = page.file.src_uri
    page.meta["search"] = {"boost": search_boost(here)}
    markdown = _PICTURE.sub(lambda mark: BY_NAME[mark[1]].markdown(""), markdown)
    return _outside_fences(markdown, lambda text: link_names(mend_links(text, here), here))


def search_boost(page: str) -> float:
    """Return the weight of a page in searches."""
    return next((boost for start, boost in _BOOSTS.items() if page.startswith(start)), 2.0)


def link_names(text: str, page: str) -> str:
    """Link names of the API and error codes in code style to their documentation.

    Headings, links and the page of the name itself stay as they are.
    """

    def linked(match: re.Match[str]) -> str:
        target = None if match["code"] is None else _documentation(match["code"])
        if target is None or target.partition("#")[0] == page:
            return match[0]
        return f"[{match[0]}]({posixpath.relpath(target, posixpath.dirname(page) or '.')})"

    return _NAMES.sub(linked, text)


@cache
def _documentation(code: str) -> str | None:
    """Return the page of ``joins.asof``, ``joins.asof(prices, ...)`` or ``STATE_SHARDS``."""
    if code in errors.by_code():
        return f"errors.md#{errors.anchor(code)}"
    dotted = re.match(r"(?:agg\b|(\w+))\.(\w+)(?:\(|$)", code)
    name = find_name(f"{dotted[1] or 'aggregates'}.{dotted[2]}", "") if dotted else None
    return name.link if name else None


def mend_links(text: str, page: str) -> str:
    """Rewrite the links of a page to other files of the repository.

    A link to a file that is not on the site becomes its text.
    """
    source = source_of(page)

    def mended(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target) or page.startswith("operators/"):
            return link[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        found = page_of(there)
        if found is None:
            return link["text"].strip("![]")
        relative = posixpath.relpath(found, posixpath.dirname(page) or ".")
        return f"{link['text']}({relative}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(mended, text)


def source_of(page: str) -> str:
    """Return the file of the repository from which a page is made."""
    for source, other in _OTHERS.items():
        if page == other and page != "index.md":
            return source
    if page.startswith("decisions/"):
        return page
    if page.startswith("notebooks/"):
        return page.replace(".md", ".ipynb")
    return f"docs/{page}"


def page_of(source: str) -> str | None:
    """Return the page that is made from a file of the repository, if there is one."""
    if source in _OTHERS:
        return _OTHERS[source]
    if source == "decisions":
        return "decisions/index.md"
    folder, _, name = source.partition("/")
    if folder == "docs":
        return name
    if folder == "decisions":
        return source
    if folder == "notebooks" and not name.endswith(".py"):
        return source.replace(".ipynb", ".md")
    if ROOT / source in _examples():
        return _page_of_example(ROOT / source)
    return None


def _outside_fences(markdown: str, change: Any) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        # What follows the first word, as in "python spark 4.0", is for the tests; the extension does not accept it.
        block = re.sub(r"\A```(\w+) \w[\w. ]*$", r"```\1", fence[0], flags=re.MULTILINE)
        parts += [change(markdown[end : fence.start()]), block]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _filled(nav: Any) -> Any:
    """Replace the names of generated parts, such as ``<operators>``, by their entries."""
    generated: dict[str, Any] = {
        "<operators>": pages.navigation(),
        "<decisions>": [{title(path): f"decisions/{path.name}"} for path in _decisions()],
        "<examples>": [{path.name: _page_of_example(path)} for path in _examples()],
        "<notebooks>": [{title(path): f"notebooks/{path.stem}.md"} for path in _notebooks()],
    }
    if isinstance(nav, list):
        result: list[Any] = []
        for entry in nav:
            if isinstance(entry, str) and entry in generated:
                result += generated[entry]
            else:
                result.append(_filled(entry))
        return result
    if isinstance(nav, dict):
        return {key: _filled(value) for key, value in nav.items()}
    return nav


def _decisions() -> list[Path]:
    return sorted((ROOT / "decisions").glob("*.md"))


def _notebooks() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.ipynb"))


@cache
def _examples() -> list[Path]:
    """The files of the examples: jobs, their tests, and what they share."""
    return sorted(p for p in (ROOT / "examples").glob("*.py") if p.name != "__init__.py")


def _page_of_example(path: Path) -> str:
    return f"examples/{path.stem}.md"


def _example_page(path: Path) -> str:
    return f"# {path.name}\n\n```python\n{path.read_text().rstrip()}\n```\n"
