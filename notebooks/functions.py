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
# # Functions per key: an abandoned cart, and a seat that two people want
#
# How do you compute what no operator computes, and still get the same result however the stream is divided? You write a Python
# function that sees one key at a time: its rows in order, its state, and its timers. `process.per_key` runs it, and
# `sourcing.decide` is built on it. In pictures:
#
# 1. Rows, state and timers
# 2. When the function is called
# 3. A function that is wrong
# 4. A seat that two people want
# 5. One log, many states
# 6. What is stored
# 7. What they do not do
#
# It needs no Java: the micro-batches are replayed by the code that runs on Spark. `make notebooks` runs it and renews its
# pictures. How they are drawn is in `drawing.py` and `functions_pictures.py`.

# %%
import datetime as dt
from functools import reduce

import functions_pictures as pictures
import numpy as np
import pandas as pd
from drawing import show
from hypothesis import given, settings
from hypothesis import strategies as st
from patterns_pictures import state as picture_of_state

from streamops import process, sourcing
from streamops.testing import laws, replay

nine = dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC)


def at(minute: float) -> dt.datetime:
    """So many minutes after nine."""
    return nine + dt.timedelta(minutes=float(minute))


def rows_of(results):
    """The output of all micro-batches."""
    return [row for result in results for row in result.rows]


# %% [markdown]
# ## 1. Rows, state and timers
#
# A cart that nobody touches for ten minutes is abandoned. Each row sets a timer, and cancels the one before. If it fires, the
# customer is reminded, and the cart is empty again.

# %%
patience = dt.timedelta(minutes=10)


def follow(key, rows, state, timers):
    for row in rows:
        timers.cancel_all()
        if row.type == "buy":
            yield "bought", state.items, None
            state.items = 0
        else:
            state.items += 1
            timers.set(row.ts + patience)
            yield "added", state.items, row.ts + patience


def remind(key, time, state, timers):
    yield "reminded", state.items, None
    state.items = 0


carts = process.per_key(
    follow,
    on_timer=remind,
    by="user",
    state="items int",
    initial={"items": 0},
    output="event string, items int, timer timestamp",
    time="ts",
    delay="2 minutes",
).options(shards=1)


def touched(user, minute, type_="add"):
    return {"user": user, "ts": at(minute), "type": type_}


happened = [
    *(touched("ann", minute) for minute in (1, 4, 12)),
    touched("ann", 15, "buy"),
    *(touched("bob", minute) for minute in (3, 8)),
    *(touched("cem", minute) for minute in (2, 15, 21)),
    touched("cem", 26, "buy"),
]
arrived = sorted(
    happened, key=lambda row: row["ts"] + dt.timedelta(seconds=row["ts"].minute * 47 % 100)
)
batches = [arrived[n : n + 4] for n in range(0, len(arrived), 4)] + [[touched("dan", 32)]]
output = [row for row in rows_of(replay(carts, batches)) if row["user"] != "dan"]
show(
    pictures.lifelines(
        output,
        "Carts that nobody touches",
        "Ten minutes after the last row the timer fires, as for Bob and Cem. Bars are the state: the number of items.",
    )
)  # fmt: skip

# %% [markdown]
# A timer is event time: it fires when the watermark reaches it, after the rows at that instant and before all later ones, even if
# they are in the same micro-batch. Once the state is the initial one again, and no timer is set, the key is not stored.

# %% [markdown]
# ## 2. When the function is called
#
# A row waits until the watermark has reached it. So the function sees the rows of a key in the order of event time, although they
# arrived in another one. A row that arrives behind the watermark is late.

# %%
script = [
    [touched("ann", 2), touched("ann", 1), touched("ann", 4)],
    [touched("ann", 3), touched("ann", 7), touched("ann", 6)],
    [touched("ann", 5), touched("ann", 10)],
    [touched("ann", 14), touched("ann", 3.5)],
]
routed = process.per_key(
    follow,
    on_timer=remind,
    by="user",
    state="items int",
    initial={"items": 0},
    output="event string, items int, timer timestamp",
    time="ts",
    delay="2 minutes",
    stragglers="route",
)
show(
    pictures.arrivals(
        script, replay(routed, script),
        "What arrives, and what is processed",
        "Above each line what arrived, below it what was processed, with the new number of items. Dashed: the watermark.",
    )
)  # fmt: skip

# %% [markdown]
# ## 3. A function that is wrong
#
# A function is wrong if its result depends on where a micro-batch ends. This one yields the mean of the rows that it was called
# with. Beside it, one that has the sum in its state:


# %%
def mean_of_call(key, rows, state):
    values = [row.amount for row in rows]
    if values:
        yield (sum(values) / len(values),)


def running_mean(key, rows, state):
    for row in rows:
        state.n += 1
        state.total += row.amount
        yield (state.total / state.n,)


wrong, right = (
    process.per_key(
        function,
        by="user",
        state="n int, total double",
        initial={"n": 0, "total": 0.0},
        output="mean double",
        time="ts",
        delay="0 seconds",
    )
    for function in (mean_of_call, running_mean)
)
paid = [
    {"user": "ann", "ts": at(n), "amount": float(amount)}
    for n, amount in enumerate([4, 8, 1, 9, 2, 10, 3, 3])
]
divisions = {size: [paid[n : n + size] for n in range(0, len(paid), size)] for size in (8, 4, 2)}
found = {
    name: {size: rows_of(replay(operator, rows, flush=True)) for size, rows in divisions.items()}
    for name, operator in (("the mean of a call", wrong), ("a running mean", right))
}
assert found["a running mean"][8] == found["a running mean"][4] == found["a running mean"][2]
show(
    pictures.divided(
        found, at(0), "Eight rows, divided in three ways",
        "What the first function yields depends on where micro-batches end. The second one yields the same results.",
    )
)  # fmt: skip

# %% [markdown]
# The laws find that without Spark: Hypothesis searches for a history whose result differs from that of the batch, and makes it as
# small as possible.

# %%
amounts = {"user": st.just("ann"), "amount": st.sampled_from([1.0, 2.0])}


@settings(database=None, derandomize=True)
@given(batches=laws.histories(amounts, time="ts"))
def check(batches):
    if any(batches):
        laws.check_operator(wrong, batches)


try:
    check()
except AssertionError as error:
    print(error.__notes__[0])
    smallest = next(note for note in error.__notes__ if "check(" in note)
    print(smallest.count("'user'"), "rows are enough.")

# %% [markdown]
# ## 4. A seat that two people want
#
# Ann and Bob ask for seat 12A at the same time. `sourcing.decide` decides their commands one after the other, and emits what
# happened: numbered events, or rejections with a reason. A command has the version of the seat that its sender has seen.


# %%
def change_seat(state, command):
    if command.op == "reserve":
        if state.holder is not None:
            return sourcing.Rejected("taken")
        return [("reserved", command.person)]
    if state.holder != command.person:
        return sourcing.Rejected("not yours")
    return [("released", command.person)]


def fold_seat(state, event):
    return state._replace(holder=event.person if event.type == "reserved" else None)


seats = sourcing.decide(
    change_seat,
    fold_seat,
    by="seat",
    command_id="id",
    time="ts",
    expected_version="seen",
    state="holder string",
    event="type string, person string",
    delay="1 minute",
)


def command(number, minute, person, op="reserve", seen=None, seat="12A"):
    return {
        "id": number, "seat": seat, "ts": at(minute), "person": person, "op": op, "seen": seen,
    }  # fmt: skip


commands = [
    command("a1", 2, "ann", seen=0),
    command("b1", 3.6, "bob", seen=0),
    command("a1", 5, "ann", seen=0),
    command("b2", 7, "bob", seen=1),
    command("a2", 10, "ann", "release", seen=1),
    command("b3", 13, "bob", seen=2),
    command("a3", 16, "ann", "release"),
]
in_disorder = [
    [commands[1], commands[0]],
    [commands[2], commands[4], commands[3]],
    commands[5:],
    [command("x", 25, "cem", seat="1B")],
]
decided = [row for row in rows_of(replay(seats, in_disorder)) if row["seat"] == "12A"]
show(
    pictures.seat(
        commands, decided, "Ann and Bob ask for one seat",
        "Seven commands became three events, three rejections, and one that was a repetition of the first.",
    )
)  # fmt: skip

# %% [markdown]
# Bob's first command arrived first, and was decided second: the order is that of event time. It had seen version 0, when the seat
# was at version 1. Ann sent her first command again, because the answer was lost; it has the same id, and yields nothing.

# %% [markdown]
# ## 5. One log, many states
#
# The events are what is stored for ever. The state of an entity is their fold and nothing else, so it can be computed again, also
# with another function. Sixty commands for six seats, and two folds of the same log:

# %%
rng = np.random.default_rng(11)
people = ("ann", "bob", "cem")
wanted = [
    command(
        f"c{n}", n + float(rng.random()), str(rng.choice(people)),
        str(rng.choice(["reserve", "release"], p=[0.6, 0.4])), seat=f"{int(rng.integers(1, 7))}C",
    )
    for n in range(60)
]  # fmt: skip
decisions = rows_of(replay(seats, [wanted[:20], wanted[20:40], wanted[40:]], flush=True))
log = [row for row in decisions if row["rejection"] is None]


def count_hands(state, event):
    """Another fold: how often each person got a seat."""
    return {**state, event["person"]: state.get(event["person"], 0) + (event["type"] == "reserved")}


reserved = reduce(count_hands, log, dict.fromkeys(people, 0))
assert sum(reserved.values()) == sum(row["type"] == "reserved" for row in log)
show(
    pictures.folds(
        decisions, reserved, at(62), f"{len(log)} events of six seats, folded in two ways",
        f"On the left who had which seat; {len(decisions) - len(log)} commands were rejected. On the right how often each person got one.",
    )
)  # fmt: skip

# %% [markdown]
# On Spark, `sourcing.fold` does that for a whole log, from the beginning or from a snapshot.

# %% [markdown]
# ## 6. What is stored
#
# Keys whose state is not the initial one, their timers, and rows above the watermark. Three hundred micro-batches of a hundred
# rows, each from one of 100,000 customers: a cart is forgotten when its timer fires.

# %%
stream = [
    [
        touched(int(rng.integers(0, 100_000)), number + float(rng.random()))
        for _ in range(100)
    ]
    for number in range(300)
]  # fmt: skip
sizes = pd.DataFrame(
    [(100, result.state_rows) for result in replay(carts, stream)], columns=["rows", "state"]
)
assert sizes["state"].iloc[20:].max() < 3_000
show(
    picture_of_state(
        sizes.iloc[:100], "State does not grow with the stream",
        "A hundred micro-batches with a hundred rows each: a key and its timer are stored for ten minutes.",
    )
)  # fmt: skip

# %% [markdown]
# ## 7. What they do not do
#
# - **They have no timers by the clock.** A timer is event time. If no rows come, the watermark stands still and no timer fires.
# - **They do not correct a result.** A row that arrives behind the watermark is counted, or delivered as side output.
# - **They do not see other keys.** A rule over two seats is a rule over one entity that has both.
# - **They do not call other systems exactly once.** After a failure Spark repeats a micro-batch, and the function is called again.
#   Yield a row, and let a sink deliver it.
# - **They are Python.** A call per row costs about a microsecond. Over columns nothing is called per row: `process.per_shard`.
#
# The rules are in [docs/process.md](../docs/process.md) and [docs/sourcing.md](../docs/sourcing.md).
