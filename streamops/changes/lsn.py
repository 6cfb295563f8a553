"""Positions in PostgreSQL's log."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.parameters import require_name
from streamops.spark.columns import column

_FORM = r"^([0-7]?[0-9A-Fa-f]{1,7})/([0-9A-Fa-f]{1,8})\z"


def parse_lsn(lsn: str | Column) -> Column:
    """Convert positions in PostgreSQL's log, such as ``0/16B37480``, from text to bigint.

    As text they cannot order changes: ``0/9000000`` is above ``0/10000000``. The result is the number that
    Debezium's ``lsn`` has: the distance from the beginning of the log, in bytes.

    Parameters
    ----------
    lsn : str or Column
        The name of a column, or an expression: text. Text of another form, and positions of 8 EiB or more,
        become null.

    Returns
    -------
    Column
        bigint.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``: neither a name nor an expression.

    Examples
    --------
    >>> rows.withColumn("lsn", changes.parse_lsn("lsn"))
    """
    if not isinstance(lsn, Column):
        require_name(lsn, parameter="lsn")
    text = (column(lsn) if isinstance(lsn, str) else lsn).cast("string")  # without its collation
    high, low = (
        F.conv(F.regexp_extract(text, _FORM, group), 16, 10).cast("bigint") for group in (1, 2)
    )
    return F.when(F.regexp_like(text, F.lit(_FORM)), F.shiftleft(high, 32) + low)
