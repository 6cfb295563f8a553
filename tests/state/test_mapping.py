"""What a migration refuses, with a remedy, and without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import sketches, state, windows
from streamops.errors import SpecError, StateFormatError, StreamopsError
from streamops.spark.operator import Operator
from streamops.spark.step import Stored
from streamops.state.mapping import Migration
from streamops.state.shards import StoredShard, encode_shards, migrate_shards
from streamops.testing import Replay, at

INSTANT = pa.timestamp("us", "UTC")


def columns(key: pa.DataType) -> pa.Schema:
    return pa.schema([("k", key), ("ts", INSTANT), ("v", pa.int64())])


OLD = columns(pa.int64())


def counting(size: str = "1 minute", **aggregates: Any) -> Operator:
    return windows.tumbling(size, time="ts", by="k", agg=aggregates, delay="5 seconds")


BEFORE = counting(n=agg.count(), v=agg.sum("v"))
SEEN = sketches.seen("k", capacity=100)


def migrate(
    before: Operator, after: Operator, schemas: tuple[pa.Schema, pa.Schema], rename: dict[str, str]
) -> None:
    query = Replay(before, schemas[0], shards=2)
    query.run([[{"k": 1, "ts": at(1), "v": 2}]])
    rows = [StoredShard(n, Stored(*row), 9, 0) for n, row in query._stages[0].stored.items()]
    migrate_shards(rows, Migration(Replay(after, schemas[1], shards=2)._stages[0].run_step, rename))


@pytest.mark.parametrize(
    ("operators", "schemas", "rename", "code", "text"),
    [
        (
            (BEFORE, counting("2 minutes", n=agg.count())),
            (OLD, OLD),
            {},
            "STATE_PARAMETERS",
            "size",
        ),
        ((BEFORE, counting(n=agg.max("v"))), (OLD, OLD), {}, "STATE_PARAMETERS", "agg"),
        # An integer with fewer bits may not have the value.
        ((BEFORE, BEFORE), (OLD, columns(pa.int32())), {}, "STATE_PARAMETERS", "by"),
        ((BEFORE, BEFORE), (OLD, columns(pa.string())), {}, "STATE_PARAMETERS", "by"),
        # Filters have hashes of narrow integers.
        ((SEEN, SEEN), (columns(pa.int32()), OLD), {}, "STATE_PARAMETERS", "identity"),
        ((BEFORE, BEFORE), (OLD, OLD), {"n": "n"}, "PARAMETER_WITHOUT_EFFECT", "n"),
        ((BEFORE, BEFORE), (OLD, OLD), {"x": "k"}, "PARAMETER_WITHOUT_EFFECT", "x"),
        # A choice is no name, even if the operator has the other choice.
        (
            (
                counting(n=agg.count()),
                windows.tumbling(
                    "1 minute",
                    time="ts",
                    by="k",
                    agg={"n": agg.count()},
                    delay="5 seconds",
                    stragglers="route",
                ),
            ),
            (OLD, OLD),
            {"drop": "route"},
            "PARAMETER_WITHOUT_EFFECT",
            "drop",
        ),
        (
            (counting(n=agg.count(), m=agg.count()), counting(m=agg.count())),
            (OLD, OLD),
            {"n": "m"},
            "DUPLICATE_COLUMN",
            "rename",
        ),
    ],
)
def test_what_the_state_does_not_have_is_refused(
    operators: tuple[Operator, Operator],
    schemas: tuple[pa.Schema, pa.Schema],
    rename: dict[str, str],
    code: str,
    text: str,
) -> None:
    with pytest.raises(StreamopsError) as caught:
        migrate(*operators, schemas, rename)
    assert isinstance(caught.value, StateFormatError | SpecError)
    assert caught.value.code == code
    assert text in str(caught.value)
    if code == "STATE_PARAMETERS":
        assert "needs history" in str(caught.value)


def test_an_aggregate_and_the_column_that_it_reads_are_renamed_alike() -> None:
    after = counting(n=agg.count(), amount=agg.sum("amount"))
    schema = pa.schema([("k", pa.int64()), ("ts", INSTANT), ("amount", pa.int64())])
    migrate(BEFORE, after, (OLD, schema), {"v": "amount"})


def test_early_results_are_turned_on_and_off_with_a_micro_batch_in_between() -> None:
    """A migration does not publish them: the next micro-batch does."""
    off = counting(n=agg.count())
    on = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds",
        early="every batch",
    )  # fmt: skip
    query = Replay(off, OLD, shards=2)
    query.run([[{"k": 1, "ts": at(1), "v": 2}]])
    rows = [StoredShard(n, Stored(*row), 9, 0) for n, row in query._stages[0].stored.items()]

    def migrated(rows: list[StoredShard], after: Operator) -> list[StoredShard]:
        _, moved = migrate_shards(
            rows, Migration(Replay(after, OLD, shards=2)._stages[0].run_step, {})
        )
        return encode_shards(moved, {0: 0, 1: 0})

    rows = migrated(rows, on)
    assert migrated(rows, on)
    with pytest.raises(StateFormatError, match="STATE_PARAMETERS") as refused:
        migrated(rows, off)
    assert "run the query for one micro-batch with early='every batch'" in refused.value.fix


@pytest.mark.parametrize("operator", ["views", None, sketches.seen, at(1)])
def test_another_order_of_the_arguments_is_refused(operator: Any) -> None:
    with pytest.raises(SpecError, match="PARAMETER_TYPE") as refused:
        state.pending("/data/checkpoint", operator, BEFORE)
    assert "and then the streaming frame" in refused.value.expected
    with pytest.raises(SpecError, match="NOT_A_FRAME"):
        state.pending("/data/checkpoint", BEFORE, operator)
