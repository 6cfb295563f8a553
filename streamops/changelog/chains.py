"""What the operators of a chain tell each other, and the checks of an operator's inputs. Spark is not needed.

An operator marks columns of its output: with its watermark, with rows that revise others. The driver reads
the marks from the metadata of a frame, and a replay passes them on. Both call :func:`resolve_inputs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from streamops.changelog import conditions
from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE, REVISION
from streamops.kernel.columns import fix_types, type_name
from streamops.kernel.core import Input
from streamops.kernel.errors import Condition, SpecError, WatermarkError, located
from streamops.kernel.lateness import LATE
from streamops.kernel.operator import Spec
from streamops.kernel.parameters import require_columns
from streamops.kernel.time import format_duration

WATERMARK = "spark.watermarkDelayMs"
"""Key of a column with a watermark, set by Spark: its delay in milliseconds."""

STATE_API = "streamops.state_api"
"""Key of the state API that the operator uses."""

ONCE = "streamops.once"
"""Key of a state API that the query cannot use a second time, set by a clock."""

METRICS = "streamops.metrics"
"""Key of the names of observed metrics that are taken."""

LATENESS = "streamops.allowed_lateness"
"""Key of the lateness, in microseconds, that corrections of the operator may have."""

INSTANT = "streamops.instant"
"""Key of an event time that is not the end of a window: the watermark applies to this column only."""

REVISED = "streamops.revised"
"""Key of the columns that distinguish revisions and late rows from rows that count once."""

UPSERTS = "streamops.upserts"
"""Key of a change type whose updates come without preimages."""

GROUPS: Literal["applyInPandasWithState"] = "applyInPandasWithState"
"""The state API that a query may have only once, as its last operator."""

Metadata = Mapping[str, str | int]
"""Metadata of a column, for the next operator."""

_REVISING = (REVISION, CHANGE_TYPE, LATE)
"""Columns that distinguish revisions and side output from rows that count once."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an input, with what the operators before tell of them.

    Parameters
    ----------
    marks : mapping of str to mapping
        The metadata of every column by its name, in the order of the columns.
    structs : collection of str
        Columns that are structs, as the window of an aggregation of Spark.
    is_streaming : bool
    follows_watermark : callable
        Whether a watermark was defined before, even if no column carries it any more.
    """

    marks: Mapping[str, Mapping[str, Any]]
    structs: frozenset[str] = frozenset()
    is_streaming: bool = True
    follows_watermark: Callable[[], bool] = lambda: False

    def marked(self, key: str) -> list[str]:
        """The columns that have this mark."""
        return [name for name, mark in self.marks.items() if key in mark]


class Resolved(NamedTuple):
    """An operator over its inputs: the parameters, and the delay of Spark's watermark on each input."""

    spec: Spec
    delays: tuple[int | None, ...]

    @property
    def delay(self) -> int | None:
        """Delay of Spark's watermark; None if the operator does not follow one."""
        return max((delay for delay in self.delays if delay is not None), default=None)


def resolve_inputs(
    operator: str,
    parameters: Spec,
    sides: Sequence[str],
    inputs: Sequence[Columns],
    schemas: Iterable[pa.Schema],
    *,
    shards: int,
) -> Resolved:
    """Check the inputs of an operator, and resolve its parameters against their schemas.

    Parameters
    ----------
    operator : str
        Where errors of the parameters are.
    sides : sequence of str
        Where each input is, for errors.
    schemas : iterable of Schema
        Read after the marks are checked.

    Raises
    ------
    StreamopsError
        ``ROWS_REVISED``, ``CHANGE_STREAM_INPUT``, ``COLUMNS_DIFFER``, those of :func:`carried_watermark`,
        and those of the parameters.
    """
    for input_, of, side in zip(inputs, parameters.inputs, sides, strict=True):
        with located(side):
            if not of.accepts_revisions:
                refuse_revised(input_)
            if of.needs_preimages:
                refuse_upserts(input_)
    found = tuple(schemas)
    try:
        carried = carried_watermarks(parameters, sides, inputs)
    except WatermarkError as error:
        last = parameters.as_last()
        if error.code != "WATERMARK_TOO_TIGHT" or last.lag == parameters.lag:
            raise
        # Results that it holds back cannot be on time for a third operator. It can do without one.
        parameters, carried = last, carried_watermarks(last, sides, inputs)
    with located(operator):
        spec = parameters.resolve(found, carried=carried, shards=shards)
        require_equal_keys(spec)
    return Resolved(spec, watermark_delays(spec, carried))


def require_equal_keys(spec: Spec) -> None:
    """Refuse keys of different types: equal values of the two inputs would not meet.

    Raises
    ------
    SchemaError
        ``COLUMNS_DIFFER``.
    """
    if len(spec.inputs) == 1 or spec.inputs[0].is_broadcast:
        return
    left, right = spec.inputs
    for one, other in zip(left.by, right.by, strict=True):
        types = left.schema.field(one).type, right.schema.field(other).type
        if types[0] != types[1]:
            names = [type_name(dtype) for dtype in types]
            raise conditions.KEYS_DIFFER.error(
                conversion=fix_types((one, other), types, ("left", "right")),
                got=f"left {one!r} and right {other!r}: {' and '.join(names)}",
            )


def watermark_delays(spec: Spec, carried: Sequence[int | None]) -> tuple[int | None, ...]:
    """Delays of Spark's watermarks on the inputs, in microseconds: defined here, or carried.

    An operator has a watermark of its own, ``delay`` behind the newest event time, by which it closes
    windows. Spark's watermark is a further ``lag`` behind, so that corrections and results that were held
    back are not late for the next operator. ``ShardStep`` adds the lag again to compute the operator's
    watermark. Input rows are never late for Spark: packed rows have no event time.
    """
    return tuple(
        of.delay + spec.lag if of.delay is not None else brought
        for of, brought in zip(spec.inputs, carried, strict=True)
    )


def carried_watermarks(
    parameters: Spec, sides: Sequence[str], inputs: Sequence[Columns]
) -> tuple[int | None, ...]:
    """Delays of the watermarks that the inputs bring, in microseconds.

    Spark waits for the watermark of an input without event time, too, if the other input has one.
    """
    found: list[int | None] = []
    for columns, of, side in zip(inputs, parameters.inputs, sides, strict=True):
        carried = None
        if columns.is_streaming and of.time is not None:
            with located(side):
                is_window = len(inputs) == 1 and of.accepts_revisions
                carried = carried_watermark(columns, of, parameters.lag, of_results=is_window)
        elif columns.is_streaming and any(other.time for other in parameters.inputs):
            brought = (int(columns.marks[at][WATERMARK]) for at in columns.marked(WATERMARK))
            carried = max((delay * 1_000 for delay in brought), default=None)
        found.append(carried)
    return tuple(found)


def carried_watermark(
    columns: Columns, of: Input, lag: int, *, of_results: bool = False
) -> int | None:
    """Delay, in microseconds, of the watermark that a streaming input brings.

    None if it brings none and the operator defines its own. The watermark must be on the event-time column,
    or on a window whose start or end the column is.

    Parameters
    ----------
    lag : int
        How far Spark's watermark must lie behind that of the operator, in microseconds.
    of_results : bool
        Whether the rows are results of windows. A window with a watermark is then the result of a
        Spark aggregation, which leaves no room for late rows.

    Raises
    ------
    ColumnNotFound
        There is no such column.
    WatermarkError
        ``WATERMARK_MISSING``, ``WATERMARK_LOST``, ``WATERMARK_TWICE`` or ``WATERMARK_TOO_TIGHT``.
    """
    time, delay = of.time, of.delay
    assert time is not None, "an input without event time has no watermark"
    require_columns([*columns.marks], {"time": [time]})
    marked = columns.marked(WATERMARK)
    if not marked:
        _refuse_lost(columns, time)
        if delay is not None:
            return None
        raise conditions.WATERMARK_MISSING.error(
            got=f"a frame without a watermark, and no delay (event time {time!r})"
        )
    about = [at for at in marked if at == time] or [
        at for at in marked if _is_on_window(columns, at)
    ]
    name = (about or marked)[0]
    if delay is not None:
        condition = conditions.DELAY_ON_WATERMARK if about else conditions.DELAY_ON_OTHER_WATERMARK
        got = f"delay={format_duration(delay)!r} on a frame with a watermark on {name!r}"
        raise condition.error(column=name, time=time, got=got)
    got = f"time={time!r} on a frame with a watermark on {name!r}"
    if not about:
        raise conditions.WATERMARK_ON_OTHER_COLUMN.error(column=name, time=time, got=got)
    if of.is_late_by_time and time != name and name not in columns.structs:
        raise conditions.WATERMARK_ON_END.error(column=name, time=time, got=got)
    mark = columns.marks[name]
    carried = int(mark[WATERMARK]) * 1_000
    # The results of an upstream operator follow its own watermark. With a greater lateness, the
    # watermark of this operator would be ahead of them. Spark's own operators have no lateness.
    is_native = of_results and name in columns.structs
    room = int(mark.get(LATENESS, 0 if is_native else carried))
    if lag > room:
        condition = conditions.LATENESS_OF_SPARK if is_native else conditions.LATENESS_TOO_LONG
        raise condition.error(
            room=format_duration(room),
            got=f"a lateness of {format_duration(lag)!r} (allowed_lateness, and what the operator adds "
            f"to it), watermark on {name!r} with a delay of {format_duration(carried)!r}",
        )
    return carried


def _refuse_lost(columns: Columns, time: str) -> None:
    """Refuse an input whose watermark was lost upstream.

    With a second watermark, Spark fails in the middle of the query, or waits forever.
    """
    if columns.follows_watermark():
        raise conditions.WATERMARK_LOST.error(
            got="a frame without a watermark, behind withWatermark(...) or an operator with one (event "
            f"time {time!r})"
        )


def _is_on_window(columns: Columns, name: str) -> bool:
    """Whether the watermark is on a window, from whose columns the event time may have been selected.

    Spark marks the struct of a window, the operators of streamops mark ``window_end``.
    """
    mark = columns.marks[name]
    return name in columns.structs or (STATE_API in mark and INSTANT not in mark)


def refuse_watermark(columns: Columns, time: str) -> None:
    """Refuse an input that already has a watermark, on any column.

    Raises
    ------
    WatermarkError
        ``WATERMARK_TWICE``, ``WATERMARK_LOST``.
    """
    marked = columns.marked(WATERMARK)
    if marked:
        raise conditions.CLOCK_BEHIND_WATERMARK.error(
            marks=marked[0], time=time, got=f"a frame with a watermark on {marked[0]!r}"
        )
    _refuse_lost(columns, time)


def refuse_taken(names: Sequence[str], adds: Sequence[str]) -> None:
    """Refuse columns of which one already has this name, regardless of case.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``.
    """
    existing = {name.lower(): name for name in names}
    for name in adds:
        if name.lower() in existing:
            taken = existing[name.lower()]
            raise conditions.NAME_TAKEN.error(
                column=taken, adds=", ".join(adds), got=f"columns {', '.join(names)}"
            )


def refuse_duplicates(names: Sequence[str], *, ignores_case: Callable[[], bool]) -> None:
    """Refuse two columns of the same name. By default, names are not case-sensitive in Spark.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``.
    """
    twice = _duplicates(names, names)
    if not twice:
        twice = _duplicates(names, [name.lower() for name in names])
        twice = twice if twice and ignores_case() else []
    if twice:
        raise conditions.DUPLICATE_COLUMN.error(got=", ".join(twice))


def _duplicates(names: Sequence[str], compared: Sequence[str]) -> list[str]:
    pairs = zip(names, compared, strict=True)
    return sorted({name for name, form in pairs if compared.count(form) > 1})


def refuse_revised(columns: Columns) -> None:
    """Refuse revisions and side output where every row must count once.

    Operators mark the columns that distinguish these rows. Columns without those are accepted.

    Raises
    ------
    SchemaError
        ``ROWS_REVISED``.
    """
    marked = columns.marked(REVISED)
    if not marked:
        return
    condition = conditions.RESULTS_REVISED if REVISION in marked else conditions.CHANGES
    if LATE in marked:
        is_alone = len(marked) == 1
        condition = conditions.LATE_ROWS if is_alone else conditions.REVISIONS_AND_LATE_ROWS
    raise condition.error(
        selection=_on_time([*columns.marks], marked),
        got=f"results of an operator that revises or routes, with {', '.join(marked)}",
    )


def refuse_upserts(columns: Columns) -> None:
    """Refuse updates without preimages where the previous row must be retracted.

    Raises
    ------
    SchemaError
        ``CHANGE_STREAM_INPUT``.
    """
    marked = columns.marked(UPSERTS)
    if marked:
        raise conditions.NO_PREIMAGES.error(
            got=f"upserts without preimages, in {', '.join(marked)}"
        )


def _on_time(names: Sequence[str], marked: Sequence[str]) -> str:
    """The expression that selects the on-time results, each once."""
    # Early results begin with revision 0, and a retraction has the revision of its result.
    which = "timing = 'on_time'" if "timing" in names else f"{REVISION} = 0"
    if CHANGE_TYPE in marked:
        which += f" AND {CHANGE_TYPE} IN ('{INSERT}', '{POSTIMAGE}')"
    return f'.where("{which}").drop({", ".join(map(repr, marked))})'


def follow(
    upstream: Columns,
    following: str,
    *,
    has_groups: Callable[[], bool] = lambda: False,
    aggregates: Callable[[], bool] = lambda: False,
) -> tuple[Condition[SpecError], str] | None:
    """Why a state API, or ``"native"``, may not follow these columns; None if it may.

    ``has_groups`` and ``aggregates`` say what the plan has of others: the state API that may be there once, an
    aggregation.
    """
    before = {mark.get(STATE_API) for mark in upstream.marks.values()}
    if GROUPS in before:
        return conditions.NOTHING_MAY_FOLLOW, f"a frame from an operator with {GROUPS}"
    if following != GROUPS:
        return None
    if GROUPS in {mark.get(ONCE) for mark in upstream.marks.values()} or has_groups():
        return conditions.GROUPS_TWICE, f"{GROUPS} on a frame from an operator with the same"
    if "native" in before or aggregates():
        return conditions.GROUPS_AFTER_AGGREGATION, f"{GROUPS} on a frame from a Spark aggregation"
    return None


def follow_both(inputs: Sequence[Columns]) -> tuple[Condition[SpecError], str] | None:
    """Why two inputs may not meet: a clock before either uses the state API that a query has once."""
    if len(inputs) > 1 and all(of.marked(ONCE) for of in inputs):
        return conditions.GROUPS_TWICE, f"an operator with {GROUPS} before either frame"
    return None


def require_transform(required: str | None, wanted: str) -> None:
    """Refuse a state API behind which an operator does not run; ``required`` is why, or None.

    Raises
    ------
    SpecError
        ``PARAMETERS_CONTRADICT``.
    """
    if required is not None and wanted == GROUPS:
        raise conditions.TRANSFORM_REQUIRED.error(required=required, got=f"state_api={wanted!r}")


def operator_metadata(
    spec: Spec, spark_delay: int | None, *, metrics: Sequence[str], api: str, once: str | None
) -> Metadata:
    """Metadata for the next operator of the query, for one column of the output.

    Parameters
    ----------
    spec : Spec
        The operator.
    spark_delay : int, optional
        Delay of Spark's watermark, in microseconds, if the operator follows one.
    metrics : sequence of str
        Names of observed metrics that are taken.
    api : str
        The state API, or "native".
    once : str, optional
        The state API that the query cannot use a second time.
    """
    metadata: dict[str, str | int] = {METRICS: ",".join(metrics), STATE_API: api}
    if spark_delay is not None and spec.event_time is not None:
        # Results that were held back are behind the watermark though they are on time, so the next
        # operator must wait as long as Spark's watermark does. A Python map, or selecting a field of
        # a window, loses the mark of the column; the watermark itself remains.
        metadata |= {WATERMARK: spark_delay // 1_000, LATENESS: spec.lag - spec.held_back}
        if len(spec.inputs) > 1 or "window_start" not in spec.output.names:
            metadata[INSTANT] = True
    return metadata | ({} if once is None else {ONCE: once})


def output_marks(
    spec: Spec, inputs: Sequence[Columns], metadata: Metadata | None
) -> dict[str, dict[str, Any]]:
    """The marks of every column of the output.

    ``metadata`` is added to the event-time column; if the output has none, to the revision, to the change
    type, or to the first column.
    """
    output = spec.output
    others = (name for name in (REVISION, CHANGE_TYPE) if name in output.names)
    marked = spec.event_time or next(others, output.names[0])
    marks: dict[str, dict[str, Any]] = {name: {} for name in output.names}
    marks[marked] |= metadata or {}
    for name in _REVISING:
        at, source = spec.origins.get(name, (0, ""))
        if name in marks and (not source or REVISED in inputs[at].marks.get(source, {})):
            marks[name][REVISED] = True
    return marks


def clock_mark(delay: int, metadata: Metadata) -> Metadata:
    """The mark of the event time that a clock defines the watermark of, ``delay`` microseconds behind it."""
    mark = {WATERMARK: delay // 1_000, METRICS: metadata[METRICS], INSTANT: True}
    return mark | ({ONCE: GROUPS} if metadata[STATE_API] == GROUPS else {})
