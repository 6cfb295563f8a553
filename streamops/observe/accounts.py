"""Late rows, accounted for: how many, and how late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from pyspark.sql import DataFrame

from streamops.kernel.time import Duration
from streamops.observe.account_settings import LateAccounts, MergedAccounts, NeededLateness
from streamops.observe.scale import BOUNDS

__all__ = ["account_late", "lateness_needed", "merge_accounts"]

FrameToFrame: TypeAlias = Callable[[DataFrame], DataFrame]


def account_late(
    *,
    by: str | Sequence[str] = (),
    producer: str | None = None,
    bounds: Sequence[Duration] = BOUNDS,
) -> FrameToFrame:
    """Counts late rows, and how late they were.

    One row per reason, key and producer. It counts every late row that was delivered, once per
    window missed, and how many of them were late up to each bound of a scale. Accounts of
    parts are merged to the account of the whole by :func:`merge_accounts`.

    Input        late rows, as ``split_side_output`` gives them: reason, lateness, watermark, row,
                 and columns that say what they are about
    Output       `by` columns · producer, where named · reason: string · rows: bigint ·
                 least_seconds, greatest_seconds, total_seconds: decimal(38,6), of lateness ·
                 lateness: struct<up_to_1_second, ..., any: bigint> · saved:
                 struct<with_1_second, ...: bigint>
    Output mode  on a stream: update or complete
    Watermark    ignored: what is counted here is late by definition
    State        none in a batch, as in ``foreachBatch``; on a stream one row per row of the
                 result, which is never forgotten
    Order        rows may come in any order
    Batch        same rows out

    Parameters
    ----------
    by : str or sequence of str
        Columns of a late row: its keys, ``window_start``, ``window_end``. Left out: all rows
        together, by reason.
    producer : str, optional
        The column of the input row (``late.row``) that says who made it.
    bounds : sequence of duration
        The scale: ascending, whole milliseconds, at most 64.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        The frame has no late rows, or lacks a column.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.account_late(by=["page", "window_start"], producer="device", bounds=["1 hour"])
    observe.account_late(by=('page', 'window_start'), producer='device', bounds=('1 hour',))
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     _, late = split_side_output(batch)
    ...     account = late.transform(observe.account_late(by="page"))
    ...     account.write.mode("append").parquet("late_accounts")

    Notes
    -----
    ``lateness.up_to_1_minute`` counts rows whose lateness is at most a minute;
    ``lateness.any`` those that have a lateness at all: a row without an event time has none.
    ``saved.with_1_minute`` counts rows that ``allowed_lateness="1 minute"``, with the same
    `delay`, would have accepted: those whose window ended less than a minute behind the watermark.
    That is less than the lateness, by up to the length of a window.

    See Also
    --------
    merge_accounts : accounts of parts, merged.
    lateness_needed : the allowed lateness that would have saved a share of the rows.
    """
    return LateAccounts.of("observe.account_late", by=by, producer=producer, bounds=bounds)


def merge_accounts(*, by: str | Sequence[str] = ()) -> FrameToFrame:
    """Merges accounts of late rows: of micro-batches, or to fewer columns.

    The merged account of the parts equals the account of all rows.

    Input        accounts, as :func:`account_late` makes them, of one scale
    Output       `by` columns · rows, least_seconds, greatest_seconds, total_seconds, lateness,
                 saved: as in an account
    Output mode  on a stream: update or complete
    Watermark    ignored
    State        none in a batch; on a stream one row per row of the result, never forgotten
    Order        any: merging is commutative and associative
    Batch        same rows out

    Parameters
    ----------
    by : str or sequence of str
        Columns of the accounts to keep apart, ``reason`` and ``producer`` among them. Left out:
        one row for all.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `by` is no name.
    SchemaError, ColumnNotFound
        The frame is no account (``NOT_AN_ACCOUNT``), or lacks a column.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.merge_accounts(by="producer")
    observe.merge_accounts(by=('producer',))

    Notes
    -----
    The scale stands in the names of the columns, so accounts of different scales are different
    tables: put frames together by ``unionByName``, which tells them apart.

    See Also
    --------
    account_late : where accounts come from.
    """
    return MergedAccounts.of("observe.merge_accounts", by=by)


def lateness_needed(*, share: float = 0.99, by: str | Sequence[str] = ()) -> FrameToFrame:
    """What ``allowed_lateness`` would have had to be, to save a share of the late rows.

    The least bound of the scale with which at least that share would have been accepted. Beyond
    the last bound it is the greatest lateness, a millisecond rounded up, which saves all.

    Input        accounts, as :func:`account_late` makes them, of one scale
    Output       `by` columns · rows: bigint, that have a lateness · needed: interval day to
                 second · saved: bigint, rows that it would have saved · not_enough: interval
                 day to second, the bound below, null where there is none
    Output mode  on a stream: update or complete
    Watermark    ignored
    State        none in a batch; on a stream one row per row of the result, never forgotten
    Order        any
    Batch        same rows out

    Parameters
    ----------
    share : float
        Share of the late rows, 0 < share <= 1. Rows without a lateness do not count.
    by : str or sequence of str
        Columns of the accounts to answer for one by one. Left out: one answer for all.

    Returns
    -------
    function
        From frame to frame, for use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        `share` is out of range, or `by` is no name.
    SchemaError, ColumnNotFound
        The frame is no account (``NOT_AN_ACCOUNT``), or lacks a column.

    Examples
    --------
    >>> from streamops import observe
    >>> observe.lateness_needed(share=0.999)
    observe.lateness_needed(share=0.999, by=())

    Notes
    -----
    An account knows the bounds only. The least lateness that is enough lies above ``not_enough``
    and is at most ``needed``.

    See Also
    --------
    account_late : where accounts come from.
    """
    return NeededLateness.of("observe.lateness_needed", share=share, by=by)
