"""Run the notebooks from top to bottom, and store their output.

The source of a notebook is a script in jupytext's percent format. The `.ipynb` next to it is generated
from it, with its output, so that it can be viewed on the web.

Run it with ``python -m notebooks``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).parent


def stored() -> list[Path]:
    """Every stored notebook; its source is next to it."""
    return sorted(HERE.glob("*.ipynb"))


def from_source(source: Path) -> NotebookNode:
    """The notebook of a script, without output."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"  # they are random, and every run would be a change
    return notebook


def run(source: Path) -> NotebookNode:
    """The notebook with its output.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        A cell failed.
    """
    # The kernel starts in the notebook's folder, and should run the library of this clone.
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    notebook = from_source(source)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(source.parent)}},
    )
    # The log of the JVM and of Spark's workers is needed only if a cell fails.
    with tempfile.TemporaryFile() as log:
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
