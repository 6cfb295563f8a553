"""What every sink of tables does, without Spark: the rows of micro-batches are Arrow tables.

The tests of a sink derive a class from `Contract` and define the fixture `target`.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from streamops.errors import ChangeStreamError, SinkError
from streamops.sinks.sink import Sink
from streamops.spark.identity import Identity

RUN = Identity("query", "run 1")
I, B, A, D = "insert", "update_preimage", "update_postimage", "delete"  # noqa: E741
NAN, INF = float("nan"), float("inf")
INSTANTS = [
    dt.datetime.fromisoformat(text) for text in ("0001-01-01", "9999-12-31T23:59:59.999999")
]

ODD = [
    "my table",
    'say "hi"',
    "a.b",
    "x'; DROP TABLE t; --",
    "`tick`",
    "s.k",
    "ünï",
    "%s $1 :x {y}",
]

TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int16(), [-(2**15), 2**15 - 1]),
    (pa.int32(), [-(2**31), 2**31 - 1]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [1.5, -INF, NAN]),
    (pa.float64(), [1e300, INF, NAN]),
    *(
        (pa.decimal128(38, scale), [Decimal(12345).scaleb(-scale), Decimal(-1).scaleb(-scale)])
        for scale in (0, 1, 2, 4, 6, 18, 37)
    ),
    (pa.decimal128(5, 2), [Decimal("999.99"), Decimal("-0.01")]),
    (pa.string(), ["", "naïve \n\t 'quoted' \U0001f600"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [value.replace(tzinfo=dt.UTC) for value in INSTANTS]),
    (pa.timestamp("us"), INSTANTS),
]


@dataclass
class Target:
    """A new sink of a target, as of a process that has just started, and the rows of the target."""

    sink: Callable[..., Sink]
    rows: Callable[[], list[dict[str, Any]]]

    def deliver(self, batch: int, run: Identity = RUN, options: Any = None, **columns: Any) -> None:
        self.sink(**(options or {}))._deliver_rows(pa.table(columns), batch, run)

    def content(self, *names: str) -> list[tuple[Any, ...]]:
        """The rows, in an order that does not depend on the target."""
        return ordered(tuple(row[n] for n in names or row) for row in self.rows())


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def run_of(number: int, query: str = "query") -> Identity:
    return Identity(query, f"run {number}")


class AppendZombies:
    """What every sink does if the driver of an older run still writes."""

    frozen_at = 1
    """The decision after which a driver is frozen: the last one before the sink commits."""

    def test_a_zombie_writes_nothing(self, target: Target) -> None:
        old, new = target.sink(), target.sink()
        old._deliver_rows(pa.table({"a": [1]}), 0, RUN)
        new._deliver_rows(pa.table({"a": [2]}), 1, run_of(2))
        for batch in (1, 2):
            with pytest.raises(SinkError, match="FENCED"):
                old._deliver_rows(pa.table({"a": [3]}), batch, RUN)
        new._deliver_rows(pa.table({"a": [4]}), 2, run_of(2))
        assert target.content("a") == [(1,), (2,), (4,)]

    def test_a_driver_that_is_frozen_in_its_commit_and_goes_on(self, target: Target) -> None:
        old, new = target.sink(), target.sink()
        old._deliver_rows(pa.table({"a": [1]}), 0, RUN)
        frozen, resumed, decisions = threading.Event(), threading.Event(), itertools.count(1)
        decide = old._decide

        def freeze(*arguments: Any, **others: Any) -> Any:
            decision = decide(*arguments, **others)
            if next(decisions) == self.frozen_at:
                frozen.set()
                assert resumed.wait(30)
            return decision

        object.__setattr__(old, "_decide", freeze)
        outcomes: dict[str, str] = {}

        def write(name: str, sink: Sink, run: Identity) -> None:
            try:
                sink._deliver_rows(pa.table({"a": [2]}), 1, run)
                outcomes[name] = "done"
            except SinkError as error:
                outcomes[name] = error.code

        writers = [
            threading.Thread(target=write, args=writer)
            for writer in (("old", old, RUN), ("new", new, run_of(2)))
        ]
        writers[0].start()
        assert frozen.wait(30)
        writers[1].start()
        writers[1].join(1)  # a database makes it wait for the transaction of the frozen one
        resumed.set()
        for writer in writers:
            writer.join()
        assert outcomes["new"] == "done"
        assert outcomes["old"] in {"done", "FENCED"}
        with pytest.raises(SinkError, match="FENCED"):
            old._deliver_rows(pa.table({"a": [3]}), 2, RUN)
        new._deliver_rows(pa.table({"a": [4]}), 2, run_of(2))
        assert target.content("a") == [(1,), (2,), (4,)]


class Zombies(AppendZombies):
    """The same with keys, and with change streams."""

    @pytest.mark.parametrize("form", ["upserts", "revisions", "changes", "multiset"])
    def test_a_zombie_changes_no_row(self, target: Target, form: str) -> None:
        options = {} if form == "multiset" else {"key": "k"}
        old, new = target.sink(**options), target.sink(**options)
        first, second, third = versions(form)
        old._deliver_rows(first, 0, RUN)
        new._deliver_rows(second, 1, run_of(2))
        for batch, rows in ((1, second), (2, third), (3, third)):
            with pytest.raises(SinkError, match="FENCED"):
                old._deliver_rows(rows, batch, RUN)
        assert target.content("k", "v") == [("a", 10)]
        new._deliver_rows(third, 2, run_of(2))
        assert target.content("k", "v") == [("a", 100)]


def versions(form: str) -> list[pa.Table]:
    """A row, and two micro-batches that replace it."""
    dropped = {
        "upserts": ["revision", "_change_type"],
        "revisions": ["_change_type"],
        "changes": [],
        "multiset": ["revision"],
    }
    insert = {"k": ["a"], "v": [1], "revision": [0], "_change_type": [I]}
    tables = [pa.table(insert)]
    for revision, value in ((1, 10), (2, 100)):
        values, revisions = [value // 10, value], [revision - 1, revision]
        update = {"k": ["a", "a"], "v": values, "revision": revisions, "_change_type": [B, A]}
        rows = pa.table(update)
        tables.append(rows if form in {"changes", "multiset"} else rows.slice(1))
    return [table.drop_columns(dropped[form]) for table in tables]


class LedgerContract(AppendZombies):
    """What every sink does with deliveries."""

    def test_appended_rows_are_written_once(self, target: Target) -> None:
        for number in (1, 2, 3):
            target.deliver(0, run_of(number), a=[1, 1], b=["x", None])
        assert target.content("a", "b") == [(1, "x"), (1, None)]
        entry = target.sink().read_ledger()
        assert entry is not None
        assert (entry.query, entry.batch, entry.rows) == ("query", 0, 2)
        assert (entry.generation, entry.run) == (3, "run 3")

    def test_a_sink_without_a_target_has_no_entry(self, target: Target) -> None:
        assert target.sink().read_ledger() is None

    def test_a_repeated_micro_batch_with_other_rows(self, target: Target) -> None:
        target.deliver(0, a=[1])
        with pytest.raises(SinkError, match="BATCH_DIFFERS"):
            target.deliver(0, run_of(2), a=[2])
        target.deliver(0, run_of(2), {"repeated": "skip"}, a=[2])
        assert target.content("a") == [(1,)]

    def test_restored_copies_are_detected(self, target: Target) -> None:
        sink = target.sink()
        for batch in range(3):
            sink._deliver_rows(pa.table({"a": [batch]}), batch, RUN)
        for batch, code in ((4, "BATCH_GAP"), (1, "CHECKPOINT_BEHIND")):
            with pytest.raises(SinkError, match=code):
                target.deliver(batch, run_of(2), a=[batch])
        assert len(target.content("a")) == 3

    def test_a_target_without_an_entry_of_a_query_that_has_started(self, target: Target) -> None:
        with pytest.raises(SinkError, match="LEDGER_LOST"):
            target.deliver(3, a=[3])
        target.deliver(3, RUN, {"new_checkpoint": "continue"}, a=[3])
        assert target.content("a") == [(3,)]

    def test_an_empty_micro_batch_advances_the_ledger(self, target: Target) -> None:
        sink = target.sink()
        for batch in range(3):
            sink._deliver_rows(pa.table({"a": pa.array([], pa.int64())}), batch, RUN)
        assert target.content() == []
        assert sink.read_ledger().batch == 2  # type: ignore[union-attr]


class AppendContract(LedgerContract):
    """What every sink of tables does with appended rows."""

    def test_another_checkpoint_needs_a_decision(self, target: Target) -> None:
        target.deliver(0, a=[1])
        other, third = run_of(2, "other query"), run_of(3, "third query")
        with pytest.raises(SinkError, match="NEW_CHECKPOINT"):
            target.deliver(0, other, a=[2])
        target.deliver(0, other, {"new_checkpoint": "continue"}, a=[2])
        assert target.content("a") == [(1,), (2,)]
        target.deliver(0, third, {"new_checkpoint": "replace"}, a=[3])
        assert target.content("a") == [(3,)]
        for former in (RUN, other):
            with pytest.raises(SinkError, match="FENCED"):
                target.deliver(0, run_of(4, former.query), {"new_checkpoint": "continue"}, a=[2])
        assert target.sink().read_ledger().former == ("query", "other query")  # type: ignore[union-attr]

    def test_columns_can_be_missing_and_added(self, target: Target) -> None:
        target.deliver(0, a=[1], b=["x"])
        target.deliver(1, run_of(2), b=["y"])
        with pytest.raises(SinkError, match="TARGET_COLUMNS"):
            target.deliver(2, run_of(3), a=[1], c=[2.5])
        target.deliver(2, run_of(4), {"columns": "add"}, a=[1], c=[2.5])
        expected = [(1, "x", None), (None, "y", None), (1, None, 2.5)]
        assert target.content("a", "b", "c") == ordered(expected)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (pa.int32(), pa.int64()),
            (pa.string(), pa.int64()),
            (pa.decimal128(10, 1), pa.decimal128(10, 2)),
        ],
        ids=str,
    )
    def test_types_that_do_not_fit_are_refused(
        self, target: Target, old: pa.DataType, new: pa.DataType
    ) -> None:
        target.deliver(0, a=pa.nulls(1, old))
        with pytest.raises(SinkError, match="TARGET_TYPE"):
            target.deliver(1, run_of(2), a=pa.nulls(1, new))
        target.deliver(1, run_of(2), a=pa.nulls(1, old))
        assert target.content("a") == [(None,), (None,)]


class Contract(Zombies, AppendContract):
    """What every sink of tables does."""

    other_outcomes: frozenset[str] = frozenset()
    """What else can happen to one of two writers."""

    def test_revisions_never_decrease(self, target: Target) -> None:
        sink = target.sink(key="k")
        for batch, revisions in enumerate([[0, 3], [2, 2], [1, 4], [1, 4]]):
            values = [10 * batch + revision for revision in revisions]
            rows = pa.table({"k": ["a", "b"], "revision": revisions, "v": values})
            sink._deliver_rows(rows, batch, RUN)
        assert target.content("k", "revision", "v") == [("a", 2, 12), ("b", 4, 24)]
        assert sink.read_ledger().batch == 3  # type: ignore[union-attr]

    def test_rows_of_one_sequence_contradict_each_other(self, target: Target) -> None:
        sink = target.sink(key="k")
        sink._deliver_rows(pa.table({"k": [1], "revision": [5], "v": [1]}), 0, RUN)
        with pytest.raises(ChangeStreamError, match="REVISION_OUT_OF_STEP"):
            sink._deliver_rows(pa.table({"k": [2, 2], "revision": [6, 6], "v": [1, 2]}), 1, RUN)
        # In a later micro-batch, a row of the same sequence is not newer.
        sink._deliver_rows(pa.table({"k": [1, 2], "revision": [5, 6], "v": [2, 3]}), 1, RUN)
        assert target.content("k", "v") == [(1, 1), (2, 3)]

    def test_columns_that_others_added_and_filled_stay(self, target: Target) -> None:
        sink, other = target.sink(key="k"), target.sink(key="k", name="other", columns="add")
        sink._deliver_rows(
            pa.table({"k": [1, 2, 3], "revision": [0, 0, 0], "v": [1, 2, 3]}), 0, RUN
        )
        theirs = {"k": [1, 2], "revision": [1, 1], "more": ["x", "y"]}
        other._deliver_rows(pa.table(theirs), 0, run_of(1, "other query"))
        rows = {"k": [1, 4], "revision": [2, 0], "v": [10, 40]}
        sink._deliver_rows(pa.table(rows), 1, RUN)
        expected = [(1, 10, "x"), (2, 2, "y"), (3, 3, None), (4, 40, None)]
        assert target.content("k", "v", "more") == expected

    def test_a_sequence_of_two_columns(self, target: Target) -> None:
        sink = target.sink(key="k", sequence=["s", "t"])
        orders = [[(1, 5), (1, 5)], [(1, 4), (1, 6)], [(2, 0), (0, 9)]]
        for batch, order in enumerate(orders):
            s, t = zip(*order, strict=True)
            sink._deliver_rows(
                pa.table({"k": [1, 2], "s": s, "t": t, "v": [batch] * 2}), batch, RUN
            )
        assert target.content("k", "s", "t", "v") == [(1, 2, 0, 2), (2, 1, 6, 1)]

    def test_a_stored_row_without_a_sequence_is_older(self, target: Target) -> None:
        target.deliver(0, options={"key": "k"}, k=[1, 2], v=["a", "b"])
        options = {"key": "k", "columns": "add"}
        target.deliver(1, run_of(2), options, k=[1], v=["c"], revision=[0])
        assert target.content("k", "v", "revision") == [(1, "c", 0), (2, "b", None)]

    def test_rows_without_a_sequence_replace_each_other(self, target: Target) -> None:
        sink = target.sink(key=["k", "j"])
        sink._deliver_rows(pa.table({"k": [1, None], "j": [None, "x"], "v": [1, 2]}), 0, RUN)
        sink._deliver_rows(pa.table({"k": [1, None], "j": [None, "x"], "v": [3, 4]}), 1, RUN)
        assert target.content("k", "j", "v") == [(1, None, 3), (None, "x", 4)]

    def test_a_key_of_doubles_has_one_zero_and_one_nan(self, target: Target) -> None:
        sink = target.sink(key="k")
        sink._deliver_rows(pa.table({"k": [0.0, NAN, 1.5], "v": [1, 2, 3]}), 0, RUN)
        sink._deliver_rows(pa.table({"k": [-0.0, -NAN], "v": [4, 5]}), 1, RUN)
        assert target.content("v") == [(3,), (4,), (5,)]

    def test_a_change_stream_without_key_is_a_multiset(self, target: Target) -> None:
        x, y = ["a", "a", None, "b", "b"], [1, 1, NAN, None, 2]
        target.deliver(0, x=x, y=y, _change_type=[I] * 5)
        target.deliver(1, x=["a", None, "b", "a", "c", "c"], y=[1, NAN, None, 5, 6.5, 6.5], _change_type=[D, B, D, I, I, I])  # fmt: skip
        expected = [("a", 1.0), ("a", 5.0), ("b", 2.0), ("c", 6.5), ("c", 6.5)]
        assert target.content("x", "y") == expected
        with pytest.raises(ChangeStreamError, match="PREIMAGE_NOT_PUBLISHED"):
            target.deliver(2, x=["a", "a"], y=[1.0, 1.0], _change_type=[D, D])
        assert target.content("x", "y") == expected

    @pytest.mark.parametrize(
        ("code", "types", "revisions", "values"),
        [
            ("PREIMAGE_NOT_PUBLISHED", [B, A], [0, 1], [99, 5]),
            ("INSERTED_TWICE", [I], [0], [7]),
        ],
    )
    def test_changes_that_contradict_the_table_change_nothing(
        self, target: Target, code: str, types: Any, revisions: Any, values: Any
    ) -> None:
        sink = target.sink(key="k")

        def deliver(batch: int, **columns: Any) -> None:
            sink._deliver_rows(pa.table(columns), batch, RUN)

        deliver(0, k=["a", "b"], v=[1, 2], revision=[0, 0], _change_type=[I, I])
        keys = ["c", *("a" for _ in types)]
        with pytest.raises(ChangeStreamError) as error:
            deliver(1, k=keys, v=[3, *values], revision=[0, *revisions], _change_type=[I, *types])
        assert error.value.code == code
        assert "streamops_" not in error.value.got
        assert target.content("k", "v", "revision") == [("a", 1, 0), ("b", 2, 0)]
        assert sink.read_ledger().batch == 0  # type: ignore[union-attr]
        # The query goes on when the stream is correct.
        deliver(1, k=["a", "b", "b"], v=[1, 2, 3], revision=[0, 0, 1], _change_type=[D, B, A])
        assert target.content("k", "v", "revision") == [("b", 3, 1)]
        with pytest.raises(ChangeStreamError, match="DELETED_UNPUBLISHED"):
            deliver(2, k=["a"], v=[1], revision=[0], _change_type=[D])

    def test_captured_changes_have_a_sequence_of_their_own(self, target: Target) -> None:
        sink = target.sink(key="id", sequence="_sequence")
        first = {"id": [1, 2], "v": ["x", "y"], "_sequence": [1, 2], "_change_type": [I, I]}
        sink._deliver_rows(pa.table(first), 0, RUN)
        second = {"id": [1, 1, 2], "v": ["x", "z", None], "_sequence": [3, 3, 4], "_change_type": [B, A, D]}  # fmt: skip
        sink._deliver_rows(pa.table(second), 1, RUN)
        assert target.content("id", "v", "_sequence") == [(1, "z", 3)]

    @pytest.mark.parametrize("keyed", [False, True])
    def test_of_two_racing_writers_one_writes_each_micro_batch(
        self, target: Target, keyed: bool
    ) -> None:
        outcomes: list[str] = []

        def write(writer: int) -> None:
            for batch in range(10):
                sink = target.sink(**({"key": "batch"} if keyed else {}))
                while True:
                    try:
                        rows = pa.table({"batch": [batch, -1 if keyed else batch]})
                        sink._deliver_rows(rows, batch, run_of(batch, "query")._replace(run=f"{writer} {batch}"))  # fmt: skip
                        outcomes.append("done")
                    except SinkError as error:
                        outcomes.append(error.code)
                        # The other has not written the one before; or it holds the database.
                        if error.code in {"BATCH_GAP", "TARGET_UNAVAILABLE"}:
                            continue
                    break

        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        batches = range(10)
        expected = [-1, *batches] if keyed else [*batches, *batches]
        assert target.content("batch") == ordered((batch,) for batch in expected)
        expected_outcomes = {"done", "CHECKPOINT_BEHIND", "BATCH_GAP", "TARGET_UNAVAILABLE"}
        assert set(outcomes) <= expected_outcomes | self.other_outcomes, set(outcomes)

    def test_a_replaced_target_has_the_rows_of_the_new_query(self, target: Target) -> None:
        options = {"key": "k", "new_checkpoint": "replace"}
        changes = {"revision": [0, 0], "_change_type": [I, I]}
        target.deliver(0, RUN, options, k=[1, 2], v=[1, 2], **changes)
        wrong = {"k": [1], "v": [1], "revision": [0], "_change_type": [D]}
        with pytest.raises(ChangeStreamError, match="DELETED_UNPUBLISHED"):
            target.deliver(0, run_of(2, "other"), options, **wrong)
        assert len(target.content()) == 2
        target.deliver(0, run_of(2, "other"), options, k=[1, 3], v=[5, 6], **changes)
        assert target.content("k", "v") == [(1, 5), (3, 6)]

    @pytest.mark.parametrize("odd", ODD)
    def test_names_are_quoted(self, target: Target, odd: str) -> None:
        sink = target.sink(key=odd)
        first = {odd: [1, 2], "v": [odd, odd], "revision": [0, 0], "_change_type": [I, I]}
        sink._deliver_rows(pa.table(first), 0, RUN)
        second = {odd: [1, 1, 2], "v": [odd, "new", odd], "revision": [0, 1, 0], "_change_type": [B, A, D]}  # fmt: skip
        sink._deliver_rows(pa.table(second), 1, RUN)
        assert target.content(odd, "v") == [(1, "new")]
        upserts = target.sink(key=odd, sequence=odd, columns="add")
        more = {odd: [1, 3], "v": ["x", "y"], "revision": [5, 5], f"more {odd}": [1, 2]}
        upserts._deliver_rows(pa.table(more), 2, run_of(2))
        assert target.content(odd, "v", f"more {odd}") == [(1, "new", None), (3, "y", 2)]

    def test_a_target_that_must_exist(self, target: Target) -> None:
        with pytest.raises(SinkError, match="TARGET_MISSING"):
            target.deliver(0, RUN, {"missing": "refuse"}, a=[1])
        target.deliver(0, a=[1])
        target.deliver(1, run_of(2), {"missing": "refuse"}, a=[2])
        assert target.content("a") == [(1,), (2,)]

    @pytest.mark.parametrize(("dtype", "values"), TYPES, ids=lambda value: str(value)[:24])
    def test_types_are_stored_without_loss(
        self, target: Target, dtype: pa.DataType, values: list[Any]
    ) -> None:
        round_trip(target, dtype, values)


def round_trip(target: Target, dtype: pa.DataType, values: list[Any]) -> None:
    """Insert, update and delete rows with these values, and a null."""
    sink = target.sink(key="k")
    values = [*values, None]
    count = len(values)
    table = pa.table({"k": range(count), "v": pa.array(values, dtype), "revision": [0] * count})
    sink._deliver_rows(table.append_column("_change_type", pa.array([I] * count)), 0, RUN)
    assert comparable(target.content("k", "v")) == comparable(ordered(enumerate(values)))
    # A preimage is compared with what the table has.
    twice = [number for number in range(count) for _ in range(2)]
    again = table.take(twice).set_column(2, "revision", pa.array([0, 1] * count))
    sink._deliver_rows(again.append_column("_change_type", pa.array([B, A] * count)), 1, RUN)
    assert target.content("revision") == [(1,)] * count
    last = table.set_column(2, "revision", pa.array([1] * count))
    sink._deliver_rows(last.append_column("_change_type", pa.array([D] * count)), 2, RUN)
    assert target.content() == []


def comparable(rows: list[tuple[Any, ...]]) -> str:
    """All that distinguishes values, such as -0.0 from 0.0, but not how the zone UTC is represented."""
    return repr(
        [
            tuple(
                v.replace(tzinfo=v.tzinfo and dt.UTC) if isinstance(v, dt.datetime) else v
                for v in row
            )
            for row in rows
        ]
    )
