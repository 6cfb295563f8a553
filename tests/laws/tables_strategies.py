"""Histories of two tables: inserts, updates, changes of the join key, deletes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import joins
from streamops.joins.core.tables_spec import TablesSpec
from streamops.spark.drive import resolve

Row = dict[str, Any]
Batch = tuple[list[Row], list[Row]]

LEFT = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("n", pa.float64()),
        ("v", pa.float64()),
        ("seq", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
RIGHT = pa.schema(
    [
        ("rid", pa.int64()),
        ("key", pa.string()),
        ("m", pa.float64()),
        ("v", pa.float64()),
        ("seq", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
SCHEMAS = (LEFT, RIGHT)
KEYS = ("id", "rid")
TAKES = ("update_preimage", "delete")
ON = {"k": "key", "n": "m"}
LETTERS, NUMBERS, VALUES = ["a", "b", None], [0.0, float("nan")], [None, 1.0, -0.0, float("nan")]
NAMES = (
    ["id", "k", "n", "v", "seq"],
    {"rid": "rid", "v": "v_right", "seq": "seq_right"},
)
"""The left columns; the right ones, and their names in a joined row."""


@dataclass(frozen=True)
class History:
    """Micro-batches of both sides, and the parameters of the join."""

    spec: TablesSpec
    batches: list[Batch]
    ending: Batch
    """Deletes of all remaining rows."""
    seed: int


def spec_of(schemas: tuple[pa.Schema, pa.Schema] = SCHEMAS, **arguments: Any) -> TablesSpec:
    operator = joins.tables(None, **({"by": ON} | arguments)).options(shards=1)
    spec = resolve(operator, schemas, (None, None))
    assert isinstance(spec, TablesSpec)
    return spec


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


@st.composite
def histories(
    draw: st.DrawFn,
    *,
    sequenced: bool,
    disorder: bool = False,
    bogus: bool = False,
    keyed: bool | None = None,
) -> History:
    """Each side has few rows and fewer keys, so that many rows match.

    In disorder changes come in other micro-batches, again, and with other values.
    """
    how = draw(st.sampled_from(["inner", "left", "right", "full"]))
    arguments: dict[str, Any] = {"how": how}
    if sequenced or (draw(st.booleans()) if keyed is None else keyed):
        arguments["key"] = ("id", "rid")
    if sequenced:
        arguments |= {"sequence": "seq", "remember": 1000 if disorder else 0}
    dice = random.Random(draw(st.integers(0, 2**16)))
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 5]), max_size=6))
    sides = [_Side(i, dice, keyed="key" in arguments, sequenced=sequenced) for i in (0, 1)]
    batches = [_batch([side.changes(dice.randint(0, size)) for side in sides]) for size in sizes]
    if bogus:
        for batch in batches:
            for i, rows in enumerate(batch):
                if dice.random() < 0.4:
                    rows.append(_taken(sides[i].made(dice.randint(1, 4))))
                changes_of = [row for row in rows if row["_change_type"] not in TAKES]
                if "key" in arguments and changes_of and dice.random() < 0.6:
                    rows += [_torn(row, dice) for row in dice.choices(changes_of, k=2)]
    if disorder:
        late = [_late([batch[i] for batch in batches], dice) for i in (0, 1)]
        batches = [_batch(both) for both in zip(*late, strict=True)]
    if disorder or bogus:  # else the laws may cut between any two changes
        for batch in batches:
            for rows in batch:
                dice.shuffle(rows)
    ending = _batch([side.end() for side in sides])
    return History(spec_of(**arguments), batches, ending, draw(st.integers(0, 2**16)))


def _batch(sides: Sequence[list[Row]]) -> Batch:
    return sides[0], sides[1]


def _taken(row: Row) -> Row:
    return {**row, "_change_type": "delete"}


def _late(batches: Sequence[list[Row]], dice: random.Random) -> list[list[Row]]:
    """The same changes, some in another micro-batch, some twice, some in conflict."""
    moved: list[list[Row]] = [[] for _ in batches]
    for number, rows in enumerate(batches):
        for row in rows:
            moved[number if dice.random() < 0.5 else dice.randrange(len(batches))].append(row)
            if dice.random() < 0.3:
                moved[dice.randrange(len(batches))].append(row)
            if dice.random() < 0.3:
                moved[dice.randrange(len(batches))].append(_torn(row, dice))
    return moved


def _torn(row: Row, dice: random.Random) -> Row:
    """A change of the same row at the same position, with the same value or another.

    A removed row has its previous values: the state stores them, and the output does not have them.
    """
    if row["_change_type"] in TAKES:
        return dict(row)
    return {**row, "v": dice.choice(VALUES)}


class _Side:
    """A table that emits its changes."""

    def __init__(self, side: int, dice: random.Random, *, keyed: bool, sequenced: bool) -> None:
        self.columns = SCHEMAS[side].names[:-1]
        self.dice, self.keyed, self.sequenced, self.sequence = dice, keyed, sequenced, 0
        self.rows: list[Row] = []

    def made(self, identity: int) -> Row:
        self.sequence += 1
        dice = self.dice
        values = [identity, dice.choice(LETTERS), dice.choice(NUMBERS), dice.choice(VALUES)]
        if not self.keyed:  # rows may be equal, and one of nulls may look like none
            values[0] = None if identity == 1 else identity
        sequence = self.sequence if self.keyed else None
        return dict(zip(self.columns, [*values, sequence], strict=True))

    def changes(self, number: int) -> list[Row]:
        changes_of = []
        for _ in range(number):
            identity = self.dice.randint(1, 4)
            there = [row for row in self.rows if (row[self.columns[0]] or 1) == identity]
            again = not self.keyed and self.dice.random() < 0.5
            if not there or again:
                row = dict(there[0]) if there and again else self.made(identity)
                self.rows.append(row)
                changes_of.append({**row, "_change_type": "insert"})
            elif self.dice.random() < 0.5:
                changes_of.append(self.removed(there[0], "delete"))
            else:
                row = self.made(identity)
                changes_of.append(self.removed(there[0], "update_preimage", row["seq"]))
                self.rows.append(row)
                changes_of.append({**row, "_change_type": "update_postimage"})
        return changes_of

    def removed(self, row: Row, change: str, sequence: int | None = None) -> Row:
        self.rows.remove(row)
        changes_of = {**row, "_change_type": change}
        if self.sequenced:
            self.sequence += sequence is None
            changes_of["seq"] = self.sequence
        return changes_of

    def end(self) -> list[Row]:
        return [self.removed(row, "delete") for row in list(self.rows)]
