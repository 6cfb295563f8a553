from __future__ import annotations

import datetime as dt
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from examples.flights.feeds import FEEDS, write_feeds
from examples.flights.flights import NEW_YORK, STORM
from examples.flights.log import borders, columns_of, files_of, write_log

EVERY = dt.timedelta(minutes=30)
SCHEMA = FEEDS["departures"].schema


def write(rows: pd.DataFrame, every: dt.timedelta, log: Path) -> int:
    numbers = files_of(rows["departed"], borders(every))
    count = int(numbers.max()) + 1
    write_log(rows, numbers, count, log, SCHEMA)
    return count


def test_a_log_is_written_in_the_order_of_arrival(tmp_path: Path, days: pd.DataFrame) -> None:
    count = write(days, EVERY, tmp_path / "log")
    files = sorted((tmp_path / "log").glob("*.parquet"), key=lambda path: path.stat().st_mtime)
    read = [pq.read_table(path).to_pandas() for path in files]
    assert files == sorted(files)
    assert len(files) == count
    together = pd.concat(read, ignore_index=True)
    pd.testing.assert_frame_equal(together, days[SCHEMA.names])


def test_files_of_the_log_are_at_least_a_second_apart(tmp_path: Path, days: pd.DataFrame) -> None:
    write(days, dt.timedelta(minutes=5), tmp_path / "log")
    times = [path.stat().st_mtime for path in sorted((tmp_path / "log").glob("*.parquet"))]
    assert pd.Series(times).diff().min() >= 1


def test_the_day_of_the_storm_has_small_batches_and_the_rest_one_per_quarter(
    left: pd.DataFrame,
) -> None:
    batch = files_of(left["departed"], borders(EVERY))
    live = left.groupby(batch).filter(lambda rows: len(rows) < 100)
    assert sorted(batch.unique()) == [*range(41)]
    assert set(live["departed"].dt.tz_convert(NEW_YORK).dt.date) == {STORM}


def test_an_existing_log_is_reused(tmp_path: Path, days: pd.DataFrame) -> None:
    log = tmp_path / "log"
    write(days, EVERY, log)
    before = {path: path.stat().st_ino for path in log.iterdir()}
    write(days, EVERY, log)
    assert {path: path.stat().st_ino for path in log.iterdir()} == before


def test_a_log_with_other_micro_batches_is_written_again(
    tmp_path: Path, days: pd.DataFrame
) -> None:
    log = tmp_path / "log"
    first = write(days, EVERY, log)
    second = write(days, 2 * EVERY, log)
    assert second < first
    assert len(list(log.glob("*.parquet"))) == second


def test_an_incomplete_log_is_not_used(tmp_path: Path, days: pd.DataFrame) -> None:
    draft = tmp_path / "log.draft"
    draft.mkdir()
    (draft / "9999.parquet").write_text("the machine went down here")
    count = write(days, EVERY, tmp_path / "log")
    assert len(list((tmp_path / "log").glob("*.parquet"))) == count
    assert not draft.exists()


def test_what_arrives_between_two_files_of_the_first_log_is_in_the_later() -> None:
    cuts = pd.date_range("2013-03-08", periods=5, freq="h", tz="UTC")
    first = pd.Series(cuts[[1, 3]])  # nothing from two to three
    times = pd.Series([cuts[0] - pd.Timedelta(days=1), cuts[1], cuts[2], cuts[3], cuts[4]])
    assert [*files_of(first, cuts)] == [0, 1]
    assert [*files_of(times, cuts, first)] == [0, 0, 1, 1, 1]


def test_every_log_has_as_many_files_empty_ones_too(
    tmp_path: Path, logs: dict[str, pd.DataFrame]
) -> None:
    count = write_feeds(logs, borders(dt.timedelta(minutes=5)), tmp_path)
    for name, feed in FEEDS.items():
        files = [pq.read_table(path) for path in sorted((tmp_path / name).glob("*.parquet"))]
        assert len(files) == count
        assert {file.schema for file in files} == {files[0].schema}
        together = pa.concat_tables(files).to_pandas()
        # A null is None, NaN or NA, depending on where a column is from.
        stored, written = (
            table.astype(object).where(table.notna(), None)
            for table in (together, logs[name][feed.schema.names])
        )
        pd.testing.assert_frame_equal(stored, written)
    assert any(not len(pq.read_table(path)) for path in (tmp_path / "weather").glob("*.parquet"))


def test_spark_reads_the_columns_that_were_written() -> None:
    assert columns_of(FEEDS["weather"].schema) == (
        "observation long, origin string, observed timestamp, visibility double, wind double"
    )
