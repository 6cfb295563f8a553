"""Fold change streams on Spark as in the test kit, and compare tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import changes
from streamops.changes import Difference
from streamops.kernel.errors import ChangeStreamError, StreamopsError
from streamops.testing import assert_rows, fold, micro_batches
from tests.oracles.latest import LatestOracle

pytestmark = pytest.mark.spark

NAN = float("nan")
COLUMNS = "k string, x double, m map<string,int>, revision int, _change_type string"
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("m", pa.map_(pa.string(), pa.int32())),
        ("revision", pa.int32()),
        ("_change_type", pa.string()),
    ]
)


def published(seed: int, batches: int = 3) -> list[list[dict[str, Any]]]:
    """The rows that normalize publishes in each micro-batch, in order."""
    dice, emitted = random.Random(seed), []
    oracle = LatestOracle(("k",), ("x", "m"))
    for number in range(batches):
        rows = []
        for at in range(25):
            row: dict[str, Any] = {"k": dice.choice(["a", "b", "ä", "", "c d", "f"])}
            row |= {"x": dice.choice([None, 0.0, NAN, 1.5]), "seq": 25 * number + at}
            row |= {"m": dice.choice([None, {}, {"p": 1, "q": None}])}
            row["_change_type"] = dice.choice(["insert", "update_postimage", "delete"])
            rows.append(row)
        emitted.append(oracle.step(rows).emitted)
    return emitted


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    values = [tuple(row.get(name) for name in SCHEMA.names) for row in rows]
    return spark.createDataFrame(values, COLUMNS)


def test_changes_in_any_order_fold_as_in_the_test_kit(spark: SparkSession) -> None:
    rows = [row for batch in published(1) for row in batch]
    expected = fold(rows, key="k")
    assert len(expected) > 2
    random.Random(5).shuffle(rows)
    aside = [{**rows[0], "k": "late"}]
    frame = frame_of(spark, rows).withColumn("late", F.lit(None).cast("struct<reason:string>"))
    late = frame_of(spark, aside).withColumn("late", F.struct(F.lit("beyond").alias("reason")))
    folded = frame.unionByName(late).transform(changes.fold("k"))
    assert folded.columns == ["k", "x", "m", "revision"]
    assert_rows(folded.toArrow(), pa.Table.from_pylist(expected, schema=SCHEMA.remove(4)))
    upserts = frame_of(spark, [r for r in rows if r["_change_type"] not in {"delete"}])
    newest = upserts.where("_change_type not like '%pre%'").drop("_change_type")
    assert newest.transform(changes.fold("k")).count() == len({row["k"] for row in rows})


def test_micro_batches_are_folded_onto_the_table_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches = published(2)
    table = frame_of(spark, []).drop("_change_type")
    for rows in batches:
        table = frame_of(spark, rows).transform(changes.fold("k", onto=table)).localCheckpoint()
    everything = [row for batch in batches for row in batch]
    expected = frame_of(spark, fold(everything, key="k")).drop("_change_type")
    changes.differences(table, expected, key="k").raise_if_any()
    twice = frame_of(spark, batches[-1]).transform(changes.fold("k", onto=table))
    with pytest.raises(PySparkException, match=r"\[[A-Z_]+\] changes.fold"):
        twice.collect()
    script = [[{"k": "a", "x": 1.0}]]
    stream = micro_batches(
        spark,
        script,
        schema=pa.schema([("k", pa.string()), ("x", pa.float64())]),
        directory=tmp_path,
    )
    with pytest.raises(StreamopsError, match=r"\[STREAMING_FRAME\]"):
        stream.transform(changes.fold("k"))


def change(word: str | None, x: Any = 1.0, revision: int | None = 0) -> dict[str, Any]:
    return {"k": "a", "x": x, "m": {"p": 1}, "revision": revision, "_change_type": word}


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("UNKNOWN_CHANGE", [change("upsert")]),
        ("UNKNOWN_CHANGE", [change(None)]),
        ("INSERTED_TWICE", [change("insert"), change("insert", revision=1)]),
        ("INSERTED_TWICE", [change("insert"), change("insert")]),
        ("PREIMAGE_NOT_PUBLISHED", [change("update_preimage"), change("update_postimage", 2.0, 1)]),
        pytest.param(
            "PREIMAGE_NOT_PUBLISHED",
            [change("insert"), change("update_preimage", 9.0), change("update_postimage", 2.0, 1)],
            marks=pytest.mark.smoke,
        ),
        ("POSTIMAGE_ALONE", [change("insert"), change("update_postimage", 2.0, 1)]),
        ("DELETED_UNPUBLISHED", [change("insert"), change("delete"), change("delete", revision=1)]),
        ("PREIMAGE_ALONE", [change("insert"), change("update_preimage")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_stream_that_contradicts_itself_is_refused_as_in_the_test_kit(
    spark: SparkSession, code: str, rows: list[dict[str, Any]]
) -> None:
    folded = frame_of(spark, rows).transform(changes.fold("k"))
    # Spark 3.5 does not convert it.
    raised = (PySparkException, Py4JJavaError)
    with pytest.raises(raised, match=rf"\[{code}\] changes.fold") as caught:
        folded.count()
    assert '"k":"a"' in str(caught.value)
    with pytest.raises(ChangeStreamError) as refused:
        fold([dict(row) for row in rows], key="k")
    assert refused.value.code == code


def test_contradictions_are_found_if_all_rows_have_one_change_type(spark: SparkSession) -> None:
    rows = frame_of(spark, [change(None), change(None, revision=1)]).drop("_change_type")
    for change_type, code in (
        ("upsert", "UNKNOWN_CHANGE"),
        ("delete", "DELETED_UNPUBLISHED"),
        ("update_preimage", "PREIMAGE_NOT_PUBLISHED"),
        ("update_postimage", "POSTIMAGE_ALONE"),
    ):
        typed = rows.withColumn("_change_type", F.lit(change_type))
        with pytest.raises(PySparkException, match=rf"\[{code}\] changes.fold"):
            typed.transform(changes.fold("k")).collect()
    with pytest.raises(PySparkException, match=r"\[PREIMAGE_NOT_PUBLISHED\]") as caught:
        typed.withColumn("_change_type", F.lit("delete")).transform(
            changes.fold(rows="multiset")
        ).collect()
    assert '"copies":-1' in str(caught.value)


@pytest.mark.parametrize("has_types", [True, False], ids=["changes", "revisions"])
def test_a_change_without_a_revision_is_refused(spark: SparkSession, has_types: bool) -> None:
    rows = frame_of(spark, [change("insert", revision=None), change("delete")])
    folded = (rows if has_types else rows.drop("_change_type")).transform(changes.fold("k"))
    with pytest.raises(PySparkException, match=r"\[NO_SEQUENCE\] changes.fold"):
        folded.count()


def test_changes_fold_by_their_position_in_a_log(spark: SparkSession) -> None:
    rows = [
        (1, 1, "insert", 0),
        (1, 1, "update_preimage", 1),
        (1, 2, "update_postimage", 1),
        (2, 5, "insert", 0),
        (2, 5, "delete", 1),
        (2, 6, "insert", 1),
        (3, 1, "insert", 0),
        (3, 1, "delete", 1),
    ]
    random.Random(1).shuffle(rows)
    feed = spark.createDataFrame(rows, "id int, v int, _change_type string, _commit_version long")
    feed = feed.withColumn("_commit_timestamp", F.current_timestamp())
    folded = feed.transform(changes.from_delta("id")).transform(
        changes.fold("id", sequence="_sequence")
    )
    assert folded.columns == ["id", "v", "_sequence", "_changed_at"]
    assert sorted(tuple(row)[:2] for row in folded.collect()) == [(1, 2), (2, 6)]


def test_values_with_the_names_of_change_columns_are_compared(spark: SparkSession) -> None:
    changes_ = [("insert", 0), ("update_preimage", 0), ("update_postimage", 1)]
    for name, dtype, values in (
        ("rejected", "boolean", (True, False, None)),
        ("late", "struct<reason:int>", ((1,), (2,), None)),
        ("_snapshot", "boolean", (True, False, None)),
        ("_changed_at", "int", (1, 2, None)),
    ):
        columns = f"k string, {name} {dtype}, _change_type string, revision int"
        for other in (0, 1):  # the preimage equals the published row, or does not
            cells = (values[0], values[other], values[2])
            rows = [("a", value, *change_) for value, change_ in zip(cells, changes_, strict=True)]
            folded = spark.createDataFrame(rows, columns).transform(changes.fold("k"))
            assert folded.columns == ["k", name, "revision"]
            if other:
                with pytest.raises(PySparkException, match=r"\[PREIMAGE_NOT_PUBLISHED\]"):
                    folded.collect()
            else:
                assert [tuple(row) for row in folded.collect()] == [("a", None, 1)]


def test_a_sequence_with_a_null_part_is_refused(spark: SparkSession) -> None:
    columns = "k string, pos struct<log:int,at:struct<n:int>>, _change_type string"
    rows = [("a", (1, (1,)), "insert"), ("b", (1, (None,)), "insert")]
    frame = spark.createDataFrame(rows, columns)
    with pytest.raises(PySparkException, match=r"\[NO_SEQUENCE\] changes.fold"):
        frame.transform(changes.fold("k", sequence="pos")).collect()
    assert frame.where("k = 'a'").transform(changes.fold("k", sequence="pos")).count() == 1


def test_fields_whose_names_differ_in_case_are_different_fields(spark: SparkSession) -> None:
    row = spark.range(2).selectExpr("id AS k", "named_struct('a', id, 'A', map('x', id)) AS s")
    sequence = "named_struct('n', 0, 'N', if(k = 9, null, 1)) AS pos"
    inserted = row.selectExpr("*", "'insert' AS _change_type", sequence)
    for folding in (changes.fold("k", sequence="pos"), changes.fold(rows="multiset")):
        folded = inserted.transform(folding).drop("pos")
        assert not changes.differences(folded, row)
        assert changes.differences(folded, row.where("k = 1"), key="k").extra == 1


def test_null_structs_with_fields_that_are_not_nullable_are_shown(spark: SparkSession) -> None:
    inner = spark.range(2).selectExpr("id", "named_struct('q', 5) AS s", "array(1) AS l")
    inner = inner.selectExpr("id", "s", "array(s) AS l")
    ours = spark.range(3).join(inner, "id", "left")
    assert not changes.differences(ours, ours)
    found = changes.differences(ours, ours.where("id = 1"), key="id")
    assert [difference.actual for difference in found.first] == [
        ({"id": 0, "s": {"q": 5}, "l": [{"q": 5}]},),
        ({"id": 2, "s": None, "l": None},),
    ]


def test_a_multiset_is_folded_by_sums(spark: SparkSession) -> None:
    rows = [
        ("a", NAN, {"p": 1, "q": 2}, "insert"),
        ("a", NAN, {"q": 2, "p": 1}, "insert"),
        ("a", NAN, {"p": 1, "q": 2}, "update_preimage"),
        ("a", 0.0, None, "update_postimage"),
        ("b", None, None, "insert"),
        ("b", None, None, "delete"),
        ("c", None, None, "delete"),
    ]
    columns = "k string, x double, m map<string,int>, _change_type string"
    frame = spark.createDataFrame(rows, columns)
    before = spark.createDataFrame([("c", None, None)] * 3, "k string, x double, m map<string,int>")
    folded = frame.transform(changes.fold(rows="multiset", onto=before)).toArrow()
    counted = sorted(folded.column("k").to_pylist())
    assert counted == ["a", "a", "c", "c"]
    for code, short in (
        ("PREIMAGE_NOT_PUBLISHED", frame),
        ("UNKNOWN_CHANGE", frame.where("k = 'a'").withColumn("_change_type", F.lit("?"))),
    ):
        with pytest.raises(PySparkException, match=rf"\[{code}\] changes.fold"):
            short.transform(changes.fold(rows="multiset")).collect()


def test_differences_are_counted_and_the_first_are_shown_side_by_side(spark: SparkSession) -> None:
    columns = "k string, x double, m map<string,int>"
    left = [("a", NAN, {"p": 1, "q": 2}), ("b", 1.0, None), ("c", 1.0, None), ("e", 1.0, None)]
    right = [("a", NAN, {"q": 2, "p": 1}), ("b", 2.0, None), ("d", 1.0, {"p": 1})]
    ours = spark.createDataFrame([*left, ("e", 1.0, None), (None, None, None)], columns)
    theirs = spark.createDataFrame([*right, ("e", 1.0, None), (None, None, None)], columns)
    found = changes.differences(ours, theirs.select("m", "x", "k"), key="k")
    assert (found.missing, found.extra, found.different, found.total) == (1, 2, 1, 4)
    assert [(difference.type, difference.columns) for difference in found.first] == [
        ("different", ("x",)),
        ("extra", ()),
        ("missing", ()),
        ("extra", ()),
    ]
    assert repr(found).splitlines()[:4] == [
        "1 missing, 2 extra, 1 different",
        "  different in x",
        "    actual:  {'k': 'b', 'x': 1.0, 'm': None}",
        "    expected:  {'k': 'b', 'x': 2.0, 'm': None}",
    ]
    with pytest.raises(ChangeStreamError, match=r"\[TABLES_DIFFER\] changes.differences"):
        found.raise_if_any()
    none = changes.differences(ours, ours, show=0)
    none.raise_if_any()
    assert found
    assert not none
    assert (repr(none), none.first) == ("no differences", ())
    rows = changes.differences(ours, theirs, show=1)
    assert (rows.missing, rows.extra, rows.different, len(rows.first)) == (2, 3, 0, 1)


def test_a_row_with_millions_of_copies_is_counted_and_shown_as_often_as_requested(
    spark: SparkSession,
) -> None:
    many = spark.range(3_000_000).select(F.lit("same").alias("k"), F.lit(1).alias("n"))
    found = changes.differences(many, many.limit(0), show=2)
    row = {"k": "same", "n": 1}
    assert (found.missing, found.extra, found.different) == (0, 3_000_000, 0)
    assert found.first == (Difference("extra", (), (row, row), (), more=2_999_998),)
    assert repr(found).splitlines()[-1] == "    and 2,999,998 more"


def test_the_first_rows_of_each_side_are_shown_of_a_key_with_many_rows(spark: SparkSession) -> None:
    ours = spark.range(300).select(F.lit("k").alias("k"), F.col("id").alias("n"))
    theirs = ours.where("n >= 3").union(
        spark.createDataFrame([("k", 7), ("k", -1)], "k string, n bigint")
    )
    (found,) = changes.differences(ours, theirs, key="k", show=2).first
    assert (found.type, found.columns, found.more) == ("different", (), 1)
    assert [row["n"] for row in found.actual] == [0, 1]
    assert [row["n"] for row in found.expected] == [-1, 7]
    (alone,) = changes.differences(ours, theirs.where("n <> 2 and n >= 0"), key="k", show=1).first
    assert (len(alone.actual), len(alone.expected), alone.more) == (1, 1, 2)


def test_frames_that_cannot_be_folded_or_compared_are_refused(spark: SparkSession) -> None:
    frame = frame_of(spark, [])
    months, span = F.make_ym_interval(F.lit(1)), F.make_interval(F.lit(1))
    cases: list[tuple[str, Any]] = [
        ("PARAMETER_WITHOUT_EFFECT", lambda: changes.fold(rows="multiset", sequence="lsn")),
        ("NAME_TAKEN", lambda: changes.fold("_change_type")),
        ("NAME_TAKEN", lambda: changes.fold("k", sequence="_change_type")),
        ("COLUMN_TYPE", lambda: frame.withColumn("x", span).transform(changes.fold("k"))),
        (
            "SEQUENCE_TYPE",
            lambda: frame.withColumn("v", F.parse_json("k")).transform(
                changes.fold("k", sequence=["revision", "v"])
            ),
        ),
        ("COLUMN_TYPE", lambda: changes.differences(*[frame.withColumn("x", F.array(span))] * 2)),
        ("TYPE_UNSUPPORTED", lambda: changes.differences(*[frame.withColumn("x", months)] * 2)),
        ("PARAMETER_MISSING", lambda: changes.fold()),
        ("PARAMETER_WITHOUT_EFFECT", lambda: changes.fold("k", rows="multiset")),
        ("UNKNOWN_CHOICE", lambda: changes.fold("k", rows="set")),  # type: ignore[arg-type]
        ("COLUMN_NOT_FOUND", lambda: frame.transform(changes.fold("K"))),
        ("COLUMN_NOT_FOUND", lambda: frame.transform(changes.fold("k", sequence="lsn"))),
        ("SEQUENCE_TYPE", lambda: frame.transform(changes.fold("k", sequence="m"))),
        (
            "SEQUENCE_TYPE",
            lambda: frame.transform(changes.fold("k", sequence=["revision", "m"])),
        ),
        (
            "COLUMN_TYPE",
            lambda: frame.withColumn("_change_type", F.lit(1)).transform(changes.fold("k")),
        ),
        (
            "COLUMN_TYPE",
            lambda: frame.withColumn("_change_type", F.lit(1)).transform(
                changes.fold(rows="multiset")
            ),
        ),
        ("FRAME_TYPE", lambda: frame.drop("revision").transform(changes.fold("k"))),
        ("NOT_A_FRAME", lambda: changes.fold("k", onto="t")),  # type: ignore[arg-type]
        ("FRAME_TYPE", lambda: frame.drop("_change_type").transform(changes.fold(rows="multiset"))),
        ("COLUMNS_DIFFER", lambda: frame.transform(changes.fold("k", onto=frame))),
        ("COLUMNS_DIFFER", lambda: changes.differences(frame, frame.drop("x"))),
        ("COLUMN_NOT_FOUND", lambda: changes.differences(frame, frame, key="K")),
        ("PARAMETER_OUT_OF_RANGE", lambda: changes.differences(frame, frame, show=-1)),
        ("NOT_A_FRAME", lambda: changes.differences(5, frame)),  # type: ignore[arg-type]
        ("NOT_A_FRAME", lambda: changes.differences(frame, "orders")),  # type: ignore[arg-type]
    ]
    for code, call in cases:
        with pytest.raises(StreamopsError) as caught:
            call()
        assert caught.value.code == code
    rows = frame.drop("revision", "_change_type")
    with pytest.raises(StreamopsError, match="FRAME_TYPE") as caught:
        rows.transform(changes.fold("k"))
    assert caught.value.got == "columns k, x, m"
    assert "sequence=" in str(caught.value.fix)
    assert "multiset" not in str(caught.value.fix)
