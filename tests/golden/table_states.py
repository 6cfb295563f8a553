"""Histories of table joins whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import joins
from streamops.joins.core.tables import TablesCore
from streamops.joins.core.tables_spec import TablesSpec
from streamops.kernel.core import State, Step
from streamops.spark.drive import resolve
from streamops.testing.laws import to_rows
from tests.golden.states import FOLDER, SHARDS, stored
from tests.oracles.tables import Multiset, TablesOracle, Versions

POSITION = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
LEFT = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("n", pa.float64()),
        ("seq", pa.int64()),
        ("place", POSITION),
        ("_change_type", pa.string()),
    ]
)
RIGHT = pa.schema(
    [
        ("rid", pa.int64()),
        ("key", pa.string()),
        ("m", pa.float64()),
        ("seq", pa.int64()),
        ("price", pa.decimal128(6, 2)),
        ("_change_type", pa.string()),
    ]
)
BY = {"k": "key", "n": "m"}
NAMES = (
    ["id", "k", "n", "seq", "place"],
    {"rid": "rid", "seq": "seq_right", "price": "price"},
)

Rows = Sequence[tuple[Any, ...]]
NAN = float("nan")
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"


def batch(left: Rows, right: Rows) -> tuple[pa.Table, pa.Table]:
    """Both sides of a micro-batch, given as (identity, k, n, sequence, change)."""
    lefts = [
        (*row[:4], {"x": row[0], "tags": ["a", None]} if row[0] else None, row[4]) for row in left
    ]
    rights = [(*row[:4], None, row[4]) for row in right]
    one, other = (
        pa.table(
            [pa.array([row[at] for row in rows], f.type) for at, f in enumerate(schema)],
            schema=schema,
        )
        for rows, schema in ((lefts, LEFT), (rights, RIGHT))
    )
    return one, other


@dataclass(frozen=True)
class History:
    """Settings, and what came."""

    name: str
    settings: Mapping[str, Any]
    batches: Sequence[tuple[Rows, Rows]]
    more: Sequence[tuple[Rows, Rows]] = field(default=())

    @property
    def file(self) -> Path:
        return FOLDER / f"joins.tables-v1-{self.name}.bin"

    def spec_of(self, **changed: Any) -> TablesSpec:
        given: dict[str, Any] = {"by": BY, "how": "full", "key": ("id", "rid")}
        operator = joins.tables(None, **(given | dict(self.settings) | changed))
        spec = resolve(operator.options(shards=SHARDS), (LEFT, RIGHT), (None, None))
        assert isinstance(spec, TablesSpec)
        return spec

    @property
    def spec(self) -> TablesSpec:
        return self.spec_of()

    def state(self) -> State:
        state = State.empty(TablesCore().layout(self.spec))
        for left, right in self.batches:
            state = stepped(self.spec, state, left, right).state
        return state

    def oracle(self) -> TablesOracle:
        sides: list[Multiset | Versions] = [Multiset(), Multiset()]
        if self.spec.tables[0].sequence is not None:
            sides = [Versions(("id", "k", "n"), "seq"), Versions(("rid", "key", "m"), "seq")]
        identity = ["id", "rid", "k", "n"]
        oracle = TablesOracle(sides[0], sides[1], BY, self.spec.how, NAMES, identity)
        for left, right in self.batches:
            oracle.step(*map(to_rows, batch(left, right)))
        return oracle


def stepped(spec: TablesSpec, state: State, left: Rows, right: Rows) -> Step:
    one, other = batch(left, right)
    packs = TablesCore().pack(spec, one, "left"), TablesCore().pack(spec, other, "right")
    return TablesCore().step(spec, state, packs, None)


MULTISETS = History(
    "bags",
    {},
    [
        ([(1, "a", 1.0, 0, PLUS), (2, "ä", NAN, 0, PLUS), (3, None, 1.0, 0, PLUS)], []),
        ([(1, "a", 1.0, 0, PRE), (1, "b", -0.0, 0, POST)], [(8, "b", 0.0, 0, PLUS), (9, "ä", NAN, 0, PLUS)]),
        ([(4, "b", 0.0, 0, PLUS), (2, "ä", NAN, 0, MINUS)], [(7, "c", 1.5, 0, PLUS), (7, "c", 1.5, 0, MINUS)]),
    ],
    [
        ([(3, None, 1.0, 0, MINUS)], [(8, "b", -0.0, 0, PRE), (8, "b", 2.5, 0, POST)]),
        ([(1, "b", 0.0, 0, MINUS), (4, "b", 0.0, 0, MINUS)], [(9, "ä", NAN, 0, MINUS)]),
    ],
)  # fmt: skip
VERSIONS = History(
    "versions",
    {"sequence": "seq", "remember": 100, "how": "left"},
    [
        ([(1, "a", 1.0, 5, PLUS), (2, "ä", NAN, 5, PLUS)], [(8, "a", 1.0, 5, PLUS)]),
        ([(2, "ä", NAN, 6, MINUS), (1, "a", 1.0, 7, PRE), (1, "b", 0.0, 7, POST)], []),
    ],
    [
        ([(2, "ä", NAN, 5, PLUS), (1, "a", 1.0, 5, PLUS)], [(9, "b", -0.0, 6, PLUS)]),
        ([(2, "ä", NAN, 8, PLUS)], [(8, "a", 1.0, 9, MINUS)]),
    ],
)
HISTORIES = [MULTISETS, VERSIONS]


def files() -> dict[Path, bytes]:
    """The stored states."""
    return {of.file: stored(TablesCore, of.spec, of.state()) for of in HISTORIES}
