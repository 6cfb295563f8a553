"""Rows as they arrive: on time, late or rejected; and the side output, with the rows that are left out.

Every operator with event time compares rows with the watermark of the step before. A row is *late* if its
time is not above that watermark: a *straggler* within the allowed lateness, *too late* beyond it. A row
without a usable time is *rejected*. The column ``late`` of the output has such a row, and why it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.core import SIDES, Metrics, SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.operator import Spec
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

LATE = "late"
"""Column of the output that is null for results, and describes the row in the side output."""

INSTANT = pa.timestamp("us", tz="UTC")
WINDOW = pa.struct([("start", INSTANT), ("end", INSTANT)])

ON_TIME, STRAGGLER, TOO_LATE, REJECTED = range(4)
"""Classes of rows. Those from ``REJECTED`` on are rejected, each for another reason."""

REASONS = ("on_time", "straggler", "too_late", "null_time", "time_out_of_range")
"""The names of the classes; those of the side output are its reasons."""

Further = Sequence[tuple[str, pa.DataType]]


def late_field(*inputs: pa.Schema, further: Further = ()) -> pa.Field:
    """The column ``late`` of an operator with one or two inputs. What does not apply to a row is null.

    ===============  ===============================================================================
    ``side``         "left" or "right"; null with one input
    ``reason``       why the row is not in a result
    ``lateness``     how far the row is behind the watermark
    ``watermark``    the watermark that it is compared with
    ``window``       start and end of the window that it missed
    ``row``          the columns of the input; with two inputs, a struct of ``left`` and ``right``,
                     one of which is null
    ===============  ===============================================================================

    ``further`` has the fields that only this operator has. They come last.
    """
    rows = [pa.struct(list(schema)) for schema in inputs]
    row = rows[0] if len(rows) == 1 else pa.struct(list(zip(SIDES, rows, strict=True)))
    fields = [
        ("side", pa.string()),
        ("reason", pa.string()),
        ("lateness", pa.duration("us")),
        ("watermark", INSTANT),
        ("window", WINDOW),
        ("row", row),
    ]
    return pa.field(LATE, pa.struct([*fields, *further]))


LATE_FIELDS = tuple(of.name for of in late_field(pa.schema([])).type)
"""The fields that ``late`` has in every operator."""


def has_side_output(output: pa.Schema) -> bool:
    """Whether the output has the column ``late``, and not one of a user with the same name."""
    dtype = output.field(LATE).type if LATE in output.names else pa.null()
    return isinstance(dtype, pa.StructType) and {of.name for of in dtype}.issuperset(LATE_FIELDS)


def build_late(
    output: pa.Schema,
    rows: pa.Table | None,
    fields: Mapping[str, pa.Array],
    *,
    side: SideName | None = None,
    filled: Mapping[str, pa.Array] | None = None,
) -> pa.Table:
    """Rows of the side output, in the output schema.

    Parameters
    ----------
    rows : Table, optional
        The rows of the input. Without them, ``fields`` may have the column ``row``.
    fields : mapping of str to Array
        Fields of ``late``: the reason, and all that apply.
    side : str, optional
        The input of the rows, if there are two.
    filled : mapping of str to Array, optional
        Columns of the output besides ``late`` that are not null.
    """
    count, dtype = len(fields["reason"]), output.field(LATE).type
    values = dict(fields)
    if rows is not None:
        of_row = dtype.field("row").type
        if side is None:
            values["row"] = _fill(_columns(rows), of_row, count)
        else:
            row = _fill(_columns(rows), of_row.field(side).type, count)
            values |= {"side": pa.repeat(side, count), "row": _fill({side: row}, of_row, count)}
    columns = {**(filled or {}), LATE: _fill(values, dtype, count)}
    return pa.table([columns.get(f.name, pa.nulls(count, f.type)) for f in output], schema=output)


def windows(start: Instants, end: Instants) -> pa.Array:
    """The field ``window`` of the side output."""
    edges = [pa.array(edge).cast(INSTANT) for edge in (start, end)]
    return pa.StructArray.from_arrays(edges, fields=list(WINDOW))


@dataclass(frozen=True, slots=True)
class Lateness:
    """Event times, and how they compare with a watermark.

    Parameters
    ----------
    times : array of int64
        Event times in microseconds, 0 where null.
    codes : array of int8
        The class of each row, as position in ``reasons``.
    watermark : int, optional
        The watermark of the step before. Without one, no row is late.
    reasons : tuple of str
        The names of the classes: ``REASONS``, and those of further rejections.
    """

    times: Instants
    codes: npt.NDArray[np.int8]
    watermark: int | None
    reasons: tuple[str, ...] = REASONS

    @classmethod
    def compare(cls, times: Instants, watermark: int | None, allowed: int = 0) -> Lateness:
        """Compare usable times. ``allowed`` is the allowed lateness, in microseconds."""
        codes = np.full(len(times), ON_TIME, np.int8)
        if watermark is not None:
            codes[times <= watermark] = STRAGGLER
            codes[times <= watermark - allowed] = TOO_LATE
        return cls(times, codes, watermark)

    @classmethod
    def of(
        cls,
        column: pa.Array | pa.ChunkedArray,
        watermark: int | None,
        allowed: int = 0,
        invalid: Sequence[tuple[str, Mask]] = (),
    ) -> Lateness:
        """Compare a column of timestamps. Rows without a usable time are rejected.

        ``invalid`` has further reasons, and the rows that they apply to. The first reason counts.
        """
        times, present = timestamp_micros(column)
        found = cls.compare(times, watermark, allowed)
        is_outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
        masks = [~present, is_outside, *(mask for _, mask in invalid)]
        for at in reversed(range(len(masks))):
            found.codes[masks[at]] = REJECTED + at
        return replace(found, reasons=(*REASONS, *(name for name, _ in invalid)))

    @property
    def on_time(self) -> Mask:
        """Which rows are on time."""
        found: Mask = self.codes == ON_TIME
        return found

    @property
    def too_late(self) -> Mask:
        """Which rows are too late."""
        found: Mask = self.codes == TOO_LATE
        return found

    @property
    def rejected(self) -> Mask:
        """Which rows are rejected."""
        found: Mask = self.codes >= REJECTED
        return found

    @property
    def metrics(self) -> Metrics:
        """The number of rows, in all and in each class."""
        numbers = np.bincount(self.codes, minlength=REJECTED).tolist()
        on_time, stragglers, too_late = numbers[:REJECTED]
        return Metrics(len(self.codes), sum(numbers[REJECTED:]), on_time, stragglers, too_late)

    def take(self, rows: Ids) -> Lateness:
        """The rows at these positions."""
        return replace(self, times=self.times[rows], codes=self.codes[rows])

    @property
    def fields(self) -> dict[str, pa.Array]:
        """The fields of ``late`` for these rows. Rejected ones have a reason only."""
        reason = pa.array(self.reasons).take(pa.array(self.codes))
        if self.watermark is None:
            return {"reason": reason}
        other = (self.codes == ON_TIME) | self.rejected
        mark = np.full(len(self.codes), self.watermark)
        return {
            "reason": reason,
            "lateness": pa.array(mark - self.times, mask=other).cast(pa.duration("us")),
            "watermark": pa.array(mark, mask=other).cast(INSTANT),
        }


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows of one input that an operator accepts, with the side output and the metrics of all of them.

    Parameters
    ----------
    output : Schema
        The columns of the output. Without ``late``, other rows are counted only.
    side : str, optional
        The input of the rows, if there are two.
    filled : tuple of str
        Columns of the rows that the side output has besides ``late``.
    rows : Table
        The rows.
    lateness : Lateness
        Their event times, and their classes.
    late : Table
        The side output.
    metrics : Metrics
        The numbers of all rows that arrived.
    """

    output: pa.Schema
    side: SideName | None
    filled: tuple[str, ...]
    rows: pa.Table
    lateness: Lateness
    late: pa.Table
    metrics: Metrics

    @classmethod
    def of(cls, spec: Spec, rows: pa.Table, watermark: int | None) -> Arrivals:
        """Accept the rows of the only input that are on time, by the watermark of the step before.

        The others are rows of the side output, if the output has :func:`late_field`.
        """
        (of,) = spec.inputs
        assert of.time is not None, "without event time, no row is late"
        lateness = Lateness.of(rows.column(of.time), watermark)
        arrived = cls.classify(spec.output, rows, lateness, filled=(*of.by, of.time))
        return arrived.accept(arrived.lateness.on_time)

    @classmethod
    def classify(
        cls,
        output: pa.Schema,
        rows: pa.Table,
        lateness: Lateness,
        *,
        side: SideName | None = None,
        filled: Sequence[str] = (),
    ) -> Arrivals:
        """Leave out rejected rows. Late ones are among the rows of the result."""
        names = tuple(name for name in filled if name in output.names)
        nothing, metrics = output.empty_table(), lateness.metrics
        arrived = cls(output, side, names, rows, lateness, nothing, metrics)
        return arrived.accept(~lateness.rejected) if metrics.rejected else arrived

    @property
    def times(self) -> Instants:
        """Event times, in microseconds."""
        return self.lateness.times

    def where(self, mask: Mask) -> Arrivals:
        """Some of the rows, with the same side output and metrics."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return replace(self, rows=take(self.rows, rows), lateness=self.lateness.take(rows))

    def accept(self, mask: Mask, *, routed: Mask | None = None) -> Arrivals:
        """Some of the rows. Others are added to the side output: all others, or the ``routed`` ones."""
        late = self.side_output(~mask if routed is None else routed)
        return replace(self.where(mask), late=concat([self.late, late]))

    def side_output(self, mask: Mask) -> pa.Table:
        """Some of the rows as side output."""
        if not (mask.any() and has_side_output(self.output)):
            return self.output.empty_table()
        positions = np.flatnonzero(mask)
        rows, fields = take(self.rows, positions), self.lateness.take(positions).fields
        filled = {name: rows.column(name) for name in self.filled}
        return build_late(self.output, rows, fields, side=self.side, filled=filled)


def _columns(rows: pa.Table) -> dict[str, pa.Array]:
    return dict(zip(rows.column_names, rows.columns, strict=True))


def _fill(values: Mapping[str, pa.Array], dtype: pa.StructType, count: int) -> pa.Array:
    """Structs with these fields; others are null."""
    arrays = [
        combine_chunks(values[f.name]) if f.name in values else pa.nulls(count, f.type)
        for f in dtype
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(dtype))
