"""Windows that come early, on Spark: that they are wired, in streams and in batches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from streamops import windows
from streamops.kernel.errors import SpecError
from streamops.testing import assert_rows, fold, replay, stream
from tests.windows.test_windows_spark import APIS, COMMON, SCHEMA, SCRIPT, same

pytestmark = pytest.mark.spark

LATE: dict[str, Any] = {"allowed_lateness": "20 seconds", "too_late": "route"}


def hopping(**said: Any) -> Any:
    shape = {"delay": "5 seconds", "early": "every batch", "stragglers": "retract", **LATE}
    return windows.hopping("10 seconds", "4 seconds", **(COMMON | shape | said))


def growing(**said: Any) -> Any:
    shape = {"delay": "5 seconds", "early": "every batch", "stragglers": "route"}
    return windows.cumulative("20 seconds", "10 seconds", **(COMMON | shape | said))


def test_a_stream_on_spark_gives_what_its_replay_gives(spark: SparkSession) -> None:
    for make, api in ((hopping, APIS[0]), (growing, APIS[1])):
        replayed = replay(make(), SCRIPT, schema=SCHEMA)
        same(stream(spark, make(state_api=api), SCRIPT, schema=SCHEMA), replayed)
        said = {row["timing"] for result in replayed for row in result.rows}
        assert said == ({"early", "on_time", "late"} if make is hopping else {"early", "on_time"})


def test_a_batch_knows_nothing_early_on_either_engine(spark: SparkSession) -> None:
    events = [row for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(pa.Table.from_pylist(events, SCHEMA))
    kernel, native = (
        frame.transform(hopping(engine=engine, delay=None, too_late="drop"))
        for engine in ("kernel", "native")
    )
    assert kernel.schema == native.schema
    assert_rows(kernel, native)
    assert {(r["revision"], r["timing"], r["_change_type"]) for r in kernel.collect()} == {
        (0, "on_time", "insert")
    }


def test_a_restart_continues_and_refuses_results_that_are_not_early(
    spark: SparkSession, tmp_path: Any
) -> None:
    whole = replay(hopping(), SCRIPT, schema=SCHEMA)
    first = stream(spark, hopping(), SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, hopping(), SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    names = ("revision", "timing")
    there, here = (
        [{n: v for n, v in row.items() if n not in names} for row in fold(results)]
        for results in (whole, [*first, *rest])
    )
    assert_rows(here, there)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, hopping(early="never"), SCRIPT[:1], schema=SCHEMA, directory=tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "early='every batch'" in str(caught.value)


def test_spark_itself_is_refused_on_a_stream(spark: SparkSession) -> None:
    with pytest.raises(SpecError, match="NO_NATIVE_ENGINE"):
        stream(spark, hopping(engine="native"), SCRIPT[:1], schema=SCHEMA)
