"""Each figure of the chapter computes, asserts what it shows, and has its picture on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from examples.chapter import figures
from examples.chapter.__main__ import FIGURES, main

ROOT = Path(__file__).parents[1]
WITHOUT_SPARK = [number for number in FIGURES if number != "11-1"]


@pytest.mark.parametrize("number", WITHOUT_SPARK)
def test_a_figure_is_drawn_from_what_it_asserts(number: str, tmp_path: Path, capsys: Any) -> None:
    main([number, "--save", str(tmp_path)])
    assert capsys.readouterr().out.startswith(number)
    # Width and height, from the header: another layout has another size.
    drawn = (tmp_path / f"chapter_{number}.png").read_bytes()
    stored = (ROOT / "docs" / "pictures" / f"chapter_{number}.png").read_bytes()
    assert drawn[16:24] == stored[16:24]


@pytest.mark.smoke
def test_the_tasks_of_a_query_share_messages_and_each_query_has_all(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in figures.SETTINGS}
    try:
        groups = figures.share_messages(spark)
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    assert [len(group.messages) for group in groups] == [2, 3]


def test_the_page_has_every_figure_and_no_state_of_its_own() -> None:
    page = (ROOT / "docs" / "chapter.md").read_text()
    assert re.findall(r"pictures/chapter_(.+?)\.png", page) == [*FIGURES]
    states = re.findall(r"^\| [^|]+ \| (\S[^|]*) \| [^|]+ \|$", page, re.MULTILINE)
    assert set(states) - {"state", "---"} == {"yes", "out"}


def test_an_unknown_figure_is_refused(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["11-8"])
    assert "no figure 11-8" in capsys.readouterr().err
