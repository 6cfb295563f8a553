"""One watermark per producer, and their minimum for the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamops.kernel.time import Duration
from streamops.spark.clocks import ClockOptions, ClockTransform
from streamops.spark.transform import StateApi
from streamops.time.core import producers as core
from streamops.time.producers_settings import ProducersSettings

__all__ = ["producers"]


def producers(
    producer: str,
    *,
    time: str,
    delay: Duration,
    idle: Duration,
    arrival: str | None = None,
    expected: Sequence[Any] = (),
    state_api: StateApi = "auto",
    name: str | None = None,
) -> ClockTransform:
    """Defines the watermark by the slowest of the producers that are active.

    Spark's watermark goes by the greatest event time of the whole stream: a device that is a minute
    behind the others has all its rows late. Here each producer has a newest event time of its own.
    The *clock* is the least of them, and the watermark is `delay` behind the clock.

    A producer is active from its first row until none has come of it for `idle`: then it stops
    holding the others back, and is forgotten. One that comes, or comes back, with event times
    behind the clock does not stop it, for a clock never goes back. Its rows are late by the rules
    of the operators that follow, until it has caught up; then it holds the clock like the others.

    Input        `producer`: any type but maps (null is a producer) · `time`: timestamp (event time) ·
                 `arrival`: timestamp · other columns of any type
    Output       the same rows and columns, which may all be null
    Output mode  that of the operators that follow; append without any
    Watermark    none before it; it defines one on `time`. Operators behind it are given no `delay`:
                 theirs is the `delay` given here less their `allowed_lateness`
    State        in one place: an entry per producer that was seen within `idle` before the one that
                 was seen last
    Order        rows may come in any order within a micro-batch
    Batch        the frame as it is: nothing is late there

    Parameters
    ----------
    producer : str
        Column that says who sent the row: a device, a partition of a log, a server.
    time : str
        Event-time column, of type timestamp.
    delay : duration
        How far the watermark is behind the clock, >= 0, in whole milliseconds: how much each
        producer's own rows are out of order. With `allowed_lateness` in an operator behind: how
        long its results wait and how much longer stragglers are accepted, together.
    idle : duration
        How long a producer may be silent, > 0, before it no longer holds the others back.
    arrival : str, optional
        Column with the instant at which the row arrived, by a clock that can be trusted: when the
        server or the log took it. Silence is measured by it. A later one than the start of the
        micro-batch counts as that start. Left out: the start of the micro-batch, so that in a
        backlog that is read faster than it came hardly anybody is ever idle, and that a pause of
        the query longer than `idle` makes everybody look silent who is not in the first
        micro-batch after it.
    expected : list of values of `producer`
        Producers that are waited for when the query starts for the first time: before each of them
        has sent a row, or has been silent for `idle` since the first micro-batch, there is no
        watermark. Left out, the first micro-batch decides who holds the clock, and rows of those
        that come after it may be late.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        "auto" is the second, which needs RocksDB and lets any operator follow. Behind the first,
        operators of ours must take the second, or ``engine="native"``.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``.

    Returns
    -------
    ClockTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or names the column of another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type.
    WatermarkError
        The frame has a watermark already.
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    >>> from streamops import time
    >>> time.producers("device", time="ts", delay="10 seconds", idle="5 minutes")
    time.producers(producer='device', time='ts', delay='10 seconds', idle='5 minutes', arrival=None, expected=(), state_api='auto', name='producers')
    >>> by_device = time.producers("device", time="ts", delay="1 minute", idle="1 hour")
    >>> readings.transform(by_device).transform(per_minute)  # doctest: +SKIP

    Notes
    -----
    A row whose event time, or `arrival`, is null or outside the years 1 to 9999 passes like the
    others. It is counted as ``rejected`` and moves nothing: neither the clock, nor the time at which
    its producer was last seen.

    Whoever was seen last is never idle. So while everybody is silent the clock stands.

    The frame is read twice, and what is computed before is computed twice: once for the rows, once
    for the three columns named here.

    See Also
    --------
    guard : no event time from the future; put it before. One producer alone can still run ahead
        of the others with it, but not away from the present.

    References
    ----------
    Akidau et al.: "Watermarks in Stream Processing Systems", VLDB 2021.
    Flink: WatermarkStrategy.withIdleness.
    """
    where = "time.producers"
    settings = ProducersSettings.of(
        where,
        producer=producer,
        time=time,
        delay=delay,
        idle=idle,
        arrival=arrival,
        expected=expected,
    )
    options = ClockOptions(state_api, "producers" if name is None else name)
    return ClockTransform(where, settings, options.validated(where), core)
