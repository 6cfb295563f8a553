"""The pictures of the guide to plots are those that its examples save.

Run it with ``python -m tests.docs.test_plots_docs`` to draw them again.
"""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from streamops import plots
from tests.docs.test_readme import ROOT, examples, terms

PAGE = ROOT / "docs" / "plots.md"
PICTURES = ROOT / "docs" / "pictures"


def draw(folder: Path) -> list[str]:
    """Run the examples in a folder. Return the names of the pictures."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["savefig.dpi"] = 100
    before = Path.cwd()
    os.chdir(folder)
    try:
        namespace: dict[str, Any] = {}
        for example in examples(PAGE):
            example.run(namespace)
    finally:
        os.chdir(before)
    return sorted(path.name for path in folder.glob("*.png"))


def test_every_picture_of_the_page_is_drawn_by_its_example(tmp_path: Path) -> None:
    embedded = re.findall(r"!\[[^\]]+\]\(pictures/(.+?)\)", PAGE.read_text())
    assert draw(tmp_path) == sorted(embedded)
    for name in embedded:
        stored = (PICTURES / name).read_bytes()
        assert stored.startswith(b"\x89PNG")
        # Width and height, from the header: another layout has another size.
        assert stored[16:24] == (tmp_path / name).read_bytes()[16:24]
        assert len(stored) < 100_000


def test_every_function_has_its_picture_and_its_parameters_are_explained() -> None:
    page = terms(PAGE)
    functions = [name for name in plots.__all__ if inspect.isfunction(getattr(plots, name))]
    assert {f"{name}.png" for name in functions} == {path.name for path in PICTURES.glob("plot_*")}
    assert {*plots.__all__, *plots.COLORS} - page == set()
    assert terms(ROOT / "docs" / "which-operator.md") >= set(functions)


@pytest.mark.parametrize("name", [name for name in plots.__all__ if name != "COLORS"])
def test_every_docstring_names_the_raised_errors_and_has_an_example(name: str) -> None:
    text = str(inspect.getdoc(getattr(plots, name)))
    for section in ("Parameters", "Returns", "Raises", "Examples"):
        assert f"{section}\n---" in text


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as drawn:
        for picture in draw(Path(drawn)):
            (PICTURES / picture).write_bytes(Path(drawn, picture).read_bytes())
            print(PICTURES / picture)
