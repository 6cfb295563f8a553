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
# # Joins: an evening at a marketplace
#
# Which searches led to a click, what did an order cost when it was made, and what does a page show whose authors change? People search, click
# on what they find, and buy it at the price of the moment; and they follow sellers, whose news
# make up the page they start from. Each of these is two streams that must be brought together, and the result
# depends on what is late, on what never comes at all, and on what is taken back. In pictures:
#
# 1. Searches and clicks: rows of two streams that lie close in time, and rows without a partner
# 2. Prices as of event time: with the version of a table that was valid
# 3. Home timelines: a view on two tables that change
# 4. What they do not do
#
# It runs on a laptop in about a minute: `pip install ".[java,notebook]"` in a clone, then open it in any Jupyter.
# `make notebooks` runs it and renews its pictures, which are made by `streamops.plots`.

# %%
import datetime as dt
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from drawing import grid, legend, panels, picture
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, local_session, plots, windows
from streamops.testing import fold, micro_batches, replay, stream

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)
six = dt.datetime(2026, 3, 2, 18, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after six in the evening."""
    return six + dt.timedelta(minutes=float(minute))


# %% [markdown]
# ## 1. Searches and clicks
#
# Which searches led to a click within half an hour? A search is kept until its click comes; and if none does, until none
# can come any more. Then it is *expired*, and that is a result, too: without it nobody knows how many searches were in vain.
# Six searches, and their clicks, in three micro-batches:

# %%
searched = {"red shoes": 0, "a lamp": 4, "tea": 9, "a tent": 15, "skates": 22, "a kite": 62}
clicked = [("red shoes", 6), ("tea", 12), ("tea", 17), ("a lamp", 40), ("skates", 52)]


def searches(*queries: str) -> list[dict]:
    """Searches, by what was searched for."""
    return [{"query": query, "searched_at": at(searched[query])} for query in queries]


def clicks(*numbers: int) -> list[dict]:
    """Clicks, by their number."""
    return [{"query": clicked[n][0], "clicked_at": at(clicked[n][1])} for n in numbers]


half_an_hour = {
    "by": "query",
    "time": ("searched_at", "clicked_at"),
    "how": "left",
    "delay": "2 minutes",
}
with_click = joins.interval(None, "0 seconds", "30 minutes", **half_an_hour)
script = [
    (searches("red shoes", "a lamp", "tea"), clicks(0, 1)),
    (searches("a tent", "skates"), clicks(2, 3)),
    (searches("a kite"), [*clicks(4), {"query": "a kite", "clicked_at": at(64)}]),
]
found = replay(with_click, script)
statuses = {
    row["query"]: f"{row['status']} in micro-batch {result.batch}"
    for result in reversed(found)
    for row in result.rows
}
waits = [
    {"query": query, "from": at(minute), "to": at(minute + 30), "status": statuses[query]}
    for query, minute in searched.items()
    if query != "a kite"
]
happened = [
    {"query": query, "ts": at(minute), "type": type_}
    for type_, rows in (("search", searched.items()), ("click", clicked))
    for query, minute in rows
    if query != "a kite"
]
ax = plots.plot_matches(
    *(waits, happened),
    time="ts",
    by="query",
    category="type",
    label="status",
    start="from",
    end="to",
)
ax.get_legend().get_texts()[-1].set_text("wait")
picture(
    ax,
    "Found, or in vain",
    "A search waits thirty minutes for a click, as long as its bar. That none can come any more is a result, too.",
)

# %% [markdown]
# The bars are how long a search waits: both of its ends belong to it, so the click on the skates, after exactly thirty
# minutes, counts. The click on the lamp came after thirty-six and has no search. The tent waits until the *watermark*, which
# is the slower one of both streams, has reached the end of its bar.
#
# ### The rate, and what it is without those who did not click
#
# Four hours of the same on Spark, as a stream: the join, and behind it in the same query a window that averages. From
# eight o'clock on, the button does not work in one browser of two. One in five of those who click clicks again a minute
# later: `matches="first"` makes one row of each search, so that the window counts searches and not clicks.

# %%
rng = np.random.default_rng(2013)
many = 480
minutes = np.sort(rng.uniform(0, 240, many))
works = (minutes < 120) | (rng.random(many) < 0.5)
clicks_at = np.where((rng.random(many) < 0.4) & works, minutes + rng.exponential(6, many), np.nan)
all_searches = pa.table({"query": np.arange(many), "searched_at": [at(m) for m in minutes]})
again = np.where(np.arange(many) % 5 == 0, clicks_at + 1, np.nan)
pressed = np.concatenate([clicks_at, again])
order = [n for n in np.argsort(pressed) if not np.isnan(pressed[n])]
answered = pa.table(
    {
        "query": [n % many for n in order],
        "clicked_at": [at(pressed[n]) for n in order],
        "click": range(len(order)),
    }
)


def cut(table: pa.Table, time: str, borders: list[dt.datetime]) -> list[pa.Table]:
    """The table in micro-batches, by when its rows happened."""
    times = table[time].to_pylist()
    edges = np.searchsorted(times, borders)
    return [table.slice(a, b - a) for a, b in zip([0, *edges], [*edges, len(times)], strict=True)]


hours = [at(80), at(160)]
end = pa.table({"query": [-1], "searched_at": [at(400)]})  # it moves the watermark past it all
ended = pa.table({"query": [-1], "clicked_at": [at(401)], "click": [-1]})
frames = [
    micro_batches(spark, [*cut(table, time, hours), last.cast(table.schema)])
    for table, time, last in ((all_searches, "searched_at", end), (answered, "clicked_at", ended))
]
is_click = F.when(F.col("status") == "matched", 1.0).otherwise(0.0)
per_half_hour = windows.tumbling(
    "30 minutes",
    time="searched_at",
    agg={"searches": agg.count(), "rate": agg.mean("clicked")},
).options(shards=1)
first_click = {**half_an_hour, "matches": "first", "tie_break": "click"}
folder = Path(tempfile.mkdtemp(prefix="streamops-"))
query = (
    frames[0]
    .transform(
        joins.interval(frames[1], "0 seconds", "30 minutes", **first_click).options(shards=1)
    )
    .withColumn("clicked", is_click)
    .transform(per_half_hour)
    .writeStream.format("parquet")
    .option("path", str(folder / "rates"))
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
rates = spark.read.parquet(str(folder / "rates")).toPandas().sort_values("window_start")
rates = rates[rates["searches"] > 1].reset_index(drop=True)
assert rates["searches"].sum() == many
(ax,) = panels([""], 3.6)
clicked_on = (rates["searches"] * rates["rate"]).round()
ax.bar(rates.index, clicked_on, 0.8, color=plots.COLORS["on_time"], label="clicked")
expired = {"bottom": clicked_on, "color": plots.COLORS["retracted"], "label": "expired"}
bars = ax.bar(rates.index, rates["searches"] - clicked_on, 0.8, **expired)
ax.bar_label(bars, [f"{rate:.0%}" for rate in rates["rate"]], padding=3)
ax.axvline(3.5, color=plots.COLORS["corrected"], linestyle="--", label="the button breaks")
ax.set_xticks(rates.index, rates["window_start"].dt.strftime("%H:%M"))
ax.margins(y=0.12)
ax.grid(visible=False)
legend(ax)
picture(
    ax,
    "Without the searches that came to nothing there is no rate",
    "Searches per half hour, by what became of them; the number is the share that was clicked on.",
)

# %% [markdown]
# An inner join would have emitted the clicks alone: fewer of them from eight on, as at any time when fewer people search.
# That nearly the same number of searches came to nothing is visible in the rows that expired.
#
# ### A click that was held up
#
# A phone was in a tunnel. Its click comes when its search was already published as expired. With `stragglers="retract"` the
# output is a *change stream*: the earlier result is retracted, and the match replaces it.

# %%
held_up = joins.interval(
    None, "0 seconds", "30 minutes", stragglers="retract", allowed_lateness="1 hour", **half_an_hour
)
tunnel = [
    (searches("red shoes", "a lamp"), clicks(0)),
    ([{"query": "-", "searched_at": at(50)}], [{"query": "-", "clicked_at": at(50)}]),
    (None, None),
    (None, [{"query": "a lamp", "clicked_at": at(20)}]),
]
results = replay(held_up, tunnel)
changes = [
    row | {"batch": result.batch}
    for result in results
    for row in result.rows
    if row["query"] != "-"
]
picture(
    plots.plot_updates(changes, by="query", label="status"),
    "What was known of two searches",
    "After each micro-batch. The click on the lamp was made at 18:20, and came last.",
)

# %% [markdown]
# ## 2. Prices as of event time
#
# An order is worth the price that held *when it was made*. Looked up when the order is processed, a table says what it
# happens to hold by then: another price after a restart, and another one in each replay. `joins.asof` waits until the
# watermark has reached the order, and takes the version of its event time.
#
# Here the rise at 18:20 becomes known only after the orders of 18:25 and 18:32 had their answers. `late_versions="retract"`
# gives these anew.

# %%
price_at = [(0, 100), (20, 130), (45, 90)]
orders_at = [6, 15, 25, 32, 50, 55]


def prices(*numbers: int) -> list[dict]:
    """Versions of the price of a lamp, by their number."""
    return [
        {"what": "lamp", "since": at(price_at[n][0]), "seq": n, "price": price_at[n][1]}
        for n in numbers
    ]


def orders(*minutes: int) -> list[dict]:
    """Orders of lamps, by when they were made."""
    return [{"what": "lamp", "ordered_at": at(minute)} for minute in minutes]


as_of = joins.asof(
    None,
    by="what",
    time="ordered_at",
    version="since",
    sequence="seq",
    waits_for="facts",
    delay="0 seconds",
    late_versions="retract",
    allowed_lateness="2 hours",
)
script = [
    (orders(6, 15), prices(0)),
    (orders(25, 32), None),
    (orders(50), prices(2)),
    (None, prices(1)),  # the rise, late
    (orders(55), None),
]
priced = replay(as_of, script)
worth = fold((row for result in priced for row in result.rows), rows="multiset")
assert [row["price"] for row in sorted(worth, key=lambda row: row["ordered_at"])] == [
    *(100, 100, 130, 130, 90, 90)
]
answers = [
    {"ordered": f"{row['ordered_at']:%H:%M}", "batch": result.batch, **row}
    for result in priced
    for row in result.rows
]
corrected = {row["ordered_at"] for row in answers if row["_change_type"] != "insert"}
versions = [
    {"what": "lamp", "from": at(minute), "to": at(until), "price": price}
    for (minute, price), until in zip(price_at, [20, 45, 60], strict=True)
]
lamps = [
    {**row, "answer": "corrected" if row["ordered_at"] in corrected else "the first"}
    for row in worth
]
ax = plots.plot_matches(
    *(versions, lamps),
    time="ordered_at",
    by="what",
    category="answer",
    label="price",
    start="from",
    end="to",
)
ax.get_legend().get_texts()[-1].set_text("price")
picture(
    ax,
    "What the lamp cost when it was ordered",
    "Bars are the prices over event time, dots the orders. The price of 130 became known after two orders had their answers.",
)

# %%
picture(
    plots.plot_updates(answers, by="ordered", label="price"),
    "Each answer, and the two that were corrected",
    "The price of each order, by the time at which it was made, after each micro-batch.\n"
    "An order is answered in the first micro-batch whose watermark has reached it.",
)

# %% [markdown]
# However the two streams are cut and whichever comes first: the folded answers are the same, because they depend on what
# happened. Here are all orders and all prices in one micro-batch, and the prices all before the orders:

# %%
ways = {
    "at once": [(orders(*orders_at), prices(0, 1, 2))],
    "prices first": [(None, prices(2, 0, 1)), (orders(*orders_at[::-1]), None)],
    "orders first": [(orders(*orders_at), None), (None, prices(1, 2, 0))],
}
final = {
    name: sorted(
        (row["ordered_at"], row["price"])
        for row in fold(
            (r for result in replay(as_of, way, flush=True) for r in result.rows), rows="multiset"
        )
    )
    for name, way in ways.items()
}
assert len({tuple(rows) for rows in final.values()}) == 1
pd.DataFrame({name: dict(rows) for name, rows in final.items()}).rename(
    index=lambda when: f"{when:%H:%M}"
)

# %% [markdown]
# ## 3. Home timelines
#
# Sellers post news; a person starts from the newest of those whom they follow. To look them all up whenever somebody opens
# the page is dear where pages are read more often than news are written. So the page is kept: a cache, as a view on the join
# of two *tables that change*, the posts and who follows whom. A post, a deleted post, a new follow (whose news of before come
# in) and an unfollow (whose news go) are nothing but changes of the two.

# %%
home = joins.timeline(
    None,
    by={"seller": "whom"},
    user="user",
    key="post",
    ranked_by="at",
    cap=4,
).options(shards=1)


def post(seller: str, number: int, change: str = "insert") -> dict:
    """News of a seller; they are numbered as time goes on."""
    return {"seller": seller, "post": number, "at": at(number), "_change_type": change}


def follow(whom: str, change: str = "insert", user: str = "ann") -> dict:
    """Who follows whom."""
    return {"user": user, "whom": whom, "_change_type": change}


happenings = [
    ("follows\nblue, gold", [post("blue", 1), post("red", 2), post("gold", 3)],
     [follow("blue"), follow("gold")]),
    ("blue posts\n4 and 5", [post("blue", 4), post("blue", 5)], None),
    ("gold posts 6", [post("gold", 6)], None),
    ("red posts 7,\nfollows red", [post("red", 7)], [follow("red")]),
    ("gold\ndeletes 6", [post("gold", 6, "delete")], None),
    ("unfollows\nblue", None, [follow("blue", "delete")]),
    ("red posts 8", [post("red", 8)], None),
]  # fmt: skip
script = [(posts, follows) for _, posts, follows in happenings]
on_spark = stream(spark, home, script)
without_spark = replay(home, script)
seen, pages = [], {}
for (name, _, _), result in zip(happenings, on_spark, strict=True):
    seen += result.rows
    page = sorted(fold(seen, key=["user", "post"]), key=lambda row: -row["post"])
    pages[name] = [f"{row['seller']} {row['post']}" for row in page] + [None] * (4 - len(page))
assert [len(result.rows) for result in on_spark] == [len(result.rows) for result in without_spark]
paint = {"blue": "#2a6f97", "gold": "#a67c00", "red": "#b5403a"}
picture(
    grid(pd.DataFrame(pages, index=range(1, 5)), lambda text: paint[text.split()[0]]),
    "The page that Ann starts from",
    "After each micro-batch, the newest on top: the seller and the number of the post.",
)

# %% [markdown]
# Gold's post 3 falls off the end when Ann follows red, and comes back when gold deletes 6. Red's post 2 is older than her
# follow, and is there once blue has gone. That is why all of them are kept: the cap bounds what is shown, and not the state.
# With forty people, twelve sellers and two hundred posts, of which the last micro-batches delete all, the oldest first:

# %%
sellers = [f"seller {n}" for n in range(12)]
popular = 1 / np.arange(1, 13)
people = [
    follow(str(whom), user=f"user {n}")
    for n in range(40)
    for whom in rng.choice(sellers, size=3, replace=False, p=popular / popular.sum())
]
posts = [post(str(rng.choice(sellers)), number) for number in range(200)]
deletes = [{**row, "_change_type": "delete"} for row in posts]
evening = [(posts[n : n + 20], people if n == 0 else None) for n in range(0, 200, 20)]
evening += [(deletes[n : n + 50], None) for n in range(0, 200, 50)]
results = replay(home, evening)
seen, sizes = [], []
for result in results:
    seen += result.rows
    displayed = len(fold(seen, key=["user", "post"]))
    counts = {
        "stored": result.state_rows,
        "displayed": displayed,
        "changes emitted": len(result.rows),
    }
    sizes += [{"batch": result.batch, "of": name, "rows": n} for name, n in counts.items()]
assert [row["rows"] for row in sizes[-3:-1]] == [len(people), 0]
picture(
    plots.plot_state(sizes, size="rows", by="of", bound=40 * 4),
    "The cap bounds what is displayed, and not what is stored",
    "Forty people and twelve sellers: 20 posts in each micro-batch, then deletes of 50 in each.\n"
    "The bound is that of the displayed rows: four posts for each person.",
)

# %% [markdown]
# A post that everybody's page had lost is deleted without a word. What is left in the state at the end is who follows whom.

# %% [markdown]
# ## 4. What they do not do
#
# - **They do not wait for a stream that is silent.** The watermark is that of the slower side: while no click comes from
#   anybody, no search expires. Where a side can be silent for long, give it heartbeats, or `waits_for="facts"` in a
#   temporal join.
# - **They do not guess who belongs together.** Rows meet by equal keys and by their times, not by likeness.
# - **They do not make the state of an interval join small.** What may still have a partner is kept: a longer interval, and
#   a longer lateness, is a larger state.
# - **They do not repair what is final.** A price that comes later than `allowed_lateness` is counted and can be delivered;
#   the orders before it keep their answers.
# - **They do not bound the state of tables by a cap.** A join of tables keeps both of them, and a timeline every post of
#   those who are followed. What is too old must be deleted by those who own it.
# - **They do not make famous sellers cheap.** A post of somebody whom a million follow is a million changes. A service that
#   has such sellers reads their posts when a page is opened, and keeps the rest.
# - **They do not order what shards say.** Within a micro-batch what one shard takes back may come after what another one
#   inserts; fold by key, or apply removals first.
#
# The rules are in [docs/joins.md](../docs/joins.md).

# %% [markdown]
# ## Takeaway
#
# A join of streams is a decision about time: how far apart two rows may be, which version was valid, and when a row without a partner is
# certain to have none. That it has none is a result, too, and so is its correction.

# %%
spark.stop()
