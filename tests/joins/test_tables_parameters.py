"""Parameters of `joins.tables`, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.joins.core.tables_spec import TablesSpec
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, StreamopsError
from streamops.spark.drive import resolve
from tests.time.test_parameters import FakeFrame

CHANGE = ("_change_type", pa.string())
ORDERS = pa.schema(
    [("id", pa.int64()), ("customer", pa.string()), ("lsn", pa.int64()), ("m", pa.map_(pa.string(), pa.int64())), CHANGE]
)  # fmt: skip
CUSTOMERS = pa.schema([("key", pa.string()), ("ID", pa.int64()), ("lsn", pa.int64()), CHANGE])


def bound(
    left: pa.Schema = ORDERS, right: pa.Schema = CUSTOMERS, shards: int = 8, **arguments: Any
) -> TablesSpec:
    given: dict[str, Any] = {"by": {"customer": "key"}} | arguments
    operator = joins.tables(None, **given).options(shards=shards)
    spec = resolve(operator, (left, right), (None, None))
    assert isinstance(spec, TablesSpec)
    return spec


VERSIONED: dict[str, Any] = {"key": ("id", "ID"), "sequence": "lsn", "remember": 10}


@pytest.mark.parametrize(
    ("error", "code", "act"),
    [
        (SpecError, "PARAMETER_MISSING", lambda: bound(by=[])),
        (SpecError, "PARAMETER_TYPE", lambda: bound(by=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(key=("id", 3))),
        (SpecError, "PARAMETER_TYPE", lambda: bound(key=("id",))),
        (SpecError, "PARAMETER_TYPE", lambda: bound(key=("id", []))),
        (SpecError, "PARAMETER_TYPE", lambda: bound(**(VERSIONED | {"sequence": ["lsn"]}))),
        (SpecError, "PARAMETER_TYPE", lambda: bound(**(VERSIONED | {"sequence": ("lsn", 1)}))),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(how="semi")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(rejected="fail")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(sequence="lsn", remember=1)),
        (
            SpecError,  # a delete has the revision of the row that it deletes, and would be lost
            "PARAMETERS_CONTRADICT",
            lambda: bound(**(VERSIONED | {"sequence": ("lsn", "revision")})),
        ),
        (SpecError, "NAME_TAKEN", lambda: bound(by="_change_type")),
        (SpecError, "NAME_TAKEN", lambda: bound(key=("id", ["ID", "_change_type"]))),
        (
            SpecError,
            "NAME_TAKEN",
            lambda: bound(**(VERSIONED | {"sequence": ("_change_type", "lsn")})),
        ),
        (
            SpecError,
            "PARAMETERS_CONTRADICT",
            lambda: bound(key=("id", "ID"), sequence="lsn"),
        ),
        (SpecError, "PARAMETERS_CONTRADICT", lambda: bound(remember=1)),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(**(VERSIONED | {"remember": -1}))),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(**(VERSIONED | {"remember": True}))),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(by="customer")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(key=("id", "id"))),
        (SchemaError, "COLUMNS_DIFFER", lambda: bound(by={"customer": "ID"})),
        (SchemaError, "TYPE_UNSUPPORTED", lambda: bound(key=("m", "ID"))),
        (SchemaError, "SEQUENCE_TYPE", lambda: bound(**(VERSIONED | {"sequence": ("m", "lsn")}))),
        (SchemaError, "FRAME_TYPE", lambda: bound(ORDERS.remove(4))),
        (
            SchemaError,
            "FRAME_TYPE",
            lambda: bound(right=CUSTOMERS.set(3, pa.field("_change_type", pa.int64()))),
        ),
        (
            SchemaError,
            "NAME_TAKEN",
            lambda: bound(ORDERS.append(pa.field("lsn_right", pa.int64()))),
        ),
        (
            SchemaError,
            "NAME_TAKEN",
            lambda: bound(ORDERS.append(pa.field("Late", pa.int64())), rejected="route"),
        ),
    ],
)
def test_invalid_parameters_are_refused_with_a_code(
    error: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error) as caught:
        act()
    assert caught.value.code == code


def test_an_error_names_the_side() -> None:
    with pytest.raises(SchemaError) as caught:
        bound(right=CUSTOMERS.remove(3))
    assert str(caught.value) == (
        "[FRAME_TYPE] joins.tables, right side: the frame is not a change stream\n"
        "  got:       columns key, ID, lsn\n"
        "  expected:  a column '_change_type' of type string: insert, update_preimage, "
        "update_postimage, delete\n"
        "  fix:       if rows are only added: df.withColumn('_change_type', "
        "F.lit('insert'))"
        "\n  see:       docs/errors.md#frame_type"
    )


def test_right_columns_with_taken_names_get_a_suffix() -> None:
    spec = bound(how="full", rejected="route")
    assert spec.output.names == [
        *("id", "customer", "lsn", "m", "ID_right", "lsn_right", "_change_type", "late")
    ]
    assert [field.name for field in spec.output.field("late").type] == [
        *("side", "reason", "lateness", "watermark", "window", "row")
    ]
    assert spec.origins == {name: (0, name) for name in ("id", "customer", "lsn", "m")} | {
        "ID_right": (1, "ID"),
        "lsn_right": (1, "lsn"),
    }
    assert "late" not in bound().output.names
    assert "late" in bound(ORDERS.append(pa.field("late", pa.int64()))).output.names


@pytest.mark.parametrize(
    ("key", "both"),
    [
        ("lsn", (("lsn",), ("lsn",))),
        (["lsn", "id"], (("lsn", "id"), ("lsn", "id"))),
        (("id", "ID"), (("id",), ("ID",))),
        ((["id", "lsn"], "ID"), (("id", "lsn"), ("ID",))),
    ],
)
def test_a_key_applies_to_both_sides_or_is_a_pair(key: Any, both: Any) -> None:
    settings: Any = joins.tables(None, by={"customer": "key"}, key=key).parameters
    assert settings.key == both


def test_the_repr_shows_what_was_written() -> None:
    formatted = repr(joins.tables(None, by={"customer": "key"}, how="left", **VERSIONED))
    assert formatted == (
        "joins.tables(by={'customer': 'key'}, how='left', key=(('id',), ('ID',)), "
        "sequence=('lsn', 'lsn'), remember=10)"
    )


def test_remember_is_divided_among_shards_and_may_change() -> None:
    assert bound(**VERSIONED, shards=4).remember_per_shard == 3
    assert bound().remember_per_shard == 0
    more = bound(**(VERSIONED | {"remember": 99}))
    assert more.identity == bound(**VERSIONED).identity
    assert bound(how="left").identity != bound().identity
    assert bound(key=("id", "ID")).identity != bound(**VERSIONED).identity


def test_columns_may_be_in_another_order_after_a_restart() -> None:
    other = pa.schema([ORDERS.field(at) for at in (4, 2, 0, 3, 1)])
    assert bound(other).identity == bound().identity
    assert bound(other).tables[0].stored == bound().tables[0].stored
    assert bound(other).output.names[:4] == ["lsn", "id", "m", "customer"]


def test_without_a_right_frame_only_the_test_kit_can_use_it() -> None:
    unused: Any = FakeFrame()
    with pytest.raises(SpecError) as caught:
        joins.tables(None, by="k")(unused)
    assert caught.value.code == "PARAMETER_MISSING"


def test_there_is_no_watermark() -> None:
    spec = bound()
    assert (spec.event_time, spec.lag, spec.held_back) == (None, 0, 0)
