"""Measures of a match, and operands of conditions."""

from __future__ import annotations

from collections.abc import Sequence

from streamops import aggregates
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import parse_names
from streamops.patterns import conditions
from streamops.patterns.core.conditions import Expression, Initial, Value
from streamops.patterns.core.measures import Function, Measure

__all__ = [
    "classifiers",
    "collect_list",
    "count",
    "current",
    "first",
    "initial",
    "last",
    "max",
    "mean",
    "min",
    "previous",
    "sum",
]

Variables = str | Sequence[str] | None


def count(variable: Variables = None, column: str | None = None) -> Measure:
    """Count the rows of a variable, or those with a value in a column.

    Parameters
    ----------
    variable : str or sequence of str, optional
        A variable of the pattern, or several. By default all rows of the match that have one: rows
        that a gap skipped have none.
    column : str, optional
        Count values that are not null.
    """
    names = () if column is None else (column,)
    return _aggregate("count", variable, names, aggregates.count(column))


def first(variable: Variables, column: str) -> Measure:
    """Return the column of the first row of a variable, also if it is null.

    Parameters
    ----------
    variable : str or sequence of str, optional
        A variable of the pattern, or several. None for all rows of the match that have one.
    column : str
    """
    return _ordered("first", variable, column)


def last(variable: Variables, column: str) -> Measure:
    """Return the column of the last row of a variable, also if it is null; as :func:`first`."""
    return _ordered("last", variable, column)


def sum(variable: Variables, column: str) -> Measure:
    """Sum a numeric column over the rows of a variable; null without values."""
    return _aggregate("sum", variable, (column,), aggregates.sum(column))


def mean(variable: Variables, column: str) -> Measure:
    """Average a numeric column over the rows of a variable; null without values."""
    return _aggregate("mean", variable, (column,), aggregates.mean(column))


def min(variable: Variables, column: str) -> Measure:
    """Return the least value of a column over the rows of a variable; null without values."""
    return _aggregate("min", variable, (column,), aggregates.min(column))


def max(variable: Variables, column: str) -> Measure:
    """Return the greatest value of a column over the rows of a variable; null without values."""
    return _aggregate("max", variable, (column,), aggregates.max(column))


def collect_list(variable: Variables, column: str) -> Measure:
    """List a column of the rows of a variable, in order, with nulls; empty without rows."""
    return _ordered("collect_list", variable, column)


def classifiers() -> Measure:
    """List the variable of every row of the match that has one, in order."""
    return Measure("classifiers()", "classifiers", ())


def previous(value: str, offset: int = 1) -> Expression:
    """Refer to an earlier row of the key in a condition.

    Compare it with Spark SQL of the row, a number or another reference, by ``< <= > >= == !=``, and
    combine comparisons by ``& | ~``. ``+ - *`` compute with numbers.

    Parameters
    ----------
    value : str
        Spark SQL of the earlier row, such as the name of a column.
    offset : int
        How many rows before: 1 is the row directly before, whether it is part of the match or not. The
        value is null if there is none, or if it is at least `within` older.

    Examples
    --------
    >>> from streamops import patterns
    >>> "volume > 0" & (patterns.previous("price") > "price")
    (current('volume > 0') & (previous('price') > current('price')))
    """
    if type(offset) is not int or offset < 1:
        raise conditions.OFFSET_OUT_OF_RANGE.error(got=f"offset={offset!r}")
    return Value(value, offset)


def initial(value: str) -> Expression:
    """Refer to the first row of the match in a condition, as ``FIRST(price)`` in ``MATCH_RECOGNIZE``.

    It is used as :func:`previous`, and together with it. In the condition of the first row, it is that
    row itself. The condition is evaluated for each start of a match and each row that is needed to decide
    it: a condition of the first variable, which makes starts few, makes it fast.

    Parameters
    ----------
    value : str
        Spark SQL of the first row of the match, such as the name of a column.

    Examples
    --------
    >>> from streamops import patterns
    >>> "price" < patterns.initial("price") * 0.9
    ((initial('price') * 0.9) > current('price'))
    """
    return Initial(value)


def current(value: str) -> Expression:
    """Refer to the row itself in a condition over other rows; as text, on the left of an operator.

    Parameters
    ----------
    value : str
        Spark SQL, such as the name of a column.
    """
    return Value(value, 0)


def _ordered(function: Function, variable: Variables, column: str) -> Measure:
    variables = _variables(variable)
    return Measure(_text(function, variable, (column,)), function, variables, column)


def _aggregate(
    function: str, variable: Variables, columns: tuple[str, ...], aggregation: Aggregation
) -> Measure:
    text, variables = _text(function, variable, columns), _variables(variable)
    return Measure(text, "aggregate", variables, aggregation=aggregation)


def _variables(variable: Variables) -> tuple[str, ...]:
    if variable is None:
        return ()
    return parse_names(variable, parameter="variable")


def _text(function: str, variable: Variables, columns: tuple[str, ...]) -> str:
    given = [*([] if variable is None and not columns else [repr(variable)]), *map(repr, columns)]
    return f"{function}({', '.join(given)})"
