"""Runs SQL of Spark on the tables of a catalog, and reads tables with DuckDB: a program of another environment.

It reads requests as lines of JSON: a list of statements for Spark, or a metadata file for DuckDB. It answers
with a line of JSON: the rows of the last statement, as text.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession


def start(folder: str, jars: str) -> SparkSession:
    prefix = "spark.sql.catalog.c"
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.uri": f"jdbc:sqlite:{folder}/catalog.db",
        f"{prefix}.warehouse": f"file://{folder}",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def main(folder: str, jars: str) -> None:
    spark = start(folder, jars)
    import duckdb  # of the other environment, as all below
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for module in (duckdb_extension_avro, duckdb_extension_iceberg):
            (file,) = Path(module.__path__[0]).rglob("*.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        connection.execute("SET timezone = 'UTC'")
        for line in sys.stdin:
            request = json.loads(line)
            if isinstance(request, str):
                found = connection.execute(f"SELECT * FROM iceberg_scan('{request}')")
                names = [column[0] for column in found.description]
                rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
            else:
                for statement in request:
                    frame = spark.sql(statement)
                rows = (
                    [row.asDict(recursive=True) for row in frame.collect()] if frame.columns else []
                )
            print("ANSWER", json.dumps(rows, default=str), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
