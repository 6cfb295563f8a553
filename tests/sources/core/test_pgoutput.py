"""Messages of pgoutput are decoded as written; bytes that pgoutput does not write are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.errors import ChangeStreamError
from streamops.sources.core.pgoutput import Decoded, Relation, State, decode, take_values
from tests.sources.messages import (
    EPOCH,
    NUMBER,
    UNCHANGED,
    begin,
    commit,
    data_type,
    delete,
    insert,
    origin,
    relation,
    truncate,
    update,
)

NAMES = ("id", "note")


def decoded(messages: list[bytes], state: State | None = None) -> tuple[Decoded, State]:
    piece = pa.array(messages, pa.binary())
    return decode(piece, state or State(), schema="public", table="outbox")


def rows_of(found: Decoded) -> list[dict[str, Any]]:
    rows = []
    for part in found.rows:
        columns = [take_values(found.bytes, values).to_pylist() for values in part.values]
        for row, values in enumerate(zip(*columns, strict=True)):
            named = dict(zip(part.relation.columns, values, strict=True))
            rows.append((int(part.message[row]), named))
    return [named for _, named in sorted(rows, key=lambda found: found[0])]


def test_rows_and_their_transactions_are_decoded() -> None:
    found, state = decoded(
        [
            begin(100, EPOCH + 7),
            origin(),
            data_type(),
            relation(NAMES),
            insert(["1", "é"]),
            insert(["2", None]),
            commit(100, 108),
            begin(110, -5),
            truncate(),
            delete(["1", None]),
            insert(["", ""]),
            commit(110, 118),
        ]
    )
    assert rows_of(found) == [
        {"id": b"1", "note": "é".encode()},
        {"id": b"2", "note": None},
        {"id": b"", "note": b""},
    ]
    assert found.lsn.tolist() == [100, 110]
    assert found.micros.tolist() == [EPOCH + 7, -5]
    assert found.transaction.tolist() == [0] * 7 + [1] * 5
    assert found.commit.tolist() == [6, 11]
    assert found.commit_end.tolist() == [108, 118]
    assert state == State({NUMBER: Relation("public", "outbox", NAMES)})


def test_updates_have_the_new_row_whatever_they_have_of_the_old_one() -> None:
    found, _ = decoded(
        [
            begin(100),
            relation(NAMES),
            update(["1", "new"]),
            update(["2", "new"], old=["1", None]),
            update(["3", UNCHANGED], old=["3", "old"], identity=b"O"),
            insert(["4", "new"]),
            commit(100, 108),
        ]
    )
    (rows,) = found.rows
    assert rows.is_update.tolist() == [True, True, True, False]
    assert [row["id"] for row in rows_of(found)] == [b"1", b"2", b"3", b"4"]
    assert rows.values[1].is_unchanged.tolist() == [False, False, True, False]


def test_each_row_has_the_columns_that_the_table_had() -> None:
    messages = [
        begin(100),
        relation(["id"]),
        insert(["1"]),
        relation(["id", "note"]),
        insert(["2", "a"]),
        relation(["note"]),
        insert(["b"]),
        commit(100, 108),
    ]
    found, _ = decoded(messages)
    assert rows_of(found) == [{"id": b"1"}, {"id": b"2", "note": b"a"}, {"note": b"b"}]


def test_rows_of_other_tables_are_skipped() -> None:
    other = 5
    found, state = decoded(
        [
            begin(100),
            relation(NAMES),
            relation(["x"], ("public", "orders"), other),
            insert(["x"], other),
            insert(["1", "a"]),
            relation(["x"], ("", "outbox"), 6),
            insert(["x"], 6),
            commit(100, 108),
        ]
    )
    assert rows_of(found) == [{"id": b"1", "note": b"a"}]
    assert state.relations[6].schema == "pg_catalog"


def test_a_log_may_be_divided_anywhere() -> None:
    messages = [
        begin(100),
        relation(NAMES),
        insert(["1", "a"]),
        insert(["2", None]),
        commit(100, 108),
        begin(110),
        insert(["3", "c"]),
        commit(110, 118),
    ]
    whole, after = decoded(messages)
    for cut in range(len(messages) + 1):
        first, state = decoded(messages[:cut])
        second, last = decoded(messages[cut:], state)
        assert rows_of(first) + rows_of(second) == rows_of(whole)
        assert last == after
        assert [*first.commit_end, *second.commit_end] == [108, 118]


def test_an_array_that_is_a_part_of_another_one_is_decoded() -> None:
    piece = pa.array([b"?", begin(100), relation(NAMES), insert(["1", "a"]), commit(100, 108)])
    found, _ = decode(piece.slice(1), State(), schema="public", table="outbox")
    assert rows_of(found) == [{"id": b"1", "note": b"a"}]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b""], "an empty message"),
        ([b"X"], "an unknown letter"),
        ([commit(100, 108)], "outside of a transaction"),
        ([relation(NAMES)], "outside of a transaction"),
        ([begin(100), begin(110)], "a transaction in another"),
        ([begin(100)[:-1]], "a begin of another size"),
        ([begin(0)], "a position"),
        ([begin(1 << 63)], "a position"),
        ([begin(100, (1 << 63) - 1)], "a time out of range"),
        ([begin(100), commit(100, 108) + b"?"], "a commit of another size"),
        ([begin(100), b"C\1" + commit(100, 108)[2:]], "a commit with flags"),
        ([begin(100), commit(101, 108)], "a commit that is elsewhere"),
        ([begin(100), commit(100, 100)], "ends before it begins"),
        ([begin(100), b"D\0\0"], "a change that is too short"),
        ([begin(100), insert(["1", "a"])], "a table that was not described"),
        ([begin(100), insert(["1", "a"]), relation(NAMES)], "a table that was not described"),
        ([begin(100), b"R\0\0"], "a relation that is too short"),
        ([begin(100), b"R\0\0\0\1public"], "a name without its end"),
        ([begin(100), b"R\0\0\0\1\xff\0"], "a name that is not UTF-8"),
        ([begin(100), b"R\0\0\0\1a\0b\0d\0"], "without the number of its columns"),
        ([begin(100), b"R\0\0\0\1a\0b\0d\xff\xff"], "up to 1664"),
        ([begin(100), relation(NAMES)[:-1]], "a relation of another size"),
        ([begin(100), relation(NAMES), update(["1", "a"])[:5] + b"X"], "without its new row"),
        ([begin(100), relation(NAMES), insert(["1"])], "another number of columns"),
        ([begin(100), relation(NAMES), insert(["1", "a"])[:7]], "without the number"),
        ([begin(100), relation(NAMES), insert(["1", "a"])[:8]], "a row that ends too early"),
        ([begin(100), relation(NAMES), insert(["1", "a"])[:10]], "a value without its size"),
        ([begin(100), relation(NAMES), insert(["1", "a"])[:-1]], "ends after its message"),
        ([begin(100), relation(NAMES), insert(["1", "a"]) + b"?"], "bytes after a row"),
        ([begin(100), relation(NAMES), insert(["1", UNCHANGED])], "without a value"),
        (
            [begin(100), relation(NAMES), insert(["1", "a"])[:8] + b"b" + insert(["1", "a"])[9:]],
            "a value that is not text",
        ),
        (
            [begin(100), relation(NAMES), update(["1", "a"], old=["1", None])[:-15]],
            "without its new row",
        ),
    ],
)
def test_bytes_that_pgoutput_does_not_write_are_refused(messages: list[bytes], reason: str) -> None:
    with pytest.raises(ChangeStreamError, match=reason) as raised:
        decoded(messages)
    assert raised.value.code == "MALFORMED_LOG"


def test_null_is_refused() -> None:
    with pytest.raises(ChangeStreamError, match="MALFORMED_LOG"):
        decode(pa.array([begin(100), None]), State(), schema="public", table="outbox")


def test_a_size_beyond_the_message_allocates_nothing() -> None:
    claims = insert(["1", "a"])[:9] + b"\xff\xff\xff\xff" + b"1"
    with pytest.raises(ChangeStreamError, match="ends after its message"):
        decoded([begin(100), relation(NAMES), claims])


def test_no_messages_change_nothing() -> None:
    _, state = decoded([begin(100), relation(NAMES)])
    found, after = decoded([], state)
    assert after == state
    assert found.rows == ()
    assert found.lsn.dtype == np.int64
