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
# # The chapter's seven figures, computed
#
# The chapter on stream processing of Kleppmann's *Designing Data-Intensive Applications* explains itself by seven figures. Are they true?
# Here, each is computed by operators, and asserts what it shows before it is drawn:
#
# 1. Load balancing and fan-out (11-1)
# 2. Redelivery that reorders (11-2)
# 3. Offsets in a partitioned log (11-3)
# 4. Two writers, two orders (11-4)
# 5. A leader and its followers (11-5)
# 6. State is the integral of a stream (11-6)
# 7. Two clocks (11-7)
# 8. What they do not do
#
# It runs in a clone of the repository in a minute: `pip install ".[java,notebook]"`. The functions are in
# [examples/chapter/figures.py](../examples/chapter/figures.py); `python -m examples.chapter 11-4` computes one of them. The page
# [The chapter, runnable](../docs/chapter.md) leads from each section of the chapter to the operators.

# %%
import inspect
import re

from drawing import show
from IPython.display import Code

from examples.chapter import figures, pictures
from streamops import changes, local_session
from streamops.testing import fold, replay

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)


def source(function):
    """The code of a figure, without its docstring."""
    return Code(
        re.sub(r'    """.*?"""\n', "", inspect.getsource(function), flags=re.S), language="python"
    )


# %% [markdown]
# ## 1. Load balancing and fan-out
#
# The consumers of a group share the messages of a topic, and each group has all of them. With Spark, a query is a group, and its tasks are
# the consumers. Two queries read 24 messages, one with two tasks, one with three.

# %%
source(figures.share_messages)

# %%
show(pictures.draw_sharing(figures.share_messages(spark)))

# %% [markdown]
# ## 2. Redelivery that reorders
#
# A broker delivers a message again if it was not acknowledged. Consumer 2 crashes while it handles message 3, and consumer 1 gets it after
# message 4. Both set the price of tea. Who applies messages as they arrive ends with the older price. `changes.apply` orders them by their
# sequence, so it ends with the newer one.

# %%
found = figures.redeliver()
show(pictures.draw_redelivery(found))

# %%
print("by arrival: ", found.by_arrival)
print("by sequence:", found.by_sequence)

# %% [markdown]
# The same in five lines, with micro-batches of your own:

# %%
prices = changes.apply("product", sequence="n", horizon=1_000)
as_delivered = [
    [{"product": "tea", "n": 4, "price": 104}],
    [{"product": "tea", "n": 3, "price": 103}],
]
fold(replay(prices, as_delivered, shards=1), key="product")

# %% [markdown]
# ## 3. Offsets in a partitioned log
#
# Consumers of a log only move their offset in each partition. A slow group does not hinder a fast one, and a consumer that dies begins
# again where its offsets say. The table that results is the same for 20 random interleavings of the partitions, some of them
# with repeated records: the records of a key are in one partition, in one order.

# %%
source(figures.read_log)

# %%
show(pictures.draw_log(figures.read_log()))

# %% [markdown]
# ## 4. Two writers, two orders
#
# Two clients set the same value in a database, then in a search index. Of 10,000 products, how many end with two different values?

# %%
race = figures.race()
print(f"dual writes: {race.by_dual_writes.sum():,} of {len(race.by_log):,} differ, for ever")
print(
    f"from the log of the database, in random micro-batches, half of it twice: {race.by_log.sum()}"
)
show(pictures.draw_race(race))

# %% [markdown]
# ## 5. A leader and its followers
#
# A follower applies the log of the leader in its order, in its own time. After each micro-batch it equals the leader as it was at an
# earlier position; the warehouse, which was down for a while, catches up.

# %%
show(pictures.draw_followers(figures.follow()))

# %% [markdown]
# ## 6. State is the integral of a stream
#
# `fold` adds up changes, `changes.normalize` finds what differs between copies of a table. One undoes the other, as integral and derivative
# do: the sum of the net changes is the curve, and the differences of the curve are the net changes.

# %%
source(figures.integrate)

# %%
show(pictures.draw_calculus(figures.integrate()))

# %% [markdown]
# ## 7. Two clocks
#
# Twelve requests a minute. The consumer is down for five minutes, and then reads its backlog. Counted by the time at which they are processed,
# there is a gap and a spike. Counted by the time at which they happened, there is nothing.

# %%
show(pictures.draw_clocks(figures.compare_clocks()))

# %% [markdown]
# ## 8. What they do not do
#
# - **They do not replace the chapter.** It has the reasons.
# - **They are no benchmark.** The figures have a few dozen rows, and most of them are replayed without Spark.
#   [docs/performance.md](../docs/performance.md) has measurements.
# - **They do not acknowledge messages.** Figure 11-2 simulates a broker that does; Spark reads logs.
# - **They do not prove that a network behaves.** The tests kill brokers, databases, drivers and tasks, and compare.

# %% [markdown]
# ## Takeaway
#
# Write to a log, and derive the rest from it. Order by a sequence, not by arrival; count by when it happened. Then what is delivered late, twice or
# in another order ends in the same table.

# %%
spark.stop()
