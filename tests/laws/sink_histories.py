"""Histories of micro-batches in all forms, the rows that they fold to, and drivers that crash.

A driver is stopped at any step of a sink by an exception, before or after the step. A new one with a new
run delivers the same micro-batch again, which a driver does, too, that is stopped after the last step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity
from tests.sinks.attempts import Attempts, deliver

I, B, A, D = "insert", "update_preimage", "update_postimage", "delete"  # noqa: E741
Step = tuple[Any, str]
KEYS = [None, "a", "b'", "c"]
VALUES = [None, 0.0, -0.0, 1.5, float("nan"), float("inf")]


class Crash(BaseException):
    """A driver that is stopped."""


@dataclass(frozen=True)
class History:
    """Micro-batches, and the rows of the target after all of them."""

    options: dict[str, Any]
    batches: list[pa.Table]
    expected: list[tuple[Any, ...]]


def comparable(rows: Any) -> list[str]:
    """Rows without an order; one NaN, one zero."""
    return sorted(repr(tuple(v + 0.0 if isinstance(v, float) else v for v in row)) for row in rows)


def _table(rows: list[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    types = {"k": pa.string(), "n": pa.int32(), "v": pa.float64(), "revision": pa.int32()}
    fields = [pa.field(name, types.get(name, pa.string())) for name in names]
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], pa.schema(fields)
    )


@st.composite
def histories(draw: st.DrawFn, forms: Sequence[str]) -> History:
    """Up to five micro-batches in one of these forms."""
    form = draw(st.sampled_from(forms))
    count = draw(st.integers(1, 5))
    return {"append": _appends, "upsert": _upserts, "changes": _changes, "multiset": _multisets}[
        form
    ](draw, count)


def _appends(draw: st.DrawFn, count: int) -> History:
    row = st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES))
    batches = [draw(st.lists(row, max_size=4)) for _ in range(count)]
    rows = [row for batch in batches for row in batch]
    return History({}, [_table(batch, ["k", "v"]) for batch in batches], rows)


def _upserts(draw: st.DrawFn, count: int) -> History:
    row = st.tuples(
        st.sampled_from(KEYS), st.integers(1, 2), st.integers(0, 6), st.sampled_from(VALUES)
    )
    latest: dict[Any, Any] = {}
    batches = []
    for _ in range(count):
        batch = draw(st.lists(row, max_size=6, unique_by=lambda r: r[:3]))
        for k, n, revision, v in sorted(batch, key=lambda r: r[2]):
            if (k, n) not in latest or latest[k, n][2] < revision:
                latest[k, n] = (k, n, revision, v)
        batches.append(_table(batch, ["k", "n", "revision", "v"]))
    return History({"key": ["k", "n"]}, batches, list(latest.values()))


def _changes(draw: st.DrawFn, count: int) -> History:
    """Inserts, updates and deletes of keys; a deleted key comes back with its next revision."""
    table: dict[Any, Any] = {}
    revisions: Counter[Any] = Counter()
    batches = []
    for _ in range(count):
        batch = []
        for k, is_deleted, v in draw(
            st.lists(
                st.tuples(st.sampled_from(KEYS), st.booleans(), st.sampled_from(VALUES)), max_size=6
            )
        ):
            old = table.pop(k, None)
            if old is not None:
                batch.append((*old, D if is_deleted else B))
            if old is None or not is_deleted:
                revisions[k] += 1
                table[k] = (k, revisions[k], v)
                batch.append((*table[k], I if old is None else A))
        batches.append(_table(draw(st.permutations(batch)), ["k", "revision", "v", "_change_type"]))
    return History({"key": "k"}, batches, list(table.values()))


def _multisets(draw: st.DrawFn, count: int) -> History:
    rows: list[Any] = []
    batches = []
    for _ in range(count):
        batch = []
        for is_removed in draw(st.lists(st.booleans(), max_size=6)):
            if is_removed and rows:
                batch.append((*rows.pop(draw(st.integers(0, len(rows) - 1))), D))
            else:
                rows.append((draw(st.sampled_from(KEYS)), draw(st.sampled_from(VALUES))))
                batch.append((*rows[-1], I))
        batches.append(_table(draw(st.permutations(batch)), ["k", "v", "_change_type"]))
    return History({}, batches, rows)


def deliver_with_crashes(
    data: st.DataObject,
    new_sink: Callable[..., Sink],
    history: History,
    steps: Sequence[Step],
    *,
    in_tasks: bool = False,
) -> None:
    """Deliver all micro-batches. A drawn number of drivers crashes at drawn steps.

    With `in_tasks`, tasks deliver each micro-batch, or the driver does, as is drawn.
    """
    run = 0
    sink = new_sink(**history.options)
    for batch, rows in enumerate(history.batches):
        for crash_at in [*data.draw(st.lists(st.integers(1, 16), max_size=2)), None]:
            try:
                with crashing(steps, crash_at):
                    identity = Identity("query", f"run {run}")
                    if in_tasks and data.draw(st.integers(0, 3)):
                        seed = data.draw(st.integers(0, 99))
                        deliver(sink, Attempts(rows, seed=seed), batch, identity)
                    else:
                        sink._deliver_rows(rows, batch, identity)
            except Crash:
                pass
            if crash_at is not None:
                run, sink = run + 1, new_sink(**history.options)


_CHANGES = ["k", "revision", "v", "_change_type"]
FIXED = {
    "append": History(
        {},
        [_table([("a", 1.0)], ["k", "v"]), _table([("a", 2.0), ("c", 3.0)], ["k", "v"])],
        [("a", 1.0), ("a", 2.0), ("c", 3.0)],
    ),
    "upsert": History(
        {"key": "k"},
        [
            _table([("a", 5, 1.0), ("c", 0, 2.0), (None, 0, 3.0)], _CHANGES[:3]),
            _table([("a", 4, 9.0), ("c", 1, 4.0), ("d", 0, 5.0)], _CHANGES[:3]),
        ],
        [("a", 5, 1.0), ("c", 1, 4.0), (None, 0, 3.0), ("d", 0, 5.0)],
    ),
    "changes": History(
        {"key": "k"},
        [
            _table([("a", 0, 1.0, I), ("c", 0, 2.0, I), (None, 0, 3.0, I)], _CHANGES),
            _table(
                [("a", 0, 1.0, B), ("a", 1, 4.0, A), ("c", 0, 2.0, D), ("d", 0, 5.0, I)], _CHANGES
            ),
        ],
        [("a", 1, 4.0), (None, 0, 3.0), ("d", 0, 5.0)],
    ),
    "multiset": History(
        {},
        [
            _table([("a", 1.0, I)] * 3 + [(None, 2.0, I)], ["k", "v", "_change_type"]),
            _table(
                [("a", 1.0, D), ("a", 1.0, D), ("d", 0.0, I), (None, 2.0, D)],
                ["k", "v", "_change_type"],
            ),
        ],
        [("a", 1.0), ("d", 0.0)],
    ),
}
"""A history of two micro-batches in each form."""


def deliver_with_every_crash(
    history: History,
    steps: Sequence[Step],
    new_target: Callable[[], tuple[Callable[..., Sink], Callable[[], None]]],
) -> int:
    """Let tasks deliver the last micro-batch, with a crash at each step in turn; then the next run delivers it.

    Returns the number of steps. `new_target` returns a new target, and what is true of it in the end.
    """
    first, last = history.batches
    for crash_at in itertools.count(1):
        new_sink, check = new_target()
        sink = new_sink(**history.options)
        deliver(sink, first, 0, Identity("query", "run 0"))
        try:
            with crashing(steps, crash_at) as points:
                deliver(sink, Attempts(last, seed=3), 1, Identity("query", "run 0"))
        except Crash:
            deliver(new_sink(**history.options), last, 1, Identity("query", "run 1"))
        check()
        if points.passed < crash_at:
            return points.passed
    raise AssertionError


class crashing:
    """Raise an exception at one of the steps, counted before and after each of them."""

    def __init__(self, steps: Sequence[Step], crash_at: int | None) -> None:
        self.steps, self.crash_at, self.passed = steps, crash_at, 0
        self.patch = pytest.MonkeyPatch()

    def __enter__(self) -> crashing:
        steps = self.steps if self.crash_at is not None else ()
        for owner, name, function in [(owner, name, getattr(owner, name)) for owner, name in steps]:
            self.patch.setattr(owner, name, self._interrupted(function))
        return self

    def __exit__(self, *_: object) -> None:
        self.patch.undo()

    def _interrupted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            self.step()
            result = function(*arguments, **named)
            self.step()
            return result

        return run

    def step(self) -> None:
        self.passed += 1
        if self.passed == self.crash_at:
            raise Crash


def require_nothing_left(database: Any, step: Step) -> None:
    """Crash a driver at a step, each time that it is taken; the next one removes what tasks have staged.

    `database` has sinks of a table, its rows, and the names of staging tables.
    """
    owner, name = step
    table = pa.table({"k": range(9)})
    for crash_at in itertools.count(1):
        database.new_table()
        steps = crashing([], crash_at)
        given = Attempts(table)
        if owner is Attempts:
            setattr(given, name, steps.step)
        else:
            steps.steps = [step]
        try:
            with steps:
                deliver(database.sink(), given, 0, Identity("query", "run 1"))
        except Crash:
            deliver(database.sink(), table, 0, Identity("query", "run 2"))
            assert database.rows() == [(k,) for k in range(9)]
            assert database.staging() == []
            continue
        break
    assert crash_at > 2
