"""Parameters of the comparison of windows with those of earlier periods."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.calendar import CalendarPeriod, FixedPeriod, Period, Unit
from streamops.kernel.core import Identity, Input
from streamops.kernel.lateness import has_side_output
from streamops.kernel.operator import checkpointed, with_types
from streamops.kernel.parameters import (
    refuse_taken_names,
    refuse_type,
    require_columns,
    require_instant,
)
from streamops.windows import conditions
from streamops.windows.core.spec import RESERVED, Early, WindowSpec, require_unit, show_length

Revised = Literal["never", "upserts", "changes"]

WIDEST_DECIMAL = 38  # digits

MOST_PERIODS = 1_000

DEFAULT_THRESHOLD = 3.5  # of Iglewicz and Hoaglin

_PREFIXES = ("previous_", "change_", "rate_")
_BAND_PREFIXES = ("median_", "deviation_", "count_", "anomaly_")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareSpec(WindowSpec):
    """Parameters of a comparison.

    Parameters
    ----------
    period : int or str
        A duration or, with `zone`, a calendar unit.
    zone : str, optional
        Time zone of the unit.
    values : tuple of str
        The columns to compare.
    periods : int
        How many earlier periods; with two or more, each value has a band.
    threshold : float
        Deviations from the median above which a value is an anomaly.
    min_periods : int, optional
        How many earlier values there must be.
    revised : str
        Resolved: the input is never revised, revised by upserts, or a change stream.
    """

    # These are determined by the windows of the input.
    time: str = field(default="window_end", init=False, repr=False)
    agg: tuple[tuple[str, Aggregation], ...] = field(default=(), init=False, repr=False)
    early: Early = field(default="never", init=False, repr=False)

    period: int | Unit = checkpointed(metadata={"shown": show_length})
    zone: str | None = checkpointed()
    values: tuple[str, ...] = checkpointed(with_types)
    periods: int = 1
    threshold: float = DEFAULT_THRESHOLD
    min_periods: int | None = None
    revised: Revised = checkpointed(default="never", repr=False)

    def __post_init__(self) -> None:
        if self.zone is not None:
            require_unit(self.period, self.zone, "monday", parameter="period")
        self.refuse_too_late_without_corrections()
        if not self.values:
            raise conditions.NO_VALUE.error(got=f"values={self.values!r}")
        self._require_band()
        prefixes = ("", *_PREFIXES, *(_BAND_PREFIXES if self.has_band else ()))
        added = [prefix + name for name in self.values for prefix in prefixes]
        given = {"by": list(self.by), "values": list(self.values)}
        refuse_taken_names([*self.by, *added], RESERVED, given)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the parameters, and how the input is revised."""
        (schema,) = schemas
        self._refuse_other_frames(schema)
        resolved = WindowSpec.resolve(self, schemas, carried=carried, shards=shards)
        require_columns(schema.names, {"values": self.values})
        for name in self.values:
            self._require_number(schema, name)
        revised = self._revised(schema)
        read = {*resolved.input.names, *self.values}
        if revised != "never":
            read.add(REVISION)
        if revised == "changes":
            read.add(CHANGE_TYPE)
        columns = pa.schema([f for f in schema if f.name in read])
        return replace(resolved, revised=revised, input=columns)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """Results of windows, which may be revised."""
        (own,) = super(CompareSpec, self).inputs
        return (replace(own, accepts_revisions=True),)

    @property
    def extra_columns(self) -> Mapping[str, str]:
        """The start of the window."""
        return {"window_start": "window_start"}

    @property
    def has_band(self) -> bool:
        """Whether values are compared with the band of several earlier ones."""
        return self.periods > 1

    @property
    def fewest(self) -> int:
        """How many earlier values a window needs before it can be an anomaly: by default, more than half."""
        return self.periods // 2 + 1 if self.min_periods is None else self.min_periods

    def back(self, periods: int) -> Period:
        """Return what finds the window that many periods before another."""
        if isinstance(self.period, int):
            return FixedPeriod(self.period * periods)
        assert self.zone is not None, "without a zone the period is a duration"
        return CalendarPeriod(self.period, self.zone, periods)

    @property
    def longest(self) -> Period:
        """Finds the earliest window that another one is compared with."""
        return self.back(self.periods)

    @property
    def identity(self) -> Identity:
        """A band adds its periods, and all that decides what a preimage has, if there are any."""
        found = dict(super(CompareSpec, self).identity)
        if self.has_band:
            found["periods"] = self.periods
            if self.retracts:
                found |= {"threshold": self.threshold, "min_periods": self.fewest}
        return found

    @property
    def value_columns(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of the columns that a result has per key and window."""
        columns = []
        for name in self.values:
            dtype = self.input.field(name).type
            columns += [(name, dtype), (f"previous_{name}", dtype)]
            columns += [(f"change_{name}", difference_type(dtype)), (f"rate_{name}", pa.float64())]
            if self.has_band:
                types = (pa.float64(), pa.float64(), pa.int32(), pa.bool_())
                columns += [(p + name, t) for p, t in zip(_BAND_PREFIXES, types, strict=True)]
        return columns

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column."""
        pairs = ((name, (0, name)) for name in (*self.by, *self.values))
        return {**dict(pairs), **{f"previous_{name}": (0, name) for name in self.values}}

    def _require_band(self) -> None:
        """Refuse parameters of a band that are out of range, or without effect."""
        if type(self.periods) is not int or not 1 <= self.periods <= MOST_PERIODS:
            raise conditions.PERIODS_OUT_OF_RANGE.error(
                most_periods=MOST_PERIODS, got=f"periods={self.periods!r}"
            )
        threshold: object = self.threshold
        is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
        if not (is_number and self.threshold > 0 and math.isfinite(self.threshold)):
            raise conditions.THRESHOLD_OUT_OF_RANGE.error(got=f"threshold={self.threshold!r}")
        least = self.min_periods
        given = {"threshold": self.threshold != DEFAULT_THRESHOLD, "min_periods": least is not None}
        if not self.has_band and any(given.values()):
            name = next(name for name, is_given in given.items() if is_given)
            raise conditions.BAND_WITHOUT_PERIODS.error(
                parameter=name, got=f"{name}={getattr(self, name)!r}, periods=1"
            )
        if least is not None and (type(least) is not int or not 1 <= least <= self.periods):
            raise conditions.MIN_PERIODS_OUT_OF_RANGE.error(
                got=f"min_periods={least!r}, periods={self.periods}"
            )

    def _refuse_other_frames(self, schema: pa.Schema) -> None:
        """Refuse frames that are not results of windows, or that include late rows."""
        if not {"window_start", "window_end"} <= set(schema.names):
            raise conditions.NOT_WINDOWED.error(got=f"columns {', '.join(schema.names)}")
        for name in ("window_start", "window_end"):
            require_instant(schema, name, use="a border of windows")
        if has_side_output(schema):
            raise conditions.LATE_ROWS_IN_INPUT.error(
                got="a column 'late', as stragglers='route' adds it"
            )

    def _require_number(self, schema: pa.Schema, name: str) -> None:
        if not is_number(schema.field(name).type):
            refuse_type(conditions.VALUE_TYPE, schema, name)

    def _revised(self, schema: pa.Schema) -> Revised:
        """Return how the input is revised; refuse revisions that `stragglers` would ignore."""
        has_changes, has_revision = CHANGE_TYPE in schema.names, REVISION in schema.names
        if not (has_changes or has_revision):
            return "never"
        if not has_revision or not pa.types.is_integer(schema.field(REVISION).type):
            raise conditions.REVISION_MISSING.error(
                column=REVISION, change_type=CHANGE_TYPE, got=f"columns {', '.join(schema.names)}"
            )
        wanted = ("retract",) if has_changes else ("update", "retract")
        if self.stragglers not in wanted:
            how = "a change stream" if has_changes else "results with a revision"
            raise conditions.REVISED_INPUT.error(
                stragglers=self.stragglers,
                wanted=wanted[0],
                expected=" or ".join(f"stragglers={choice!r}" for choice in wanted),
                got=f"{how}: a column {CHANGE_TYPE if has_changes else REVISION!r}",
            )
        return "changes" if has_changes else "upserts"


def is_number(dtype: pa.DataType) -> bool:
    """Whether values of this type are integers, floats or decimals."""
    types = pa.types
    return bool(types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype))


def difference_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the difference of two values of a type."""
    if pa.types.is_decimal(dtype):
        return pa.decimal128(min(dtype.precision + 1, WIDEST_DECIMAL), dtype.scale)
    return pa.float64() if pa.types.is_floating(dtype) else pa.int64()
