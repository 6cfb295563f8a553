"""Stored notebooks match their source, and the output of running it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

nbformat = pytest.importorskip("nbformat", reason="pip install 'streamops[notebook]'")

from notebooks.__main__ import from_source, stored  # noqa: E402  (it needs nbformat)

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
NOTEBOOKS = stored()


def named(path: Path) -> str:
    return path.name


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def written(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    return [(cell.id, cell.cell_type, cell.source) for cell in notebook.cells]


def outputs(notebook: NotebookNode) -> Iterator[tuple[str, str]]:
    """The output of each cell: its text, or "a picture"."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield cell.id, "a picture"
            elif output.output_type == "stream":
                yield cell.id, output.text
            else:
                yield cell.id, output["data"]["text/plain"]


def test_every_source_has_its_notebook() -> None:
    scripts = sorted((ROOT / "notebooks").glob("*.py"))
    sources = [path.stem for path in scripts if path.read_text().startswith("# ---\n# jupyter")]
    names = [
        *("changes", "chapter", "erasure", "functions", "joins", "patterns"),
        *("search", "sinks", "sketches", "time", "windows"),
    ]
    assert sources == [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_the_stored_notebook_matches_its_source(path: Path) -> None:
    """If it does not, run ``make notebooks``."""
    assert written(read(path)) == written(from_source(path.with_suffix(".py")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_the_stored_notebook_was_run_from_top_to_bottom(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    assert {out.output_type for cell in cells for out in cell.outputs} <= {"stream", "execute_result"}  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_has_pictures_and_a_limited_size(path: Path) -> None:
    assert [out for _, out in outputs(read(path))].count("a picture") >= 5
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_starts_with_a_question(path: Path) -> None:
    heading, first, *_ = read(path).cells[0].source.split("\n\n")
    assert heading.startswith("# ")
    # The first sentences: a statement or two may lead to the question.
    sentences = re.split(r"(?<=[.?!]) ", f"{heading} {first}".replace("\n", " "))
    assert any(sentence.endswith("?") for sentence in sentences[:3])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_ends_with_the_limitations_of_the_operators_and_a_takeaway(path: Path) -> None:
    texts = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    headings = [line for text in texts for line in text.splitlines() if line.startswith("## ")]
    assert headings[-2].endswith("What they do not do")
    assert headings[-1] == "## Takeaway"
    assert texts[-1].startswith("## Takeaway\n\n")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_every_link_of_a_notebook_resolves(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert targets
    assert [item for item in targets if not (path.parent / item).exists()] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_needs_no_file_next_to_it(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    drawing, *others = [ast.parse(cell.source) for cell in cells]
    imports = {node for tree in (drawing, *others) for node in ast.walk(tree)}
    modules = {node.module for node in imports if isinstance(node, ast.ImportFrom)}
    modules |= {a.name for node in imports if isinstance(node, ast.Import) for a in node.names}
    assert modules & {path.stem for path in (ROOT / "notebooks").glob("*_pictures.py")} == set()
    assert "drawing" not in modules
    # What the notebook assigns must not replace what draws its pictures.
    defined = {node.name for node in drawing.body if isinstance(node, ast.FunctionDef)}
    names = (n for tree in others for n in ast.walk(tree) if isinstance(n, ast.Name))
    assert defined & {name.id for name in names if isinstance(name.ctx, ast.Store)} == set()


def test_a_changed_source_is_detected(tmp_path: Path) -> None:
    for path in NOTEBOOKS:
        source = path.with_suffix(".py").read_text()
        changed = tmp_path / f"{path.stem}.py"
        changed.write_text(source.replace("shards=1", "shards=2", 1))
        assert written(from_source(changed)) != written(read(path))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=named)
def test_a_notebook_runs_with_the_stored_output(path: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "notebooks", "--out", str(tmp_path), path.stem],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(outputs(read(tmp_path / path.name))) == list(outputs(read(path)))
