"""Replays of operators with two inputs, with Spark's rules for the minimum of two watermarks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import joins
from streamops.kernel.core import Metrics
from streamops.kernel.errors import SchemaError, SpecError, StateFormatError, WatermarkError
from streamops.spark.drive import _sources
from streamops.testing import assert_rows, at, fold, replay
from streamops.testing.replaying import Replay
from tests.spark.pair_cores import earlier, tally

LEFT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
RIGHT = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
BOTH = (LEFT, RIGHT)


def left(key: str | None, seconds: float) -> dict[str, Any]:
    return {"k": key, "ts": at(seconds)}


def right(key: str | None, seconds: float) -> dict[str, Any]:
    return {"key": key, "at": at(seconds)}


SCRIPT = [
    ([left("a", 10), left("b", 11)], [right("a", 1)]),
    ([left("a", 30)], None),
    (None, [right("a", 10), right("b", 12), right("a", 40)]),
    ([left("b", 5)], [right("a", 2)]),
]


def test_the_watermark_does_not_advance_before_both_sides_had_rows() -> None:
    script = [([left("a", 100)], None), ([left("a", 200)], None), (None, [right("a", 50)])]
    results = replay(earlier(delay="0 seconds"), script, schema=BOTH)
    assert [result.watermark for result in results] == [None, None, None, at(50)]
    assert [result.rows for result in results] == [[], [], [], []]


def test_the_watermark_is_the_minimum_over_both_sides_each_with_its_own_delay() -> None:
    results = replay(earlier(delay=("5 seconds", "20 seconds")), SCRIPT)
    marks = [result.watermark for result in results]
    assert marks == [None, at(-19), at(-19), at(20)]
    assert [len(result.rows) for result in results] == [0, 0, 0, 3]


def test_rows_are_counted_and_late_rows_have_their_side() -> None:
    results = replay(earlier(delay="0 seconds"), SCRIPT)
    assert [result.watermark for result in results] == [None, at(1), at(1), at(30)]
    assert_rows(
        results[3].rows,
        [
            {"k": "a", "ts": at(10), "n": 3},
            {"k": "b", "ts": at(11), "n": 0},
            {"k": "b", "ts": at(5), "n": 0},
            {"k": "a", "ts": at(30), "n": 3},
        ],
    )
    assert [result.counts for result in results][3] == Metrics(2, on_time=2, results=4)
    (after,) = replay(earlier(delay="0 seconds"), [*SCRIPT, ([left("c", 29)], [right("a", 30)])])[
        4:
    ]
    details = {"reason": "too_late", "watermark": at(30), "window": None}
    assert_rows(
        [{k: v for k, v in row.items() if k != "lateness"} for row in after.late_rows],
        [
            {"side": "left", "row": {"left": left("c", 29), "right": None}, **details},
            {"side": "right", "row": {"left": None, "right": right("a", 30)}, **details},
        ],
    )
    assert after.counts == Metrics(2, too_late=2)


def test_a_restart_of_the_operator_and_other_shards_change_nothing() -> None:
    whole = replay(earlier(delay="0 seconds"), SCRIPT, flush=True)
    for options in ({"restart": True}, {"shards": 5}, {"shards": 1, "restart": True}):
        others = replay(earlier(delay="0 seconds"), SCRIPT, flush=True, **options)
        for one, other in zip(whole, others, strict=True):
            assert_rows(one.rows, other.rows)
            assert_rows(one.late_rows, other.late_rows)
            assert (one.watermark, one.counts) == (other.watermark, other.counts)


def test_after_a_restart_of_the_query_both_sides_need_rows_again() -> None:
    query = Replay(earlier(delay="0 seconds"), BOTH)
    query.run([([left("a", 10)], [right("a", 10)])])
    marks = [result.watermark for result in query.run([([left("a", 90)], None), (None, None)])]
    assert marks == [at(10), at(10)]
    marks = [result.watermark for result in query.run([([left("a", 90)], [right("a", 50)])])]
    assert marks == [at(10), at(50)]


def test_pending_results_are_flushed() -> None:
    (*_, last) = replay(earlier(delay="1 hour"), SCRIPT[:1], flush=True)
    assert_rows(last.rows, [{"k": "a", "ts": at(10), "n": 1}, {"k": "b", "ts": at(11), "n": 0}])


def test_one_frame_may_have_a_watermark_and_the_operator_define_the_other() -> None:
    mixed = replay(earlier(delay=(None, "3 seconds")), SCRIPT, watermark=("2 seconds", None))
    whole = replay(earlier(), SCRIPT, watermark=("2 seconds", "3 seconds"))
    assert [r.watermark for r in mixed] == [r.watermark for r in whole]
    with pytest.raises(WatermarkError, match="right frame") as refused:
        replay(earlier(), SCRIPT, watermark=("2 seconds", None))
    assert refused.value.code == "WATERMARK_MISSING"
    with pytest.raises(WatermarkError) as refused:
        replay(earlier(delay="3 seconds"), SCRIPT, watermark="2 seconds")
    assert refused.value.code == "WATERMARK_TWICE"


def test_the_operators_watermark_is_ahead_of_sparks_by_its_lag() -> None:
    own = replay(earlier(delay="5 seconds", lag="1 minute"), [([left("a", 90)], [right("a", 95)])])
    assert [result.watermark for result in own] == [None, at(85)]
    of_frames = replay(
        earlier(lag="1 minute"), [([left("a", 90)], [right("a", 95)])], watermark="65 seconds"
    )
    assert [result.watermark for result in of_frames] == [None, at(85)]


@pytest.mark.parametrize("restart", [False, True])
def test_without_event_time_there_is_no_micro_batch_without_data(restart: bool) -> None:
    results = replay(tally(), SCRIPT, restart=restart)
    assert len(results) == len(SCRIPT)
    assert {result.watermark for result in results} == {None}
    rows = fold(results, key="k")
    assert_rows(
        [{k: v for k, v in row.items() if k != "revision"} for row in rows],
        [{"k": "a", "lefts": 2, "rights": 4}, {"k": "b", "lefts": 2, "rights": 1}],
    )
    assert [result.state_rows for result in results] == [2, 2, 2, 2]
    assert results[1].counts == Metrics(1, corrections=1)


def test_a_checkpoint_of_other_parameters_is_refused() -> None:
    stopped, other = Replay(tally(), BOTH), Replay(tally(word="another"), BOTH)
    stopped.run(SCRIPT)
    other._stages[0].stored = stopped._stages[0].stored
    with pytest.raises(StateFormatError) as refused:
        other.run(SCRIPT)
    assert refused.value.code == "STATE_PARAMETERS"


def test_keys_of_two_types_are_refused() -> None:
    numbers = pa.schema([("key", pa.int64()), RIGHT.field("at")])
    with pytest.raises(
        SchemaError, match=r"left 'k' and right 'key': string and bigint"
    ) as refused:
        replay(earlier(delay="0 seconds"), [], schema=(LEFT, numbers))
    assert refused.value.code == "COLUMNS_DIFFER"


@pytest.mark.parametrize(
    ("batch", "arguments"),
    [
        ([left("a", 1)], {}),
        (([left("a", 1)],), {}),
        (SCRIPT[0], {"schema": LEFT}),
        (SCRIPT[0], {"watermark": ("1 second", None, None)}),
    ],
)
def test_values_that_are_not_pairs_are_refused(batch: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(SpecError) as refused:
        replay(earlier(delay="0 seconds"), [batch], **arguments)
    assert refused.value.code == "PARAMETER_TYPE"


def test_an_operator_without_a_right_frame_runs_in_the_test_kit_only() -> None:
    operator = earlier(delay="0 seconds")
    assert replay(operator, [], schema=(LEFT, RIGHT)) == []
    with pytest.raises(SpecError) as refused:
        _sources(operator, None)  # type: ignore[arg-type]
    assert refused.value.code == "PARAMETER_MISSING"
    with pytest.raises(SpecError) as refused:
        operator(None)  # type: ignore[arg-type]
    assert refused.value.code == "FRAME_TYPE"
    assert repr(earlier(delay="1 second", shards=3)).startswith("joins.earlier(by=('k', 'key'), ")


def test_an_operator_and_its_follow_up_have_one_result() -> None:
    """The first operator counts rows, the second results; both have state."""
    timeline = joins.timeline(None, by="k", user="user", key="n", ranked_by="n", cap=1)
    posts = [{"k": "a", "n": n, "_change_type": "insert"} for n in (1, 2)]
    follows = [{"k": "a", "user": "ann", "_change_type": "insert"}]
    first, last = replay(timeline, [(posts, follows)], restart=True, flush=True)
    assert [(row["user"], row["n"]) for row in first.rows] == [("ann", 2)]
    assert first.counts == Metrics(rows=3, on_time=3, results=1)
    assert first.state_rows == 3 + 2
    assert (last.rows, last.state_rows) == ([], 0)
