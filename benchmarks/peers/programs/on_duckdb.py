"""The workloads in DuckDB: one query over all rows, as a limit for engines that see them one after the other."""

from __future__ import annotations

import duckdb
from protocol import Job, serve

WINDOWS = """
    SELECT k, {start} AS window_start, {start} + INTERVAL 1 MINUTE AS window_end,
           count(*) AS n, sum(v) AS total
    FROM events GROUP BY ALL"""
TUMBLING = WINDOWS.format(start="time_bucket(INTERVAL 1 MINUTE, ts)")
QUERIES = {
    "tumbling": TUMBLING,
    "corrections": TUMBLING,
    "hopping": """
        WITH minutes AS (
            SELECT k, time_bucket(INTERVAL 1 MINUTE, ts) AS minute, count(*) AS n, sum(v) AS total
            FROM events GROUP BY ALL
        )
        SELECT k, minute - to_minutes(hop) AS window_start,
               minute - to_minutes(hop) + INTERVAL 5 MINUTE AS window_end,
               sum(n)::BIGINT AS n, sum(total) AS total
        FROM minutes, range(5) AS hops(hop) GROUP BY ALL""",
    "session": """
        WITH begun AS (
            SELECT *, ts - lag(ts) OVER events_of_key <= to_milliseconds($gap_ms) AS goes_on
            FROM events WINDOW events_of_key AS (PARTITION BY k ORDER BY ts)
        ), numbered AS (
            SELECT *, sum(CASE WHEN goes_on THEN 0 ELSE 1 END)
                   OVER (PARTITION BY k ORDER BY ts ROWS UNBOUNDED PRECEDING) AS number
            FROM begun
        )
        SELECT k, min(ts) AS window_start, max(ts) + to_milliseconds($gap_ms) AS window_end,
               count(*) AS n, sum(v) AS total
        FROM numbered GROUP BY k, number""",
    "distinct": """
        SELECT k, time_bucket(to_milliseconds($counted_ms), ts) AS window_start,
               window_start + to_milliseconds($counted_ms) AS window_end,
               approx_count_distinct(u) AS n
        FROM events GROUP BY ALL""",
    "sliding": """
        SELECT DISTINCT k, ts, count(*) OVER five AS n, sum(v) OVER five AS total
        FROM events WINDOW five AS (
            PARTITION BY k ORDER BY ts
            RANGE BETWEEN to_milliseconds($reach_ms - 1) PRECEDING AND CURRENT ROW)""",
    "running": "SELECT k, count(*) AS n, sum(v) AS total FROM events GROUP BY k",
    "interval": """
        SELECT l.k, l.v, l.ts, r.c, r.ts AS clicked
        FROM "left" AS l LEFT JOIN "right" AS r
        ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + to_milliseconds($within_ms)""",
    "temporal": """
        WITH versions AS (
            SELECT k, since, max(seq) AS seq, max_by(price, seq) AS price FROM "right" GROUP BY ALL
        )
        SELECT l.k, l.v, l.ts, price, seq, since
        FROM "left" AS l ASOF LEFT JOIN versions AS r ON l.k = r.k AND l.ts >= r.since""",
    "tables": """
        WITH orders AS (
            SELECT k, max_by(c, seq) AS c, max_by(v, seq) AS v, max_by(_change_type, seq) AS change
            FROM "left" WHERE _change_type <> 'update_preimage' GROUP BY k HAVING change <> 'delete'
        ), customers AS (
            SELECT c, max_by(n, seq) AS n, max_by(_change_type, seq) AS change
            FROM "right" WHERE _change_type <> 'update_preimage' GROUP BY c HAVING change <> 'delete'
        )
        SELECT k, c, v, n, 'insert' AS _change_type FROM orders LEFT JOIN customers USING (c)""",
}


def carry_out(job: Job) -> None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, folder in job.inputs.items():
            files = connection.read_parquet(f"{folder}/*.parquet")
            connection.register(name, files)
        text = QUERIES[job.workload]
        used = {name: value for name, value in job.settings.items() if f"${name}" in text}
        if job.output:
            text = f"COPY ({text}) TO '{job.output}/results.parquet' (FORMAT parquet)"
            connection.execute(text, used)
        else:
            connection.execute(f"CREATE TEMP TABLE results AS {text}", used)


if __name__ == "__main__":
    serve(carry_out)
