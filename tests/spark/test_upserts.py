"""Upserts are refused, while the plan is built, where the row before must be taken back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from streamops import aggregates as agg
from streamops import changes, joins
from streamops.kernel.errors import SchemaError
from streamops.spark.checks import refuse_upserts
from streamops.spark.metadata import UPSERTS


def frame_of(metadata: dict[str, Any] | None) -> Any:
    fields = [
        StructField("k", StringType()),
        StructField("_change_type", StringType(), True, metadata),
    ]
    return SimpleNamespace(schema=StructType(fields))


@pytest.mark.parametrize("metadata", [None, {"comment": "of a house"}])
def test_a_frame_that_no_reader_marked_is_taken(metadata: dict[str, Any] | None) -> None:
    refuse_upserts(frame_of(metadata), where="changes.aggregate")


def test_a_frame_of_upserts_is_refused_with_what_to_do() -> None:
    with pytest.raises(SchemaError) as caught:
        refuse_upserts(frame_of({UPSERTS: True}), where="changes.aggregate")
    assert str(caught.value) == (
        "[NO_PREIMAGES] changes.aggregate: an update would add its row and leave the one before\n"
        "  got:       upserts, by _change_type: what they replace is not there\n"
        "  expected:  a change stream, with each update as its two images\n"
        "  fix:       df.transform(changes.normalize(...)) in between, which remembers the rows before; "
        'or preimages="publish" in from_debezium, "delete" in from_delta, where each update has its '
        "row before"
    )


def test_what_takes_rows_back_needs_them_and_what_remembers_them_does_not() -> None:
    needing = [
        changes.aggregate(agg={"n": agg.count()}),
        joins.tables(None, by="k"),
    ]
    others = [
        changes.normalize("k", sequence="lsn", horizon=1),
        changes.apply("k", sequence="lsn", horizon=1, history="intervals"),
    ]
    assert [each.parameters.needs_preimages for each in (*needing, *others)] == [
        *(True, True),
        *(False, False),
    ]
