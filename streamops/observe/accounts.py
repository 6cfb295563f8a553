"""Accounts: tables with the number and the lateness of late rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DayTimeIntervalType, LongType, StructType, TimestampType

from streamops.kernel.errors import StreamopsError, located
from streamops.kernel.lateness import LATE_FIELDS
from streamops.kernel.parameters import MILLISECOND, require_columns
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.observe import conditions
from streamops.observe.core.rules import require_share
from streamops.observe.furthest import KeyedTransform, group_keys, parse_keys
from streamops.spark.columns import column, refuse_duplicates

FrameToFrame: TypeAlias = Callable[[DataFrame], DataFrame]

BOUNDS = (
    *("1 second", "3 seconds", "10 seconds", "30 seconds"),
    *("1 minute", "3 minutes", "10 minutes", "30 minutes"),
    *("1 hour", "3 hours", "12 hours", "1 day", "3 days", "7 days", "28 days"),
)
"""The default scale. Each bound is at most four times the previous one."""

_LATENESS, _SAVED = "lateness", "saved"
_SECONDS = ("least_seconds", "greatest_seconds", "total_seconds")
MEASURES = ("rows", *_SECONDS, _LATENESS, _SAVED)
"""Columns of an account besides its keys."""

_ANY = "any"
_PREFIX = {_LATENESS: "up_to_", _SAVED: "with_"}
_MAX_BOUNDS = 64
_EXACT = "decimal(38,6)"
_MICROSECOND = dt.timedelta(microseconds=1)


def account_late(
    *,
    by: str | Sequence[str] = (),
    producer: str | None = None,
    bounds: Sequence[Duration] = BOUNDS,
) -> FrameToFrame:
    """Count late rows, and measure how late they are.

    The account has one row per reason, key and producer. It counts each late row of the side output
    once per missed window, and the rows whose lateness is at most each bound of a scale. Accounts of
    several micro-batches are combined by :func:`merge_accounts`.

    Input        the late rows of ``split_side_output``: reason, lateness, watermark, row, and the
                 keys and windows
    Output       `by` columns · producer, if given · reason: string · rows: bigint ·
                 least_seconds, greatest_seconds, total_seconds: decimal(38,6), of lateness ·
                 lateness: struct<up_to_1_second, ..., any: bigint> · saved:
                 struct<with_1_second, ...: bigint>
    Output mode  on a stream: update or complete
    Watermark    ignored: all rows are late by definition
    State        none in a batch, as in ``foreachBatch``; on a stream one row per row of the result,
                 without eviction
    Order        rows may arrive in any order
    Batch        same rows out

    Parameters
    ----------
    by : str or sequence of str
        Columns of the late rows: keys, ``window_start``, ``window_end``. Default: group by reason
        only.
    producer : str, optional
        Column of the input row (``late.row``) that identifies its producer.
    bounds : sequence of duration
        The scale: ascending, in whole milliseconds, at most 64 bounds.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        The frame does not have late rows, or a column does not exist.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.account_late(by=["page", "window_start"], producer="device", bounds=["1 hour"])
    observe.account_late(by=('page', 'window_start'), producer='device', bounds=('1 hour',))
    >>> def write(batch, batch_id):
    ...     _, late = split_side_output(batch)
    ...     account = late.transform(observe.account_late(by="page"))
    ...     account.write.mode("append").parquet("late_accounts")

    Notes
    -----
    ``lateness.up_to_1_minute`` counts rows with a lateness of at most a minute; ``lateness.any``
    counts rows with any lateness: a row without an event time has none. ``saved.with_1_minute``
    counts rows that ``allowed_lateness="1 minute"`` with the same `delay` would have accepted: their
    window ended less than a minute before the watermark. The difference of both is at most the
    length of a window.

    See Also
    --------
    merge_accounts : combine accounts.
    lateness_needed : the allowed lateness that would have saved a share of the rows.
    """
    reserved = ("reason", *(() if producer is None else ("producer",)), *MEASURES)
    keys = parse_keys(by, reserved)
    return _LateAccounts("observe.account_late", keys, producer, Scale.parse(bounds))


def merge_accounts(*, by: str | Sequence[str] = ()) -> FrameToFrame:
    """Merge accounts of late rows: of several micro-batches, or to fewer columns.

    The merged account of several parts equals the account of all their rows.

    Input        accounts of :func:`account_late` with the same scale
    Output       `by` columns · rows, least_seconds, greatest_seconds, total_seconds, lateness,
                 saved: as in an account
    Output mode  on a stream: update or complete
    Watermark    ignored
    State        none in a batch; on a stream one row per row of the result, without eviction
    Order        any: merging is commutative and associative
    Batch        same rows out

    Parameters
    ----------
    by : str or sequence of str
        Key columns to retain, such as ``reason`` and ``producer``. Default: one row for all.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `by` is not a column name.
    SchemaError, ColumnNotFound
        The frame is not an account (``FRAME_TYPE``), or a column does not exist.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.merge_accounts(by="producer")
    observe.merge_accounts(by=('producer',))

    Notes
    -----
    The scale is part of the column names, so accounts with different scales have different schemas.
    Combine frames with ``unionByName``, which reports a difference.

    See Also
    --------
    account_late : create accounts.
    """
    return _MergedAccounts("observe.merge_accounts", parse_keys(by, MEASURES))


def lateness_needed(*, share: float = 0.99, by: str | Sequence[str] = ()) -> FrameToFrame:
    """Compute the ``allowed_lateness`` that would have saved a share of the late rows.

    The result is the smallest bound of the scale with which at least that share would have been
    accepted. Beyond the last bound it is the greatest lateness, rounded up to the next millisecond,
    which saves all rows.

    Input        accounts of :func:`account_late` with the same scale
    Output       `by` columns · rows: bigint, with a lateness · needed: interval day to second ·
                 saved: bigint, rows that `needed` would have saved · not_enough: interval day to
                 second, the next smaller bound, or null
    Output mode  on a stream: update or complete
    Watermark    ignored
    State        none in a batch; on a stream one row per row of the result, without eviction
    Order        any
    Batch        same rows out

    Parameters
    ----------
    share : float
        Share of the late rows, 0 < share <= 1. Rows without a lateness are not counted.
    by : str or sequence of str
        Key columns with a result for each of their values. Default: one result for all rows.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `share` is out of range, or `by` is not a column name.
    SchemaError, ColumnNotFound
        The frame is not an account (``FRAME_TYPE``), or a column does not exist.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.lateness_needed(share=0.999)
    observe.lateness_needed(share=0.999)

    Notes
    -----
    An account has counts for the bounds only. The smallest sufficient lateness is above
    ``not_enough`` and at most ``needed``.

    See Also
    --------
    account_late : create accounts.
    """
    where = "observe.lateness_needed"
    require_share(share)
    keys = parse_keys(by, ("rows", "needed", _SAVED, "not_enough"))
    return _NeededLateness(where, keys, share)


@dataclass(frozen=True, slots=True)
class Scale:
    """Ascending bounds of lateness in microseconds, and the structs that count rows by them.

    Counts are cumulative: each is the number of rows up to a bound. So counts of accounts add up,
    and a share is one division.
    """

    bounds: tuple[int, ...]

    @staticmethod
    def parse(bounds: object) -> Scale:
        """Validate the bounds of a user."""
        if isinstance(bounds, (str, dt.timedelta)) or not isinstance(bounds, Iterable):
            bounds = (bounds,)
        durations = tuple(bounds)
        micros = [
            parse_duration(d, parameter="bounds", minimum=MILLISECOND, whole=MILLISECOND)
            for d in durations
        ]
        ascends = all(lower < upper for lower, upper in pairwise(micros))
        if not (ascends and 1 <= len(micros) <= _MAX_BOUNDS):
            condition = conditions.BOUNDS_OUT_OF_RANGE if ascends else conditions.BOUNDS_DESCEND
            raise condition.error(most=_MAX_BOUNDS, got=f"bounds={durations!r}")
        return Scale(tuple(micros))

    @staticmethod
    def read(data_type: Any, struct: str) -> Scale | None:
        """Return the scale of the column ``lateness`` or ``saved``; None if the type is another."""
        if not isinstance(data_type, StructType):
            return None
        if not all(isinstance(f.dataType, LongType) for f in data_type.fields):
            return None
        names = [name for name in data_type.names if name != _ANY]
        bounds = [name.removeprefix(_PREFIX[struct]).replace("_", " ") for name in names]
        try:
            scale = Scale.parse(bounds)
        except StreamopsError:
            return None
        return scale if data_type.names == scale.names(struct) else None

    def names(self, struct: str) -> list[str]:
        """Return the field names of the struct ``lateness`` or ``saved``."""
        durations = [format_duration(bound).replace(" ", "_") for bound in self.bounds]
        names = [_PREFIX[struct] + duration for duration in durations]
        return [*names, _ANY] if struct == _LATENESS else names

    def count(self, struct: str, conditions: Sequence[Column]) -> Column:
        """Return the struct with the number of rows that satisfy each condition."""
        pairs = zip(self.names(struct), conditions, strict=True)
        return F.struct(*(F.count_if(c).alias(name) for name, c in pairs)).alias(struct)

    def sum(self, struct: str) -> Column:
        """Return the struct with the sum of each field."""
        sums = (F.sum(F.col(struct)[name]).alias(name) for name in self.names(struct))
        return F.struct(*sums).alias(struct)


@dataclass(frozen=True, slots=True, repr=False)
class _LateAccounts(KeyedTransform):
    """Parameters and plan of :func:`account_late`."""

    producer: str | None
    bounds: Scale = field(
        metadata={"shown": lambda scale: repr(tuple(map(format_duration, scale.bounds)))}
    )

    @located("observe.account_late")
    def __call__(self, frame: DataFrame) -> DataFrame:
        types = _types(frame)
        self._check(types)
        keys = [*(group_keys(self.by) if self.by else ()), F.col("reason")]
        if self.producer is not None:
            keys.insert(-1, F.col("row").getField(self.producer).alias("producer"))
        late = F.call_function("div", F.col("lateness"), F.lit(_MICROSECOND))
        # How far the watermark is beyond the end of the window, or of the row if there is none.
        overdue = late
        if "window_end" in types:
            overdue = F.unix_micros("watermark") - F.unix_micros("window_end")
        limits = [F.lit(bound) for bound in self.bounds.bounds]
        seconds = late.cast("decimal(20,0)") * F.lit(Decimal("0.000001"))
        return frame.groupBy(*keys).agg(
            F.count(F.lit(1)).alias("rows"),
            *_exact_seconds(F.min(seconds), F.max(seconds), F.sum(seconds)),
            self.bounds.count(_LATENESS, [*(late <= limit for limit in limits), late.isNotNull()]),
            self.bounds.count(_SAVED, [overdue < limit for limit in limits]),
        )

    def _check(self, types: dict[str, Any]) -> None:
        required = {"lateness": DayTimeIntervalType, "watermark": TimestampType, "row": StructType}
        if "window_end" in types:
            required["window_end"] = TimestampType
        if "reason" not in types or not all(
            isinstance(types.get(name), required_type) for name, required_type in required.items()
        ):
            raise conditions.NOT_LATE_ROWS.error(got=_format_types(types))
        keys = [name for name in types if name not in LATE_FIELDS]
        require_columns(keys, {"by": self.by})
        if self.producer is not None:
            names = types["row"].names
            require_columns(names, {"producer": (self.producer,)})


@dataclass(frozen=True, slots=True, repr=False)
class _MergedAccounts(KeyedTransform):
    """Parameters and plan of :func:`merge_accounts`."""

    @located("observe.merge_accounts")
    def __call__(self, frame: DataFrame) -> DataFrame:
        return _merge(frame, self.by)[0]


@dataclass(frozen=True, slots=True, repr=False)
class _NeededLateness(KeyedTransform):
    """Parameters and plan of :func:`lateness_needed`."""

    share: float

    @located("observe.lateness_needed")
    def __call__(self, frame: DataFrame) -> DataFrame:
        merged, scale = _merge(frame, self.by)
        rows = F.col(_LATENESS)[_ANY]
        enough = F.lit(Decimal(str(self.share))) * rows
        # Beyond the last bound: the greatest lateness plus a millisecond, in whole milliseconds.
        most = (F.floor(F.col("greatest_seconds") * F.lit(1_000)) + F.lit(1)).cast("bigint")
        needed, saved = F.lit(dt.timedelta(milliseconds=1)) * most, rows
        not_enough = _interval(scale.bounds[-1])
        smaller = (None, *scale.bounds[:-1])
        steps = zip(scale.names(_SAVED), scale.bounds, smaller, strict=True)
        for name, bound, smaller_bound in reversed(list(steps)):
            count = F.col(_SAVED)[name]
            is_enough = count >= enough
            needed = F.when(is_enough, _interval(bound)).otherwise(needed)
            saved = F.when(is_enough, count).otherwise(saved)
            not_enough = F.when(is_enough, _interval(smaller_bound)).otherwise(not_enough)
        has_rows = rows > 0
        return merged.select(
            *(column(name) for name in self.by),
            rows.alias("rows"),
            F.when(has_rows, needed).alias("needed"),
            F.when(has_rows, saved).otherwise(rows).alias(_SAVED),
            F.when(has_rows, not_enough).alias("not_enough"),
        )


def _merge(frame: DataFrame, by: Sequence[str]) -> tuple[DataFrame, Scale]:
    types = _types(frame)
    scale = Scale.read(types.get(_LATENESS), _LATENESS)
    required = {"rows": "bigint", **dict.fromkeys(_SECONDS, _EXACT)}
    is_account = scale is not None and scale == Scale.read(types.get(_SAVED), _SAVED)
    if not is_account or any(
        name not in types or types[name].simpleString() != required_type
        for name, required_type in required.items()
    ):
        raise conditions.NOT_AN_ACCOUNT.error(
            measures=", ".join(MEASURES), got=_format_types(types)
        )
    assert scale is not None
    require_columns([name for name in types if name not in MEASURES], {"by": by})
    least, greatest, total = map(F.col, _SECONDS)
    merged = frame.groupBy(*group_keys(by)).agg(
        F.sum("rows").alias("rows"),
        *_exact_seconds(F.min(least), F.max(greatest), F.sum(total)),
        scale.sum(_LATENESS),
        scale.sum(_SAVED),
    )
    return merged.select(*(column(name) for name in (*by, *MEASURES))), scale


def _exact_seconds(*values: Column) -> list[Column]:
    return [v.cast(_EXACT).alias(name) for name, v in zip(_SECONDS, values, strict=True)]


def _interval(micros: int | None) -> Column:
    span = None if micros is None else dt.timedelta(microseconds=micros)
    return F.lit(span).cast("interval day to second")


def _types(frame: DataFrame) -> dict[str, Any]:
    refuse_duplicates(frame)
    return {field.name: field.dataType for field in frame.schema.fields}


def _format_types(types: dict[str, Any]) -> str:
    return ", ".join(f"{name} {data_type.simpleString()}" for name, data_type in types.items())
