"""Rows as they arrive: packed before the shuffle, then accepted, late or rejected."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, conform, take, timestamp_micros
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
from streamops.patterns.core.spec import LATE, MATCH_END, MATCH_START, PatternSpec

_INSTANT = pa.timestamp("us", tz="UTC")


def row_schema(spec: PatternSpec) -> pa.Schema:
    """Columns of the stored rows."""
    own = [("time", pa.int64()), ("stage", pa.int8()), ("conditions", pa.int64())]
    return pa.schema([*_key_fields(spec), *own, *_value_fields(spec), *_earlier_fields(spec)])


def matched_schema(spec: PatternSpec) -> pa.Schema | None:
    """Columns of the ends of matches, which are stored if only the first match of a key counts."""
    if spec.matches != "first":
        return None
    return pa.schema([*_key_fields(spec), ("time", pa.int64())])


def packed_schema(spec: PatternSpec) -> pa.Schema:
    """Columns of packed rows: conditions are bits, and only routed rows have all their columns."""
    own = [("time", _INSTANT), ("conditions", pa.int64())]
    row = [("row", spec.row)] if spec.stragglers == "route" else []
    return pa.schema([*_key_fields(spec), *own, *_value_fields(spec), *row])


def pack(spec: PatternSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The conditions of each row, and the columns that are needed later."""
    rows = conform(rows, spec.input)
    bits, sources = np.zeros(len(rows), np.int64), dict(spec.sources)
    for name, condition in spec.define:
        if isinstance(condition, str):
            holds = combine_chunks(rows.column(sources[condition])).fill_null(False)
            bits |= np.asarray(holds).astype(np.int64) * spec.bits[name]
    columns = [*(rows.column(name) for name in spec.by), rows.column(spec.time), pa.array(bits)]
    columns += [rows.column(name) for name in spec.values]
    if spec.stragglers == "route":
        fields = list(spec.row)
        arrays = [combine_chunks(rows.column(field.name)) for field in fields]
        columns.append(pa.StructArray.from_arrays(arrays, fields=fields))
    return pa.table(columns, schema=packed_schema(spec))


def classify(
    spec: PatternSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """Accepted rows as rows of the state, the side output for all others, and metrics."""
    times, valid = timestamp_micros(packed.column("time"))
    usable = valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)
    late = np.zeros(len(packed), np.bool_)
    if previous_watermark is not None:
        late = usable & (times <= previous_watermark)
    accepted = usable & ~late
    counts = Metrics(
        rows=len(packed),
        rejected=len(packed) - int(np.count_nonzero(usable)),
        on_time=int(np.count_nonzero(accepted)),
        too_late=int(np.count_nonzero(late)),
    )
    side = spec.output.empty_table()
    missed = np.flatnonzero(~accepted)
    if spec.stragglers == "route" and len(missed):
        reason = np.where(late, "too_late", np.where(valid, "time_out_of_range", "null_time"))
        rows, is_late = take(packed, missed), late[missed]
        keys = {name: rows.column(f"key.{i}") for i, name in enumerate(spec.by)}
        mark = 0 if previous_watermark is None else previous_watermark
        time = pa.array(times[missed], mask=~is_late).cast(_INSTANT)
        side = _side_output(
            spec,
            keys,
            reason[missed],
            times=(time, time),
            lateness=pa.array(mark - times[missed], mask=~is_late),
            watermark=pa.array(np.full(len(missed), mark), mask=~is_late),
            row=combine_chunks(rows.column("row")),
        )
    if len(missed):
        packed, times = take(packed, np.flatnonzero(accepted)), times[accepted]
    schema = row_schema(spec)
    filled = {"time": pa.array(times), "stage": pa.array(np.zeros(len(packed), np.int8))}
    filled |= {name: pa.nulls(len(packed), dtype) for name, dtype in _earlier_fields(spec)}
    columns = [filled[name] if name in filled else packed.column(name) for name in schema.names]
    return pa.table(columns, schema=schema), side, counts


def timed_out(
    spec: PatternSpec, rows: pa.Table, times: Instants, first: Ids, steps: Ids
) -> pa.Table:
    """The side output for partial matches that ran out of time, with the time of their first row."""
    count = len(first)
    if not count:
        return spec.output.empty_table()
    index = pa.array(first)
    keys = {name: rows.column(f"key.{i}").take(index) for i, name in enumerate(spec.by)}
    start = pa.array(times[first]).cast(_INSTANT)
    return _side_output(
        spec,
        keys,
        np.full(count, "timed_out"),
        times=(start, start),
        steps=pa.array(steps.astype(np.int32)),
    )


def _side_output(
    spec: PatternSpec,
    keys: Mapping[str, pa.Array],
    reason: npt.NDArray[np.str_],
    *,
    times: tuple[pa.Array, pa.Array],
    lateness: pa.Array | None = None,
    watermark: pa.Array | None = None,
    row: pa.Array | None = None,
    steps: pa.Array | None = None,
) -> pa.Table:
    """Rows of the output with ``late``, and nulls instead of measures."""
    count = len(reason)
    parts = {"reason": pa.array(reason, pa.string()), "lateness": lateness, "watermark": watermark}
    parts |= {"row": row, "steps": steps}
    fields = list(spec.late)
    arrays = [
        pa.nulls(count, field.type)
        if parts[field.name] is None
        else parts[field.name].cast(field.type)
        for field in fields
    ]
    late = pa.StructArray.from_arrays(arrays, fields=fields)
    filled = {**keys, MATCH_START: times[0], MATCH_END: times[1], LATE: late}
    return pa.table(
        [filled.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )


def _key_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]


def _value_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]


def _earlier_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    """Values of earlier rows, which are known once a row is released."""
    sources = dict(spec.sources)
    types = [spec.input.field(sources[text]).type for text, _ in spec.earlier]
    return [(f"earlier.{i}", dtype) for i, dtype in enumerate(types)]
