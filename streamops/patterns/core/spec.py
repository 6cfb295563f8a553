"""Parameters of pattern matching."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn, Self

import pyarrow as pa

from streamops.kernel.columns import type_name
from streamops.kernel.core import Identity
from streamops.kernel.lateness import INSTANT, LATE, late_field
from streamops.kernel.operator import ShardSpec, checkpointed, with_types
from streamops.kernel.parameters import (
    MILLISECOND,
    refuse_taken_names,
    require_columns,
    require_instant,
    require_keys,
    show_duration,
)
from streamops.kernel.time import BEFORE_ALL, format_duration
from streamops.patterns import conditions
from streamops.patterns.core.automaton import (
    MAX_CONDITIONS,
    NO_VARIABLE,
    Automaton,
    compile_pattern,
)
from streamops.patterns.core.expressions import (
    Expression,
    Measure,
    ResolvedMeasure,
    Value,
    is_anchored,
    require_boolean,
    values_of,
)
from streamops.patterns.core.search import Resume
from streamops.patterns.core.syntax import Pattern

Stragglers = Literal["drop", "route"]
Timeouts = Literal["drop", "route"]
Matches = Literal["every", "first"]
WhenFull = Literal["fail", "evict_oldest"]

DEFAULT_MAX_ROWS = 100_000

MATCH_START, MATCH_END = "match_start", "match_end"

_STEPS = [("steps", pa.int32())]
_COMPUTED = "__streamops_condition_"
_SKIPS: tuple[Resume, ...] = ("past last row", "to next row", "to first", "to last")
_DURATION = {"shown": show_duration}


def _texts_of(
    spec: PatternSpec, define: tuple[tuple[str, str | Expression], ...]
) -> list[list[str]]:
    return [[name, of if isinstance(of, str) else repr(of)] for name, of in define]


def _whole_milliseconds(within: int | None) -> int:
    return -(-(within or 0) // MILLISECOND) * MILLISECOND


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PatternSpec(ShardSpec):
    """Parameters of pattern matching. Durations are microseconds.

    Parameters
    ----------
    operator : str
        Public name of the operator, for errors.
    pattern : Pattern
    define : tuple of (name, condition)
        The condition of each variable: Spark SQL, or an expression over earlier rows.
    time, by, tie_break : str, tuples of str
        Event-time column, key columns, columns that order rows with the same event time.
    within : int, optional
        A match spans less than this.
    measures : tuple of (name, Measure)
    matches : str
        Which matches of a key are emitted.
    horizon : int, optional
        With the first match only: how long after its last row the key may match again.
    skip : str
        Where the search continues after a match.
    delay : int, optional
        Delay of the watermark that the operator defines.
    stragglers, timeouts : str
        What happens to late rows, and to partial matches that run out of time.
    max_rows, when_full : int, str
        Released rows stored per key, and what happens to more.
    input : Schema
        Resolved: the columns that are read.
    sources : tuple of (text, column)
        Resolved: the column with the values of each Spark SQL text.
    resolved : tuple of ResolvedMeasure
    final : int
        No match begins up to here, whatever `within` is: see :mod:`streamops.kernel.lag`.
    automaton : Automaton
    """

    pattern: Pattern = checkpointed(lambda _, of: of.text, {"shown": lambda of: repr(of.text)})
    define: tuple[tuple[str, str | Expression], ...] = checkpointed(_texts_of)
    time: str = checkpointed()
    within: int | None = checkpointed(metadata=_DURATION)
    measures: tuple[tuple[str, Measure], ...]
    matches: Matches = checkpointed()
    horizon: int | None = field(metadata=_DURATION)
    skip: str = checkpointed()
    tie_break: tuple[str, ...] = checkpointed()
    stragglers: Stragglers
    timeouts: Timeouts
    max_rows: int
    when_full: WhenFull
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    resolved: tuple[ResolvedMeasure, ...] = checkpointed(
        lambda spec, _: with_types(spec, spec.values),
        {"parameter": "values"},
        default=(),
        repr=False,
    )
    final: int = field(default=BEFORE_ALL, repr=False)
    automaton: Automaton = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._refuse_variables()
        self._refuse_skip()
        self._refuse_bounds()
        names = [name for name, _ in self.measures]
        given = {"by": list(self.by), "measures": names}
        reserved = (MATCH_START, MATCH_END, LATE)
        refuse_taken_names([*self.by, *names], reserved, given)
        automaton = compile_pattern(self.pattern, self.bits)
        object.__setattr__(self, "automaton", automaton)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns, see :class:`streamops.spark.definition.Parameters`."""
        (schema,) = schemas
        used = {f"measures: {of!r}": self._columns_of(of) for _, of in self.measures}
        required = {"time": [self.time], "by": [*self.by], "tie_break": [*self.tie_break]}
        require_columns(schema.names, required | used)
        require_instant(schema, self.time)
        require_keys(schema, self.by)
        sources = tuple((text, self._source(text, schema)) for text in self.texts)
        for name, condition in self.define:
            if isinstance(condition, str):
                self._require_boolean(name, schema.field(dict(sources)[condition]))
        names = {self.time, *self.by, *self.tie_break, *(column for _, column in sources)}
        names |= {column for columns in used.values() for column in columns}
        read = schema
        if self.stragglers != "route":
            read = pa.schema([column for column in schema if column.name in names])
        resolved = replace(
            self,
            input=read,
            sources=sources,
            resolved=tuple(self._resolve(name, of, schema) for name, of in self.measures),
            delay=None if carried[0] is not None else self.delay,
        )
        resolved._require_expressions()
        return resolved

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared or aggregated."""
        measured = (c for _, of in self.measures if of.aggregation for c in self._columns_of(of))
        return (*self.tie_break, *measured)

    @property
    def event_time(self) -> str | None:
        """The end of a match."""
        return None if self.is_last else MATCH_END

    @property
    def bits(self) -> dict[str, int]:
        """The bit of the condition of each variable."""
        return {name: 1 << at for at, (name, _) in enumerate(self.define)}

    @property
    def texts(self) -> tuple[str, ...]:
        """Spark SQL whose values are read, each once."""
        found = [
            [c] if isinstance(c, str) else [value.text for value in values_of(c)]
            for _, c in self.define
        ]
        return tuple(dict.fromkeys(text for texts in found for text in texts))

    def missing_texts(self, columns: Sequence[str]) -> dict[str, str]:
        """Conditions in Spark SQL that are not columns, by the name of the column to add."""
        return {
            f"{_COMPUTED}{at}": text for at, text in enumerate(self.texts) if text not in columns
        }

    @property
    def reach(self) -> int:
        """How many rows before its own a condition reads."""
        return max((value.offset for value in self.read_values), default=0)

    @property
    def read_values(self) -> list[Value]:
        """The values that conditions over other rows read."""
        conditions = (c for _, c in self.define if isinstance(c, Expression))
        return [value for condition in conditions for value in values_of(condition)]

    @property
    def anchored(self) -> tuple[tuple[str, Expression], ...]:
        """The conditions that depend on the first row of the match: they are evaluated by each search."""
        return tuple(
            (name, c) for name, c in self.define if isinstance(c, Expression) and is_anchored(c)
        )

    @property
    def earlier(self) -> tuple[tuple[str, int], ...]:
        """Values of earlier rows, as text and offset, that are stored with a row for these conditions."""
        read = (value for _, condition in self.anchored for value in values_of(condition))
        return tuple(dict.fromkeys((of.text, of.offset) for of in read if of.offset))

    @property
    def values(self) -> tuple[str, ...]:
        """Columns that are stored: of measures, of conditions over earlier rows, and of ties."""
        sources = dict(self.sources)
        names = [*self.tie_break]
        names += [c for _, of in self.measures for c in self._columns_of(of)]
        names += [sources[value.text] for value in self.read_values]
        return tuple(dict.fromkeys(names))

    def column_of(self, value: Value) -> str:
        """The stored column with the values of an expression's value."""
        return f"value.{self.values.index(dict(self.sources)[value.text])}"

    @property
    def resume(self) -> tuple[Resume, int]:
        """Where the search continues after a match, and the variable that this refers to."""
        if self.matches == "first":
            return "past horizon", NO_VARIABLE
        for choice in _SKIPS[:2]:
            if self.skip == choice:
                return choice, NO_VARIABLE
        to, _, variable = self.skip.rpartition(" ")
        return ("to first" if to == "to first" else "to last"), self._number(variable)

    def bound_at(self, watermark: int) -> int:
        """The watermark by which the bounds of starts pass: that of the operator, or one that passes those up to `final`."""
        return watermark if self.within is None else max(watermark, self.final + self.within - 1)

    def lag_of(self, identity: Identity) -> int:
        """The lag of an operator with this identity."""
        return 0 if identity.get("is_last") else _whole_milliseconds(identity["within"])

    @property
    def held_back(self) -> int:
        """How far behind the watermark the end of a match can lie; whole milliseconds."""
        return 0 if self.is_last else _whole_milliseconds(self.within)

    @property
    def has_side_output(self) -> bool:
        """Whether the output has the column ``late``."""
        return "route" in (self.stragglers, self.timeouts)

    @property
    def output(self) -> pa.Schema:
        """Keys, the time of the first and of the last row, measures, and the side output."""
        return pa.schema(
            [
                *(self.input.field(name) for name in self.by),
                (MATCH_START, INSTANT),
                (MATCH_END, INSTANT),
                *((of.name, of.type) for of in self.resolved),
                *([late_field(self.row, further=_STEPS)] if self.has_side_output else []),
            ]
        )

    @property
    def row(self) -> pa.Schema:
        """Columns of a row in the side output."""
        return pa.schema([f for f in self.input if not f.name.startswith(_COMPUTED)])

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column, or lists of them."""
        found = {name: (0, name) for name in self.by}
        for of in self.resolved:
            column = of.column
            if of.summary is not None and len(of.summary.inputs) == 1:
                column = of.summary.inputs[0]
            if column is not None:
                dtype = self.input.field(column).type
                if of.type in (dtype, pa.list_(dtype)):
                    found[of.name] = (0, column)
        return found

    def _columns_of(self, measure: Measure) -> list[str]:
        if measure.aggregation is not None:
            return [*measure.aggregation.columns]
        return [] if measure.column is None else [measure.column]

    def _number(self, variable: str) -> int:
        if variable not in self.pattern.variables:
            self._refuse_unknown(variable, f"skip={self.skip!r}")
        return self.pattern.variables.index(variable)

    def _resolve(self, name: str, of: Measure, schema: pa.Schema) -> ResolvedMeasure:
        variables = frozenset(self.pattern.variables.index(v) for v in of.variables)
        summary = None
        if of.aggregation is not None:
            summary = of.aggregation.bind(schema, time=self.time)
            dtype = summary.result
        elif of.column is None:
            dtype = pa.list_(pa.string())
        else:
            dtype = schema.field(of.column).type
            dtype = pa.list_(dtype) if of.function == "collect_list" else dtype
        return ResolvedMeasure(name, repr(of), of.function, variables, of.column, summary, dtype)

    def _source(self, text: str, schema: pa.Schema) -> str:
        """The column with the values of Spark SQL: a column of the frame, or one that was added."""
        if text in schema.names:
            return text
        name = f"{_COMPUTED}{self.texts.index(text)}"
        if name not in schema.names:
            raise conditions.CONDITION_NEEDS_SPARK.error(got=f"{text!r} in define")
        return name

    def _require_boolean(self, name: str, column: pa.Field) -> None:
        if not pa.types.is_boolean(column.type):
            raise conditions.CONDITION_NOT_BOOLEAN.error(
                name=name, got=f"{dict(self.define)[name]!r} of type {type_name(column.type)}"
            )

    def _require_expressions(self) -> None:
        sources = dict(self.sources)
        for name, condition in self.define:
            if isinstance(condition, Expression):
                types = {
                    v.text: self.input.field(sources[v.text]).type for v in values_of(condition)
                }
                require_boolean(name, condition, types)

    def _refuse_variables(self) -> None:
        defined, pattern = [name for name, _ in self.define], self.pattern
        for name in defined:
            if name not in (*pattern.variables, *pattern.negated):
                self._refuse_unknown(name, "define")
        for name in pattern.negated:
            if name not in defined:
                raise conditions.VARIABLE_UNDEFINED.error(
                    name=name, got=f"{pattern.text!r}, define={dict(self.define)!r}"
                )
        for _, measure in self.measures:
            for name in measure.variables:
                if name not in pattern.variables:
                    self._refuse_unknown(name, repr(measure))
        if len(defined) > MAX_CONDITIONS:
            raise conditions.TOO_MANY_CONDITIONS.error(
                max_conditions=MAX_CONDITIONS, got=f"{len(defined)} in define"
            )

    def _refuse_unknown(self, name: str, given: str) -> NoReturn:
        variables = self.pattern.variables
        near = difflib.get_close_matches(name, variables, n=1)
        condition = conditions.VARIABLE_MISSPELT if near else conditions.VARIABLE_UNKNOWN
        raise condition.error(
            name=name,
            near=near[0] if near else None,
            variables=", ".join(map(repr, variables)),
            got=f"{name!r} in {given}; pattern {self.pattern.text!r}",
        )

    def _refuse_skip(self) -> None:
        to, _, variable = str(self.skip).rpartition(" ")
        is_text = isinstance(self.skip, str)
        if not (is_text and self.skip in _SKIPS[:2]) and not (to in _SKIPS[2:] and variable):
            is_any = re.search(r"\bany\b", str(self.skip), re.IGNORECASE)
            condition = conditions.SKIP_TO_ANY if is_any else conditions.UNKNOWN_SKIP
            raise condition.error(got=f"skip={self.skip!r}")
        if variable and to in _SKIPS[2:]:
            self._number(variable)
        if self.matches == "first" and self.skip != _SKIPS[0]:
            raise conditions.SKIP_WITHOUT_EVERY.error(
                got=f"skip={self.skip!r} with matches='first'"
            )

    def _refuse_bounds(self) -> None:
        if self.horizon is not None and self.matches == "every":
            raise conditions.HORIZON_WITHOUT_FIRST.error(
                got=f"horizon={format_duration(self.horizon)!r} with matches='every'"
            )
        if type(self.max_rows) is not int or self.max_rows < 1:
            raise conditions.MAX_ROWS_OUT_OF_RANGE.error(
                default_max_rows=DEFAULT_MAX_ROWS, got=f"max_rows={self.max_rows!r}"
            )
