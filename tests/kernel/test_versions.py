"""What stands in for newer Arrow and Spark gives the same values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.kernel import versions
from streamops.kernel.errors import RequirementError

MAPS = pa.map_(pa.string(), pa.int64())
NESTED = pa.struct([("m", MAPS), ("l", pa.list_(MAPS)), ("t", pa.timestamp("us", "UTC"))])
ROWS = [
    {
        "m": {"a": 1, "b": None},
        "l": [{"c": 2}, None, {}],
        "t": dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    },
    None,
    {"m": None, "l": None, "t": None},
]
PAIRS = [
    None
    if r is None
    else r
    | {"m": r["m"] and [*r["m"].items()], "l": r["l"] and [m and [*m.items()] for m in r["l"]]}
    for r in ROWS
]


@pytest.fixture(params=[True, False])
def pairs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what old and new versions of Arrow need."""
    if request.param or not versions._NEED_MAPS_AS_PAIRS:
        monkeypatch.setattr(versions, "_NEED_MAPS_AS_PAIRS", request.param)


@pytest.mark.usefixtures("pairs")
def test_maps_are_dicts_at_every_depth() -> None:
    array = pa.array(PAIRS, NESTED)
    assert versions.pylist(array) == ROWS
    assert versions.pylist(pa.chunked_array([array[:1], array[1:]])) == ROWS
    table = pa.table({"row": array, "n": [1, 2, 3]})
    assert versions.pylist(table) == [
        {"row": row, "n": n} for row, n in zip(ROWS, [1, 2, 3], strict=True)
    ]


@pytest.mark.usefixtures("pairs")
def test_a_key_that_a_map_has_twice_is_refused() -> None:
    with pytest.raises(KeyError):
        versions.pylist(pa.array([[("a", 1), ("a", 2)]], MAPS))


@pytest.mark.parametrize("has_method", [True, False])
def test_structs_become_the_columns_of_a_table(
    has_method: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "y"}])
    if not has_method:
        monkeypatch.setattr(versions, "pa", _ArrowBefore15())
    assert versions.table_of(array) == pa.table({"a": [1, None], "b": ["x", "y"]})


class _ArrowBefore15:
    RecordBatch = pa.RecordBatch

    class Table:
        from_batches = pa.Table.from_batches


def test_a_name_that_spark_lacks_is_a_class_without_instances() -> None:
    lacks = versions.spark_class("sql.types", "NoSuchType")
    assert issubclass(lacks, versions.Missing)
    assert not isinstance(object(), lacks)


def test_sources_in_python_are_refused_where_spark_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql.datasource", None)
    with pytest.raises(RequirementError) as caught:
        versions.require_python_sources("sources.outbox", "another")
    assert caught.value.code == "VERSION_NOT_SUPPORTED"
    assert caught.value.expected == "Spark 4.0 or later"


@pytest.mark.parametrize(
    "inputs", [None, [pa.int64()], [pa.string(), pa.struct([("n", pa.int8())])]]
)
def test_arguments_that_pandas_changes_are_refused_without_functions_of_arrow(
    monkeypatch: pytest.MonkeyPatch, inputs: Any
) -> None:
    monkeypatch.setattr(versions, "_attribute", lambda *names: None)
    with pytest.raises(RequirementError, match="VERSION_NOT_SUPPORTED"):
        versions.arrow_udf(lambda values: values, "int", inputs)


@pytest.mark.skipif(not versions.has_views(), reason="of Arrow 17")
def test_texts_as_views_are_refused_where_arrow_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.require_views("texts as views", "a sink of Spark")
    monkeypatch.delattr(pa, "string_view")
    with pytest.raises(RequirementError, match="VERSION_NOT_SUPPORTED"):
        versions.require_views("texts as views", "a sink of Spark")
    with pytest.raises(
        RequirementError, match=r'pyarrow 16 or later(.|\n)*sinks\.delta\(\.\.\., writer="spark"\)'
    ):
        sinks.delta("/anywhere")


@pytest.mark.skipif(not versions.has_views(), reason="of Arrow 17")
def test_decimals_are_refused_where_arrow_does_not_store_them_as_integers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = pa.schema([("a", pa.int64()), ("s", pa.struct([("b", pa.string())]))])
    nested = plain.append(pa.field("l", pa.list_(pa.decimal128(9, 2))))
    for schema in (plain, nested):
        assert versions.decimals_as_integers(schema) == {"store_decimal_as_integer": True}

    class Writer:
        """Writes Parquet files."""

    monkeypatch.setattr("pyarrow.parquet.ParquetWriter", Writer)
    assert versions.decimals_as_integers(plain) == {}
    with pytest.raises(RequirementError, match="decimals in l"):
        versions.decimals_as_integers(nested)


def test_arrow_that_refuses_the_positions_of_spark_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Whole:
        """As in Spark 4.0, 4.1 and 4.3."""

        def load(self, state_info_col: Any) -> Any:
            return int(state_info_col["startOffset"])

    class Floats:
        """As in Spark 3.5 and 4.2."""

        def load(self, state_info_col: Any) -> Any:
            data_start_offset = state_info_col["startOffset"]
            return data_start_offset

    def require(reader: Any) -> None:
        monkeypatch.setattr(versions, "_attribute", lambda module, name: reader)
        versions.require_whole_positions("applyInPandasWithState", "another state API")

    versions.require_whole_positions("applyInPandasWithState", "another state API")
    require(Whole)
    require(None)
    try:
        pa.RecordBatch.from_pydict({"n": [1]}).slice(0.0, 1.0)
    except TypeError:
        with pytest.raises(RequirementError, match="pyarrow before 26"):
            require(Floats)
    else:
        require(Floats)


def test_an_older_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", {"deltalake": "1.10.0"}.get)
    versions.require_version("deltalake", "1.9.6", extra="delta")
    versions.require_version("deltalake", "1.10", extra="delta")
    with pytest.raises(RequirementError) as refused:
        versions.require_version("deltalake", "1.10.1", extra="delta")
    assert refused.value.code == "VERSION_NOT_SUPPORTED"
    assert refused.value.got == "deltalake 1.10.0"
    assert "streamops[delta]" in refused.value.fix
