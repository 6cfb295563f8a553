"""What is still pending in the state of a stopped query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamops.kernel.errors import located
from streamops.spark.columns import spark_schema
from streamops.spark.drive import build_rows
from streamops.spark.operator import Operator
from streamops.spark.step import ShardStep, Stored
from streamops.state import conditions
from streamops.state.reading import find_operator, rows_with_segments
from streamops.state.resolving import resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@located("state.pending")
def pending(
    checkpoint: str | Path, operator: Operator, frame: DataFrame, *, number: int | None = None
) -> DataFrame:
    """What a stopped query has not emitted yet: the results of its open windows, as if its stream had ended.

    A stream ends with the trigger ``availableNow`` when its source has no more rows, but its watermark
    does not: windows above it stay open. This is a batch frame of their results.

    Parameters
    ----------
    checkpoint : path
        The checkpoint of the query, which has stopped; any path that Spark can read.
    operator : Operator
        The operator with the parameters of the query. No operator may follow it in the query that stores
        state.
    frame : DataFrame
        The streaming frame that the query applies it to. Its rows are not read.
    number : int, optional
        The number of the operator in the query, if the query has several with the same state.

    Returns
    -------
    DataFrame
        With the columns of the operator. With what the query has emitted, and the same frame
        processed at once, there are the same results.

    Raises
    ------
    CheckpointError
        ``UNKNOWN_OPERATOR``, ``FOREIGN_OPERATOR``, ``CHECKPOINT_EMPTY``; ``CHECKPOINT_UNSUPPORTED``: the
        operator adds columns to the rows of the stream, and has no results of its own.
    StateFormatError
        The state is damaged, or that of an operator with other parameters.
    SpecError
        ``PARAMETER_TYPE``, ``NOT_A_FRAME``: not an operator and its frame.

    Examples
    --------
    >>> rest = state.pending("/data/checkpoint", per_minute, views)
    >>> end = sinks.postgres(url, "views_per_minute", new_checkpoint="continue")
    >>> end.write(rest, query="views, end")

    Notes
    -----
    The checkpoint is not changed. `write` publishes the rows once, however often it is repeated. The
    sink then refuses the query itself, which would emit these windows a second time.

    See Also
    --------
    streamops.testing.replay : ``flush=True`` does the same in a test.
    """
    query = resolve(operator, frame)
    if operator.build_result is not None:
        raise conditions.NOTHING_PENDING.error(got=operator.name)
    session, path, step = frame.sparkSession, str(checkpoint), query.step
    name = step.header[0].kind if number is None else number
    found, _ = find_operator(session, path, name, None)
    rows = rows_with_segments(session, path, found, None)
    output = query.spec.output
    ended = rows.mapInArrow(partial(_finish_batches, step, path), spark_schema(output))
    return build_rows(query, ended, None)


def _finish_batches(
    step: ShardStep[Any], path: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            with located(f"{path}, shard {row['shard']}"):
                yield from _finish(step, row).to_batches()


def _finish(step: ShardStep[Any], row: dict[str, Any]) -> pa.Table:
    """What is pending in a shard."""
    stored = Stored(0, row["watermark"], None, 0, row["blob"])
    store = _Segments({of["number"]: of["blob"] for of in row["segments"] or ()})
    segments = step.open_segments(store, row["shard"])
    state = step.decode(stored, segments)
    spec, state, _ = step.core.attune(step.spec, state, ())
    return step.core.finish(spec, state)


class _Segments(dict[int, str]):
    """The segments of a shard, by number. They are only read."""

    def read(self, number: int) -> str:
        """Return a segment; empty if there is none of this number."""
        return self.get(number, "")

    def write(self, number: int, blob: str) -> None:
        """Nothing is written at the end of a stream."""
        raise AssertionError

    def remove(self, number: int) -> None:
        """Nothing is removed at the end of a stream."""
        raise AssertionError
