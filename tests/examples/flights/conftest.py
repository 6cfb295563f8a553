"""The folder of a run, made without Spark: the job's own windows, replayed over the log."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from examples.flights.agreements import Joint, gather_joints
from examples.flights.alarms import gather_alarms
from examples.flights.contents import JOINED, QUERIES, RULES, WINDOWS, Query
from examples.flights.crash import Crash, gather_survival, store
from examples.flights.feeds import FEEDS, feeds, write_feeds
from examples.flights.flights import departures, flights
from examples.flights.job import OPERATORS
from examples.flights.joining import aircraft, arrivals, registered, weather
from examples.flights.log import borders
from examples.flights.promises import gather_promises
from examples.flights.report import Facts, gather, report
from examples.flights.rules import alerts, duty, grounded
from examples.flights.tables import Run, late, write_tables
from streamops.kernel.core import Metrics
from streamops.testing import BatchResult, replay

EVERY = 30

# As Spark names the counts where there is no event time.
_OF_RUNNING = {
    "rows": "rows",
    "ignored": "rejected",
    "results": "results",
    "corrections": "corrections",
}
_CHANGES = ("rows", "rejected", "stale", "duplicates", "ignored", "results", "corrections")
_OF_REGISTER = {"register": {name: name for name in (*_CHANGES, "deletes")}}
_OF_RULES = {
    name: dict(operator.core.METRICS)
    for name, operator in (("grounded", grounded()), ("alerts", alerts(None)), ("duty", duty()))
}


@pytest.fixture(scope="session")
def all_flights() -> pd.DataFrame:
    return flights()


@pytest.fixture(scope="session")
def left(all_flights: pd.DataFrame) -> pd.DataFrame:
    return departures(all_flights)


@pytest.fixture(scope="session")
def logs(all_flights: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """What there is of the day of the storm and the day after it."""
    return feeds(all_flights, 2)


@pytest.fixture(scope="session")
def days(logs: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """The departures among it."""
    return logs["departures"]


def make_run(
    out: Path,
    logs: Mapping[str, pd.DataFrame],
    every: int,
    days: int | None,
    operators: Mapping[str, Any] = OPERATORS,
) -> Run:
    """What the job would leave in the folder."""
    files = write_feeds(logs, borders(dt.timedelta(minutes=every)), out / "log")
    watermarks: dict[str, str] = {}
    counts: dict[str, dict[str, int]] = {}
    for query, about in QUERIES.items():
        if about.joined:
            results = joined(out / "log", about)
        elif about.rules:
            results = ruled(out / "log", about)
        else:
            results = aggregated(read_log(out / "log", "departures", about), about, operators)
        published = {name: ours for name, ours in results.items() if name in about.outputs}
        for together in zip(*published.values(), strict=True):
            put(out, query, dict(zip(published, together, strict=True)))
        watermarks[query] = results[about.outputs[0]][-1].watermark.isoformat()
        for name, ours in results.items():
            counted = total(result.counts for result in ours)
            others = {**_OF_REGISTER, **_OF_RULES}
            names = _OF_RUNNING if name in about.running else others.get(name)
            counts[name] = counted if names is None else {k: counted[names[k]] for k in names}
    run = Run(days, every, files, watermarks, counts)
    run.write(out)
    write_tables(out)
    survive(out)
    (out / ".flights-demo").touch()
    return run


def survive(out: Path) -> None:
    """Store what a sink of the hours has after a crash."""
    windows = pq.read_table(out / "table" / "windows=hourly" / "part.parquet", partitioning=None)
    rows = [{"late": {"row": {"flight_id": int(n)}}} for n in late(out, "hourly")["flight_id"]]
    missed = pa.table({"reason": ["too_late"] * len(rows), "row": list(map(json.dumps, rows))})
    store(out, Crash("Parquet", 7, True), windows, missed)


def read_log(log: Path, name: str, about: Query) -> list[pa.Table]:
    """The micro-batches of a log."""
    files = [pq.read_table(path) for path in sorted((log / name).glob("*.parquet"))]
    starts = range(0, len(files), about.files)
    return [pa.concat_tables(files[n : n + about.files]) for n in starts]


def aggregated(
    batches: list[pa.Table], about: Query, operators: Mapping[str, Any]
) -> dict[str, list[BatchResult]]:
    """What windows and values without windows put out, micro-batch by micro-batch."""
    results = {windows: replay(operators[windows], batches) for windows in about.windows}
    # The micro-batch without data that a watermark asks for has nothing for these.
    least = max(map(len, results.values())) - len(batches)
    script = [routed(rows) for rows in batches + [batches[0].slice(0, 0)] * least]
    return results | {name: replay(operators[name], script) for name in about.running}


def joined(log: Path, about: Query) -> dict[str, list[BatchResult]]:
    """What joins put out, micro-batch by micro-batch, and what is before them."""
    read = {name: read_log(log, name, about) for name in FEEDS}
    if about.joined == ("arrivals",):
        pairs = zip(read["schedule"], read["landings"], strict=True)
        return {"arrivals": replay(arrivals(None), pairs)}
    facts = [
        rows.select(["flight_id", "origin", "departed", "delay"]) for rows in read["departures"]
    ]
    results = {"weather": replay(weather(None), zip(facts, read["weather"], strict=True))}
    entries = replay(registered(), [rows.drop_columns("entered") for rows in read["register"]])
    assert not any(row["rejected"] for result in entries for row in result.rows)
    left = [inserted(rows.select(["flight_id", "tailnum", "delay"])) for rows in read["departures"]]
    right = [result.table.drop_columns(["revision", "rejected"]) for result in entries]
    least = len(results["weather"]) - len(left)
    script = [*zip(left, right, strict=True), *[(None, None)] * least]
    return results | {"aircraft": replay(aircraft(None), script), "register": entries}


def ruled(log: Path, about: Query) -> dict[str, list[BatchResult]]:
    """What rules put out, micro-batch by micro-batch."""
    if about.rules == ("duty",):
        return {"duty": replay(duty(), read_log(log, "movements", about))}
    outcomes = read_log(log, "outcomes", about)
    # On Spark, Spark evaluates the conditions.
    conditions = {
        "delay > 15": lambda rows: pc.greater(rows["delay"], 15),
        "delay IS NULL": lambda rows: rows["delay"].is_null(),
    }
    script = []
    for rows in outcomes:
        known = rows.filter(pc.field("tailnum").is_valid())
        for text, evaluate in conditions.items():
            known = known.append_column(text, evaluate(known))
        script.append(known)
    results = {"grounded": replay(grounded(), script)}
    pairs = [*zip(outcomes, read_log(log, "alerts", about), strict=True)]
    least = len(results["grounded"]) - len(pairs)
    empty = tuple(rows.slice(0, 0) for rows in pairs[0])
    return results | {"alerts": replay(alerts(None), [*pairs, *[empty] * least])}


def inserted(rows: pa.Table) -> pa.Table:
    """The rows as inserts into a table."""
    return rows.append_column("_change_type", pa.repeat("insert", len(rows)))


def put(out: Path, query: str, results: dict[str, BatchResult]) -> None:
    """Write what a micro-batch of a query put out."""
    for name, field in (("changes", "table"), ("late", "late")):
        tables = [
            of_join(getattr(result, field), windows).append_column(
                "windows", pa.repeat(windows, len(getattr(result, field)))
            )
            for windows, result in results.items()
        ]
        if name == "late" and not any(map(len, tables)):
            continue
        number = next(iter(results.values())).batch
        folder = out / "published" / query / f"batch={number:04d}" / f"output={name}"
        folder.mkdir(parents=True)
        together = pa.concat_tables(tables, promote_options="default")
        pq.write_table(together, folder / "part.parquet")


def of_join(rows: pa.Table, name: str) -> pa.Table:
    """The columns that the job keeps of a join, or of a rule."""
    listed = JOINED | RULES
    if name not in listed or not rows.num_columns:
        return rows
    changes = rows if "_change_type" in rows.column_names else inserted(rows)
    return changes.select([*listed[name].columns, "_change_type"])


def total(counts: Iterable[Metrics]) -> dict[str, int]:
    added: Counter[str] = Counter()
    for counted in counts:
        added.update(asdict(counted))
    return dict(added)


def routed(rows: pa.Table) -> pa.Table:
    """As the job does it in Spark."""
    route = pc.binary_join_element_wise(rows["origin"], rows["dest"], "-")
    return rows.append_column("route", route)


def facts_of(out: Path, rows: pd.DataFrame) -> dict[str, Facts]:
    return {windows: gather(out, rows, Run.read(out), windows) for windows in WINDOWS}


def joints_of(out: Path, logs: Mapping[str, pd.DataFrame]) -> dict[str, Joint]:
    return gather_joints(out, logs, Run.read(out))


def alarms_of(out: Path, logs: Mapping[str, pd.DataFrame]) -> dict[str, Joint]:
    return gather_alarms(out, logs, Run.read(out))


def text_of(out: Path, logs: Mapping[str, pd.DataFrame]) -> str:
    """The report of a run."""
    run, rows = Run.read(out), logs["departures"]
    found = gather_promises(out, rows, run)
    facts, joints, alarms = facts_of(out, rows), joints_of(out, logs), alarms_of(out, logs)
    return report(facts, found, joints, alarms, gather_survival(out), run)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory, logs: dict[str, pd.DataFrame]) -> Path:
    out = tmp_path_factory.mktemp("demo")
    make_run(out, logs, EVERY, 2)
    return out


@pytest.fixture
def out(pristine: Path, tmp_path: Path) -> Path:
    """A copy of the folder of a good run, to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "out"))
