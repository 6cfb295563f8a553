"""A session with Spark's default state store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streamops.environment.settings import PROVIDER
from streamops.state.checkpoint import HDFS_STATE
from streamops.state.stores import STATE


@pytest.fixture
def hdfs(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, f"{STATE}.{HDFS_STATE}")
    yield spark
    spark.conf.set(PROVIDER, str(before))
