"""Runs the notebooks from top to bottom, and renews what is stored of them.

A notebook is written once, as a script in jupytext's percent format. The `.ipynb` beside it is
made from it, with everything that running it puts out, so that it can be looked at on the web.

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
    """Every notebook that is stored; its source lies beside it."""
    return sorted(HERE.glob("*.ipynb"))


def from_source(source: Path) -> NotebookNode:
    """The notebook that a script is, not yet run."""
    notebook = jupytext.read(source)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02d}"  # they are random, and every run would be a change
    return notebook


def run(source: Path) -> NotebookNode:
    """The notebook with everything that it puts out.

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
    # The JVM and Spark's workers say what they like: it is of interest only if a cell fails.
    with tempfile.TemporaryFile() as log:
        try:
            client.execute(stdout=log, stderr=log)
        except Exception:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-10_000:])
            raise
    notebook.metadata["language_info"] = {"name": "python"}  # not which Python it was
    for cell in notebook.cells:
        if cell.cell_type == "code":
            # The JVM's own words, as it starts, are about the machine.
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def main() -> None:
    """Run every notebook, or those that are named."""
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
