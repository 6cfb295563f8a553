"""The comparison of a target after a crash finds what is lost, repeated or wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.flights import durable
from examples.flights.__main__ import main
from examples.flights.contents import OUTPUTS
from examples.flights.crash import Survival, gather_survival
from examples.flights.tables import changes, read_table
from streamops.spark.identity import Identity


def change(out: Path, name: str, alter: Callable[[pa.Table], pa.Table]) -> Survival:
    path = out / "crash" / f"{name}.parquet"
    pq.write_table(alter(pq.read_table(path)), path)
    return gather_survival(out)


def test_a_target_with_every_row_once_is_equal(out: Path) -> None:
    found = gather_survival(out)
    assert found.hold
    assert found.compared > 100
    assert found.late > 0


def test_a_lost_window_is_found(out: Path) -> None:
    found = change(out, durable.WINDOWS, lambda rows: rows.slice(1))
    assert (found.missing, found.unexpected, found.different, found.hold) == (1, 0, 0, False)


def test_a_window_that_is_there_twice_is_found(out: Path) -> None:
    found = change(out, durable.WINDOWS, lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]))
    assert (found.missing, found.unexpected, found.different, found.hold) == (0, 1, 0, False)


@pytest.mark.parametrize("column", ["departures", "mean_delay", "revision"])
def test_another_value_is_found(out: Path, column: str) -> None:
    def alter(rows: pa.Table) -> pa.Table:
        position, field = rows.column_names.index(column), rows.schema.field(column)
        one = pa.array([1] + [0] * (len(rows) - 1), field.type)
        return rows.set_column(position, field, pc.add(rows.column(column), one))

    found = change(out, durable.WINDOWS, alter)
    assert (found.missing, found.unexpected, found.different, found.hold) == (0, 0, 1, False)


@pytest.mark.parametrize("alter", [lambda t: t.slice(1), lambda t: pa.concat_tables([t, t[:1]])])
def test_late_rows_that_are_lost_or_repeated_are_found(
    out: Path, alter: Callable[[pa.Table], pa.Table]
) -> None:
    found = change(out, durable.LATE, alter)
    assert (found.late_wrong, found.different, found.hold) == (1, 0, False)


def test_a_target_that_differs_is_not_verified(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(out, durable.WINDOWS, lambda rows: rows.slice(1))
    assert main(["--check", "--out", str(out)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


def test_a_folder_of_changes_is_read_as_the_final_table(out: Path) -> None:
    published = changes(out, durable.WINDOWS)
    sink = durable.results(out, None)
    for batch in range(2):
        half = len(published) // 2
        rows = published.slice(batch * half, half if batch == 0 else None)
        sink._deliver_rows(rows, batch, Identity("query", "run"))
    found = durable.read_windows(out, None).to_pandas()
    wanted = read_table(out, durable.WINDOWS)
    key = [*OUTPUTS[durable.WINDOWS].key]
    pd.testing.assert_frame_equal(*(t.sort_values(key, ignore_index=True) for t in (found, wanted)))
