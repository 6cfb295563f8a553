"""Random changes of keyed rows, out of order and repeated; and functions that read a step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa
from hypothesis import strategies as st

from streamops.changelog.table import DELTA_SEQUENCE, KeyedTable
from streamops.changes.core.latest import TableSpec
from streamops.kernel.core import Step
from streamops.kernel.values import comparable
from streamops.testing.laws import to_rows
from tests.oracles.latest import LatestOracle
from tests.oracles.windows import Row

INSTANT = pa.timestamp("us", tz="UTC")
SEQUENCE = pa.struct([("log", pa.int64()), ("offset", pa.int64())])
REJECTION = pa.struct([("reason", pa.string())])
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("n", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("ts", INSTANT),
        ("seq", SEQUENCE),
        ("_change_type", pa.string()),
        ("_snapshot", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
        ("_tombstone", pa.bool_()),
        ("rejected", REJECTION),
    ]
)
VALUES = ("n", "tags", "map")
FOREVER = 10**12
Spec = TypeVar("Spec", bound=KeyedTable)


@dataclass(frozen=True)
class Case:
    """A history of micro-batches."""

    spec: TableSpec
    batches: tuple[pa.Table, ...]
    oracle: Callable[[], LatestOracle]
    seed: int

    @property
    def rows(self) -> pa.Table:
        """All rows, below one another."""
        return pa.concat_tables(self.batches).combine_chunks()


def change(dice: random.Random, by: tuple[str, ...], seq: int, odd: bool, conflicts: bool) -> Row:
    """A change whose values are determined by its key and sequence, and if `conflicts` also by chance.

    Such changes can be in conflict with others, in any micro-batch.
    """
    key, number = dice.choice(["a", "b", "ä"]), dice.choice([0.0, -0.0, 1.5])
    snapshot = dice.random() < 0.15
    key_values = (key, number + 0.0)[: len(by)]
    fixed = random.Random(f"{key_values}{seq}{snapshot}{dice.randrange(4) if conflicts else ''}")
    row: Row = {"k": key, "x": number, "n": fixed.choice([1, 1, 2, None])}
    row |= {
        "tags": fixed.choice([None, ["t"], ["t", None]]),
        "map": fixed.choice([None, [("a", 1)]]),
    }
    row |= {"ts": 1_000 * seq, "seq": {"log": seq // 4, "offset": seq % 4}, "_tombstone": None}
    types = ["insert", "update_postimage", "update_postimage", "delete"]
    row |= {"_change_type": fixed.choice(types), "_snapshot": snapshot, "rejected": None}
    if snapshot:
        row["_change_type"] = "insert"
    unavailable = fixed.choice([[], [], ["n"], ["tags", "map"], ["n", "tags", "map", "k", "ghost"]])
    row["_unavailable"] = unavailable
    for name in set(unavailable) & set(VALUES):
        row[name] = None
    if odd:
        row |= dice.choice(
            [
                {"_change_type": None},
                {"_change_type": "update_preimage"},
                {"_change_type": "upsert"},
                {"k": None},
                {"seq": None},
                {"_tombstone": True, "_change_type": None, "seq": None},
                {"rejected": {"reason": "own"}},
                {"ts": None},
                {"n": 77, "_unavailable": None},  # another content: a conflict, perhaps
            ]
        )
    return row


@st.composite
def histories(draw: st.DrawFn, *, odd: int = 0) -> Case:
    """Few keys with many changes, out of order, repeated, and in conflict.

    `odd` is the number of every eight changes that are malformed or not changes.
    """
    by = draw(st.sampled_from([("k",), ("k", "x")]))
    publish = draw(st.sampled_from(["every change", "last"]))
    snapshots = draw(st.sampled_from(["below_log", "by_sequence"]))
    time = "ts" if draw(st.booleans()) else None
    dice = random.Random(draw(st.integers(0, 2**32)))
    count = draw(st.sampled_from([0, 3, 8, 20]))
    late = draw(st.sampled_from([0, 3, 12]))
    per_sequence = draw(st.sampled_from([1, 2, 4]))  # mean number of changes with one sequence
    pace = draw(st.sampled_from([1, 5]))  # a greater pace evicts more
    rows = [
        change(
            dice,
            by,
            max(0, pace * number - dice.randrange(late + 1)) // per_sequence,
            dice.randrange(8) < odd,
            per_sequence > 1 and dice.random() < 0.7,
        )
        for number in range(count)
    ]
    truncates, ignore_nulls = draw(st.sampled_from([0, 0, 1, 3])), draw(st.booleans())
    for row in rows:
        if dice.randrange(10) < truncates:
            row |= {"_change_type": "truncate", "k": dice.choice([None, None, "a"])}
    columns_ = [name for name in SCHEMA.names if name not in {"seq", *by} and name[0] != "_"]
    values = tuple(name for name in columns_ if name not in {"rejected", "ts"})
    dtype = pa.int64() if time is None else draw(st.sampled_from([SEQUENCE, DELTA_SEQUENCE]))
    if time is not None and draw(st.booleans()):
        # Without rows of a snapshot, whose time does not tell whether an evicted change is newer.
        rows = [in_own_log({**row, "_snapshot": False}) for row in rows]
    if dtype == DELTA_SEQUENCE:
        rows = [image for row in rows for image in images(row, dice)]
    if time is None:
        values = (*values, "ts")
        rows = [
            {**row, "seq": row["seq"] and 4 * row["seq"]["log"] + row["seq"]["offset"]}
            for row in rows
        ]
    schema = SCHEMA.set(SCHEMA.names.index("seq"), pa.field("seq", dtype))
    if "x" not in by:
        for row in rows:
            row["x"] = None if row["n"] is None else float(row["n"])
    # No change is later than the horizon, so that only revisions are lost by eviction.
    horizon = draw(st.sampled_from([late * (1 if time is None else 1_000), FOREVER]))
    if horizon != FOREVER and snapshots == "below_log":
        # A row of a snapshot would restore a key whose delete was evicted.
        if draw(st.booleans()):
            rows = [{**row, "_snapshot": False} for row in rows]
        else:
            types = (row["_change_type"] for row in rows)
            types = ("insert" if type_ == "delete" else type_ for type_ in types)
            rows = [{**row, "_change_type": t} for row, t in zip(rows, types, strict=True)]
    cuts = sorted(dice.randrange(len(rows) + 1) for _ in range(dice.randrange(5)))
    pairs = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    batches = tuple(table_of(rows[start:end], schema) for start, end in pairs)
    spec = TableSpec(
        key=by,
        sequence=("seq",),
        time=time,
        horizon=horizon,
        values=values,
        input=schema,
        snapshots=snapshots,
        limit=100,
        max_keys=100,
        when_full="fail",
        publish=publish,
        ignore_nulls=ignore_nulls,
    )
    oracle = LatestOracle(by, values, publish, snapshots, time, horizon, ignore_nulls)
    return Case(spec, batches, oracle.fresh, draw(st.integers(0, 2**16)))


def in_own_log(row: Row) -> Row:
    """The change in a log of its key alone: sequences of two keys are not comparable."""
    if row["seq"] is None or row["k"] is None:
        return row
    return {**row, "seq": {**row["seq"], "log": row["seq"]["log"] + 100 * ord(row["k"])}}


def images(row: Row, dice: random.Random) -> list[Row]:
    """The change in Delta's log, where an update is a delete and an insert of one version."""
    if row["seq"] is None:
        return [row]
    is_truncate = row["_change_type"] == "truncate"
    version = 4 * row["seq"]["log"] + row["seq"]["offset"]
    delete = {**row, **dict.fromkeys(VALUES), "_change_type": "delete", "_unavailable": None}
    delete |= {"seq": {"version": version, "position": 0}}
    if row["_change_type"] == "delete":
        return [delete]
    insert = {**row, "seq": {"version": version, "position": 1}}
    is_update = dice.random() < 0.5 and not row["_snapshot"] and not is_truncate
    return [delete, insert] if is_update else [insert]


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """A table of rows whose instants are in microseconds."""
    columns = []
    for field in schema:
        dtype = pa.int64() if field.type == INSTANT else field.type
        columns.append(pa.array([row[field.name] for row in rows], dtype).cast(field.type))
    return pa.table(columns, schema=schema)


def changes_of(step: Step) -> list[Row]:
    """The emitted changes, in order."""
    rows = [row for row in to_rows(step.output) if row["rejected"] is None]
    return [{n: v for n, v in row.items() if n != "rejected"} for row in rows]


def reasons(step: Step) -> Counter[str]:
    rejected = (row["rejected"] for row in to_rows(step.output))
    return Counter(value["reason"] for value in rejected if value is not None)


def rejects(step: Step) -> Counter[Any]:
    """The rejected rows, with their reasons."""
    rejected = (row["rejected"] for row in to_rows(step.output))
    return Counter(comparable(value) for value in rejected if value is not None)


def tight(spec: Spec, seed: int) -> Spec:
    """The spec with a shorter horizon and fewer keys, so that keys are evicted and rejected."""
    horizons = [0, seed % 7 * (1 if spec.time is None else 1_000), spec.horizon]
    horizon, limit = horizons[seed % 3], [1, 2, spec.limit][seed // 3 % 3]
    return replace(spec, horizon=horizon, limit=limit, when_full="reject_new")


def by_key(spec: TableSpec, rows: Sequence[Row]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(comparable([row[n] for n in spec.by]), []).append(comparable(row))
    return found


def cut(rows: pa.Table, dice: random.Random) -> list[pa.Table]:
    cuts = sorted(dice.randrange(len(rows) + 1) for _ in range(dice.randrange(6)))
    pairs = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return [rows.slice(begin, end - begin) for begin, end in pairs]
