"""Frames of all types are read alike, and what cannot be drawn is refused with a reason."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import plots
from streamops.kernel.errors import ColumnNotFound, SchemaError
from tests.plots.artists import at, bars_in_minutes

ROWS = [{"window_start": at(n), "window_end": at(n + 10)} for n in (0, 10)]
TABLE = pa.Table.from_pylist(ROWS)


class Exported:
    """A frame of another library, such as Polars, that exports Arrow data."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return TABLE.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        tuple(ROWS),
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS, index=[7, 7]),
        TABLE,
        TABLE.to_batches()[0],
        Exported(),
    ],
    ids=["rows", "tuple", "columns", "pandas", "index", "arrow", "batch", "exported"],
)
def test_frames_of_all_types_are_drawn_alike(data: Any) -> None:
    assert bars_in_minutes(plots.plot_windows(data)) == [(0, 10), (10, 20)]


@pytest.mark.spark
def test_a_spark_frame_is_drawn_at_its_instants_in_any_time_zone(spark: SparkSession) -> None:
    frame = spark.createDataFrame(pd.DataFrame(ROWS))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        ax = plots.plot_windows(frame)
        ax.figure.canvas.draw()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert bars_in_minutes(ax) == [(0, 10), (10, 20)]
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert any(label.startswith("04:") for label in labels), labels
    stream = spark.readStream.format("rate").load()
    with pytest.raises(SchemaError, match="STREAMING_FRAME"):
        plots.plot_windows(stream, start="timestamp", end="timestamp")


@pytest.mark.parametrize("data", [7, "rows", [1, 2], None])
def test_what_has_no_columns_is_refused(data: Any) -> None:
    with pytest.raises(SchemaError, match="NOT_A_FRAME"):
        plots.plot_windows(data)


def test_a_missing_column_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ColumnNotFound, match=r"`end`(.|\n)*did you mean 'window_end'"):
        plots.plot_windows(ROWS, end="window_ende")


@pytest.mark.parametrize("values", [["a", "b"], [True, False]])
def test_columns_without_times_or_numbers_are_refused(values: list[Any]) -> None:
    with pytest.raises(SchemaError, match=r"COLUMN_TYPE(.|\n)*timestamps or numbers"):
        plots.plot_windows({"window_start": values, "window_end": values})


def test_matplotlib_is_imported_when_a_function_is_used() -> None:
    code = """
import sys
from streamops import plots
assert not {"matplotlib", "pandas", "pyspark"} & sys.modules.keys()
assert "plot_windows" in dir(plots)
sys.modules["matplotlib"] = None
try:
    plots.plot_windows
except RuntimeError as error:
    print(error)
assert plots.COLORS["on_time"]
try:
    plots.plot_nothing
except AttributeError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "[PACKAGE_MISSING] plots.plot_windows" in done.stdout
    assert "pip install 'streamops[plots]'" in done.stdout
    assert "no attribute 'plot_nothing'" in done.stdout
