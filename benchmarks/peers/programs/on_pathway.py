"""The workloads in Pathway: one worker, with persistence of the input.

Persistence of operators needs a license key, so a restarted program computes its state again.
Times are integers, in milliseconds.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import pathway as pw
from protocol import Job, serve

MINUTE = 60_000
SCHEMAS = {
    "events": {"k": int, "v": float, "ts": int},
    "distinct": {"k": int, "v": float, "ts": int, "u": int},
    "interval": {
        "left": {"k": int, "v": float, "ts": int},
        "right": {"k": int, "c": int, "ts": int},
    },
    "temporal": {
        "left": {"k": int, "v": float, "ts": int},
        "right": {"k": int, "price": float, "seq": int, "since": int},
    },
    "tables": {
        "left": {"k": int, "c": int, "v": float, "seq": int, "_change_type": str},
        "right": {"c": int, "n": int, "seq": int, "_change_type": str},
    },
}


def read(job: Job, name: str) -> pw.Table:
    # One file is one commit: its rows are processed together, as in a micro-batch of Spark.
    columns = SCHEMAS.get(job.workload, SCHEMAS["events"])
    schema = pw.schema_from_types(**columns.get(name, columns))
    return pw.io.csv.read(job.inputs[name], schema=schema, mode="static", name=name)


def build(job: Job) -> pw.Table:
    if "events" in job.inputs:
        return build_one(job, read(job, "events"))
    return build_join(job, read(job, "left"), read(job, "right"))


def in_windows(events: pw.Table, window: pw.temporal.Window, behavior: object) -> pw.Table:
    return events.windowby(events.ts, window=window, behavior=behavior, instance=events.k).reduce(
        k=pw.this._pw_instance,
        window_start=pw.this._pw_window_start,
        window_end=pw.this._pw_window_end,
        n=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.v),
    )


def build_one(job: Job, events: pw.Table) -> pw.Table:
    delay = job.settings["delay_ms"]
    once = pw.temporal.exactly_once_behavior(shift=delay)
    match job.workload:
        case "tumbling":
            return in_windows(events, pw.temporal.tumbling(duration=MINUTE), once)
        case "hopping":
            return in_windows(events, pw.temporal.sliding(hop=MINUTE, duration=5 * MINUTE), once)
        case "session":
            gap = job.settings["gap_ms"]
            sessions = events.windowby(
                events.ts, window=pw.temporal.session(max_gap=gap), instance=events.k
            ).reduce(
                k=pw.this._pw_instance,
                window_start=pw.reducers.min(pw.this.ts),
                window_end=pw.reducers.max(pw.this.ts) + gap,
                n=pw.reducers.count(),
                total=pw.reducers.sum(pw.this.v),
            )
            return sessions
        case "distinct":
            size = job.settings["counted_ms"]
            counted = pw.temporal.tumbling(duration=size)
            # Without a cutoff: a sketch cannot forget, and the engine panics when it has to.
            delayed = pw.temporal.common_behavior(delay=size + delay)
            return events.windowby(
                events.ts, window=counted, behavior=delayed, instance=events.k
            ).reduce(
                k=pw.this._pw_instance,
                window_start=pw.this._pw_window_start,
                window_end=pw.this._pw_window_end,
                n=pw.reducers.count_distinct_approximate(pw.this.u),
            )
        case "sliding":
            reach = job.settings["reach_ms"]
            others = events.copy()
            pairs = events.interval_join(
                others,
                events.ts,
                others.ts,
                pw.temporal.interval(1 - reach, 0),
                events.k == others.k,
                behavior=pw.temporal.common_behavior(cutoff=reach + delay),
            ).select(event=events.id, k=events.k, ts=events.ts, v=others.v)
            return pairs.groupby(pairs.event, pairs.k, pairs.ts).reduce(
                pairs.k, pairs.ts, n=pw.reducers.count(), total=pw.reducers.sum(pairs.v)
            )
        case "running":
            return events.groupby(events.k).reduce(
                events.k, n=pw.reducers.count(), total=pw.reducers.sum(events.v)
            )
        case "corrections":
            behavior = pw.temporal.common_behavior(
                delay=MINUTE + delay, cutoff=delay + job.settings["lateness_ms"]
            )
            return in_windows(events, pw.temporal.tumbling(duration=MINUTE), behavior)
    raise NotImplementedError(job.workload)


def build_join(job: Job, left: pw.Table, right: pw.Table) -> pw.Table:
    delay = job.settings["delay_ms"]
    match job.workload:
        case "interval":
            within = job.settings["within_ms"]
            return left.interval_join_left(
                right,
                left.ts,
                right.ts,
                pw.temporal.interval(0, within),
                left.k == right.k,
                behavior=pw.temporal.common_behavior(cutoff=within + delay),
            ).select(left.k, left.v, left.ts, right.c, clicked=right.ts)
        case "temporal":
            # Of several versions at one instant the one with the highest sequence counts.
            facts = left.with_columns(at=left.ts * 10_000_000 + 9_999_999)
            versions = right.with_columns(at=right.since * 10_000_000 + right.seq)
            return facts.asof_join(
                versions, facts.at, versions.at, facts.k == versions.k, how=pw.JoinMode.LEFT
            ).select(facts.k, facts.v, facts.ts, versions.price, versions.seq, versions.since)
        case "tables":
            orders, customers = latest(left, "k"), latest(right, "c")
            return orders.join_left(customers, orders.c == customers.c).select(
                orders.k, orders.c, orders.v, customers.n
            )
    raise NotImplementedError(job.workload)


def latest(changes: pw.Table, key: str) -> pw.Table:
    """The rows of a table, from its changes."""
    rows = changes.filter(changes._change_type != "update_preimage").deduplicate(
        value=pw.this.seq,
        instance=pw.this[key],
        acceptor=lambda new, old: new > old,
        name=f"latest-{key}",
    )
    return rows.filter(rows._change_type != "delete")


def build_live(job: Job) -> None:
    schema = pw.schema_from_types(**SCHEMAS["events"])
    events = pw.io.csv.read(
        job.inputs["events"],
        schema=schema,
        mode="streaming",
        autocommit_duration_ms=50,
        name="events",
    )
    if job.workload == "tumbling":
        once = pw.temporal.exactly_once_behavior()
        known = in_windows(events, pw.temporal.tumbling(duration=1_000), once).select(
            known=pw.this.window_end
        )
    else:
        known = events.groupby(events.k).reduce(
            events.k, total=pw.reducers.sum(events.v), known=pw.reducers.max(events.ts)
        )
    lines = Path(job.lines).open("a")  # noqa: SIM115 (open until the process ends)

    def on_change(key: pw.Pointer, row: dict, time: int, is_addition: bool) -> None:
        if is_addition:
            lines.write(f"{row['known']}\n")

    pw.io.subscribe(known, on_change, on_time_end=lambda time: lines.flush())


def run(job: Job) -> None:
    if job.live:
        build_live(job)
    else:
        write(build(job), job)
    backend = pw.persistence.Backend.filesystem(job.state)
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend),
    )


def write(results: pw.Table, job: Job) -> None:
    if job.output:
        pw.io.csv.write(results, f"{job.output}/results.csv")
    else:
        pw.io.null.write(results)


def carry_out(job: Job) -> None:
    """Run in a process of its own: the graph of Pathway is global."""
    child = os.fork()
    if child == 0:
        try:
            run(job)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status:
        raise RuntimeError(f"the run of {job.workload} ended with status {status}")


if __name__ == "__main__":
    serve(carry_out)
