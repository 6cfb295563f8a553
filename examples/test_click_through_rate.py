"""Tests of the click-through rate: its logic without Spark, then the job once on Spark."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.click_through_rate import attribute, rates, start
from examples.feed import Row, at, write
from streamops import sinks
from streamops.testing import replay

_INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = (
    pa.schema([("impression", pa.string()), ("ad", pa.string()), ("shown_at", _INSTANT)]),
    pa.schema([("click", pa.int32()), ("impression", pa.string()), ("clicked_at", _INSTANT)]),
)


def impression(name: str, minute: float) -> Row:
    return {"impression": name, "ad": "hats", "shown_at": at(9, minute)}


def click(number: int, name: str, minute: float) -> Row:
    return {"click": number, "impression": name, "clicked_at": at(9, minute)}


def test_a_click_within_half_an_hour_counts_and_a_later_one_does_not() -> None:
    script = [
        ([impression("a", 0), impression("b", 0)], [click(1, "a", 30), click(2, "b", 30.1)]),
        ([impression("c", 90)], [click(3, "c", 90)]),
    ]
    rows = [row for r in replay(attribute(None), script, schema=SCHEMA) for row in r.rows]
    assert {row["impression"]: row["status"] for row in rows} == {"a": "matched", "b": "expired"}


def test_the_first_of_several_clicks_counts_in_any_order_of_arrival() -> None:
    for order in ((1, 2), (2, 1)):
        script = [([impression("a", 0)], [click(number, "a", number) for number in order])]
        (row,) = replay(attribute(None), script, schema=SCHEMA, flush=True)[-1].rows
        assert (row["click"], row["clicked_at"]) == (1, at(9, 1))


def test_an_impression_is_late_beyond_the_delay_and_routed() -> None:
    end = ([impression("z", 60)], [click(9, "z", 60)])
    on_time, too_late = impression("a", 55.1), impression("b", 55)
    results = replay(
        attribute(None), [end, (None, None), ([on_time, too_late], None)], schema=SCHEMA
    )
    (late,) = (row for result in results for row in result.late_rows)
    assert (late["reason"], late["row"]["left"]["impression"]) == ("too_late", "b")


def test_attribution_does_not_depend_on_micro_batches() -> None:
    impressions, clicks = data.impressions_and_clicks()
    whole = [([row for b in impressions for row in b], [row for b in clicks for row in b])]
    # Only what is delivered late depends on them.
    sliced: list[tuple[list[Row], list[Row]]] = [*zip_longest(impressions, clicks, fillvalue=[])]
    results = replay(attribute(None), sliced, schema=SCHEMA, flush=True)
    late = sum(len(result.late_rows) for result in results)
    together = replay(attribute(None), whole, schema=SCHEMA, flush=True)
    found, expected = ([row for r in rs for row in r.rows] for rs in (results, together))
    assert len(expected) == sum(map(len, impressions))
    assert 0 < len(expected) - len(found) <= late


def test_the_job_writes_attributed_impressions(spark: SparkSession, tmp_path: Path) -> None:
    write(
        [[impression("a", 0), impression("b", 1), impression("a", 0)], [impression("z", 120)]],
        tmp_path / "impressions",
    )
    write([[click(1, "a", 2)], [click(2, "z", 120)]], tmp_path / "clicks")
    start(spark, tmp_path).awaitTermination()
    facts = sinks.read_parquet(f"{tmp_path}/attributed", spark=spark)
    hour = {"ad": "hats", "window_start": at(9), "window_end": at(10)}
    hour |= {"impressions": 2, "clicked": 1, "rate": 0.5}
    actual = facts.transform(rates)
    expected = spark.createDataFrame([hour], actual.schema)
    assert_df_equality(actual, expected, ignore_nullable=True, ignore_row_order=True)
