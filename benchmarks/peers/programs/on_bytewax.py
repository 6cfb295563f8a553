"""The workloads in Bytewax: one worker, with recovery."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing as w
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main
from protocol import Job, serve

ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
Event = tuple[Any, ...]
Total = tuple[int, float]


class _Rows(StatefulSourcePartition[Event, int]):
    """Batches of 50,000 rows of all files, in order; a position to resume from is a number of batches."""

    def __init__(self, folder: str, position: int | None) -> None:
        self._position = position or 0
        self._batches = self._read(folder)
        for _ in range(self._position):
            next(self._batches)

    def _read(self, folder: str) -> Iterator[list[Event]]:
        for file in sorted(Path(folder).iterdir()):
            for batch in pq.ParquetFile(file).iter_batches(50_000):
                yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def next_batch(self) -> list[Event]:
        rows = next(self._batches)  # its end ends the input
        self._position += 1
        return rows

    def snapshot(self) -> int:
        return self._position


class _Files(FixedPartitionedSource[Event, int]):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _Rows:
        return _Rows(self._folder, resume_state)


class _Coming(StatefulSourcePartition[Event, str]):
    """The rows of all files of a folder that files come into, in the order of their names."""

    def __init__(self, folder: str, last: str | None) -> None:
        self._folder, self._last = folder, last or ""
        self._awake: datetime | None = None

    def next_batch(self) -> list[Event]:
        rows: list[Event] = []
        for name in sorted(os.listdir(self._folder)):
            if name > self._last:
                columns = pq.read_table(f"{self._folder}/{name}").columns
                rows += zip(*(column.to_pylist() for column in columns), strict=True)
                self._last = name
        self._awake = None if rows else datetime.now(UTC) + timedelta(milliseconds=10)
        return rows

    def next_awake(self) -> datetime | None:
        return self._awake

    def snapshot(self) -> str:
        return self._last


class _Folder(FixedPartitionedSource[Event, str]):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: str | None) -> _Coming:
        return _Coming(self._folder, resume_state)


class _Lines(StatelessSinkPartition[int]):
    def __init__(self, path: str) -> None:
        self._file = Path(path).open("a")  # noqa: SIM115 (open until the process ends)

    def write_batch(self, items: list[int]) -> None:
        self._file.writelines(f"{item}\n" for item in items)
        self._file.flush()


class _LineSink(DynamicSink[int]):
    def __init__(self, path: str) -> None:
        self._path = path

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Lines:
        return _Lines(self._path)


class _Results(StatelessSinkPartition[Event]):
    def __init__(self, rows: list[Event] | None) -> None:
        self._rows = rows

    def write_batch(self, items: list[Event]) -> None:
        if self._rows is not None:
            self._rows += items


class _Sink(DynamicSink[Event]):
    """Collect all results, or discard them."""

    def __init__(self, rows: list[Event] | None) -> None:
        self._rows = rows

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Results:
        return _Results(self._rows)


def add(total: Total, event: Event) -> Total:
    return total[0] + 1, total[1] + event[1]


def merge(one: Total, other: Total) -> Total:
    return one[0] + other[0], one[1] + other[1]


def extend(session: Event | None, event: Event) -> Event:
    """Count, sum, first and last time of a session."""
    _, v, ts = event
    if session is None:
        return 1, v, ts, ts
    n, total, first, last = session
    return n + 1, total + v, min(first, ts), max(last, ts)


def unite(one: Event | None, other: Event | None) -> Event | None:
    if one is None or other is None:
        return one or other
    return one[0] + other[0], one[1] + other[1], min(one[2], other[2]), max(one[3], other[3])


def run_so_far(total: Total | None, event: Event) -> tuple[Total, Total]:
    now = add(total or (0, 0.0), event)
    return now, now


def build(job: Job, sink: _Sink) -> tuple[Dataflow, list[str]]:
    """The dataflow, and the names of the columns of its results."""
    flow = Dataflow(job.workload)
    events = op.input("events", flow, _Files(job.inputs["events"]))
    keyed = op.key_on("key", events, lambda event: str(event[0]))
    # The stream is in the past: windows close by the times of events, not by the time of day.
    clock = w.EventClock(
        ts_getter=lambda event: event[2],
        wait_for_system_duration=timedelta(milliseconds=job.settings["delay_ms"]),
        to_system_utc=lambda _: None,
    )
    gap = timedelta(milliseconds=job.settings["gap_ms"])
    counted = timedelta(milliseconds=job.settings["counted_ms"])
    names = ["k", "window_start", "window_end", "n", "total"]

    def fold(windower: w.Windower[Any]) -> Any:
        return w.fold_window(
            "window", keyed, clock, windower, lambda: (0, 0.0), add, merge, ordered=False
        ).down

    def in_windows(hop: timedelta, size: timedelta) -> Callable[[Any], Event]:
        def convert(item: Any) -> Event:
            key, (number, (n, total)) = item
            start = ORIGIN + number * hop
            return int(key), start, start + size, n, total

        return convert

    match job.workload:
        case "tumbling":
            down = fold(w.TumblingWindower(length=MINUTE, align_to=ORIGIN))
            results = op.map("result", down, in_windows(MINUTE, MINUTE))
        case "hopping":
            size = 5 * MINUTE
            down = fold(w.SlidingWindower(length=size, offset=MINUTE, align_to=ORIGIN))
            results = op.map("result", down, in_windows(MINUTE, size))
        case "session":
            windower = w.SessionWindower(gap=gap)
            down = w.fold_window(
                "window", keyed, clock, windower, lambda: None, extend, unite, ordered=False
            ).down

            def convert(item: Any) -> Event:
                key, (_, (n, total, first, last)) = item
                return int(key), first, last + gap, n, total

            results = op.map("result", down, convert)
        case "distinct":
            windower = w.TumblingWindower(length=counted, align_to=ORIGIN)
            items = op.map("item", keyed, lambda item: (item[0], item[1]))
            down = w.fold_window(
                "window",
                items,
                clock,
                windower,
                set,
                lambda found, event: found | {event[3]} if event[3] not in found else found,
                lambda one, other: one | other,
                ordered=False,
            ).down
            names = names[:-1]

            def count(item: Any) -> Event:
                key, (number, found) = item
                start = ORIGIN + number * counted
                return int(key), start, start + counted, len(found)

            results = op.map("result", down, count)
        case "running":
            totals = op.stateful_map("total", keyed, run_so_far)
            results = op.map("result", totals, lambda item: (int(item[0]), *item[1]))
            names = ["k", "n", "total"]
        case _:
            raise NotImplementedError(job.workload)
    op.output("results", results, sink)
    return flow, names


def build_live(job: Job) -> Dataflow:
    flow = Dataflow("live")
    events = op.input("events", flow, _Folder(job.inputs["events"]))
    keyed = op.key_on("key", events, lambda event: str(event[0]))
    second = timedelta(seconds=1)
    if job.workload == "tumbling":
        clock = w.EventClock(
            ts_getter=lambda event: event[2], wait_for_system_duration=timedelta(0)
        )
        windower = w.TumblingWindower(length=second, align_to=ORIGIN)
        down = w.fold_window(
            "window", keyed, clock, windower, lambda: (0, 0.0), add, merge, ordered=False
        ).down
        known = op.map("known", down, lambda item: (item[1][0] + 1) * 1_000)
    else:

        def run_on(state: Event | None, event: Event) -> tuple[Event, int]:
            total, newest = state or ((0, 0.0), event[2])
            newest = max(newest, event[2])
            return (add(total, event), newest), int(newest.timestamp() * 1_000)

        totals = op.stateful_map("total", keyed, run_on)
        known = op.map("known", totals, lambda item: item[1])
    op.output("lines", known, _LineSink(job.lines))
    return flow


def carry_out(job: Job) -> None:
    if job.live:
        init_db_dir(Path(job.state), 1)
        run_main(build_live(job), recovery_config=RecoveryConfig(job.state))
        return
    rows: list[Event] | None = [] if job.output else None
    flow, names = build(job, _Sink(rows))
    init_db_dir(Path(job.state), 1)
    run_main(flow, recovery_config=RecoveryConfig(job.state))
    if rows is not None:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        pq.write_table(
            pa.table(dict(zip(names, columns, strict=True))), f"{job.output}/results.parquet"
        )


if __name__ == "__main__":
    serve(carry_out)
