"""Events of an outbox: which rows are events, in which order, and which are rejected."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from streamops.errors import ChangeStreamError
from streamops.kernel.databases import format_lsn, parse_lsn
from streamops.sources.core import outbox as core
from streamops.sources.core.outbox import (
    COLUMNS,
    Outbox,
    Range,
    Read,
    partition_rows,
    read_events,
)
from tests.sources.messages import (
    EPOCH,
    NAMES,
    OUTBOX,
    UNCHANGED,
    Log,
    begin,
    commit,
    delete,
    insert,
    relation,
    truncate,
    update,
)

ALL = Range(0, 1 << 40)
EVENT = ("e1", "order", "7", "placed", '{"total": 3}')


def read_all(
    messages: Sequence[bytes], wanted: Range = ALL, outbox: Outbox = OUTBOX, size: int = 1_000
) -> tuple[list[dict[str, Any]], Read]:
    pieces = [pa.array(messages[at : at + size]) for at in range(0, len(messages), size)]
    rows, last = [], Read()
    for events, read in read_events(pieces, outbox, wanted):
        last = read
        assert events.schema == outbox.rows
        events.validate(full=True)
        rows += events.to_pylist()
    return rows, last


def event(number: int, aggregate: str = "7") -> tuple[str, ...]:
    return (f"e{number}", "order", aggregate, "placed", "{}")


def test_an_event_has_its_columns_and_its_position() -> None:
    rows, last = read_all(Log().add([relation(), EVENT]).messages)
    assert rows == [
        {
            "id": "e1",
            "aggregate_type": "order",
            "aggregate_id": "7",
            "event_type": "placed",
            "payload": '{"total": 3}',
            "_lsn": 110,
            "_position": 0,
            "_committed_at": dt.datetime.fromtimestamp(EPOCH / 1e6 + 0.11, dt.UTC),
            "rejected": None,
        }
    ]
    assert (last.rows, last.messages, last.inside, last.end) == (1, 4, 4, 115)


def test_deletes_and_truncates_are_ignored() -> None:
    cleaned = [relation(), EVENT, delete([*EVENT[:1], *[None] * 4]), truncate(), event(2)]
    rows, _ = read_all(Log().add(cleaned).messages)
    assert [(row["id"], row["_position"]) for row in rows] == [("e1", 0), ("e2", 1)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_positions_continue_where_a_piece_of_the_log_ends(size: int) -> None:
    log = Log().add([relation(), event(1), event(2), event(3)]).add([event(4), event(5)])
    rows, _ = read_all(log.messages, size=size)
    assert [row["_position"] for row in rows] == [0, 1, 2, 0, 1]
    assert [row["_lsn"] for row in rows] == [110] * 3 + [125] * 2


def test_a_range_has_the_transactions_whose_commit_is_in_it() -> None:
    log = Log().add([relation(), event(1)]).add([event(2)]).add([event(3)])
    first, second, third = log.ends
    for start, end, expected in [
        (0, first[0], []),
        (0, first[1], ["e1"]),
        (first[0], second[0], ["e1"]),
        (first[0] + 1, third[0] + 1, ["e2", "e3"]),
        (first[1], second[1], ["e2"]),
    ]:
        rows, last = read_all(log.messages, Range(start, end))
        assert [row["id"] for row in rows] == expected
        inside = [after for lsn, after in log.ends if start <= lsn < end]
        assert last.end == (inside[-1] if inside else None)


@pytest.mark.parametrize("size", [1, 4, 100])
def test_a_range_is_cut_after_the_transaction_with_enough_rows(size: int) -> None:
    log = Log().add([relation(), event(1)]).add([event(2), event(3), event(4)]).add([event(5)])
    for most, expected in [(1, 1), (2, 4), (4, 4), (5, 5), (6, 5)]:
        rows, last = read_all(log.messages, Range(0, 1 << 40, most), size=size)
        assert [row["id"] for row in rows] == [f"e{n + 1}" for n in range(expected)]
        assert last.end == log.ends[{1: 0, 4: 1, 5: 2}[expected]][1]
        assert last.is_full == (most <= 5)


def test_transactions_before_the_range_do_not_count() -> None:
    log = Log().add([relation(), event(1), event(2)]).add([event(3)]).add([event(4)])
    rows, last = read_all(log.messages, Range(log.ends[0][1], 1 << 40, 1))
    assert [row["id"] for row in rows] == ["e3"]
    assert (last.end, last.inside, last.messages) == (log.ends[1][1], 6, 11)


def test_an_update_of_the_outbox_is_rejected_with_its_row() -> None:
    changed = update(["e1", "order", "7", "placed", UNCHANGED])
    rows, _ = read_all(Log().add([relation(), EVENT, changed]).messages)
    assert [row["rejected"] and row["rejected"]["reason"] for row in rows] == [None, "updated"]
    assert json.loads(rows[1]["rejected"]["row"]) == {
        "id": "e1",
        "aggregatetype": "order",
        "aggregateid": "7",
        "type": "placed",
    }
    assert [rows[1][name] for name in COLUMNS] == [None] * 5
    assert rows[1]["_position"] == 1


@pytest.mark.parametrize("missing", range(4))
def test_an_event_without_a_required_column_is_rejected(missing: int) -> None:
    values = [*EVENT]
    values[missing] = None
    (row,), _ = read_all(Log().add([relation(), insert(values)]).messages)
    assert row["rejected"]["reason"] == "missing_field"
    assert json.loads(row["rejected"]["row"]) == dict(zip(NAMES, values, strict=True))


def test_a_payload_may_be_null() -> None:
    (row,), _ = read_all(Log().add([relation(), insert([*EVENT[:4], None])]).messages)
    assert (row["payload"], row["rejected"]) == (None, None)


def test_a_row_of_a_table_without_a_column_is_rejected() -> None:
    (row,), _ = read_all(Log().add([relation(NAMES[:4]), insert(EVENT[:4])]).messages)
    assert row["rejected"]["reason"] == "missing_field"


def test_text_that_is_not_utf8_is_rejected_and_shown_escaped() -> None:
    values = [*EVENT[:4], b"caf\xe9"]
    rows, _ = read_all(Log().add([relation(), EVENT, insert(values), event(2)]).messages)
    assert [row["id"] for row in rows] == ["e1", None, "e2"]
    assert rows[1]["rejected"]["reason"] == "not_utf8"
    assert json.loads(rows[1]["rejected"]["row"])["payload"] == "caf\\xe9"
    assert rows[0]["payload"] == EVENT[4]


def test_a_large_row_is_rejected_and_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "LARGEST_ROW", 100)
    monkeypatch.setattr(core, "_LARGEST_IN_JSON", 50)
    small, large = event(1), [*EVENT[:4], "x" * 101]
    rows, _ = read_all(Log().add([relation(), small, insert(large)]).messages)
    assert [row["id"] for row in rows] == ["e1", None]
    assert rows[1]["rejected"]["reason"] == "too_large"
    assert json.loads(rows[1]["rejected"]["row"]) == dict(zip(NAMES[:4], EVENT[:4], strict=True))


def test_columns_may_have_other_names_and_further_ones_are_kept() -> None:
    columns = {**COLUMNS, "aggregate_id": "order id"}
    outbox = Outbox(schema="public", table="outbox", columns=columns, keep=("tenant",))
    names = ["tenant", "order id", "payload", "type", "aggregatetype", "id"]
    values = ["acme", "7", "{}", "placed", "order", "e1"]
    before = relation([n for n in names if n != "tenant"])
    log = Log().add([relation(names), insert(values), before, insert(values[1:])])
    rows, _ = read_all(log.messages, outbox=outbox)
    assert [(row["aggregate_id"], row["tenant"]) for row in rows] == [("7", "acme"), ("7", None)]
    assert [row["rejected"] for row in rows] == [None, None]


def test_rows_before_and_after_a_change_of_the_table_are_in_order() -> None:
    log = Log().add(
        [
            relation(),
            EVENT,
            relation([*NAMES, "more"]),
            insert([*event(2), "x"]),
            relation(),
            event(3),
        ]
    )
    rows, _ = read_all(log.messages)
    assert [(row["id"], row["_position"]) for row in rows] == [("e1", 0), ("e2", 1), ("e3", 2)]


def test_a_log_that_ends_within_a_transaction_is_refused() -> None:
    with pytest.raises(ChangeStreamError, match="ends within a transaction"):
        read_all([begin(100), relation(), insert(EVENT)])


def test_a_full_range_may_end_within_the_piece_of_a_transaction() -> None:
    messages = [begin(100), relation(), insert(EVENT), commit(100, 105), begin(110)]
    rows, last = read_all(messages, Range(0, 1_000, 1))
    assert (len(rows), last.end) == (1, 105)


def test_positions_of_the_log_are_formatted_and_parsed() -> None:
    for lsn in (0, 1, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1):
        assert parse_lsn(format_lsn(lsn)) == lsn
    for text in ("", "0", "/", "0/", "G/0", "0/123456789", None, 5):
        assert parse_lsn(text) is None


def test_rows_are_divided_into_parts_by_size() -> None:
    log = Log().add([relation(), *(event(number) for number in range(100))])
    log.add([update([*EVENT[:4], "y" * 5_000])])
    ((events, _),) = read_events([pa.array(log.messages)], OUTBOX, ALL)
    parts = [*partition_rows(events, 2_000)]
    assert pa.Table.from_batches(parts) == pa.Table.from_batches([events])
    assert 5 < len(parts) < 20
    assert [*partition_rows(events.slice(0, 0), 2_000)] == []
    (whole,) = partition_rows(events, 1 << 20)
    assert len(whole) == 101
