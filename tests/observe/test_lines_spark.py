"""Files of lines: what is read without Spark is what Spark reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from streamops import observe
from streamops.kernel.errors import RequirementError
from streamops.observe.lines import read_lines
from streamops.testing import at
from tests.observe.lines_of_files import FILES, SCHEMA
from tests.observe.test_explain import tumbling

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("format", FILES)
def test_what_is_read_is_what_spark_reads(spark: SparkSession, tmp_path: Path, format: str) -> None:
    for number, (content, _) in enumerate(FILES[format]):
        (tmp_path / f"{number}").write_bytes(content.encode())
    reader = spark.read.format(format)
    if format != "text":
        reader = reader.schema(from_arrow_schema(SCHEMA))
    paths = [str(path) for path in tmp_path.iterdir()]
    frame = reader.load(paths).withColumn(
        "file", F.element_at(F.split(F.input_file_name(), "/"), -1)
    )
    rows = frame.toArrow().to_pylist()
    read = 0
    for number, (content, _) in enumerate(FILES[format]):
        expected = [row for row in rows if row["file"] == str(number)]
        try:
            found = read_lines(
                fs.LocalFileSystem(), str(tmp_path / f"{number}"), format, SCHEMA, {}
            )
        except RequirementError:
            continue
        read += 1
        assert found.to_pylist() == [
            {k: v for k, v in row.items() if k != "file"} for row in expected
        ], content
    assert read >= sum(is_read for _, is_read in FILES[format])


def test_a_query_over_json_and_the_files_that_only_spark_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, checkpoint, operator = tmp_path / "in", tmp_path / "checkpoint", tumbling()
    folder.mkdir()

    def run() -> None:
        frame = spark.readStream.schema("k string, ts timestamp, v long").json(str(folder))
        query = frame.transform(operator).writeStream.format("noop").outputMode("append")
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()

    first = '{"k": "a", "ts": "2024-01-01T00:00:05Z", "v": 1}\n'
    (folder / "0.json").write_text(first * 2)
    run()
    (folder / "1.json").write_text('{"k": "b", "ts": "2024-01-01T00:05:00Z", "v": 1}\n')
    run()
    schema = pa.schema(
        [("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())]
    )
    for session in (None, spark):
        source = observe.files(format="json", schema=schema, spark=session)
        found = observe.explain(checkpoint, operator, source, where={"k": "a"}, window=at(0))
        assert [(of.row["n"], len(of.rows)) for of in found.key_results] == [(2, 2)]
    # Spark reads a broken line as nulls, so the rows of other keys are the same.
    (folder / "0.json").write_text(first * 2 + "{broken\n")
    with pytest.raises(RequirementError, match="SOURCE_UNFIT"):
        observe.explain(
            checkpoint, operator, observe.files(format="json", schema=schema), where={"k": "a"}
        )
    source = observe.files(format="json", schema=schema, spark=spark)
    assert observe.explain(checkpoint, operator, source, where={"k": "a"}).reason == "result"
