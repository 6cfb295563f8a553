"""Versions of writes, and the bulk protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.sinks.core.bulk import TOMBSTONE, read_answer, request_lines
from streamops.sinks.core.versions import (
    HIGHEST,
    OLDER,
    Again,
    Refused,
    cut,
    find_writes,
    parse_exactly,
    parse_seconds,
    rank,
)


def batch(**columns: Any) -> pa.RecordBatch:
    count = len(columns["key"])
    given = {
        "sequence": [1] * count,
        "change": ["insert"] * count,
        "is_text": [True] * count,
        "document": [f'{{"n":{n}}}' for n in range(count)],
        **columns,
    }
    types = {"sequence": pa.int64(), "is_text": pa.bool_()}
    names = ("key", "sequence", "change", "is_text", "document")
    return pa.record_batch([pa.array(given[n], types.get(n, pa.string())) for n in names], names)


@pytest.mark.parametrize(("by_revision", "versions"), [(True, (14, 15)), (False, (15, 14))])
def test_a_delete_comes_after_the_row_with_its_revision(
    by_revision: bool, versions: tuple[int, int]
) -> None:
    rows = batch(key=["a", "b"], sequence=[7, 7], change=["insert", "delete"])
    found = find_writes(rows, by_revision=by_revision).latest
    assert tuple(found["version"].to_pylist()) == versions
    assert found["deletes"].to_pylist() == [False, True]


writes = st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.booleans(), st.integers(0, 2))


@given(st.lists(writes), st.booleans())
def test_the_latest_write_of_each_key_stays_and_of_two_the_one_with_the_higher_rank(
    given: list[tuple[str, int, bool, int]], by_revision: bool
) -> None:
    keys, sequence, deletes, values = zip(*given, strict=True) if given else ((), (), (), ())
    change = ["delete" if is_delete else "update_postimage" for is_delete in deletes]
    document = [f'{{"n":{value}}}' for value in values]
    columns = {"key": list(keys), "sequence": list(sequence), "document": document}
    found = find_writes(batch(change=change, **columns), by_revision=by_revision)
    best: dict[tuple[str, int, bool], int] = {}
    for key, number, is_delete, value in given:
        version = key, number, is_delete
        best[version] = max(best.get(version, 0), value)
    latest: dict[str, tuple[int, str]] = {}
    for (key, number, is_delete), value in best.items():
        version_and_row = 2 * number + (is_delete == by_revision), "" if is_delete else value
        latest[key] = max(latest.get(key, (-1, "")), version_and_row, key=lambda pair: pair[0])
    names = "key", "version", "document", "deletes"
    stays = zip(*(found.latest[name].to_pylist() for name in names), strict=True)
    rows = {k: (v, "" if is_removed else json.loads(d)["n"]) for k, v, d, is_removed in stays}
    assert rows == latest
    assert len(found.latest) == len(latest)
    conflicts = [v for k, n, is_delete, v in given if not is_delete and v < best[k, n, is_delete]]
    assert found.invalid["reason"].to_pylist() == ["conflicting_sequence"] * len(conflicts)
    assert [json.loads(row)["n"] for row in found.invalid["row"].to_pylist()] == conflicts


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ('{"a":1,"b":2}', '{"b": 2, "a": 1}', True),
        ('{"_version":4,"a":1}', '{"a":1}', True),
        ('{"a":1.10}', '{"a":1.1}', False),
        ('{"a":12345678901234567890.01}', '{"a":12345678901234567890.02}', False),
        ('{"a":9007199254740993}', '{"a":9007199254740992}', False),
        ('{"a":null}', "{}", False),
        ('{"a":[1]}', '{"a":1}', False),
    ],
)
def test_a_rank_distinguishes_rows(one: str, other: str, is_same: bool) -> None:
    assert (rank(one) == rank(other)) is is_same
    assert rank(parse_exactly(one)) == rank(one)


def test_rows_that_cannot_be_written_have_a_reason() -> None:
    rows = batch(
        key=["good", None, "", "é" * 256, "é" * 257, "f", "g", "h", "i", "j"],
        sequence=[HIGHEST, 1, 1, 1, 1, None, -1, HIGHEST + 1, 1, 1],
        change=["insert"] * 8 + [None, "insert"],
        is_text=[True] * 9 + [False],
    )
    found = find_writes(rows, by_revision=True, key_bytes=(1, 512))
    assert found.latest["key"].to_pylist() == ["good", "é" * 256]
    assert found.latest["version"].to_pylist() == [2 * HIGHEST, 2]
    reasons = ["null_key", "key_length", "key_length", "null_sequence"]
    reasons += ["sequence_out_of_range"] * 2 + ["unknown_change", "invalid_text"]
    assert found.invalid["reason"].to_pylist() == reasons
    assert found.invalid["row"][0].as_py() == '{"n":1}'


@given(st.lists(st.integers(0, 20)), st.integers(1, 5), st.integers(1, 30))
def test_requests_have_a_bound(sizes: list[int], rows: int, size: int) -> None:
    parts = list(cut(np.array(sizes, np.int64), rows=rows, size=size))
    assert [n for part in parts for n in range(part.start, part.stop)] == [*range(len(sizes))]
    for part in parts:
        length = part.stop - part.start
        assert length == 1 or (length <= rows and sum(sizes[part]) <= size)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_every_key_is_sent_exactly(keys: list[str]) -> None:
    count = len(keys)
    deletes = [n % 2 == 0 for n in range(count)]
    table = pa.table(
        {"key": keys, "version": [*range(count)], "deletes": deletes, "document": ["{}"] * count}
    )
    for marks in (False, True):
        for n, text in enumerate(request_lines(table, marks=marks).to_pylist()):
            action, *document, end = text.split("\n")
            assert end == ""
            ((name, head),) = json.loads(action).items()
            of_version = "external_gte" if deletes[n] else "external"
            assert head == {"_id": keys[n], "version": n, "version_type": of_version}
            removes = deletes[n] and not marks
            assert name == ("delete" if removes else "index")
            assert document == ([] if removes else [TOMBSTONE if deletes[n] else "{}"])


def test_what_an_answer_means() -> None:
    def answer(status: int, error: Any = None, action: str = "index") -> str:
        return read_answer({action: {"status": status, **({"error": error} if error else {})}})

    conflict = {"type": "version_conflict_engine_exception", "reason": "older"}
    assert answer(409, conflict) == OLDER
    for status in (429, 500, 503):
        assert isinstance(answer(status, {"type": "x", "reason": "busy"}), Again)
    cause = {"type": "y", "reason": "inner", "caused_by": {"reason": "inner"}}
    wrong = answer(400, {"type": "mapper_parsing_exception", "reason": "outer", "caused_by": cause})
    assert wrong == "mapper_parsing_exception: outer: inner"
    assert not isinstance(wrong, Again | Refused)
    assert isinstance(answer(400, {"type": "index_closed_exception"}), Refused)
    assert isinstance(answer(403, {"type": "security_exception"}), Refused)
    missing = {"type": "index_not_found_exception", "reason": "no such index"}
    assert isinstance(answer(404, missing, "delete"), Refused)
    assert answer(400, "text") == "error: text"


@pytest.mark.parametrize(("text", "seconds"), [("1d", 86_400), ("500ms", 0.5), ("what", 0)])
def test_times_of_settings(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds
