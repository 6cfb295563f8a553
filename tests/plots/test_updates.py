"""A value is a bar from the micro-batch that emits it to the one that replaces or deletes it."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from matplotlib.figure import Figure

from streamops import joins, plots
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.testing import replay
from tests.plots.artists import at, bars, legend, rows_of, texts


def change(batch: int, key: Any, value: Any, type_: str | None = "insert") -> dict[str, Any]:
    return {"batch": batch, "k": key, "v": value, "_change_type": type_}


def spans(ax: Any, name: str | None = None) -> list[tuple[float, float]]:
    """Ends of the bars, as micro-batches; a micro-batch is as wide as its number."""
    return sorted((left, right) for left, right, _ in bars(ax, name))


def test_a_value_that_stays_reaches_the_end() -> None:
    ax = plots.plot_updates([change(0, "a", 1), change(3, "b", 2)], by="k", label="v")
    assert spans(ax, "first value") == [(-0.5, 3.5), (2.5, 3.5)]
    assert rows_of(ax)["a"] > rows_of(ax)["b"]
    assert ax.get_xlabel() == "micro-batch"
    assert legend(ax) == ["first value"]


def test_an_updated_value_begins_where_the_one_before_ends() -> None:
    rows = [
        change(0, "a", 100),
        change(2, "a", 100, "update_preimage"),
        change(2, "a", 130, "update_postimage"),
    ]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "replaced or deleted") == [(-0.5, 1.5)]
    assert spans(ax, "updated") == [(1.5, 2.5)]
    assert texts(ax) == ["100", "130"]
    assert legend(ax) == ["updated", "replaced or deleted"]


def test_a_delete_and_an_insert_of_one_micro_batch_are_an_update() -> None:
    rows = [change(0, "a", "expired"), change(1, "a", "expired", "delete")]
    ax = plots.plot_updates([*rows, change(1, "a", "matched")], by="k", label="v")
    assert spans(ax, "updated") == [(0.5, 1.5)]
    later = plots.plot_updates([*rows, change(2, "a", "matched")], by="k", label="v")
    assert spans(later, "updated") == []
    assert spans(later, "first value") == [(1.5, 2.5)]
    assert spans(later, "replaced or deleted") == [(-0.5, 0.5)]


def test_a_deleted_key_has_no_value() -> None:
    rows = [change(0, "a", 1), change(2, "a", 1, "delete"), change(4, "b", 1)]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "replaced or deleted") == [(-0.5, 1.5)]


def test_a_retraction_ends_the_value_that_it_names() -> None:
    rows = [change(0, "a", 1), change(0, "a", 2), change(1, "a", 2, "delete"), change(2, "b", 0)]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "first value") == [(-0.5, 2.5), (1.5, 2.5)]
    assert spans(ax, "replaced or deleted") == [(-0.5, 0.5)]
    lanes = {y for *_, y in bars(ax)}
    assert len(lanes) == 3  # values of one key at one time are on lanes of their own


def test_a_retraction_of_an_unknown_value_is_nothing() -> None:
    rows = [change(0, "a", 1), change(1, "a", 7, "delete"), change(1, "b", None, "delete")]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "first value") == [(-0.5, 1.5)]
    assert len(bars(ax)) == 1


def test_nulls_are_equal_values() -> None:
    rows = [change(0, "a", None), change(1, "a", None, "delete"), change(2, "b", None)]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "replaced or deleted") == [(-0.5, 0.5)]


@pytest.mark.parametrize("frame", [list, pa.Table.from_pylist], ids=["dicts", "arrow"])
def test_lists_are_values(frame: Any) -> None:
    rows = [change(0, "a", [1, 2]), change(1, "a", [1, 2], "delete"), change(1, "a", [1])]
    ax = plots.plot_updates(frame(rows), by="k", label="v")
    assert spans(ax, "replaced or deleted") == [(-0.5, 0.5)]
    assert spans(ax, "updated") == [(0.5, 1.5)]


def test_without_change_types_a_row_replaces_the_value_of_its_key() -> None:
    rows = {"batch": [0, 1, 1, 2, 3], "k": ["a", "a", "b", "a", "b"], "v": [1, 2, 5, 2, 5]}
    ax = plots.plot_updates(rows, by="k", label="v")
    assert spans(ax, "replaced or deleted") == [(-0.5, 0.5)]
    assert spans(ax, "updated") == [(0.5, 3.5)]
    assert spans(ax, "first value") == [(0.5, 3.5)]  # the same value again is no update


def test_the_last_upsert_of_a_micro_batch_counts() -> None:
    rows = {"batch": [0, 0], "k": ["a", "a"], "v": [1, 2]}
    ax = plots.plot_updates(rows, by="k", label="v")
    assert texts(ax) == ["2"]
    assert spans(ax) == [(-0.5, 0.5)]


def test_results_of_a_join_are_drawn_also_after_their_last_change() -> None:
    join = joins.interval(
        None, "0 seconds", "30 minutes", by="k", time=("t", "u"), how="left", delay="0 seconds",
        allowed_lateness="1 hour", stragglers="retract",
    )  # fmt: skip
    script = [
        ([{"k": "a", "t": at(0)}], [{"k": "z", "u": at(0)}]),
        ([{"k": "y", "t": at(50)}], [{"k": "z", "u": at(50)}]),
        (None, None),
        (None, [{"k": "a", "u": at(20)}]),
        (None, None),
    ]
    ax = plots.plot_updates(replay(join, script), by="k", label="status")
    assert spans(ax, "replaced or deleted") == [(1.5, 2.5)]
    assert spans(ax, "updated") == [(2.5, 4.5)]
    assert texts(ax) == ["expired", "late_match"]


@pytest.mark.parametrize("tag", ["late", "rejected"])
def test_rows_of_the_side_output_are_no_values(tag: str) -> None:
    rows = [change(0, "a", 1) | {tag: None}, change(1, "a", 2) | {tag: {"reason": "too_late"}}]
    ax = plots.plot_updates(rows, by="k", label="v")
    assert texts(ax) == ["1"]


def test_several_key_columns_and_other_names() -> None:
    rows = pd.DataFrame({"number": [4, 5], "k": ["a", "b"], "n": [1, 2], "value": ["x", "y"]})
    ax = plots.plot_updates(rows, by=["k", "n"], label="value", batch="number")
    assert {*rows_of(ax)} == {"a, 1", "b, 2"}
    assert spans(ax) == [(3.5, 5.5), (4.5, 5.5)]


def test_it_draws_into_the_given_axes() -> None:
    given = Figure().subplots()
    assert plots.plot_updates([change(0, "a", 1)], by="k", label="v", ax=given) is given


def test_no_rows_are_an_empty_picture() -> None:
    ax = plots.plot_updates({"batch": [], "k": [], "v": []}, by="k", label="v")
    assert bars(ax) == []


@pytest.mark.parametrize("column", ["by", "label", "batch"])
def test_a_column_that_does_not_exist_is_refused(column: str) -> None:
    names = {"by": "k", "label": "v", "batch": "batch"} | {column: "missing"}
    with pytest.raises(ColumnNotFound) as error:
        plots.plot_updates([change(0, "a", 1)], **names)
    assert error.value.where == "plots.plot_updates"


def test_more_keys_than_one_can_read_are_refused() -> None:
    with pytest.raises(SpecError) as error:
        plots.plot_updates([change(0, n, 1) for n in range(61)], by="k", label="v")
    assert error.value.code == "PARAMETER_OUT_OF_RANGE"
