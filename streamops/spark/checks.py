"""What an operator needs of a session and a frame, checked while the plan is built."""

from __future__ import annotations

import importlib.metadata

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from streamops.kernel.errors import ColumnNotFound, RequirementError, SpecError, WatermarkError
from streamops.kernel.time import format_duration
from streamops.spark.operator import StateApi
from streamops.spark.plans import has_node
from streamops.spark.requirements import REQUIRED, numbers, requirement
from streamops.spark.settings import PROVIDER, ROCKSDB

__all__ = [
    "INSTANT",
    "LATENESS",
    "METRICS",
    "ONCE",
    "STATE_API",
    "WATERMARK",
    "carried_watermark",
    "metric_name",
    "refuse_unchainable",
    "state_api",
]

WATERMARK = "spark.watermarkDelayMs"
"""Key under which Spark shows a watermark in a column's metadata."""

STATE_API = "streamops.state_api"
"""Key under which an operator tells, in its output, which state API it uses."""

ONCE = "streamops.once"
"""Key under which a clock tells which state API the query cannot use a second time."""

METRICS = "streamops.metrics"
"""Key under which an operator tells which names of counts are taken."""

LATENESS = "streamops.allowed_lateness"
"""Key under which an operator tells how late, in microseconds, its corrections may come."""

INSTANT = "streamops.instant"
"""Key under which an operator tells that its event time is not the end of a window: its watermark
says nothing about any other column."""


def carried_watermark(
    frame: DataFrame,
    delay: int | None,
    lag: int,
    *,
    time: str,
    where: str,
    of_results: bool = False,
) -> int | None:
    """Delay, in microseconds, of the watermark that a streaming frame brings.

    None if it brings none and the operator defines its own. A watermark counts where it says
    something about the column ``time``: it is on that column, or on a window that the column
    was taken from.

    Parameters
    ----------
    of_results : bool
        Whether the rows are results of windows. Then a window with a watermark is that of an
        aggregation of Spark's, which has published what it allows to be late.

    Raises
    ------
    ColumnNotFound
        There is no column ``time``, so nothing can be said of its watermark.
    WatermarkError
        ``WATERMARK_MISSING``, ``WATERMARK_LOST``, ``WATERMARK_TWICE`` or ``WATERMARK_TOO_TIGHT``.
    """
    if time not in frame.schema.names:
        raise ColumnNotFound(time, frame.schema.names, where=where, role="time")
    marks = [field for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
    if not marks:
        _refuse_lost(frame, time, where=where)
        if delay is not None:
            return None
        raise WatermarkError(
            "WATERMARK_MISSING",
            "a streaming frame needs a watermark, or its state would grow for ever",
            where=where,
            got=f"a frame without a watermark, and no delay (event time {time!r})",
            expected="delay=..., or a frame with withWatermark(...)",
            fix='say how long results wait for late rows: delay="30 seconds"',
        )
    about = [f for f in marks if f.name == time] or [f for f in marks if _of_a_window(f)]
    name = (about or marks)[0].name
    if delay is not None:
        raise WatermarkError(
            "WATERMARK_TWICE",
            "the frame already has a watermark, and Spark does not allow a second one",
            where=where,
            got=f"delay={format_duration(delay)!r} on a frame with a watermark on {name!r}",
            expected="one of the two",
            fix="leave delay out; it is the frame's own delay less allowed_lateness"
            if about
            else f"leave withWatermark({name!r}, ...) out: the operator defines one on {time!r}",
        )
    if not about:
        raise WatermarkError(
            "WATERMARK_MISSING",
            f"the frame's watermark is on {name!r} and says nothing about {time!r}",
            where=where,
            got=f"time={time!r} on a frame with a watermark on {name!r}",
            expected=f"a watermark on {time!r}, or delay=... and no watermark",
            fix=f'leave withWatermark({name!r}, ...) out and pass delay="30 seconds", say, or '
            f"name {time!r} in withWatermark",
        )
    mark = about[0].metadata
    carried = int(mark[WATERMARK]) * 1_000
    # An operator before this one publishes as its own watermark passes: with more lateness than
    # it has, ours would be ahead of it, and find its results late. Spark's own has none.
    spent = of_results and isinstance(about[0].dataType, StructType)
    room = int(mark.get(LATENESS, 0 if spent else carried))
    if lag > room:
        raise WatermarkError(
            "WATERMARK_TOO_TIGHT",
            "the frame's watermark leaves no room for the allowed lateness",
            where=where,
            got=f"allowed_lateness={format_duration(lag)!r}, watermark on {name!r} "
            f"with a delay of {format_duration(carried)!r}",
            expected=f"allowed_lateness up to {format_duration(room)!r}: the delay of the frame's "
            "watermark, or the allowed_lateness of the operator before; behind Spark's own windows: 0",
            fix="leave allowed_lateness out: Spark's windows are not corrected. For stragglers, take "
            "windows of streamops before, with the same allowed_lateness"
            if spent
            else "call withWatermark with delay + allowed_lateness, or leave it to the operator: "
            "delay=...; in a chain, give the first operator the lateness",
        )
    return carried


def _refuse_lost(frame: object, time: str, *, where: str) -> None:
    """Refuse a frame that had a watermark further up and has none any more.

    With a second one Spark gives up in the middle of the query, or waits for ever.
    """
    if not isinstance(frame, DataFrame) or not has_node(frame, "EventTimeWatermark"):
        return
    raise WatermarkError(
        "WATERMARK_LOST",
        "there is a watermark further up that the columns do not carry any more, and Spark does not "
        "allow a second one",
        where=where,
        got=f"a frame without a watermark, behind withWatermark(...) or an operator with one (event "
        f"time {time!r})",
        expected="a watermark that comes as far as here, or none further up",
        fix="keep the column that has it, behind windows window_end; or leave withWatermark(...) out "
        "further up and give the operator there delay=..., if it needs one: what that puts out has it; "
        "dropDuplicatesWithinWatermark(...) can stand behind it",
    )


def _of_a_window(field: StructField) -> bool:
    """Whether the watermark is on a window, whose start and end are columns in their own right.

    Spark marks the struct of its windows, our operators mark ``window_end``: whether ``time`` was
    taken from there, the plan does not tell.
    """
    ours = STATE_API in field.metadata and INSTANT not in field.metadata
    return isinstance(field.dataType, StructType) or ours


def metric_name(frame: DataFrame, name: str, *others: DataFrame) -> tuple[str, list[str]]:
    """A name not taken by an operator further up in the same query, and all that are taken then.

    Parameters
    ----------
    frame : DataFrame
        The operator's input.
    name : str
        The name wanted for its counts.
    others : DataFrame
        Further inputs.
    """
    taken: list[str] = []
    for field in (field for each in (frame, *others) for field in each.schema.fields):
        taken += [n for n in (field.metadata or {}).get(METRICS, "").split(",") if n]
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    return unique, [*taken, unique]


def refuse_unchainable(frame: DataFrame, following: str, *, where: str) -> None:
    """Refuse what Spark would refuse, in words of its own, when the query starts.

    Parameters
    ----------
    frame : DataFrame
        A streaming frame.
    following : str
        How the next operator runs: ``"native"``, or a state API.
    where : str
        The operator, for the error.

    Raises
    ------
    SpecError
        ``STATE_API_NOT_CHAINABLE``: the frame comes from an operator nothing may follow, or
        ``applyInPandasWithState`` would follow an aggregation, or itself.
    """
    behind = {(field.metadata or {}).get(STATE_API) for field in frame.schema.fields}
    if "applyInPandasWithState" in behind:
        raise SpecError(
            "STATE_API_NOT_CHAINABLE",
            "no stateful operator may follow applyInPandasWithState in the same query",
            where=where,
            got="a frame from an operator with state_api='applyInPandasWithState'",
            expected="transformWithStateInPandas in the operator before",
            fix="leave state_api out there; it needs RocksDB",
        )
    taken = {(field.metadata or {}).get(ONCE) for field in frame.schema.fields}
    if following == "applyInPandasWithState" and following in taken:
        raise SpecError(
            "STATE_API_NOT_CHAINABLE",
            "applyInPandasWithState may stand only once in a query",
            where=where,
            got="state_api='applyInPandasWithState' on a frame from an operator with the same",
            expected="state_api='transformWithStateInPandas' in one of the two",
            fix="leave state_api out in one of them; it needs RocksDB",
        )
    if "native" in behind and following == "applyInPandasWithState":
        raise SpecError(
            "STATE_API_NOT_CHAINABLE",
            "applyInPandasWithState may not follow an aggregation of Spark's in the same query",
            where=where,
            got="state_api='applyInPandasWithState' on a frame from an operator with "
            "engine='native'",
            expected="state_api='transformWithStateInPandas', or no aggregation before",
            fix="leave state_api out; it needs RocksDB",
        )


def state_api(frame: DataFrame, wanted: StateApi, *, where: str) -> StateApi:
    """The state API to use; never "auto".

    Raises
    ------
    SpecError
        ``STATE_API_NOT_CHAINABLE``: see :func:`refuse_unchainable`.
    RequirementError
        ``ROCKSDB_REQUIRED`` or ``PROTOBUF_REQUIRED``.
    """
    refuse_unchainable(frame, wanted, where=where)
    if wanted == "applyInPandasWithState":
        return wanted
    provider = frame.sparkSession.conf.get(PROVIDER, "") or ""
    if "RocksDB" not in provider:
        raise RequirementError(
            "ROCKSDB_REQUIRED",
            "transformWithStateInPandas keeps its state in RocksDB, which is not configured",
            where=where,
            got=f"{PROVIDER}={provider}",
            expected=ROCKSDB,
            fix=f'spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the query starts, or '
            'state_api="applyInPandasWithState" if this is the only stateful operator',
        )
    found, oldest = _version("protobuf"), REQUIRED["protobuf"][0]
    if numbers(found) < numbers(oldest):
        raise RequirementError(
            "PROTOBUF_REQUIRED",
            "transformWithStateInPandas needs protobuf",
            where=where,
            got=found or "no protobuf",
            expected=f"protobuf {oldest} or later",
            fix=f'pip install "{requirement("protobuf")}"',
        )
    return "transformWithStateInPandas"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
