from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from examples.flights.contents import RULES, query_of
from examples.flights.tables import Run, read_table
from tests.examples.flights.conftest import alarms_of, text_of

Logs = dict[str, pd.DataFrame]
COUNTS = {
    "grounded": ("rows", "rejected", "too_late", "results"),
    "alerts": ("changes", "rejected", "on_time", "too_late", "results"),
    "duty": ("rows", "on_time", "too_late", "results"),
}


def change_table(out: Path, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    path = out / "table" / f"windows={name}" / "part.parquet"
    table = pq.read_table(path, partitioning=None)
    spoilt = change(table.to_pandas())
    pq.write_table(pa.Table.from_pandas(spoilt, table.schema, preserve_index=False), path)


def change_log(logs: Logs, name: str, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Logs:
    return {**logs, name: change(logs[name]).reset_index(drop=True)}


def test_a_good_run_agrees_with_the_batch(out: Path, logs: Logs) -> None:
    found = alarms_of(out, logs)
    assert [*found] == [*RULES]
    assert all(total.hold for total in found.values())
    text = text_of(out, logs)
    assert f"{sum(total.agreement.compared for total in found.values()):,} rows of rules" in (
        text.replace("\n", " ")
    )


def test_the_run_covers_both_violations_several_alerts_and_an_invalid_query(out: Path) -> None:
    assert read_table(out, "duty")["violation"].value_counts().min() > 10
    assert read_table(out, "alerts")["alert"].nunique() == 4
    assert len(read_table(out, "grounded")) == 6
    counts = Run.read(out).counts
    assert counts["alerts"]["rejected"] == counts["alerts"]["too_late"] == 1


FAULTS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "a row lost": lambda t: t.drop(index=2),
    "a row twice": lambda t: pd.concat([t, t.iloc[[2]]]),
    "a key mistaken": lambda t: t.assign(flight_id=t["flight_id"].where(t.index != 2, 10**6)),
    "a value mistaken": lambda t: t.assign(
        **{t.columns[-1]: t[t.columns[-1]].where(t.index != 2, 4_321)}
    ),
    "all rows lost": lambda t: t[:0],
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_table_is_found(fault: str, name: str, out: Path, logs: Logs) -> None:
    change_table(out, name, FAULTS[fault])
    found = alarms_of(out, logs)
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
    assert not alarms_of(out, logs)[name].hold


@pytest.mark.parametrize("feed", ["movements", "outcomes", "alerts"])
def test_a_row_missing_from_a_log_is_found(feed: str, out: Path, logs: Logs) -> None:
    """The verification uses the data of the package, not the logs that the job read."""
    more = {"flight_id": 10**6} if feed != "alerts" else {"entry": 99}
    longer = change_log(logs, feed, lambda t: pd.concat([t, t.iloc[[1]].assign(**more)]))
    assert not all(total.hold for total in alarms_of(out, longer).values())


def test_a_query_that_took_effect_in_another_micro_batch_is_found(out: Path, logs: Logs) -> None:
    """The update of the alert for United arrives with the second half of the departures."""
    entries = logs["alerts"]
    first, *_, last = entries["entered"].sort_values().unique()

    def enter(when: pd.Timestamp) -> Logs:
        moved = entries["entered"].where(entries["_change_type"] != "update_postimage", when)
        return change_log(logs, "alerts", lambda t: t.assign(entered=moved))

    assert alarms_of(out, logs)["alerts"].agreement.equal
    assert not all(alarms_of(out, enter(when))["alerts"].agreement.equal for when in (first, last))


def test_the_command_exits_zero_only_if_rules_are_equal(
    out: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["--check", "--out", str(out)]) == 0
    change_table(out, "duty", lambda t: t.assign(departures=t["departures"] + 1))
    assert main(["--check", "--out", str(out)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


def test_the_watermark_of_outcomes_waits_for_a_day(out: Path, logs: Logs) -> None:
    end = Run.read(out).end(query_of("grounded"))
    assert logs["outcomes"]["scheduled"].max() - end == pd.Timedelta(days=1)
