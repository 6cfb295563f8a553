"""Parameters of `joins.enrich`, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.enrich import EnrichSpec
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.spark.drive import resolve
from streamops.testing import replay
from tests.joins.inputs import delays
from tests.time.test_parameters import FakeFrame

MAP = pa.map_(pa.string(), pa.int64())
FACTS = pa.schema([("user", pa.string()), ("plan", pa.int32()), ("m", MAP)])
TABLE = pa.schema(
    [
        ("id", pa.string()),
        ("lsn", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("plan", pa.string()),
        ("m", MAP),
        ("_change_type", pa.string()),
        ("_changed_at", pa.timestamp("us", "UTC")),
    ]
)
ARGUMENTS: dict[str, Any] = {"by": {"user": "id"}, "sequence": "lsn", "horizon": 10}


def bound(
    left: pa.Schema = FACTS, right: pa.Schema = TABLE, *, shards: int = 8, **arguments: Any
) -> EnrichSpec:
    join = joins.enrich(None, **(ARGUMENTS | arguments)).options(shards=shards)
    spec: Any = resolve(join, (left, right), (None, None))
    assert isinstance(spec, EnrichSpec)
    return spec


def with_(name: str, dtype: pa.DataType, schema: pa.Schema = TABLE) -> pa.Schema:
    columns = [field for field in schema if field.name != name]
    return pa.schema([*columns, pa.field(name, dtype)])


@pytest.mark.parametrize(
    ("error_type", "code", "act"),
    [
        (SpecError, "PARAMETER_MISSING", lambda: bound(by=[])),
        (SpecError, "PARAMETER_TYPE", lambda: bound(by=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(sequence=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(time=3, horizon="1 day")),
        (SpecError, "PARAMETER_TYPE", lambda: bound(into=None)),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(sequence="id")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(sequence=[])),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(time="id", horizon="1 day")),
        (SpecError, "PARAMETERS_CONTRADICT", lambda: bound(sequence="revision")),
        (SpecError, "NAME_TAKEN", lambda: bound(by={"user": "_change_type"})),
        (SpecError, "NAME_TAKEN", lambda: bound(sequence=["lsn", "_change_type"])),
        (SpecError, "NAME_TAKEN", lambda: bound(time="_change_type", horizon="1 day")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon="1 day")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=10, time="ts")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=-1)),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=True)),
        (SpecError, "INVALID_DURATION", lambda: bound(horizon="1 month", time="ts")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(how="right")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(rejected="fail")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(when_full="evict")),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(max_keys=0)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(max_keys=True)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(shards=0)),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(by="user")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(by="id")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(sequence="LSN")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(time="at", horizon="1 day")),
        (SchemaError, "COLUMNS_DIFFER", lambda: bound(by={"plan": "id"})),
        (SchemaError, "TYPE_UNSUPPORTED", lambda: bound(by="m")),
        (SchemaError, "SEQUENCE_TYPE", lambda: bound(sequence="m", time="ts", horizon="1 day")),
        (SchemaError, "SEQUENCE_TYPE", lambda: bound(sequence="plan")),
        (SchemaError, "SEQUENCE_TYPE", lambda: bound(sequence=["lsn", "plan"])),
        (SchemaError, "COLUMN_TYPE", lambda: bound(time="plan", horizon="1 day")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(right=with_("_change_type", pa.int64()))),
        (SchemaError, "COLUMN_TYPE", lambda: bound(right=with_("_snapshot", pa.string()))),
        (SchemaError, "COLUMN_TYPE", lambda: bound(right=with_("_unavailable", pa.string()))),
        (SchemaError, "COLUMN_TYPE", lambda: bound(right=with_("rejected", pa.string()))),
        (SpecError, "NAME_TAKEN", lambda: bound(into="late")),
        (SpecError, "NAME_TAKEN", lambda: bound(into="_Change_type")),
        (SchemaError, "NAME_TAKEN", lambda: bound(with_("plan_right", pa.int64(), FACTS))),
        (SchemaError, "NAME_TAKEN", lambda: bound(with_("Status", pa.int64(), FACTS))),
        (
            SchemaError,
            "NAME_TAKEN",
            lambda: bound(with_("late", pa.int64(), FACTS), rejected="route"),
        ),
    ],
)
def test_invalid_parameters_are_refused_with_a_code(
    error_type: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error_type) as caught:
        act()
    assert caught.value.code == code


def test_an_error_contains_the_fix() -> None:
    with pytest.raises(SchemaError) as caught:
        bound(sequence="plan")
    assert str(caught.value) == (
        "[SEQUENCE_TYPE] joins.enrich, right frame: column 'plan' cannot order changes\n"
        "  got:       'plan' of type string\n"
        "  expected:  numbers, timestamps, dates, binary, or structs and arrays of them; not text\n"
        "  fix:       cast text before: numbers to bigint or decimal, times to timestamp, and text of one "
        "length, such as ULIDs, to binary; PostgreSQL's LSNs: "
        "df.withColumn('plan', changes.parse_lsn('plan'))"
        "\n  see:       docs/errors.md#sequence_type"
    )


def test_values_with_taken_names_get_a_suffix() -> None:
    spec = bound(rejected="route")
    assert spec.output.names == [
        "user",
        "plan",
        "m",
        "ts",
        "plan_right",
        "m_right",
        "status",
        "late",
    ]
    assert spec.names.right == (("ts", "ts"), ("plan", "plan_right"), ("m", "m_right"))
    assert spec.origins["plan_right"] == (1, "plan")
    assert [field.name for field in spec.output.field("late").type] == [
        *("side", "reason", "lateness", "watermark", "window", "row")
    ]
    assert "late" in bound(with_("late", pa.int64(), FACTS)).output.names
    assert "late" not in bound().output.names


def test_columns_that_describe_a_change_are_not_values() -> None:
    spec = bound(time="_changed_at", horizon="1 day", into="found")
    assert spec.output.names == ["user", "plan", "m", "ts", "plan_right", "m_right", "found"]
    assert spec.snapshot_columns == ("id", "lsn", "_changed_at", "m", "plan", "ts")


def test_the_repr_shows_what_was_written() -> None:
    assert repr(joins.enrich(None, **ARGUMENTS)) == (
        "joins.enrich(by={'user': 'id'}, sequence=('lsn',), horizon=10)"
    )


def test_horizon_and_limit_may_change_and_the_table_may_not() -> None:
    assert bound(max_keys=10, shards=4).table.limit == 3
    more = bound(max_keys=99, horizon=99, how="inner", rejected="route")
    assert more.identity == bound().identity
    assert bound(time="ts", horizon="1 day").identity != bound().identity
    assert bound(right=with_("new", pa.int64())).identity != bound().identity
    assert bound(right=with_("_snapshot", pa.bool_())).identity == bound().identity


def test_there_is_no_watermark() -> None:
    spec = bound()
    assert (spec.event_time, spec.lag, spec.held_back) == (None, 0, 0)
    parameters: Any = joins.enrich(None, **ARGUMENTS).parameters
    assert (parameters.times, delays(parameters), parameters.lag) == ((None, None), (None, None), 0)
    assert parameters.reads == (("user",), ("id", "lsn"))


def test_without_a_right_frame_only_the_test_kit_can_use_it() -> None:
    unused: Any = FakeFrame()
    for snapshot in (None, unused):
        with pytest.raises(SpecError) as caught:
            joins.enrich(None, **ARGUMENTS, snapshot=snapshot)(unused)
        assert caught.value.code == "PARAMETER_MISSING"


def test_a_replay_cannot_start_with_a_snapshot() -> None:
    unused: Any = FakeFrame()
    with pytest.raises(SpecError) as caught:
        replay(
            joins.enrich(None, **ARGUMENTS, snapshot=unused), [(None, None)], schema=(FACTS, TABLE)
        )
    assert (caught.value.code, caught.value.got) == (
        "NOT_REPLAYABLE",
        "snapshot=... in joins.enrich",
    )
