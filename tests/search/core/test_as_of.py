"""Stored queries as of event time: boundaries of versions, late rows, eviction, the index."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from streamops import search
from streamops.kernel.core import OWNED, SIDES, State, Step, mark_owned
from streamops.kernel.errors import CapacityError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.search.core import match
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.evaluate import QueryIndex
from streamops.search.core.spec import MatchSpec
from streamops.testing.laws import to_rows
from tests.laws.asof_strategies import table_of

INSTANT = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema([("title", pa.string()), ("ts", INSTANT), ("_is_owned", pa.bool_())])
QUERIES = pa.schema(
    [
        ("id", pa.int64()),
        ("query", pa.string()),
        ("since", INSTANT),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
        ("_tombstone", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
        ("rejected", pa.struct([("reason", pa.string())])),
    ]
)
Rows = list[dict[str, Any]]


def spec_of(**arguments: Any) -> MatchSpec:
    given: dict[str, Any] = {"text": "title", "as_of": "ts", "time": "since", "sequence": "lsn"}
    given |= {"delay": "0 seconds", "rejected": "route", "horizon": "1 hour"}
    parameters = search.match(None, **(given | arguments)).parameters
    spec: MatchSpec = parameters.resolve((DOCUMENTS, QUERIES), carried=(None, None), shards=1)
    return spec


SPEC = spec_of()


def document(ts: int | None, title: str = "a") -> dict[str, Any]:
    return {"title": title, "ts": ts, "_is_owned": None}


def change(number: int | None, query: str | None, since: int | None, **more: Any) -> dict[str, Any]:
    row = dict.fromkeys(QUERIES.names) | {"id": number, "query": query, "since": since}
    return row | {"lsn": 1, "_change_type": "insert"} | more


def delete(number: int, since: int, **more: Any) -> dict[str, Any]:
    return change(number, None, since, _change_type="delete", **more)


def pack(spec: MatchSpec, documents: Rows, changes: Rows) -> list[pa.Table]:
    tables = table_of(documents, DOCUMENTS), table_of(changes, QUERIES)
    return [
        SearchAsofCore().pack(spec, table.select(of.schema.names), side)
        for side, table, of in zip(SIDES, tables, spec.inputs, strict=True)
    ]


def run(steps: list[tuple[Rows, Rows, int | None]], spec: MatchSpec = SPEC) -> list[Step]:
    """The steps, of which each leaves a valid state."""
    state, found = State.empty(SearchAsofCore().layout(spec)), []
    for documents, changes, watermark in steps:
        found.append(SearchAsofCore().step(spec, state, pack(spec, documents, changes), watermark))
        state = found[-1].state
        SearchAsofCore().check(spec, state)
    return found


def matches(step: Step) -> list[tuple[int, int]]:
    """Time of the document, and query."""
    return sorted((row["ts"], row["query_id"]) for row in to_rows(step.output))


def reasons(step: Step) -> list[str]:
    return sorted(row["late"]["reason"] for row in to_rows(step.late))


@pytest.mark.parametrize("start", [0, -10, MIN_INSTANT + 5, MAX_INSTANT - 20])
def test_a_version_is_valid_from_its_instant_to_that_of_the_next_one(start: int) -> None:
    changes = [
        change(1, "a", start),
        change(1, "b", start + 10),
        change(2, "a", start + 10),
        delete(2, start + 12),
    ]
    documents = [document(start + t) for t in (-1, 0, 9, 10, 11, 12)]
    documents += [document(start + 10, "b")]
    (step,) = run([(documents, changes, 1 << 60)])
    assert matches(step) == [
        (start, 1),
        (start + 9, 1),
        (start + 10, 1),  # the document "b"
        (start + 10, 2),
        (start + 11, 2),
    ]


def test_of_versions_of_one_instant_the_last_by_sequence_is_valid() -> None:
    changes = [change(1, "b", 5, lsn=2), change(1, "a", 5, lsn=1), change(1, "a", 5, lsn=3)]
    (step,) = run([([document(5)], changes, 5)])
    assert matches(step) == [(5, 1)]
    (step,) = run([([document(5)], [*changes, delete(1, 5, lsn=4)], 5)])
    assert matches(step) == []


def test_a_document_waits_until_the_watermark_has_reached_it() -> None:
    first, second, third = run(
        [
            ([document(10), document(11)], [change(1, "a", 20)], 9),
            ([], [change(2, "a", 10)], 10),
            ([], [change(2, "b", 5), change(3, "a", 11)], 11),
        ]
    )
    assert matches(first) == []
    assert matches(second) == [(10, 2)]
    # The version of 5 is hidden by that of 10; that of 11 is late by no watermark before this one.
    assert matches(third) == [(11, 2), (11, 3)]


def test_a_late_document_is_not_matched_and_a_late_change_counts_for_those_that_wait() -> None:
    _, step, last = run(
        [
            ([document(30)], [change(1, "a", 1)], 20),
            ([document(20), document(21)], [change(2, "a", 15), change(3, "b", 21)], 25),
            ([], [], 30),
        ]
    )
    assert matches(step) == [(21, 1), (21, 2)]
    assert matches(last) == [(30, 1), (30, 2)]
    assert (step.metrics.rows, step.metrics.on_time, step.metrics.too_late) == (4, 2, 2)
    (late, change_) = sorted(
        (row["late"] for row in to_rows(step.late)), key=lambda row: row["lateness"]
    )
    assert (late["reason"], late["lateness"], late["watermark"]) == ("too_late", 0, 20)
    assert (late["side"], late["row"]) == ("left", {"left": document(20), "right": None})
    assert (change_["side"], change_["reason"], change_["lateness"]) == ("right", "too_late", 5)
    saved = {"id": 2, "query": "a", "since": 15, "lsn": 1}
    assert change_["row"] == {"left": None, "right": saved}
    dropped = run([([document(1)], [], 5), ([document(5)], [], 6)], spec_of(rejected="drop"))
    assert len(dropped[1].late) == 0
    assert dropped[1].metrics.too_late == 1


def test_rows_without_a_usable_time_are_rejected() -> None:
    (step,) = run(
        [
            (
                [document(None), document(2**60)],
                [change(1, "a", None), change(2, "a", -(2**60)), change(None, "a", 1)],
                5,
            )
        ]
    )
    assert reasons(step) == sorted(["null_time", "time_out_of_range"] * 2 + ["null_key"])
    assert (step.metrics.rejected, step.metrics.rows) == (5, 5)


def test_an_invalid_query_is_never_valid_and_the_previous_version_stays() -> None:
    (step,) = run([([document(9)], [change(1, "a", 1), change(1, "(", 5)], 9)])
    assert matches(step) == [(9, 1)]
    (row,) = to_rows(step.late)
    assert row["late"]["reason"] == "invalid_query"
    assert row["late"]["position"] == 1
    assert row["late"]["lateness"] is None


def test_changes_without_a_query_of_their_own_have_no_effect() -> None:
    changes = [
        change(1, "a", 1),
        change(1, None, 5, _change_type="update_postimage", _unavailable=["query"]),
        change(1, "b", 6, _change_type="update_preimage"),
        change(1, None, None, _change_type=None, _tombstone=True),
    ]
    (step,) = run([([document(9)], changes, 9)])
    assert matches(step) == [(9, 1)]
    assert (step.metrics.rejected, step.metrics.on_time) == (0, 5)
    assert len(step.state.tables["versions"]) == 1


def test_a_row_that_was_rejected_before_keeps_its_reason() -> None:
    (step,) = run([([], [change(1, "a", 1, rejected={"reason": "malformed"})], 9)])
    assert reasons(step) == ["malformed"]


def test_of_conflicting_versions_the_greater_text_is_valid_whichever_arrives_first() -> None:
    for texts in (["a", "b"], ["b", "a"]):
        first, second = run(
            [
                ([document(30, "b")], [change(1, texts[0], 10)], 5),
                ([], [change(1, texts[1], 10), change(1, "b", 10)], 30),
            ]
        )
        assert matches(second) == [(30, 1)]
        assert reasons(first) == []
        assert reasons(second) == (["conflict"] if texts[1] == "a" else [])


def test_a_version_is_stored_until_the_watermark_has_reached_the_next_one() -> None:
    steps = run(
        [
            ([], [change(1, "a", 10), change(1, "b", 20), change(1, "c", 30)], 5),
            ([], [], 10),
            ([], [], 19),
            ([], [], 20),
            ([], [], 1_000),
        ]
    )
    sizes = [len(step.state.tables["versions"]) for step in steps]
    assert sizes == [3, 3, 3, 2, 1]
    deadlines = [SearchAsofCore().next_deadline(SPEC, step.state) for step in steps]
    assert deadlines == [20, 20, 20, 30, None]


def test_a_deleted_query_is_stored_for_the_horizon_and_then_forgotten() -> None:
    spec = spec_of(horizon="10 microseconds")
    steps = run(
        [
            ([], [change(1, "a", 1), delete(1, 5)], 14),
            ([document(40)], [change(1, "a", 4)], 14),  # older than the delete
            ([], [], 15),
            ([], [change(1, "a", 5), change(2, "a", 5), change(3, "a", 6)], 16),
            ([], [change(3, "b", 2)], 40),
        ],
        spec,
    )
    assert [len(step.state.tables["versions"]) for step in steps] == [1, 1, 0, 1, 1]
    assert SearchAsofCore().next_deadline(spec, steps[0].state) == 15
    assert to_rows(steps[2].state.tables["evicted"]) == [{"time": 5}]
    assert reasons(steps[3]) == ["forgotten", "forgotten", "too_late"]
    assert matches(steps[4]) == [(40, 3)]


def test_more_queries_than_the_limit_are_rejected_and_versions_do_not_count() -> None:
    spec = spec_of(max_keys=2, when_full="reject_new")
    changes = [change(n, "a", t) for n in (1, 2) for t in (1, 2, 3)]
    first, second = run([([], changes, 0), ([document(9)], [change(3, "a", 4)], 9)], spec)
    assert len(first.state.tables["versions"]) == 6
    assert reasons(second) == ["full"]
    assert matches(second) == [(9, 1), (9, 2)]
    with pytest.raises(CapacityError):
        run([([], [change(n, "a", 1) for n in range(3)], 0)], spec_of(max_keys=2))


def test_a_watermark_beyond_all_rows_matches_everything_once() -> None:
    first, second, third = run(
        [
            ([document(1), document(2)], [change(1, "a", 2)], None),
            ([], [], MAX_INSTANT),
            ([], [], MAX_INSTANT),
        ]
    )
    assert [matches(step) for step in (first, second, third)] == [[], [(2, 1)], []]
    assert len(second.state.tables["documents"]) == 0


def test_only_the_owner_of_a_document_counts_and_emits_it() -> None:
    state = State.empty(SearchAsofCore().layout(SPEC))
    state = SearchAsofCore().step(SPEC, state, pack(SPEC, [], []), 10).state
    packed, changes = pack(SPEC, [document(5), document(None), document(20)], [])
    assert packed.column_names[-1] == OWNED
    owned = mark_owned(packed, pa.array([False, True, False]))
    step = SearchAsofCore().step(SPEC, state, [owned, changes], 10)
    assert reasons(step) == ["null_time"]
    assert (step.metrics.rows, step.metrics.rejected, step.metrics.too_late) == (1, 1, 0)
    # The document that is not late waits in every shard.
    assert [row["ts"] for row in to_rows(step.state.tables["documents"])] == [20]
    # A column of the documents with the same name is another one.
    assert to_rows(step.state.tables["documents"])[0]["_is_owned"] is None


def test_an_index_is_built_when_a_version_is_added_or_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    match._by_table.clear()
    match._by_content.clear()
    built = []
    of = QueryIndex.of
    monkeypatch.setattr(QueryIndex, "of", lambda *args: built.append(1) or of(*args))
    steps: list[tuple[Rows, Rows, int | None]] = [
        ([document(t) for t in (10, 20, 30, 40, 50)], [change(1, "a", 5)], 9),
        ([], [], 10),
        ([], [], 20),
        ([], [change(1, "b", 35)], 30),
        ([], [], 40),
        ([], [], 50),
    ]
    found = [matches(step) for step in run(steps)]
    assert found == [[], [(10, 1)], [(20, 1)], [(30, 1)], [], []]
    assert len(built) == 3, "first, with the change, without the version before it"


def test_a_document_of_an_hour_ago_is_matched_with_the_queries_of_then() -> None:
    """Instants of Spark, in microseconds."""
    now = int(dt.datetime(2026, 11, 25, tzinfo=dt.UTC).timestamp()) * 1_000_000
    hour = 3_600_000_000
    changes = [change(1, "a", now - 2 * hour), delete(1, now - hour // 2)]
    (step,) = run([([document(now - hour), document(now)], changes, now)])
    assert matches(step) == [(now - hour, 1)]
