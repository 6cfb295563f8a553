"""Validation of parameters: that of the kernel, and frames."""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import (
    MILLISECOND,
    parse_delay,
    parse_distinct_names,
    parse_names,
    refuse_taken_names,
    refuse_type,
    require_aggregates,
    require_hashable,
    require_instant,
    require_keys,
    require_most_keys,
    show_duration,
)

__all__ = [
    "MILLISECOND",
    "parse_delay",
    "parse_distinct_names",
    "parse_names",
    "refuse_taken_names",
    "refuse_type",
    "require_aggregates",
    "require_frame",
    "require_hashable",
    "require_instant",
    "require_keys",
    "require_most_keys",
    "show_duration",
]


def require_frame(value: object, what: str, *, where: str) -> DataFrame:
    """Refuse what is given in place of a frame, such as the name of a table.

    Raises
    ------
    SpecError
        ``NOT_A_FRAME``.
    """
    if isinstance(value, DataFrame):
        return value
    raise SpecError(
        "NOT_A_FRAME",
        f"{what} is not a DataFrame",
        where=where,
        got=f"{value!r}, of type {type(value).__name__}",
        expected="a DataFrame",
        fix=f"spark.table({value!r})" if isinstance(value, str) else "spark.table(...)",
    )
