"""Matches are bars over events, which have a color and a shape per category."""

from __future__ import annotations

import pytest
from matplotlib.collections import PathCollection

from streamops import patterns, plots
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.testing import replay
from tests.plots.artists import at, bars, dots, legend, rows_of, texts

EVENTS = [
    {"user": user, "ts": at(minute), "type": type_}
    for user, minute, type_ in (
        ("ann", 3, "fail"),
        ("ann", 4, "fail"),
        ("ann", 6, "ok"),
        ("bob", 2, "ok"),
    )
]


def test_the_matches_of_a_pattern_are_above_the_events_of_their_key() -> None:
    attacks = patterns.match(
        "fail+ ok",
        define={"fail": "fail", "ok": "ok"},
        time="ts",
        by="user",
        within="10 minutes",
        measures={"attempts": patterns.count("fail")},
        delay="1 minute",
    ).options(shards=1)
    rows = [row | {name: row["type"] == name for name in ("fail", "ok")} for row in EVENTS]
    ax = plots.plot_matches(
        replay(attacks, [rows], flush=True), EVENTS, time="ts", by="user", category="type",
        label="attempts",
    )  # fmt: skip
    assert texts(ax) == ["2"]
    assert legend(ax) == ["fail", "ok", "match"]
    ((_, _, bottom),) = bars(ax)
    assert rows_of(ax)["ann"] < bottom
    assert len(dots(ax, "fail")) == 2
    assert {y for _, y in dots(ax, "ok")} == set(rows_of(ax).values())


def test_a_match_of_one_row_is_visible_and_its_events_are_below_the_bar() -> None:
    ax = plots.plot_matches([{"match_start": 5, "match_end": 5}], [{"t": 0}, {"t": 5}], time="t")
    (bar,) = ax.patches
    assert bar.get_x() < 5 < bar.get_x() + bar.get_width()
    assert legend(ax) == ["event", "match"]


def test_categories_differ_in_color_and_shape() -> None:
    events = [{"t": n, "c": str(n)} for n in range(6)]
    ax = plots.plot_matches({"match_start": [], "match_end": []}, events, time="t", category="c")
    groups = [group for group in ax.collections if isinstance(group, PathCollection)]
    assert len({tuple(group.get_facecolor()[0]) for group in groups}) == 6
    assert len({group.get_paths()[0].vertices.tobytes() for group in groups}) == 6


def test_a_category_that_is_null_is_drawn() -> None:
    events = [{"t": 0, "c": None}, {"t": 1, "c": "a"}]
    ax = plots.plot_matches({"match_start": [], "match_end": []}, events, time="t", category="c")
    assert dots(ax, "null")[0][0] == 0


def test_more_categories_than_colors_are_refused() -> None:
    events = [{"t": n, "c": str(n)} for n in range(7)]
    with pytest.raises(SpecError, match=r"PARAMETER_OUT_OF_RANGE(.|\n)*`category`"):
        plots.plot_matches([{"match_start": 0, "match_end": 1}], events, time="t", category="c")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="'tipe', given as `category`"):
        plots.plot_matches([{"match_start": 0, "match_end": 1}], EVENTS, time="ts", category="tipe")
