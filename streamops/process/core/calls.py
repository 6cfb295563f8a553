"""Calls of the user's functions: each key with its rows, its state and its timers.

A function reads the rows from an iterator, which knows the row that was read last. So each row of the
output has an event time, and the iterator ends where a timer fires: between two rows, wherever the
micro-batch ends.
"""

from __future__ import annotations

import copy
import datetime as dt
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.kernel.errors import FunctionError
from streamops.kernel.lateness import INSTANT
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL
from streamops.kernel.values import Refused, converter
from streamops.process import conditions
from streamops.process.core.spec import PerKeySpec
from streamops.process.core.values import instant_of, micros_of

_MOST_TIMERS_AT_THE_END = 100_000
_to_instant = converter(INSTANT)


class Timers:
    """The event-time timers of a key.

    A timer fires once, when the watermark reaches it, after the rows at its instant and before all later
    ones. So a timer at the time of the row that was read last fires after all rows of that instant; an earlier
    one fires before the next row.
    """

    __slots__ = ("_after", "times")

    def __init__(self, times: list[int]) -> None:
        self.times = times
        self._after: int | None = None

    def set(self, time: dt.datetime) -> None:
        """Set a timer. Setting it twice is the same as setting it once.

        Parameters
        ----------
        time : datetime
            With a time zone, as the event times of rows. In ``on_timer``, later than the timer that fires.
        """
        micros = self._micros(time)
        if self._after is not None and micros <= self._after:
            raise conditions.TIMER_NOT_LATER.error(
                got=f"a timer {(self._after - micros) / 1e6} s before the one that fires"
            )
        at = bisect_left(self.times, micros)
        if self.times[at : at + 1] != [micros]:
            insort(self.times, micros)

    def cancel(self, time: dt.datetime) -> None:
        """Cancel the timer at this time, if there is one."""
        micros = self._micros(time)
        at = bisect_left(self.times, micros)
        if self.times[at : at + 1] == [micros]:
            del self.times[at]

    def cancel_all(self) -> None:
        """Cancel all timers of the key."""
        self.times.clear()

    @property
    def pending(self) -> list[dt.datetime]:
        """The times of all timers that have not fired, in order."""
        return [instant_of(micros) for micros in self.times]

    def _micros(self, time: Any) -> int:
        try:
            instant = _to_instant(time)
            got = "None"
        except Refused as error:
            instant, got = None, str(error)
        if instant is not None:
            return micros_of(instant)
        raise conditions.TIMER_NOT_AN_INSTANT.error(got=got)


@dataclass(slots=True)
class Batch:
    """The keys of a micro-batch, and their rows.

    Parameters
    ----------
    keys : list
        One named tuple per key.
    rows : list
        Rows as named tuples, sorted by key and in the order of processing.
    times : list of int
        Event times of the rows.
    starts : list of int
        Where the rows of each key start; one entry more than keys.
    states : list
        The state of each key.
    timers : list of list of int
        The sorted timers of each key.
    reload : callable
        From the number of a key to a new object with its stored state.
    reload_rows : callable
        From two positions to new objects with the rows between them.
    settle : callable, optional
        Converts what a function changed inside of the lists and dicts of a state.
    to_tuple : callable
        From what a function yielded to a tuple that it cannot change later.
    keeps_tuples : bool
        Whether that is true of each tuple: no value is a list, a dict or a buffer.
    hashes : callable
        From the number of a key to its hash.
    watermark : int
        Timers at or before it fire.
    """

    keys: list[Any]
    rows: list[Any]
    times: list[int]
    starts: list[int]
    states: list[Any]
    timers: list[list[int]]
    reload: Callable[[int], Any]
    reload_rows: Callable[[int, int], list[Any]]
    settle: Callable[[Any], None] | None
    to_tuple: Callable[[Any], Any]
    keeps_tuples: bool
    hashes: Callable[[int], int]
    watermark: int


@dataclass(slots=True)
class Failure:
    """A row, or a timer (``row`` is -1), for which a function raised an exception."""

    key: int
    row: int
    time: int
    reason: str


@dataclass(slots=True)
class Calls:
    """The output of all calls.

    Parameters
    ----------
    output : list
        Rows that the functions yielded.
    times : list of int
        Their event times.
    counts : list of int
        Number of these rows per key.
    failures : list of Failure
    """

    output: list[Any] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def call_keys(spec: PerKeySpec, batch: Batch) -> Calls:
    """Call the functions for every key. States and timers of the batch are changed."""
    calls = Calls()
    caller = _Caller(spec, batch, calls)
    routes = spec.errors == "route"
    for key in range(len(batch.keys)):
        before = len(calls.output)
        pending = list(batch.timers[key]) if routes else []
        try:
            caller.call(key)
        except FunctionError:
            raise
        except Exception as error:
            if not routes:
                raise function_error(error, batch.hashes(key)) from None
            # Once more, a row at a time, to find the rows that fail. The others count.
            del calls.output[before:], calls.times[before:]
            batch.states[key], batch.timers[key] = batch.reload(key), pending
            rows = slice(batch.starts[key], batch.starts[key + 1])
            batch.rows[rows] = batch.reload_rows(rows.start, rows.stop)
            caller.call_row_by_row(key)
        calls.counts.append(len(calls.output) - before)
    return calls


class _Caller:
    """The functions, and the row that was read last."""

    __slots__ = ("at", "batch", "calls", "is_cut", "now", "spec")

    def __init__(self, spec: PerKeySpec, batch: Batch, calls: Calls) -> None:
        self.spec, self.batch, self.calls = spec, batch, calls
        self.at, self.now, self.is_cut = 0, BEFORE_ALL, False

    def call(self, key: int) -> None:
        """Process all rows and timers of a key."""
        batch, spec = self.batch, self.spec
        self.at, end = batch.starts[key], batch.starts[key + 1]
        self.now = BEFORE_ALL
        if spec.on_timer is None:
            self._call_function(key, end, None)
            return
        timers = Timers(batch.timers[key])
        fired = 0
        while (timer := self._next(timers, end)) is not None:
            if timer:
                fired = self._count_at_the_end(fired, end)
                self._fire(key, timers)
            else:
                self._call_function(key, end, timers)

    def call_row_by_row(self, key: int) -> None:
        """The same, but rows and timers for which a function raises an exception have no effect."""
        batch, spec = self.batch, self.spec
        self.at, end = batch.starts[key], batch.starts[key + 1]
        self.now = BEFORE_ALL
        timers = Timers(batch.timers[key])
        fired = 0
        while (timer := self._next(timers, end)) is not None:
            at, count = self.at, len(self.calls.output)
            state, pending = copy.deepcopy(batch.states[key]), list(timers.times)
            due = pending[0] if timer else 0
            try:
                if timer:
                    fired = self._count_at_the_end(fired, end)
                    self._fire(key, timers)
                else:
                    self._call_function(key, at + 1, timers if spec.on_timer is not None else None)
            except FunctionError:
                raise
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                del self.calls.output[count:], self.calls.times[count:]
                batch.states[key] = state
                timers.times[:], timers._after = pending[1:] if timer else pending, None
                row, time = (-1, due) if timer else (at, batch.times[at])
                self.calls.failures.append(Failure(key, row, time, reason))
                self.at = at if timer else at + 1

    def _next(self, timers: Timers, end: int) -> bool | None:
        """Whether a timer is next, and not a row. None if nothing is left."""
        batch = self.batch
        due = timers.times[0] if timers.times else AFTER_ALL + 1
        if self.at < end:
            return due < batch.times[self.at]
        return True if due <= batch.watermark else None

    def _rows(self, key: int, end: int, timers: Sequence[int] = ()) -> Iterator[Any]:
        """The rows before the first timer, which may be set while they are read."""
        rows, times, settle = self.batch.rows, self.batch.times, self.batch.settle
        for at in range(self.at, end):
            if timers and timers[0] < times[at]:
                self.is_cut = True
                return
            self.now, self.at = times[at], at + 1
            yield rows[at]
            if settle is not None:
                settle(self.batch.states[key])

    def _call_function(self, key: int, end: int, timers: Timers | None) -> None:
        batch, spec, first = self.batch, self.spec, self.at
        rows = self._rows(key, end, () if timers is None else timers.times)
        arguments = [batch.keys[key], rows, batch.states[key]]
        if timers is not None:
            arguments.append(timers)
        self.is_cut = False
        self._collect(spec.function(*arguments), -1 if spec.time is None else first)
        if self.at < end and not self.is_cut:
            raise conditions.ROWS_NOT_READ.error(got=f"{end - self.at} rows that were not read")
        self._settle(key)

    def _collect(self, yielded: Iterator[Any], unread: int = -1) -> None:
        """Collect output. While the next row is that at `unread`, it has no event time."""
        output, times = self.calls.output, self.calls.times
        keeps_tuples, to_tuple = self.batch.keeps_tuples, self.batch.to_tuple
        for row in yielded:
            if self.at == unread:
                raise conditions.YIELD_BEFORE_ROW.error(got="a yield before the first row")
            output.append(row if keeps_tuples and type(row) is tuple else to_tuple(row))
            times.append(self.now)

    def _settle(self, key: int) -> None:
        if self.batch.settle is not None:
            self.batch.settle(self.batch.states[key])

    def _fire(self, key: int, timers: Timers) -> None:
        due = timers.times.pop(0)
        # A timer may lie behind rows that were read. Its output does not.
        self.now = max(self.now, due)
        timers._after = due
        function, batch = self.spec.on_timer, self.batch
        assert function is not None
        self._collect(function(batch.keys[key], instant_of(due), batch.states[key], timers))
        timers._after = None
        self._settle(key)

    def _count_at_the_end(self, fired: int, end: int) -> int:
        """Count timers after the last row of a stream that has ended."""
        if self.batch.watermark < AFTER_ALL or self.at < end:
            return 0
        if fired >= _MOST_TIMERS_AT_THE_END:
            raise conditions.TIMERS_WITHOUT_END.error(
                got=f"{fired:,} timers after the last row of a key"
            )
        return fired + 1


def function_error(error: Exception, key: int) -> FunctionError:
    """The error for an exception of the user's function. It has no value of a row in it."""
    traceback, at = error.__traceback__, "?"
    while traceback is not None:
        code = traceback.tb_frame.f_code
        at = f"{code.co_filename}:{traceback.tb_lineno}, in {code.co_name}"
        traceback = traceback.tb_next
    return conditions.FUNCTION_RAISED.error(
        error=type(error).__name__,
        got=f"{type(error).__name__} at {at}, for the key with hash {key:016x}",
    )
