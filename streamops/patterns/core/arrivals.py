"""Rows as they arrive: packed before the shuffle, then accepted, late or rejected."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, conform, make_structs, take
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids
from streamops.kernel.lateness import INSTANT, Lateness, build_late
from streamops.kernel.time import Instants
from streamops.patterns.core.spec import MATCH_END, MATCH_START, PatternSpec


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
    own = [("time", INSTANT), ("conditions", pa.int64())]
    row = [("row", pa.struct(list(spec.row)))] if spec.stragglers == "route" else []
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
        columns.append(make_structs(rows.select(spec.row.names)))
    return pa.table(columns, schema=packed_schema(spec))


def classify(
    spec: PatternSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """Accepted rows as rows of the state, the side output for all others, and metrics."""
    lateness = Lateness.of(packed.column("time"), previous_watermark)
    accepted, times = lateness.on_time, lateness.times
    missed, side = np.flatnonzero(~accepted), spec.output.empty_table()
    if spec.stragglers == "route" and len(missed):
        rows, of_missed = take(packed, missed), lateness.take(missed)
        late = pa.array(of_missed.times, mask=of_missed.rejected).cast(INSTANT)
        fields = of_missed.fields | {"row": rows.column("row")}
        side = build_late(spec.output, None, fields, filled=_key(spec, rows, late))
    if len(missed):
        packed, times = take(packed, np.flatnonzero(accepted)), times[accepted]
    schema = row_schema(spec)
    filled = {"time": pa.array(times), "stage": pa.array(np.zeros(len(packed), np.int8))}
    filled |= {name: pa.nulls(len(packed), dtype) for name, dtype in _earlier_fields(spec)}
    columns = [filled[name] if name in filled else packed.column(name) for name in schema.names]
    return pa.table(columns, schema=schema), side, lateness.metrics


def timed_out(
    spec: PatternSpec, rows: pa.Table, times: Instants, first: Ids, steps: Ids
) -> pa.Table:
    """The side output for partial matches that ran out of time, with the time of their first row."""
    count = len(first)
    if not count:
        return spec.output.empty_table()
    start = pa.array(times[first]).cast(INSTANT)
    fields = {"reason": pa.repeat("timed_out", count), "steps": pa.array(steps.astype(np.int32))}
    filled = _key(spec, take(rows, first), start)
    return build_late(spec.output, None, fields, filled=filled)


def _key(spec: PatternSpec, rows: pa.Table, time: pa.Array) -> dict[str, pa.Array]:
    """The keys of rows in the side output, and their time as that of a match."""
    keys = {name: rows.column(f"key.{i}") for i, name in enumerate(spec.by)}
    return {**keys, MATCH_START: time, MATCH_END: time}


def _key_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]


def _value_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    return [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]


def _earlier_fields(spec: PatternSpec) -> list[tuple[str, pa.DataType]]:
    """Values of earlier rows, which are known once a row is released."""
    sources = dict(spec.sources)
    types = [spec.input.field(sources[text]).type for text, _ in spec.earlier]
    return [(f"earlier.{i}", dtype) for i, dtype in enumerate(types)]
