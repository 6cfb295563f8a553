"""Histories of home timelines whose state is kept, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops.joins.core.timeline import TimelineCore, TimelineParameters, TimelineSpec
from streamops.kernel.core import State, Step
from streamops.testing.laws import to_rows
from tests.golden.states import FOLDER, stored
from tests.oracles.timeline import TimelineOracle

POSITION = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
ROWS = pa.schema(
    [
        ("post", pa.int64()),
        ("author", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("place", POSITION),
        ("user", pa.float64()),
        ("_change_type", pa.string()),
    ]
)
NAN = float("nan")
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"

Changes = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class History:
    """What came, as rows of (user, post, author, time, change)."""

    batches: Sequence[Changes]
    more: Sequence[Changes]

    @property
    def file(self) -> Path:
        return FOLDER / "joins.timeline-v1.bin"

    @property
    def spec(self) -> TimelineSpec:
        return self.spec_of()

    def spec_of(
        self, *, users: tuple[str, ...] = ("user",), schema: pa.Schema = ROWS, **changed: Any
    ) -> TimelineSpec:
        parameters = TimelineParameters(
            by=(("author", "whom"),),
            user=("user",),
            key=("post",),
            ranked_by="at",
            cap=2,
            sequence=None,
            remember=None,
            rejected="drop",
        )
        return TimelineSpec(replace(parameters, **changed), users, schema)

    def state(self) -> State:
        state = State.empty(TimelineCore().layout(self.spec))
        for changes in self.batches:
            state = stepped(self.spec, state, changes).state
        return state

    def oracle(self) -> TimelineOracle:
        oracle = TimelineOracle(("user",), ("post",), "at", 2, lambda row: 0)
        for changes in self.batches:
            oracle.step(to_rows(table(changes)))
        return oracle


def table(changes: Changes) -> pa.Table:
    """The rows of a micro-batch."""
    rows = [
        (post, author, at, {"x": post, "tags": ["a", None]} if post % 2 else None, user, change)
        for user, post, author, at, change in changes
    ]
    columns = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(ROWS)]
    return pa.table(columns, schema=ROWS)


def stepped(spec: TimelineSpec, state: State, changes: Changes) -> Step:
    return TimelineCore().step(spec, state, [TimelineCore().pack(spec, table(changes))], None)


HISTORY = History(
    [
        [(1.0, 1, "ä", 10, PLUS), (1.0, 2, "b", 20, PLUS), (NAN, 2, "b", 20, PLUS)],
        [(1.0, 3, "b", 30, PLUS), (1.0, 3, "b", 30, PLUS), (None, 3, None, None, PLUS)],
        [(1.0, 2, "b", 20, PRE), (1.0, 2, "b", -5, POST), (-0.0, 4, "b", 30, PLUS)],
    ],
    [
        [(1.0, 3, "b", 30, MINUS), (NAN, 5, "b", 30, PLUS), (NAN, 6, "b", 40, PLUS)],
        [(1.0, 3, "b", 30, MINUS), (0.0, 4, "b", 30, MINUS), (None, 1, "c", -1, PLUS)],
    ],
)


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {HISTORY.file: stored(TimelineCore, HISTORY.spec, HISTORY.state())}
