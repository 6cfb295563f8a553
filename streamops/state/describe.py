"""Describe a checkpoint: its operators, their state, and what is wrong with it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from streamops.kernel.errors import StreamopsError, located
from streamops.kernel.frame import FRAME
from streamops.state.checkpoint import Checkpoint, OperatorFiles, find_problems, open_checkpoint
from streamops.state.operators import FORMATS, PLACEMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamops.state.shards import StoredShard

_UNREADABLE = {"CHECKPOINT_EMPTY", "CHECKPOINT_TORN", "CHECKPOINT_UNFINISHED"}
_LARGE = 4 << 20
"""Bytes of a shard from which on a micro-batch spends most of its time on reading and writing it."""


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """A stateful operator of a checkpoint.

    Parameters
    ----------
    number : int
        Its number in the query, from 0.
    api : str
        Spark's name of it, such as ``applyInPandasWithState``.
    name : str
        The layout of its state, such as ``windows.grid``; empty if it is not one of streamops.
    version, frame : int
        Versions of the layout and of the frame.
    shards : int
        Number of shards.
    entries : int
        Rows of state, over all shards.
    sizes : tuple of int
        Bytes of each shard that has a state, by shard, without its segments.
    segments : int
        Bytes of all segments, which a micro-batch does not read before it needs them.
    watermark : datetime, optional
        The operator's watermark, or the clock of the shard that is furthest ahead.
    by : tuple of str
        The key columns.
    """

    number: int
    api: str
    name: str = ""
    version: int = 0
    frame: int = 0
    shards: int = 0
    entries: int = 0
    sizes: tuple[int, ...] = ()
    segments: int = 0
    watermark: dt.datetime | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """What a checkpoint contains.

    Parameters
    ----------
    path : Path
        The directory.
    micro_batch : int, optional
        The last committed micro-batch.
    watermark : datetime, optional
        Spark's watermark of the next one.
    partitions : int
        Number of partitions of each state.
    provider : str
        Class of the state store.
    operators : list of OperatorReport
        The stateful operators.
    problems : list of StreamopsError
        What is wrong, each with its remedy. Empty if the checkpoint can be rewritten as it is.
    hints : list of str
        What can be improved.
    """

    path: Path
    micro_batch: int | None = None
    watermark: dt.datetime | None = None
    partitions: int = 0
    provider: str = ""
    operators: list[OperatorReport] = field(default_factory=list)
    problems: list[StreamopsError] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def describe(checkpoint: str | Path, *, spark: SparkSession | None = None) -> CheckpointReport:
    """List operators, formats, shards, sizes, watermarks and problems of a checkpoint.

    Parameters
    ----------
    checkpoint : path
        The checkpoint of a query, on a local file system. The query may be running; then the report
        is about the last micro-batch.
    spark : SparkSession, optional
        A session, which reads the state; by default the running one, or a new local one. It is not
        needed if the files of the checkpoint are damaged.

    Returns
    -------
    CheckpointReport
        ``print`` shows it as tables.

    Raises
    ------
    CheckpointError
        ``NOT_A_CHECKPOINT``, ``CHECKPOINT_PATH``.
    """
    source = open_checkpoint(checkpoint)
    problems: list[StreamopsError] = [*find_problems(source)]
    codes = {problem.code for problem in problems}
    if not _UNREADABLE.isdisjoint(codes):
        return CheckpointReport(source.path, problems=problems)
    operators = []
    for files in source.operators:
        if "CHECKPOINT_FORMAT" in codes:  # Spark's reader looks for files of format 1, and fails
            operators.append(OperatorReport(files.number, files.api))
            continue
        try:
            operators.append(_operator(source, files, spark))
        except StreamopsError as error:
            operators.append(OperatorReport(files.number, files.api))
            problems.append(error)
    return CheckpointReport(
        source.path,
        source.last,
        _instant(source.watermark * 1_000 or None),
        source.partitions,
        source.provider,
        operators,
        problems,
        [*_hints(operators)],
    )


def _operator(
    source: Checkpoint, files: OperatorFiles, spark: SparkSession | None
) -> OperatorReport:
    from streamops.spark.step import to_frame
    from streamops.state.shards import read_header
    from streamops.state.stores import read_shards, session_or_new

    stored = read_shards(session_or_new(spark), source, files)
    if stored is None or not stored.rows:
        return OperatorReport(files.number, files.api)
    rows: Sequence[StoredShard] = stored.rows
    with located(f"{source.path}, operator {files.number}"):
        headers = [read_header(row) for row in rows]
    watermarks = [row.stored.watermark for row in rows if row.stored.watermark is not None]
    first = headers[0]
    return OperatorReport(
        number=files.number,
        api=files.api,
        name=first.layout,
        version=max(frame.version for frame in headers),
        frame=first.frame,
        shards=first.shards,
        entries=sum(row.stored.entries for row in rows),
        sizes=tuple(len(row.stored.frame) for row in sorted(rows, key=lambda row: row.shard)),
        segments=sum(len(to_frame(blob)) for row in rows for blob in row.segments.values()),
        watermark=_instant(max(watermarks, default=None)),
        by=tuple(PLACEMENTS[first.layout].key(first.identity)),
    )


def _hints(operators: Sequence[OperatorReport]) -> Iterator[str]:
    for of in operators:
        if not of.name:
            continue
        current = FORMATS[of.name]
        if (of.version, of.frame) != (current.version, FRAME):
            yield (
                f"operator {of.number}: the format is older than this release writes; "
                "`python -m streamops state migrate` converts it"
            )
        largest = max(of.sizes, default=0)
        if largest > _LARGE:
            shards = min(1 << 15, of.shards * -(-largest // (_LARGE // 4)))
            yield (
                f"operator {of.number}: its largest shard has {_size(largest)}, all of which each "
                f"micro-batch reads and writes; `python -m streamops state rescale CHECKPOINT --to "
                f"NEW --shards {shards}` makes shards of about 1 MB"
            )


def _lines(report: CheckpointReport) -> Iterator[str]:
    yield f"checkpoint    {report.path}"
    if report.micro_batch is not None:
        yield f"micro-batch   {report.micro_batch}, the last one that was committed"
        yield f"watermark     {_show(report.watermark)}"
        unit = "partition" if report.partitions == 1 else "partitions"
        yield f"state store   {report.provider}, {report.partitions} {unit}"
    if report.operators:
        yield ""
        header = ("operator", "state", "format", "shards", "rows", "bytes per shard", "watermark")
        yield from _table([header, *map(_row, report.operators)])
    for hint in report.hints:
        yield ""
        yield f"hint     {hint}"
    for problem in report.problems:
        yield ""
        yield f"PROBLEM  {problem.code}: {problem.what} ({problem.got})"
        yield f"         remedy: {problem.fix}"


def _row(of: OperatorReport) -> tuple[str, ...]:
    if not of.name:
        return (str(of.number), of.api, "", "", "", "", "")
    sizes = of.sizes
    mean = sum(sizes) // len(sizes)
    key = f" by {', '.join(of.by)}" if of.by else ""
    return (
        str(of.number),
        f"{of.name}{key}",
        f"{of.version}, frame {of.frame}",
        str(of.shards),
        str(of.entries),
        f"{_size(mean)}, at most {_size(max(sizes))}"
        + (f"; segments {_size(of.segments)}" if of.segments else ""),
        _show(of.watermark),
    )


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _size(size: int) -> str:
    for unit in ("B", "kB"):
        if size < 10_000:
            return f"{size} {unit}"
        size //= 1_000
    return f"{size} MB"


def _instant(micros: int | None) -> dt.datetime | None:
    if micros is None:
        return None
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    try:
        return epoch + dt.timedelta(microseconds=micros)
    except OverflowError:
        return None


def _show(watermark: dt.datetime | None) -> str:
    return "none" if watermark is None else watermark.isoformat(sep=" ").replace("+00:00", " UTC")
