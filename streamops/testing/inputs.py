"""What a script is run with: a chain of operators, and the micro-batches of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import parse_delay
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator
from streamops.testing.batches import schema_of, to_table

if TYPE_CHECKING:
    from streamops.testing.batches import Batch

    Inputs: TypeAlias = Batch | tuple[Batch | None, Batch | None]

__all__ = [
    "Chain",
    "Delays",
    "Schemas",
    "delays_of",
    "expand",
    "parse_optional",
    "schemas_of",
    "tables_of",
]

Chain: TypeAlias = "Operator | Sequence[Operator]"
Delays: TypeAlias = "Duration | tuple[Duration | None, Duration | None] | None"
Schemas: TypeAlias = "pa.Schema | tuple[pa.Schema | None, ...] | None"


def expand(operator: Chain) -> list[Operator]:
    """The operators of a chain, follow-up operators included.

    Raises
    ------
    SpecError
        ``NOT_A_CHAIN``: something in it is not an operator with a core, or has two inputs and is not
        the first.
    """
    chain: list[Any] = list(operator) if isinstance(operator, list | tuple) else [operator]
    operators: list[Operator] = []
    for at, each in enumerate(chain or [None]):
        if (
            not isinstance(each, Operator)
            or each.core is None
            or (at and len(each.parameters.times) > 1)
        ):
            raise SpecError(
                "NOT_A_CHAIN",
                "the test kit cannot run this",
                where="streamops.testing",
                got=repr(each),
                expected="an operator such as windows.tumbling(...), or a list of operators, of which only "
                "the first may have two inputs",
                fix="test column expressions and joins within a chain as a query, on "
                "testing.micro_batches",
            )
        if each.initial is not None:
            raise SpecError(
                "NOT_IN_A_SCRIPT",
                "a replay has no frames, and `snapshot` is one",
                where="streamops.testing",
                got=f"snapshot=... in {each.name}",
                expected="an operator without it",
                fix="leave snapshot out, and write its rows into the script; or run it on Spark: "
                "streamops.testing.stream",
            )
        operators.append(each)
        if each.follow_up is not None:
            operators.append(each.second(each.follow_up))
    return operators


def schemas_of(
    operator: Operator, batches: Sequence[Any], schema: Schemas
) -> tuple[pa.Schema, ...]:
    """Columns of each input of a script: as given, of its first tables, or as its rows suggest."""
    if len(operator.parameters.times) == 1:
        single: Any = schema
        return (schema_of(batches, single),)
    given: Any = (None, None) if schema is None else schema
    if not isinstance(given, tuple) or len(given) != 2:
        raise _not_a_pair("schema", given, "a pair of schemas: schema=(left, right)")
    for batch in batches:
        _refuse_single(batch)
    return tuple(
        schema_of([batch[at] for batch in batches if batch[at] is not None], given[at])
        for at in (0, 1)
    )


def tables_of(batch: Any, schemas: tuple[pa.Schema, ...]) -> tuple[pa.Table, ...]:
    """Each input of a micro-batch with exactly these columns; None has no rows."""
    if len(schemas) == 1:
        return (to_table(batch, schemas[0]),)
    _refuse_single(batch)
    return tuple(
        schema.empty_table() if rows is None else to_table(rows, schema)
        for rows, schema in zip(batch, schemas, strict=True)
    )


def delays_of(operator: Operator, watermark: Delays) -> tuple[Duration | None, ...]:
    """Delays of the watermarks that the frames bring: one, a pair, or one for both."""
    if len(operator.parameters.times) == 1:
        single: Any = watermark
        return (single,)
    if isinstance(watermark, tuple):
        if len(watermark) != 2:
            raise _not_a_pair("watermark", watermark, 'one delay, or a pair: ("5 seconds", None)')
        return watermark
    return watermark, watermark


def parse_optional(watermark: Duration | None) -> int | None:
    """Microseconds of the delay of a watermark that a frame brings."""
    if watermark is None:
        return None
    return parse_delay(watermark, parameter="watermark", where="streamops.testing")


def _refuse_single(batch: Any) -> None:
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise _not_a_pair("a micro-batch", batch, "a pair: (rows of the left, rows of the right)")


def _not_a_pair(what: str, got: Any, expected: str) -> SpecError:
    return SpecError(
        "NOT_A_PAIR",
        f"{what} of an operator with two inputs is a pair",
        where="streamops.testing",
        got=f"{got!r:.100}",
        expected=expected,
        fix="write None for an input that has nothing: (rows, None)",
    )
