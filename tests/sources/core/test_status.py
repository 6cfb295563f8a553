"""What cannot be read is refused before it is read, with the consequence for events."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamops.errors import CheckpointError, RequirementError, SpecError, StreamopsError
from streamops.sources.core.outbox import COLUMNS, Outbox
from streamops.sources.core.status import (
    Names,
    Status,
    check_publication,
    check_server,
    check_slot,
    count_other_rows,
    create_publication,
    peek,
)
from streamops.sources.outbox_source import Offset

NAMES = Names(
    outbox=Outbox(schema="shop", table='out "box"', columns=COLUMNS),
    publication="events",
    slot="events",
)
GOOD = Status(
    system="73",
    wal_level="logical",
    in_recovery=False,
    flushed=500,
    database="shop",
    has_table=True,
    has_publication=True,
    publishes_inserts=True,
    publishes_table=True,
    has_slot=True,
    slot_type="logical",
    plugin="pgoutput",
    slot_database="shop",
    wal_status="reserved",
    confirmed=100,
)


def check(status: Status) -> int:
    check_server(status, NAMES)
    check_publication(status, NAMES)
    return check_slot(status, NAMES)


def test_a_server_with_all_that_is_needed_is_accepted() -> None:
    assert check(GOOD) == 100


@pytest.mark.parametrize(
    ("changes", "error", "code", "text"),
    [
        ({"in_recovery": True}, RequirementError, "SOURCE_UNFIT", "read-write"),
        ({"wal_level": "replica"}, RequirementError, "SOURCE_UNFIT", "ALTER SYSTEM"),
        ({"has_table": False}, SpecError, "SOURCE_MISSING", '"shop"."out ""box"""'),
        (
            {"has_publication": False, "has_slot": False},
            RequirementError,
            "SOURCE_UNFIT",
            "create='create'",
        ),
        ({"has_publication": False}, RequirementError, "SOURCE_UNFIT", "drop the slot"),
        ({"publishes_table": False}, RequirementError, "SOURCE_UNFIT", "ADD TABLE"),
        ({"publishes_inserts": False}, RequirementError, "SOURCE_UNFIT", "insert, update"),
        ({"has_slot": False}, RequirementError, "SOURCE_MISSING", "are not read"),
        ({"slot_type": "physical"}, RequirementError, "SOURCE_UNFIT", "physical"),
        ({"plugin": "test_decoding"}, RequirementError, "SOURCE_UNFIT", "test_decoding"),
        ({"slot_database": "other"}, RequirementError, "SOURCE_UNFIT", "other"),
        ({"wal_status": "lost"}, RequirementError, "SLOT_LOST", "events that were not read"),
        ({"confirmed": None}, RequirementError, "SLOT_LOST", "max_slot_wal_keep_size"),
    ],
)
def test_what_cannot_be_read_is_refused(
    changes: dict[str, Any], error: type[StreamopsError], code: str, text: str
) -> None:
    with pytest.raises(error) as raised:
        check(replace(GOOD, **changes))
    assert raised.value.code == code
    assert text in str(raised.value)


@pytest.mark.parametrize("wal_status", ["reserved", "extended", "unreserved"])
def test_a_slot_whose_log_is_there_is_accepted(wal_status: str) -> None:
    assert check(replace(GOOD, wal_status=wal_status)) == 100


def test_names_are_quoted() -> None:
    assert create_publication('a "b"', "shop", 'out "box"').startswith(
        'CREATE PUBLICATION "a ""b""" FOR TABLE "shop"."out ""box""" WITH'
    )


@pytest.mark.parametrize("confirmed", [100, 150, 200])
def test_a_query_continues_at_the_slot_or_after_it(confirmed: int) -> None:
    Offset("73", 200).check(GOOD, "events", confirmed)


@pytest.mark.parametrize(
    ("offset", "confirmed", "code"),
    [
        (Offset("74", 200), 100, "OTHER_SERVER"),
        (Offset("73", 501), 100, "LOG_BEHIND"),
        (Offset("73", 200), 201, "SLOT_AHEAD"),
    ],
)
def test_a_query_that_may_miss_events_is_refused(offset: Offset, confirmed: int, code: str) -> None:
    with pytest.raises(CheckpointError) as raised:
        offset.check(GOOD, "events", confirmed)
    assert raised.value.code == code


def test_an_offset_is_stored_as_postgres_shows_it() -> None:
    offset = Offset("73", 0x1_0000_00FF)
    assert offset.to_json() == {"system": "73", "lsn": "1/FF"}
    assert Offset.from_json(offset.to_json()) == offset


@pytest.mark.parametrize(
    "stored", [None, {}, {"lsn": "1/FF"}, {"system": 73, "lsn": "1/FF"}, {"system": "73", "lsn": 5}]
)
def test_offsets_of_another_source_are_refused(stored: Any) -> None:
    with pytest.raises(CheckpointError, match="OTHER_SERVER"):
        Offset.from_json(stored)


def test_the_log_is_read_up_to_a_position_and_a_number_of_messages() -> None:
    assert "'1/FF'::pg_lsn, 30::int, 'proto_version', '1'" in peek(0x1_0000_00FF, 30)
    assert "NULL::pg_lsn, NULL::int" in peek(None, None)


def test_the_rows_of_a_table_with_odd_names_are_counted() -> None:
    statement = count_other_rows("shop", 'out "box"', "the id")
    assert statement.startswith(
        'SELECT count(*) FROM "shop"."out ""box""" t WHERE t."the id"::text'
    )
