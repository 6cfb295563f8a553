"""Transcripts put to the test: on the core, and on Spark."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamops.changelog.table import REJECTED
from streamops.spark.definition import StateApi
from streamops.testing.replaying import Replay
from streamops.testing.results import BatchResult
from streamops.testing.rows import assert_rows
from streamops.testing.script import Line, puts_aside
from streamops.testing.transcripts import Transcript
from streamops.testing.values import same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamops.testing.streaming import Source

__all__ = ["assert_replays", "assert_streams"]

Run = Callable[[list[Any]], list[BatchResult]]


def assert_replays(
    transcript: Transcript, *, restart: bool = False, shards: int | None = None
) -> None:
    """Fail where a replay without Spark differs from the transcript.

    Parameters
    ----------
    transcript : Transcript
    restart : bool, default False
        Restart between every two lines.
    shards : int, optional
        Instead of the operator's own number.
    """
    query = Replay(
        transcript.chain,
        transcript.schema,
        watermark=transcript.watermark,
        shards=shards,
        restart=restart,
    )
    _check(transcript, query.run)


def assert_streams(
    spark: SparkSession,
    transcript: Transcript,
    *,
    state_api: StateApi = "auto",
    shards: int | None = None,
    source: Source = "auto",
    directory: str | os.PathLike[str] | None = None,
) -> None:
    """Fail where a query on Spark differs from the transcript.

    Parameters
    ----------
    spark : SparkSession
    transcript : Transcript
    state_api, shards
        Instead of the operator's own.
    source : "auto", "python" or "files"
        See :func:`streamops.testing.micro_batches`; a run from files is the shorter one.
    directory : path, optional
        Where the checkpoint is kept. By default a temporary one.
    """
    from streamops.testing.streaming import stream

    operator = transcript.operator.options(state_api=state_api, shards=shards)
    # A clock has the API of its own spec: two of the other kind cannot be in one query.
    chain = [operator] if transcript.behind is None else [transcript.behind, operator]
    with tempfile.TemporaryDirectory(prefix="streamops-") as temporary:
        folder = temporary if directory is None else directory

        def run(batches: list[Any]) -> list[BatchResult]:
            return stream(
                spark,
                chain,
                batches,
                watermark=transcript.watermark,
                schema=transcript.schema,
                source=source,
                directory=folder,
            )

        _check(transcript, run)


def _check(transcript: Transcript, run: Run) -> None:
    number = 0
    for lines in transcript.runs():
        results = run([line.rows for line in lines if line.rows is not None])
        if len(results) > len(lines):
            # The micro-batch without data, of which the transcript says nothing: nothing comes.
            lines = [*lines, Line()]
        for line, result in zip(lines, results, strict=False):
            number += 1
            try:
                _compare(line, result)
            except AssertionError as error:
                message = f"{transcript.name!r}, line {number}: {error}"
                raise AssertionError(message) from None
        if len(lines) > len(results):
            message = (
                f"{transcript.name!r}, line {number + 1}: there is no micro-batch without data "
                "here, as the watermark did not move"
            )
            raise AssertionError(message)


def _compare(line: Line, result: BatchResult) -> None:
    rows, late = result.rows, result.late_rows
    if puts_aside(result.table.schema):
        late = [row[REJECTED] for row in rows if row[REJECTED] is not None]
        rows = [row for row in rows if row.pop(REJECTED) is None]
    assert_rows(rows, line.expect)
    assert_rows(late, line.late)
    for name, wanted in line.checks.items():
        found = getattr(result if name in ("watermark", "state_rows") else result.counts, name)
        _same(name, found, wanted)
    for name, wanted in line.clock.items():
        _same(f"{name} of the clock", getattr(result.clock, name, None), wanted)


def _same(name: str, found: Any, wanted: Any) -> None:
    if not same(found, wanted):
        message = f"{name} is {found}, expected {wanted}"
        raise AssertionError(message)
