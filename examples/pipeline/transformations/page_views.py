"""Page views in windows of twenty minutes, and the busiest window of each page."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows

INPUT = Path(__file__).parents[1] / "input"

spark = SparkSession.active()
views = spark.readStream.schema("page string, ts timestamp").json(f"file://{INPUT}")
# Applied here, and not in the function below: Spark analyzes no frame inside of those.
per_page = views.transform(
    windows.tumbling(
        "20 minutes", time="ts", by="page", agg={"views": agg.count()}, delay="5 minutes"
    )
)


@dp.table
def views_per_page() -> DataFrame:
    """Views of each page in each window."""
    return per_page


@dp.materialized_view
def busiest_windows() -> DataFrame:
    """The window with the most views of each page."""
    table = spark.read.table("views_per_page")
    busiest = F.max_by("window_start", "views").alias("window_start")
    return table.groupBy("page").agg(F.max("views").alias("views"), busiest)
