"""Scripted micro-batches on real Spark, with exact borders."""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.codec import ipc_write
from streamops.kernel.contract import Counts
from streamops.kernel.errors import RequirementError, SpecError
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.annotate import AnnotateTransform
from streamops.spark.columns import arrow_schema, spark_schema
from streamops.spark.pairs import PairTransform
from streamops.spark.progress import parse_metrics
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform, require_choice
from streamops.testing.batches import schema_of, to_table
from streamops.testing.clocks import chained, told_of
from streamops.testing.pairs import SIDES, both_delays, schemas_of, tables_of
from streamops.testing.queries import read_table, run_query, scratch
from streamops.testing.results import BatchResult, split
from streamops.testing.running import followed, noted, told

if TYPE_CHECKING:
    from streamops.spark.clocks import ClockTransform
    from streamops.testing.batches import Batch
    from streamops.testing.clocks import Chain
    from streamops.testing.pairs import Delays, PairBatch, Schemas

__all__ = ["Source", "micro_batches", "stream"]

Source = Literal["auto", "python", "files"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KEPT = "spark.sql.streaming.numRecentProgressUpdates"
# Spark reads files in the order of their modification times; any rising ones do.
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

    Also under the trigger ``availableNow``, and also if it is empty.

    Parameters
    ----------
    spark : SparkSession
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches.
    schema : Schema, optional
        The columns; by default those of the first table, or what all rows together suggest.
    directory : path, optional
        Where the micro-batches are kept, for Spark to read them again after a restart. If it
        holds some already, these follow. By default a temporary one, removed at exit.
    source : "auto", "python" or "files"
        A Python data source carries every type of Spark. Spark 4.1 lacks what it takes, and
        under Spark Connect the server would have to see our files and modules: there,
        "auto" takes Parquet files, which know no variants and no nulls without a type.

    Returns
    -------
    DataFrame

    Raises
    ------
    RequirementError
        ``PYTHON_SOURCE_UNSUPPORTED``: ``source="python"`` before Spark 4.2.

    Examples
    --------
    >>> frame = micro_batches(spark, [[{"n": 1}], [{"n": 2}, {"n": 3}]])  # doctest: +SKIP
    >>> frame.isStreaming  # doctest: +SKIP
    True
    """
    require_choice(source, Source, parameter="source", where="streamops.testing.micro_batches")
    if directory is None:
        directory = tempfile.mkdtemp(prefix="streamops-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    folder = Path(directory) / "input"
    folder.mkdir(parents=True, exist_ok=True)
    from_python = source == "python" or (source == "auto" and _has_python_source(spark))
    if from_python:
        _require_python_source(spark)
    script = list(batches)
    present = sorted(folder.iterdir())
    columns = read_table(present[0]).schema if present else schema_of(script, schema)
    for number, batch in enumerate(script, start=len(present)):
        _write(to_table(batch, columns), folder / f"{number:09d}", number, from_python)
    reader = spark.readStream.schema(spark_schema(columns))
    if not from_python:
        return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
    # Imported late: Spark 4.1 has no such module.
    from streamops.testing.source import MicroBatches

    spark.dataSource.register(MicroBatches)
    return reader.format(MicroBatches.name()).load(str(folder))


def stream(
    spark: SparkSession,
    transform: Chain | PairTransform,
    batches: Iterable[Batch] | Iterable[PairBatch],
    *,
    watermark: Delays = None,
    schema: pa.Schema | Schemas | None = None,
    directory: str | os.PathLike[str] | None = None,
    source: Source = "auto",
    timeout: int = 300,
) -> list[BatchResult]:
    """Run a transform over scripted micro-batches on Spark.

    The same script and the same results as :func:`streamops.testing.replay`, by a query with
    the trigger ``availableNow``.

    Parameters
    ----------
    spark : SparkSession
    transform : Transform, RunningTransform, AnnotateTransform, PairTransform, or list of ClockTransform and Transform
    batches : iterable of Table, pandas DataFrame, or list of dict
        The micro-batches. For an operator with two inputs: pairs of them, ``(left, right)``, each
        pair one micro-batch. None is a side without rows.
    watermark : duration, or pair of durations, optional
        Give the frame a watermark with this delay, on the transform's time column; with two
        inputs, both of them or those that the pair has one for.
    schema, source
        As in :func:`micro_batches`; with two inputs, ``schema`` is a pair.
    directory : path, optional
        Where the micro-batches, the checkpoint and the output are kept. Called again with the
        same directory, the query continues where it stopped: a restart. By default a temporary
        one. Workers must see it.
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
        ``TOO_MANY_BATCHES``: Spark would forget the progress of the first ones.
    StreamingQueryException
        The query failed.
    """
    script: list[Any] = list(batches)
    _refuse_too_many(spark, len(script))
    given: Any = schema
    delay: Any = watermark
    with scratch(directory) as folder:
        source_of = functools.partial(micro_batches, spark, source=source)
        if isinstance(transform, PairTransform):
            return _stream_pair(source_of, transform, script, delay, given, folder, timeout)
        clock = None
        if not isinstance(transform, RunningTransform | AnnotateTransform):
            clock, transform = chained(transform)
        settings: Any = transform.settings
        frame = source_of(script, schema=given, directory=folder)
        if delay is not None:
            frame = _with_watermark(frame, settings.time, delay)
        frame = frame if clock is None else frame.transform(clock)
        ran = run_query(frame.transform(transform), folder, timeout)
        if isinstance(transform, AnnotateTransform):
            return [noted(n, rows) for n, rows, _ in ran]
        if isinstance(transform, RunningTransform):
            name = transform.options.name
            return [
                told(transform, n, rows, parse_metrics(p.observedMetrics.get(name)))
                for n, rows, p in ran
            ]
        spec = settings.bind(arrow_schema(frame, where="streamops.testing"), carried=0)
        return [_result(clock, transform, spec.event_time, *each) for each in ran]


def _stream_pair(
    source_of: Callable[..., DataFrame],
    transform: PairTransform,
    script: list[PairBatch],
    watermark: Delays,
    schema: Schemas | None,
    folder: Path,
    timeout: int,
) -> list[BatchResult]:
    schemas, frames = schemas_of(script, schema), []
    tables = [tables_of(batch, schemas) for batch in script]
    sides = zip(SIDES, transform.settings.times, both_delays(watermark), strict=True)
    for at, (side, time, delay) in enumerate(sides):
        mine = [each[at] for each in tables]
        frame = source_of(mine, schema=schemas[at], directory=folder / side)
        if delay is not None and time is not None:
            frame = _with_watermark(frame, time, delay)
        frames.append(frame)
    left, right = frames
    ran = run_query(left.transform(replace(transform, right=right)), folder, timeout)
    results = [_result(None, transform, None, *each) for each in ran]
    if transform.then is None:
        return results
    _, second = transform.steps(transform.then)
    name = f"{second.options.name}-2"  # as the second of its name in the query
    return [
        followed(result, told(second, n, rows, parse_metrics(p.observedMetrics.get(name))))
        for result, (n, rows, p) in zip(results, ran, strict=True)
    ]


def _with_watermark(frame: DataFrame, time: str, delay: Duration) -> DataFrame:
    micros = parse_duration(delay, parameter="watermark", where="streamops.testing")
    return frame.withWatermark(time, format_duration(micros))


def _result(
    clock: ClockTransform | None,
    transform: Transform | PairTransform,
    event_time: str | None,
    number: int,
    table: pa.Table,
    progress: Any,
) -> BatchResult:
    metrics = parse_metrics(progress.observedMetrics.get(transform.options.name))
    counted = "on_time" in metrics
    # A query without a watermark tells none.
    told_mark = progress.eventTime.get("watermark")
    mark = (dt.datetime.fromisoformat(told_mark) - _EPOCH) if told_mark else None
    lateness = dt.timedelta(microseconds=transform.settings.lag)
    return BatchResult(
        batch=number,
        **dict(zip(("table", "late"), split(table, event_time), strict=True)),
        watermark=_EPOCH + mark + lateness if mark else None,
        counts=Counts(*(metrics[f.name] or 0 for f in fields(Counts))) if counted else None,
        state_rows=metrics["state_rows"] if counted else None,
        state_bytes=metrics["state_bytes"] if counted else None,
        clock=None
        if clock is None
        else told_of(parse_metrics(progress.observedMetrics[clock.options.name])),
    )


def _write(table: pa.Table, stem: Path, number: int, from_python: bool) -> None:
    if from_python:
        stem.with_suffix(".arrow").write_bytes(ipc_write(table))
        return
    file = stem.with_suffix(".parquet")
    pq.write_table(table, file)
    os.utime(file, (_FIRST_MTIME + number,) * 2)


def _has_python_source(spark: SparkSession) -> bool:
    classic = type(spark).__module__ == "pyspark.sql.session"
    return classic and tuple(map(int, spark.version.split(".")[:2])) >= (4, 2)


def _require_python_source(spark: SparkSession) -> None:
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 2):
        raise RequirementError(
            "PYTHON_SOURCE_UNSUPPORTED",
            "this Spark cannot end a run of a Python data source by itself",
            where="streamops.testing.micro_batches",
            got=f"Spark {spark.version} and source='python'",
            expected="Spark 4.2 or later",
            fix="source='files'",
        )


def _refuse_too_many(spark: SparkSession, count: int) -> None:
    kept = int(spark.conf.get(_KEPT, "100") or 100)
    if count >= kept:
        raise SpecError(
            "TOO_MANY_BATCHES",
            "Spark forgets the progress of the first micro-batches",
            where="streamops.testing.stream",
            got=f"{count} micro-batches, and {_KEPT}={kept}",
            expected=f"fewer than {kept}",
            fix=f"run them in parts, in one directory; or raise {_KEPT}",
        )
