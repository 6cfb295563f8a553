"""Events of an outbox: every division of the log, and every division of it into micro-batches, has the same rows."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.errors import ChangeStreamError
from streamops.sources.core.outbox import Range, read_events
from streamops.sources.core.pgoutput import State, decode
from tests.sources.messages import (
    OUTBOX,
    UNCHANGED,
    Log,
    data_type,
    delete,
    insert,
    origin,
    relation,
    truncate,
    update,
)

pytestmark = pytest.mark.laws

OTHER = 5
LAST = (1 << 63) - 1

texts = st.text(max_size=12)
events = st.tuples(texts, texts, texts, texts, st.none() | texts | st.text(min_size=200))
noise = st.sampled_from(
    [
        origin(),
        data_type(),
        truncate(),
        delete(["1", None, None, None, None]),
        relation(),
        relation(["x"], ("public", "orders"), OTHER),
    ]
)
transactions = st.lists(events | noise, max_size=6)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    for number, changes in enumerate(draw(st.lists(transactions, min_size=1, max_size=6))):
        first = [relation(), relation(["x"], ("public", "orders"), OTHER)] if not number else []
        others = [insert(["x"], OTHER)] * draw(st.integers(0, 2))
        log.add([*first, *changes, *others], gap=draw(st.integers(0, 20)))
    return log


def pieces_of(messages: list[bytes], data: st.DataObject) -> list[pa.Array]:
    cuts = data.draw(st.lists(st.integers(0, len(messages)), max_size=4))
    bounds = [0, *sorted(cuts), len(messages)]
    return [pa.array(messages[start:end], pa.binary()) for start, end in pairwise(bounds)]


def read_all(pieces: list[pa.Array], wanted: Range) -> tuple[list[dict[str, Any]], int | None]:
    rows: list[dict[str, Any]] = []
    end = None
    for found, read in read_events(pieces, OUTBOX, wanted):
        rows += found.to_pylist()
        end = read.end
    return rows, end


def core_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in row if name not in ("_committed_at", "rejected")}
        for row in rows
    ]


@given(log=logs(), data=st.data())
def test_every_division_of_the_log_has_the_committed_rows_in_order(
    log: Log, data: st.DataObject
) -> None:
    rows, end = read_all(pieces_of(log.messages, data), Range(0, LAST))
    assert core_of(rows) == log.rows
    assert end == log.ends[-1][1]


@given(log=logs(), data=st.data(), most=st.integers(1, 8))
def test_micro_batches_have_each_row_once_wherever_the_slot_is(
    log: Log, data: st.DataObject, most: int
) -> None:
    rows: list[dict[str, Any]] = []
    start, ranges = 0, []
    while True:
        found, end = read_all(pieces_of(log.messages, data), Range(start, LAST, most))
        if end is None:
            break
        assert len(found) < most + 6
        rows += found
        ranges.append((start, end, found))
        start = end
    assert core_of(rows) == log.rows
    # A range that is read again, after the slot has advanced to its start or not, has the same rows.
    for start, end, found in ranges:
        remaining = next(
            (
                log.messages.index(message)
                for message, (lsn, _) in zip(begins(log), log.ends, strict=True)
                if lsn >= start
            ),
            0,
        )
        described = [relation(), relation(["x"], ("public", "orders"), OTHER)]
        sent_again = [log.messages[remaining], *described, *log.messages[remaining + 1 :]]
        for messages in (log.messages, sent_again):
            again, end_again = read_all(pieces_of(messages, data), Range(start, end))
            assert (again, end_again) == (found, end)


def begins(log: Log) -> list[bytes]:
    return [message for message in log.messages if message[:1] == b"B"]


@given(log=logs(), data=st.data())
def test_damaged_bytes_are_refused_or_decoded_and_nothing_else(
    log: Log, data: st.DataObject
) -> None:
    messages = [bytearray(message) for message in log.messages]
    messages.append(bytearray(update(["1", "2", "3", "4", UNCHANGED], old=["1", *[None] * 4])))
    for _ in range(data.draw(st.integers(1, 4))):
        message = data.draw(st.sampled_from(messages))
        match data.draw(st.sampled_from(["change", "cut", "extend", "drop"])):
            case "change" if message:
                message[data.draw(st.integers(0, len(message) - 1))] = data.draw(
                    st.integers(0, 255)
                )
            case "cut":
                del message[data.draw(st.integers(0, len(message))) :]
            case "extend":
                message += data.draw(st.binary(max_size=8))
            case "drop":
                messages.remove(message)
        if not messages:
            break
    try:
        rows, _ = read_all([pa.array(map(bytes, messages), pa.binary())], Range(0, LAST))
    except ChangeStreamError:
        return
    assert all(row["_position"] >= 0 for row in rows)


@given(messages=st.lists(st.binary(max_size=40), max_size=5))
def test_arbitrary_bytes_are_refused_or_decoded(messages: list[bytes]) -> None:
    with suppress(ChangeStreamError):
        decode(pa.array(messages, pa.binary()), State(), schema="public", table="outbox")
