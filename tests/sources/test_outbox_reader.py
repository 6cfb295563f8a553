"""The reader of a stream, called as Spark calls it, with crashes between any two calls."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from streamops.errors import CheckpointError, RequirementError
from streamops.sources import outbox_source
from streamops.sources.outbox_source import OutboxParameters, OutboxSource
from tests.sources.shop import Shop, ids, insert, shop

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")
limits = pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.1 has no limits")
ReadAllAvailable, ReadMaxRows = limits.ReadAllAvailable, limits.ReadMaxRows

Offset = dict[str, Any]


@pytest.fixture
def orders(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.setattr(outbox_source, "_PAUSE", 0.0)
    with shop(postgres) as found:
        found.created().close()
        yield found


def source(orders: Shop, **changes: Any) -> OutboxSource:
    parameters = OutboxParameters(url=orders.where, names=orders.names(**changes), max_rows=3)
    return OutboxSource(parameters.to_options())


def rows_of(reader: Any, parts: list[Any]) -> list[dict[str, Any]]:
    return [
        row
        for part in parts or []
        for batch in reader.read(part)
        for row in pa.Table.from_batches([batch]).to_pylist()
    ]


class Query:
    """What Spark does with a reader: a log of offsets, a log of commits, and the rows of micro-batches."""

    def __init__(self, orders: Shop) -> None:
        self.orders = orders
        self.offsets: list[Offset] = []
        self.committed = 0
        self.output: dict[int, list[str | None]] = {}
        self.repeated = 0
        self.start()

    def start(self) -> None:
        data_source = source(self.orders)
        self.reader: Any = data_source.streamReader(data_source.schema())
        self.orders.closing(self.reader._log)

    def restart(self) -> None:
        self.reader.stop()
        self.start()

    def steps(self) -> Iterator[str]:
        """Run a micro-batch; the query may crash after each step."""
        if not self.offsets:
            self.offsets.append(self.reader.initialOffset())
            yield "begun"
        if self.committed == len(self.offsets) - 1:  # the last planned micro-batch is done
            limit = self.reader.getDefaultReadLimit()
            end = self.reader.latestOffset(self.offsets[-1], limit)
            yield "looked"
            if end == self.offsets[-1]:
                return
            self.offsets.append(json.loads(json.dumps(end)))
            yield "planned"
            self.reader.commit(self.offsets[-2])
            yield "released"
        start, end = self.offsets[-2:]
        rows = ids(rows_of(self.reader, self.reader.partitions(start, end)))
        number = self.committed
        if number in self.output:
            self.repeated += 1
            assert rows == self.output[number]
        self.output[number] = rows
        yield "computed"
        self.committed += 1
        yield "committed"

    def run(self) -> None:
        """Run until there is nothing more."""
        while "looked" not in (done := list(self.steps())) or "planned" in done:
            pass

    @property
    def rows(self) -> list[str | None]:
        return [row for number in sorted(self.output) for row in self.output[number]]


def test_micro_batches_are_whole_transactions_with_about_as_many_rows_as_allowed(
    orders: Shop,
) -> None:
    for number in range(4):
        orders.insert(*(f"e{number}.{n}" for n in range(2)))
    orders.insert(*(f"large{n}" for n in range(7)))
    orders.insert("last")
    query = Query(orders)
    query.run()
    assert [len(rows) for rows in query.output.values()] == [4, 4, 7, 1]
    assert query.rows == orders.committed


@pytest.mark.parametrize("seed", range(6))
def test_crashes_between_any_two_steps_lose_and_repeat_nothing(orders: Shop, seed: int) -> None:
    rng = random.Random(seed)
    query, crashes = Query(orders), 0
    writers = [psycopg.connect(orders.where) for _ in range(3)]
    pending: list[list[str]] = [[] for _ in writers]
    for number in range(60):
        which = rng.randrange(3)
        id_ = f"e{number}"
        insert(writers[which], id_)
        pending[which].append(id_)
        if rng.random() < 0.4:
            if rng.random() < 0.25:
                writers[which].rollback()
            else:
                writers[which].commit()
                orders.committed += pending[which]
            pending[which] = []
        # A look at the log waits for a record that is not completely on disk: this one is committed.
        orders.connection.execute("SELECT pg_logical_emit_message(true, '', '')")
        for _ in query.steps():
            if rng.random() < 0.15:
                query.restart()
                crashes += 1
                break
    for writer, rest in zip(writers, pending, strict=True):
        writer.commit()
        writer.close()
        orders.committed += rest
    query.run()
    assert query.rows == orders.committed
    assert crashes > 10
    assert query.repeated > 0


def test_the_slot_advances_only_to_micro_batches_that_are_committed(orders: Shop) -> None:
    def slot() -> int:
        return orders.log().check()[1]

    query, begin = Query(orders), slot()
    orders.insert("e1", "e2", "e3")
    orders.insert("e4")
    for step in query.steps():
        assert slot() == begin, step
    first = outbox_source.Offset.from_json(query.offsets[-1]).lsn
    for step in query.steps():
        assert slot() == (begin if step in ("looked", "planned") else first), step


def test_a_query_whose_slot_was_advanced_by_another_one_is_refused(orders: Shop) -> None:
    query = Query(orders)
    orders.insert("e1")
    query.run()
    orders.insert("e2")
    status, _ = orders.log().check()
    orders.log().advance(status.flushed)
    query.restart()
    with pytest.raises(CheckpointError, match="SLOT_AHEAD"):
        list(query.steps())


def test_a_planned_micro_batch_is_refused_if_its_events_are_missing(orders: Shop) -> None:
    query = Query(orders)
    orders.insert("e1")
    for step in query.steps():
        if step == "planned":
            break
    status, _ = orders.log().check()
    orders.log().advance(status.flushed)
    query.restart()
    with pytest.raises(CheckpointError, match="SLOT_AHEAD"):
        list(query.steps())


def test_a_slot_that_was_dropped_and_created_again_is_noticed(orders: Shop) -> None:
    query = Query(orders)
    orders.insert("e1")
    query.run()
    orders.connection.execute("SELECT pg_drop_replication_slot(%s)", [orders.slot])
    orders.insert("lost")
    query.restart()
    with pytest.raises(RequirementError, match="SOURCE_MISSING"):
        list(query.steps())
    orders.connection.execute("DELETE FROM outbox")
    orders.created().close()
    with pytest.raises(CheckpointError, match="SLOT_AHEAD"):
        list(query.steps())


def test_a_checkpoint_of_another_server_is_refused(orders: Shop) -> None:
    query = Query(orders)
    list(query.steps())
    query.offsets[-1]["system"] = "1"
    with pytest.raises(CheckpointError, match="OTHER_SERVER"):
        list(query.steps())
    query.offsets[-1] = {**query.reader.initialOffset(), "lsn": "FF/0"}
    with pytest.raises(CheckpointError, match="LOG_BEHIND"):
        list(query.steps())


def test_a_log_without_events_is_released_now_and_then(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_source, "_IDLE", 100_000)
    query = Query(orders)
    list(query.steps())
    assert list(query.steps()) == ["looked"]  # little happened
    begin = orders.log().check()[1]
    orders.connection.execute("CREATE TABLE noise (x text)")
    for _ in range(3):
        orders.connection.execute(
            "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 1000)"
        )
        orders.connection.execute("CHECKPOINT")  # a position from which decoding can begin
        query.run()
    orders.insert("e1")
    query.run()
    assert query.rows == ["e1"]
    assert len(query.output) >= 4
    (restart,) = orders.connection.execute(
        "SELECT (restart_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s",
        [orders.slot],
    ).fetchall()
    assert restart[0] > begin


def test_many_messages_before_the_start_do_not_hide_what_follows(orders: Shop) -> None:
    query = Query(orders)
    list(query.steps())
    for number in range(200):
        orders.insert(f"e{number}")
    # Everything was read, and nothing was released.
    everything = query.reader.latestOffset(query.offsets[0], ReadAllAvailable())
    orders.insert("next")
    query.restart()
    end = query.reader.latestOffset(everything, ReadMaxRows(1))
    assert ids(rows_of(query.reader, query.reader.partitions(everything, end))) == ["next"]


def test_available_now_ends_at_what_was_there_when_it_began(orders: Shop) -> None:
    orders.insert("e1", "e2", "e3", "e4")
    orders.insert("e5")
    query = Query(orders)
    query.reader.prepareForTriggerAvailableNow()
    orders.insert("later")
    query.run()
    assert query.rows == ["e1", "e2", "e3", "e4", "e5"]
    assert [len(rows) for rows in query.output.values()] == [4, 1]


def test_without_a_limit_a_micro_batch_has_all_there_is(orders: Shop) -> None:
    for number in range(10):
        orders.insert(f"e{number}")
    query = Query(orders)
    start = query.reader.initialOffset()
    for end in (query.reader.latestOffset(start, ReadAllAvailable()), query.reader.latestOffset()):
        assert len(rows_of(query.reader, query.reader.partitions(start, end))) == 10
    assert query.reader.partitions(start, start) == []


def test_an_answer_that_spark_does_not_use_stays_the_same(orders: Shop) -> None:
    query = Query(orders)
    orders.insert("e1")
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, ReadMaxRows(3))
    orders.insert("e2")
    assert query.reader.latestOffset(start, ReadMaxRows(3)) == end
    assert query.reader.reportLatestOffset()["lsn"] >= end["lsn"]


def test_a_batch_has_what_the_slot_has_and_does_not_move_it(orders: Shop) -> None:
    data_source = source(orders)
    reader = data_source.reader(data_source.schema())
    assert reader.partitions() == []
    assert list(reader.read(outbox_source.InputPartition(None))) == []
    orders.insert("e1", "e2")
    for _ in range(2):
        assert ids(rows_of(reader, list(reader.partitions()))) == ["e1", "e2"]


def test_large_micro_batches_are_divided_into_partitions(
    orders: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_source, "_PART", 10_000)
    orders.insert(*(f"e{number}" for number in range(1_000)))
    data_source = source(orders)
    reader = data_source.reader(data_source.schema())
    parts = list(reader.partitions())
    assert len(parts) > 5
    assert ids(rows_of(reader, parts)) == orders.committed
