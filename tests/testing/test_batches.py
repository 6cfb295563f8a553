from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, located
from streamops.kernel.values import keeps_values
from streamops.testing.batches import START, at, canonical, infer_schema, to_table

INSTANT = pa.timestamp("us", tz="UTC")


def test_seconds_count_from_the_start_of_2024() -> None:
    assert at() == START == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    assert at(10, -1) - at(10) == dt.timedelta(microseconds=-1)
    assert at(1, since=dt.datetime(1970, 1, 1, tzinfo=dt.UTC)).timestamp() == 1


def test_the_columns_are_those_of_all_rows() -> None:
    schema = infer_schema([[], [{"k": None}, {"k": "a", "ts": at(0)}], [{"v": 1.5}]], None)
    assert schema == pa.schema([("k", pa.string()), ("ts", INSTANT), ("v", pa.float64())])


def test_the_columns_are_those_of_the_first_table() -> None:
    table = pa.table({"k": pa.array([1], pa.int32())})
    assert infer_schema([[], table, [{"other": 1}]], None) == table.schema
    assert infer_schema([pd.DataFrame({"x": [1.0]})], None) == pa.schema([("x", pa.float64())])


def test_micro_batches_without_rows_need_a_schema() -> None:
    with pytest.raises(SpecError) as caught:
        infer_schema([[], []], None)
    assert caught.value.code == "PARAMETER_MISSING"
    assert infer_schema([[]], pa.schema([("k", pa.int64())])).names == ["k"]


@pytest.mark.parametrize(("misspelt", "name"), [("amuont", "amount"), ("Amount", "amount")])
def test_a_misspelt_name_is_refused(misspelt: str, name: str) -> None:
    row = {"k": "a", "ts": at(1), "amount": 1}
    other = {misspelt if key == name else key: value for key, value in row.items()}
    with pytest.raises(SchemaError) as caught, located("streamops.testing"):
        infer_schema([[row], [other, row]], None)
    assert str(caught.value) == (
        f"[INVALID_ROWS] streamops.testing: no row has both {misspelt!r} and {name!r}: probably, they "
        "are one column\n"
        f"  got:       a row with k, ts, {misspelt}\n"
        "  expected:  one of: k, ts, amount\n"
        f"  fix:       did you mean {name!r}? If both are columns, pass schema=..."
        "\n  see:       docs/errors.md#invalid_rows"
    )


def test_similar_names_may_be_two_columns() -> None:
    together = [[{"price": 1, "prices": [1]}, {"price": 1}, {"prices": []}]]
    assert infer_schema(together, None).names == ["price", "prices"]
    numbered = [[{"price_1": 1}], [{"price_2": 1}]]
    assert infer_schema(numbered, None).names == ["price_1", "price_2"]
    short = [[{"k": 1}], [{"key": 1}]]
    assert infer_schema(short, None).names == ["k", "key"]
    separate, schema = [[{"price": 1}], [{"prices": 1}]], pa.schema([("price", pa.int64())])
    assert infer_schema(separate, schema).names == ["price"]


@pytest.mark.parametrize("batch", [{"k": "a"}, "k", ["k"], 7, [("k", "a")]], ids=repr)
def test_a_value_that_is_not_a_micro_batch_is_refused(batch: Any) -> None:
    for read in (lambda: infer_schema([batch], None), lambda: to_table(batch, SCHEMA)):
        with pytest.raises(SpecError) as caught:
            read()
        assert caught.value.code == "INVALID_ROWS"
        assert caught.value.fix == "a list of lists of rows: [[{...}, {...}], [{...}]]"


@pytest.mark.parametrize(
    ("given", "sparks"),
    [
        (pa.timestamp("ns", tz="Europe/Berlin"), INSTANT),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.duration("s"), pa.duration("us")),
    ],
    ids=str,
)
def test_types_become_those_of_spark(given: pa.DataType, sparks: pa.DataType) -> None:
    assert canonical(pa.schema([("x", given)])).field("x").type == sparks


def test_a_type_that_spark_lacks_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        canonical(pa.schema([("x", pa.uint64())]))
    assert caught.value.code == "TYPE_UNSUPPORTED"


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        canonical(pa.schema([("x", pa.int64()), ("x", pa.int64())]))
    assert caught.value.code == "DUPLICATE_COLUMN"


SCHEMA = pa.schema([("k", pa.string()), ("ts", INSTANT)])


def test_a_row_may_omit_columns() -> None:
    table = to_table([{"ts": at(1)}, {"k": "a"}], SCHEMA)
    assert table.to_pylist() == [{"k": None, "ts": at(1)}, {"k": "a", "ts": None}]


def test_an_empty_micro_batch_has_the_columns_of_the_script() -> None:
    assert to_table([], SCHEMA) == SCHEMA.empty_table()


def test_a_row_must_not_have_other_columns() -> None:
    with pytest.raises(ColumnNotFound, match="did you mean 'ts'"):
        to_table([{"k": "a", "t": at(1)}], SCHEMA)


def test_a_table_must_have_every_column() -> None:
    with pytest.raises(ColumnNotFound, match="'ts'"):
        to_table(pa.table({"k": ["a"]}), SCHEMA)


def test_columns_of_a_table_are_selected_by_name() -> None:
    table = to_table(pa.table({"ts": [at(1)], "k": ["a"]}), SCHEMA)
    assert table == pa.table({"k": ["a"], "ts": [at(1)]}, schema=SCHEMA)


@pytest.mark.parametrize(
    "batch",
    [
        [{"k": 1}],
        [{"ts": 5}],
        [{"ts": dt.datetime(2024, 1, 1)}],  # noqa: DTZ001
        pa.table({"k": [7], "ts": [at(1)]}),
        pa.table({"k": ["a"], "ts": [dt.datetime(2024, 1, 1)]}),  # noqa: DTZ001
        pa.table({"k": ["a"], "ts": ["2024-01-01T00:00:00Z"]}),
        pa.table({"k": ["a"], "ts": pa.array([1], pa.timestamp("ns", tz="UTC"))}),
    ],
    ids=str,
)
def test_a_value_that_a_cast_would_change_is_refused(batch: object) -> None:
    with pytest.raises(SchemaError) as caught:
        to_table(batch, SCHEMA)
    assert caught.value.code == "BATCH_TYPE"


@pytest.mark.parametrize("value", [1.5, 1.0, 2**70, "7", True, {1}])
def test_a_value_of_another_type_than_that_of_the_schema_is_refused(value: object) -> None:
    with pytest.raises(SchemaError) as caught:
        to_table([{"n": value}], pa.schema([("n", pa.int64())]))
    assert caught.value.code == "BATCH_TYPE"


@pytest.mark.parametrize("values", [[2**70], [1, "a"]])
def test_values_without_a_common_type_are_refused(values: list[object]) -> None:
    frame = pd.DataFrame({"n": pd.Series(values, dtype=object)})
    for batches in ([[{"n": value}] for value in values], [frame]):
        with pytest.raises(SchemaError) as caught:
            infer_schema(batches, None)
        assert caught.value.code == "BATCH_TYPE"


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        (pa.float64(), pa.int64(), True),
        (pa.float64(), pa.float32(), False),
        (pa.int32(), pa.decimal128(12, 2), True),
        (pa.float64(), pa.decimal128(12, 2), False),
        (pa.list_(pa.null()), pa.list_(pa.string()), True),
        (pa.large_list(pa.large_string()), pa.list_(pa.string()), True),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.int8())]), False),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())]), False),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), True),
        (pa.bool_(), pa.int64(), False),
    ],
    ids=str,
)
def test_columns_of_tables_are_cast_if_values_stay(
    given: pa.DataType, wanted: pa.DataType, fits: bool
) -> None:
    assert keeps_values(given, wanted) == fits
    table, schema = pa.table({"n": pa.nulls(1, given)}), pa.schema([("n", wanted)])
    assert to_table(table, schema).schema == schema  # there is no value
