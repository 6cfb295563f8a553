"""Expressions over the rows of a match: conditions of variables, and measures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import Aggregation, Summary, make_lists
from streamops.kernel.columns import combine_chunks, type_name
from streamops.kernel.errors import SpecError
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks
from streamops.patterns import conditions

Function = Literal["first", "last", "collect_list", "classifiers", "aggregate"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A value of the rows of a match, as a user writes it.

    Parameters
    ----------
    text : str
        The call that made it, without the module.
    function : str
        "aggregate", or a function that depends on the order of rows.
    variables : tuple of str
        The rows of these variables; without any, all rows of the match that have a variable.
    column : str, optional
    aggregation : Aggregation, optional
        Of an "aggregate".
    """

    text: str
    function: Function
    variables: tuple[str, ...]
    column: str | None = None
    aggregation: Aggregation | None = None

    def __repr__(self) -> str:
        return self.text

    def in_condition(self) -> SpecError:
        """The error for a measure in a condition."""
        return conditions.CONDITION_OVER_MATCH.error(got=f"{self.text} in a condition")

    def _refuse(self, other: object) -> NoReturn:
        raise self.in_condition()

    __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse


@dataclass(frozen=True, slots=True)
class ResolvedMeasure:
    """A measure, resolved against the columns and the variables of the pattern.

    Parameters
    ----------
    name : str
        Of the output column.
    text : str
        As the user wrote it.
    function : str
    variables : frozenset of int
        Numbers of variables; empty for all.
    column : str, optional
    summary : Summary, optional
        Of an "aggregate".
    type : DataType
    """

    name: str
    text: str
    function: Function
    variables: frozenset[int]
    column: str | None
    summary: Summary | None
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Labels:
    """The rows of matches that have a variable, sorted by match and in the order of the match.

    Parameters
    ----------
    match, row, variable : arrays of int
        The match, the position of the row in the table, and the number of its variable.
    count : int
        Number of matches.
    """

    match: Ids
    row: Ids
    variable: Ids
    count: int

    def only(self, variables: frozenset[int]) -> Labels:
        """The rows of these variables; all of them if there are none."""
        if not variables:
            return self
        rows = np.flatnonzero(np.isin(self.variable, sorted(variables)))
        return Labels(self.match[rows], self.row[rows], self.variable[rows], self.count)


def measure(
    what: ResolvedMeasure, labels: Labels, rows: pa.Table, variables: tuple[str, ...]
) -> pa.Array:
    """The measure of every match."""
    found = labels.only(what.variables)
    if what.summary is not None:
        used = rows.select([*what.summary.inputs]) if what.summary.inputs else rows.select([])
        taken = (
            used.take(pa.array(found.row)) if used.num_columns else rows.take(pa.array(found.row))
        )
        return what.summary.estimate(what.summary.update(Groups(found.match, found.count), taken))
    sizes = np.bincount(found.match, minlength=found.count)
    if what.function == "classifiers":
        names = pa.array(variables, pa.string()).take(pa.array(found.variable))
        return make_lists(names, sizes)
    assert what.column is not None
    column = combine_chunks(rows.column(what.column))
    if what.function == "collect_list":
        return make_lists(column.take(pa.array(found.row)), sizes)
    ends = np.cumsum(sizes)
    at = ends - sizes if what.function == "first" else ends - 1
    some = sizes > 0
    index = np.zeros(found.count, np.int64)
    index[some] = found.row[at[some]]
    return column.take(pa.array(index, mask=~some))


_COMPARE: Mapping[str, Callable[[Ids, Ids], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_COMPARE_DECIMALS: Mapping[str, Any] = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}
_COMBINE: Mapping[str, Any] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "&": pc.and_kleene,
    "|": pc.or_kleene,
}


class Expression:
    """Part of a condition. Operators combine parts: comparisons, ``+ - *``, and ``& | ~``.

    Text on either side of an operator is Spark SQL of the row; numbers and booleans are literals. Null is
    not true. The order of values is that of Spark: NaN equals NaN, and is the largest number.
    """

    __slots__ = ()

    __hash__ = object.__hash__

    def __lt__(self, other: object) -> Expression:
        return Operation("<", self, to_expression(other))

    def __le__(self, other: object) -> Expression:
        return Operation("<=", self, to_expression(other))

    def __gt__(self, other: object) -> Expression:
        return Operation(">", self, to_expression(other))

    def __ge__(self, other: object) -> Expression:
        return Operation(">=", self, to_expression(other))

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return Operation("==", self, to_expression(other))

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return Operation("!=", self, to_expression(other))

    def __add__(self, other: object) -> Expression:
        return Operation("+", self, to_expression(other))

    def __radd__(self, other: object) -> Expression:
        return Operation("+", to_expression(other), self)

    def __sub__(self, other: object) -> Expression:
        return Operation("-", self, to_expression(other))

    def __rsub__(self, other: object) -> Expression:
        return Operation("-", to_expression(other), self)

    def __mul__(self, other: object) -> Expression:
        return Operation("*", self, to_expression(other))

    def __rmul__(self, other: object) -> Expression:
        return Operation("*", to_expression(other), self)

    def __and__(self, other: object) -> Expression:
        return Operation("&", self, to_expression(other))

    def __rand__(self, other: object) -> Expression:
        return Operation("&", to_expression(other), self)

    def __or__(self, other: object) -> Expression:
        return Operation("|", self, to_expression(other))

    def __ror__(self, other: object) -> Expression:
        return Operation("|", to_expression(other), self)

    def __invert__(self) -> Expression:
        return Negation(self)

    def __bool__(self) -> bool:
        got = f"{self!r} with `and`, `or`, `not` or in an `if`"
        raise conditions.CONDITION_AS_BOOLEAN.error(got=got)

    def is_null(self) -> Expression:
        """Whether the value is null, such as that of a previous row that does not exist."""
        return NullTest(self)


class Value(Expression):
    """The value of Spark SQL, of the row or of the row ``offset`` rows before it."""

    __slots__ = ("offset", "text")

    def __init__(self, text: str, offset: int) -> None:
        self.text, self.offset = text, offset

    def __repr__(self) -> str:
        if not self.offset:
            return f"current({self.text!r})"
        return f"previous({self.text!r}{f', {self.offset}' if self.offset > 1 else ''})"


class Initial(Value):
    """The value of Spark SQL, of the first row of the match."""

    __slots__ = ()

    def __init__(self, text: str) -> None:
        super().__init__(text, 0)

    def __repr__(self) -> str:
        return f"initial({self.text!r})"


class Constant(Expression):
    """A number or a boolean."""

    __slots__ = ("value",)

    def __init__(self, value: bool | int | float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


class Operation(Expression):
    """Two parts and an operator between them."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Expression, right: Expression) -> None:
        self.operator, self.left, self.right = operator, left, right

    def __repr__(self) -> str:
        return f"({self.left!r} {self.operator} {self.right!r})"


class Negation(Expression):
    """The opposite of a condition."""

    __slots__ = ("part",)

    def __init__(self, part: Expression) -> None:
        self.part = part

    def __repr__(self) -> str:
        return f"~{self.part!r}"


class NullTest(Expression):
    """Whether a value is null."""

    __slots__ = ("part",)

    def __init__(self, part: Expression) -> None:
        self.part = part

    def __repr__(self) -> str:
        return f"{self.part!r}.is_null()"


Values = Callable[[Value], pa.Array]
"""The values that an expression reads, one for each row."""


def values_of(expression: Expression) -> Iterator[Value]:
    """Each value that an expression reads."""
    match expression:
        case Value():
            yield expression
        case Operation():
            yield from values_of(expression.left)
            yield from values_of(expression.right)
        case Negation() | NullTest():
            yield from values_of(expression.part)


def is_anchored(condition: object) -> bool:
    """Whether a condition depends on the first row of the match."""
    return isinstance(condition, Expression) and any(
        isinstance(value, Initial) for value in values_of(condition)
    )


def holds(name: str, condition: Expression, values: Values) -> Mask:
    """Which rows satisfy the condition of a variable. Null is not true.

    Raises
    ------
    CapacityError
        ``NUMERIC_OVERFLOW``: a number does not fit into its type, as in Spark's arithmetic.
    """
    try:
        return np.asarray(evaluate(condition, values).fill_null(False))
    except pa.ArrowInvalid:
        types = {of.text: type_name(values(of).type) for of in values_of(condition)}
        listed = ", ".join(f"{text} is {dtype}" for text, dtype in types.items())
        raise conditions.CONDITION_OVERFLOW.error(
            name=name, got=f"{condition!r}; {listed}"
        ) from None


def evaluate(expression: Expression, values: Values) -> pa.Array | pa.Scalar:
    """Evaluate an expression for each row."""
    match expression:
        case Value():
            return values(expression)
        case Constant():
            return pa.scalar(expression.value)
        case Negation():
            return pc.invert(evaluate(expression.part, values))
        case NullTest():
            return pc.is_null(evaluate(expression.part, values))
    assert isinstance(expression, Operation)
    left, right = (evaluate(part, values) for part in (expression.left, expression.right))
    if expression.operator in _COMPARE:
        return _compare(expression.operator, left, right)
    return _COMBINE[expression.operator](left, right)


def to_expression(value: object) -> Expression:
    """Text as Spark SQL of the row, numbers and booleans as literals."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str) and value:
        return Value(value, 0)
    if isinstance(value, bool | int | float):
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            is_short = abs(value) < 1 << 1000
            got = f"{value:.5e}" if is_short else "an integer of more than 1,000 bits"
            raise conditions.INTEGER_TOO_LARGE.error(got=got)
        return Constant(value)
    raise not_a_condition(value)


def require_boolean(name: str, condition: Expression, types: Mapping[str, pa.DataType]) -> None:
    """Refuse the condition of a variable if it cannot be evaluated on values of these types.

    Raises
    ------
    SchemaError
        ``CONDITION_INVALID``.
    """
    listed = ", ".join(f"{text} is {type_name(dtype)}" for text, dtype in types.items())
    try:
        value = evaluate(condition, lambda of: pa.nulls(1, types[of.text]))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError):
        raise conditions.CONDITION_TYPES.error(name=name, got=f"{condition!r}; {listed}") from None
    if not pa.types.is_boolean(value.type):
        raise conditions.CONDITION_NOT_BOOLEAN.error(
            name=name, got=f"{condition!r} of type {type_name(value.type)}"
        )


def not_a_condition(value: object) -> SpecError:
    """The error for a value that cannot be part of a condition."""
    if isinstance(value, Measure):
        return value.in_condition()
    return conditions.NOT_A_CONDITION.error(got=f"{value!r} of type {type(value).__name__}")


def _compare(operator: str, left: Any, right: Any) -> pa.Array:
    """Compare as Spark does, null if either side is."""
    types = left.type, right.type
    if any(map(pa.types.is_decimal, types)) and not any(map(pa.types.is_floating, types)):
        return _COMPARE_DECIMALS[operator](left, right)
    if types[0] != types[1]:
        common = _common_type(*types)
        left, right = left.cast(common, safe=False), right.cast(common, safe=False)
    size = max(len(side) for side in (left, right) if isinstance(side, pa.Array))
    sides = [
        side if isinstance(side, pa.Array) else pa.repeat(side, size) for side in (left, right)
    ]
    order = ranks(pa.concat_arrays(sides))
    missing = np.asarray(sides[0].is_null()) | np.asarray(sides[1].is_null())
    return pa.array(_COMPARE[operator](order[:size], order[size:]), mask=missing)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    numbers = [pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal]
    if not all(any(is_(dtype) for is_ in numbers) for dtype in (left, right)):
        message = f"{left} and {right} cannot be compared"
        raise pa.ArrowNotImplementedError(message)
    both = pa.types.is_integer(left) and pa.types.is_integer(right)
    return pa.int64() if both else pa.float64()
