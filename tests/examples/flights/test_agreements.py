from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from examples.flights.contents import JOINED, query_of
from examples.flights.tables import read_table, write_tables
from tests.examples.flights.conftest import joints_of, text_of

Logs = dict[str, pd.DataFrame]
COUNTS = {
    **dict.fromkeys(("arrivals", "weather"), ("on_time", "stragglers", "too_late", "results")),
    "aircraft": ("rows", "rejected", "results", "corrections"),
    "register": ("results", "corrections", "deletes", "duplicates", "stale"),
}


def change_table(out: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = out / "table" / f"windows={name}" / "part.parquet"
    table = pq.read_table(path, partitioning=None)
    spoilt = change(table.to_pandas())
    pq.write_table(pa.Table.from_pandas(spoilt, table.schema, preserve_index=False), path)


def test_a_good_run_agrees_with_the_batch(out: Path, logs: Logs) -> None:
    found = joints_of(out, logs)
    assert [*found] == [*JOINED]
    assert all(total.hold for total in found.values())
    text = text_of(out, logs)
    assert f"{sum(total.agreement.compared for total in found.values()):,} joined rows" in text


def test_the_run_covers_every_outcome_of_a_row(out: Path, logs: Logs) -> None:
    found = joints_of(out, logs)
    parts = {(total.title, *part) for j in found.values() for total in j.sums for part in total.parts.items()}  # fmt: skip
    none = {what for _, what, count in parts if count == 0}
    # Every log is in order, so nothing is late; and no hour of those days is without weather.
    assert none == {"late", "too late", "missing", "landed later than that"}


FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a row lost": lambda t: t.drop(index=2),
    "a row twice": lambda t: pd.concat([t, t.iloc[[2]]]),
    "a key mistaken": lambda t: t.assign(flight_id=t["flight_id"].where(t.index != 2, 10**6)),
    "a value mistaken": lambda t: t.assign(**{t.columns[1]: ["HPN", *t[t.columns[1]][1:]]}),
    "the last value mistaken": lambda t: t.assign(
        **{t.columns[-1]: t[t.columns[-1]].where(t.index != 2, t[t.columns[-1]].mode()[0] * 2)}
    ),
}


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_table_is_found(fault: str, name: str, out: Path, logs: Logs) -> None:
    change_table(out, name, FAULTS[fault])
    found = joints_of(out, logs)
    assert not found[name].agreement.equal
    assert all(total.hold for other, total in found.items() if other != name)


@pytest.mark.parametrize(
    ("name", "counter"), [(name, total) for name, all_of in COUNTS.items() for total in all_of]
)
def test_a_count_that_is_off_does_not_add_up(
    name: str, counter: str, out: Path, logs: Logs
) -> None:
    counts = json.loads((out / "run.json").read_text())
    counts["counts"][name][counter] += 1
    (out / "run.json").write_text(json.dumps(counts))
    join = "aircraft" if name == "register" else name
    assert not joints_of(out, logs)[join].hold


@pytest.mark.parametrize("feed", ["schedule", "landings", "departures", "weather", "register"])
def test_a_row_missing_from_a_log_is_found(feed: str, out: Path, logs: Logs) -> None:
    """The verification uses the data of the package, not the logs that the job read."""
    more = pd.concat([logs[feed], logs[feed].iloc[[100]]], ignore_index=True)
    assert not all(total.hold for total in joints_of(out, {**logs, feed: more}).values())


def test_an_aircraft_that_a_late_copy_brought_back_is_found(out: Path, logs: Logs) -> None:
    """As it would be if what comes last counted, and not the entry of the highest number."""
    log = logs["register"]
    deleted = log[log["_change_type"] == "delete"]["tailnum"]
    back = log[log.duplicated("entry") & log["tailnum"].isin(deleted)].drop_duplicates("tailnum")
    maker = back.set_index("tailnum")["manufacturer"]

    def change(table: pd.DataFrame) -> pd.DataFrame:
        brought = table["tailnum"].map(maker)
        assert brought.notna().any()
        return table.assign(manufacturer=table["manufacturer"].fillna(brought))

    change_table(out, "aircraft", change)
    assert not joints_of(out, logs)["aircraft"].hold


def test_the_command_exits_zero_only_if_joins_are_equal(
    out: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["--check", "--out", str(out)]) == 0
    change_table(out, "weather", lambda t: t.assign(wind=t["wind"] + 1e-9))
    assert main(["--check", "--out", str(out)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


def test_a_row_that_was_emitted_twice_does_not_fold(out: Path) -> None:
    path = next((out / "published" / query_of("arrivals")).glob("batch=*/output=changes/*.parquet"))
    table = pq.read_table(path, partitioning=None)
    pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), path)
    with pytest.raises(ValueError, match="INSERTED_TWICE"):
        write_tables(out)


def test_emitted_rows_of_aircraft_were_retracted_and_corrected(out: Path, logs: Logs) -> None:
    table = read_table(out, "aircraft").set_index("flight_id")
    assert table.index.is_monotonic_increasing
    assert set(table.index) == set(logs["departures"]["flight_id"])
    assert not table["manufacturer"].isin(["AIRBUS INDUSTRIE"]).any()
