from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, windows
from streamops.kernel.errors import ChangeStreamError, ColumnNotFound, SpecError
from streamops.testing import at, fold, replay

NAN = float("nan")


def change(type_: str, n: Any, revision: int | None = None, key: str = "a") -> dict[str, Any]:
    revisions = {} if revision is None else {"revision": revision}
    return {"k": key, "n": n, **revisions, "_change_type": type_}


def update(n: int, revision: int, key: str = "a") -> dict[str, Any]:
    return {"k": key, "n": n, "revision": revision}


def test_a_postimage_replaces_its_preimage() -> None:
    rows = [
        change("insert", 1, 0),
        change("insert", 5, 0, "b"),
        change("update_preimage", 1, 0),
        change("update_postimage", 2, 1),
        change("update_preimage", 2, 1),
        change("update_postimage", 3, 2),
    ]
    assert fold(rows, key="k") == [update(5, 0, "b"), update(3, 2)]


def test_a_deleted_row_may_be_inserted_again() -> None:
    rows = [change("insert", 1), change("delete", 1), change("insert", 2)]
    assert fold(rows[:2], key="k") == []
    assert fold(rows, key=["k"]) == [{"k": "a", "n": 2}]


def test_a_revision_replaces_the_one_before() -> None:
    assert fold([update(1, 0), update(7, 0, "b"), update(2, 1)], key="k") == [
        update(2, 1),
        update(7, 0, "b"),
    ]


def test_without_revisions_a_key_is_published_once() -> None:
    rows = [{"k": "a", "n": 1}, {"k": "b", "n": 1}]
    assert fold(rows, key="k") == rows
    assert fold([], key="k") == []


def test_a_preimage_with_nan_retracts_nan() -> None:
    rows = [
        change("insert", NAN, 0),
        change("update_preimage", NAN, 0),
        change("update_postimage", 1.0, 1),
    ]
    assert fold(rows, key="k") == [{"k": "a", "n": 1.0, "revision": 1}]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("INSERTED_TWICE", [change("insert", 1), change("insert", 2)]),
        ("INSERTED_TWICE", [{"k": "a", "n": 1}, {"k": "a", "n": 1}]),
        (
            "INSERTED_TWICE",
            [change("insert", 1, 0), change("update_preimage", 1, 0), change("insert", 2, 1)],
        ),
        ("PREIMAGE_NOT_PUBLISHED", [change("update_preimage", 1)]),
        ("PREIMAGE_NOT_PUBLISHED", [change("insert", 1), change("update_preimage", 2)]),
        ("PREIMAGE_NOT_PUBLISHED", [change("insert", 1, 0), change("update_preimage", 1, 1)]),
        ("PREIMAGE_NOT_PUBLISHED", [change("insert", 1), *[change("update_preimage", 1)] * 2]),
        ("PREIMAGE_ALONE", [change("insert", 1), change("update_preimage", 1)]),
        ("POSTIMAGE_ALONE", [change("insert", 1), change("update_postimage", 2)]),
        ("DELETED_UNPUBLISHED", [change("delete", 1)]),
        ("DELETED_UNPUBLISHED", [change("insert", 1), *[change("delete", 1)] * 2]),
        (
            "UNCHANGED",
            [
                change("insert", 1, 0),
                change("update_preimage", 1, 0),
                change("update_postimage", 1, 1),
            ],
        ),
        ("UNCHANGED", [update(1, 0), update(1, 1)]),
        ("REVISION_OUT_OF_STEP", [update(1, 0), update(2, 2)]),
        ("REVISION_OUT_OF_STEP", [update(1, 0), update(2, 0)]),
        (
            "REVISION_OUT_OF_STEP",
            [
                change("insert", 1, 0),
                change("update_preimage", 1, 0),
                change("update_postimage", 2, 0),
            ],
        ),
        (
            "REVISION_OUT_OF_STEP",
            [change("insert", 1, 3), change("delete", 1, 3), change("insert", 1, 3)],
        ),
        ("UNKNOWN_CHANGE", [change("upsert", 1)]),
        ("UNKNOWN_CHANGE", [{"k": "a", "n": 1, "_change_type": None}]),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(code: str, rows: list[Any]) -> None:
    with pytest.raises(ChangeStreamError) as caught:
        fold(rows, key="k")
    assert caught.value.code == code
    assert str(caught.value.got) in str(caught.value)


def test_rows_without_a_window_need_a_key() -> None:
    with pytest.raises(SpecError) as caught:
        fold([{"k": "a", "n": 1}])
    assert caught.value.code == "PARAMETER_MISSING"


SCRIPT = [
    [{"k": "a", "ts": at(1)}, {"k": "b", "ts": at(2)}],
    [{"k": "a", "ts": at(30)}],
    [],
    [{"k": "a", "ts": at(3)}, {"k": "c", "ts": at(4)}, {"k": "a", "ts": None}],
    [{"k": "a", "ts": at(5)}],
]


@pytest.mark.parametrize("stragglers", ["update", "retract"])
def test_results_of_a_replay_fold_by_key_and_window(stragglers: Any) -> None:
    counting = windows.tumbling(
        "10 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="0 seconds",
        allowed_lateness="1 hour",
        stragglers=stragglers,
        too_late="route",
    )
    results = replay(counting, SCRIPT, flush=True)
    folded = fold(results)
    assert {(row["k"], row["window_start"]): (row["n"], row["revision"]) for row in folded} == {
        ("a", at(0)): (3, 2),
        ("b", at(0)): (1, 0),
        ("c", at(0)): (1, 1),
        ("a", at(30)): (1, 0),
    }
    assert fold(pa.concat_tables([result.table for result in results])) == folded


def test_a_missing_micro_batch_is_detected() -> None:
    results = replay(
        windows.tumbling(
            "10 seconds",
            time="ts",
            by="k",
            agg={"n": agg.count()},
            delay="0 seconds",
            allowed_lateness="1 hour",
            stragglers="retract",
        ),
        SCRIPT,
    )
    with pytest.raises(ChangeStreamError):
        fold(results[:2] + results[3:])


def test_late_rows_are_not_folded() -> None:
    late = {"k": "a", "n": None, "late": {"reason": "straggler"}}
    result = {"k": "a", "n": 1, "late": None}
    assert fold([result, late], key="k") == [{"k": "a", "n": 1}]


def test_rejected_rows_are_not_folded() -> None:
    total = changes.aggregate(by="k", agg={"n": agg.sum("n")}, rejected="route")
    script = [[change("insert", 1), change("upsert", 2)], [change("insert", 3)]]
    results = replay(total, script)
    assert [row["rejected"]["reason"] for row in results[0].rows if row["rejected"]] == [
        "unknown_operation"
    ]
    assert fold(results, key="k") == [{"k": "a", "n": 4}]
    assert fold(pa.concat_tables([result.table for result in results]), key="k") == [
        {"k": "a", "n": 4}
    ]


@pytest.mark.parametrize("name", ["late", "rejected"])
def test_a_column_of_the_user_may_be_called_late_or_rejected(name: str) -> None:
    rows = [{"k": "a", name: True}, {"k": "b", name: None}, {"k": "c", name: {"n": 1}}]
    assert fold(rows, key="k") == rows


def changed(type_: str, n: int) -> dict[str, Any]:
    return {"n": n, "_change_type": type_}


def test_in_a_multiset_a_delete_retracts_exactly_one_equal_row() -> None:
    rows = [changed("insert", 1), changed("insert", 2), changed("insert", 1), changed("delete", 1)]
    assert fold(rows, rows="multiset") == [{"n": 1}, {"n": 2}]
    assert fold([*rows, changed("delete", 1), changed("delete", 2)], rows="multiset") == []
    assert fold([{"n": 1}, {"n": 1, "late": None}], rows="multiset") == [{"n": 1}, {"n": 1}]


def test_in_a_multiset_updates_may_overlap() -> None:
    rows = [changed("insert", 1), changed("insert", 2)]
    rows += [changed("update_preimage", 1), changed("update_preimage", 2)]
    rows += [changed("update_postimage", 2), changed("update_postimage", 3)]
    assert fold(rows, rows="multiset") == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("DELETED_UNPUBLISHED", [changed("insert", 1), *[changed("delete", 1)] * 2]),
        ("PREIMAGE_NOT_PUBLISHED", [changed("insert", 1), changed("update_preimage", 2)]),
        ("PREIMAGE_ALONE", [changed("insert", 1), changed("update_preimage", 1)]),
        ("POSTIMAGE_ALONE", [changed("insert", 1), changed("update_postimage", 1)]),
        ("UNKNOWN_CHANGE", [changed("upsert", 1)]),
    ],
)
def test_a_multiset_that_contradicts_itself_is_refused(
    code: str, rows: list[dict[str, Any]]
) -> None:
    with pytest.raises(ChangeStreamError) as refused:
        fold(rows, rows="multiset")
    assert refused.value.code == code


def test_an_unknown_choice_of_rows_is_refused() -> None:
    with pytest.raises(SpecError) as refused:
        fold([], rows="multisets")  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.fix) == (
        "UNKNOWN_CHOICE",
        "write rows='multiset', or another of them",
    )


def test_an_unknown_key_is_refused_with_the_most_similar_name() -> None:
    with pytest.raises(ColumnNotFound) as refused:
        fold([changed("insert", 1)], key="N")
    assert refused.value.fix.startswith("did you mean 'n'?")


def test_a_multiset_has_no_key() -> None:
    with pytest.raises(SpecError) as refused:
        fold([], key="k", rows="multiset")
    assert refused.value.code == "PARAMETER_WITHOUT_EFFECT"
