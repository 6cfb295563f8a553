"""Random histories for the tests of rewritten checkpoints: of events, versions and changing tables."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from streamops.testing import at

Rows = list[dict[str, Any]]
EVENT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
KEYS = [f"key-{number}" for number in range(23)]


def events(batch: int) -> Rows:
    """A micro-batch of random events of many keys, some of them late, and some without a key."""
    return select(timed_events(batch), EVENT.names)


def timed_events(batch: int, *, seed: int = 7, rows: int = 60) -> Rows:
    """The events, with the times at which they were sent and received."""
    dice = random.Random(seed * 1_000 + batch)
    found = []
    for _ in range(rows):
        key, sent = dice.choice([*KEYS, None]), batch * 15 + dice.randrange(20)
        found.append(
            {"k": key, "ts": at(sent - dice.randrange(12)), "v": dice.randrange(100)}
            | {"sent": at(sent), "received": at(sent + 3 + dice.randrange(5))}
        )
    return found


def versions(batch: int, *, seed: int = 8) -> Rows:
    """Versions of a table: some keys have a new one."""
    dice = random.Random(seed * 1_000 + batch)
    return [
        {
            "k": key,
            "since": at(batch * 15 + dice.randrange(15)),
            "seq": 100 * batch + n,
            "w": f"w{n}",
        }
        for n, key in enumerate(dice.sample(KEYS, 12))
    ]


def upserts(batch: int, *, seed: int = 9) -> Rows:
    """Upserts of keys, out of order, some of them twice."""
    dice = random.Random(seed * 1_000 + batch)
    return [
        {
            "k": dice.choice(KEYS),
            "lsn": max(0, 30 * batch + n - dice.randrange(40)),
            "w": f"w{n % 5}",
        }
        for n in range(30)
    ]


def window_rows(batch: int, *, seed: int = 10) -> Rows:
    """Results of windows of ten seconds: most keys have one."""
    dice = random.Random(seed * 1_000 + batch)
    return [
        {"k": key, "window_start": at(start), "window_end": at(start + 10), "n": dice.randrange(50)}
        for key in KEYS
        for start in (batch * 20, batch * 20 + 10)
        if dice.random() < 0.8
    ]


def table_changes(key: str, batches: int, *, seed: int = 11) -> list[Rows]:
    """Changes of a keyed table: rows are inserted, updated and deleted at random."""
    dice, table = random.Random(seed), dict[int, dict[str, Any]]()
    found = []
    for _ in range(batches):
        changes: Rows = []
        for _ in range(25):
            number = dice.randrange(30)
            row = {key: number, "k": dice.choice(KEYS), "v": dice.randrange(100)}
            before = table.pop(number, None)
            if before is None:
                table[number] = row
                changes.append({"_change_type": "insert", **row})
            elif dice.random() < 0.4:
                changes.append({"_change_type": "delete", **before})
            else:
                table[number] = row
                changes.append({"_change_type": "update_preimage", **before})
                changes.append({"_change_type": "update_postimage", **row})
        found.append(changes)
    return found


def stored_queries(batch: int, *, seed: int = 13) -> Rows:
    """Queries over events that are inserted, replaced and deleted; some are invalid."""
    dice = random.Random(seed * 1_000 + batch)
    found: Rows = []
    for n in range(12):
        texts = [f"{dice.randrange(23)} OR {dice.randrange(23)}", f"v:[{dice.randrange(90)} TO 90]"]
        texts += [f'"key {dice.randrange(23)}" -v:{dice.randrange(100)}', "-key", "(", "k:ke*"]
        change = dice.choice(["insert", "update_postimage", "delete"])
        row = {"_change_type": change, "id": dice.randrange(20), "query": dice.choice(texts)}
        found.append(row | {"lsn": 20 * batch + n, "since": at(batch * 15 + n)})
    return found


def select(rows: Rows, names: list[str]) -> Rows:
    """These columns of the rows."""
    return [{name: row[name] for name in names} for row in rows]


def batches_for(schemas: tuple[pa.Schema, ...], count: int) -> list[tuple[Rows, ...]]:
    """Micro-batches of random rows for inputs with these columns."""
    sides = [_side(schema.names, count) for schema in schemas]
    return list(zip(*sides, strict=True))


def _side(names: list[str], count: int) -> list[Rows]:
    if "query" in names:
        rows = [stored_queries(batch) for batch in range(count)]
    elif "_change_type" in names:
        key = "rid" if "rid" in names else "id"
        rows = table_changes(key, count, seed=11 if key == "id" else 12)
    else:
        make: Callable[[int], Rows] = timed_events
        for column, other in (("since", versions), ("lsn", upserts), ("window_end", window_rows)):
            make = other if column in names else make
        rows = [make(batch) for batch in range(count)]
    return [select(of, names) for of in rows]
