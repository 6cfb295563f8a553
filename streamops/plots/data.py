"""Frames of all types as pandas frames, and their columns as coordinates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt

from streamops.kernel.calendar import DAY, require_zone
from streamops.kernel.parameters import parse_names, require_columns
from streamops.kernel.time import Duration, parse_duration
from streamops.kernel.versions import to_arrow
from streamops.plots import conditions

Data: TypeAlias = Any
"""A frame of PySpark, pandas, Arrow or Polars, rows as dicts, columns by name, or the results of
``testing.replay`` and ``testing.stream``."""

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

MAX_ROWS = 5_000
MAX_KEYS = 60


def read_rows(data: Data, columns: Mapping[str, str | None]) -> pd.DataFrame:
    """Return the rows as a pandas frame that has the columns, which are given by parameter.

    Raises
    ------
    SchemaError
        ``STREAMING_FRAME``, ``NOT_A_FRAME``, ``ColumnNotFound``.
    """
    table = _to_pandas(data)
    require_columns([*table.columns], {role: [name] for role, name in columns.items()})
    return table


def read_batches(data: Data, columns: Mapping[str, str | None]) -> pd.DataFrame:
    """Return one row per micro-batch; of results of a test, their metrics and the size of the state."""
    if _are_results(data):
        data = [_metrics_of(result) for result in data]
    return read_rows(data, columns)


def read_results(data: Data, columns: Mapping[str, str | None]) -> pd.DataFrame:
    """Return the results of all micro-batches, without rows of the side output."""
    rows = read_rows(data, columns)
    for tag in ("late", "rejected"):
        if tag in rows.columns:
            rows = rows[rows[tag].isna()]
    return rows.reset_index(drop=True)


def read_late(data: Data, time: str | None, *, batch: str) -> pd.DataFrame:
    """Return the late rows in the side output: micro-batch, event time and reason."""
    if time is None:
        return pd.DataFrame({batch: [], time: [], "reason": []})
    if _are_results(data):
        rows = [{batch: result.batch, **row} for result in data for row in result.late.to_pylist()]
    else:
        table = _to_pandas(data)
        if "late" not in table.columns:
            return pd.DataFrame({batch: [], time: [], "reason": []})
        late = table[table["late"].notna()]
        rows = [
            {batch: number, **_as_dict(row)}
            for number, row in zip(late[batch], late["late"], strict=True)
        ]
    found = [
        {batch: row[batch], time: _as_dict(row["row"]).get(time), "reason": row["reason"]}
        for row in rows
        if row.get("row") is not None
    ]
    table = pd.DataFrame(found, columns=[batch, time, "reason"])
    return table[table[time].notna()]


def read_numbers(data: Data) -> set[int]:
    """Return the numbers of all micro-batches, also of those without output, if they are known."""
    return {int(result.batch) for result in data} if _are_results(data) else set()


def read_keys(by: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the key columns."""
    return () if by is None else parse_names(by, parameter="by")


def add_key(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the frame with the text of its key in the column ``_key``; refuse what nobody can read.

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``.
    """
    require_columns([*table.columns], {"by": by})
    parts = [_text_of(table[name]) for name in by]
    keys = [", ".join(key) for key in zip(*parts, strict=True)] if by else [""] * len(table)
    table = table.assign(_key=keys)
    for what, count, most in (
        ("rows", len(table), MAX_ROWS),
        ("keys", table["_key"].nunique(), MAX_KEYS),
    ):
        if count > most:
            raise conditions.TOO_MUCH_TO_DRAW.error(things=what, most=most, got=f"{count:,} {what}")
    return table


def require_time(events: Data, time: str | None) -> None:
    """Raise an error if there are events, and it is not given which column is their time."""
    if events is not None and time is None:
        raise conditions.TIME_MISSING.error(got="time=None")


def to_coordinates(column: pd.Series[Any]) -> Floats:
    """Return numbers, or timestamps as days since 1970 in UTC, which is what matplotlib draws.

    Timestamps without a time zone are taken as UTC. Nulls become NaN.

    Raises
    ------
    SchemaError
        ``COLUMN_TYPE``.
    """
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return _to_days(column)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def to_width(value: Duration | float, *, parameter: str, minimum: int = 0) -> float:
    """Return a number as it is, or a duration in days: lengths between the coordinates of a column."""
    if isinstance(value, int | float):
        return float(value)
    micros = parse_duration(value, parameter=parameter, minimum=minimum)
    return micros / DAY


def zone_of(*columns: pd.Series[Any], zone: str | None) -> dt.tzinfo:
    """Return the time zone to display: the given one, that of the first column that has one, or UTC."""
    if zone is not None:
        require_zone(zone)
        return ZoneInfo(zone)
    for column in columns:
        own = getattr(column.dtype, "tz", None)
        if own is not None:
            return own  # type: ignore[no-any-return]
    return dt.UTC


def is_time(column: pd.Series[Any]) -> bool:
    """Whether a column has timestamps, and no numbers."""
    return not pd.api.types.is_numeric_dtype(column)


def _to_days(column: pd.Series[Any]) -> Floats:
    if pd.api.types.is_datetime64_any_dtype(column):
        aware = column.dt.tz_localize("UTC") if column.dt.tz is None else column
        days = aware.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
    else:  # pandas does not convert what is beyond the year 2262
        try:
            array = pa.array(column.tolist(), from_pandas=True)
            if not (pt.is_temporal(array.type) or pt.is_null(array.type)) or pt.is_time(array.type):
                raise pa.ArrowInvalid
            days = array.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise conditions.COLUMN_TYPE.error(column=column.name, got=str(column.dtype)) from error
    missing = np.isnat(days)
    micros = days.astype("datetime64[us]").astype(np.int64) / DAY
    return np.where(missing, np.nan, micros)


def _to_pandas(data: Data) -> pd.DataFrame:
    if getattr(data, "isStreaming", False):
        raise conditions.STREAMING_FRAME.error(got="a streaming frame")
    if isinstance(data, pd.DataFrame):
        return data.reset_index(drop=True)
    if hasattr(data, "mapInArrow"):  # PySpark's toPandas drops the time zone, and toArrow has UTC
        return _in_zone(_from_arrow(to_arrow(data)), data.sparkSession)
    if hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.RecordBatch):
        return _from_arrow(pa.table(data))
    if _are_results(data):
        parts = [_from_arrow(result.table).assign(batch=result.batch) for result in data]
        filled = [part for part in parts if len(part)] or parts[:1]
        return pd.concat(filled, ignore_index=True)
    if isinstance(data, Mapping):
        return pd.DataFrame({name: [*column] for name, column in data.items()})
    if isinstance(data, Sequence) and all(isinstance(row, Mapping) for row in data):
        return pd.DataFrame([*data])
    raise conditions.NOT_A_TABLE.error(got=type(data).__name__)


def _from_arrow(table: pa.Table) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas(
        timestamp_as_object=False, coerce_temporal_nanoseconds=False
    )
    return frame


def _in_zone(frame: pd.DataFrame, session: Any) -> pd.DataFrame:
    """The same instants in the time zone of the session."""
    zone = session.conf.get("spark.sql.session.timeZone")
    for name in frame.select_dtypes("datetimetz"):
        frame[name] = frame[name].dt.tz_convert(zone)
    return frame


def _are_results(data: Data) -> bool:
    """Whether these are results of micro-batches, from the test kit."""
    return (
        isinstance(data, Sequence)
        and len(data) > 0
        and all(hasattr(result, "batch") and hasattr(result, "table") for result in data)
    )


def _metrics_of(result: Any) -> dict[str, Any]:
    counts = result.counts
    metrics = (
        {f.name: getattr(counts, f.name) for f in fields(counts)} if is_dataclass(counts) else {}
    )
    names = ("batch", "watermark", "state_rows", "state_bytes")
    return metrics | {name: getattr(result, name) for name in names}


def _as_dict(row: Any) -> dict[str, Any]:
    return row.asDict() if hasattr(row, "asDict") else dict(row)


def _text_of(column: pd.Series[Any]) -> list[str]:
    return ["null" if value is None or value is pd.NA else str(value) for value in column.tolist()]
