# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Sinks: what is in the table after a crash?
#
# What is in the table if the program is killed after it has written a micro-batch, and before Spark has noted that it did? Spark delivers
# the micro-batch again. So it must be possible to see in the table that it is already there. This notebook kills queries at this instant, and
# compares a hand-written sink with those of `streamops`:
#
# 1. Twice in the target, or once
# 2. Corrections become a table
# 3. What the ledger decides
# 4. A target for late rows
# 5. Two targets
# 6. Two clients that write to two systems
# 7. What they do not do
#
# It runs on a laptop in about a minute: `pip install ".[java,notebook,sqlalchemy]"` in a clone, then open it in any Jupyter.
# `make notebooks` runs it and renews its pictures, which are made by `streamops.plots` and `sinks_pictures.py`.

# %%
import datetime as dt
import sqlite3
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from drawing import picture, show
from pyspark.errors import StreamingQueryException
from sinks_pictures import counted, decisions, race

from streamops import aggregates as agg
from streamops import local_session, plots, sinks, windows
from streamops.errors import StreamopsError
from streamops.testing import micro_batches, replay

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)
folder = Path(tempfile.mkdtemp(prefix="streamops-"))
nine = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after nine."""
    return nine + dt.timedelta(minutes=float(minute))


def run(frame, deliver, checkpoint: str) -> int:
    """Run a query until it ends, and start it again when it fails. Return how often it was started."""
    for start in range(1, 10):
        query = (
            frame.writeStream.foreachBatch(deliver)
            .outputMode("append")
            .option("checkpointLocation", str(folder / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            continue
        return start
    raise RuntimeError("it never ended")


def select(database: Path, statement: str) -> list[tuple]:
    """Read a table of SQLite."""
    with sqlite3.connect(database) as connection:
        return connection.execute(statement).fetchall()


# %% [markdown]
# ## 1. Twice in the target, or once
#
# Six micro-batches of orders are written to two folders: by Spark's own `write.mode("append")`, and by `sinks.parquet`. After the third
# and the fifth one, the program dies: both folders have the rows, but Spark has not noted it.

# %%
orders = [
    pa.table({"micro_batch": [number] * 100, "order": range(100 * number, 100 * number + 100)})
    for number in range(6)
]
by_hand, by_sink = folder / "by hand", folder / "by sink"
sink = sinks.parquet(str(by_sink))
died = set()


def write_both(batch, number: int) -> None:
    batch.write.mode("append").parquet(str(by_hand))
    sink(batch, number)
    if number in (2, 4) and number not in died:
        died.add(number)
        raise RuntimeError("the program dies here")


starts = run(micro_batches(spark, orders), write_both, "checkpoint-orders")
rows = {
    "by hand": spark.read.parquet(str(by_hand)).toPandas(),
    "sinks.parquet": sinks.read_parquet(str(by_sink)).to_table().to_pandas(),
}
counts = {
    name: (table["micro_batch"].value_counts() // 100).sort_index().to_dict()
    for name, table in rows.items()
}
assert counts["sinks.parquet"] == dict.fromkeys(range(6), 1)
assert counts["by hand"][2] == counts["by hand"][4] == 2
show(
    counted(
        counts,
        f"{len(rows['by hand'])} orders by hand, {len(rows['sinks.parquet'])} in truth",
        f"How often each micro-batch is in the target. The query was started {starts} times.",
    )
)

# %% [markdown]
# To write the checkpoint first would be no better: then the program could die in between the other way round, and a micro-batch would be
# lost. The sink commits the rows and the number of the micro-batch *together*, and skips a micro-batch that it already has.
#
# ## 2. Corrections become a table
#
# A result may be corrected when stragglers arrive. With a `key`, the sink makes a table of the results: the highest revision of each key
# stays. Clicks of ten minutes, as the query emits them:

# %%
script = [[3, 8], [6, 16], [9], [4, 21], [12, 45], [7, 12], [2]]
clicks = [
    pa.table({"ts": pa.array([at(m) for m in minutes], pa.timestamp("us", "UTC"))})
    for minutes in script
]
options = {
    "time": "ts",
    "agg": {"clicks": agg.count()},
    "delay": "5 minutes",
    "allowed_lateness": "30 minutes",
}
corrected = windows.tumbling("10 minutes", stragglers="update", **options).options(shards=1)
picture(
    plots.plot_corrections(replay(corrected, clicks), label="clicks"),
    "What the query emits: the first window three times",
    "Each bar is a row, in the micro-batch in which it was emitted, with the number of clicks. Orange is a correction.",
)

# %% [markdown]
# And what the table has after each micro-batch. The program dies twice again, which leaves no trace:

# %%
database = folder / "clicks.sqlite"
table = sinks.sqlalchemy(f"sqlite:///{database}", "clicks", key="window_start")
died.clear()
displayed = {}


def upsert(batch, number: int) -> None:
    table(batch, number)
    displayed[number] = select(database, "SELECT window_start, clicks FROM clicks")
    if number in (3, 5) and number not in died:
        died.add(number)
        raise RuntimeError("the program dies here")


starts = run(micro_batches(spark, clicks).transform(corrected), upsert, "checkpoint-clicks")
assert died == {3, 5}
values: dict[str, list[dict]] = {}
for number, rows_ in sorted(displayed.items()):
    for start, count in rows_:
        versions = values.setdefault(f"from {str(start)[11:16]}", [])
        if not versions or versions[-1]["clicks"] != count:
            if versions:
                versions[-1]["valid_to"] = number
            versions.append({"clicks": count, "valid_from": number, "valid_to": None})
versions = [{"window": name, **row} for name, rows_ in values.items() for row in rows_]
assert [row["clicks"] for row in versions if row["window"] == "from 09:00"] == [4, 5, 6]
ax = plots.plot_history(versions, by="window", label="clicks")
ax.set_xlabel("micro-batch")
picture(
    ax,
    "What the table has: one row per window",
    f"The clicks of each window after every micro-batch; the query was started {starts} times.",
)

# %% [markdown]
# ## 3. What the ledger decides
#
# The target has a *ledger*: an entry with the query, its run, the last micro-batch, and a digest of its rows. It is committed together with
# the rows. Here are seven deliveries to one table, as they happen after a crash, a mistake, or the restoration of a copy:

# %%
target = sinks.sqlalchemy(f"sqlite:///{folder / 'ledger.sqlite'}", "orders")
first, second, other = (spark.createDataFrame(pd.DataFrame({"n": n})) for n in ([1, 2], [3], [4]))
deliveries = [
    ("micro-batch 0", first, "shop", 0),
    ("micro-batch 1", second, "shop", 1),
    ("micro-batch 1 again", second, "shop", 1),
    ("micro-batch 1 with other rows", other, "shop", 1),
    ("micro-batch 3 after 1", other, "shop", 3),
    ("micro-batch 0 after 1", first, "shop", 0),
    ("micro-batch 0 of another query", first, "copy", 0),
]
outcomes = []
for name, frame, query, number in deliveries:
    before = target.read_ledger()
    try:
        target.write(frame, query=query, batch_id=number)
        outcome = "skipped" if before is not None and before.batch == number else "written"
    except StreamopsError as error:
        outcome = error.code
    entry = target.read_ledger()
    outcomes.append(
        {"delivery": name, "outcome": outcome, "ledger": f"{entry.batch}, {entry.query}"}
    )
assert [row["outcome"] for row in outcomes[:3]] == ["written", "written", "skipped"]
assert select(folder / "ledger.sqlite", "SELECT n FROM orders ORDER BY n") == [(1,), (2,), (3,)]
show(
    decisions(
        outcomes,
        "Seven deliveries, three rows in the table",
        "What is neither the next micro-batch nor the last one again is refused by name, and nothing is written.",
    )
)

# %% [markdown]
# `BATCH_DIFFERS` is the answer to a query that does not give the same rows for the same input. `BATCH_GAP` and `CHECKPOINT_BEHIND` are those
# to a restored copy, of the target or of the checkpoint; `sinks.rewind` repeats what the target lacks.
#
# ## 4. A target for late rows
#
# With `stragglers="route"` results are final, and the rows that were too late for them come out of the query beside them. They belong in a
# table of their own, with the reason.

# %%
routing = windows.tumbling("10 minutes", stragglers="route", **options).options(shards=1)
picture(
    plots.plot_corrections(replay(routing, clicks), time="ts", label="clicks"),
    "Results as bars, and late rows as dots",
    'What the query emits with stragglers="route", micro-batch by micro-batch.',
)

# %%
url = f"sqlite:///{folder / 'routed.sqlite'}"
both = sinks.side_outputs(
    results=sinks.sqlalchemy(url, "clicks", key="window_start"),
    rejected=sinks.sqlalchemy(url, "late"),
    operator="clicks",
    time="ts",
)
run(micro_batches(spark, clicks).transform(routing), both, "checkpoint-routed")
late = select(folder / "routed.sqlite", "SELECT reason, time, lateness FROM late ORDER BY time")
assert [str(time)[11:16] for _, time, _ in late] == ["09:02", "09:04", "09:07"]
pd.DataFrame(
    [(reason, str(time)[11:16], float(seconds) / 60) for reason, time, seconds in late],
    columns=["reason", "time", "minutes late"],
)

# %% [markdown]
# ## 5. Two targets
#
# `sinks.fan_out` writes a micro-batch to several targets. They are two databases, so there is no common transaction: after a crash between
# them, one has the micro-batch and the other has not. Each has a ledger of its own, so the next start completes the second one, and the
# first one skips what it has.

# %%
stores = {name: folder / f"{name}.sqlite" for name in ("first", "second")}
targets = {name: sinks.sqlalchemy(f"sqlite:///{path}", "orders") for name, path in stores.items()}
died.clear()
sizes = []


def fail_between(batch):
    """The program dies after the first target was written, and before the second one."""
    number = targets["first"].read_ledger().batch
    if number in {2, 4} - died:
        died.add(number)
        raise RuntimeError("the program dies here")
    return batch


def count_rows() -> None:
    """Note the rows of both targets."""
    step = len(sizes) // 2
    for name, path in stores.items():
        tables = [table for (table,) in select(path, "SELECT name FROM sqlite_master")]
        rows = select(path, "SELECT count(*) FROM orders")[0][0] if "orders" in tables else 0
        sizes.append({"step": step, "target": name, "rows": rows})


fan = sinks.fan_out({"first": targets["first"], "second": targets["second"].after(fail_between)})


def deliver(batch, number: int) -> None:
    try:
        fan(batch, number)
    finally:
        count_rows()


run(micro_batches(spark, orders), deliver, "checkpoint-fan")
last = {row["target"]: row["rows"] for row in sizes}
assert last == {"first": 600, "second": 600}
ax = plots.plot_state(sizes, size="rows", batch="step", by="target")
ax.set_xlabel("delivery")
ax.set_ylabel("rows in the target")
picture(
    ax,
    "They differ for a moment, and are equal in the end",
    "Rows of both targets after each delivery. The program died twice between the two targets.",
)

# %% [markdown]
# ## 6. Two clients that write to two systems
#
# Why not let the clients write to the database and to the search index themselves? Two clients give a product a name at about the same
# time, each first in the database and then in the index. Here are 10,000 such products; both begin within 10 ms, and a request takes
# 5 ms on average.

# %%
rng = np.random.default_rng(1)
begun = rng.uniform(0, 10, (10_000, 2))  # a row per product, a column per client; in ms
in_database = begun + rng.exponential(5, begun.shape)
in_index = in_database + rng.exponential(5, begun.shape)
truth = in_database.argmax(axis=1)  # whose name stays
diverged = in_index.argmax(axis=1) != truth
one = np.flatnonzero(diverged & (np.ptp(in_database, axis=1) > 4) & (np.ptp(in_index, axis=1) > 4))[
    0
]
show(
    race(
        begun[one],
        in_database[one],
        in_index[one],
        f"{diverged.sum():,} of 10,000 products have another name in the index than in the database",
        "One of them. No request has failed, and nothing will ever correct it.",
    )
)

# %% [markdown]
# The order of the writes is known to the database: it is that of its log. So the clients write to the database only, and a query reads the
# log, for example from an outbox (`sources.outbox`). The rows that it writes have their position in the log as `sequence`. Then they may even arrive in
# the order of the race, in several micro-batches, and again after a crash:

# %%
position = in_database.argsort(axis=None).argsort().reshape(begun.shape)
product, client = np.indices(begun.shape)
index = sinks.sqlalchemy(
    f"sqlite:///{folder / 'index.sqlite'}", "names", key="product", sequence="position"
)
names = pd.DataFrame(
    {"product": product.ravel(), "client": client.ravel(), "position": position.ravel()}
)
arrival = in_index.ravel()
for number, (since, until) in enumerate([(0, 8), (8, 14), (14, np.inf), (0, 8)]):
    part = names[(arrival >= since) & (arrival < until)]
    index.write(spark.createDataFrame(part), query="names", batch_id=number)
stored = select(folder / "index.sqlite", "SELECT client FROM names ORDER BY product")
by_log = np.array(stored)[:, 0] != truth
assert len(stored) == 10_000
assert (diverged.sum() > 2_000, by_log.sum()) == (True, 0)
pd.DataFrame(
    {"of 10,000 products, differ": [diverged.sum(), by_log.sum()]},
    index=["both clients write to both", "the log, in any order of arrival"],
)

# %% [markdown]
# `sinks.opensearch` and `sinks.redis` let the server compare the sequence. [examples/systems_in_sync.py](../examples/systems_in_sync.py) keeps an
# index, a cache, a warehouse and a mirror in sync with PostgreSQL by one query, which dies twice.
#
# ## 7. What they do not do
#
# - **They do not make two targets change at once.** They are equal again after the restart.
# - **They do not share a table.** Nobody else may change the rows of a sink: it compares what it retracts with what is there.
# - **They do not hide that a query is not deterministic.** `rand()`, `current_timestamp()` or a lookup in a table that changes give other
#   rows for the same micro-batch: `BATCH_DIFFERS`.
# - **They do not continue in silence.** A new checkpoint on an existing target is refused, until you say whether to continue or to replace.
# - **They do not read half-written folders**, and other programs must not, either: read Parquet with `sinks.read_parquet`, and Kafka with
#   `isolation.level=read_committed`.
# - **They do not all write from the executors.** Some pass each micro-batch through the memory of the driver: the guide names them.
#
# The rules are in [docs/sinks.md](../docs/sinks.md), and what is tested about crashes in [docs/guarantees.md](../docs/guarantees.md).

# %% [markdown]
# ## Takeaway
#
# Exactly once is a matter of the target: commit the rows and the number of the micro-batch together, and a delivery that was already made can
# be recognized. What does not fit the ledger is a decision for people.

# %%
spark.stop()
