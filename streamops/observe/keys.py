"""Transforms of frames by key columns: validation, ``repr`` and grouping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.parameters import parse_names
from streamops.observe import conditions
from streamops.spark.columns import column
from streamops.spark.operator import show_call

__all__ = ["KeyedTransform", "group_keys", "parse_keys"]


@dataclass(frozen=True, slots=True, repr=False)
class KeyedTransform:
    """Parameters of a transform with key columns. `where` is its public name."""

    where: str = field(repr=False)
    by: tuple[str, ...]

    def __repr__(self) -> str:
        return show_call(self.where, self)


def parse_keys(by: object, reserved: Sequence[str]) -> tuple[str, ...]:
    """Return the key columns. They must differ from each other and from the `reserved` columns.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, or ``NAME_TAKEN``: Spark ignores upper and lower case.
    """
    names = parse_names(by, parameter="by")
    folded = [name.lower() for name in names]
    taken = [name for name in names if folded.count(name.lower()) > 1 or name.lower() in reserved]
    if taken:
        raise conditions.NAME_TAKEN.error(
            names=", ".join(dict.fromkeys(taken)), reserved=", ".join(reserved), got=f"by={names!r}"
        )
    return names


def group_keys(by: Sequence[str]) -> list[Column]:
    """Return the grouping columns. A constant replaces an empty list, which has a row for no input.

    They have no watermark metadata: Spark would drop late rows.
    """
    return [column(name).alias(name, metadata={}) for name in by] or [F.lit("")]
