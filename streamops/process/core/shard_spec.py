"""Bases for operators of your own: parameters, and the algorithm over the columns of a shard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Self

import pyarrow as pa

from streamops.kernel.core import Input
from streamops.kernel.errors import SpecError
from streamops.kernel.operator import Core
from streamops.kernel.parameters import (
    require_columns,
    require_instant,
    require_keys,
    require_name,
    show_duration,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec:
    """Parameters of an operator with one input: the base of those of your own.

    A subclass is a frozen dataclass (``@dataclass(frozen=True, kw_only=True)``). It adds fields, defines
    ``output``, and overrides ``identity`` if its state depends on these fields.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors and as the name of its metrics.
    by : tuple of str
        Key columns. Rows with equal keys are in one shard.
    time : str, optional
        Event-time column. None if the operator works without event time.
    delay : int, optional
        Delay of the watermark that the operator defines, in microseconds.
    input : Schema
        Resolved: the columns of the frame.
    """

    operator: str = field(repr=False)
    by: tuple[str, ...]
    time: str | None = None
    delay: int | None = field(default=None, metadata={"shown": show_duration})
    input: pa.Schema = field(default=pa.schema([]), repr=False)

    lag: ClassVar[int] = 0
    held_back: ClassVar[int] = 0
    accepts_revisions: ClassVar[tuple[bool]] = (False,)
    needs_preimages: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_name(self.operator, parameter="operator", where="process.per_shard")
        for name in self.by:
            require_name(name, parameter="by", where=self.operator)

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns that the operator reads. Override it to have them checked."""
        return ()

    @property
    def output(self) -> pa.Schema:
        """Columns of the output. Override it."""
        raise NotImplementedError

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that the state depends on, as JSON: a checkpoint is refused if one changes."""
        keys = [[name, str(self.input.field(name).type)] for name in self.by]
        return {"by": keys, "time": self.time}

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns against the schema of the frame."""
        (schema,) = schemas
        required = {"by": self.by, "time": [self.time], "columns": self.columns}
        require_columns(schema.names, required, where=self.operator)
        require_keys(schema, self.by, where=self.operator)
        read = {*self.by, *self.columns}
        if self.time is not None:
            require_instant(schema, self.time, where=self.operator)
            read.add(self.time)
        read = read or {schema.names[0]}  # rows without columns cannot be counted
        columns = pa.schema([column for column in schema if column.name in read])
        return replace(self, input=columns, delay=None if carried[0] is not None else self.delay)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input."""
        return (Input(self.by, self.time, self.input, self.delay),)

    @property
    def times(self) -> tuple[str | None, ...]:
        """The event-time column."""
        return (self.time,)

    @property
    def delays(self) -> tuple[int | None, ...]:
        """Delay of the watermark that the operator defines."""
        return (self.delay,)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Columns whose values are compared or computed with."""
        return ((*self.by, *self.columns),)

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output with values of an input column of the same name."""
        names = [name for name in self.by if name in self.output.names]
        return {name: (0, name) for name in names}

    @property
    def event_time(self) -> str | None:
        """Column of the output with its event time."""
        return self.time if self.time in self.output.names else None


def require_core(core: Any, parameters: Any, *, where: str) -> None:
    """Refuse what is not a core, and parameters that are not complete.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    if not isinstance(core, Core):
        raise SpecError(
            "PARAMETER_TYPE",
            "`core` is not an object of a class derived from process.Core",
            where=where,
            got=repr(core),
            expected="an object, such as MyCore()",
            fix="derive a class from process.Core, and pass an object of it: MyCore()",
        )
    missing = [
        name
        for name in ("STATE", "step")
        if getattr(type(core), name, None) is getattr(Core, name, None)
    ]
    if missing:
        raise SpecError(
            "PARAMETER_TYPE",
            f"`core` does not define {', '.join(missing)}",
            where=where,
            got=repr(core),
            expected="STATE, TABLES and step; with event time, next_deadline",
            fix="define them in the class",
        )
    if find_spec(f"streamops.{core.STATE.kind.partition('.')[0]}") is not None:
        raise SpecError(
            "PARAMETER_TYPE",
            "the name of the state is one of streamops",
            where=where,
            got=f"STATE={core.STATE!r}",
            expected="a name of your own",
            fix='StateFormat("acme.my_operator", 1)',
        )
    if not isinstance(parameters, ShardSpec):
        raise SpecError(
            "PARAMETER_TYPE",
            "`parameters` is not an object of a class derived from process.ShardSpec",
            where=where,
            got=repr(parameters),
            expected="an object of a frozen dataclass that is derived from process.ShardSpec",
            fix="derive a frozen dataclass from process.ShardSpec, and pass an object of it",
        )
