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
# # Time: clocks, watermarks, producers and late data
#
# How long must a query wait for events that are still on their way, and what if the clock of their sender is wrong? An afternoon of a fleet
# of sensors shows what a watermark is, what a delay costs and saves, how one slow device makes others late, and how one wrong
# clock can stop a stream:
#
# 1. Two times of every event
# 2. How long should the delay be?
# 3. Late data
# 4. A watermark that waits for the slowest device
# 5. Clocks that are wrong
# 6. A clock that is a day ahead
# 7. What they do not do
#
# It needs no Java: the micro-batches are replayed by the code that runs on Spark. `make notebooks` runs it and renews its
# pictures, which are made by `streamops.plots`.

# %%
import datetime as dt

import numpy as np
import pandas as pd
from drawing import panels, picture

from streamops import aggregates as agg
from streamops import plots, time, windows
from streamops.testing import replay

two = dt.datetime(2026, 3, 2, 14, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after two in the afternoon, to the millisecond."""
    return two + dt.timedelta(milliseconds=round(minute * 60_000))


# %% [markdown]
# ## 1. Two times of every event
#
# A reading *happens*, and later it *arrives*. Most arrive within a minute; one in twelve waits in a dead spot for up to fifteen. The query
# reads them in micro-batches of two minutes.

# %%
rng = np.random.default_rng(7)
happened = np.sort(rng.uniform(0, 60, 240))
held_up = rng.random(240) < 1 / 12
arrived = happened + rng.exponential(0.5, 240) + np.where(held_up, rng.uniform(4, 15, 240), 0)
readings = sorted(
    (
        {"device": f"d{n % 3}", "ts": at(a), "arrived": at(b), "batch": int(b // 2)}
        for n, (a, b) in enumerate(zip(happened, arrived, strict=True))
    ),
    key=lambda row: row["arrived"],
)
picture(
    plots.plot_watermark(readings, time="ts", arrival="arrived", delay="2 minutes"),
    "The watermark is what the stream believes to be over",
    "It is the greatest event time so far, less a delay of two minutes. Who is at or below the line when he arrives, is late.",
)

# %% [markdown]
# The line never falls: what was believed to be over stays over. A window is published when the watermark has passed its end; that is
# the only reason why a result by event time is ever final.
#
# In Spark, all rows of a micro-batch are compared with the watermark that the micro-batches *before* have reached. So the staircase has one
# step for each micro-batch, and a few readings that were late above are not late here:

# %%
picture(
    plots.plot_watermark(
        readings, time="ts", arrival="batch", delay="2 minutes", allowed_lateness="6 minutes"
    ),
    "In micro-batches, and with an allowed lateness of six minutes",
    "Between the two lines a row is late, but results can still be corrected. Below the second line it is too late.",
)

# %% [markdown]
# ## 2. How long should the delay be?
#
# Ask the stream: for each delay, the share of rows that would have been late.

# %%
picture(
    plots.plot_late_share(readings, time="ts", arrival="batch", delay="2 minutes"),
    "Two minutes save half of the late rows, and the others take twelve more",
    "The share of rows that are behind the watermark, for every delay.",
)


# %% [markdown]
# The price is that every result waits for the delay. Windows of five minutes, with four delays:


# %%
def per_five(delay: str, **options):
    """Readings of each five minutes."""
    return windows.tumbling(
        "5 minutes", time="ts", agg={"n": agg.count()}, delay=delay, **options
    ).options(shards=1)


batches = [[row for row in readings if row["batch"] == n] for n in range(readings[-1]["batch"] + 1)]


def waits_of(results) -> list[float]:
    """Minutes from the end of each window to the end of the micro-batch that published it."""
    return [
        (at(2 * (result.batch + 1)) - row["window_end"]).total_seconds() / 60
        for result in results
        for row in result.rows
    ]


tried = {}
for delay in ("0 seconds", "2 minutes", "5 minutes", "12 minutes"):
    results = replay(per_five(delay), batches)
    late = sum(r.counts.stragglers + r.counts.too_late for r in results)
    tried[delay] = {"late rows": late, "median wait, minutes": np.median(waits_of(results))}
table = pd.DataFrame(tried).T
assert table["late rows"].is_monotonic_decreasing
assert table["median wait, minutes"].is_monotonic_increasing
table

# %% [markdown]
# ## 3. Late data
#
# A shorter delay and corrections are the way out of this choice: publish early, and correct what was late. With `stragglers="retract"`
# the output is a change stream.

# %%
corrected = replay(
    per_five("2 minutes", stragglers="retract", allowed_lateness="15 minutes"), batches[:13]
)
picture(
    plots.plot_corrections(corrected, label="n"),
    "Results after two minutes, and corrections for fifteen more",
    "The number of readings in each window, in the micro-batch in which it was published. Hatched is what was retracted.",
)

# %% [markdown]
# ## 4. A watermark that waits for the slowest device
#
# Now one device buffers its readings, and sends them all eight minutes later. It is not late by accident, and a delay of ten minutes would
# hold back the results of all devices, also while it is switched off. `time.producers` tracks the newest event time of each device:
# the watermark follows the slowest one that is active.

# %%
slow = [
    row | {"arrived": row["arrived"] + dt.timedelta(minutes=8)} if row["device"] == "d2" else row
    for row in readings
]
slow = [row | {"batch": int((row["arrived"] - two).total_seconds() // 120)} for row in slow]
slow.sort(key=lambda row: row["arrived"])
slow_batches = [[row for row in slow if row["batch"] == n] for n in range(slow[-1]["batch"] + 1)]
by_device = time.producers(
    "device", time="ts", delay="2 minutes", idle="10 minutes", arrival="arrived", expected=["d2"]
)
waiting = windows.tumbling("5 minutes", time="ts", agg={"n": agg.count()}).options(shards=1)


def with_watermark(results) -> list[dict]:
    """The rows, with the watermark that they were compared with: that of the micro-batch before."""
    marks = [None, *(result.watermark for result in results)]
    return [row | {"watermark": marks[n]} for n, rows in enumerate(slow_batches) for row in rows]


plain = replay(per_five("2 minutes"), slow_batches)
tracked = replay([by_device, waiting], slow_batches)
for name, results in (("one watermark", plain), ("per device", tracked)):
    counts = [result.counts for result in results]
    print(f"{name}: {sum(c.stragglers + c.too_late for c in counts)} of {len(slow)} rows are late")

# %%
left, right = panels(["one watermark for all", "time.producers"], 4.2, sharey=True)
for ax, results in ((left, plain), (right, tracked)):
    plots.plot_watermark(
        with_watermark(results), time="ts", arrival="batch", watermark="watermark", ax=ax
    )
right.set_ylabel("")
picture(
    left,
    "One slow device is late, or the watermark waits for it",
    "Two devices are fast, and the third one sends its readings eight minutes later.",
)

# %% [markdown]
# A device that is switched off does not hold the watermark for ever: after `idle`, it is not waited for.
#
# ## 5. Clocks that are wrong
#
# Event times are what a device believes. The clock of `d1` is seven minutes ahead; that of `d2` four minutes behind. But a device
# also knows when it *sends*, by the same clock, and the server knows when it *receives*: the difference is the offset of the clock,
# plus the network. `time.correct_clock` corrects each row by that. `time.track_clock` uses the smallest difference within a horizon, in
# which the network was fastest. With a horizon of a second, in which a device sends no other message, it does what `time.correct_clock`
# does, which is a Spark expression and needs a session.

# %%
offset = {"d0": 0, "d1": 7, "d2": -4}
messages = [
    row
    | {
        "truth": row["ts"],
        "ts": row["ts"] + dt.timedelta(minutes=offset[row["device"]]),
        "sent_at": row["ts"] + dt.timedelta(minutes=offset[row["device"]], seconds=2),
        "received_at": row["arrived"],
    }
    for row in readings
]
clocks = {"sent": "sent_at", "received": "received_at"}


def correct(horizon: str) -> pd.DataFrame:
    """The readings with the clocks tracked over this horizon."""
    tracked = time.track_clock("ts", by="device", horizon=horizon, step="20 minutes", **clocks)
    results = replay(tracked.options(shards=1), [messages])
    return pd.DataFrame([row for result in results for row in result.rows])


of_one, of_many = correct("1 second"), correct("1 hour")
tables = {
    "as the devices state": (of_one, "ts"),
    "row by row": (of_one, "corrected_time"),
    "tracked for an hour": (of_many, "corrected_time"),
}
axes = panels([*tables], 4, sharey=True)
for ax, (table, column) in zip(axes, tables.values(), strict=True):
    plots.plot_watermark(table, time=column, arrival="received_at", ax=ax)
    ends = ax.get_xlim()
    ax.plot(ends, ends, color=plots.COLORS["corrected"], linestyle="--", linewidth=1.4)
    ax.set_xlim(ends)
    ax.get_legend().remove()
for ax in axes[1:]:
    ax.set_ylabel("")
picture(
    axes[0],
    "Above the dashed line a reading arrives before it has happened",
    "Event time against arrival: as the devices state it, corrected row by row, and with tracked clocks.",
)

# %%
errors = {
    name: (table[column] - table["truth"]).dt.total_seconds().abs()
    for name, (table, column) in tables.items()
}
summary = pd.DataFrame(
    {
        name: {"median, seconds": error.median(), "worst, seconds": error.max()}
        for name, error in errors.items()
    }
).T.round(1)
assert summary["median, seconds"].is_monotonic_decreasing
assert summary["worst, seconds"].idxmin() == "tracked for an hour"
summary

# %% [markdown]
# Row by row, a message that was held up for fifteen minutes is corrected to fifteen minutes too late: it looks like one from a clock that is
# behind. The tracked clock knows from the other messages of the device that it is not.
#
# ## 6. A clock that is a day ahead
#
# A watermark does not fall. So one row that claims to be from tomorrow makes all others late, until tomorrow and also after a restart.
# `time.guard` routes such rows *before* the watermark is defined: it sets an event time that is later than the arrival by more than
# `ahead` to null, and an operator counts the row as rejected. It is a Spark expression; here is what it returns, and what follows from it.

# %%
tomorrow = {"device": "d9", "ts": at(45) + dt.timedelta(days=1)}
poisoned = [row | (tomorrow if n == 80 else {}) for n, row in enumerate(readings)]
valid = pd.DataFrame(poisoned)
valid["ts"] = valid["ts"].where(valid["ts"] <= valid["arrived"] + pd.Timedelta(minutes=5))
invalid = valid[valid["ts"].isna()]
assert invalid["device"].tolist() == ["d9"]
late = {}
axes = panels(["without a guard", "with a guard"], 4.2)
for ax, table in zip(axes, (pd.DataFrame(poisoned), valid), strict=True):
    plots.plot_watermark(table, time="ts", arrival="batch", delay="10 minutes", ax=ax)
    rows = [
        table[table["batch"] == n].drop(columns="guarded", errors="ignore")
        for n in range(len(batches))
    ]
    counts = [result.counts for result in replay(per_five("10 minutes"), rows)]
    late[ax.get_title(loc="left")] = {
        "late": sum(c.stragglers + c.too_late for c in counts),
        "rejected": sum(c.rejected for c in counts),
    }
axes[1].set_ylabel("")
picture(
    axes[0],
    "One row of tomorrow, and everything after it is late",
    "The same readings with a delay of ten minutes. The guard has set one row aside.",
)

# %%
assert late["without a guard"]["late"] > 100
assert late["with a guard"]["rejected"] == 1
pd.DataFrame(late)

# %% [markdown]
# ## 7. What they do not do
#
# - **They do not know what is still on its way.** A watermark is a belief. The curve of late rows is that of the past.
# - **They do not end a stream.** Only events move the watermark. If all devices are silent, the last windows stay open.
# - **They do not wait for a device that they do not know.** At the start, list those to wait for: `expected`.
# - **They do not correct a clock that was set between the event and its sending**, unless the change is longer than `longest_wait`; and
#   of random clocks they only see that they are impossible.
# - **They do not trust the arrival blindly**, but they need one clock that is right: that of your server or of Kafka.
# - **They do not remove poison that is in a checkpoint.** Put the guard before the first operator, and before the first start.
#   `observe.PoisonedWatermark` raises the alarm if it is missing.
#
# The rules are in [docs/time.md](../docs/time.md), and what happens to late rows in [docs/windows.md](../docs/windows.md).

# %% [markdown]
# ## Takeaway
#
# Correct the clocks, guard the watermark, and measure how late your rows are before you choose a delay. Keep the delay short, and correct
# the results of what is later. If one producer is always behind, wait for it alone.
