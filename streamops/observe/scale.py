"""The scale on which lateness is counted: bounds, and the names of the columns for them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructType

from streamops.kernel.errors import SpecError, StreamopsError
from streamops.kernel.parameters import MILLISECOND
from streamops.kernel.time import Duration, format_duration, parse_duration

__all__ = ["ANY", "BOUNDS", "LATENESS", "SAVED", "Scale"]

BOUNDS = (
    *("1 second", "3 seconds", "10 seconds", "30 seconds"),
    *("1 minute", "3 minutes", "10 minutes", "30 minutes"),
    *("1 hour", "3 hours", "12 hours", "1 day", "3 days", "7 days", "28 days"),
)
"""Each at most four times the one before."""

LATENESS, SAVED = "lateness", "saved"
_PREFIX = {LATENESS: "up_to_", SAVED: "with_"}
ANY = "any"
_MOST = 64


@dataclass(frozen=True, slots=True)
class Scale:
    """Bounds in microseconds, ascending.

    Counts are cumulative: each says how many rows there are up to its bound. So the counts of two
    accounts add up, and a share is one division.
    """

    bounds: tuple[int, ...]

    @staticmethod
    def of(bounds: object, *, where: str) -> Scale:
        """The scale as the user wrote it, or an error."""
        if isinstance(bounds, (str, dt.timedelta)) or not isinstance(bounds, Iterable):
            bounds = (bounds,)
        said = tuple(bounds)
        micros = [
            parse_duration(
                each, parameter="bounds", where=where, minimum=MILLISECOND, whole=MILLISECOND
            )
            for each in said
        ]
        ascends = all(one < other for one, other in pairwise(micros))
        if not (ascends and 1 <= len(micros) <= _MOST):
            raise SpecError(
                "BOUNDS_NOT_ASCENDING" if not ascends else "BOUNDS_OUT_OF_RANGE",
                "`bounds` is not a scale",
                where=where,
                got=f"bounds={said!r}",
                expected=f"from 1 to {_MOST} durations, each longer than the one before",
                fix='leave it out, or write bounds=("1 minute", "10 minutes", "1 hour"), say',
            )
        return Scale(tuple(micros))

    @staticmethod
    def told_by(kind: Any, struct: str) -> Scale | None:
        """The scale of a column of an account; None where it is no such column."""
        if not isinstance(kind, StructType) or struct not in _PREFIX:
            return None
        if not all(isinstance(field.dataType, LongType) for field in kind.fields):
            return None
        names = [name for name in kind.names if name != ANY]
        try:
            scale = Scale.of(tuple(_bounds_of(names, _PREFIX[struct])), where="")
        except StreamopsError:
            return None
        return scale if kind.names == scale.names(struct) else None

    def names(self, struct: str) -> list[str]:
        """The fields of the struct ``lateness``, or of ``saved``."""
        prefix = _PREFIX[struct]
        told = [prefix + format_duration(each).replace(" ", "_") for each in self.bounds]
        return [*told, ANY] if struct == LATENESS else told

    def counted(self, struct: str, conditions: Sequence[Column]) -> Column:
        """The struct, made by counting the rows in which each condition holds."""
        pairs = zip(self.names(struct), conditions, strict=True)
        return F.struct(*(F.count_if(each).alias(name) for name, each in pairs)).alias(struct)

    def summed(self, struct: str) -> Column:
        """The struct, made by adding up others like it."""
        told = F.col(struct)
        names = self.names(struct)
        return F.struct(*(F.sum(told[name]).alias(name) for name in names)).alias(struct)


def _bounds_of(names: Sequence[str], prefix: str) -> Iterator[Duration]:
    for name in names:
        yield name.removeprefix(prefix).replace("_", " ")
