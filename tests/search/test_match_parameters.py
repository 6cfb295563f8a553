"""Parameters of `search.match`, and the errors of invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import search
from streamops.kernel.errors import (
    CapacityError,
    ColumnNotFound,
    RequirementError,
    SchemaError,
    SpecError,
    StreamopsError,
)
from streamops.search.core.spec import MatchSpec
from streamops.spark.drive import resolve
from streamops.testing import replay

MAP = pa.map_(pa.string(), pa.int64())
DOCUMENTS = pa.schema(
    [
        ("title", pa.string()),
        ("price", pa.int32()),
        ("m", MAP),
        ("d", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
    ]
)
QUERIES = pa.schema(
    [
        ("id", pa.string()),
        ("query", pa.string()),
        ("lsn", pa.int64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("m", MAP),
        ("_change_type", pa.string()),
    ]
)
ARGUMENTS: dict[str, Any] = {"text": "title", "sequence": "lsn", "horizon": 10}


def bound(
    left: pa.Schema = DOCUMENTS, right: pa.Schema = QUERIES, *, shards: int = 8, **arguments: Any
) -> MatchSpec:
    operator = search.match(None, **(ARGUMENTS | arguments)).options(shards=shards)
    spec: Any = resolve(operator, (left, right), (None, None))
    assert isinstance(spec, MatchSpec)
    return spec


def with_(name: str, dtype: pa.DataType, schema: pa.Schema = QUERIES) -> pa.Schema:
    columns = [field for field in schema if field.name != name]
    return pa.schema([*columns, pa.field(name, dtype)])


@pytest.mark.parametrize(
    ("error_type", "code", "act"),
    [
        (SpecError, "PARAMETER_MISSING", lambda: bound(text=[])),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(fields="title")),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(text=["title", "title"])),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(id="query")),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(sequence="id")),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(time="query", horizon="1 day")),
        (SpecError, "PARAMETER_TYPE", lambda: bound(text=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(id=3)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(query=None)),
        (SpecError, "PARAMETER_TYPE", lambda: bound(into="")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(sequence=[])),
        (SpecError, "NAME_TAKEN", lambda: bound(id="_change_type")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=10, time="ts")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=-1)),
        (SpecError, "INVALID_DURATION", lambda: bound(horizon="1 month", time="ts")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(default_operator="AND")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(rejected="fail")),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(when_full="evict")),
        (SpecError, "PARAMETER_OUT_OF_RANGE", lambda: bound(max_keys=0)),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(text="Title")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(fields="city")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(id="key")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(query="q")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(horizon="1 day")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(text="price")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(text="tags")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(fields="m")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(fields="d")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(fields="tags")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(query="ts")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(right=with_("_change_type", pa.int64()))),
        (SchemaError, "TYPE_UNSUPPORTED", lambda: bound(id="m")),
        (SchemaError, "NAME_TAKEN", lambda: bound(into="Title")),
        (SchemaError, "NAME_TAKEN", lambda: bound(into="late", rejected="route")),
        (SchemaError, "NAME_TAKEN", lambda: bound(query="_compiled", right=with_("_compiled", pa.string()))),
        (SchemaError, "NAME_TAKEN", lambda: bound(with_("late", pa.int64(), DOCUMENTS), rejected="route")),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(
    error_type: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error_type) as caught:
        act()
    assert caught.value.code == code
    assert "search.match" in str(caught.value)


def test_the_horizon_of_a_captured_table_is_measured_by_the_time_of_its_changes() -> None:
    parameters = search.match(None, text="title").parameters
    assert (parameters.sequence, parameters.time) == (("_sequence",), "_changed_at")


def test_each_shard_stores_its_part_of_the_queries() -> None:
    assert bound(max_keys=17, shards=8).limit == 3


def test_every_shard_receives_all_documents_and_queries_are_distributed_by_id() -> None:
    documents, queries = bound().inputs
    assert documents.is_broadcast
    assert documents.by == ()
    assert not queries.is_broadcast
    assert queries.by == ("id",)


def test_the_output_has_the_columns_of_the_document_and_the_id() -> None:
    spec = bound(rejected="route", into="alert")
    assert spec.output.names == [*DOCUMENTS.names, "alert", "late"]
    assert spec.output.field("alert").type == pa.string()
    assert spec.origins["alert"] == (1, "id")
    assert spec.reads == (("title",), ("id", "lsn"))


def test_without_luqum_the_plan_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "luqum.thread", None)
    with pytest.raises(RequirementError) as caught:
        bound()
    assert caught.value.code == "PACKAGE_MISSING"
    assert "streamops[search]" in str(caught.value)


def test_more_queries_than_the_limit_fail_or_are_rejected() -> None:
    rows = [{"id": str(n), "query": "a", "lsn": n} for n in range(3)]
    script = [([{"title": "a"}], rows)]
    given: dict[str, Any] = {**ARGUMENTS, "max_keys": 1}
    with pytest.raises(CapacityError) as caught:
        list(replay(search.match(None, **given).options(shards=1), script))
    assert caught.value.code == "STATE_FULL"
    given |= {"when_full": "reject_new", "rejected": "route"}
    (result,) = replay(search.match(None, **given).options(shards=1), script)
    assert result.counts is not None
    assert result.counts.rejected == 2
    assert [row["reason"] for row in result.late_rows] == ["full", "full"]
    assert len(result.rows) == 1
