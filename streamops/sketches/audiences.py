"""Overlaps of audiences as an aggregate."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column

from streamops.kernel.aggregation import Summary
from streamops.kernel.errors import SchemaError, SpecError
from streamops.sketches.aggregation import no_spark, require_column, require_item
from streamops.sketches.core.theta import Overlap
from streamops.sketches.theta import DEFAULT_K, refuse_k
from streamops.spark.columns import require_name, type_name

__all__ = ["MOST_AUDIENCES", "OverlapAggregate", "approx_overlap"]

MOST_AUDIENCES = 16
_NAMES = (str, bytes, int, dt.date)  # a bool is an int, an instant is a date: it is refused below
_INSTEAD = "aggregates.count_distinct"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class OverlapAggregate:
    """How many distinct values audiences have and share. Made by :func:`approx_overlap`.

    Parameters
    ----------
    column, of : str
        The values; the audience that a row speaks of.
    between : tuple
        The audiences.
    k : int
        Hashes kept per audience.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``NOT_AUDIENCES`` or ``K_OUT_OF_RANGE``.
    """

    column: str
    of: str
    between: tuple[Any, ...]
    k: int = DEFAULT_K

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        where = "aggregates.approx_overlap"
        require_name(self.column, parameter="column", where=where)
        require_name(self.of, parameter="of", where=where)
        _refuse_audiences(self.between, where)
        refuse_k(self.k, where)

    def __repr__(self) -> str:
        arguments = f"of={self.of!r}, between={list(self.between)!r}, k={self.k}"
        return f"approx_overlap({self.column!r}, {arguments})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return (self.column, self.of)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        for name in self.columns:
            require_column(name, schema, repr(self), _INSTEAD, where)
        require_item(schema.field(self.column).type, column=self.column, where=where)
        return Overlap(self.column, self.of, self._audiences(schema, where), self.k)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same as a Spark expression, where Spark has the sketch: not here."""
        raise no_spark("aggregates.approx_overlap", repr(self))

    def _audiences(self, schema: pa.Schema, where: str) -> pa.Array:
        dtype = schema.field(self.of).type
        try:
            if _holds(dtype):
                return pa.array(self.between, dtype)
        except (pa.ArrowException, TypeError, OverflowError):
            pass
        raise SchemaError(
            "AUDIENCE_TYPE",
            "the audiences are no values of the column that names them",
            where=where,
            got=f"between={list(self.between)!r}, column {self.of!r} of type {type_name(dtype)}",
            expected="values of the column's type: string, integer, boolean, date or binary",
            fix="write them as they stand in the column, or cast it",
        )


def approx_overlap(
    column: str, *, of: str, between: Sequence[Any], k: int = DEFAULT_K
) -> OverlapAggregate:
    """How many distinct values audiences have, and how many each two of them share.

    ``struct<audiences: array<...>, pairs: array<...>>``, in the order of `between`:

    - of each audience the ``audience``, ``estimate``, ``lower``, ``upper``, ``relative_error``;
    - of each two ``left`` and ``right``, and what they have in ``both``, in ``only_left``, in
      ``only_right`` and in ``either``, each with those four; and ``jaccard``, the share of both
      among either: ``estimate``, ``lower``, ``upper``. It is null where both audiences are empty.

    All is exact while no audience has more than `k` distinct values. Beyond, the truth lies
    between the bounds, two standard errors away, in 95 cases of 100. What is shared by few of many
    is found in few of `k` hashes: an overlap of a hundredth errs ten times as far as an audience.
    Sizes of what two share add up; those of audiences are more exact, and need not fit them.

    Parameters
    ----------
    column : str
        The values, such as users. Of any type that has a hash: not maps. Null is not counted.
    of : str
        The column that says which audience a row speaks of, such as a campaign or a page. Rows of
        other audiences, and of none, are left out.
    between : sequence
        The audiences, 2 to 16 of them: strings, integers, booleans, dates or binary values.
    k : int
        Hashes kept per audience: see :func:`approx_count_distinct_theta`.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``NOT_AUDIENCES`` or ``K_OUT_OF_RANGE``.

    Examples
    --------
    >>> approx_overlap("user_id", of="campaign", between=["spring", "summer"])
    approx_overlap('user_id', of='campaign', between=['spring', 'summer'], k=4096)
    """
    names = between if isinstance(between, str | bytes) else _listed(between)
    return OverlapAggregate(column=column, of=of, between=names, k=k)  # type: ignore[arg-type]


def _listed(between: object) -> Any:
    return tuple(between) if isinstance(between, Sequence) else between


def _refuse_audiences(between: object, where: str) -> None:
    named = isinstance(between, tuple) and 2 <= len(between) <= MOST_AUDIENCES
    if named:
        assert isinstance(between, tuple)
        plain = all(isinstance(item, _NAMES) and not _instant(item) for item in between)
        if plain and len(set(between)) == len(between):
            return
    raise SpecError(
        "NOT_AUDIENCES",
        "`between` does not say which audiences are compared",
        where=where,
        got=f"between={list(between) if isinstance(between, tuple) else between!r}",
        expected=f"2 to {MOST_AUDIENCES} values unlike one another: strings, integers, booleans, "
        "dates or binary",
        fix='between=["spring", "summer"]',
    )


def _instant(value: object) -> bool:
    return isinstance(value, dt.datetime)


def _holds(dtype: pa.DataType) -> bool:
    """Whether values of this type can be written in a plan."""
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(check(dtype) for check in checks)
