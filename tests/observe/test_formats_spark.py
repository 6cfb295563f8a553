"""Files that Spark reads for an explanation: formats, options, folders of partitions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamops import observe
from streamops.testing import at
from tests.observe.test_explain import tumbling

pytestmark = pytest.mark.spark
DDL = "k string, ts timestamp, v long"
FIRST = {
    "json": '{"k": "a", "ts": "2024-01-01T00:00:05Z", "v": 1}\n{broken\n',
    "csv": 'k;ts;v\n"a";2024-01-01T00:00:05Z;1\n',
}
SECOND = {
    "json": '{"k": "b", "ts": "2024-01-01T00:05:00Z", "v": 1}\n',
    "csv": "k;ts;v\nb;2024-01-01T00:05:00Z;1\n",
}


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_a_query_over_files_in_folders_of_partitions(
    spark: SparkSession, tmp_path: Path, format: str
) -> None:
    folder, checkpoint, operator = tmp_path / "in", tmp_path / "checkpoint", tumbling()
    options = {"header": "true", "sep": ";"} if format == "csv" else {}
    of = "v" if format == "parquet" else "day"
    ddl = DDL if format == "parquet" else f"{DDL}, day string"
    for number, texts in enumerate((FIRST, SECOND)):
        part = folder / f"{of}={number + 1}"
        if format == "parquet":
            rows = [("ab"[number], at(5 if number == 0 else 300))]
            frame = spark.createDataFrame(rows, "k string, ts timestamp").coalesce(1)
            frame.write.parquet(str(part))
        else:
            part.mkdir(parents=True)
            (part / f"0.{format}").write_text(texts[format])
        frame = spark.readStream.schema(ddl).options(**options).format(format).load(str(folder))
        query = frame.transform(operator).writeStream.format("noop").outputMode("append")
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()
    source = observe.files(format=format, schema=ddl, options=options)
    found = observe.explain(checkpoint, operator, source, where={"k": "a"}, window=at(0))
    assert [(of.row["n"], of.row["total"], len(of.rows)) for of in found.key_results] == [(1, 1, 1)]
    assert found.notes == ()
