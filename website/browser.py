"""Visit every page of the built site in Chromium: layout, links, search, colours, errors of the console.

make docs-check                                    # build the site, visit it, write screenshots to build/screenshots
python -m website.browser --pages operators/       # only pages below this path
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urldefrag, urljoin

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "site"
SCREENSHOTS = ROOT / "build" / "screenshots"
VIEWS: tuple[tuple[str, Literal["light", "dark"], int], ...] = (
    ("desktop", "light", 1280),
    ("desktop", "dark", 1280),
    ("phone", "light", 390),
    ("phone", "dark", 390),
)
# What a reader types, and a page that must be among the first results.
SEARCHES = {
    "tumbling": "operators/windows.tumbling/",
    "INVALID_DURATION": "errors/",
    "allowed lateness": "windows/",
    "flink": "migrate-from-flink/",
    "joins.asof": "operators/joins.asof/",
    "kubernetes": "deployment/",
    "deduplicate": "operators/sketches.seen/",
    "SCD type 2": "changes/",
    "backfill": "operators/sources/",
    "dead letter": "operators/sinks.side_outputs/",
    "backpressure": "sources/",
}
_FIRST_RESULTS = 8


@dataclass
class Report:
    """What was visited, and what is wrong."""

    pages: int = 0
    views: int = 0
    links: int = 0
    searches: int = 0
    problems: list[str] = field(default_factory=list)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serve(site: Path) -> Iterator[str]:
    """Serve a folder on a free port, and yield its address."""
    handler = functools.partial(_Quiet, directory=str(site))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def chromium() -> str | None:
    """Return Debian's Chromium, if it is installed."""
    return shutil.which("chromium")


def paths(site: Path, below: str = "") -> list[str]:
    """Return the paths of all pages, as in addresses."""
    found = [f"{p.parent.relative_to(site).as_posix()}/" for p in site.rglob("index.html")]
    return sorted(path.removeprefix("./") for path in found if path.startswith(below))


def check(site: Path, pages: list[str], screenshots: Path | None) -> Report:
    """Visit pages in every view, and search."""
    report = Report(pages=len(pages))
    targets: dict[str, set[str]] = {}
    anchors: dict[str, set[str]] = {}
    with serve(site) as root, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for name, scheme, width in VIEWS:
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 900}
            )
            page = context.new_page()
            where = [""]
            _report_errors(page, where, report.problems)
            for path in pages:
                where[0] = f"{path} ({name}, {scheme})"
                page.goto(root + path, wait_until="load")
                report.views += 1
                report.problems += [f"{where[0]}: {text}" for text in _layout(page)]
                if name == "desktop" and scheme == "light":
                    targets[path], anchors[path] = _links(page, root, path)
                if screenshots is not None:
                    file = f"{path.strip('/').replace('/', '_') or 'start'}-{name}-{scheme}.png"
                    page.screenshot(path=screenshots / file)
            where[0] = f"search ({name}, {scheme})"
            report.problems += _search(page, root, where[0], report)
            context.close()
        browser.close()
    known = {*paths(site)}
    for path, linked in targets.items():
        for target in sorted(linked):
            report.links += 1
            there, anchor = urldefrag(target)
            is_file = there not in known and (site / there).is_file()
            if there not in known and not is_file:
                report.problems.append(f"{path}: no page {there!r}")
            elif anchor and there in anchors and unquote(anchor) not in anchors[there]:
                report.problems.append(f"{path}: no heading {target!r}")
    return report


def _report_errors(page: Page, where: list[str], problems: list[str]) -> None:
    def console(message: Any) -> None:
        if message.type in ("error", "warning"):
            problems.append(f"{where[0]}: console: {message.text[:200]}")

    def response(answer: Any) -> None:
        if answer.status >= 400:
            problems.append(f"{where[0]}: {answer.status} {answer.url}")

    page.on("console", console)
    page.on("pageerror", lambda error: problems.append(f"{where[0]}: script: {error}"))
    page.on("response", response)


def _layout(page: Page) -> Iterator[str]:
    """Yield what is wrong with the layout of a page."""
    sizes = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    if sizes[0] > sizes[1]:
        yield f"wider than the window: {sizes[0]} px instead of {sizes[1]}"
    headings = page.locator("article h1").count()
    if headings != 1:
        yield f"{headings} headings of the first level"
    broken = page.evaluate(
        "[...document.images].filter(i => i.complete && !i.naturalWidth && i.offsetParent).map(i => i.src)"
    )
    yield from (f"picture not shown: {source}" for source in broken)
    raw = page.evaluate(
        "[...document.querySelectorAll('article p, article li, article td')]"
        ".map(e => e.innerText).filter(t => t.includes('```') || /\\]\\([^)]*\\.md/.test(t))"
    )
    yield from (f"Markdown in the text: {text[:80]!r}" for text in raw)


def _links(page: Page, root: str, path: str) -> tuple[set[str], set[str]]:
    """Return the pages and headings that a page links, and its own headings."""
    hrefs = page.evaluate(
        "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
    )
    absolute = {urljoin(root + path, href) for href in hrefs}
    own = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    return {target.removeprefix(root) for target in absolute if target.startswith(root)}, {*own}


def _search(page: Page, root: str, where: str, report: Report) -> Iterator[str]:
    for text, wanted in SEARCHES.items():
        page.goto(root, wait_until="load")
        if page.viewport_size and page.viewport_size["width"] < 600:
            page.locator("label[for=__search]").first.click()
        page.locator("input.md-search__input").click()
        page.keyboard.type(text)
        page.wait_for_selector(".md-search-result__item a", timeout=20_000)
        page.wait_for_timeout(300)
        hrefs = page.locator(".md-search-result__item a").evaluate_all(
            "all => all.map(a => a.href)"
        )
        report.searches += 1
        if not any(
            urldefrag(href)[0].split("?")[0] == root + wanted for href in hrefs[:_FIRST_RESULTS]
        ):
            yield f"{where}: {text!r} does not find {wanted}, but {hrefs[:3]}"
        page.keyboard.press("Escape")


def main(arguments: list[str]) -> int:
    """Check the built site."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--pages", default="", help="only pages below this path")
    given = parser.parse_args(arguments)
    if chromium() is None:
        print("no chromium: apt-get install -y chromium", file=sys.stderr)
        return 2
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    report = check(SITE, paths(SITE, given.pages), SCREENSHOTS)
    print(*report.problems, sep="\n")
    print(
        f"{report.pages} pages, {report.views} views, {report.links} links, {report.searches} searches: "
        f"{len(report.problems)} problems"
    )
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
