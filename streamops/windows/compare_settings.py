"""What a user says about a comparison with the previous period, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.calendar import CalendarPeriod, FixedPeriod, Period, Unit
from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.parameters import (
    parse_names,
    refuse_taken_names,
    refuse_type,
    require_instant,
    show_duration,
)
from streamops.windows.calendar_settings import calendar_grid
from streamops.windows.core.comparison import CompareSpec, Revised
from streamops.windows.core.spec import Early
from streamops.windows.settings import RESERVED, WindowSettings

__all__ = ["Comparison"]

_SAID = ("previous_", "change_", "rate_")
_LATE = {"reason", "lateness", "watermark", "row"}


def _shown(period: int | Unit) -> str:
    return repr(period) if isinstance(period, str) else show_duration(period)


@dataclass(frozen=True, slots=True)
class Comparison(WindowSettings):
    """Settings of a comparison; durations in microseconds, units of the calendar as words."""

    # What the windows before have decided.
    time: str = field(repr=False)
    agg: tuple[tuple[str, Aggregation], ...] = field(repr=False)
    early: Early = field(repr=False)

    period: int | Unit = field(metadata={"shown": _shown, "first": True})
    zone: str | None = field(metadata={"first": True})
    values: tuple[str, ...] = field(metadata={"first": True})

    @staticmethod
    def of(
        where: str,
        period: Duration | Unit,
        *,
        zone: str | None,
        values: str | Sequence[str],
        **said: Any,
    ) -> Comparison:
        """Settings as the user wrote them, normalised, or an error."""
        common = WindowSettings.said(where, time="window_end", agg={}, **said)
        back: Any = period
        if zone is None:
            _refuse_unit(period, where)
            back = parse_duration(period, parameter="period", where=where, minimum=1)
        else:
            calendar_grid(back, zone, "monday", parameter="period", where=where)
        named = parse_names(values, parameter="values", where=where)
        settings = Comparison(**common, period=back, zone=zone, values=named)
        settings.refuse_contradictions()
        return settings

    @property
    def of_results(self) -> bool:
        """Those of windows."""
        return True

    @property
    def others(self) -> Mapping[str, str | None]:
        """The start of the window is read, too."""
        return {"window_start": "window_start"}

    def bind(self, schema: pa.Schema, *, carried: int | None) -> CompareSpec:
        """The spec over these columns."""
        self._refuse_other_frames(schema)
        bound = self.bound(schema, carried)
        for name in self.values:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=self.where, role="values")
            self._refuse_value(schema, name)
        revised = self._revised(schema)
        read = {*self.by, "window_start", "window_end", *self.values}
        if revised != "never":
            read.add(REVISION)
        if revised == "changes":
            read.add(CHANGE_TYPE)
        if "route" not in (self.stragglers, self.too_late):
            bound["input"] = pa.schema([f for f in schema if f.name in read])
        return CompareSpec(**bound, period=self._period, values=self.values, revised=revised)

    def refuse_contradictions(self) -> None:
        """Refuse what cannot be meant together."""
        self.refuse_too_late_alone()
        if not self.values:
            raise SpecError(
                "NO_VALUE",
                "nothing to compare",
                where=self.where,
                got=f"values={self.values!r}",
                expected="the name of at least one column",
                fix='values="views", say: a column of the windows before',
            )
        said = [name for v in self.values for name in (v, *(word + v for word in _SAID))]
        given = {"by": list(self.by), "values": list(self.values)}
        fix = "rename the column, or leave it out"
        refuse_taken_names([*self.by, *said], RESERVED, given, fix, self.where)

    @property
    def _period(self) -> Period:
        if isinstance(self.period, int):
            return FixedPeriod(self.period)
        assert self.zone is not None, "without a zone the period is a duration"
        return CalendarPeriod(self.period, self.zone)

    def _refuse_other_frames(self, schema: pa.Schema) -> None:
        """Refuse rows that are not results of windows, and late rows among them."""
        if not {"window_start", "window_end"} <= set(schema.names):
            raise SchemaError(
                "NOT_WINDOWED",
                "the rows are not results of windows",
                where=self.where,
                got=f"columns {', '.join(schema.names)}",
                expected="window_start and window_end among them",
                fix="put it behind a window. Behind Spark's own: df.select('window', "
                "F.col('window.start').alias('window_start'), "
                "F.col('window.end').alias('window_end'), ...)",
            )
        for name in ("window_start", "window_end"):
            require_instant(schema, name, where=self.where, use="a border of windows")
        if "late" in schema.names and pa.types.is_struct(schema.field("late").type):
            fields = {each.name for each in schema.field("late").type}
            if fields >= _LATE:
                raise SchemaError(
                    "LATE_ROWS_IN_INPUT",
                    "there are late rows among the results, which are no windows",
                    where=self.where,
                    got="a column 'late', as routing makes it",
                    expected="results alone",
                    fix='.where("late is null").drop("late") before',
                )

    def _refuse_value(self, schema: pa.Schema, name: str) -> None:
        kind = schema.field(name).type
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        if not (is_number or pa.types.is_decimal(kind)):
            fix = f"df.withColumn({name!r}, F.col({name!r}).cast('double')), or leave it out"
            refuse_type(schema, name, "a value to compare", "a number", fix, where=self.where)

    def _revised(self, schema: pa.Schema) -> Revised:
        """How the frame says that its results are revised; an error where ours cannot be."""
        has_changes, has_revision = CHANGE_TYPE in schema.names, REVISION in schema.names
        if not (has_changes or has_revision):
            return "never"
        if not has_revision or not pa.types.is_integer(schema.field(REVISION).type):
            raise SchemaError(
                "REVISION_MISSING",
                "a change stream without a revision does not say which row is newer",
                where=self.where,
                got=f"columns {', '.join(schema.names)}",
                expected=f"an integer column {REVISION!r} beside {CHANGE_TYPE!r}",
                fix="keep the column revision of the windows before",
            )
        wanted = ("retract",) if has_changes else ("update", "retract")
        if self.stragglers not in wanted:
            how = "a change stream" if has_changes else "results with a revision"
            raise SchemaError(
                "REVISED_INPUT",
                f"the windows are revised, and stragglers={self.stragglers!r} cannot follow",
                where=self.where,
                got=f"{how}: a column {CHANGE_TYPE if has_changes else REVISION!r}",
                expected=" or ".join(f"stragglers={word!r}" for word in wanted),
                fix=f"stragglers={wanted[0]!r}, with the allowed_lateness of the windows before",
            )
        return "changes" if has_changes else "upserts"


def _refuse_unit(period: object, where: str) -> None:
    if period in get_args(Unit):
        raise SpecError(
            "UNIT_WITHOUT_ZONE",
            f"when a {period} ago was depends on the time zone",
            where=where,
            got=f"period={period!r} without zone",
            expected="zone beside it; or a fixed duration",
            fix='zone="Europe/Berlin", say; or period="1 day", which is 24 hours',
        )
