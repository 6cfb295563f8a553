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
# # Changes: the table behind a log
#
# What does a table contain, if its changes arrive twice and in the wrong order? The log of a database has the answer in the *position*
# of each change. This notebook follows the customers of a shop from their log to a table, to its history, and to a shorter log:
#
# 1. The log as it arrives
# 2. The table: by arrival, and by position
# 3. A change stream, and how it folds to a table
# 4. The history of the rows
# 5. A shorter log
# 6. What is stored
# 7. What they do not do
#
# It needs no Java: the micro-batches are replayed by the code that runs on Spark. `make notebooks` runs it and renews its
# pictures, which are made by `streamops.plots`.

# %%
import numpy as np
import pandas as pd
from drawing import picture

from streamops import changes, plots
from streamops.errors import StreamopsError
from streamops.testing import fold, replay

# %% [markdown]
# ## 1. The log as it arrives
#
# Three customers move, one leaves and comes back. A connector delivers each change *at least once*: after its restart it sends the last
# ones again. And the topic has partitions that are read at different speeds, so that a change may overtake another one.

# %%
log = [
    {"id": 1, "city": "Oslo", "lsn": 10, "_change_type": "insert"},
    {"id": 2, "city": "Rome", "lsn": 20, "_change_type": "insert"},
    {"id": 3, "city": "Bern", "lsn": 30, "_change_type": "insert"},
    {"id": 1, "city": "Paris", "lsn": 40, "_change_type": "update_postimage"},
    {"id": 2, "city": None, "lsn": 50, "_change_type": "delete"},
    {"id": 1, "city": "Wien", "lsn": 60, "_change_type": "update_postimage"},
    {"id": 3, "city": "Graz", "lsn": 70, "_change_type": "update_postimage"},
    {"id": 2, "city": "Linz", "lsn": 80, "_change_type": "insert"},
]
at_position = {change["lsn"]: change for change in log}
deliveries = [[10, 20], [60, 50], [30, 40, 20], [80], [70, 40], [80, 50]]
batches = [[at_position[lsn] for lsn in lsns] for lsns in deliveries]
arrived = [
    change | {"batch": number} for number, changes_ in enumerate(batches) for change in changes_
]
ax = plots.plot_watermark(arrived, time="lsn", arrival="batch")
ax.set_ylabel("position in the log")
picture(
    ax,
    "Eight changes in twelve deliveries",
    "If they arrived once and in order, each dot would be above all dots to its left.",
)

# %% [markdown]
# ## 2. The table: by arrival, and by position
#
# Two programs maintain the table. The first one writes whatever arrives. The second one is `changes.normalize`: a change is effective only
# if its position is above that of the last change of its key, also if that was a delete.

# %%
upserts = changes.normalize("id", sequence="lsn", horizon=1_000).options(shards=1)
results = replay(upserts, batches)
by_arrival, by_position, seen = {}, {}, []
displayed = []
for number, result in enumerate(results[: len(batches)]):
    for change in batches[number]:
        by_arrival[change["id"]] = change["city"]
    seen += result.rows
    by_position = {row["id"]: row["city"] for row in fold(seen, key="id")}
    for name, table in (("by arrival", by_arrival), ("by position", by_position)):
        displayed += [
            {"id": id_, "table": name, "city": city, "valid_from": number, "valid_to": number + 1}
            for id_, city in table.items()
            if city is not None
        ]
assert by_position == {1: "Wien", 2: "Linz", 3: "Graz"}
assert by_arrival[1] == "Paris"
assert by_arrival[2] is None


def merge_equal(rows: list[dict]) -> list[dict]:
    """Adjacent versions with the same city as one; the last one of the table is open."""
    merged = []
    for row in sorted(rows, key=lambda row: (row["id"], row["table"], row["valid_from"])):
        last = merged[-1] if merged else {}
        same = all(last.get(name) == row[name] for name in ("id", "table", "city"))
        if same and last["valid_to"] == row["valid_from"]:
            last["valid_to"] = row["valid_to"]
        else:
            merged.append(dict(row))
    return [row | {"valid_to": None} if row["valid_to"] == len(batches) else row for row in merged]


ax = plots.plot_history(merge_equal(displayed), by=["id", "table"], label="city")
ax.set_xlabel("micro-batch")
picture(
    ax,
    "By arrival, customer 1 lives in Paris, and customer 2 is lost",
    "What each of the two tables displays after every micro-batch; the versions in blue are those at the end.",
)

# %% [markdown]
# By arrival, the repeated deliveries at the end win: Paris, which customer 1 had left, and the delete of customer 2, who had come back.
# By position they are *stale*, or *duplicates*, and are counted:

# %%
names = ("rows", "duplicates", "stale", "ignored", "rejected")
pd.DataFrame(
    [[getattr(result.counts, name) for name in names] for result in results[: len(batches)]],
    columns=names,
).rename_axis("micro-batch")

# %% [markdown]
# ## 3. A change stream, and how it folds to a table
#
# What `normalize` emits is a *change stream*: each change has the row before and after. So a reader need not know the table to maintain
# a sum, and whoever has the stream from its beginning has the table. It *folds* to it:

# %%
pd.DataFrame(seen)[["id", "_change_type", "city", "revision"]]

# %%
table = pd.DataFrame(fold(seen, key="id")).sort_values("id")
assert dict(zip(table["id"], table["city"], strict=True)) == by_position
table[["id", "city"]]

# %% [markdown]
# Folding checks the stream. A preimage that does not equal the row that was published is a mistake of the program that emitted it, and not
# a row to be ignored. `testing.fold` folds rows; `changes.fold` does it for a batch frame of Spark, with the same checks.

# %%
wrong = [
    row | ({"city": "Rom"} if row["_change_type"] == "update_preimage" else {}) for row in seen
]
try:
    fold(wrong, key="id")
except StreamopsError as error:
    print(error.code)

# %% [markdown]
# ## 4. The history of the rows
#
# Where was an order of position 55 sent to? A table of the current rows has forgotten it. With `history="intervals"` (type 2 of a slowly
# changing dimension) the table has every version with the interval in which it was valid. The difficult part is a change that arrives late:
# it *splits* the interval into which it falls.

# %%
versions = changes.apply("id", sequence="lsn", horizon=1_000, history="intervals")
history = replay(versions, batches)
rows_of_one = [
    row | {"batch": result.batch} for result in history for row in result.rows if row["id"] == 1
]
ax = plots.plot_corrections(rows_of_one, start="valid_from", end="valid_to", label="city")
ax.set_xlabel("position in the log")
picture(
    ax,
    "Paris arrives after Wien, and before it in the history",
    "What each micro-batch emitted of customer 1. Hatched is what it retracted; an interval without an end is the current one.",
)

# %%
final = fold([row for result in history for row in result.rows], key=["id", "valid_from"])
ax = plots.plot_history(final, by="id", label="city")
ax.set_xlabel("position in the log")
picture(
    ax,
    "Every version, with the interval of the log in which it was valid",
    "Customer 2 was away from position 50 to 80. No two intervals of a customer overlap, and at most one is open.",
)

# %% [markdown]
# The result does not depend on the order of arrival. Here are the same changes in thirty random orders, cut into micro-batches anywhere:

# %%
rng = np.random.default_rng(12)
outcomes = set()
for _ in range(30):
    shuffled = [log[n] for n in rng.permutation(len(log))]
    cut = int(rng.integers(1, len(log)))
    folded = fold(
        [
            row
            for result in replay(versions, [shuffled[:cut], shuffled[cut:]])
            for row in result.rows
        ],
        key=["id", "valid_from"],
    )
    columns = ("id", "city", "valid_from", "valid_to")
    outcomes.add(tuple(sorted(tuple(str(row[name]) for name in columns) for row in folded)))
assert outcomes == {tuple(sorted(tuple(str(row[name]) for name in columns) for row in final))}
len(outcomes)

# %% [markdown]
# ## 5. A shorter log
#
# A new reader of the log has to read all of it, though most changes were overwritten long ago. `changes.compact` retains the last change of
# each key, and a delete for as long as a reader may need to see it. It is a filter on a batch frame of Spark, which also retains what supplies
# missing values, tombstones and truncates; for a log without these, it is the three lines of pandas below. Eight customers, a
# hundred and twenty changes:

# %%
changes_of = []
living: set[int] = set()
for position in range(120):
    id_ = int(rng.integers(0, 8))
    leaves = id_ in living and rng.random() < 0.2
    type_ = "delete" if leaves else "update_postimage" if id_ in living else "insert"
    (living.discard if leaves else living.add)(id_)
    city = None if leaves else f"city {rng.integers(0, 50)}"
    changes_of.append({"id": id_, "city": city, "lsn": position, "_change_type": type_})
retention = 50
newest = pd.DataFrame(changes_of).groupby("id", as_index=False).last()
is_recent = newest["lsn"] >= len(changes_of) - 1 - retention
compacted = newest[(newest["_change_type"] != "delete") | is_recent]
retained = set(compacted["lsn"])
fates = [
    change | {"fate": "retained" if change["lsn"] in retained else "removed"}
    for change in changes_of
]
fates.sort(key=lambda change: change["fate"])
nothing = {"id": [], "match_start": [], "match_end": []}
ax = plots.plot_matches(nothing, fates, time="lsn", by="id", category="fate")
ax.set_xlabel("position in the log")
picture(
    ax,
    f"{len(compacted)} of {len(changes_of)} changes are enough for a new reader",
    "The changes of each customer, by position. The last one is enough, and an old delete is not needed at all.",
)

# %% [markdown]
# The table is the same from the whole log and from the compacted one:

# %%
tables = []
for changes_ in (changes_of, compacted.sort_values("lsn").to_dict("records")):
    emitted = [row for result in replay(upserts, [changes_]) for row in result.rows]
    tables.append({row["id"]: row["city"] for row in fold(emitted, key="id")})
assert tables[0] == tables[1]
len(tables[0])

# %% [markdown]
# ## 6. What is stored
#
# To know that a change is stale, the operator stores the position of every key, also of deleted ones; those for the *horizon*, and then it
# evicts them. Twenty customers come in each micro-batch, and leave ten micro-batches later:

# %%
per_batch, stay, horizon = 20, 10, 800
crowd = []
for number in range(120):
    inserts = [per_batch * number + n for n in range(per_batch)]
    deletes = [id_ - stay * per_batch for id_ in inserts if id_ >= stay * per_batch]
    typed = [(id_, "insert") for id_ in inserts] + [(id_, "delete") for id_ in deletes]
    crowd.append(
        [
            {"id": id_, "city": "Oslo", "lsn": 40 * number + n, "_change_type": type_}
            for n, (id_, type_) in enumerate(typed)
        ]
    )
churning = changes.normalize("id", sequence="lsn", horizon=horizon).options(shards=1)
sizes = replay(churning, crowd)
# Those who stay, those who left within the horizon, and those of the micro-batch itself.
bound = per_batch * (stay + horizon // 40 + 1)
assert max(result.state_rows for result in sizes) <= bound
picture(
    plots.plot_state(sizes, rows="rows", bound=bound),
    "The state is the table, and the deleted rows of the horizon",
    "Rows of state, and their bound: 20 customers of each of the last 31 micro-batches.",
)

# %% [markdown]
# ## 7. What they do not do
#
# - **They do not order changes by time.** The clock of a database may stand still or be set back. The position in the log may not.
# - **They do not decide by arrival.** Two different changes of one key and position are a conflict: the greater one is effective, whichever
#   comes first, and the other one is rejected with the reason.
# - **They do not remember deletes for ever.** A change that is later than the horizon is rejected as `forgotten`, and never resurrects a row.
# - **They do not guess a missing value.** What a connector did not send is carried forward from the previous change. With a null it is null.
# - **They do not repair a log.** A change that was never delivered is missing in the table. Compare with the source from time to time:
#   `changes.differences`.
# - **A compacted log does not have the history.** It has the table.
#
# The rules are in [docs/changes.md](../docs/changes.md).

# %% [markdown]
# ## Takeaway
#
# Order changes by their position in the log, and store the position of each key, also of deleted ones. Then a table, its history and a
# shorter log are the same, however often and in whatever order the changes arrive.
