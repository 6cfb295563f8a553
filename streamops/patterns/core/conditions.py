"""Conditions of variables, as users write them.

A condition is Spark SQL, which Spark evaluates row by row before the rows are packed. Or it is an
expression that compares values of a row with values of earlier rows of its key, or of the first row of the
match: the values are Spark SQL, and the comparison is evaluated here, once the rows are in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import type_name
from streamops.kernel.errors import SpecError
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.ordering import ranks
from streamops.patterns import conditions
from streamops.patterns.core.measures import Measure

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


class Literal(Expression):
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
        case Literal():
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
        return Literal(value)
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
