"""Scripted micro-batches on Spark."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.core import SIDES
from streamops.kernel.time import format_duration, parse_duration
from streamops.kernel.versions import has_scripted_sources, progress_of, to_arrow
from streamops.spark.clocks import ClockSpec
from streamops.spark.columns import spark_schema
from streamops.spark.operator import Operator
from streamops.spark.progress import parse_metrics
from streamops.testing import conditions
from streamops.testing.batches import (
    canonical,
    expand,
    infer_schema,
    infer_schemas,
    per_input,
    to_table,
    to_tables,
)
from streamops.testing.results import BatchResult, combine_results, read_clock, read_counts

if TYPE_CHECKING:
    from streamops.testing.batches import Batch, Chain, Delays, Inputs, Schemas

Source = Literal["auto", "python", "files"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PROGRESS_LIMIT = "spark.sql.streaming.numRecentProgressUpdates"
# Spark reads files in the order of their modification times. Any increasing times will do.
_FIRST_MTIME = 1_704_067_200


def micro_batches(
    spark: SparkSession,
    batches: Iterable[Batch],
    *,
    schema: pa.Schema | None = None,
    directory: str | os.PathLike[str] | None = None,
    source: Source = "auto",
) -> DataFrame:
    """A streaming frame in which each item is exactly one micro-batch.

    This holds under the trigger ``availableNow``, too, and for empty items.

    Parameters
    ----------
    spark : SparkSession
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches.
    schema : Schema, optional
        The columns; by default those of the first table, or those of all rows together.
    directory : path, optional
        Where the micro-batches are stored, so that Spark can read them again after a restart. New
        micro-batches follow those that it contains. By default a temporary directory, removed at exit.
    source : "auto", "python" or "files"
        A Python data source supports all types of Spark. It needs Spark 4.2, and under Spark Connect
        the server would need our files and modules: in both cases "auto" writes Parquet files, which do
        not support variants, nor nulls without a type.

    Returns
    -------
    DataFrame

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``: ``source="python"`` before Spark 4.2.

    Examples
    --------
    >>> frame = micro_batches(spark, [[{"n": 1}], [{"n": 2}, {"n": 3}]])
    >>> frame.isStreaming
    True
    """
    if directory is None:
        directory = tempfile.mkdtemp(prefix="streamops-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    folder = Path(directory) / "input"
    folder.mkdir(parents=True, exist_ok=True)
    is_classic = type(spark).__module__ == "pyspark.sql.session"
    is_supported = has_scripted_sources()
    if source == "python" and not is_supported:
        raise conditions.PYTHON_SOURCE_UNSUPPORTED.error(
            got=f"Spark {spark.version} and source='python'"
        )
    from_python = source == "python" or (source == "auto" and is_classic and is_supported)
    script = list(batches)
    columns = _written_schema(folder.parent) or infer_schema(script, schema)
    for number, batch in enumerate(script, start=len(list(folder.iterdir()))):
        _write(to_table(batch, columns), folder / f"{number:09d}", number, from_python)
    reader = spark.readStream.schema(spark_schema(columns))
    if not from_python:
        return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
    # Imported late: it does not import on Spark 4.1.
    from streamops.testing.source import MicroBatches

    spark.dataSource.register(MicroBatches)
    return reader.format(MicroBatches.name()).load(str(folder))


def stream(
    spark: SparkSession,
    operator: Chain,
    batches: Iterable[Inputs],
    *,
    watermark: Delays = None,
    schema: Schemas = None,
    directory: str | os.PathLike[str] | None = None,
    source: Source = "auto",
    timeout: int = 300,
) -> list[BatchResult]:
    """Run an operator, or a chain of them, over scripted micro-batches on Spark.

    The same script and the same results as :func:`streamops.testing.replay`, by a query with
    the trigger ``availableNow``.

    Parameters
    ----------
    spark : SparkSession
    operator : Operator, or sequence of Operator
        As in :func:`streamops.testing.replay`.
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches. If the first operator has two inputs: pairs of them, ``(left, right)``, each
        pair one micro-batch. None is an input without rows.
    watermark : duration, or pair of durations, optional
        Define a watermark with this delay on the time column of the frame. With two inputs: one delay
        for both, or a pair, in which None is an input without.
    schema, source
        As in :func:`micro_batches`; with two inputs, ``schema`` is a pair.
    directory : path, optional
        Where the micro-batches, the checkpoint and the output are stored. Called again with the
        same directory, the query continues where it stopped: a restart. By default a temporary
        one. Workers need access to it.
    timeout : int
        Seconds after which the query is stopped.

    Returns
    -------
    list of BatchResult
        One per micro-batch of this call.

    Raises
    ------
    TimeoutError
        The query did not end in time.
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: Spark would not keep the progress of the first ones.
    StreamingQueryException
        The query failed.
    """
    script: list[Any] = list(batches)
    _refuse_too_many(spark, len(script))
    operators = expand(operator)
    first, *rest = operators
    names = ("",) if len(first.spec.times) == 1 else SIDES
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="streamops-"))
        folder = Path(directory)
        written = [_written_schema(folder / name) for name in names]
        schemas = tuple(schema for schema in written if schema is not None)
        if len(schemas) < len(names):
            schemas = infer_schemas(first, script, schema)
        tables = [to_tables(batch, schemas) for batch in script]
        frames = []
        inputs = zip(names, first.spec.times, per_input(first, watermark), strict=True)
        for position, (name, time, delay) in enumerate(inputs):
            frame = micro_batches(
                spark,
                [batch[position] for batch in tables],
                schema=schemas[position],
                directory=folder / name,
                source=source,
            )
            if delay is not None and time is not None:
                micros = parse_duration(delay, parameter="watermark")
                frame = frame.withWatermark(time, format_duration(micros))
            frames.append(frame)
        first = replace(first, follow_up=None)
        result = frames[0].transform(first if len(frames) == 1 else replace(first, right=frames[1]))
        for following in rest:
            result = result.transform(replace(following, follow_up=None))
        finished = run_query(result, folder, timeout)
    return [_result(operators, *batch) for batch in finished]


def run_query(frame: DataFrame, folder: Path, timeout: int) -> list[tuple[int, pa.Table, Any]]:
    """Run a streaming frame under the trigger ``availableNow``.

    Returns number, rows and progress of each micro-batch. The folder stores the checkpoint and the
    output; a query in the same folder continues. Raises ``TimeoutError`` after ``timeout`` seconds.
    """
    output = folder / "output"
    output.mkdir(parents=True, exist_ok=True)
    before = set(output.iterdir())
    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(functools.partial(_write_output, str(output)))
        .trigger(availableNow=True)
        .start()
    )
    try:
        if not query.awaitTermination(timeout):
            message = f"the query did not end within {timeout} seconds"
            raise TimeoutError(message)
        reported = map(progress_of, query.recentProgress)
        progress = {p.batchId: p for p in reported if "addBatch" in p.durationMs}
    finally:
        query.stop()
    files = [(int(file.stem), file) for file in sorted(set(output.iterdir()) - before)]
    return [(number, _read_table(file), progress[number]) for number, file in files]


def _write_output(output: str, batch: DataFrame, number: int) -> None:
    # To a file, atomically: under Connect this runs in a process of the server.
    file = Path(output) / f"{number:09d}.arrow"
    unfinished = file.with_suffix(".tmp")
    unfinished.write_bytes(ipc_write(to_arrow(batch)))
    unfinished.replace(file)


def _write(table: pa.Table, stem: Path, number: int, from_python: bool) -> None:
    if from_python:
        stem.with_suffix(".arrow").write_bytes(ipc_write(table))
        return
    file = stem.with_suffix(".parquet")
    pq.write_table(table, file)
    os.utime(file, (_FIRST_MTIME + number,) * 2)


def _read_table(file: Path) -> pa.Table:
    """The table of a file, with the types in which Spark passes it to Python."""
    table = pq.read_table(file) if file.suffix == ".parquet" else ipc_read(file.read_bytes())
    return table.cast(canonical(table.schema))


def _written_schema(directory: Path) -> pa.Schema | None:
    """The columns of the micro-batches that earlier calls wrote there, if any."""
    written = sorted((directory / "input").glob("*"))
    return _read_table(written[0]).schema if written else None


def _result(
    operators: Sequence[Operator], number: int, table: pa.Table, progress: Any
) -> BatchResult:
    """The result of the last operator, with the metrics of the others."""
    results, names = [], list[str]()
    for operator in operators:
        name, count = operator.metrics_name, 1
        while name in names:
            count += 1
            name = f"{operator.metrics_name}-{count}"
        names.append(name)
        metrics = parse_metrics(progress.observedMetrics.get(name))
        results.append(_read_metrics(operator, number, metrics, progress))
    return combine_results(operators, results, table)


def _read_metrics(
    operator: Operator, number: int, metrics: Mapping[str, Any], progress: Any
) -> BatchResult:
    """The metrics of an operator that Spark observed in a micro-batch, without rows."""
    if isinstance(operator.parameters, ClockSpec):
        return BatchResult(number, clock=read_clock(metrics))
    result = BatchResult(number, watermark=_watermark(operator, progress))
    core = operator.core
    # The native engine has no metrics, and an operator that passes rows on has no counts.
    if core is None or operator.build_result is not None or not {*core.METRICS} <= {*metrics}:
        return result
    return replace(
        result,
        counts=read_counts(core, metrics),
        state_rows=metrics["state_rows"] or 0,
        state_bytes=metrics["state_bytes"] or 0,
    )


def _watermark(operator: Operator, progress: Any) -> dt.datetime | None:
    """The operator's own watermark."""
    if not any(operator.spec.times):
        return None
    text = progress.eventTime.get("watermark")  # missing in a query without a watermark
    mark = (dt.datetime.fromisoformat(text) - _EPOCH) if text else None
    lag = dt.timedelta(microseconds=operator.spec.lag)
    return _EPOCH + mark + lag if mark else None


def _refuse_too_many(spark: SparkSession, count: int) -> None:
    limit = int(spark.conf.get(_PROGRESS_LIMIT, "100") or 100)
    if count >= limit:
        raise conditions.TOO_MANY_BATCHES.error(
            limit=limit, got=f"{count} micro-batches, and {_PROGRESS_LIMIT}={limit}"
        )
