"""The workloads in Flink SQL: parallelism 1, state in RocksDB, and incremental checkpoints on disk."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from protocol import Job, serve
from pyflink.common import Configuration, RowKind
from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = "WITH ('connector' = 'filesystem', 'format' = 'parquet', 'path' = '{path}')"
DELAYED = "WATERMARK FOR t AS t - INTERVAL '30' SECOND"
EVENTS = f"k BIGINT, v DOUBLE, ts BIGINT, t AS TO_TIMESTAMP_LTZ(ts, 3), {DELAYED}"
INPUTS = {
    "events": {"events": EVENTS},
    "distinct": {
        "events": f"k BIGINT, v DOUBLE, ts BIGINT, u BIGINT, t AS TO_TIMESTAMP_LTZ(ts, 3), {DELAYED}"
    },
    "interval": {
        "left": EVENTS,
        "right": f"k BIGINT, c BIGINT, ts BIGINT, t AS TO_TIMESTAMP_LTZ(ts, 3), {DELAYED}",
    },
    "temporal": {
        "left": EVENTS,
        "right": "k BIGINT, price DOUBLE, seq BIGINT, since BIGINT, "
        f"t AS TO_TIMESTAMP_LTZ(since, 3), {DELAYED}, PRIMARY KEY (k) NOT ENFORCED",
    },
    "tables": {
        "left": "k BIGINT, c BIGINT, v DOUBLE, seq BIGINT, _change_type STRING, t AS PROCTIME()",
        "right": "c BIGINT, n BIGINT, seq BIGINT, _change_type STRING, t AS PROCTIME()",
    },
}
WINDOWED = """
    SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS total
    FROM TABLE({window}) GROUP BY k, window_start, window_end"""
LATEST = """
    SELECT {columns} FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY t DESC) AS place
        FROM `{side}` WHERE _change_type <> 'update_preimage'
    ) WHERE place = 1 AND _change_type <> 'delete'"""
QUERIES = {
    "tumbling": WINDOWED.format(window="TUMBLE(TABLE events, DESCRIPTOR(t), INTERVAL '1' MINUTE)"),
    "hopping": WINDOWED.format(
        window="HOP(TABLE events, DESCRIPTOR(t), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)"
    ),
    "session": WINDOWED.format(
        window="SESSION(TABLE events PARTITION BY k, DESCRIPTOR(t), INTERVAL '5' MINUTE)"
    ),
    # APPROX_COUNT_DISTINCT is for batches only.
    "distinct": """
        SELECT k, window_start, window_end, COUNT(DISTINCT u) AS n
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t), INTERVAL '10' MINUTE))
        GROUP BY k, window_start, window_end""",
    "sliding": """
        SELECT k, ts, COUNT(*) OVER five AS n, SUM(v) OVER five AS total
        FROM events WINDOW five AS (
            PARTITION BY k ORDER BY t
            RANGE BETWEEN INTERVAL '4:59.999' MINUTE TO SECOND PRECEDING AND CURRENT ROW)""",
    "running": "SELECT k, COUNT(*) AS n, SUM(v) AS total FROM events GROUP BY k",
    "interval": """
        SELECT l.k, l.v, l.ts, r.c, r.ts AS clicked
        FROM `left` AS l LEFT JOIN `right` AS r
        ON l.k = r.k AND r.t BETWEEN l.t AND l.t + INTERVAL '1' HOUR""",
    "temporal": """
        SELECT l.k, l.v, l.ts, r.price, r.seq, r.since
        FROM `left` AS l LEFT JOIN `right` FOR SYSTEM_TIME AS OF l.t AS r ON l.k = r.k""",
    "tables": f"""
        SELECT k, c, v, n FROM ({LATEST.format(columns="k, c, v", key="k", side="left")})
        LEFT JOIN ({LATEST.format(columns="c AS customer, n", key="c", side="right")})
        ON c = customer""",
    # Only the older syntax of windows publishes corrections.
    "corrections": """
        SELECT k, TUMBLE_START(t, INTERVAL '1' MINUTE) AS window_start,
               TUMBLE_END(t, INTERVAL '1' MINUTE) AS window_end, COUNT(*) AS n, SUM(v) AS total
        FROM events GROUP BY k, TUMBLE(t, INTERVAL '1' MINUTE)""",
}
SETTINGS = {
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "state.backend.type": "rocksdb",
    # Aggregates without windows, deduplication and joins process up to 10,000 rows at a time.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "10000",
}
CHECKPOINTS = {
    "execution.checkpointing.interval": "10 s",
    "execution.checkpointing.incremental": "true",
}
LATE = {
    "table.exec.emit.late-fire.enabled": "true",
    "table.exec.emit.late-fire.delay": "0 s",
    "table.exec.emit.allow-lateness": "5 min",
}
CHANGES = {
    RowKind.INSERT: "insert",
    RowKind.UPDATE_BEFORE: "update_preimage",
    RowKind.UPDATE_AFTER: "update_postimage",
    RowKind.DELETE: "delete",
}


def start(job: Job, settings: dict[str, str]) -> TableEnvironment:
    configuration = Configuration()
    directory = {"execution.checkpointing.dir": f"file://{job.state}"}
    for name, value in (SETTINGS | directory | settings).items():
        configuration.set_string(name, value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance()
        .in_streaming_mode()
        .with_configuration(configuration)
        .build()
    )


def read_all(job: Job) -> TableEnvironment:
    # With checkpoints, results can be collected only when the next one is complete.
    settings = {} if job.output else CHECKPOINTS
    environment = start(job, settings | (LATE if job.workload == "corrections" else {}))
    for name, columns in INPUTS.get(job.workload, INPUTS["events"]).items():
        source = SOURCE.format(path=job.inputs[name])
        environment.execute_sql(f"CREATE TABLE `{name}` ({columns}) {source}")
    return environment


LIVE = {
    "tumbling": """
        SELECT CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT)
               * 1000 AS known
        FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(t), INTERVAL '1' SECOND))
        GROUP BY k, window_start, window_end""",
    "running": "SELECT newest FROM (SELECT k, SUM(v) AS total, MAX(ts) AS newest FROM events GROUP BY k)",
}


def run_live(job: Job) -> None:
    environment = start(job, CHECKPOINTS | {"table.exec.mini-batch.enabled": "false"})
    columns = EVENTS.replace(" - INTERVAL '30' SECOND", "")
    source = SOURCE.format(path=job.inputs["events"])
    watched = source.replace(")", ", 'source.monitor-interval' = '50 ms')")
    environment.execute_sql(f"CREATE TABLE events ({columns}) {watched}")
    environment.execute_sql("CREATE TABLE results (known BIGINT) WITH ('connector' = 'print')")
    environment.sql_query(LIVE[job.workload]).execute_insert("results").wait()


def carry_out(job: Job) -> None:
    if job.live:
        run_live(job)
        return
    environment, query = read_all(job), QUERIES[job.workload]
    if job.output:
        collect(environment.sql_query(query), f"{job.output}/results.parquet")
    else:
        sink = "CREATE TABLE results WITH ('connector' = 'blackhole')"
        environment.execute_sql(f"{sink} AS {query}").wait()


def collect(query: Any, path: str) -> None:
    """Write all changes of the result, in order."""
    names = query.get_schema().get_field_names()
    with query.execute().collect() as rows:
        found = [(*row, CHANGES[row.get_row_kind()]) for row in rows]
    columns = [pa.array(column) for column in zip(*found, strict=True)]
    pq.write_table(pa.table(dict(zip([*names, "_change_type"], columns, strict=True))), path)


if __name__ == "__main__":
    serve(carry_out)
