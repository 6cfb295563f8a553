"""Laws of ``compact``, ``fold`` and ``differences`` on Spark, over many histories.

A Spark job takes at least a second, so hundreds of histories share one frame, and the number of the
history is part of each key.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import changes
from streamops.kernel.errors import ChangeStreamError
from streamops.kernel.values import comparable
from streamops.testing import fold
from tests.oracles.latest import LatestOracle

pytestmark = pytest.mark.spark

HISTORIES = max(100, settings.default.max_examples)
NAN = float("nan")
KEY = ["h", "k"]
Row = dict[str, Any]

# An example runs some jobs over all histories. Shrinking it would not help.
in_one_frame = settings(max_examples=1, phases=[Phase.generate])
seeds = st.integers(0, 2**32)

VALUES = [("x", pa.float64()), ("m", pa.map_(pa.string(), pa.int32()))]
LOG = pa.schema(
    [
        *(("id", pa.int64()), ("h", pa.int64()), ("k", pa.string()), *VALUES),
        *(("seq", pa.int64()), ("_change_type", pa.string())),
        *(("_snapshot", pa.bool_()), ("_unavailable", pa.list_(pa.string()))),
    ]
)
PUBLISHED = pa.schema(
    [
        *(("h", pa.int64()), ("k", pa.string()), *VALUES),
        *(("revision", pa.int32()), ("seq", pa.int64()), ("_change_type", pa.string())),
    ]
)
TABLE = pa.schema([PUBLISHED.field(name) for name in ("h", "k", "x", "m", "revision")])
NEWEST, RETENTION = 40, 20


def frame_of(spark: SparkSession, rows: list[Row], schema: pa.Schema) -> DataFrame:
    retained = [{name: row.get(name) for name in schema.names} for row in rows]
    return spark.createDataFrame(pa.Table.from_pylist(retained, schema))


def value(dice: random.Random) -> Row:
    return {
        "x": dice.choice([None, 0.0, -0.0, 1.5, NAN]),
        "m": dice.choice([None, [], [("p", 1), ("q", None)], [("q", None), ("p", 1)]]),
    }


def logs(dice: random.Random) -> list[Row]:
    """Upserts, deletes and rows of a snapshot, out of order and repeated, without conflicts."""
    newest = {"h": -1, "k": "new", "seq": NEWEST, "_change_type": "insert"}
    rows: list[Row] = [{**newest, "x": 1.5, "m": None}]
    for history in range(HISTORIES):
        for _ in range(dice.choice([1, 2, 5, 12])):
            key, seq = dice.choice(["a", "ä", ""]), dice.randrange(NEWEST)
            fixed = random.Random(f"{history} {key} {seq}")
            row: Row = {"h": history, "k": key, "seq": seq, **value(fixed)}
            row["_snapshot"] = fixed.choice([None, False, False, True])
            types = ["insert", "update_postimage", "delete", "update_preimage"]
            row["_change_type"] = "insert" if row["_snapshot"] else fixed.choice(types)
            if row["_change_type"] == "update_postimage":
                row["_unavailable"] = fixed.choice([None, [], ["x"], ["m"], ["x", "m"]])
                row |= dict.fromkeys(row["_unavailable"] or [])
            rows += [row] * dice.choice([1, 1, 1, 2])
    dice.shuffle(rows)
    return [{**row, "id": number} for number, row in enumerate(rows)]


def position(row: Row) -> tuple[bool, int]:
    return not row.get("_snapshot"), row["seq"]


def table_of(rows: list[Row], dice: random.Random) -> Any:
    """The table that a reader of the log has at its end, in any order of arrival."""
    oracle = LatestOracle(("h", "k"), ("x", "m"), "last")
    dice.shuffle(rows)
    rows = [dict(row, _change_type=row["_change_type"]) for row in rows]
    oracle.step(rows)
    return sorted(comparable({**row, "m": sorted(row["m"] or [], key=repr), "no": row["m"] is None})
                  for row in oracle.table.values())  # fmt: skip


@in_one_frame
@given(seed=seeds)
def test_a_compacted_log_and_the_whole_log_have_the_same_table(
    spark: SparkSession, seed: int
) -> None:
    dice = random.Random(seed)
    log = logs(dice)
    compacting = changes.compact(KEY, sequence="seq", retention=RETENTION)
    whole = frame_of(spark, log, LOG)
    once = whole.transform(compacting).localCheckpoint()
    retained = {row["id"] for row in once.select("id").collect()}

    # The operator is a filter, and does not depend on the order of arrival.
    changes.differences(once, whole.join(once.select("id"), "id", "left_semi")).raise_if_any()
    shuffled = whole.repartition(3, F.hash("id")).transform(compacting)
    assert {row["id"] for row in shuffled.select("id").collect()} == retained
    # A second pass removes only old deletes, which a row removed by the first pass had retained.
    again = {row["id"] for row in once.transform(compacting).select("id").collect()}
    assert again <= retained
    for row in (log[number] for number in retained - again):
        assert row["_change_type"] == "delete", row
        assert row["seq"] < NEWEST - RETENTION, row

    rest = [row for row in log if row["id"] in retained]
    assert table_of(rest, dice) == table_of(list(log), dice)

    by_key: dict[Any, list[Row]] = {}
    for row in log:
        if row["_change_type"] != "update_preimage":
            by_key.setdefault((row["h"], row["k"]), []).append(row)
    ages: dict[Any, int] = {}
    for row in log:
        ages[row["h"], row["k"]] = max(ages.get((row["h"], row["k"]), 0), row["seq"])
    deletes = 0
    for key, of_key in by_key.items():
        last = max(map(position, of_key))
        of_last = {row["id"] for row in of_key if position(row) == last}
        is_delete = any(row["_change_type"] == "delete" for row in of_key if row["id"] in of_last)
        if is_delete and NEWEST - ages[key] > RETENTION:
            deletes += 1
            assert not {row["id"] for row in of_key} & retained, key
        else:
            assert of_last <= retained, key
    assert deletes > HISTORIES // 20
    assert not {row["id"] for row in log if row["_change_type"] == "update_preimage"} & retained


def histories(dice: random.Random) -> tuple[list[list[Row]], list[Row]]:
    """The published changes of all histories, in order, and the rows of their tables."""
    steps: list[list[Row]] = []
    tables: dict[Any, Row] = {}
    revisions: dict[Any, int] = {}
    for number in range(8):
        for history in range(HISTORIES):
            key = history, dice.choice(["a", "b", None])
            row = {"h": history, "k": key[1], **value(dice)}
            before = tables.pop(key, None)
            while before is not None and plain(row) == plain({n: before[n] for n in row}):
                row |= value(dice)  # a row that does not change is not published
            step = []
            if before is not None and dice.random() < 0.3:
                steps.append([{**before, "seq": number, "_change_type": "delete"}])
                continue
            revisions[key] = revisions.get(key, -1) + 1
            tables[key] = {**row, "revision": revisions[key]}
            if before is not None:
                step.append({**before, "seq": number, "_change_type": "update_preimage"})
            type_ = "insert" if before is None else "update_postimage"
            steps.append([*step, {**tables[key], "seq": number, "_change_type": type_}])
    return steps, [*tables.values()]


@in_one_frame
@given(seed=seeds)
def test_a_change_stream_folds_to_its_table_however_it_is_cut(
    spark: SparkSession, seed: int
) -> None:
    dice = random.Random(seed)
    steps, tables = histories(dice)
    expected = frame_of(spark, tables, TABLE).localCheckpoint()
    rows = [row for step in steps for row in step]
    assert len(fold(for_test_kit(rows), key=KEY)) == len(tables)

    dice.shuffle(rows)
    stream = frame_of(spark, rows, PUBLISHED)
    folded = stream.drop("seq").transform(changes.fold(KEY))
    changes.differences(folded, expected, key=KEY).raise_if_any()
    by_sequence = stream.drop("revision").transform(changes.fold(KEY, sequence="seq")).drop("seq")
    changes.differences(by_sequence, expected.drop("revision"), key=KEY).raise_if_any()
    multiset = stream.drop("seq", "h", "k").transform(changes.fold(rows="multiset"))
    changes.differences(multiset, expected.drop("h", "k")).raise_if_any()

    # In three parts, cut per history, but never between the two images of an update.
    cuts = {history: sorted(dice.choices(range(9), k=2)) for history in range(HISTORIES)}
    table = frame_of(spark, [], TABLE)
    for part in range(3):
        changed = [
            row
            for step in steps
            for row in step
            if sum(cut <= row["seq"] for cut in cuts[row["h"]]) == part
        ]
        dice.shuffle(changed)
        batch = frame_of(spark, changed, PUBLISHED).drop("seq")
        table = batch.transform(changes.fold(KEY, onto=table)).localCheckpoint()
    changes.differences(table, expected, key=KEY).raise_if_any()


def for_test_kit(rows: list[Row]) -> list[Row]:
    """The changes without their sequence, and maps as text: the test kit compares rows in order."""
    retained = [{name: cell for name, cell in row.items() if name != "seq"} for row in rows]
    return [{**row, "m": str(unordered(row)["m"])} for row in retained]


@in_one_frame
@given(seed=seeds)
def test_a_preimage_that_was_never_published_is_refused(spark: SparkSession, seed: int) -> None:
    dice = random.Random(seed)
    steps, _ = histories(dice)
    rows = [row for step in steps for row in step]
    preimages = [n for n, row in enumerate(rows) if row["_change_type"] == "update_preimage"]
    for name, other in (("x", 7.0), ("m", [("p", 2)])):
        wrong = [dict(row) for row in rows]
        wrong[dice.choice(preimages)][name] = other
        folded = frame_of(spark, wrong, TABLE.append(PUBLISHED.field("_change_type")))
        with pytest.raises(PySparkException, match=r"\[PREIMAGE_NOT_PUBLISHED\] changes.fold"):
            folded.transform(changes.fold(KEY)).count()
        with pytest.raises(ChangeStreamError, match=r"\[PREIMAGE_NOT_PUBLISHED\]"):
            fold(for_test_kit(wrong), key=KEY)


def unordered(row: Row) -> Row:
    return {**row, "m": None if row["m"] is None else sorted(row["m"], key=repr)}


def plain(row: Row) -> Any:
    return comparable(unordered(row))


@in_one_frame
@given(seed=seeds)
def test_there_are_no_differences_exactly_if_tables_are_equal_as_multisets(
    spark: SparkSession, seed: int
) -> None:
    dice, ours, theirs = random.Random(seed), [], []
    for history in range(HISTORIES):
        keys = dice.choices(["a", "b", None], k=dice.randrange(5))
        base = [{"h": history, "k": key, **value(dice)} for key in keys]
        other = [dict(row) for row in base]
        for _ in range(dice.choice([0, 0, 1, 2])):  # number of edits
            edit = dice.randrange(3)
            if edit == 0 or not other:
                other.append({"h": history, "k": dice.choice(["a", "b", None]), **value(dice)})
            elif edit == 1:
                other.pop(dice.randrange(len(other)))
            else:
                dice.choice(other).update(value(dice))
        ours += base
        theirs += other
    dice.shuffle(theirs)
    schema = pa.schema([TABLE.field(name) for name in ("h", "k", "x", "m")])
    frames = [frame_of(spark, rows, schema).localCheckpoint() for rows in (ours, theirs)]
    every = 10 * HISTORIES
    found = changes.differences(*frames, show=every)
    multisets = [Counter(map(plain, rows)) for rows in (ours, theirs)]
    extra, missing = multisets[0] - multisets[1], multisets[1] - multisets[0]
    assert (found.missing, found.extra) == (missing.total(), extra.total())
    assert found.different == 0
    assert found.total > HISTORIES // 4
    for type_, wanted in (("extra", extra), ("missing", missing)):
        rows = [
            r
            for difference in found.first
            if difference.type == type_
            for r in difference.actual + difference.expected
        ]
        assert Counter(map(plain, rows)) == wanted

    by_key = changes.differences(*frames, key=KEY, show=every)
    named = {}
    for difference in by_key.first:
        (at,) = {(row["h"], row["k"]) for row in difference.actual + difference.expected}
        type_ = (
            ("extra", "missing")[not difference.actual]
            if not difference.actual or not difference.expected
            else ""
        )
        assert difference.type == (type_ or "different")
        named[at] = difference
        sides = [difference.actual, difference.expected]
        if [*map(len, sides)] == [1, 1]:
            (one,), (two,) = (map(unordered, side) for side in sides)
            assert set(difference.columns) == {
                n for n in one if comparable(one[n]) != comparable(two[n])
            }
    for at in {(row["h"], row["k"]) for row in ours + theirs}:
        one_rows, other_rows = (
            Counter(plain(row) for row in rows if (row["h"], row["k"]) == at)
            for rows in (ours, theirs)
        )
        assert (at in named) == (one_rows != other_rows), at
        if at in named:
            assert Counter(map(plain, named[at].actual)) == one_rows - other_rows
            assert Counter(map(plain, named[at].expected)) == other_rows - one_rows
    changes.differences(frames[0], frames[0].repartition(3), key=KEY).raise_if_any()
    changes.differences(frames[1], frames[1].repartition(3)).raise_if_any()
