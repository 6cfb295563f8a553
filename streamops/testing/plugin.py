"""A pytest plugin with the fixture ``spark``: one session for all tests.

Pytest loads it if streamops is installed. A fixture of the same name in the ``conftest.py`` of a
project overrides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark", "spark_conf"]


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """Additional settings of the session, for tests to override."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A local session for small data: two tasks, two shuffle partitions, no UI, UTC."""
    # Imported here: every run of pytest loads this module, and most need no Spark.
    from streamops.environment.session import local_session

    session = local_session(
        cores=2, shuffle_partitions=2, app_name="streamops tests", conf=spark_conf
    )
    yield session
    session.stop()
