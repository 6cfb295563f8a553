"""Convert the progress that Spark reports to plain values: the only place that parses it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from streamops.kernel.databases import without_secrets
from streamops.kernel.versions import progress_of
from streamops.observe.core.progress import COUNTS, OperatorProgress, Progress, Source
from streamops.observe.core.rules import parse_lags, parse_offsets
from streamops.spark.progress import parse_metrics, parse_progress_time

_WHOLE = "triggerExecution"
_STATE = ("state_rows", "state_bytes")

# Spark measures the least event time over the rows that operators of streamops pack, and takes those
# that have none for rows of 1970.
_NOT_MEASURED = 0


def read_progress(progress: Any) -> Progress:
    """Convert a ``StreamingQueryProgress``."""
    times = progress.eventTime
    metrics = {name: parse_metrics(row) for name, row in progress.observedMetrics.items()}
    # `time.producers` reads its frame twice, so Spark counts its rows twice.
    twice = sum(m["rows"] or 0 for m in metrics.values() if "held_by" in m)
    rows = max(progress.numInputRows - twice, twice)
    operators = [*_observed(metrics)]
    for index, operator in enumerate(progress.stateOperators):
        name = f"stateOperators[{index}] ({operator.operatorName})"
        dropped = operator.numRowsDroppedByWatermark
        # Spark does not report the input rows of an operator; use those of the query.
        metrics[name] = {"rows": rows, "dropped": dropped}
        state = operator.numRowsTotal, operator.memoryUsedBytes
        operators.append(OperatorProgress(name, {"dropped": dropped}, *state))
    phases = {name: int(millis) * 1_000 for name, millis in progress.durationMs.items()}
    rate = progress.inputRowsPerSecond
    oldest = parse_progress_time(times.get("min"))
    return Progress(
        query=progress.name or str(progress.id),
        run=str(progress.runId),
        batch=progress.batchId,
        started=parse_progress_time(progress.timestamp) or 0,
        rows=rows,
        watermark=parse_progress_time(times.get("watermark")),
        newest=parse_progress_time(times.get("max")),
        sources=tuple(
            Source(
                without_secrets(s.description),
                s.numInputRows,
                parse_lags(s.endOffset, s.latestOffset),
                tuple((*at, offset) for at, offset in parse_offsets(s.endOffset).items()),
            )
            for s in progress.sources
        ),
        metrics=metrics,
        oldest=None if oldest == _NOT_MEASURED else oldest,
        input_rate=_scale(rate, rows, progress.numInputRows),
        duration=phases.pop(_WHOLE, None),
        phases=phases,
        operators=tuple(operators),
    )


def read_new_progress(query: Any, last: int) -> list[Progress]:
    """The micro-batches of a query after number `last`, as far as Spark retains them."""
    reported = progress_of(query.lastProgress)
    if reported is None or reported.batchId <= last:
        return []
    # The other ones are read only if some were missed: there are up to a hundred.
    missed = query.recentProgress if reported.batchId > last + 1 else [reported]
    recent = {p.batch: p for p in map(read_progress, map(progress_of, missed)) if p.batch > last}
    return [recent[batch] for batch in sorted(recent)]


def _observed(metrics: Mapping[str, Mapping[str, Any]]) -> Iterator[OperatorProgress]:
    """The observations that have a count or a state."""
    for name, values in metrics.items():
        known = {key: value for key, value in values.items() if type(value) is int}
        counts = {key: known[key] for key in COUNTS if key in known}
        state = [known.get(key) for key in _STATE]
        if counts or any(size is not None for size in state):
            yield OperatorProgress(name, counts, *state)


def _scale(rate: Any, rows: int, reported: int) -> float | None:
    """The rate of the rows, where Spark reported the rate of more; None if it has none yet."""
    if rate is None or not math.isfinite(rate):
        return None
    return float(rate) * rows / reported if reported else float(rate)
