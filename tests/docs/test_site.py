"""The site: its navigation, generated pages, links and error codes; and the built site in a browser."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mkdocs", reason="pip install 'streamops[docs]'")

from website import browser, errors, hooks, pages, pictures
from website.docstrings import Docstring, mark_code, to_markdown
from website.names import FAMILIES, operators, public_names

ROOT = Path(__file__).parents[2]
# Codes of Spark, which tests expect as well.
SPARKS_OWN = {
    "DUPLICATED_METRICS_NAME",
    "HASH_MAP_TYPE",
    "LOCATION_NOT_EMPTY",
    "UNRESOLVED_COLUMN",
}


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, in which a function is named by a tag."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation() -> str:
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    return yaml.safe_dump(settings["nav"])


def test_every_page_of_the_documentation_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w-]+\.md", navigation()))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - listed == set()


def test_every_operator_has_a_page_with_all_sections() -> None:
    for name in operators():
        text = pages.operator_page(name)
        found = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert found == ["Input and output", "Guarantees", "Cost", "Errors", "See also"], name.title
        assert f"::: {name.path}\n" in text
        assert "../errors.md" in text


def test_every_public_name_is_on_a_page() -> None:
    families = {name.family for name in public_names()}
    texts = {family: pages.family_page(family) for family in families}
    for name in public_names():
        text = pages.operator_page(name) if name.is_operator else texts[name.family]
        assert name.path in text, name.title


def test_the_page_of_errors_is_up_to_date() -> None:
    assert errors.PAGE.read_text() == errors.page(), "python -m website.errors"


def test_every_condition_has_a_cause_and_a_remedy() -> None:
    for name, condition in errors.conditions().items():
        assert re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", condition.code), name
        for text in (condition.what, condition.fix):
            assert re.sub(r"\W", "", text), name
            assert not re.fullmatch(r"\{\w+\}", text), name


def test_the_page_of_an_operator_has_the_codes_of_its_modules() -> None:
    for name in operators():
        if name.title == "windows.session":
            text = pages.operator_page(name)
            # Of its own parameters, of its specification, and of its core.
            for code in ("PARAMETER_WITHOUT_EFFECT", "COLUMN_TYPE", "STATE_FULL"):
                assert f"[`{code}`](../errors.md#{code.lower()})" in text
            assert "SLOT_LOST" not in text


def test_every_code_of_tests_and_docstrings_is_on_the_page_of_errors() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    expected = {
        code
        for path in files
        for code in re.findall(r'match=r?"\\?\[?([A-Z]+_[A-Z_]+)', path.read_text())
    }
    documented = {
        code
        for name in public_names()
        for code in re.findall(
            r"``([A-Z]+_[A-Z_]+)``",
            Docstring.parse(inspect.getdoc(name.value) or "").sections.get("Raises", ""),
        )
    }
    assert len(expected) > 60
    assert len(documented) > 40
    assert (expected | documented) - SPARKS_OWN - errors.by_code().keys() == set()


def test_the_card_is_separated_from_the_text() -> None:
    docstring = Docstring.parse(
        "Do it.\n\nA rule\nover two lines.\n\n"
        "Input        one: long · two:\n             string\n"
        "Output mode  append\n\n"
        "Parameters\n----------\nx : int\n    A number.\n\n"
        "See Also\n--------\nother, another : two\n    lines.\n"
    )
    assert docstring.card == {"Input": "one: long · two: string", "Output mode": "append"}
    assert docstring.description == "Do it.\n\nA rule\nover two lines."
    assert list(docstring.see_also) == [(["other", "another"], "two lines.")]
    assert docstring.sections["Parameters"] == "x : int\n    A number."


def test_markup_of_docstrings_becomes_markdown() -> None:
    text = "``a`` and :func:`b`\n\n=====  =====\n``c``  d\n       e\n=====  =====\n"
    assert to_markdown(text) == "`a` and `b`\n\n|  |  |\n| --- | --- |\n| `c` | d e |"
    text = "=====  ===  ====\nname   is   text\n=====  ===  ====\n``c``  d    e f\n            g\n=====  ===  ====\n\nend"
    table = "| name | is | text |\n| --- | --- | --- |\n| `c` | d | e f g |"
    assert to_markdown(text) == f"{table}\n\nend"


def test_every_table_has_a_header() -> None:
    written = sorted((ROOT / "docs").glob("*.md"))
    texts = {path.name: path.read_text() for path in written}
    texts |= {family: pages.family_page(family) for family in FAMILIES}
    texts |= {name.title: pages.operator_page(name) for name in operators()}
    texts |= {"overview": pages.overview_page()}
    for page, text in texts.items():
        for head in re.findall(r"^\|(.*)\|\n\| *:?---", text, re.MULTILINE):
            # The first cell is empty above names of rows.
            assert all(map(str.strip, re.split(r"(?<!\\)\|", head)[1:])), (page, head)


def test_a_search_finds_operators_first_and_decisions_last() -> None:
    found = ["operators/joins.asof.md", "windows.md", "errors.md", "decisions/0008-panes.md"]
    boosts = [hooks.search_boost(page) for page in found]
    assert boosts == sorted(boosts, reverse=True)
    assert len({*boosts}) == len(boosts)


def test_code_in_a_message_is_marked() -> None:
    assert mark_code("pass size={size} or f(x, g(y))") == "pass `size={size}` or `f(x, g(y))`"
    assert mark_code("window_start, [start, end) of `x`") == "`window_start`, \\[start, end) of `x`"


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("windows.md", "[d](../decisions/0008-panes.md)", "[d](decisions/0008-panes.md)"),
        ("windows.md", "[n](../notebooks/joins.ipynb)", "[n](notebooks/joins.md)"),
        ("windows.md", "[b](../benchmarks/README.md#method)", "[b](benchmarks.md#method)"),
        ("windows.md", "[t](../tests/kills/__init__.py)", "t"),
        ("decisions/0030-one-pipeline.md", "[w](../docs/windows.md#x)", "[w](../windows.md#x)"),
        ("changelog.md", "[w](docs/windows.md)", "[w](windows.md)"),
        ("windows.md", "[s](https://spark.apache.org)", "[s](https://spark.apache.org)"),
        ("windows.md", "[here](#corrections)", "[here](#corrections)"),
    ],
)
def test_links_to_files_become_links_to_pages(page: str, link: str, expected: str) -> None:
    assert hooks.mend_links(link, page) == expected


def test_names_in_code_style_are_linked_once() -> None:
    text = "# `joins.asof`\n\n`joins.asof(prices, ...)`, [`joins.asof`](#x), `joins.nothing`, `STATE_SHARDS`"
    linked = hooks.link_names(text, "joins.md")
    assert linked == (
        "# `joins.asof`\n\n[`joins.asof(prices, ...)`](operators/joins.asof.md), [`joins.asof`](#x), "
        "`joins.nothing`, [`STATE_SHARDS`](errors.md#state_shards)"
    )


def test_every_picture_that_a_page_names_is_drawn() -> None:
    named = re.findall(r"<!-- picture: ([\w-]+) -->", (ROOT / "docs/which-operator.md").read_text())
    assert set(named) <= pictures.BY_NAME.keys()
    assert len(named) == 7
    for title in pictures.PICTURES:
        assert title in {name.title for name in operators()}
    assert b"<svg" in pictures.BY_NAME["tumbling"].svg()


@pytest.mark.slow
@pytest.mark.skipif(browser.chromium() is None, reason="apt-get install -y chromium")
def test_the_built_site_works_in_a_browser(tmp_path: Path) -> None:
    """Some pages of each section; `make docs-check` visits all."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chosen = ["", "tutorial/", "errors/", "operators/", "operators/windows.tumbling/", "windows/"]
    assert set(chosen) - {"" if path == "./" else path for path in browser.paths(site)} == set()
    report = browser.check(site, chosen, None)
    assert report.problems == []
    assert report.links > 100
    assert report.searches == len(browser.SEARCHES) * len(browser.VIEWS)
