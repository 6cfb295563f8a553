"""Home timelines: the newest posts of the authors that each user follows, with the authors' current names.

Run it with ``python -m examples.home_timelines``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples import data
from examples.feed import run, write
from streamops import changes, joins, sinks

TABLES = {
    "posts": "post int, author string, text string, posted_at timestamp",
    "authors": "author string, name string",
    "follows": "user string, whom string",
}


def sign(authors: DataFrame | None) -> Any:
    """Posts with the name of their author: a new name changes all posts of the author."""
    # Changes arrive in any order, and some twice: deleted rows are remembered, if an old change follows.
    return joins.tables(
        authors, by="author", key=("post", "author"), sequence="log", remember=100_000
    ).options(name="signed")


followed = changes.normalize(["user", "whom"], sequence="log", horizon=100_000)


def collect(follows: DataFrame | None) -> Any:
    """The three newest posts of each user's authors."""
    return joins.timeline(
        follows,
        by={"author": "whom"},
        user="user",
        key="post",
        ranked_by="posted_at",
        cap=3,
        rejected="route",
    ).options(name="timelines")


def start(spark: SparkSession, folder: Path) -> StreamingQuery:
    """Start the query from the changes of three tables to those of the timelines."""
    read = spark.readStream.option("maxFilesPerTrigger", 1)
    posts, authors, follows = (
        read.schema(f"{columns}, log int, _change_type string").json(f"{folder}/{name}")
        for name, columns in TABLES.items()
    )
    signed = posts.transform(sign(authors)).drop("log", "log_right")
    timelines = signed.transform(collect(follows.transform(followed).drop("revision")))
    results, rejected = sinks.parquet(f"{folder}/timelines"), sinks.parquet(f"{folder}/rejected")
    sink = sinks.side_outputs(results=results, rejected=rejected, operator="timelines")
    query = timelines.writeStream.queryName("home_timelines").foreachBatch(sink)
    query = query.option("checkpointLocation", f"{folder}/checkpoint")
    return query.trigger(availableNow=True).start()  # in production: processingTime="2 seconds"


def main(spark: SparkSession, folder: Path) -> None:
    """Run the job on generated changes, and print the timelines of all users."""
    for name, batches in zip(TABLES, data.posts_authors_and_follows(), strict=True):
        write(batches, folder / name)
    start(spark, folder).awaitTermination()
    published = sinks.read_parquet(f"{folder}/timelines", spark=spark)
    timelines = published.transform(changes.fold(rows="multiset"))
    timelines = timelines.orderBy("user", F.desc("posted_at"))
    timelines.select("user", "name", "text", "posted_at").show()


if __name__ == "__main__":
    run(main)
