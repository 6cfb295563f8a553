"""Run the notebooks from top to bottom, and store their output.

The source of a notebook is a script in jupytext's percent format. The `.ipynb` next to it is generated
from it, with its output, so that it can be viewed on the web. What a script imports from files next to it is
copied into a hidden cell, so that a notebook runs alone.

Run it with ``python -m notebooks``.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent
PICTURES = ("drawing", "sinks_pictures", "windows_pictures")
"""Files that notebooks import from, and that import from the first one only."""


def stored() -> list[Path]:
    """Every stored notebook; its source is next to it."""
    return sorted(HERE.glob("*.ipynb"))


def from_source(source: Path) -> NotebookNode:
    """The notebook of a script, without output."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"  # they are random, and every run would be a change
    first = next(n for n, cell in enumerate(notebook.cells) if cell.cell_type == "code")
    cell, needed = notebook.cells[first], set[str]()
    lines = cell.source.splitlines()
    for node in reversed(ast.parse(cell.source).body):
        if isinstance(node, ast.ImportFrom) and node.module in PICTURES:
            needed |= {alias.name for alias in node.names}
            del lines[node.lineno - 1 : node.end_lineno]
    cell.source = "\n".join(lines)
    hidden = nbformat.from_dict({"jupyter": {"source_hidden": True}})
    text = _definitions(needed)
    notebook.cells.insert(first, nbformat.v4.new_code_cell(text, id="drawing", metadata=hidden))
    return notebook


def _definitions(needed: set[str]) -> str:
    """The functions that are needed, and all that they use."""
    statements = list(_statements())
    todo, used = needed, set[str]()
    while todo:
        used |= todo
        nodes = [node for bound, node, _ in statements if bound & todo]
        todo = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)} - used
    texts = [text for bound, _, text in statements if bound & used]
    imports = sorted({text for text in texts if text.startswith(("import ", "from "))})
    rest = [text for text in texts if text not in imports]
    return "\n\n\n".join(
        ["\n".join(["# What draws the pictures of this notebook.", *imports]), *rest]
    )


def _statements() -> Iterator[tuple[set[str], ast.stmt, str]]:
    """Each import and definition in the files of pictures: the names that it binds, and its text."""
    for name in PICTURES:
        text = (HERE / f"{name}.py").read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            code = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            if isinstance(node, ast.FunctionDef):
                yield {node.name}, node, code
            elif isinstance(node, ast.Assign):
                names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
                yield {n.id for n in names if isinstance(n.ctx, ast.Store)}, node, code
            elif isinstance(node, ast.Import):
                yield {alias.asname or alias.name for alias in node.names}, node, code
            elif isinstance(node, ast.ImportFrom) and node.module not in {*PICTURES, "__future__"}:
                for alias in node.names:  # one by one: most notebooks need few of them
                    line = ast.unparse(ast.ImportFrom(node.module, [alias], 0))
                    yield {alias.asname or alias.name}, node, line


def run(source: Path) -> NotebookNode:
    """The notebook with its output.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    # The kernel starts in a folder of its own, and should run the library of this clone.
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    notebook = from_source(source)
    # The log of the JVM and of Spark's workers is needed only if a cell fails.
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
        client = NotebookClient(
            notebook,
            timeout=300,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        try:
            client.execute(stdout=log, stderr=log)
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-10_000:])
            raise
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # The messages of the JVM at its start depend on the machine.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Run all notebooks, or the given ones."""
    parser = argparse.ArgumentParser(prog="python -m notebooks", description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE, help="where to store them (%(default)s)")
    parser.add_argument("name", nargs="*", help="which ones, such as windows (all of them)")
    options = parser.parse_args()
    out: Path = options.out
    for path in [HERE / f"{name}.ipynb" for name in options.name] or stored():
        begun = time.monotonic()
        notebook = run(path.with_suffix(".py"))
        nbformat.write(notebook, out / path.name)
        size = (out / path.name).stat().st_size
        took = time.monotonic() - begun
        print(f"{out / path.name}: {took:.0f} seconds, {size / 1000:,.0f} kB")


if __name__ == "__main__":
    main()
