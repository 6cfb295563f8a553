"""The settings of Spark that suit streamops, as data, and how a session compares with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from streamops.kernel.errors import RequirementError, SpecError

if TYPE_CHECKING:  # the doctor reads this module also where PySpark is missing
    from pyspark.sql import SparkSession

__all__ = [
    "MASTER",
    "PARTITIONS",
    "PROVIDER",
    "ROCKSDB",
    "TIMEZONE",
    "Difference",
    "differences",
    "effective",
    "local_settings",
    "refuse_policy",
]

MASTER = "spark.master"
PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TIMEZONE = "spark.sql.session.timeZone"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


class Difference(NamedTuple):
    """A setting of a running session that is not what was asked for.

    Parameters
    ----------
    key : str
        The name of the setting.
    found : str or None
        Its value in the session; None where it has none.
    wanted : str
        The value asked for.
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
    """Return the settings of Spark that `local_session` starts a session with.

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
        ``CORES_NOT_POSITIVE`` or ``PARTITIONS_NOT_POSITIVE``.

    Examples
    --------
    >>> local_settings(cores=3)["spark.master"]
    'local[3,4]'
    >>> local_settings(cores=3)["spark.sql.shuffle.partitions"]
    '3'
    """
    partitions = cores if shuffle_partitions is None else shuffle_partitions
    _refuse_below_one("CORES_NOT_POSITIVE", "cores", cores)
    _refuse_below_one("PARTITIONS_NOT_POSITIVE", "shuffle_partitions", partitions)
    return {
        MASTER: f"local[{cores},4]",
        "spark.app.name": app_name,
        "spark.api.mode": "classic",
        "spark.driver.memory": memory,
        "spark.log.level": "ERROR",
        TIMEZONE: timezone,
        PARTITIONS: str(partitions),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        PROVIDER: ROCKSDB,
        **(conf or {}),
    }


def effective(spark: SparkSession, key: str) -> str | None:
    """Return the value of a setting in a session, be it set or Spark's default.

    Parameters
    ----------
    spark : SparkSession
        The session to ask, classic or Connect.
    key : str
        The name of the setting.

    Returns
    -------
    str or None
        Its value; None where there is none, or where the platform does not tell.
    """
    try:
        return spark.conf.get(key)
    except Exception:  # its type differs between classic, Connect and the platforms
        return None


def differences(spark: SparkSession, settings: Mapping[str, str]) -> list[Difference]:
    """Compare a running session with the settings that were asked for.

    Parameters
    ----------
    spark : SparkSession
        A running session, classic or Connect.
    settings : mapping of str to str
        What `local_settings` returned.

    Returns
    -------
    list of Difference
        One entry for each setting that is another in the session. The application's name
        does not count, and any provider that is a RocksDB counts as RocksDB.
    """
    found = [
        Difference(key, effective(spark, key), wanted)
        for key, wanted in settings.items()
        if key != "spark.app.name"
    ]
    return [each for each in found if each.found != each.wanted and not _both_rocksdb(each)]


def _both_rocksdb(each: Difference) -> bool:
    # Platforms ship RocksDB under class names of their own.
    return each.key == PROVIDER and "RocksDB" in (each.found or "") and "RocksDB" in each.wanted


def _refuse_below_one(code: str, parameter: str, value: int) -> None:
    if type(value) is not int or value < 1:
        raise SpecError(
            code,
            f"`{parameter}` must be at least 1",
            where="streamops.local_session",
            got=value,
            expected="a whole number, 1 or more",
            fix=f"leave `{parameter}` out, or pass the number of cores to use",
        )


def refuse_policy(spark: SparkSession, *, where: str) -> None:
    """Refuse a session in which the slower of two streams does not hold the watermark.

    Raises
    ------
    RequirementError
        ``WATERMARK_POLICY``.
    """
    policy = effective(spark, _POLICY) or "min"
    if policy.lower() != "min":
        raise RequirementError(
            "WATERMARK_POLICY",
            "the session lets the faster of two streams set the watermark: rows of the slower one "
            "would be late, and others be called unmatched before their partners come",
            where=where,
            got=f"{_POLICY}={policy}",
            expected="min, Spark's own default",
            fix=f'spark.conf.set("{_POLICY}", "min") before the query starts, with a new checkpoint: '
            "Spark keeps the policy there",
        )
