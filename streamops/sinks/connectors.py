"""What the JVM of a classic session knows about tables of connectors, and Python does not."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streamops.sinks import conditions
from streamops.sinks.sink import Session


def require_classic(spark: SparkSession) -> SparkSession:
    """Refuse a session of Spark Connect.

    Raises
    ------
    RequirementError
        ``SESSION_TYPE``.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise conditions.SPARK_WRITER_SESSION.error(got="a session of Spark Connect")
    return spark


def active_session() -> SparkSession:
    """The session of this thread, or the default one."""
    return require_classic(SparkSession.getActiveSession() or SparkSession.builder.getOrCreate())


def clone(spark: Any, session: Session) -> SparkSession:
    """A session like that of a query, whose settings nobody else reads. It is made once.

    Other threads may write in the session of a query, and settings of a commit are not theirs.
    """
    of: Any = require_classic(spark)
    if session.clone is None or not session.clone[0].equals(of._jsparkSession):
        made = SparkSession(of.sparkContext, of._jsparkSession.cloneSession())
        session.clone = of._jsparkSession, made
    found: SparkSession = session.clone[1]
    return found


def relation(frame: Any) -> Any:
    """The table that a frame reads, as the connector has resolved it."""
    return frame._jdf.queryExecution().analyzed().collectLeaves().head()
