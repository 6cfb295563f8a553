"""The state of an operator as a frame: one row per key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from streamops.kernel.added import without_unknown
from streamops.kernel.aggregation import make_lists
from streamops.kernel.codec import StoredFrame
from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.errors import CheckpointError, located
from streamops.kernel.groups import Groups
from streamops.kernel.placement import ByKey
from streamops.kernel.segments import INDEX, UNMERGED
from streamops.kernel.versions import require_state_reader
from streamops.spark.columns import spark_schema
from streamops.spark.step import Stored
from streamops.state import conditions
from streamops.state.operators import PLACEMENTS
from streamops.state.shards import StoredShard, read_header, read_tables
from streamops.state.stores import read_rows, read_segments, session_or_new

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AGGREGATE = re.compile(r"agg\.(\d+)\.(.+)")
_NUMBERED = re.compile(r"(?:c|column|value)\.(\d+)")


def read(
    checkpoint: str | Path,
    operator: int | str,
    *,
    batch: int | None = None,
    spark: SparkSession | None = None,
) -> DataFrame:
    """The state of an operator as a frame, one row per key.

    Parameters
    ----------
    checkpoint : path
        The checkpoint of a query, which may be running; any path that Spark can read.
    operator : int or str
        The number of the operator in the query, from 0; or the name of its state, such as
        "windows.grid", if one operator of the query has it. ``python -m streamops doctor
        CHECKPOINT`` lists both.
    batch : int, optional
        The micro-batch after which the state is read; by default the last committed one. Spark keeps
        the state of the last hundred.
    spark : SparkSession, optional
        The session, classic or Connect; by default the running one, or a new local one.

    Returns
    -------
    DataFrame
        The key columns; the ``shard``; and for each table of the state a list of structs with its
        rows, in no particular order. The columns of aggregates begin with the name of the aggregate
        (``n.count``), other columns of the input have their names. They are null where an aggregate that was added later is
        not known. What they mean is in docs/state-formats.md. Tables that belong to a shard and not to a key are not included. In a large
        state, a pane of a window may be in several rows, which the next steps merge.

    Raises
    ------
    CheckpointError
        ``UNKNOWN_OPERATOR``; ``FOREIGN_OPERATOR``: the operator is one of Spark; ``CHECKPOINT_EMPTY``: it has
        no state yet, or is ``sketches.seen``, which does not store keys.
    StateFormatError
        The state is damaged, or in an unknown format.

    Examples
    --------
    >>> from streamops import state
    >>> state.read("/data/checkpoint", "windows.grid")
    DataFrame[origin: string, shard: int, panes: array<struct<...>>]
    """
    session = session_or_new(spark)
    path = str(checkpoint)
    number, first = find_operator(session, path, operator, batch)
    if not _rules(first):
        raise conditions.NO_KEYS.error(where=path, got=first.layout)
    schema = _schema(first)
    rows = rows_with_segments(session, path, number, batch)
    return rows.mapInArrow(partial(_decode_batches, schema, path), spark_schema(schema))


def rows_with_segments(
    spark: SparkSession, path: str, operator: int, batch: int | None
) -> DataFrame:
    """One row per shard: ``shard``, ``watermark``, ``blob``, and ``segments``, null if it has none."""
    rows, _ = read_rows(spark, path, operator, batch)
    rows = rows.select("shard", "watermark", "blob")
    found = read_segments(spark, path, operator, batch)
    if found is None:
        return rows.withColumn(
            "segments", F.lit(None).cast("array<struct<number:bigint,blob:string>>")
        )
    segments = F.collect_list(F.struct("number", "blob")).alias("segments")
    return rows.join(found.groupBy("shard").agg(segments), "shard", "left")


def find_operator(
    spark: SparkSession, path: str, operator: int | str, batch: int | None
) -> tuple[int, StoredFrame]:
    """The number of the operator, and the frame of one of its shards."""
    require_state_reader()
    rows = spark.read.format("state-metadata").load(path).select("operatorId").collect()
    known = sorted({int(row[0]) for row in rows})
    found, unread = [], []
    for number in known:
        if isinstance(operator, int) and number != operator:
            continue
        try:
            rows_, _ = read_rows(spark, path, number, batch)
            row = rows_.select("shard", "blob").first()
        except CheckpointError as error:
            if isinstance(operator, int):
                raise
            unread.append(f"operator {number} was not read: {error.code}")
            continue
        if row is None:
            continue
        frame = _header(path, row["shard"], row["blob"])
        if operator in (number, frame.layout):
            found.append((number, frame))
    if len(found) == 1:
        return found[0]
    if isinstance(operator, int) and operator in known:
        raise conditions.NO_STATE.error(where=path, got=f"operator {operator} without a shard")
    raise conditions.UNKNOWN_OPERATOR.error(
        where=path,
        known=known,
        got="; ".join([f"operator={operator!r}, of which there are {len(found)}", *unread]),
    )


def _header(path: str, shard: int, blob: str) -> StoredFrame:
    stored = Stored(0, None, None, 0, blob)
    with located(path):
        return read_header(StoredShard(shard, stored, None, 0))


def _decode_batches(
    schema: pa.Schema, path: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            frame = _header(path, row["shard"], row["blob"])
            segments = {of["number"]: of["blob"] for of in row["segments"] or ()}
            with located(f"{path}, shard {row['shard']}"):
                tables = read_tables(frame, segments)
            yield from _rows_by_key(frame, tables, row["shard"], schema).to_batches()


def rows_of_shard(blob: str, segments: Mapping[int, str]) -> pa.Table | None:
    """The state of a shard, one row per key; None if it does not store keys."""
    frame = _header("a shard", 0, blob)
    return _rows_by_key(frame, read_tables(frame, segments), 0, None) if _rules(frame) else None


def _rules(frame: StoredFrame) -> dict[str, ByKey]:
    rules = PLACEMENTS[frame.layout].tables
    return {name: rule for name, rule in rules.items() if isinstance(rule, ByKey)}


def _schema(frame: StoredFrame) -> pa.Schema:
    """Columns of the result."""
    tables = frame.tables()
    tables.pop(INDEX, None)
    return _rows_by_key(frame, tables, 0, None).schema


def _rows_by_key(
    frame: StoredFrame, tables: Mapping[str, pa.Table], shard: int, schema: pa.Schema | None
) -> pa.Table:
    """The tables of a shard, grouped by key. Rows of segments are those of the first table."""
    placement, identity = PLACEMENTS[frame.layout], frame.identity
    tables = {name: without_unknown(table) for name, table in tables.items()}
    first, *names = (name for name in tables if name != UNMERGED)
    tables = {
        first: concat([tables[name] for name in (first, UNMERGED) if name in tables]),
        **{name: tables[name] for name in names},
    }
    rules = {name: rule for name, rule in _rules(frame).items() if name in tables}
    keys, parts = [], []
    for name, rule in rules.items():
        table = tables[name]
        names = rule.key_columns(identity, table)
        keys.append([combine_chunks(table.column(n)) for n in names])
        rest = [n for n in table.column_names if n not in names]
        parts.append(table.select(rest).rename_columns(_names(rule, identity, rest)))
    columns = [pa.concat_arrays(of_tables) for of_tables in zip(*keys, strict=True)]
    count = sum(map(len, parts))
    codes = key_codes(columns, count) if columns else np.zeros(count, np.int64)
    groups, firsts = Groups.of(codes)
    result = {
        key: column.take(pa.array(firsts))
        for key, column in zip(placement.key(identity), columns, strict=True)
    }
    result["shard"] = pa.array(np.full(groups.count, shard, np.int32))
    start = 0
    for name, part in zip(rules, parts, strict=True):
        ids = groups.ids[start : start + len(part)]
        start += len(part)
        ordered = take(part, np.argsort(ids, kind="stable"))
        arrays = [combine_chunks(column) for column in ordered.columns]
        structs = pa.StructArray.from_arrays(arrays, fields=list(ordered.schema))
        result[name] = make_lists(structs, np.bincount(ids, minlength=groups.count))
    found = pa.table(result)
    return found if schema is None else found.cast(schema)


def _names(rule: ByKey, identity: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """The names of columns as users know them, where the identity has them."""
    aggregates = [entry[0] for entry in identity.get("agg", [])]
    if rule.columns is not None:
        inputs = list(rule.columns(identity))
    else:
        values = identity.get("values", [])
        inputs = [value if isinstance(value, str) else value[0] for value in values]
    result = []
    for column in columns:
        aggregate, numbered = _AGGREGATE.fullmatch(column), _NUMBERED.fullmatch(column)
        name = column
        if aggregate and int(aggregate[1]) < len(aggregates):
            name = f"{aggregates[int(aggregate[1])]}.{aggregate[2]}"
        elif numbered and int(numbered[1]) < len(inputs):
            name = inputs[int(numbered[1])]
        result.append(name if name not in result else column)
    return result
