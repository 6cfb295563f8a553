"""Transforms that look at one row at a time: expressions of Spark's, no state, no Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import DataType, StructField, TimestampType

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.checks import METRICS, metric_name
from streamops.spark.columns import column, refuse_duplicates, require_name, suggest_timestamp
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.operator import show_fields

__all__ = ["RowTransform", "Rowwise", "instant_field", "noted", "refuse_taken", "require_names"]


class Rowwise(Protocol):
    """What a user said about such a transform: a dataclass, shown field by field."""

    @property
    def adds(self) -> tuple[str, ...]:
        """Columns that it adds."""

    @property
    def marked(self) -> str:
        """The column whose metadata tells which names of counts are taken."""

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns it reads."""

    def apply(self, frame: DataFrame) -> DataFrame:
        """The frame with its new columns."""

    def counts(self) -> Mapping[str, Column]:
        """What is counted, over the columns of the result."""


@dataclass(frozen=True, slots=True, repr=False)
class RowTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform``.

    Each row of the result is made of one row of the input, and they are counted on the way:
    one pass, in the task that has the row. Its ``repr`` shows the whole specification.

    Parameters
    ----------
    operator : str
        Its public name, such as "time.guard".
    settings : Rowwise
        What it does.
    name : str
        Under which the counts appear in ``observedMetrics``.
    """

    operator: str
    settings: Rowwise
    name: str

    @classmethod
    def of(cls, operator: str, settings: Rowwise, name: str | None) -> RowTransform:
        """The transform, its name checked; left out, it is the operator's own."""
        if name is not None:
            require_name(name, parameter="name", where=operator)
        return cls(operator, settings, name or operator.rpartition(".")[2])

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        frame = drop_stale_metadata(frame)
        refuse_duplicates(frame, where=self.operator)
        self.settings.check(frame)
        refuse_taken(frame, self.settings.adds, where=self.operator)
        result = self.settings.apply(frame)
        if not frame.isStreaming:
            # Nobody listens to the counts of a batch unasked, and Spark refuses two of one name.
            asked = self.name != self.operator.rpartition(".")[2]
            return result.observe(self.name, *self._counted()) if asked else result
        name, names = metric_name(frame, self.name)
        counted = result.observe(name, *self._counted())
        return noted(counted, self.settings.marked, {METRICS: ",".join(names)})

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), f"name={self.name!r}"]
        return f"{self.operator}({', '.join(said)})"

    def _counted(self) -> list[Column]:
        return [count.alias(name) for name, count in self.settings.counts().items()]


def refuse_taken(frame: DataFrame, adds: Sequence[str], *, where: str) -> None:
    """Refuse a frame that has a column of ours: to Spark, upper and lower case are one.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``.
    """
    there = {name.lower(): name for name in frame.schema.names}
    for name in adds:
        if name.lower() in there:
            was = there[name.lower()]
            raise SchemaError(
                "NAME_TAKEN",
                f"the frame has a column {was!r} already",
                where=where,
                got=f"columns {', '.join(frame.schema.names)}",
                expected=f"a frame without {', '.join(adds)}",
                fix=f"df.withColumnRenamed({was!r}, ...) before this operator",
            )


def instant_field(
    frame: DataFrame,
    name: str,
    *,
    role: str,
    where: str,
    accepts: Callable[[DataType], bool] = lambda kind: False,
    expected: str = "timestamp",
) -> StructField:
    """The field of a column that holds instants.

    Parameters
    ----------
    frame : DataFrame
    name, role, where : str
        For the error: the column, the parameter that names it, the operator.
    accepts : function
        Which types do beside timestamp.
    expected : str
        All types that do, in words.

    Raises
    ------
    ColumnNotFound
        There is no such column.
    SchemaError
        ``COLUMN_TYPE``.
    """
    fields = {field.name: field for field in frame.schema.fields}
    if name not in fields:
        raise ColumnNotFound(name, list(fields), where=where, role=role)
    field = fields[name]
    if not (isinstance(field.dataType, TimestampType) or accepts(field.dataType)):
        raise SchemaError(
            "COLUMN_TYPE",
            f"column {name!r} cannot be used as `{role}`",
            where=where,
            got=f"{name!r} of type {field.dataType.simpleString()}",
            expected=expected,
            fix=suggest_timestamp(name, field.dataType.simpleString()),
        )
    return field


def require_names(where: str, **named: Any) -> None:
    """Refuse parameters that are no names of columns, or name the same column twice.

    Raises
    ------
    SpecError
        ``NOT_A_NAME`` or ``SAME_COLUMN``.
    """
    roles: dict[str, str] = {}
    for role, name in named.items():
        require_name(name, parameter=role, where=where)
        if name in roles:
            raise SpecError(
                "SAME_COLUMN",
                f"`{roles[name]}` and `{role}` name the same column",
                where=where,
                got=f"{roles[name]}={name!r}, {role}={name!r}",
                expected="a column for each",
                fix=f"name the column that holds what `{role}` says",
            )
        roles[name] = role


def noted(frame: DataFrame, name: str, told: Mapping[str, Any]) -> DataFrame:
    """The frame with something for the next operator in the metadata of one column."""
    columns = []
    for field in frame.schema.fields:
        each = column(field.name)
        both = {**(field.metadata or {}), **told}
        columns.append(each.alias(field.name, metadata=both) if field.name == name else each)
    return frame.select(*columns)
