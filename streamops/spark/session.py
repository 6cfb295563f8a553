"""Start the local Spark session that suits streamops."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from streamops.kernel.errors import RequirementError
from streamops.spark.java import find_java
from streamops.spark.settings import Difference, differences, local_settings

__all__ = ["SessionDiffersWarning", "local_session"]

# PySpark writes an error that it raises while it analyses a plan to these loggers as well, as
# one line of some ten thousand characters with the JVM's stack.
_ECHOES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SessionDiffersWarning(UserWarning):
    """A session was already running, and its settings are not the ones asked for."""


def local_session(
    *,
    cores: int = 2,
    shuffle_partitions: int | None = None,
    app_name: str = "streamops",
    memory: str = "1g",
    timezone: str = "UTC",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a local Spark session with the settings that stateful streaming needs.

    Java is looked for in ``JAVA_HOME``, on ``PATH``, and in the extra ``streamops[java]``; the
    one that is found becomes this process's ``JAVA_HOME``, also where that was set to one that
    does not start Spark. Set for this process, where they are not set yet: ``PYSPARK_PYTHON``
    (this interpreter; Spark would take the first ``python3`` on ``PATH``) and
    ``SPARK_LOCAL_IP`` (127.0.0.1).
    Spark logs errors only, and no longer logs each error of a plan that it also raises.

    A session that is already running is returned as it is: its settings are not touched.
    Where they are not the ones asked for, a `SessionDiffersWarning` lists the differences;
    stop that session first to have the ones asked for.

    Parameters
    ----------
    cores : int, default 2
        How many tasks run at once. A failed task is tried four times, which plain
        ``local[N]`` never does.
    shuffle_partitions : int, optional
        Partitions of a shuffle, and so of the state; as many as `cores` by default. Spark's
        own default of 200 makes every small micro-batch pay for 200 commits.
    app_name : str, default "streamops"
        The name of the application.
    memory : str, default "1g"
        The heap of the JVM. Only the first session of a process decides it.
    timezone : str, default "UTC"
        The session's time zone: how timestamps are parsed and shown by Spark.
        (``DataFrame.collect`` follows the time zone of the *process* instead.)
    conf : mapping of str to str, optional
        Further settings of Spark; they win over the ones above.

    Returns
    -------
    SparkSession
        The new session, or the one that was already running.

    Raises
    ------
    SpecError
        ``CORES_NOT_POSITIVE`` or ``PARTITIONS_NOT_POSITIVE``.
    RequirementError
        ``JAVA_NOT_FOUND``; ``SPARK_REMOTE_SET`` where the environment asks for a remote
        session instead.

    Examples
    --------
    >>> spark = local_session(cores=4)  # doctest: +SKIP
    >>> spark.range(3).count()  # doctest: +SKIP
    3
    """
    settings = local_settings(
        cores=cores,
        shuffle_partitions=shuffle_partitions,
        app_name=app_name,
        memory=memory,
        timezone=timezone,
        conf=conf,
    )
    spark = _running_session()
    if spark is None:
        spark = _start(settings)
    found = differences(spark, settings)
    if found:
        warnings.warn(_wording(found), SessionDiffersWarning, stacklevel=2)
    return spark


def _running_session() -> SparkSession | None:
    try:
        return SparkSession.active()
    except PySparkRuntimeError:  # there is neither an active nor a default session
        return None


def _start(settings: Mapping[str, str]) -> SparkSession:
    if "SPARK_REMOTE" in os.environ:
        raise RequirementError(
            "SPARK_REMOTE_SET",
            "a local session was asked for, but the environment names a remote one",
            where="streamops.local_session",
            got=f"SPARK_REMOTE={os.environ['SPARK_REMOTE']}",
            expected="SPARK_REMOTE not set",
            fix="unset SPARK_REMOTE, or use SparkSession.builder.getOrCreate() for the remote one",
        )
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name in _ECHOES:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _wording(found: list[Difference]) -> str:
    lines = [
        f"  {each.key}: {each.found or 'not set'} (asked for: {each.wanted})" for each in found
    ]
    return "\n".join(
        ["a Spark session is already running and is used as it is; it differs in", *lines]
    )
