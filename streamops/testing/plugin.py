"""A plugin for pytest: the session that the tests of a run share.

Found by pytest on its own where streamops is installed. A fixture of the same name in a
project's ``conftest.py`` takes precedence.
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
    """Further settings of the session. Override it to add some."""
    return {}


@pytest.fixture(scope="session")
def spark(spark_conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """A local session that suits streamops: two tasks, two shuffle partitions, no UI, UTC."""
    # Imported here: every run of pytest loads this module, and most need no Spark.
    from streamops.spark.session import local_session

    session = local_session(
        cores=2, shuffle_partitions=2, app_name="streamops tests", conf=spark_conf
    )
    yield session
    session.stop()
