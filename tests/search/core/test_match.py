"""Steps of stored queries: changes, rejected rows, the index that a worker keeps."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import search
from streamops.kernel.core import State
from streamops.search.core import match
from streamops.search.core.match import SearchCore
from streamops.search.core.spec import MatchSpec
from streamops.testing.laws import to_rows

Rows = list[dict[str, Any]]
DOCUMENTS = pa.schema([("title", pa.string()), ("price", pa.int64())])
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("lsn", pa.int64()),
        ("note", pa.string()),
        ("_change_type", pa.string()),
        ("_tombstone", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
        ("rejected", pa.struct([("reason", pa.string()), ("record", pa.string())])),
    ]
)


def spec_of(**arguments: Any) -> MatchSpec:
    given: dict[str, Any] = {"text": "title", "fields": "price", "sequence": "lsn", "horizon": 10}
    parameters = search.match(None, **(given | arguments)).parameters
    spec: MatchSpec = parameters.resolve((DOCUMENTS, QUERIES), carried=(None, None), shards=1)
    return spec


SPEC = spec_of(rejected="route")


def change(number: int, query: str | None, lsn: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "query": query, "lsn": lsn, "_change_type": "insert", **more}


def run(steps: list[tuple[Rows, Rows]], spec: MatchSpec = SPEC) -> list[Any]:
    state, found = State.empty(SearchCore().layout(spec)), []
    for documents, changes in steps:
        inputs = [
            SearchCore().pack(spec, pa.Table.from_pylist(documents, DOCUMENTS), "left"),
            SearchCore().pack(spec, pa.Table.from_pylist(changes, QUERIES).select(spec.inputs[1].schema.names), "right"),
        ]  # fmt: skip
        found.append(SearchCore().step(spec, state, inputs, None))
        state = found[-1].state
        SearchCore().check(spec, state)
    return found


def ids(step: Any) -> list[int]:
    return sorted(row["query_id"] for row in to_rows(step.output))


A = {"title": "a", "price": 1}


@pytest.fixture
def no_indexes() -> None:
    """Without those of tables that other tests have not freed."""
    match._by_table.clear()
    match._by_content.clear()


def test_an_invalid_query_is_side_output_with_its_position_and_row() -> None:
    (step,) = run([([A], [change(1, "price:x", 5), change(2, "a", 6)])])
    assert ids(step) == [2]
    (late,) = to_rows(step.late)
    assert (late["title"], late["query_id"]) == (None, None)
    assert late["late"] == {
        "side": "right",
        "reason": "invalid_query",
        **dict.fromkeys(["lateness", "watermark", "window"]),
        "row": {"left": None, "right": {"id": 1, "query": "price:x", "lsn": 5}},
        "position": 6,
        "message": "'x' is not an integer, as the field 'price' has",
    }


def test_a_row_that_was_rejected_before_keeps_its_reason_and_is_not_parsed() -> None:
    (step,) = run([([A], [change(1, "(", 5, rejected={"reason": "bad_json", "record": "{"})])])
    (late,) = to_rows(step.late)
    assert late["late"]["reason"] == "bad_json"
    assert late["late"]["position"] is None


def test_deletes_preimages_and_tombstones_are_not_parsed() -> None:
    changes = [
        change(1, "(", 1, _change_type="delete"),
        change(2, "(", 1, _change_type="update_preimage"),
        change(3, None, 1, _change_type=None, _tombstone=True),
    ]
    (step,) = run([([A], changes)])
    assert (len(step.late), step.metrics.rejected) == (0, 0)


def test_a_query_that_was_not_sent_is_that_of_the_previous_change() -> None:
    lacks = change(1, None, 2, _change_type="update_postimage", _unavailable=["query", "note"])
    first, second, third = run([([A], [change(1, "a", 1)]), ([A], [lacks]), ([A], [])])
    assert ids(first) == ids(second) == ids(third) == [1]


def test_a_query_of_which_no_text_was_ever_sent_matches_nothing() -> None:
    (step,) = run([([A], [change(1, None, 2, _unavailable=["query"])])])
    assert (ids(step), len(step.late), step.state.rows) == ([], 0, 1)


def test_of_queries_in_conflict_the_greatest_text_is_effective_in_any_order() -> None:
    two = [change(1, "a", 1), change(1, "b", 1)]
    for changes in (two, two[::-1]):
        (step,) = run([([A, {"title": "b", "price": 2}], changes)])
        assert [row["title"] for row in to_rows(step.output)] == ["b"]
        assert [row["late"]["reason"] for row in to_rows(step.late)] == ["conflict"]


def test_a_step_without_changes_does_not_write_its_state() -> None:
    first, second = run([([], [change(1, "a", 1)]), ([A], [])])
    assert second.state is first.state


@pytest.mark.usefixtures("no_indexes")
def test_a_worker_builds_an_index_once_and_of_no_other_queries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = []
    of = match.QueryIndex.of
    monkeypatch.setattr(match.QueryIndex, "of", lambda *args: built.append(1) or of(*args))
    steps = [([A], [change(1, "a", 1)]), ([A], []), ([A], [change(1, "b", 2)]), ([A], [])]
    found = run(steps)
    assert [ids(step) for step in found] == [[1], [1], [], []]
    assert len(built) == 2
    assert [ids(step) for step in run(steps)] == [[1], [1], [], []]  # equal tables, decoded again
    assert len(built) == 2


@pytest.mark.usefixtures("no_indexes")
def test_a_step_without_changes_reads_no_text_of_a_query(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    write = match.ipc_write
    monkeypatch.setattr(match, "ipc_write", lambda rows: written.append(1) or write(rows))
    assert [ids(step) for step in run([([A], [change(1, "a", 1)]), ([A], []), ([A], [])])] == [
        [1]
    ] * 3
    assert len(written) == 1


@pytest.mark.usefixtures("no_indexes")
def test_the_index_of_a_table_is_not_that_of_other_parameters() -> None:
    (step,) = run([([A], [change(1, "a", 1)])])
    other = spec_of(text=(), fields=("title", "price"))
    documents = SearchCore().pack(other, pa.Table.from_pylist([A], DOCUMENTS), "left")
    nothing = SearchCore().pack(other, other.inputs[1].schema.empty_table(), "right")
    parameters = [entry[1] for entry in match._by_table.values()]
    assert len(parameters) == 1
    SearchCore().step(other, step.state, [documents, nothing], None)
    assert len(match._by_table) == 1
    assert [entry[1] for entry in match._by_table.values()] != parameters


@pytest.mark.usefixtures("no_indexes")
def test_an_index_is_freed_together_with_the_table_of_its_queries() -> None:
    found = run([([A], [change(1, "a", 1)]), ([A], [change(2, "a", 1)])])
    assert (len(match._by_table), len(match._by_content)) == (2, 2)
    del found[0]
    assert (len(match._by_table), len(match._by_content)) == (1, 1)
    found.clear()
    assert (len(match._by_table), len(match._by_content)) == (0, 0)


def test_documents_are_matched_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "_DOCUMENTS_AT_ONCE", 2)
    documents: Rows = [{"title": "a" if n % 2 else "b", "price": n} for n in range(5)]
    (step,) = run([(documents, [change(1, "a", 1), change(2, "price:4", 1)])])
    found = sorted((row["price"], row["query_id"]) for row in to_rows(step.output))
    assert found == [(1, 1), (3, 1), (4, 2)]


def test_all_types_of_fields_are_found_by_value_and_range() -> None:
    schema = pa.schema(
        [
            ("i", pa.int8()),
            ("f", pa.float32()),
            ("b", pa.bool_()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("s", pa.string()),
        ]
    )
    row = {
        "i": -3,
        "f": 0.1,
        "b": True,
        "d": dt.date(1969, 12, 31),
        "t": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
        "s": "São",
    }
    match = [
        *("i:-3", "i:[-5 TO -3]", "f:0.1", "f:[0.05 TO 0.2}", "b:true", "d:1969-12-31"),
        *("d:<1970-01-01", 't:"1969-12-31T23:59:59.999999Z"', "t:<1970-01-01", "s:São", "s:Sã*"),
        *("s:>S", "i:{-3 TO *]", "b:false", "d:>1970-01-01", "s:são", "s:<São"),
    ]
    spec = search.match(None, fields=schema.names, sequence="lsn", horizon=1).parameters.resolve(
        (schema, QUERIES), carried=(None, None), shards=1
    )
    changes = [change(number, query, 1) for number, query in enumerate(match)]
    inputs = [
        SearchCore().pack(spec, pa.Table.from_pylist([row, dict.fromkeys(row)], schema), "left"),
        SearchCore().pack(spec, pa.Table.from_pylist(changes, QUERIES), "right"),
    ]
    step = SearchCore().step(spec, State.empty(SearchCore().layout(spec)), inputs, None)
    assert ids(step) == list(range(12))


def test_in_a_batch_all_documents_are_matched_with_the_final_queries() -> None:
    changes = [change(1, "a", 1), change(2, "b +", 1), change(1, "b", 2)]
    found = SearchCore().run(
        SPEC,
        [
            SearchCore().pack(SPEC, pa.Table.from_pylist([{"title": "a"}, {"title": "b"}], DOCUMENTS), "left"),
            SearchCore().pack(SPEC, pa.Table.from_pylist(changes, QUERIES).select(SPEC.inputs[1].schema.names), "right"),
        ],
    ).rows  # fmt: skip
    rows = to_rows(found)
    assert [(row["title"], row["query_id"]) for row in rows if row["late"] is None] == [("b", 1)]
    assert [row["late"]["row"]["right"]["id"] for row in rows if row["late"]] == [2]
