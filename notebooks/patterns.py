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
# # Patterns: logins, orders, prices and a funnel
#
# Who guessed a password, and which order was never paid? Such questions are about the order of events: three failures *and then* a success,
# an order that was *not followed* by a payment. `patterns.match` answers them with the semantics of SQL's `MATCH_RECOGNIZE`. In pictures:
#
# 1. Failures, then a success
# 2. Which match is found
# 3. What did not happen
# 4. Conditions over earlier rows
# 5. Conditions over the first row of the match
# 6. A funnel
# 7. What is stored
# 8. What they do not do
#
# It needs no Java: the micro-batches are replayed by the code that runs on Spark. `make notebooks` runs it and renews its
# pictures, which are made by `streamops.plots`.

# %%
import datetime as dt
from collections import Counter

import numpy as np
import pandas as pd
from drawing import panels, picture
from matplotlib.dates import ConciseDateFormatter

from streamops import patterns, plots
from streamops.testing import replay

nine = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after nine."""
    return nine + dt.timedelta(minutes=float(minute))


def rows_of(results):
    """The matches of all micro-batches."""
    return [row for result in results for row in result.rows]


# %% [markdown]
# ## 1. Failures, then a success
#
# At least three failed logins in a row, then one that succeeds, within ten minutes. On Spark, the conditions are Spark SQL, such
# as `"type = 'fail'"`; without Spark they are columns.

# %%
attacks = patterns.match(
    "fail{3,} ok",
    define={"fail": "fail", "ok": "ok"},
    time="ts",
    by="user",
    within="10 minutes",
    measures={"attempts": patterns.count("fail")},
    delay="1 minute",
).options(shards=1)


def login(user, minute, type_):
    return {
        "user": user,
        "ts": at(minute),
        "type": type_,
        "fail": type_ == "fail",
        "ok": type_ == "ok",
    }


logins = [
    *(login("ann", minute, "fail") for minute in (3, 4.2, 5)),
    login("ann", 6, "ok"),
    *(login("bob", minute, "fail") for minute in (2, 9, 16)),
    login("bob", 18, "ok"),
    *(login("cem", minute, "fail") for minute in (4, 5)),
    login("cem", 6, "ok"),
    *(login("cem", minute, "fail") for minute in (20, 21, 22, 23, 24)),
    login("cem", 25, "ok"),
]
arrived = sorted(
    logins, key=lambda row: row["ts"] + dt.timedelta(seconds=int(row["ts"].minute * 17 % 50))
)
batches = [arrived[n : n + 6] for n in range(0, len(arrived), 6)] + [[login("dan", 40, "ok")]]
matches = rows_of(replay(attacks, batches))
picture(
    plots.plot_matches(matches, logins, time="ts", by="user", category="type", label="attempts"),
    "Three failures in a row, then a success",
    "Bob needed 16 minutes, and Cem first had two failures only. The number is that of the failures.",
)

# %% [markdown]
# The events arrived out of order and in micro-batches. A match is emitted once the watermark has reached its last row, so the
# result does not depend on that.

# %% [markdown]
# ## 2. Which match is found
#
# From one row, several matches may be possible. As in regular expressions, the preferred one is found: as many repetitions as
# possible, or as few if `?` stands behind the quantifier. `...` skips rows, and `!c` skips all but `c`. And `skip` says where the
# search continues.

# %%
letters = "aabbcabdbcc"
sequence = [
    {"id": n, "ts": at(n), **{name: letter == name for name in "abcd"}}
    for n, letter in enumerate(letters)
]


def found(pattern, **given):
    operator = patterns.match(
        pattern,
        define={name: name for name in "abcd" if name in pattern},
        time="ts",
        within="1 hour",
        measures={"ids": patterns.collect_list(None, "id")},
        delay="0 seconds",
        **given,
    )
    return [row["ids"] for row in rows_of(replay(operator, [sequence], flush=True))]


tried = ["a b", "a b+", "a b+?", "a+ b+ c", "a ... c", "a !d c", "(a | b){3}"]
answers = {pattern: found(pattern) for pattern in tried}
answers["a ... c, to next row"] = found("a ... c", skip="to next row")
bars, rows = [], []
for pattern, matches_of in answers.items():
    for ids in matches_of:
        bars.append({"pattern": pattern, "match_start": ids[0], "match_end": ids[-1]})
        rows += [{"pattern": pattern, "t": number, "letter": letters[number]} for number in ids]
ax = plots.plot_matches(bars, rows, time="t", by="pattern", category="letter")
ax.set_xticks(range(len(letters)), letters)
ax.set_xlabel("")
picture(
    ax,
    "One sequence, eight patterns",
    "Bars are matches from their first to their last row; dots are rows that have a variable.",
)

# %% [markdown]
# ## 3. What did not happen
#
# `order !paid` with `within="20 minutes"` is an order that is not followed by a payment in less than twenty minutes. It is a match
# when the watermark passes the twenty minutes.

# %%
unpaid = patterns.match(
    "order !paid",
    define={"order": "order", "paid": "paid"},
    time="ts",
    by="order_id",
    within="20 minutes",
    measures={"n": patterns.count()},
    delay="1 minute",
)


def happened(order_id, minute, type_):
    return {
        "order_id": order_id, "ts": at(minute), "type": type_,
        "order": type_ == "order", "paid": type_ == "paid",
    }  # fmt: skip


orders = [
    happened("o1", 1, "order"), happened("o1", 12, "paid"), happened("o2", 3, "order"),
    happened("o3", 5, "order"), happened("o3", 25, "paid"), happened("o4", 8, "order"),
    happened("o4", 27.5, "paid"),
]  # fmt: skip
late = [
    row | {"n": "unpaid", "match_end": row["match_start"] + dt.timedelta(minutes=20)}
    for row in rows_of(replay(unpaid, [orders, [happened("o9", 60, "order")]]))
]
picture(
    plots.plot_matches(late, orders, time="ts", by="order_id", category="type", label="n"),
    "Orders without a payment in less than twenty minutes",
    "Order o3 was paid after exactly twenty minutes, which is too late: the bound is exclusive. Bars end with it.",
)

# %% [markdown]
# ## 4. Conditions over earlier rows
#
# `patterns.previous("price")` is the price of the row before, of the same key. A price that falls at least twice and then rises at
# least twice:

# %%
rng = np.random.default_rng(5)
walk = 100 + np.cumsum(rng.normal(0, 1, 60)).round(2)
ticks = [{"ts": at(n), "price": float(price)} for n, price in enumerate(walk)]
v_shape = patterns.match(
    "start down{2,} up{2,}",
    define={
        "down": patterns.previous("price") > "price",
        "up": patterns.previous("price") < "price",
    },
    time="ts",
    within="30 minutes",
    measures={"names": patterns.classifiers(), "bottom": patterns.last("down", "price")},
    delay="0 seconds",
)
shapes = rows_of(replay(v_shape, [ticks], flush=True))


def plot_prices(rows, matches, falling):
    """A price over time, with the rows of each match; those of the variable `falling` are orange."""
    (ax,) = panels([""], 3.4)
    prices = {row["ts"]: row["price"] for row in rows}
    ax.plot([*prices], [*prices.values()], color=plots.COLORS["label"], linewidth=1.2)
    for match in matches:
        ax.axvspan(match["match_start"], match["match_end"], alpha=0.15)
        times = [t for t in prices if match["match_start"] <= t <= match["match_end"]]
        for t, name in zip(times, match["names"], strict=True):
            color = plots.COLORS["corrected" if name == falling else "on_time"]
            ax.scatter([t], [prices[t]], color=color, zorder=3)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))
    return ax


picture(
    plot_prices(ticks, shapes, "down"),
    f"{len(shapes)} times the price fell twice and rose twice",
    "Orange are the rows of `down`. A variable without a condition, such as `start`, matches every row.",
)

# %% [markdown]
# ## 5. Conditions over the first row of the match
#
# `patterns.initial("price")` is the price of the first row of *this* match. What a row satisfies depends on where the match began: here, a
# price that is below its start at least four times, and then at or above it again.

# %%
recovery = patterns.match(
    "start below{4,} back",
    define={
        "below": patterns.initial("price") > "price",
        "back": patterns.initial("price") <= "price",
    },
    time="ts",
    within="30 minutes",
    measures={
        "names": patterns.classifiers(),
        "start": patterns.first("start", "price"),
        "low": patterns.min("below", "price"),
        "back": patterns.last("back", "price"),
    },
    delay="0 seconds",
)
recoveries = rows_of(replay(recovery, [ticks], flush=True))
in_parts = [ticks[n : n + 7] for n in range(0, len(ticks), 7)]
assert rows_of(replay(recovery, in_parts, flush=True)) == recoveries
assert all(row["low"] < row["start"] <= row["back"] for row in recoveries)
ax = plot_prices(ticks, recoveries, "below")
for row in recoveries:
    ax.hlines(
        row["start"],
        row["match_start"],
        row["match_end"],
        color=plots.COLORS["text"],
        linestyle=":",
    )
picture(
    ax,
    f"{len(recoveries)} times the price fell below its start and came back",
    "Orange are the rows that are below the first row of their match (dotted).",
)

# %% [markdown]
# ## 6. A funnel
#
# With `timeouts="route"`, starts that could still have been completed when their bound passed are side output, with the number of
# steps that they reached. A thousand people, of whom each step loses some:

# %%
steps = ["view", "cart", "address", "pay"]
funnel = patterns.match(
    " ... ".join(steps),
    define={step: step for step in steps},
    time="ts",
    by="user",
    within="30 minutes",
    delay="0 seconds",
    timeouts="route",
)
clicks = []
for user in range(1_000):
    minute = float(rng.uniform(0, 60))
    for step in steps:
        clicks.append({"user": user, "ts": at(minute), **{name: name == step for name in steps}})
        minute += float(rng.exponential(6))
        if rng.random() > 0.7:
            break
end = [{"user": -1, "ts": at(600), **dict.fromkeys(steps, False)}]
results = replay(funnel, [clicks, end])
counts = Counter({len(steps): len(rows_of(results))})
for result in results:
    counts.update(row["steps"] for row in result.late_rows)
reached = {
    step: sum(count for number, count in counts.items() if number > at_least)
    for at_least, step in enumerate(steps)
}
(ax,) = panels([""], 2.6)
bars = ax.barh([*reached], [*reached.values()], color=plots.COLORS["on_time"])
ax.bar_label(bars, [f"{count:,}  ({count / 1_000:.0%})" for count in reached.values()], padding=4)
ax.invert_yaxis()
ax.margins(x=0.12)
picture(
    ax,
    "How many reached which step within half an hour",
    "Matches, and partial matches by the step that they reached.",
)

# %% [markdown]
# ## 7. What is stored
#
# Rows above the watermark, and those from the first start of a key that is not decided yet, for less than the bound. Three hundred
# micro-batches of a hundred logins each, of which a few are attacks:

# %%
stream = [
    [
        login(int(rng.integers(0, 5_000)), number + float(rng.random()), str(rng.choice(["fail", "ok"], p=[0.3, 0.7])))
        for _ in range(100)
    ]
    for number in range(300)
]  # fmt: skip
sizes = pd.DataFrame(
    [(result.batch, 100, result.state_rows) for result in replay(attacks, stream)],
    columns=["batch", "rows", "state"],
)
assert sizes["state"].iloc[100:].max() < 1_200
# A row is stored for less than the eleven minutes of `within` and `delay`, and a micro-batch has those of one minute.
picture(
    plots.plot_state(sizes.iloc[:100], size="state", rows="rows", bound=1_200),
    "State does not grow with the stream",
    "A hundred micro-batches with a hundred rows each. The bound: the rows of eleven minutes, and of the micro-batch itself.",
)

# %% [markdown]
# ## 8. What they do not do
#
# - **They do not correct a match.** A row that arrives behind the watermark is counted, or delivered as side output.
# - **They do not match without a bound on a stream.** Without `within`, a first failure would be stored for ever.
# - **They do not compare rows of different variables.** A condition sees its row, the first row of the match, and earlier
#   rows of the key at a fixed distance.
# - **They do not list all combinations of later rows.** Their number is exponential. `skip="to next row"` finds one match from each
#   row that starts one.
# - **They do not join streams.** All events of a pattern are in one frame: unite the streams, or use `joins.interval`.
#
# The rules are in [docs/patterns.md](../docs/patterns.md).

# %% [markdown]
# ## Takeaway
#
# Write the order of events as a regular expression over conditions, and bound it in time. Then the state is bounded, too, and what did *not*
# happen is a result like any other.
