"""Start a local Spark session with the recommended settings."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from streamops.environment import conditions
from streamops.environment.java import find_java
from streamops.environment.quiet import filter_stderr
from streamops.environment.settings import Difference, differences, local_settings
from streamops.kernel.versions import Missing, spark_class

# PySpark also logs the errors that it raises while it analyzes a plan, as one line of some ten
# thousand characters with the stack of the JVM.
_ECHOES = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class SessionDiffersWarning(UserWarning):
    """A session was already running, and its settings differ from the requested ones."""


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

    Java is searched in ``JAVA_HOME``, on ``PATH``, and in the extra ``streamops[java]``, and becomes
    ``JAVA_HOME`` of this process. ``PYSPARK_PYTHON`` (this interpreter; by default Spark uses the
    first ``python3`` on ``PATH``) and ``SPARK_LOCAL_IP`` (127.0.0.1) are set for this process if
    they are not set. Spark logs errors only, and does not log the errors of a plan that it raises. The
    progress lines that it prints without a log are dropped, see Notes.

    A session that is already running is returned unchanged. If its settings differ from the
    requested ones, a `SessionDiffersWarning` lists the differences; stop that session first to
    start one with the requested settings.

    Parameters
    ----------
    cores : int, default 2
        Number of concurrent tasks. A failed task is tried four times, unlike in ``local[N]``.
    shuffle_partitions : int, optional
        Partitions of a shuffle, and of state; by default `cores`. With Spark's default of 200,
        every micro-batch commits 200 state stores.
    app_name : str, default "streamops"
        The name of the application.
    memory : str, default "1g"
        Heap of the JVM. It is fixed by the first session of the process.
    timezone : str, default "UTC"
        Time zone of the session, in which Spark parses and shows timestamps.
        (``DataFrame.collect`` uses the time zone of the *process*.)
    conf : mapping of str to str, optional
        Further settings of Spark, which override the ones above.

    Returns
    -------
    SparkSession
        The new session, or the one that was already running.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.
    RequirementError
        ``JAVA_NOT_FOUND``; ``SESSION_TYPE``: the environment requests a remote session.

    Notes
    -----
    What the JVM and the Python workers write to stderr passes through a filter process, which ends with
    the JVM. It drops lines about the start of the JVM and the progress of workers, and nothing else. In a
    terminal, a stage that takes longer than half a second has a progress bar, which is removed at its
    end: ``conf={"spark.ui.showConsoleProgress": "false"}`` disables it, ``"true"`` enables it elsewhere.

    Examples
    --------
    >>> spark = local_session(cores=4)
    >>> spark.range(3).count()
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
    except PySparkRuntimeError:  # no session is running
        return None


def _start(settings: Mapping[str, str]) -> SparkSession:
    if "SPARK_REMOTE" in os.environ:
        raise conditions.SPARK_REMOTE_SET.error(
            where="streamops.local_session", got=f"SPARK_REMOTE={os.environ['SPARK_REMOTE']}"
        )
    os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    loggers = spark_class("logger", "PySparkLogger")
    for name in () if issubclass(loggers, Missing) else _ECHOES:
        loggers.getLogger(name).setLevel(logging.CRITICAL)
    with filter_stderr():  # of the JVM, which starts here
        return SparkSession.builder.config(map=dict(settings)).getOrCreate()


def _wording(found: list[Difference]) -> str:
    lines = [f"  {key}: {value or 'not set'} (requested: {wanted})" for key, value, wanted in found]
    return "\n".join(
        ["a Spark session is already running and is used unchanged; it differs in", *lines]
    )
