"""Parameters of `search.match` as of event time, their errors, and replays over shards and restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import search
from streamops.kernel.errors import (
    ColumnNotFound,
    SchemaError,
    SpecError,
    StreamopsError,
    WatermarkError,
)
from streamops.kernel.lateness import late_field
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.spec import MatchSpec
from streamops.spark.drive import resolve
from streamops.testing import assert_rows, at, replay

INSTANT = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema([("title", pa.string()), ("ts", INSTANT), ("day", pa.date32())])
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("since", INSTANT),
        ("until", pa.timestamp("us")),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
ARGUMENTS: dict[str, Any] = {
    "text": "title",
    "as_of": "ts",
    "time": "since",
    "sequence": "lsn",
    "delay": "2 seconds",
}


def bound(carried: tuple[int | None, int | None] = (None, None), **arguments: Any) -> MatchSpec:
    spec: Any = resolve(
        search.match(None, **(ARGUMENTS | arguments)), (DOCUMENTS, QUERIES), carried
    )
    assert isinstance(spec, MatchSpec)
    return spec


@pytest.mark.parametrize(
    ("error_type", "code", "act"),
    [
        (SpecError, "PARAMETER_TYPE", lambda: bound(as_of=3)),
        (SpecError, "PARAMETER_WITHOUT_EFFECT", lambda: bound(as_of=None)),
        (SpecError, "PARAMETER_WITHOUT_EFFECT", lambda: bound(as_of=None, delay=None, waits_for="documents")),
        (SpecError, "PARAMETER_WITHOUT_EFFECT", lambda: bound(delay=("1 second",) * 2, waits_for="documents")),
        (SpecError, "PARAMETER_MISSING", lambda: bound(horizon=10)),
        (SpecError, "UNKNOWN_CHOICE", lambda: bound(waits_for="facts")),
        (SpecError, "DUPLICATE_COLUMN", lambda: bound(sequence="id")),
        (SpecError, "INVALID_DURATION", lambda: bound(delay="1 month")),
        (SpecError, "INVALID_DURATION", lambda: bound(delay="-1 seconds")),
        (SpecError, "INVALID_DURATION", lambda: bound(delay="1 microsecond")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(as_of="seen")),
        (ColumnNotFound, "COLUMN_NOT_FOUND", lambda: bound(time=None)),
        (SchemaError, "COLUMN_TYPE", lambda: bound(as_of="day")),
        (SchemaError, "COLUMN_TYPE", lambda: bound(time="until")),
        (WatermarkError, "WATERMARK_NOT_WAITED_FOR", lambda: bound((None, 5), waits_for="documents")),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(
    error_type: type[StreamopsError], code: str, act: Callable[[], object]
) -> None:
    with pytest.raises(error_type) as caught:
        act()
    assert caught.value.code == code
    assert "search.match" in str(caught.value)


def test_a_stream_needs_a_watermark_on_both_inputs() -> None:
    script: Any = [([{"title": "a", "ts": at(1), "day": None}], [])]
    given = ARGUMENTS | {"delay": None}
    with pytest.raises(WatermarkError) as caught:
        replay(search.match(None, **given), script, schema=(DOCUMENTS, QUERIES))
    assert caught.value.code == "WATERMARK_MISSING"
    with pytest.raises(WatermarkError):
        replay(
            search.match(None, **given),
            script,
            schema=(DOCUMENTS, QUERIES),
            watermark=("1 second", None),
        )
    both = replay(
        search.match(None, **given), script, schema=(DOCUMENTS, QUERIES), watermark="1 second"
    )
    assert len(both) == 1


def test_the_watermark_is_that_of_both_inputs_or_of_the_documents() -> None:
    both, documents = bound(), bound(waits_for="documents", delay="1 second")
    assert (both.times, documents.times) == (("ts", "since"), ("ts", None))
    assert [of.delay for of in both.inputs] == [2_000_000] * 2
    assert [of.delay for of in documents.inputs] == [1_000_000, None]
    assert [of.delay for of in bound((5, None)).inputs] == [None, 2_000_000]
    assert both.event_time == "ts"


def test_the_output_has_late_documents_in_its_side_output() -> None:
    spec = bound(rejected="route")
    assert spec.output.names == [*DOCUMENTS.names, "query_id", "late"]
    row = pa.schema([QUERIES.field(name) for name in ("id", "query", "since", "lsn")])
    error = [("position", pa.int32()), ("message", pa.string())]
    assert spec.output.field("late") == late_field(DOCUMENTS, row, further=error)


def test_the_time_of_captured_changes_is_known_by_name() -> None:
    parameters = search.match(None, text="title", as_of="ts", delay="0 seconds").parameters
    assert (parameters.sequence, parameters.time) == (("_sequence",), "_changed_at")
    assert "as_of='ts'" in repr(search.match(None, text="title", as_of="ts", delay="1 second"))


def document(second: float | None, title: str) -> dict[str, Any]:
    return {"title": title, "ts": None if second is None else at(second), "day": None}


def saved(id: int, query: str | None, second: float, lsn: int = 1, change: str = "insert") -> Any:
    row = {"id": id, "query": query, "since": at(second), "until": None, "lsn": lsn}
    return row | {"_change_type": change}


SCRIPT: list[Any] = [
    ([document(1, "a"), document(4, "a b")], [saved(n, "a", n) for n in range(5)]),
    ([document(8, "b"), document(None, "b")], [saved(2, "b", 6, 2), saved(9, "(", 1)]),
    ([document(20, "x"), document(1, "late")], [saved(3, None, 15, 2, "delete"), saved(7, "-b", 2)]),
    (None, [saved(8, "x", 19), saved(1, "zzz", 30, 2)]),
    ([document(40, "a")], None),
]  # fmt: skip


@pytest.mark.parametrize("shards", [2, 5])
def test_the_number_of_shards_and_restarts_change_nothing(shards: int) -> None:
    operator = search.match(None, **ARGUMENTS | {"rejected": "route"})
    schema = (DOCUMENTS, QUERIES)
    one = replay(operator, SCRIPT, schema=schema, shards=1, flush=True)
    other = replay(operator, SCRIPT, schema=schema, shards=shards, restart=True, flush=True)
    for first, second in zip(one, other, strict=True):
        assert_rows(first.table, second.table)
        assert_rows(first.late, second.late)
        assert first.counts == second.counts
    reasons = [row["reason"] for result in one for row in result.late_rows]
    assert sorted(reasons) == ["invalid_query", "null_time", "too_late", "too_late"]


@pytest.mark.parametrize("cut", [1, 2, 9])
def test_the_result_does_not_depend_on_micro_batches(cut: int) -> None:
    """As long as no row is late. The documents arrive in the opposite order of time."""
    documents = [document(second, "a" if second % 2 else "b") for second in range(18)][::-1]
    changes = [saved(n % 3, "ab"[n % 2], 2 * n, n) for n in range(9)]
    operator = search.match(None, **ARGUMENTS | {"delay": "1 hour"})
    script: Any = [(documents[at::cut], changes[cut - 1 - at :: cut]) for at in range(cut)]
    results = replay(operator, script, schema=(DOCUMENTS, QUERIES), flush=True)
    found = sorted((row["ts"], row["query_id"]) for result in results for row in result.rows)
    spec = bound(delay="1 hour")
    packed = [
        SearchAsofCore().pack(spec, pa.Table.from_pylist(documents, DOCUMENTS), "left"),
        SearchAsofCore().pack(
            spec,
            pa.Table.from_pylist(changes, QUERIES).select(spec.inputs[1].schema.names),
            "right",
        ),
    ]
    expected = sorted(
        (row["ts"], row["query_id"]) for row in SearchAsofCore().run(spec, packed).rows.to_pylist()
    )
    assert len(expected) > 9
    assert found == expected
