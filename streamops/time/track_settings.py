"""What a user says about clocks that are followed, validated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.kernel.errors import ColumnNotFound, WatermarkError
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.checks import WATERMARK
from streamops.spark.columns import require_name
from streamops.spark.parameters import require_keys
from streamops.time.clock_settings import QUALITIES, ClockSettings
from streamops.time.core.correcting import correct
from streamops.time.core.tracking import HOW, OFFSET, TrackSpec

__all__ = ["TRACKED", "TrackSettings"]

TRACKED = ("estimated", "stepped", *QUALITIES)

_WORDS = {"shown": lambda micros: repr(format_duration(micros))}


@dataclass(frozen=True, slots=True)
class TrackSettings(ClockSettings):
    """Settings of clocks that are followed; durations in microseconds."""

    by: tuple[str, ...]
    horizon: int = field(metadata=_WORDS)
    step: int = field(metadata=_WORDS)

    @staticmethod
    def tracked(
        where: str,
        *,
        by: str | Sequence[str],
        horizon: Duration,
        step: Duration,
        **said: Any,
    ) -> TrackSettings:
        """Settings as the user wrote them, normalised, or an error."""
        rules = ClockSettings.said(where, **said)
        names = (by,) if isinstance(by, str) or not isinstance(by, Sequence) else tuple(by)
        for name in names:
            require_name(name, parameter="by", where=where)
        back = parse_duration(horizon, parameter="horizon", where=where, minimum=1)
        jump = parse_duration(step, parameter="step", where=where, minimum=0)
        return TrackSettings(**rules, by=names, horizon=back, step=jump)

    @property
    def told(self) -> tuple[str, ...]:
        """The core counts nothing."""
        return ()

    @property
    def qualities(self) -> tuple[str, ...]:
        """What may be thought of a corrected time."""
        return TRACKED

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns it reads, or with a watermark."""
        super(TrackSettings, self).check(frame)
        for name in self.by:
            if name not in frame.schema.names:
                raise ColumnNotFound(name, frame.schema.names, where=self.where, role="by")
        marks = [field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})]
        if frame.isStreaming and marks:
            raise WatermarkError(
                "TRACK_BEHIND_WATERMARK",
                "the watermark is there already, and goes by the times that are to be corrected",
                where=self.where,
                got=f"a frame with a watermark on {marks[0]!r}",
                expected="a frame without a watermark",
                fix="correct first, withWatermark('corrected_time', ...) or delay=... after it",
            )

    def bind(self, schema: pa.Schema) -> TrackSpec:
        """The spec over these columns."""
        require_keys(schema, self.by, where=self.where)
        return TrackSpec(
            self.by, self.sent, self.received, self.horizon, self.step, self.largest_offset, schema
        )

    def finish(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """The rows as the core left them, with their corrected times."""
        # A sample has a word; what has none is of another quality than a corrected one.
        return self.corrected(frame, names, F.col(OFFSET), F.col(HOW))

    def finished(self, rows: pa.Table) -> pa.Table:
        """The same, of a table."""
        said = correct(
            [rows.column(name) for name in (self.time, self.sent, self.received)],
            rows.column(OFFSET),
            rows.column(HOW),
            tolerance=self.tolerance,
            longest_wait=self.longest_wait,
            largest_offset=self.largest_offset,
            otherwise=self.otherwise,
        )
        result = rows.drop_columns([OFFSET, HOW])
        for name, column in zip(self.adds, said, strict=True):
            result = result.append_column(name, column)
        return result
