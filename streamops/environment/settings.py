"""The recommended settings of Spark, and the comparison of a session with them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamops.environment import conditions

if TYPE_CHECKING:  # the doctor reads this module also where PySpark is missing
    from pyspark.sql import SparkSession

MASTER = "spark.master"
PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TIMEZONE = "spark.sql.session.timeZone"
_LOG = logging.getLogger("streamops.spark")
_MANY = 4
"""So many partitions per shard are worth a message."""
_advised: set[int] = set()
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
_PROGRESS = "spark.ui.showConsoleProgress"
_COSMETIC = {"spark.app.name", _PROGRESS}
_STDERR = 2


class Difference(NamedTuple):
    """A setting of a running session that differs from the requested one.

    Parameters
    ----------
    key : str
        The name of the setting.
    found : str or None
        Its value in the session; None if it is not set.
    wanted : str
        The requested value.
    """

    key: str
    found: str | None
    wanted: str


def local_settings(
    *,
    cores: int = 2,
    shuffle_partitions: int | None = None,
    app_name: str = "streamops",
    memory: str = "1g",
    timezone: str = "UTC",
    conf: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the settings of the session that `local_session` starts.

    Parameters
    ----------
    cores, shuffle_partitions, app_name, memory, timezone, conf
        As in `local_session`.

    Returns
    -------
    dict of str to str
        Spark's configuration keys and their values.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.

    Examples
    --------
    >>> local_settings(cores=3)["spark.master"]
    'local[3,4]'
    >>> local_settings(cores=3)["spark.sql.shuffle.partitions"]
    '3'
    """
    partitions = cores if shuffle_partitions is None else shuffle_partitions
    _refuse_below_one("cores", cores)
    _refuse_below_one("shuffle_partitions", partitions)
    return {
        MASTER: f"local[{cores},4]",
        "spark.app.name": app_name,
        "spark.api.mode": "classic",
        "spark.driver.memory": memory,
        "spark.log.level": "ERROR",
        TIMEZONE: timezone,
        PARTITIONS: str(partitions),
        "spark.ui.enabled": "false",
        # One line, which is overwritten: of no use in a file or a notebook.
        _PROGRESS: "true" if _is_terminal(_STDERR) else "false",
        PROVIDER: ROCKSDB,
        **(conf or {}),
    }


def effective(spark: SparkSession, key: str) -> str | None:
    """Return the value of a setting in a session, which may be Spark's default.

    Parameters
    ----------
    spark : SparkSession
        The session, classic or Connect.
    key : str
        The name of the setting.

    Returns
    -------
    str or None
        Its value; None if there is none, or if the platform does not reveal it.
    """
    try:
        return spark.conf.get(key)
    except Exception:  # its type depends on classic, Connect and the platform
        return None


def differences(spark: SparkSession, settings: Mapping[str, str]) -> list[Difference]:
    """Compare a running session with the requested settings.

    Parameters
    ----------
    spark : SparkSession
        A running session, classic or Connect.
    settings : mapping of str to str
        The result of `local_settings`.

    Returns
    -------
    list of Difference
        One per setting that differs, except the name of the application and the progress bar. All RocksDB providers are
        equal.
    """
    found = [
        Difference(key, effective(spark, key), wanted)
        for key, wanted in settings.items()
        if key not in _COSMETIC
    ]
    return [
        difference
        for difference in found
        if difference.found != difference.wanted and not _both_rocksdb(difference)
    ]


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:  # closed
        return False


def _both_rocksdb(difference: Difference) -> bool:
    # Platforms have their own class names of RocksDB.
    found = difference.found or ""
    return difference.key == PROVIDER and "RocksDB" in found and "RocksDB" in difference.wanted


def _refuse_below_one(parameter: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise conditions.PARAMETER_OUT_OF_RANGE.error(
            where="streamops.local_session", parameter=parameter, got=value
        )


def refuse_policy(spark: SparkSession) -> None:
    """Refuse a session whose watermark is not the minimum of those of the inputs.

    Raises
    ------
    RequirementError
        ``WATERMARK_POLICY``.
    """
    policy = effective(spark, _POLICY) or "min"
    if policy.lower() != "min":
        raise conditions.WATERMARK_POLICY.error(got=f"{_POLICY}={policy}")


def advise_partitions(spark: SparkSession, operator: str, shards: int) -> None:
    """Log that most shuffle partitions of a stream have no shard, which makes each micro-batch slow.

    It is logged once for each number of partitions: every further operator would repeat it.
    """
    found = effective(spark, PARTITIONS) or ""
    partitions = int(found) if found.isdecimal() else 0  # it is "auto" on some platforms
    if partitions < _MANY * shards or partitions in _advised:
        return
    _advised.add(partitions)
    _LOG.warning(
        "%s has %d shards, and the session %d shuffle partitions: %d of them never have rows, and still"
        " run Python in every micro-batch. Unless another operator of the query needs them, call"
        ' spark.conf.set("%s", "%d") before the first start of the query: its checkpoint fixes the number.'
        " On a cluster of more cores, use as many shards: .options(shards=...).",
        operator,
        shards,
        partitions,
        partitions - shards,
        PARTITIONS,
        shards,
    )
