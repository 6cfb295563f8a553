"""What an operator needs of a session and a frame, checked while the plan is built."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, POSTIMAGE, REVISION
from streamops.kernel.errors import (
    ColumnNotFound,
    RequirementError,
    SchemaError,
    SpecError,
    WatermarkError,
)
from streamops.kernel.time import format_duration
from streamops.spark.definition import StateApi
from streamops.spark.metadata import (
    INSTANT,
    LATENESS,
    METRICS,
    ONCE,
    REVISED,
    STATE_API,
    UPSERTS,
    WATERMARK,
    has_node,
)
from streamops.spark.requirements import REQUIRED, numbers, requirement
from streamops.spark.settings import PROVIDER, ROCKSDB

__all__ = [
    "carried_watermark",
    "metric_name",
    "refuse_revised",
    "refuse_taken",
    "refuse_unchainable",
    "refuse_upserts",
    "state_api",
]


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


def refuse_taken(frame: DataFrame, adds: Sequence[str], *, where: str) -> None:
    """Refuse a frame that has a column of ours: to Spark, upper and lower case are one.

    Raises
    ------
    SchemaError
        ``NAME_TAKEN``.
    """
    there = {name.lower(): name for name in frame.schema.names}
    for name in adds:
        if name.lower() in there:
            was = there[name.lower()]
            raise SchemaError(
                "NAME_TAKEN",
                f"the frame has a column {was!r} already",
                where=where,
                got=f"columns {', '.join(frame.schema.names)}",
                expected=f"a frame without {', '.join(adds)}",
                fix=f"df.withColumnRenamed({was!r}, ...) before this operator",
            )


def refuse_revised(frame: DataFrame, *, where: str) -> None:
    """Refuse results that are told again, or late rows among them, where every row counts.

    An operator marks the columns that tell them apart. Who drops these has said which rows count.

    Raises
    ------
    SchemaError
        ``ROWS_REVISED``.
    """
    said = [field.name for field in frame.schema.fields if REVISED in (field.metadata or {})]
    if not said:
        return
    late = "late" in said
    raise SchemaError(
        "ROWS_REVISED",
        "a result would count as often as it was told"
        if len(said) > late
        else "late rows would count as results",
        where=where,
        got=f"results of an operator that revises or routes, with {', '.join(said)}",
        expected="rows that each count once",
        fix='stragglers="drop" in the operator before; or say which rows count, and drop the columns: '
        '.where("late IS NULL").drop("late")'
        if late
        else 'stragglers="drop" in the operator before; or say which rows count, and drop the columns, '
        f"such as the on-time results alone: {_on_time(frame.schema.names, said)}"
        if REVISION in said
        else "fold them to a table first, in foreachBatch or behind the stream",
    )


def refuse_upserts(frame: DataFrame, *, where: str) -> None:
    """Refuse updates without the row before, where this has to be taken back.

    Raises
    ------
    SchemaError
        ``NO_PREIMAGES``.
    """
    said = [field.name for field in frame.schema.fields if UPSERTS in (field.metadata or {})]
    if said:
        raise SchemaError(
            "NO_PREIMAGES",
            "an update would add its row and leave the one before",
            where=where,
            got=f"upserts, by {', '.join(said)}: what they replace is not there",
            expected="a change stream, with each update as its two images",
            fix="df.transform(changes.normalize(...)) in between, which remembers the rows before; or "
            'preimages="publish" in from_debezium, "delete" in from_delta, where each update has its '
            "row before",
        )


def _on_time(names: Sequence[str], said: Sequence[str]) -> str:
    """How to take the results that were published on time, each once."""
    # Early results begin with revision 0, and what is taken back has that of its publication.
    which = "timing = 'on_time'" if "timing" in names else f"{REVISION} = 0"
    if CHANGE_TYPE in said:
        which += f" AND {CHANGE_TYPE} IN ('{INSERT}', '{POSTIMAGE}')"
    return f'.where("{which}").drop({", ".join(map(repr, said))})'


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
