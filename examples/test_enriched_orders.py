"""Tests of the enriched orders: their logic without Spark, then the job once on Spark."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples import data
from examples.enriched_orders import once, price, start
from examples.feed import Row, at, write
from streamops import changes, sinks
from streamops.testing import Replay, assert_rows, fold, replay

_INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = (
    pa.schema(
        {"order": pa.int32(), "product": pa.string(), "pieces": pa.int32(), "ordered_at": _INSTANT}
    ),
    pa.schema(
        {"product": pa.string(), "cents": pa.int32(), "valid_from": _INSTANT, "version": pa.int32()}
    ),
)


def order(number: int, minute: float, product: str = "bread") -> Row:
    return {"order": number, "product": product, "pieces": 1, "ordered_at": at(9, minute)}


def cost(version: int, minute: float, cents: int) -> Row:
    return {"product": "bread", "cents": cents, "valid_from": at(9, minute), "version": version}


def prices(*batches: tuple[list[Row] | None, list[Row] | None]) -> dict[int, int | None]:
    """The price of each order after these micro-batches."""
    table = fold(replay(price(None), batches, schema=SCHEMA, flush=True), rows="multiset")
    return {row["order"]: row["cents"] for row in table}


def test_an_order_has_the_price_that_was_valid_at_its_time() -> None:
    versions = [cost(1, 0, 420), cost(2, 30, 390)]
    orders = [order(1, 29.9), order(2, 30), order(3, 59), order(4, -1)]
    assert prices((orders, versions)) == {1: 420, 2: 390, 3: 390, 4: None}


def test_prices_do_not_depend_on_the_order_of_arrival() -> None:
    first, second = ([order(1, 29)], [cost(2, 30, 390)]), ([order(2, 31)], [cost(1, 0, 420)])
    assert prices(first, second) == prices(second, first) == {1: 420, 2: 390}


def test_a_price_that_is_corrected_later_corrects_the_orders_since() -> None:
    script = [
        ([order(1, 10), order(2, 50)], [cost(1, 0, 420)]),
        ([order(3, 120)], None),
        ([], None),
        ([order(4, 121)], [cost(2, 30, 250)]),
    ]
    results = replay(price(None), script, schema=SCHEMA, flush=True)
    corrected = [row for r in results for row in r.rows if row["_change_type"] == "update_preimage"]
    assert [(row["order"], row["cents"]) for row in corrected] == [(2, 420)]
    assert prices(*script) == {1: 420, 2: 250, 3: 250, 4: 250}


def test_a_late_order_is_joined_for_half_a_day_and_routed_after() -> None:
    script = [
        ([order(1, 0)], [cost(1, 0, 420)]),
        ([order(2, 800)], None),
        ([], None),
        ([order(3, 100), order(4, 1)], None),
    ]
    results = replay(price(None), script, schema=SCHEMA, flush=True)
    assert [row["row"]["left"]["order"] for r in results for row in r.late_rows] == [4]
    assert prices(*script) == {1: 420, 2: 420, 3: 420}


def test_an_order_that_is_sent_twice_is_one_order() -> None:
    assert sum(len(r.rows) for r in replay(once, [[order(1, 0)], [order(1, 0), order(2, 1)]])) == 2


def test_a_restart_of_the_query_changes_nothing() -> None:
    orders, versions = data.orders_and_prices()
    script: list[tuple[list[Row], list[Row]]] = [*zip_longest(orders, versions, fillvalue=[])]
    for _, batch in script:
        for row in batch:
            row.pop("published_at", None)
    query = Replay(price(None), SCHEMA)
    stopped = [*query.run(script[:4]), *query.run(script[4:])]
    whole = replay(price(None), script, schema=SCHEMA)
    assert_rows(fold(stopped, rows="multiset"), fold(whole, rows="multiset"))


def test_the_job_writes_priced_orders(spark: SparkSession, tmp_path: Path) -> None:
    orders = [[order(1, 10), order(2, 50), order(1, 10)], [order(3, 120)], [], [order(4, 200)]]
    write(orders, tmp_path / "orders")
    write([[cost(1, 0, 420)], [], [], [cost(2, 30, 250)]], tmp_path / "prices")
    start(spark, tmp_path).awaitTermination()
    published = sinks.read_parquet(f"{tmp_path}/priced", spark=spark)
    actual = published.transform(changes.fold(rows="multiset")).select("order", "cents")
    expected = spark.createDataFrame([(1, 420), (2, 250), (3, 250)], actual.schema)
    assert_df_equality(actual, expected, ignore_nullable=True, ignore_row_order=True)
