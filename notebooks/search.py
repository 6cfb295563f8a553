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
# # Stored queries: who wants to know of this advert?
#
# A search finds the documents that match a query. What if the documents pass by, and the queries are what is stored? Then each
# document has to find its queries, and ten thousand people with a saved search must not make a document ten thousand times as
# expensive. `search.match` does that. In pictures:
#
# 1. Documents and queries
# 2. What a query means
# 3. When a query takes effect
# 4. The queries of then
# 5. Candidates, and not all queries
# 6. What a document costs
# 7. Invalid queries
# 8. What they do not do
#
# It needs no Java: the micro-batches are replayed by the code that runs on Spark. `make notebooks` runs it and renews its
# pictures, which are made by `streamops.plots` and `drawing.py`.

# %%
import time
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
from drawing import grid, legend, panels, picture

from streamops import plots, search
from streamops.testing import Replay, at, replay


def matches_of(results):
    """Pairs of a document and a query, of all micro-batches."""
    return {(row["name"], row["query_id"]) for result in results for row in result.rows}


# %% [markdown]
# ## 1. Documents and queries
#
# Six adverts of a flea market, and the saved searches of six people. Words are searched in the title and the text; price and city
# are fields, whose values are compared.

# %%
market = search.match(
    None,  # on Spark: a stream of changes of the queries
    text=["title", "text"],
    fields=["price", "city"],
    sequence="lsn",
    horizon=1_000,
).options(shards=1)


def advert(name, title, text, price, city):
    return {"name": name, "title": title, "text": text, "price": price, "city": city}


adverts = [
    advert("red bicycle", "Red bicycle", "Almost new.", 80, "Oslo"),
    advert("bicycle rack", "Bicycle rack", "For a red car, or any other", 40, "Bergen"),
    advert("car", "Car", "Red, with bicycle rack", 9_000, "Bergen"),
    advert("lamp", "Lamp", "Red lamp from the sixties.", 120, "Oslo"),
    advert("kids' bike", "Bike for kids", "Blue. Kids grow.", 60, "Lillehammer"),
    advert("sofa", "Sofa", "Too large for our flat", None, "Oslo"),
]
saved = {
    1: "bicycle",
    2: '"red bicycle" OR "blue bike"',
    3: "title:bi* AND price:[* TO 70]",
    4: "red -car",
    5: "city:Oslo AND NOT price:*",
    6: "+city:Bergen +rack price:>5000",
}
entries = [{"id": number, "query": text, "lsn": number} for number, text in saved.items()]
matches = matches_of(replay(market, [(adverts, entries)]))
found = {
    name: ["match" if (name, number) in matches else "" for number in saved]
    for name in (row["name"] for row in adverts)
}
ax = grid(
    pd.DataFrame(found, index=saved.values()),
    lambda text: plots.COLORS["on_time" if text else "retracted"],
)
for label in ax.get_yticklabels():
    label.set_family("monospace")
picture(
    ax,
    f"{len(matches)} of {len(adverts) * len(saved)} pairs match",
    "Each advert is one document. Each row is a stored query, in Lucene's syntax.",
)

# %% [markdown]
# The car has both words, but not one after the other, so the phrase of the second query does not match it. The last query would
# find the rack at any price: a condition without a sign beside a `+` has no effect, as there is no score.

# %% [markdown]
# ## 2. What a query means
#
# Words are runs of letters and digits, in lower case. There is no stemming, and no word is left out.

# %%
document = advert("it", "Wi-Fi router", "Doesn't work in New York. Was 49.90", 15, "New York")
meanings = {
    "ROUTER": "upper and lower case are the same",
    "routers": "no stemming",
    "rout*": "a word that begins so",
    '"wi fi"': "punctuation separates words",
    "wi-fi": "so this is the same phrase",
    '"router doesn"': "no phrase spans two columns",
    '"in new york"': "no word is left out",
    "text:router": "the word is in another column",
    "city:york": "fields are compared as a whole",
    'city:"New York"': "including upper and lower case",
    "city:New*": "a value that begins so",
    "price:[10 TO 15}": "braces exclude a bound",
    "price:15.0": "the column has integers",
    "router -york": "excluded by a word of the text",
    "NOT sofa": "all documents without it",
}
results = replay(
    search.match(
        None, text=["title", "text"], fields=["price", "city"], sequence="lsn", horizon=1_000,
        rejected="route",
    ),
    [([document], [{"id": n, "query": text, "lsn": n} for n, text in enumerate(meanings)])],
)  # fmt: skip
found = {number for _, number in matches_of(results) if number is not None}
invalid = {row["row"]["right"]["id"] for result in results for row in result.late_rows}
print(*(document[name] for name in ("title", "text", "price", "city")), sep=" · ")
pd.DataFrame(
    [
        ("refused" if number in invalid else "yes" if number in found else "no", why)
        for number, why in enumerate(meanings.values())
    ],
    index=pd.Index(meanings, name="query"),
    columns=["matches", "why"],
)

# %% [markdown]
# ## 3. When a query takes effect
#
# The changes of a micro-batch are applied before its documents are matched. No document waits, and no result is revised. One and
# the same advert in eight micro-batches, while three queries come, change and go:

# %%
bike = advert("bike", "Red bicycle", "Almost new.", 80, "Oslo")
changes = {
    0: [(1, "bicycle", "insert")],
    1: [(2, "price:[* TO 50]", "insert")],
    3: [(2, "price:[* TO 100]", "update_postimage"), (3, "red -new", "insert")],
    5: [(1, None, "delete"), (3, "red", "update_postimage")],
    6: [(2, "pri?e", "update_postimage")],
}
sequence = iter(range(1, 100))
script = [
    (
        [bike],
        [
            {"id": number, "query": text, "_change_type": change, "lsn": next(sequence)}
            for number, text, change in changes.get(batch, [])
        ],
    )
    for batch in range(8)
]
schemas = tuple(
    pa.Table.from_pylist([row for pair in script for row in pair[side]]).schema for side in (0, 1)
)
results = replay(market, script, schema=schemas)
effective = [(result.batch, row["query_id"]) for result in results for row in result.rows]


def versions_of(changes, end):
    """The versions of each query, from (since, query, text); a text that is None deletes it."""
    table = pd.DataFrame(changes, columns=["from", "query", "text"]).sort_values("from")
    table["to"] = table.groupby("query")["from"].shift(-1).fillna(end)
    table["query"] = [f"query {number}" for number in table["query"]]
    return table.dropna()


def outcomes(times, matches):
    """Whether a document of each time matches each query."""
    return [
        {
            "query": f"query {query}",
            "t": t,
            "result": "matched" if (t, query) in matches else "not matched",
        }
        for query in (1, 2, 3)
        for t in times
    ]


valid = [
    (batch - 0.5, number, text)  # a micro-batch is as wide as its number
    for batch, some in changes.items()
    for number, text, _ in some
    if text != "pri?e"
]
bars = {"by": "query", "category": "result", "label": "text", "start": "from", "end": "to"}
ax = plots.plot_matches(
    versions_of(valid, 7.5), outcomes(range(8), set(effective)), time="t", **bars
)
ax.set_xlabel("micro-batch")
ax.get_legend().get_texts()[-1].set_text("in effect")
picture(
    ax,
    "Three queries, and when they are in effect",
    "The same advert in every micro-batch: a red bicycle, almost new, for 80. The version of micro-batch 6 is invalid,\n"
    "and never takes effect.",
)

# %% [markdown]
# So a replay with other micro-batches gives other results. That is the price of not waiting; the stored queries themselves do not
# depend on the order in which their changes arrive.

# %% [markdown]
# ## 4. The queries of then
#
# With `as_of`, an advert is matched with the queries that were valid at its event time. Each change of a query has a time, too, from
# which on it is valid. Adverts wait for the watermark, which is ten seconds behind the newest times of both, so that changes and
# adverts may arrive in any order within ten seconds. Here, the change of query 2 at 25 arrives after the advert of 28:

# %%
then = search.match(
    None, text=["title", "text"], fields=["price", "city"],
    as_of="ts", time="since", sequence="lsn", delay="10 seconds",
).options(shards=1)  # fmt: skip


def seen(second):
    """The same advert, at another time."""
    return bike | {"name": second, "ts": at(second)}


lsn = {5: 1, 10: 2, 25: 3, 30: 4, 35: 5, 45: 6}


def change(second, number, text, change_type="insert"):
    """A change of a query that is valid from this second on."""
    return {
        "id": number, "query": text, "since": at(second), "lsn": lsn[second],
        "_change_type": change_type,
    }  # fmt: skip


script = [
    ([seen(8), seen(15)], [change(5, 1, "bicycle"), change(10, 2, "red -new")]),
    ([seen(28), seen(22)], []),
    (
        [seen(33)],
        [
            change(25, 2, "red", "update_postimage"),
            change(30, 1, "bicycle AND price:<50", "update_postimage"),
        ],
    ),
    ([seen(48), seen(38)], [change(45, 1, None, "delete"), change(35, 3, "price:>60")]),
]
schemas = tuple(
    pa.Table.from_pylist([row for pair in script for row in pair[side]]).schema for side in (0, 1)
)
results = replay(then, script, schema=schemas, flush=True)
valid_then = matches_of(results)
released = {row["name"]: result.batch for result in results for row in result.rows}
changes_then = [
    (row["since"].second, row["id"], row["query"]) for _, rows in script for row in rows
]
times = [row["name"] for rows, _ in script for row in rows]
ax = plots.plot_matches(
    versions_of(changes_then, 55), outcomes(times, valid_then), time="t", **bars
)
ax.set_xlabel("event time, in seconds")
ax.get_legend().get_texts()[-1].set_text("valid")
picture(
    ax,
    "Three queries, and when they are valid",
    "The same red bicycle for 80, at seven times.",
)

# %% [markdown]
# The advert of 28 seconds arrived in the second micro-batch, and was matched in the fourth, with the change of 25 that came after
# it. So the result depends on neither the order nor the micro-batches; all in one gives the same:

# %%
together = tuple([row for pair in script for row in pair[side]] for side in (0, 1))
assert matches_of(replay(then, [together], schema=schemas, flush=True)) == valid_then
assert released[28] == 4

# %% [markdown]
# Without `as_of`, the same micro-batches give other matches, as each advert meets the queries of its micro-batch:

# %%
processed = matches_of(replay(market, script, schema=schemas))
print("only without as_of:", sorted(processed - valid_then))
print("only with as_of:   ", sorted(valid_then - processed))

# %% [markdown]
# ## 5. Candidates, and not all queries
#
# The queries are indexed, not the documents: each is filed under its rarest required word, and a document is compared only with
# those that are filed under one of its own words. In ten lines of Python, for queries that require all of their words:

# %%
rng = np.random.default_rng(3)
vocabulary = [f"w{n}" for n in range(400)]
chances = 1 / np.arange(3, 403)
chances /= chances.sum()


def pick_terms(count):
    """Different words, of which some are far more frequent than others."""
    return [vocabulary[n] for n in rng.choice(400, count, replace=False, p=chances)]


texts = [set(pick_terms(12)) for _ in range(150)]
required = [pick_terms(int(rng.integers(2, 4))) for _ in range(150)]

frequency = Counter(word for text in texts for word in text)
filed = [min(query, key=frequency.__getitem__) for query in required]
candidates = {
    (d, q) for d, text in enumerate(texts) for q, word in enumerate(filed) if word in text
}
matching = {(d, q) for d, q in candidates if texts[d].issuperset(required[q])}

# %% [markdown]
# Every pair that matches is among the candidates. The operator finds the same pairs:

# %%
text_only = search.match(None, text="text", sequence="lsn", horizon=100_000).options(shards=1)
documents = [{"name": n, "text": " ".join(sorted(text))} for n, text in enumerate(texts)]
queries = [{"id": n, "query": " AND ".join(query), "lsn": n} for n, query in enumerate(required)]
assert matches_of(replay(text_only, [(documents, queries)])) == matching
every = {(d, q) for d in range(150) for q in range(150) if texts[d].issuperset(required[q])}
assert every == matching
order = sorted(range(150), key=lambda q: -frequency[filed[q]])
row_of = {query: row for row, query in enumerate(order)}
(ax,) = panels([""], 4.6)
for name, pairs, color in (
    ("candidate", candidates, "retracted"),
    ("match", matching, "corrected"),
):
    points = np.array([(document, row_of[query]) for document, query in pairs])
    ax.scatter(*points.T, s=7, marker="s", linewidths=0, color=plots.COLORS[color], label=name)
ax.set(xlabel="documents", ylabel="queries", xticks=[], yticks=[], xlim=(-1, 150), ylim=(150, -1))
legend(ax, markerscale=3)
picture(
    ax,
    f"{150 * 150:,} pairs, {len(candidates):,} candidates, {len(matching):,} matches",
    "Each column is a document, each row a query; queries that are filed under frequent words are at the top.",
)

# %% [markdown]
# ## 6. What a document costs
#
# A stored query costs only the documents that are candidates. The operator against a loop over all queries, on this machine:


# %%
def measure(count):
    """Microseconds per document, of the operator and of a loop."""
    wide = [f"v{n}" for n in range(int(10 * count**0.5))]  # so there is one match per document

    def pick(number):
        return [wide[n] for n in rng.choice(len(wide), number, replace=False)]

    stored = [pick(2) for _ in range(count)]
    changes = pa.Table.from_pylist(
        [{"id": n, "query": " AND ".join(query), "lsn": n} for n, query in enumerate(stored)]
    )
    contents = [pick(10) for _ in range(10_000)]
    arriving = pa.Table.from_pylist(
        [{"name": n, "text": " ".join(c)} for n, c in enumerate(contents)]
    )
    query = Replay(text_only, (arriving.schema, changes.schema))
    query.run([(arriving, changes)])  # compiles and files the queries
    took = []
    for _ in range(3):
        began = time.process_time()
        (result,) = query.run([(arriving, None)])
        took.append((time.process_time() - began) / 10_000)
    assert 0.8 < len(result.table) / 10_000 < 1.2
    began = time.process_time()
    some = [set(content) for content in contents[:50]]
    sets = [set(query) for query in stored]
    for content in some:
        for query in sets:
            content.issuperset(query)
    loop = (time.process_time() - began) / 50
    return min(took) * 1e6, loop * 1e6


counts = (100, 1_000, 10_000)
costs = np.array([measure(count) for count in counts])
(ax,) = panels([""], 3)
for name, values, color in zip(
    ("search.match", "a loop over all queries"), costs.T, ("on_time", "too_late"), strict=True
):
    ax.plot(counts, values, marker="o", color=plots.COLORS[color], label=name)
ax.loglog()
ax.minorticks_off()
ax.set_xticks(counts, [f"{count:,} queries" for count in counts])
ax.yaxis.set_major_formatter("{x:,g} µs")
legend(ax)
picture(
    ax,
    "Microseconds of CPU time per document",
    "Each document has ten words and one match. Its candidates, not the queries, decide: about 10, 32 and 100 of them.",
)

# %% [markdown]
# ## 7. Invalid queries
#
# A query that cannot be read, or that asks for what is not supported, never takes effect and never stops the stream. It is a row of
# the side output, with the position of the mistake:

# %%
mistaken = [
    "red AND bi?ycle",
    "bicycle~2",
    "price:>cheap",
    "colour:red",
    "(red OR blue",
    "title:[a TO c]",
    "red^2 bicycle",
]
strict = search.match(
    None, text=["title", "text"], fields="price", sequence="lsn", horizon=1_000, rejected="route"
)
script = [([bike], [{"id": n, "query": text, "lsn": n} for n, text in enumerate(mistaken)])]
refused = [row for result in replay(strict, script) for row in result.late_rows]
assert len(refused) == len(mistaken)
for row in sorted(refused, key=lambda row: row["row"]["right"]["id"]):
    print(f"{row['row']['right']['query']}\n{' ' * row['position']}^ {row['message']}\n")

# %% [markdown]
# ## 8. What they do not do
#
# - **They do not rank.** A document matches a query or it does not. There is no score, and no boost.
# - **They do not stem or replace synonyms.** *Bicycles* is not *bicycle*; write `bicycle*`, or both.
# - **They do not make a query cheap that only excludes.** `-car` is compared with every document. Add a required condition.
# - **They do not find documents that have passed.** A new query sees those that come after it.
#
# The rules are in [docs/search.md](../docs/search.md).

# %% [markdown]
# ## Takeaway
#
# Index the queries, not the documents. A document is then compared with the few queries that could match it, and a query is in effect from the
# micro-batch in which it arrives, or from the event time that it names.
