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
# # Windows: when it happened, and when we heard of it
#
# How many requests were there in each second, if we hear of them later than they happened, and not in their order? This notebook shows in
# pictures what that does to "requests per second" and "clicks per hour", and what the windows of `streamops` do about it:
#
# 1. An event-time window
# 2. The false spike: the same requests, counted by two clocks
# 3. Stragglers: four answers to the rows that come late
# 4. Windows of every shape
# 5. Early results
# 6. What they do not do
#
# It runs on a laptop in about a minute: `pip install ".[java,notebook]"` in a clone, then open it in any Jupyter
# (`pip install jupyterlab`, if you have none). `make notebooks` runs it and renews its pictures, which are made by
# `streamops.plots` and `windows_pictures.py`.

# %%
import datetime as dt
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
from drawing import ON_TIME, REMOVED, STRAGGLER, TOO_LATE, picture, show
from pyspark.sql import functions as F
from windows_pictures import (
    by_batch,
    days_of_new_york,
    false_spike,
    four_policies,
    over_time,
    two_clocks,
)

from streamops import aggregates as agg
from streamops import local_session, plots, windows
from streamops.testing import fold, replay, stream
from streamops.time import processing_time

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)

# %% [markdown]
# ## 1. An event-time window
#
# Nine clicks. Each carries the time at which it happened: its *event time*. Phones lose their connection, so some arrive
# late, and out of order.

# %%
nine = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after nine."""
    return nine + dt.timedelta(minutes=minute)


happened = [2, 6, 9, 13, 16, 19, 24, 27, 33]
arrived = [3, 7, 22, 14, 31, 20, 25, 28, 34]
clicks = pd.DataFrame({"ts": map(at, happened), "arrived": map(at, arrived)})

per_ten_minutes = windows.tumbling("10 minutes", time="ts", agg={"n": agg.count()})
by_event_time = spark.createDataFrame(clicks).transform(per_ten_minutes).toPandas()
by_event_time.sort_values("window_start")

# %% [markdown]
# A window is half-open, `[start, end)`: a click at 09:10 sharp belongs to the window that starts then. Which window
# a click lies in depends on when it *happened*, and on nothing else. So the answer is the same whatever the network did.
# Counted by their arrival, the same clicks tell another story:

# %%
by_arrival = windows.tumbling("10 minutes", time="arrived", agg={"n": agg.count()})
as_they_arrived = spark.createDataFrame(clicks).transform(by_arrival).toPandas()
show(two_clocks(clicks, by_event_time, as_they_arrived))

# %% [markdown]
# ## 2. The false spike
#
# This is the figure of Kleppmann's *Designing Data-Intensive Applications* (in the chapter on stream processing, "Whose
# clock are you using, anyway?"), with a real producer and a real consumer. A web service logs its requests, forty a second.
# A Spark query counts them per second, twice: by the time at which it *processes* them, which is the start of the
# micro-batch, and by their event time. In between the query is stopped for some seconds, as for a redeployment, and started
# again from its checkpoint. Nothing is lost: the requests wait in the log.


# %%
def serve(log: Path, ended: threading.Event, served: list[dt.datetime]) -> None:
    """Log requests as they happen, a file every quarter of a second, until `ended` is set."""
    gaps = np.random.default_rng(2013).exponential(1 / 40, size=20_000)
    times = time.time() + np.cumsum(gaps)
    while not ended.wait(0.25):
        written = len(served)
        served += [
            dt.datetime.fromtimestamp(t, dt.UTC) for t in times[written:] if t <= time.time()
        ]
        lines = "".join(f'{{"ts": "{instant.isoformat()}"}}\n' for instant in served[written:])
        draft = log / f".{written}"
        draft.write_text(lines)
        draft.rename(log / f"{written}.json")


folder = Path(tempfile.mkdtemp(prefix="streamops-"))
log, counted = folder / "log", folder / "counted"
log.mkdir()

requests = spark.readStream.schema("ts timestamp").json(str(log))
settings = {"agg": {"n": agg.count()}, "stragglers": "drop"}
by_processing = windows.tumbling(
    "1 second", time="processed_at", delay="0 seconds", **settings
).options(name="by_processing", shards=1)
by_event = windows.tumbling("1 second", time="ts", delay="1 second", **settings).options(
    name="by_event", shards=1
)


def consumer():
    """Start the query, or continue where it was stopped."""
    processing = requests.transform(processing_time()).transform(by_processing)
    event = requests.transform(by_event)
    return (
        processing.select(F.lit("processing").alias("clock"), "*")
        .union(event.select(F.lit("event").alias("clock"), "*"))
        .writeStream.format("parquet")
        .option("path", str(counted))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )


def watch(query, micro_batches: int) -> dt.datetime:
    """Wait until the query has processed so many micro-batches, and say when."""
    while sum(progress.numInputRows > 0 for progress in query.recentProgress) < micro_batches:
        time.sleep(0.05)
    return dt.datetime.now(dt.UTC)


# %%
served: list[dt.datetime] = []
ended = threading.Event()
producer = threading.Thread(target=serve, args=(log, ended, served))
producer.start()

query = consumer()
begun = watch(query, 2)  # the first micro-batch takes longer: we look on from here
stopped = watch(query, 10)
query.stop()
time.sleep(8)
query = consumer()
watch(query, 8)
query.stop()

ended.set()
producer.join()

# %%
counts = spark.read.parquet(str(counted)).toPandas()
logged = pd.Series(1, index=pd.DatetimeIndex(served)).resample("1s").sum()
seen = {clock: rows.set_index("window_start")["n"] for clock, rows in counts.groupby("clock")}
figure = false_spike(seen, logged, begun, stopped)
show(figure)

# %% [markdown]
# By processing time the service had an outage, and then a flood of requests. Neither happened: both are traces of the
# consumer. Had an alarm been set on them, it would have rung twice. By event time the rate is what it was. The seconds that
# were counted are, to the request, those that the service logged:

# %%
event_time = seen["event"].tz_localize("UTC")
bool((event_time == logged.reindex(event_time.index)).all())

# %% [markdown]
# The price: a result by event time has to wait, here a second (`delay="1 second"`) behind the newest request. How long is
# long enough? Nobody knows, which is why the next section is about those who come later.
#
# Processing time has its uses: a limit on the calls per second that a server *receives* is about its own clock. But it
# is not reproducible: process the log again, and the answer is another one.
#
# ## 3. Stragglers
#
# The operator keeps a *watermark*: the greatest event time it has seen, less `delay`. When it has passed the end of a
# window, the window's result is published: it is *on time*. A row that comes later than that is a *straggler*; beyond
# `allowed_lateness` it is *too late*. Rows are late by the watermark of the previous micro-batch.
#
# A script of seven micro-batches, and four answers to the stragglers in it. `testing.replay` runs it without Spark, by the
# same rules and in milliseconds: that is also how to test a stream of your own.

# %%
script = [[3, 8], [6, 16], [9], [4, 21], [12, 45], [7, 12], [2]]
batches = [[{"ts": at(minute)} for minute in minutes] for minutes in script]


def ten_minutes(stragglers: str, **more):
    """Clicks per ten minutes: on time after five, corrected for twenty more."""
    return windows.tumbling(
        "10 minutes",
        time="ts",
        agg={"n": agg.count()},
        delay="5 minutes",
        allowed_lateness="20 minutes",
        stragglers=stragglers,
        **more,
    ).options(shards=1)


policies = {
    "drop": ten_minutes("drop"),
    "route": ten_minutes("route"),
    "update": ten_minutes("update"),
    "retract": ten_minutes("retract", too_late="route"),
}
answers = {word: replay(transform, batches) for word, transform in policies.items()}
show(by_batch(batches, answers["route"]))

# %% [markdown]
# Under `"route"`, late rows come out of the query themselves, and say why:

# %%
for result in answers["route"]:
    for row in result.late_rows:
        missed = f"{row['window_start']:%H:%M}–{row['window_end']:%H:%M}"
        print(
            f"micro-batch {result.batch}: the click of {row['row']['ts']:%H:%M} missed {missed}, "
            f"{row['lateness'].seconds // 60} minutes behind the watermark: {row['reason']}"
        )

# %% [markdown]
# What happens to a straggler is a word. Time runs to the right, micro-batches downwards, and each bar is a row that the
# query put out:

# %%
show(four_policies(answers))

# %% [markdown]
# - **drop**: results are final. Late rows are counted, exactly, and are gone.
# - **route**: results are final. Late rows come out as rows, with the window they missed: write them to a table of their own.
# - **update**: the new value is published over the old one, with a `revision` one higher: an upsert.
# - **retract**: the old value is taken back, the new one published: a change stream. Here with `too_late="route"`: the click
#   that came too late even for a correction is delivered.
#
# In every one of them the numbers add up: each row is on time, a straggler, or too late.

# %%
names = ("rows", "on_time", "stragglers", "too_late", "results", "corrections")
pd.DataFrame(
    {
        word: {name: sum(getattr(result.counts, name) for result in results) for name in names}
        for word, results in answers.items()
    }
)

# %% [markdown]
# Spark says the same, micro-batch by micro-batch. And the folded output is what a batch makes of the rows that were accepted,
# whatever the micro-batches were: nothing is late in a batch.

# %%
on_spark = stream(spark, policies["retract"], batches)
accepted = [row for rows in batches[:-1] for row in rows]
batch = spark.createDataFrame(pd.DataFrame(accepted)).transform(ten_minutes("drop")).toPandas()
closed = batch[batch["window_end"] <= at(40).replace(tzinfo=None)].sort_values("window_start")
{
    "as replayed": [r.rows for r in on_spark] == [r.rows for r in answers["retract"]],
    "as in a batch": [row["n"] for row in fold(on_spark)] == closed["n"].tolist(),
}

# %% [markdown]
# ## 4. Windows of every shape
#
# A morning of two users, as a batch: the same transform, given a stream, ends with the same rows.

# %%
minutes = {
    "ann": [4, 11, 16, 22, 48, 55, 61, 97, 104],
    "bob": [8, 30, 37, 41, 72, 80, 110],
}
morning = pd.DataFrame(
    [{"user": user, "ts": at(minute)} for user, times in minutes.items() for minute in times]
)
events = spark.createDataFrame(morning)
per_user = {"time": "ts", "by": "user", "agg": {"n": agg.count()}}


def rows_of(transform) -> pd.DataFrame:
    """The rows that a transform makes of the morning."""
    return events.transform(transform).toPandas()


# %% [markdown]
# **Hopping**: the last half hour, every ten minutes. Each event lies in three windows.

# %%
hopping = rows_of(windows.hopping("30 minutes", "10 minutes", **per_user))
of_users = {"by": "user", "time": "ts", "label": "n"}
picture(
    plots.plot_windows(hopping, morning, **of_users),
    "Hopping",
    'windows.hopping("30 minutes", "10 minutes", …)',
)

# %% [markdown]
# **Sliding**: at each event, what happened in the half hour up to it. No grid: a window ends with each event, so no burst
# hides between two windows.

# %%
sliding = rows_of(windows.sliding("30 minutes", **per_user))
sliding["window_start"] = sliding["ts"] - pd.Timedelta(minutes=30)
sliding["window_end"] = sliding["ts"]
picture(
    plots.plot_windows(sliding, morning, **of_users),
    "Sliding",
    'windows.sliding("30 minutes", …): (t − 30 minutes, t] of instant t',
)

# %% [markdown]
# **Rolling**: over several horizons at once, here the last ten minutes and the last hour, whenever one of the values changes. These
# are features of a model: at any time, the newest row of a user has them.

# %%
horizons = {"10m": "10 minutes", "1h": "1 hour"}
rolling = rows_of(windows.rolling("1 minute", horizons, **per_user))
of_ann = rolling[rolling["user"] == "ann"].set_index("window_end").sort_index()
seen = morning[morning["user"] == "ann"].set_index("ts")
step = {"drawstyle": "steps-post"}
show(
    over_time(
        "Rolling",
        f"Events of ann in the last ten minutes, and in the last hour: {len(of_ann)} rows, one per change.",
        pd.Series(0, seen.index),
        "events",
        {
            "last 10 minutes": (of_ann["n_10m"], {"color": STRAGGLER, **step}),
            "last hour": (of_ann["n_1h"], {"color": ON_TIME, **step}),
        },
    )
)

# %% [markdown]
# **Over**: each row, with values of the rows before and after it. A thermometer sends readings now and then. Each gets the change
# since the one before, per hour, and an average whose weights halve every ten minutes.

# %%
celsius = {
    1: 18.0,
    4: 18.9,
    9: 20.6,
    11: 19.8,
    18: 21.9,
    22: 21.2,
    27: 22.8,
    47: 19.0,
    52: 18.1,
    58: 19.2,
}
readings = pd.DataFrame({"ts": [at(minute) for minute in celsius], "celsius": celsius.values()})
thermometer = spark.createDataFrame(readings)
trend = thermometer.transform(
    windows.over(
        time="ts",
        values={
            "before": windows.lag("celsius"),
            "per_hour": windows.rate("celsius", per="1 hour"),
            "average": windows.ewma("celsius", half_life="10 minutes"),
        },
        within="1 hour",
    )
).toPandas()
trend = trend.set_index("ts").sort_index()
print(trend.round(2).head(4).to_string())
measured = readings.set_index("ts")["celsius"]
show(
    over_time(
        "Over",
        "Readings, and their average: ewma with a half-life of ten minutes.",
        measured,
        "readings",
        {"average": (trend["average"], {"color": STRAGGLER})},
    )
)

# %% [markdown]
# **Resample**: the same readings on a regular grid, every five minutes. Between two readings is a line, if they are at most ten
# minutes apart. From 09:27 to 09:47 the thermometer was silent: there is no line, so the values are null, and ten minutes after the last
# reading the rows end. They begin again with the next one.

# %%
regularly = windows.resample(
    "5 minutes", time="ts", values={"celsius": "linear"}, max_gap="10 minutes"
)
regular = thermometer.transform(regularly).toPandas().set_index("ts").sort_index()
unknown = regular[regular["celsius"].isna()].index
between = pd.concat([measured, pd.Series({at(37): np.nan})]).sort_index()
show(
    over_time(
        "Resample",
        'windows.resample("5 minutes", values={"celsius": "linear"}, max_gap="10 minutes", …)',
        measured,
        "readings",
        {
            "at most 10 minutes apart": (between, {"color": REMOVED}),
            "resampled": (
                regular["celsius"],
                {"color": STRAGGLER, "marker": "s", "linestyle": "none"},
            ),
            "null": (
                pd.Series(measured.min(), unknown),
                {"color": TOO_LATE, "marker": "x", "linestyle": "none"},
            ),
        },
    )
)

# %% [markdown]
# **Session**: bursts of activity. A session ends with a gap of silence, here of twenty minutes; its end is its last event
# plus the gap.

# %%
sessions = rows_of(windows.session("20 minutes", **per_user))
picture(
    plots.plot_sessions(sessions, morning, gap="20 minutes", **of_users),
    "Session",
    'windows.session("20 minutes", …)',
)

# %% [markdown]
# **Cumulative**: the total so far, every fifteen minutes, beginning anew each hour. Where nothing came, a window says the
# same again: there is always a total.

# %%
cumulative = rows_of(windows.cumulative("1 hour", "15 minutes", **per_user))
picture(
    plots.plot_windows(cumulative, morning, **of_users),
    "Cumulative",
    'windows.cumulative("1 hour", "15 minutes", …)',
)

# %% [markdown]
# **Calendar**: days as people in a place count them. A heartbeat an hour, on the two weekends of 2013 on which New York put
# its clocks forward and back. The days have as many heartbeats as they have hours: 24, but for one of 23 and one of 25. Windows
# of 24 hours, below, begin at seven in the evening, or at eight.

# %%
weekends = pd.DatetimeIndex(["2013-03-08", "2013-11-01"], tz="America/New_York")
five_days = pd.DateOffset(days=5)
hourly = [pd.date_range(day, day + five_days, freq="h", inclusive="left") for day in weekends]
heartbeats = spark.createDataFrame(pd.DataFrame({"ts": [*hourly[0], *hourly[1]]}))

per_day = {"time": "ts", "agg": {"n": agg.count()}}
days = heartbeats.transform(windows.calendar("day", "America/New_York", **per_day)).toPandas()
fixed = heartbeats.transform(windows.tumbling("1 day", **per_day)).toPandas()
show(days_of_new_york(days, fixed, weekends))

# %% [markdown]
# ## 5. Early results
#
# A window is published when it is over, and that can take long. With `early="every batch"` windows of every shape are
# published whenever a micro-batch changed them, and once more when they are on time. Sessions are the hardest case, for
# they grow: their earlier results are retracted. The last straggler here fills the
# silence between two sessions that were published: both are taken back, each by its own start and end, and the one
# that they were is published in their place.

# %%
visits = windows.session(
    "20 minutes",
    time="ts",
    agg={"n": agg.count()},
    delay="0 seconds",
    allowed_lateness="2 hours",
    stragglers="retract",
    early="every batch",
)
visit = [[0], [8, 15], [48], [60, 62], [90], [93], [31]]
events = [{"ts": at(m), "batch": number} for number, minutes in enumerate(visit) for m in minutes]
results = replay(visits, [[{"ts": at(minute)} for minute in minutes] for minutes in visit])
picture(
    plots.plot_corrections(results, events, time="ts", label="n"),
    "Sessions, as they were known at the time",
    "For each micro-batch: its events, what it took back, and what it published.",
)

# %%
for result in results:
    for row in result.rows:
        window = f"{row['window_start']:%H:%M}–{row['window_end']:%H:%M}"
        change, n, timing = row["_change_type"], row["n"], row["timing"]
        print(f"micro-batch {result.batch}: {change:<17} {window} n={n}  {timing}")

# %% [markdown]
# ## 6. What they do not do
#
# - **They do not guess that a stream has ended.** Only the watermark closes windows, and only events move it. A stream
#   that falls silent leaves its newest windows open. (A producer among others that falls silent need not hold them back:
#   `time.producers`.)
# - **They do not know a lying clock.** One event of the year 2999 moves the watermark there for good, and makes all others
#   late. Put a `time.guard` before the operator.
# - **They do not drop duplicates.** A row that a producer sends twice counts twice. Spark's `dropDuplicatesWithinWatermark`
#   goes before.
# - **They do not promise the same stragglers for every cutting.** Rows are late by the watermark of the previous micro-batch
#   theirs, so the same rows in other micro-batches can have other stragglers. What holds for every cutting: the folded output
#   equals the batch over the rows that were accepted.
# - **They do not correct for ever.** Beyond `delay + allowed_lateness` a row is counted, or delivered, and the state is
#   forgotten. A longer lateness is a larger state.
# - **They do not take corrections as input.** A window behind another one needs final results (`"drop"`, or `"route"` without
#   the late rows): it would count what was taken back as a row.
# - **Sessions do not know `"update"`.** A straggler can merge two sessions, and an upsert cannot take one back.
# - **They do not make processing time reproducible.** Nothing can.
# - **They do not answer within milliseconds.** They work in micro-batches; Spark's Real-Time Mode allows no Python operator.
# - **They do not keep a large state for free.** What a micro-batch changes is read and written: of fixed windows a part of
#   a shard, of the others a shard as a whole, which should stay at a few megabytes. `state.rescale` changes the number of shards.
# - **They do not join or follow changes.** `streamops.joins` and `streamops.changes` do.
#
# The rules, to the last microsecond, are in [docs/windows.md](../docs/windows.md).

# %% [markdown]
# ## Takeaway
#
# Count by when it happened, not by when you heard of it. Publish a window when the watermark has passed it, and decide by name what happens to
# those who come later: dropped, delivered, or corrected.

# %%
spark.stop()
