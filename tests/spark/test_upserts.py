"""Upserts are refused, while the plan is built, where the row before must be taken back."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops import changes, joins
from streamops.changelog.chains import UPSERTS, Columns, refuse_upserts
from streamops.kernel.errors import SchemaError, located


def frame_of(metadata: dict[str, Any] | None) -> Any:
    return Columns({"k": {}, "_change_type": metadata or {}})


@pytest.mark.parametrize("metadata", [None, {"comment": "of a house"}])
def test_a_frame_that_no_reader_marked_is_taken(metadata: dict[str, Any] | None) -> None:
    refuse_upserts(frame_of(metadata))


def test_a_frame_of_upserts_is_refused_with_what_to_do() -> None:
    with pytest.raises(SchemaError) as caught, located("changes.aggregate"):
        refuse_upserts(frame_of({UPSERTS: True}))
    assert str(caught.value) == (
        "[CHANGE_STREAM_INPUT] changes.aggregate: an update would add its row without removing the previous "
        "one\n"
        "  got:       upserts without preimages, in _change_type\n"
        "  expected:  a change stream in which each update has a preimage and a postimage\n"
        "  fix:       df.transform(changes.normalize(...)) first, which stores the current rows; "
        'or preimages="publish" in from_debezium, "delete" in from_delta, which read the previous rows'
        "\n  see:       docs/errors.md#change_stream_input"
    )


def test_operators_that_retract_need_preimages_and_operators_that_store_rows_do_not() -> None:
    needing = [
        changes.aggregate(agg={"n": agg.count()}),
        joins.tables(None, by="k"),
    ]
    others = [
        changes.normalize("k", sequence="lsn", horizon=1),
        changes.apply("k", sequence="lsn", horizon=1, history="intervals"),
    ]
    assert [operator.spec.inputs[0].needs_preimages for operator in (*needing, *others)] == [
        *(True, True),
        *(False, False),
    ]
