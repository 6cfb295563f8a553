"""Scripted micro-batches on real Spark, with exact borders."""

from __future__ import annotations

import atexit
import datetime as dt
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

from streamops.kernel.codec import ipc_write
from streamops.kernel.core import SIDES, Metrics
from streamops.kernel.errors import RequirementError, SpecError
from streamops.kernel.parameters import require_choice
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.columns import spark_schema
from streamops.spark.operator import Operator
from streamops.spark.progress import parse_metrics
from streamops.spark.step import metric_fields
from streamops.testing.batches import schema_of, to_table
from streamops.testing.inputs import delays_of, expand, schemas_of, tables_of
from streamops.testing.queries import read_table, run_query, scratch
from streamops.testing.results import BatchResult, combine_results, read_clock

if TYPE_CHECKING:
    from streamops.testing.batches import Batch
    from streamops.testing.inputs import Chain, Delays, Inputs, Schemas

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
    columns = _written_schema(folder.parent) or schema_of(script, schema)
    for number, batch in enumerate(script, start=len(list(folder.iterdir()))):
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
        Give the frame a watermark with this delay, on the operator's time column; with two
        inputs, both of them or those that the pair has one for.
    schema, source
        As in :func:`micro_batches`; with two inputs, ``schema`` is a pair.
    directory : path, optional
        Where the micro-batches, the checkpoint and the output are stored. Called again with the
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
    operators = expand(operator)
    first, *rest = operators
    names = ("",) if len(first.parameters.times) == 1 else SIDES
    with scratch(directory) as folder:
        written = [_written_schema(folder / name) for name in names]
        schemas = tuple(each for each in written if each is not None)
        if len(schemas) < len(names):
            schemas = schemas_of(first, script, schema)
        tables = [tables_of(batch, schemas) for batch in script]
        frames = []
        inputs = zip(names, first.parameters.times, delays_of(first, watermark), strict=True)
        for at, (name, time, delay) in enumerate(inputs):
            mine = [each[at] for each in tables]
            frame = micro_batches(
                spark, mine, schema=schemas[at], directory=folder / name, source=source
            )
            if delay is not None and time is not None:
                frame = _with_watermark(frame, time, delay)
            frames.append(frame)
        first = replace(first, follow_up=None)
        result = frames[0].transform(first if len(frames) == 1 else replace(first, right=frames[1]))
        for each in rest:
            result = result.transform(replace(each, follow_up=None))
        ran = run_query(result, folder, timeout)
    return [_result(operators, *each) for each in ran]


def _written_schema(directory: Path) -> pa.Schema | None:
    """The columns of the micro-batches that earlier calls wrote there, if any."""
    written = sorted((directory / "input").glob("*"))
    return read_table(written[0]).schema if written else None


def _with_watermark(frame: DataFrame, time: str, delay: Duration) -> DataFrame:
    micros = parse_duration(delay, parameter="watermark", where="streamops.testing")
    return frame.withWatermark(time, format_duration(micros))


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
        results.append(read_metrics(operator, number, metrics, progress))
    return combine_results(operators, results, table)


def read_metrics(
    operator: Operator, number: int, metrics: Mapping[str, Any], progress: Any
) -> BatchResult:
    """What Spark observed of an operator in a micro-batch, without rows."""
    empty = pa.table({})
    if operator.project is not None:
        return BatchResult(number, empty, empty, None, None, None, None, read_clock(metrics))
    core: Any = operator.core
    names = metric_fields(core)
    if operator.finish is not None or not {*names} <= {
        *metrics
    }:  # the native engine counts nothing
        return BatchResult(number, empty, empty, _watermark(operator, progress), None, None, None)
    type_ = getattr(core, "COUNTS", Metrics)
    return BatchResult(
        number,
        empty,
        empty,
        _watermark(operator, progress),
        type_(**{field: metrics[name] or 0 for name, field in names.items()}),
        metrics["state_rows"] or 0,
        metrics["state_bytes"] or 0,
    )


def _watermark(operator: Operator, progress: Any) -> dt.datetime | None:
    """The operator's own watermark."""
    if not any(operator.parameters.times):
        return None
    text = progress.eventTime.get("watermark")  # a query without a watermark has none
    mark = (dt.datetime.fromisoformat(text) - _EPOCH) if text else None
    lag = dt.timedelta(microseconds=operator.parameters.lag)
    return _EPOCH + mark + lag if mark else None


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
