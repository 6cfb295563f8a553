"""The workloads in Polars: one lazy query over all rows, as a limit for engines that see them one after the other."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
from protocol import Job, serve

TOTALS = (pl.len().cast(pl.Int64).alias("n"), pl.col("v").sum().alias("total"))


def build(job: Job) -> pl.LazyFrame:
    inputs = {name: pl.scan_parquet(f"{folder}/*.parquet") for name, folder in job.inputs.items()}
    if "events" in inputs:
        return build_one(job, inputs["events"])
    return build_join(job, inputs["left"], inputs["right"])


def build_one(job: Job, events: pl.LazyFrame) -> pl.LazyFrame:
    gap = timedelta(milliseconds=job.settings["gap_ms"])
    match job.workload:
        case "tumbling" | "corrections":
            return (
                of_minutes(events)
                .group_by("k", "window_start")
                .agg(*TOTALS)
                .with_columns(window_end=pl.col("window_start") + timedelta(minutes=1))
            )
        case "hopping":
            minutes = of_minutes(events).group_by("k", "window_start").agg(*TOTALS)
            hops = [
                minutes.with_columns(pl.col("window_start") - timedelta(minutes=hop))
                for hop in range(5)
            ]
            windows = pl.concat(hops).group_by("k", "window_start").agg(pl.col("n", "total").sum())
            return windows.with_columns(window_end=pl.col("window_start") + timedelta(minutes=5))
        case "session":
            begins = (pl.col("ts").diff().over("k") > gap).fill_null(value=True)
            number = begins.cum_sum().over("k").alias("number")
            sessions = (
                events.sort("k", "ts")
                .with_columns(number)
                .group_by("k", "number")
                .agg(
                    pl.col("ts").min().alias("window_start"),
                    (pl.col("ts").max() + gap).alias("window_end"),
                    *TOTALS,
                )
            )
            return sessions.drop("number")
        case "distinct":
            size = timedelta(milliseconds=job.settings["counted_ms"])
            start = pl.col("ts").dt.truncate(size).alias("window_start")
            counted = events.group_by("k", start).agg(pl.col("u").approx_n_unique().alias("n"))
            return counted.with_columns(window_end=pl.col("window_start") + size)
        case "sliding":
            reach = timedelta(milliseconds=job.settings["reach_ms"])
            five = events.sort("k", "ts").rolling("ts", period=reach, group_by="k").agg(*TOTALS)
            return five.unique()
        case "running":
            return events.group_by("k").agg(*TOTALS)
    raise NotImplementedError(job.workload)


def of_minutes(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.with_columns(window_start=pl.col("ts").dt.truncate("1m"))


def build_join(job: Job, left: pl.LazyFrame, right: pl.LazyFrame) -> pl.LazyFrame:
    match job.workload:
        case "interval":
            within = timedelta(milliseconds=job.settings["within_ms"])
            clicks = right.rename({"ts": "clicked"})
            pairs = left.join(clicks, on="k").filter(
                pl.col("clicked") >= pl.col("ts"), pl.col("clicked") <= pl.col("ts") + within
            )
            alone = left.join(pairs, on=["k", "ts"], how="anti")
            return pl.concat([pairs, alone], how="diagonal")
        case "temporal":
            versions = right.sort("since", "seq")
            return left.sort("ts").join_asof(
                versions, left_on="ts", right_on="since", by="k", coalesce=False
            )
        case "tables":
            orders, customers = (latest(side, key) for side, key in ((left, "k"), (right, "c")))
            joined = orders.join(customers, on="c", how="left")
            return joined.select("k", "c", "v", "n", _change_type=pl.lit("insert"))
    raise NotImplementedError(job.workload)


def latest(changes: pl.LazyFrame, key: str) -> pl.LazyFrame:
    changes = changes.filter(pl.col("_change_type") != "update_preimage").sort("seq")
    rows = changes.unique(key, keep="last", maintain_order=True)
    return rows.filter(pl.col("_change_type") != "delete")


def carry_out(job: Job) -> None:
    query = build(job)
    if job.output:
        query.sink_parquet(f"{job.output}/results.parquet", engine="streaming")
    else:
        query.collect(engine="streaming")


if __name__ == "__main__":
    serve(carry_out)
