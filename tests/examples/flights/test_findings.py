from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights.findings import findings


def put(out: Path, windows: str, rows: list[dict[str, object]] | pd.DataFrame) -> None:
    path = out / "table" / f"windows={windows}" / "part.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(rows), preserve_index=False), path)


def day(text: str, **more: object) -> dict[str, object]:
    start = pd.Timestamp(text, tz="America/New_York")
    end = start + pd.DateOffset(days=1)
    return {"window_start": start.tz_convert("UTC"), "window_end": end.tz_convert("UTC"), **more}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    put(
        tmp_path, "days",
        [
            day("2013-03-09", origin="JFK", departures=1),
            day("2013-03-10", origin="EWR", departures=2),
            day("2013-03-10", origin="JFK", departures=3),
            day("2013-11-03", origin="JFK", departures=4),
        ],
    )  # fmt: skip
    busy = [day("2013-07-01", tailnum=f"N{n}", departures=n) for n in (1, 5, 2)]
    # Longer than the others, but with fewer departures.
    busy[0]["window_end"] += pd.Timedelta(hours=20)
    put(tmp_path, "working_days", busy)
    noon = pd.Timestamp("2013-07-01 16:00", tz="UTC")
    timestamps = [{"origin": "LGA", "scheduled": noon, "departures": n} for n in (7, 6)]
    put(tmp_path, "last_hour", timestamps)
    fleets = [("AA", 7, 3), ("UA", 90, 2)]
    answers = [{"estimate": n, "lower": n - 1, "upper": n + 2} for _, n, _ in fleets]
    put(
        tmp_path, "airline_years",
        [{"carrier": c, "days": d, "aircraft": a} for (c, _, d), a in zip(fleets, answers, strict=True)],
    )  # fmt: skip
    counts = [("AA", 7), ("UA", 40), ("UA", 60)]
    put(tmp_path, "airline_days", [{"carrier": c, "aircraft": {"estimate": n}} for c, n in counts])
    delays = {"estimate": [-1.0, 31.0, 172.0]}
    routes = [("JFK", "LAX"), ("LGA", "ATL")]
    put(tmp_path, "route_delays", [{"origin": o, "dest": d, "delays": delays} for o, d in routes])
    items = [
        {"item": "LGA-ATL", "lower": 1_200, "upper": 1_210},
        {"item": "JFK-LAX", "lower": 9, "upper": 9},
    ]
    put(tmp_path, "busiest_routes", [{"routes": {"items": items}}])
    landed = [("EWR", "matched"), ("EWR", "expired"), ("JFK", "matched"), ("LGA", "expired")]
    put(tmp_path, "arrivals", [{"origin": o, "status": s} for o, s in landed])
    seen = [(1.0, 50), (0.25, 30), (1.25, 10), (10.0, 20), (None, 900)]
    put(tmp_path, "weather", [{"visibility": v, "delay": d} for v, d in seen])
    made = [("BOEING", 4), ("BOEING", 8), ("EMBRAER", 20), ("AIRBUS", 9), (None, 900)]
    rare = [("BOEING", 6)] * 200 + [("PIPER", 500)]  # less than one in a hundred
    some = [*made[2:4] * 3, *made, *rare]
    put(tmp_path, "aircraft", [{"manufacturer": m, "delay": d} for m, d in some])
    night = pd.Timestamp("2013-07-02 03:00", tz="UTC")
    late = [("N1", 99), ("N2", 1_100)]
    cases = [{"tailnum": name, "match_end": night, "minutes": n} for name, n in late]
    put(tmp_path, "grounded", cases)
    put(tmp_path, "alerts", [{"alert": name} for name in ("early", "united", "united")])
    violations = ["in the air at the limit", *["departed beyond the limit"] * 2]
    put(tmp_path, "duty", [{"violation": violation} for violation in violations])
    return tmp_path


def test_the_two_days_are_named_with_their_hours(tables: Path) -> None:
    spring, autumn, *_ = findings(tables).splitlines()
    assert spring.startswith("10 March 2013, ")
    assert spring.endswith(" had 23 hours: EWR 2, JFK 3 departures.")
    assert autumn.startswith("3 November 2013, ")
    assert autumn.endswith(" had 25 hours: JFK 4 departures.")


def test_the_working_day_of_most_departures_and_the_busiest_hour_are_named(tables: Path) -> None:
    aircraft, hour = findings(tables).splitlines()[2:4]
    # The session ends eight hours after the last departure.
    assert aircraft.endswith("N5 left New York 5 times in one working day, from 1 July 00:00 to 1 July 16:00.")  # fmt: skip
    assert hour.startswith("7 departures of LGA were scheduled in the hour up to 1 July 12:00")


def test_the_largest_fleet_and_the_busiest_route_are_named_with_their_bounds(
    tables: Path,
) -> None:
    fleet, route = findings(tables).splitlines()[4:6]
    assert fleet == "UA flew about 90 aircraft, 89 to 92, and with 60 on its fullest day: sketches of 2 days, merged."  # fmt: skip
    assert route == "The busiest route, LGA-ATL, had 1,200 to 1,210 departures: a median delay of -1 minutes, the 90th percentile is 31, the 99th 172."  # fmt: skip


def test_joins_find_flights_not_landed_delays_in_fog_and_by_manufacturer(
    tables: Path,
) -> None:
    landed, fog, makers = findings(tables).splitlines()[6:9]
    assert landed == "2 flights did not land within a day of their schedule: EWR 50.0%, JFK 0.0%, LGA 100.0%."  # fmt: skip
    assert fog == "2 departures with a visibility of a mile or less left 40 minutes late on average, all others 15."  # fmt: skip
    assert makers == "Aircraft of BOEING left 6 minutes late on average, those of EMBRAER 20: of manufacturers with 1% of the departures, the least and the most."  # fmt: skip


def test_rules_find_cancellations_after_delays_alerts_and_duties_beyond_the_limit(
    tables: Path,
) -> None:
    grounded, alerts, duty = findings(tables).splitlines()[9:]
    assert grounded == "2 times the next flight of an aircraft that had left late three times in a row was cancelled; N2, on 1 July, after 1,100 minutes of delay."  # fmt: skip
    assert alerts == "The alerts of the dispatchers matched 3 times: united 2, early 1."
    assert duty == "If one crew stayed with its aircraft until it had eight hours of rest, one flight would have been in the air at its limit of sixteen hours, and 2 flights would have left beyond it."  # fmt: skip


def test_findings_leave_out_what_the_tables_do_not_have(tables: Path) -> None:
    rules = ("grounded", "alerts", "duty")
    for name in ("airline_years", "busiest_routes", "weather", "aircraft", *rules):
        (tables / "table" / f"windows={name}" / "part.parquet").unlink()
        (tables / "table" / f"windows={name}").rmdir()
    none = pd.DataFrame({"carrier": [], "aircraft": [], "days": []})
    put(tables, "airline_years", none.to_dict("records"))
    put(tables, "busiest_routes", [{"routes": {"items": []}}])
    put(tables, "weather", [{"visibility": 10.0, "delay": 1}])
    put(tables, "aircraft", [{"manufacturer": "BOEING", "delay": 1}])
    for name, column in zip(rules, ("minutes", "alert", "violation"), strict=True):
        put(tables, name, pd.DataFrame({column: pd.Series(dtype="int64")}))
    assert len(findings(tables).splitlines()) == 5


def test_days_of_which_all_have_24_hours_are_not_named(out: Path) -> None:
    """Of the day of the storm and the day after it."""
    assert "clocks" not in findings(out)
    assert len(findings(out).splitlines()) == 10
