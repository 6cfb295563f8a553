from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.__main__ import main
from examples.flights.promises import Promises, gather_promises
from examples.flights.tables import Run, read_table
from streamops import sketches
from tests.examples.flights.conftest import text_of

ROUTES = ("route_delays", "busiest_routes")


def found(out: Path, rows: pd.DataFrame) -> Promises:
    return gather_promises(out, rows, Run.read(out))


def spoil(out: Path, name: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    path = out / "table" / f"windows={name}" / "part.parquet"
    table = pq.read_table(path, partitioning=None)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)


def test_a_good_run_satisfies_every_bound(
    out: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    assert found(out, days).hold
    text = text_of(out, logs)
    assert "sketches are within their error bounds" in text
    assert "VIOLATED" not in text


def test_some_counts_are_exact_and_some_are_estimated(out: Path, days: pd.DataFrame) -> None:
    for title, claims in found(out, days).claims.items():
        assert sum(answer.answers for answer in claims) > 0, title
    exact, near, _ = found(out, days).claims["distinct aircraft per airline and day"]
    assert min(exact.answers, near.answers) > 0


def test_the_year_is_the_sketch_of_its_days_merged(out: Path) -> None:
    by_day, by_year = read_table(out, "airline_days"), read_table(out, "airline_years")
    assert set(by_year["carrier"]) == set(by_day["carrier"])
    for row in by_year.to_dict("records"):
        ours = by_day[by_day["carrier"] == row["carrier"]]
        first, *others = [sketches.read(answer) for answer in ours["sketch"]]
        assert row["days"] == len(ours)
        assert first.merge(*others).estimate() == row["aircraft"]
        assert first.estimate() == ours["aircraft"].iloc[0]


FAULTS: dict[str, tuple[str, Callable[[list[dict[str, Any]]], object]]] = {
    "an aircraft too many": ("airline_days", lambda t: t[0]["aircraft"].update(estimate=99)),
    "bounds beside the truth": ("airline_days", lambda t: t[0]["aircraft"].update(lower=98)),
    "an aircraft too many in the year": (
        "airline_years", lambda t: t[0]["aircraft"].update(estimate=9_999)
    ),
    "an airline lost": ("airline_years", lambda t: t.pop()),
    "a percentile that is off": ("route_delays", lambda t: t[3]["delays"]["estimate"].reverse()),
    "a departure too many": (
        "route_delays", lambda t: t[3]["delays"].update(count=t[3]["delays"]["count"] + 1)
    ),
    "a route lost": ("route_delays", lambda t: t.pop(3)),
    "a route twice": ("route_delays", lambda t: t.append(copy.deepcopy(t[3]))),
    "a busy route lost": ("busiest_routes", lambda t: t[0]["routes"]["items"].pop(0)),
    "a route too busy": ("busiest_routes", lambda t: t[0]["routes"]["items"][0].update(lower=999)),
    "a departure too few": ("busiest_routes", lambda t: t[0]["routes"].update(count=3)),
    "another revision": ("busiest_routes", lambda t: t[0].update(revision=7)),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_sketch_is_found(fault: str, out: Path, days: pd.DataFrame) -> None:
    spoil(out, *FAULTS[fault])
    assert not found(out, days).hold


def test_the_command_exits_zero_only_if_sketches_satisfy_their_bounds(
    out: Path, capsys: pytest.CaptureFixture
) -> None:
    spoil(out, "busiest_routes", lambda t: t[0]["routes"]["items"].pop(0))
    assert main(["--check", "--out", str(out)]) == 1
    output = capsys.readouterr().out
    assert "VIOLATED" in output
    assert "NOT VERIFIED" in output


@pytest.mark.parametrize("name", ROUTES)
@pytest.mark.parametrize("counter", ["results", "corrections", "rows", "ignored"])
def test_a_count_that_is_off_does_not_add_up(
    counter: str, name: str, out: Path, days: pd.DataFrame
) -> None:
    counts = json.loads((out / "run.json").read_text())
    counts["counts"][name][counter] += 1
    (out / "run.json").write_text(json.dumps(counts))
    assert not found(out, days).hold


def test_a_departure_missing_from_the_log_is_found(out: Path, days: pd.DataFrame) -> None:
    more = pd.concat([days, days.iloc[[100]].assign(flight_id=10**6)])
    assert not all(sums[0].holds for sums in found(out, more).sums.values())
