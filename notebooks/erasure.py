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
# # Erasure: a person asks to be forgotten
#
# The log cannot be changed, and there are copies in checkpoints, views and backups. How do you delete the values of one person
# from all of them? You encrypt them before they are stored, each person's by a key of their own, and delete that key.
# `erasure.shred` and `erasure.unshred` do that, and `erasure.search_files` verifies what is left. In pictures:
#
# 1. A person's values, before and after
# 2. Which files still have them
# 3. What comes later
# 4. What remains visible
# 5. What operators still compute
# 6. Backups of the key table
# 7. What they do not do
#
# It runs on a laptop in about a minute: `pip install ".[java,notebook,erasure]"` in a clone, then open it in any Jupyter.
# `make notebooks` runs it and renews its pictures, which are made by `streamops.plots` and `drawing.py`.

# %%
import json
import secrets
import shutil
import tempfile
from pathlib import Path

import pandas as pd
from drawing import grid, picture
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import erasure, local_session, plots, sinks, state, windows

spark = local_session(
    shuffle_partitions=1,
    # Over in a minute: the JVM's optimising compiler would not pay off.
    conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
)
blue, orange, gray = (plots.COLORS[name] for name in ("on_time", "corrected", "retracted"))
home = Path(tempfile.mkdtemp())
secret = home / "wrapping.key"
secret.write_bytes(secrets.token_bytes(32))  # in production: a secret manager


def wrapping_key():
    return secret.read_bytes()


# %% [markdown]
# ## 1. A person's values, before and after
#
# Two runs of the same two queries. The first query writes the log, the second one a view of it, with state. In one run values are
# stored as they arrive; in the other one they are *shredded* first: each is encrypted by the key of its subject.

# %%
SCHEMA = "user string, email string, city string, ts timestamp"
EMAILS = {
    "user-1": "ann@example.com",
    "user-2": "bob@example.com",
    "user-3": "cem@example.com",
}
VISITS = [
    [("user-1", "Lindau", 0), ("user-2", "Lindau", 1), ("user-1", "Bregenz", 2)],
    [("user-3", "Lindau", 60), ("user-2", "Konstanz", 61), ("user-1", "Lindau", 62)],
    [("user-1", "Bregenz", 120), ("user-2", "Lindau", 121), ("user-3", "Lindau", 122)],
]
MEMBERS = ["email", "city"]


class Run:
    """A folder with what arrives, a log, a view, and their checkpoints."""

    def __init__(self, name, shredded):
        self.folder = home / name
        self.keys = None
        if shredded:
            (self.folder / "keys").mkdir(parents=True)
            url = f"sqlite:///{self.folder}/keys/keys.db"
            self.keys = erasure.KeyTable(url=url, wrapping_key=wrapping_key)
        self.batch = 0

    def receive(self, visits):
        """Write the visits of a micro-batch, and run both queries to their end."""
        incoming = self.folder / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "user": user,
                "email": EMAILS[user],
                "city": city,
                "ts": f"2026-03-02T{9 + minute // 60:02}:{minute % 60:02}:00Z",
            }
            for user, city, minute in visits
        ]
        (incoming / f"{self.batch}.json").write_text("\n".join(map(json.dumps, rows)))
        self.batch += 1
        self._write_log()
        self._write_view()

    def _write_log(self):
        stream = spark.readStream.schema(SCHEMA).json(str(self.folder / "incoming"))
        query = stream.writeStream.foreachBatch(self._write_batch).trigger(availableNow=True)
        query.option(
            "checkpointLocation", str(self.folder / "checkpoints/log")
        ).start().awaitTermination()

    def _write_batch(self, batch, number):
        if self.keys is not None:
            batch.persist()
            keys = self.keys.create_keys(batch, subject="user")
            batch = batch.transform(
                erasure.shred(MEMBERS, subject="user", keys=keys, wrapping_key=wrapping_key)
            )
        batch.coalesce(1).write.mode("overwrite").parquet(f"{self.folder}/log/batch={number}")

    def _write_view(self):
        log = self.log()
        stream = spark.readStream.schema(log.schema).parquet(str(self.folder / "log"))
        per_user = windows.tumbling(
            "1 day",
            time="ts",
            by="user",
            delay="1 hour",
            early="every batch",
            agg={
                "visits": agg.count(),
                "cities": agg.count_distinct("city", at_most=100),
                "email": agg.last("email", tie_break="city"),
            },
        ).options(shards=1)
        query = (
            stream.transform(per_user).writeStream.outputMode("update").trigger(availableNow=True)
        )
        query = query.foreachBatch(sinks.parquet(str(self.folder / "view")))
        query.option(
            "checkpointLocation", str(self.folder / "checkpoints/view")
        ).start().awaitTermination()

    def log(self):
        """The log, without the number of the micro-batch."""
        return spark.read.parquet(str(self.folder / "log")).drop("batch")

    def view(self):
        """The newest revision of each user."""
        rows = sinks.read_parquet(str(self.folder / "view"), spark=spark).drop("rejected")
        newest = rows.groupBy("user").agg(F.max_by(F.struct("*"), "revision").alias("row"))
        return newest.select("row.*").orderBy("user")

    def states(self):
        """The state of the view, of every micro-batch that Spark retains."""
        folder = self.folder / "checkpoints/view"
        for path in sorted((folder / "commits").glob("[0-9]*")):
            yield state.read(str(folder), 0, batch=int(path.name), spark=spark)


def readable(frame, keys, columns=MEMBERS):
    """A frame with its values, where their subject has a key."""
    types = dict.fromkeys(columns, "string")
    unshred = erasure.unshred(
        types, subject="user", keys=keys.keys(spark), wrapping_key=wrapping_key
    )
    return frame.drop("rejected").transform(unshred)


plain, shredded = Run("plain", shredded=False), Run("shredded", shredded=True)
for run in (plain, shredded):
    for visits in VISITS[:2]:
        run.receive(visits)

stored = [row.asDict() for row in shredded.log().orderBy("ts").collect()]
before = [row.asDict() for row in readable(shredded.log(), shredded.keys).orderBy("ts").collect()]
ann = {"email": EMAILS["user-1"], "city": "Bregenz"}

# %% [markdown]
# Before the deletion, note what must disappear: the values of the person, and the stored key. And look where they are:


# %%
def key_of_ann():
    return bytes(shredded.keys.keys(spark).where("subject = 'user-1'").first()["key"])


sought = {**ann, "key": key_of_ann()}


def where_found(run, values):
    """The folders of a run, each with its number of files and the values that are found there."""
    found = {}
    for folder in sorted(path for path in run.folder.iterdir() if path.is_dir()):
        report = erasure.search_files(folder, values)
        found[folder.name] = (report.files, {match.name for match in report.matches})
    names = set()
    for frame in run.states():
        names |= {match.name for match in erasure.search_frame(frame, values).matches}
    files, others = found["checkpoints"]
    found["checkpoints"] = (files, others | names)
    return found


situations = {
    "as they arrive: before": where_found(plain, ann),
    "shredded: before": where_found(shredded, sought),
}

# %% [markdown]
# Now delete the key, and what the source still has:

# %%
backup = home / "backup"
shutil.copytree(shredded.folder / "keys", backup)

print(shredded.keys.erase("user-1"), "key was deleted.")
for run in (plain, shredded):
    shutil.rmtree(run.folder / "incoming")

after = [row.asDict() for row in readable(shredded.log(), shredded.keys).orderBy("ts").collect()]


def as_text(value):
    """A value as it is displayed: of encrypted ones the last bytes."""
    return f"…{bytes(value).hex()[-8:]}" if isinstance(value, bytes | bytearray) else str(value)


stages = {"with the key": before, "as it is stored": stored, "without the key": after}
cells = {
    f"{column},\n{stage}": [as_text(row[column]) for row in rows]
    for stage, rows in stages.items()
    for column in MEMBERS
}
picture(
    grid(
        pd.DataFrame(cells, index=[row["user"] for row in before]),
        lambda text: gray if text == "None" else orange if text.startswith("…") else blue,
        {"readable": blue, "encrypted": orange, "null": gray},
    ),
    "The log is not changed: a key is deleted",
    "Read again, the values of user-1 are null.",
)

# %% [markdown]
# ## 2. Which files still have them
#
# `search_files` reads every byte of a run, also in compressed files, and searches each value in several forms; states of a
# checkpoint are encoded, so they are read by `state.read` first.

# %%
situations["as they arrive: source emptied"] = where_found(plain, ann)
situations["shredded: key deleted"] = where_found(shredded, sought)
left = {
    name: set().union(*(names for _, names in found.values())) for name, found in situations.items()
}
assert left["shredded: key deleted"] == set()
assert left["as they arrive: source emptied"] == {"email", "city"}
order = [
    "as they arrive: before", "as they arrive: source emptied", "shredded: before", "shredded: key deleted",
]  # fmt: skip
folders = ["incoming", "log", "checkpoints", "view", "keys"]
cells = {
    folder: [
        None
        if folder not in found
        else f"{found[folder][0]} files: {', '.join(sorted(found[folder][1])) or 'nothing'}"
        for found in map(situations.get, order)
    ]
    for folder in folders
}
picture(
    grid(
        pd.DataFrame(cells, index=order), lambda text: gray if text.endswith("nothing") else orange
    ),
    "Where the values of one person are",
    "The folders of a run, their files, and the values that were found in them. In the last line nothing is left,\n"
    "and the log is the same.",
)

# %% [markdown]
# ## 3. What comes later
#
# The person may still be in what arrives. A subject whose key was deleted gets no other one: such rows are stored without their
# values, with the reason. All others are as before.

# %%
for run in (plain, shredded):
    run.receive(VISITS[2])
shutil.rmtree(shredded.folder / "incoming")
assert erasure.search_files(shredded.folder, ann).matches == ()
lost = {
    row.ts: row.rejected.reason for row in shredded.log().where("rejected IS NOT NULL").collect()
}
assert [*lost.values()] == ["erased"]
fates = [
    {
        "user": row.user, "ts": row.ts,
        "values": "readable" if row.email else "never stored" if row.ts in lost else "no longer readable",
    }
    for row in readable(shredded.log(), shredded.keys).orderBy("ts").collect()
]  # fmt: skip
first = {row["user"]: row["ts"] for row in reversed(fates)}
# The key of user-1 was deleted after the second micro-batch.
deleted = max(row["ts"] for row in fates if row["values"] == "no longer readable")
keys = [
    {"user": user, "match_start": ts, "match_end": deleted if user == "user-1" else None, "text": "key"}
    for user, ts in first.items()
]  # fmt: skip
ax = plots.plot_matches(keys, fates, time="ts", by="user", category="values", label="text")
ax.get_legend().get_texts()[-1].set_text("key of the user")
picture(
    ax,
    "The visits of three people",
    "The key of user-1 was deleted between the second and the third micro-batch. The last visit of user-1 was never\n"
    "stored with its values.",
)

# %% [markdown]
# ## 4. What remains visible
#
# Equal values of one person and one column are equal bytes. A micro-batch that Spark repeats has the same rows, and values can be
# grouped and counted. Values of different people can not be compared, so nobody sees which city is the most frequent.

# %%
cities = [(row["user"], row["city"]) for row in before]
bytes_of = [bytes(row["city"]) for row in stored]
names = [f"{user}\n{city}" for user, city in cities]
cells = [
    [
        "equal" if one == other else "same city" if city == another else "other city"
        for one, (_, city) in zip(bytes_of, cities, strict=True)
    ]
    for other, (_, another) in zip(bytes_of, cities, strict=True)
]
paint = {"equal": blue, "same city": orange, "other city": gray}
meaning = {"equal bytes": blue, "same city in other bytes": orange, "other city": gray}
picture(
    grid(pd.DataFrame(cells, index=names, columns=names), paint.get, meaning),
    "Which stored cities are equal bytes",
    "Six visits. Three people were in Lindau; the bytes are equal only where the person is the same.",
)

# %% [markdown]
# ## 5. What operators still compute
#
# The view counts visits and different cities, of shredded values as of readable ones. It stays as it is when a key is deleted: only
# the address can no longer be read. Whether the counts may stay is a question of purpose, and not of this library.

# %%
in_plain = [row.asDict() for row in plain.view().collect()]
in_shredded = [
    row.asDict() for row in readable(shredded.view(), shredded.keys, ["email"]).collect()
]
for count in ("visits", "cities"):
    assert [row[count] for row in in_plain] == [row[count] for row in in_shredded]
assert [row["email"] for row in in_shredded] == [None, EMAILS["user-2"], EMAILS["user-3"]]
columns = ["visits", "cities", "email"]
tables = {"as they arrive": in_plain, "shredded": in_shredded}
picture(
    grid(
        pd.DataFrame(
            {
                f"{column},\n{name}": [str(row[column]) for row in rows]
                for name, rows in tables.items()
                for column in columns
            },
            index=[row["user"] for row in in_plain],
        ),
        lambda text: gray if text == "None" else blue,
    ),
    "The view of the day, computed from both logs",
    "All counts are equal. The address of the erased person can no longer be read.",
)

# %% [markdown]
# ## 6. Backups of the key table
#
# A backup from before the deletion still has the key. It is wrapped: encrypted by another key, that is not in the database.
# `rewrap` encrypts all keys by a new wrapping key; once the former one is destroyed, the backup is useless.

# %%
new_secret = home / "wrapping-2.key"
new_secret.write_bytes(secrets.token_bytes(32))
rewrapped = shredded.keys.rewrap(new_secret.read_bytes)
log = shredded.log().drop("rejected")


def can_read(folder, secret_file):
    """Whose addresses this key table and this wrapping key make readable."""
    key = secret_file.read_bytes()

    def wrapping():
        return key

    table = erasure.KeyTable(url=f"sqlite:///{folder}/keys.db", wrapping_key=wrapping)
    unshred = erasure.unshred(
        {"email": "string"}, subject="user", keys=table.keys(spark), wrapping_key=wrapping
    )
    rows = log.transform(unshred).where("email IS NOT NULL").select("user").distinct().collect()
    return {row.user for row in rows}


tables = {"backup from before": backup, "the table": shredded.folder / "keys"}
secrets_of = {"former wrapping key": secret, "new wrapping key": new_secret}
readers = {
    (table, key): can_read(folder, path)
    for table, folder in tables.items()
    for key, path in secrets_of.items()
}
assert readers["backup from before", "former wrapping key"] == {*EMAILS}
assert readers["the table", "new wrapping key"] == {"user-2", "user-3"}
cells = {
    key: [", ".join(sorted(readers[table, key])) or "nobody" for table in tables]
    for key in secrets_of
}
picture(
    grid(pd.DataFrame(cells, index=[*tables]), lambda text: gray if text == "nobody" else blue),
    "Whose values can be read with which keys",
    "The erasure is complete when the former wrapping key is destroyed: then the first column is gone.",
)

# %%
secret.unlink()
spark.stop()

# %% [markdown]
# ## 7. What they do not do
#
# - **They do not hide that a person was there.** The subject, the event time and all other columns stay readable: use a surrogate id.
# - **They do not delete what was computed.** A count, a mean, a model have what they have.
# - **They do not reach what others received**, nor what was stored before it was shredded, nor what an application writes to its own
#   log.
# - **They do not order or add.** Shredded values are opaque bytes; they can be counted, grouped and compared for equality.
# - **They do not protect the keys.** Whoever has the key table and the wrapping key reads everything, and without a copy of the
#   key table everything is lost.
#
# The rules are in [docs/erasure.md](../docs/erasure.md).

# %% [markdown]
# ## Takeaway
#
# What cannot be deleted everywhere can be encrypted before it is stored, with a key per person. Then a deletion is one row in the key table,
# and a search through the files shows that it was enough.
