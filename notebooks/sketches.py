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
# # Sketches: accuracy against memory
#
# How many users were there? How slow is the slowest percent? Which pages are read most? Did this order come before? Who
# saw both campaigns? To answer exactly, a stream has to remember all it has seen. A *sketch* remembers little, and says
# how far it may be off. This notebook asks each question twice, exactly and by a sketch, and shows what the memory
# buys:
#
# 1. Distinct users: HyperLogLog
# 2. The 99th percentile, and an average that lies: KLL
# 3. What is read most: heavy hitters
# 4. Duplicates over a month: Bloom filters
# 5. Audiences that overlap: theta
# 6. What it came to
# 7. What they do not do
#
# It runs on a laptop in less than a minute: `pip install ".[java,notebook]"` in a clone, then open it in any Jupyter.
# `make notebooks` runs it and renews its pictures, which are made by `streamops.plots`.
# Every number that the text promises is computed in a cell, or asserted in one.

# %%
import tempfile
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from drawing import legend, panels, picture

from streamops import aggregates as agg
from streamops import local_session, plots, sketches, windows
from streamops.testing import micro_batches, replay

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)
folder = Path(tempfile.mkdtemp(prefix="streamops-"))
rng = np.random.default_rng(2013)

# %% [markdown]
# An hour of a shop: page views, each with its user, its page, and the milliseconds it took. In one minute, an
# advertisement on television brings ten times the visitors, and the shop is slow. In another, a failing server answers
# hardly anyone, and them slowly.

# %%
views_of = rng.integers(2_500, 3_500, 60)
views_of[32], views_of[47] = 30_000, 60
minute = np.repeat(np.arange(60), views_of)
rows = len(minute)

noon = np.datetime64("2026-03-02T12:00", "us")
within = rng.integers(0, 60_000_000, rows)
slow = np.isin(minute, (32, 47))
popular = 1 / np.arange(1, 20_001) ** 1.1  # Zipf's law
page = np.searchsorted(np.cumsum(popular) / popular.sum(), rng.random(rows))
views = pa.table(
    {
        "ts": pa.array(np.sort(noon + minute * 60_000_000 + within), pa.timestamp("us", "UTC")),
        "user": rng.exponential(15_000, rows).astype(np.int64),
        "page": pa.array([f"/p/{number}" for number in page]),
        "ms": np.round(rng.lognormal(np.where(slow, 7.0, 4.5), 0.6), 1),
    }
)
views.slice(0, 3).to_pandas()

# %% [markdown]
# In plain Python, `testing.replay` runs a transform over tables, by the rules of a stream and without Spark:


# %%
def sketched(*micro_batches: pa.Table, by: str | tuple = (), **what) -> list[dict]:
    """Return the aggregates of all rows, or per group."""
    same = pa.scalar(noon.item(), pa.timestamp("us", "UTC"))
    day = [
        rows.append_column("day", pa.repeat(same, len(rows)))  # in one window
        for rows in micro_batches
    ]
    once = windows.tumbling("1 day", time="day", by=by, agg=what, delay="0 seconds").options(
        shards=1
    )
    return replay(once, day, flush=True)[-1].rows


(hour,) = sketched(views, users=agg.approx_count_distinct("user"))
users = len(np.unique(views["user"]))
{"exactly": users, **hour["users"]}

# %% [markdown]
# ## 1. Distinct users
#
# **HyperLogLog** keeps, in `2**p` registers of a byte, how rare the rarest hash was that fell into each. From that it
# tells how many there must have been, with a relative standard error of `1.04 / sqrt(2**p)`. Theta sketches answer the
# same question from a sample of hashes; section 5 is about what they can do besides. Forty crowds of twenty thousand:

# %%
crowds, size = 40, 20_000
crowd = pa.table({"crowd": np.repeat(np.arange(crowds), size), "user": np.arange(crowds * size)})
sketched_by = {("HyperLogLog", p): agg.approx_count_distinct("user", p=p) for p in range(6, 17, 2)}
sketched_by |= {
    ("theta", k): agg.approx_count_distinct_theta("user", k=k) for k in (64, 256, 1_024, 4_096)
}
stored = {("HyperLogLog", p): sketches.hll_sketch_agg("user", p=p) for p in range(6, 17, 2)}
stored |= {("theta", k): sketches.theta_sketch_agg("user", k=k) for k in (64, 256, 1_024, 4_096)}

estimates = sketched(crowd, by="crowd", **{str(name): item for name, item in sketched_by.items()})
(stored_row,) = sketched(crowd.slice(0, size), **{str(name): item for name, item in stored.items()})
bought = pd.DataFrame(
    {
        "kind": name,
        "p": number,
        "bytes": len(stored_row[str((name, number))]),
        "promised": 1.04 / np.sqrt(2**number) if name == "HyperLogLog" else 1 / np.sqrt(number - 1),
        "measured": np.sqrt(
            np.mean([(row[str((name, number))]["estimate"] / size - 1) ** 2 for row in estimates])
        ),
    }
    for name, number in sketched_by
)
ax = plots.plot_error(bought, x="bytes", error="measured", bound="promised", by="kind")
ax.axvline(size * 8, color=plots.COLORS["retracted"], linestyle="--")
ax.text(size * 7.5, 0.1, "all of them,\n8 bytes each", ha="right")
twelve = bought.query("kind == 'HyperLogLog' and p == 12").iloc[0]
picture(
    ax,
    f"{twelve['measured']:.1%} off in {twelve['bytes'] / 1000:.1f} kB; to be exact takes {size * 8 / 1000:.0f} kB",
    f"Relative error of the number of {size:,} distinct users, against the bytes of the sketch. "
    "Four times the bytes halve the error.",
)

# %% [markdown]
# The bytes are those of a full sketch. It does not grow: ten million users take no more than twenty thousand, while a
# list of them would. And few users take less. Up to `3 * 2**(p - 5)` of them the sketch keeps their hashes and
# *counts*:

# %%
sizes = np.unique(np.geomspace(10, 60_000, 22).astype(int))
seeds = range(3)
growing = pa.table(
    {
        "n": np.concatenate([np.full(n, n) for _ in seeds for n in sizes]),
        "seed": np.concatenate([np.full(n, seed) for seed in seeds for n in sizes]),
        "user": np.concatenate([seed * 10**6 + np.arange(n) for seed in seeds for n in sizes]),
    }
)
answers = sketched(
    growing,
    by=("n", "seed"),
    **{f"{p}": agg.approx_count_distinct("user", p=p) for p in (10, 12, 14)},
)
errors = pd.DataFrame(
    {"p": p, "n": row["n"], "error": row[f"{p}"]["estimate"] / row["n"] - 1}
    for row in answers
    for p in (10, 12, 14)
)
counted = {p: 3 * 2 ** (p - 5) for p in (10, 12, 14)}
assert (errors["error"][errors["n"] <= errors["p"].map(counted)] == 0).all()
errors["standard error"] = np.where(
    errors["n"] > errors["p"].map(counted), 1.04 / np.sqrt(2.0 ** errors["p"]), 0
)
row = panels([f"p={p}: {2**p:,} bytes" for p in counted], 3.6, sharey=True)
for ax, (p, of_p) in zip(row, errors.groupby("p"), strict=True):
    plots.plot_error(of_p, x="n", error="error", bound="standard error", ax=ax)
    ax.axvline(counted[p], color=plots.COLORS["retracted"], linestyle="--")
    ax.get_legend().remove()
    ax.set(xlabel="distinct users", ylabel="")
picture(
    row[0],
    "Few are counted, many are estimated",
    "Relative error against the number of distinct users, and one standard error as a band: two of three are inside.\n"
    "Left of the dashed line the sketch has the hashes of all users.",
)

# %% [markdown]
# ### Minutes make the hour
#
# Now on Spark, as a stream: for each minute a row, with the sketches of its users, its response times and its pages,
# stored in Parquet. The micro-batches have nothing to do with minutes.

# %%
per_minute = windows.tumbling(
    "1 minute",
    time="ts",
    agg={
        "n": agg.count(),
        "users": sketches.hll_sketch_agg("user"),
        "ms": sketches.kll_sketch_agg("ms", k=800),
        "pages": sketches.top_k_sketch_agg("page", counters=100),
    },
    delay="5 seconds",
).options(shards=1)
edges = np.linspace(0, rows, 5).astype(int)
parts = [views.slice(start, end - start) for start, end in pairwise(edges)]
# The view of another minute, later: it moves the watermark past the end of the hour.
later = pa.array(np.array([noon + np.timedelta64(70, "m")]), pa.timestamp("us", "UTC"))
after = views.slice(0, 1).set_column(0, "ts", later)

query = (
    micro_batches(spark, [*parts, after])
    .transform(per_minute)
    .writeStream.format("parquet")
    .option("path", str(folder / "minutes"))
    .option("checkpointLocation", str(folder / "minutes-checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
# In one task, so that KLL sketches are not cut in another way where there are more cores.
stored_minutes = spark.read.parquet(str(folder / "minutes")).coalesce(1)
minutes = stored_minutes.toPandas().sort_values("window_start", ignore_index=True)
assert len(minutes) == 60
assert minutes["n"].sum() == rows
in_bytes = {name: minutes[name].map(len) for name in ("users", "ms", "pages")}
minutes[["window_start", "n"]].assign(**in_bytes).head(3)

# %% [markdown]
# `sketches.merge` rolls them up, in Spark again, to the hour and to five minutes. The views are not read a second
# time. Here as a batch over what was stored; on a stream of minutes it is the same transform.


# %%
def rolled_up(size: str, **what) -> pd.DataFrame:
    """The stored minutes, merged."""
    transform = windows.tumbling(size, time="window_start", agg=what, delay="1 minute")
    return stored_minutes.transform(transform).toPandas().sort_values("window_start")


like = sketches.hll_sketch_agg("user")
(merged_users,) = rolled_up("1 hour", users=sketches.merge("users", like=like))["users"]
(direct,) = sketched(views, users=like)
assert bytes(merged_users) == direct["users"]
{
    "to the last byte the sketch of the views": bytes(merged_users) == direct["users"],
    "bytes": len(merged_users),
    **sketches.read(merged_users).estimate(),
}

# %%
minute_sketches = [sketches.read(blob) for blob in minutes["users"]]
so_far = list(accumulate(minute_sketches, lambda left, right: left.merge(right)))
assert so_far[-1].to_bytes() == direct["users"]
user = views["user"].to_numpy()
growth = pd.DataFrame(
    {
        "summed": np.cumsum([sketch.estimate()["estimate"] for sketch in minute_sketches]),
        "truth": [len(np.unique(user[: np.searchsorted(minute, n + 1)])) for n in range(60)],
    }
    | {
        name: [sketch.estimate()[word] for sketch in so_far]
        for name, word in {"merged": "estimate", "lower": "lower", "upper": "upper"}.items()
    },
    index=range(1, 61),
)
(ax,) = panels([""], 3.6)
ax.plot(growth["summed"], color=plots.COLORS["corrected"], label="counts of the minutes, summed")
ax.plot(growth["merged"], color=plots.COLORS["on_time"], label="sketches of the minutes, merged")
ax.fill_between(growth.index, growth["lower"], growth["upper"], alpha=0.2)
ax.plot(growth["truth"], color=plots.COLORS["text"], linestyle=":", label="exact")
ax.yaxis.set_major_formatter("{x:,.0f}")
ax.set(xlabel="minutes after noon", xlim=(1, 60), ylim=0)
legend(ax)
last = growth.iloc[-1]
picture(
    ax,
    f"{last['truth']:,} users in the hour, and not {last['summed']:,}",
    "Distinct users from noon on. Counts of minutes do not add up: who stays is counted again. Their sketches do.",
)

# %% [markdown]
# ## 2. The 99th percentile
#
# "The 99th percentile response time over the last five minutes": Kleppmann's *Designing Data-Intensive Applications*
# warns that percentiles must not be averaged, neither over time nor over machines. It means nothing: a minute of a few
# slow requests weighs as much as one of thousands. To combine them, one has to combine the distributions. That is what
# a **KLL** sketch is for: it keeps the distribution, and two of them merge.

# %%
slowest = agg.approx_percentile("ms", [0.99], k=800)
five = rolled_up("5 minutes", ms=sketches.merge("ms", like=slowest))
p99 = [sketches.read(blob).quantile(0.99) for blob in minutes["ms"]]
ms = views["ms"].to_numpy()
compared = pd.DataFrame(
    {
        "exact": [
            np.quantile(ms[minute // 5 == number], 0.99, method="inverted_cdf")
            for number in range(12)
        ],
        "averaged": np.reshape(p99, (12, 5)).mean(axis=1).round(1),
        "merged": [answer["estimate"][0] for answer in five["ms"]],
        "lower": [answer["lower"][0] for answer in five["ms"]],
        "upper": [answer["upper"][0] for answer in five["ms"]],
    },
    index=pd.Index(five["window_start"], name="from"),
)
assert compared["exact"].between(compared["lower"], compared["upper"]).all()
ax = plots.plot_estimates(
    compared.reset_index(), x="from", estimate="merged", lower="lower", upper="upper", truth="exact"
)
ax.scatter(range(12), compared["averaged"], marker="X", s=70, color=plots.COLORS["corrected"])
ax.set(yscale="log", ylim=(250, 6_000), ylabel="milliseconds; X: averaged")
ax.set_yticks([300, 1_000, 3_000])
wrong = compared["averaged"] / compared["exact"]
picture(
    ax,
    f"The average: {1 / wrong.min():.1f} times too little, then {wrong.max():.1f} times too much",
    "99th percentile of the response time over five minutes: the sketches of the minutes merged, with bounds,\n"
    "what it is, and (X) the mean of the percentiles of the minutes.",
)

# %%
off = compared["averaged"] / compared["exact"] - 1
assert off.min() < -0.5
assert off.max() > 1
assert views_of[47] < 0.01 * views_of[45:50].sum()
compared.assign(off=off.map("{:+.0%}".format)).iloc[[5, 6, 9]]

# %% [markdown]
# During the advertisement the average hides more than half of how slow the shop was. With the failing server it cries
# wolf: the requests of that minute are less than a percent of those of the five, and hardly move their percentile; but
# they are a fifth of the average. The merged sketches have the truth between their bounds in each of the twelve.
#
# What a sketch of size `k` promises is a *rank*: what it calls the 99th percentile is the true one of some percentile
# next to it, `2.296 / k**0.9723` away at most, with a confidence of 99 %. How far apart the *values* are there is a
# matter of the values.

# %%
ordered = np.sort(ms)
points = np.unique(ordered[::200])
true_rank = np.searchsorted(ordered, points, side="right") / rows
ks = (50, 100, 200, 400, 800, 1_600, 3_200)
(of_k,) = sketched(*parts, **{str(k): sketches.kll_sketch_agg("ms", k=k) for k in ks})
quantile_sketches = {k: sketches.read(of_k[str(k)]) for k in ks}
rank_errors = pd.DataFrame(
    {
        "bytes": {k: len(sketch.to_bytes()) for k, sketch in quantile_sketches.items()},
        "promised": {k: sketch.rank_error for k, sketch in quantile_sketches.items()},
        "measured": {
            k: np.abs(np.array(sketch.ranks(points)) - true_rank).max()
            for k, sketch in quantile_sketches.items()
        },
    }
)
assert (rank_errors["measured"] <= rank_errors["promised"]).all()

levels = 1 - np.geomspace(0.5, 0.002, 50)
exact_tail = np.quantile(ms, levels, method="inverted_cdf")
tails = {
    k: pd.DataFrame(
        {**quantile_sketches[k].quantiles(levels.tolist()), "exact": exact_tail}, index=levels
    )
    for k in (200, 1_600)
}
left, right = panels(["error of the rank", "response time by percentile, with bounds"], 4.2)
plots.plot_error(rank_errors, x="bytes", error="measured", bound="promised", ax=left)
for (k, tail), color in zip(tails.items(), ("corrected", "on_time"), strict=True):
    area = {"color": plots.COLORS[color], "alpha": 0.25, "linewidth": 0, "label": f"k={k}"}
    right.fill_between(1 - tail.index, tail["lower"], tail["upper"], **area)
right.plot(1 - tail.index, tail["exact"], color=plots.COLORS["text"], label="exact")
right.loglog()
right.invert_xaxis()
right.xaxis.set_major_formatter(lambda q, _: f"{1 - q:.4g}")
right.yaxis.set_major_formatter("{x:,.0f} ms")
legend(right)
picture(
    left,
    "The rank is nearly right; the value is what stands there",
    "Left: the error of a rank against the bytes of the sketch, promised and measured at its worst, for k from 50 to 3,200.\n"
    "Right: what a rank that is nearly right means for the value, for two sizes.",
)

# %% [markdown]
# For the far tail, take a larger `k`: with 200, the bounds of the 99th percentile reach up to the greatest value.

# %%
at_99 = {k: sketch.quantiles([0.99]) for k, sketch in quantile_sketches.items()}
assert at_99[200]["upper"][0] == ms.max()
columns = ("lower", "estimate", "upper")
pd.DataFrame({k: {word: answer[word][0] for word in columns} for k, answer in at_99.items()})

# %% [markdown]
# ## 3. What is read most
#
# Pages are read by Zipf's law: few very often, most hardly ever. Counting each takes a counter per page. **Heavy
# hitters** have a fixed number of counters, and promise: no page with a share of more than `1 / (counters + 1)` is
# missing, and how often each was read lies between bounds that are certain. Here the sketches of the sixty minutes,
# merged by Spark:

# %%
like = agg.approx_top_k("page", at_least=0.01, counters=100, item_type="string")
(most,) = rolled_up("1 hour", pages=sketches.merge("pages", like=like))["pages"]
views_by_page = views["page"].to_pandas().value_counts()
columns = ["item", "lower", "upper"]
listed = pd.DataFrame([[item[word] for word in columns] for item in most["items"]], columns=columns)
listed = listed.set_index("item")
listed["truth"] = views_by_page[listed.index]
frequent = views_by_page[views_by_page >= 0.01 * rows]

assert set(frequent.index) <= set(listed.index)
assert listed["truth"].between(listed["lower"], listed["upper"]).all()
assert most["relative_error"] <= 1 / 101
ax = plots.plot_estimates(
    listed.reset_index(), x="item", estimate="upper", lower="lower", upper="upper", truth="truth"
)
ax.axvline(0.01 * rows, color=plots.COLORS["corrected"], linestyle="--")
ax.set_xlabel("views")
picture(
    ax,
    f"{len(listed)} pages of {len(views_by_page):,}, and none of a percent is missing",
    "Views of the reported pages, between bounds that are certain; the upper one is the estimate.\n"
    "Dashed: a percent of all views. No page with more of them is missing.",
)

# %% [markdown]
# Fewer counters, more error. It is mostly far below what is promised, because a micro-batch is counted exactly first,
# and only then cut. `sure` is how many pages are certainly among the percent, by `lower`:

# %%
several = (25, 50, 100, 200, 400, 800)
(of_counters,) = sketched(
    *parts, **{str(n): sketches.top_k_sketch_agg("page", counters=n) for n in several}
)
heavy = {n: sketches.read(of_counters[str(n)]) for n in several}
hit = pd.DataFrame(
    {
        "bytes": {n: len(sketch.to_bytes()) for n, sketch in heavy.items()},
        "promised error": {n: rows // (n + 1) for n in several},
        "error": {
            n: round(sketch.estimate()["relative_error"] * rows) for n, sketch in heavy.items()
        },
        "sure": {
            n: sum(item["lower"] >= 0.01 * rows for item in sketch.estimate()["items"])
            for n, sketch in heavy.items()
        },
    }
)
assert (hit["error"] <= hit["promised error"]).all()
hit

# %% [markdown]
# ## 4. Duplicates over a month
#
# A producer that gets no answer sends its order again: at once, or weeks later. To drop the second one, a stream must
# know all ids of the last month. A **Bloom filter** knows them in a few bits each. It never denies one that it has
# seen, so no duplicate passes; and takes a share of the new ones for old, which is chosen beforehand.


# %%
def ids(count: int, seed: int) -> pa.Array:
    """Ids as producers make them: 32 hexadecimal digits."""
    digits = np.random.default_rng(seed).bytes(16 * count).hex()
    return pa.array([digits[at : at + 32] for at in range(0, 32 * count, 32)])


month, others = ids(150_000, seed=1), ids(300_000, seed=2)
rates = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003)
made = {
    str(rate): sketches.bloom_filter_agg("id", capacity=len(month), false_positive_rate=rate)
    for rate in rates
}
(of_rate,) = sketched(pa.table({"id": month}), **made)
blooms = {rate: sketches.read(of_rate[str(rate)]) for rate in rates}
assert all(bloom.may_contain(month).all() for bloom in blooms.values())
positives = pd.DataFrame(
    {
        "bytes": {rate: len(bloom.to_bytes()) for rate, bloom in blooms.items()},
        "per_id": {rate: len(bloom.to_bytes()) / len(month) for rate, bloom in blooms.items()},
        "measured": {rate: bloom.may_contain(others).mean() for rate, bloom in blooms.items()},
    }
)
as_ids = month.nbytes
ax = plots.plot_error(
    positives.rename_axis("promised").reset_index(),
    x="per_id", error="measured", bound="promised",
)  # fmt: skip
for per_id, name in ((8, "a hash of 64 bits"), (as_ids / len(month), "the ids themselves")):
    ax.axvline(per_id, color=plots.COLORS["retracted"], linestyle="--")
    ax.text(0.97 * per_id, 0.1, name, ha="right", va="top", rotation=90)
ax.set(xscale="log", xlabel="bytes per id", ylabel="new ids taken for old")
ax.set_xticks([0.5, 1, 2, 4, 8, 16, 32], ["0.5", "1", "2", "4", "8", "16", "32"])
one = positives.loc[0.001]
picture(
    ax,
    f"{one['per_id']:.1f} bytes for an id of {as_ids / len(month):.0f}; {one['measured']:.2%} of new ones taken for old",
    "Of ids that never came, the share that the filter says came: promised, and measured. Of those that came it denies none.",
)

# %% [markdown]
# `sketches.seen` does it for a stream, with filters that rotate: an id is forgotten a month after its order, or a
# little later. On Spark, with one order in fifty that is sent again, at any time until the end of the month:

# %%
first = np.sort(rng.random(len(month))) * 30
again = np.flatnonzero(rng.random(len(month)) < 0.02)
resent = first[again] + rng.random(len(again)) * (30 - first[again])
days = np.concatenate([first, resent])
order = np.argsort(days, stable=True)
orders = pa.table(
    {
        "ts": pa.array(noon + (days * 86_400_000_000).astype(np.int64), pa.timestamp("us", "UTC")),
        "order_id": pa.concat_arrays([month, month.take(pa.array(again))]),
        "sent_again": np.arange(len(days)) >= len(month),
    }
).take(pa.array(order))

once = sketches.seen(
    "order_id",
    capacity=len(month),
    false_positive_rate=0.001,
    time="ts",
    horizon="30 days",
    again="flag",
).options(shards=1)
edges = np.linspace(0, len(orders), 4).astype(int)
thirds = [orders.slice(start, end - start) for start, end in pairwise(edges)]
query = (
    micro_batches(spark, thirds)
    .transform(once)
    .writeStream.format("parquet")
    .option("path", str(folder / "orders"))
    .option("checkpointLocation", str(folder / "orders-checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
written = spark.read.parquet(str(folder / "orders")).select("sent_again", "seen").toPandas()
decisions = pd.crosstab(written["sent_again"], written["seen"])
decisions = decisions.reindex(columns=["first", "again"], fill_value=0)
assert decisions.to_numpy().sum() == len(orders)
assert decisions.loc[True, "first"] == 0  # no duplicate passes
assert decisions.loc[False, "again"] <= 0.001 * len(month)
decisions

# %% [markdown]
# No duplicate passed, and of the new orders no more than one in a thousand was held for one.
#
# ## 5. Audiences that overlap
#
# How many saw both campaigns? Counts cannot tell, and HyperLogLog sketches can be united only. A **theta** sketch is a
# sample, chosen by the hash: of two sketches the samples agree on who belongs into them, so they can be intersected and
# subtracted.

# %%
audience = 30_000
shares = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
pairs = {share: round(2 * audience * share / (1 + share)) for share in shares}
seen_by = pa.table(
    {
        "pair": np.repeat(shares, 2 * audience),
        "campaign": np.tile(np.repeat(["spring", "summer"], audience), len(shares)),
        "user": np.concatenate(
            [
                10**6 * number + start + np.arange(audience)
                for number, both in enumerate(pairs.values())
                for start in (0, audience - both)
            ]
        ),
    }
)
theta_ks = (1_024, 4_096)
of_k = {str(k): sketches.theta_sketch_agg("user", k=k) for k in theta_ks}
theta = {
    (row["pair"], row["campaign"], k): sketches.read(row[str(k)])
    for row in sketched(seen_by, by=("pair", "campaign"), **of_k)
    for k in theta_ks
}
shared = pd.DataFrame(
    {"share": share, "k": k, "truth": pairs[share]}
    | theta[share, "spring", k].overlap(theta[share, "summer", k])["both"]
    for share in shares
    for k in theta_ks
)
times = {word: shared[word] / shared["truth"] for word in ("estimate", "lower", "upper")}
sized = shared.assign(**times, one=1.0, share=[f"{share:.0%} shared" for share in shared["share"]])
ax = plots.plot_estimates(
    sized.assign(sketch=[f"k={k:,}" for k in shared["k"]]),
    x="share", estimate="estimate", lower="lower", upper="upper", truth="one", by="sketch",
)  # fmt: skip
ax.set_xlabel("estimate / truth")
picture(
    ax,
    "What few share is found in few hashes",
    "Estimated size of what two audiences share, as a multiple of the truth, with its bounds: against the share.",
)

# %% [markdown]
# One pair in full. The parts are measured in one sample, so they add up, but for rounding:

# %%
spring, summer = (theta[0.1, campaign, 4_096] for campaign in ("spring", "summer"))
parts_of = spring.overlap(summer)
added = sum(parts_of[part]["estimate"] for part in ("both", "only_left", "only_right"))
assert abs(added - parts_of["either"]["estimate"]) <= 2
pd.DataFrame({part: parts_of[part] for part in ("both", "only_left", "only_right", "either")}).T

# %% [markdown]
# Of few users shared by many, few hashes are found, and the bounds say so. What a set operation leaves is a sketch
# again: new this summer, for instance, is `summer.difference(spring)`.
#
# ## 6. What it came to
#
# The same answers, by everything and by a sketch. `off` is how far the sketch was off here, `promised` its own error
# bound:

# %%
pages_exact = sum(len(name) + 8 for name in views_by_page.index)
both = parts_of["both"]
summary = pd.DataFrame(
    [
        ("users of the hour", "HyperLogLog, p=12", users * 8, len(merged_users),
         growth["merged"].iloc[-1] / users - 1, 1.04 / np.sqrt(2**12)),
        ("99th percentile", "KLL, k=800", rows * 8, rank_errors.loc[800, "bytes"],
         rank_errors.loc[800, "measured"], rank_errors.loc[800, "promised"]),
        ("pages of a percent", "heavy hitters, 100", pages_exact, hit.loc[100, "bytes"],
         hit.loc[100, "error"] / rows, 1 / 101),
        ("orders of a month", "Bloom, 0.001", as_ids, positives.loc[0.001, "bytes"],
         positives.loc[0.001, "measured"], 0.001),
        ("in both audiences", "theta, k=4,096", 2 * audience * 8,
         len(spring.to_bytes()) + len(summer.to_bytes()),
         both["estimate"] / pairs[0.1] - 1, both["relative_error"]),
    ],
    columns=["question", "sketch", "exact bytes", "bytes", "off", "promised"],
).set_index("question")  # fmt: skip
assert (summary["bytes"] < summary["exact bytes"]).all()
summary["times less"] = (summary["exact bytes"] / summary["bytes"]).map("{:.0f}".format)
summary.assign(**{name: summary[name].map("{:.2%}".format) for name in ("off", "promised")})

# %% [markdown]
# Users count with 8 bytes each, response times too, a page with its name and 8 bytes, an order with its id. These are
# the bare values; a store of state takes more. What differs is what `off` is about: of the number of users and of those
# in both audiences it is the relative error; of the percentile the error of the rank; of the pages the error of a
# count, as a share of all views; of the orders the share of new ones taken for old. `promised` is a standard error for
# users and audiences, which one estimate in three exceeds; a limit for the others, for the percentile with 99 %
# confidence.
#
# The gain grows with the stream: in ten times as many views there are ten times as many response times, and the sketch
# is hardly larger.
#
# ## 7. What they do not do
#
# - **They do not forget.** A sketch keeps no values, so it cannot take one back. A change stream is refused while the
#   plan is built, `CHANGE_STREAM_INPUT`: fold it to a table and count there, or subtract one theta sketch from
#   another.
# - **They do not name their values.** All but those of heavy hitters and of quantiles know hashes only.
# - **They do not pay for few values.** A set of a hundred users is smaller than most sketches of them, and exact:
#   `aggregates.count_distinct`.
# - **They are not exact where money is.** A limit, an invoice, an alarm at the thousandth user: count.
# - **They do not promise a value, only a rank.** Where response times lie far apart, so do the bounds of a percentile.
# - **They do not merge with others.** Sketches of another `p` or `k`, of another kind, or of values of another type
#   have nothing in common. An `int` 1 and a `bigint` 1 are two values.
# - **HyperLogLog does not intersect.** Theta does, for several times the bytes, as the first picture shows; and finds
#   what few share in few hashes.
# - **A Bloom filter does not grow.** Beyond its capacity more new ids are taken for old than was promised. `seen` fails
#   then, by default.
# - **They do not all come out alike.** HyperLogLog, theta and Bloom are the same to the last bit however the stream was
#   cut. KLL and heavy hitters can differ, within what they promise.
# - **They do not keep a secret.** Whoever has a sketch can ask it for a value that he guesses.
#
# Each in detail, with what was measured, is in [docs/sketches.md](../docs/sketches.md); the bytes are in
# [docs/state-formats.md](../docs/state-formats.md).

# %% [markdown]
# ## Takeaway
#
# If an answer may be off by a percent, it need not remember everything. Choose the sketch by the question and its size by the error that it
# states, store it for the smallest period, and merge: counts and percentiles of parts do not add up, their sketches do.

# %%
spark.stop()
