"""Spark's own join of two streams, where it means the same as ours."""

from __future__ import annotations

import datetime as dt

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.kernel.pairs import Side
from streamops.spark.columns import column

__all__ = ["native"]

_WORDS = {"semi": "left_semi", "anti": "left_anti"}
_HERE = "{}_is_here"


def native(
    left: DataFrame, right: DataFrame, spec: IntervalSpec, insists: bool
) -> DataFrame | None:
    """The same result by Spark's own join; None where it cannot, or where ours is taken.

    Spark joins every match, drops late rows, knows no corrections, and has no anti join of two
    streams. It is used where the user insists.
    """
    streaming = left.isStreaming
    differs = spec.attributes or spec.routes or spec.takes_back
    if not insists or differs:
        return None
    if streaming and (spec.how == "anti" or spec.allowed_lateness):
        return None
    ours = _told_apart(left, spec.left, "left")
    theirs = _told_apart(right, spec.right, "right")
    both = ours.join(theirs, _meets(spec), _WORDS.get(spec.how, spec.how))
    return both.select(*_columns(spec))


def _told_apart(frame: DataFrame, side: Side, name: str) -> DataFrame:
    """The columns that are read under names that the other side does not have."""
    columns = [column(own).alias(f"{name}_{i}") for i, own in enumerate(side.input.names)]
    rows = frame.select(*columns, F.lit(True).alias(_HERE.format(name)))
    if not frame.isStreaming or side.delay is None:
        return rows
    assert side.time is not None
    return rows.withWatermark(_place(side, name, side.time), f"{side.delay // 1_000} milliseconds")


def _place(side: Side, name: str, own: str) -> str:
    return f"{name}_{side.input.names.index(own)}"


def _meets(spec: IntervalSpec) -> Column:
    said = F.lit(True)
    for ours, theirs in zip(spec.left.by, spec.right.by, strict=True):
        said &= F.col(_place(spec.left, "left", ours)) == F.col(_place(spec.right, "right", theirs))
    time = F.col(_place(spec.left, "left", spec.left.time or ""))
    partner = F.col(_place(spec.right, "right", spec.right.time or ""))
    lower, upper = (F.lit(dt.timedelta(microseconds=m)) for m in (spec.lower, spec.upper))
    return said & (partner >= time + lower) & (partner <= time + upper)


def _columns(spec: IntervalSpec) -> list[Column]:
    """The columns of the output."""
    keys = dict(zip(spec.left.by, spec.right.by, strict=True))
    columns = []
    for name in spec.left.input.names:
        value = F.col(_place(spec.left, "left", name))
        if name in keys and spec.preserves("right"):
            value = F.coalesce(value, F.col(_place(spec.right, "right", keys[name])))
        columns.append(value.alias(name))
    if spec.joins:
        for own, name in spec.names.right:
            columns.append(F.col(_place(spec.right, "right", own)).alias(name))
        here = F.col(_HERE.format("left")) & F.col(_HERE.format("right"))
        status = F.when(here, "matched").otherwise("expired")
    else:
        status = F.lit("expired" if spec.how == "anti" else "matched")
    return [*columns, status.alias(spec.into)]
