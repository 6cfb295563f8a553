"""A clock before the operator under test: told apart, and replayed without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from streamops.kernel.clocks import ClockMetrics
from streamops.kernel.errors import SpecError
from streamops.spark.annotate import AnnotateTransform
from streamops.spark.checks import WATERMARK
from streamops.spark.clock_runners import Ticking
from streamops.spark.clocks import ClockTransform, refuse_watermark
from streamops.spark.packing import summarizer
from streamops.spark.running import RunningTransform
from streamops.spark.transform import Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Chain: TypeAlias = (
        Transform | RunningTransform | AnnotateTransform | Sequence[ClockTransform | Transform]
    )

__all__ = ["Frame", "ReplayedClock", "chained", "told_of"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Frame:
    """As much of a frame as the preflight looks at."""

    schema: StructType


def chained(said: Chain) -> tuple[ClockTransform | None, Transform]:
    """A clock, if there is one, and the operator behind it.

    Raises
    ------
    SpecError
        ``NOT_A_CHAIN``: anything else.
    """
    parts: list[object] = [said]
    if isinstance(said, list | tuple):
        parts = list(said)
    match parts:
        case [Transform() as transform]:
            return None, transform
        case [ClockTransform() as clock, Transform() as transform]:
            return clock, transform
    raise SpecError(
        "NOT_A_CHAIN",
        "the test kit cannot run this",
        where="streamops.testing",
        got=repr(said),
        expected="an operator that counts its rows, such as windows.tumbling(...), or a list of "
        "time.producers(...) and one",
        fix="test a longer chain as a query, on testing.micro_batches",
    )


def told_of(metrics: Mapping[str, Any]) -> ClockMetrics | None:
    """What a clock told, from the metrics of a micro-batch; None if it was not visited."""
    if metrics["rows"] is None:
        return None
    values = {field.name: metrics[field.name] for field in fields(ClockMetrics)}
    return ClockMetrics(
        **{**values, **{name: _micros(values[name]) for name in ("clock", "newest")}}
    )


def _micros(shown: Any) -> int | None:
    """Microseconds of an instant as a progress shows it."""
    if shown is None:
        return None
    if isinstance(shown, int):  # so it comes over Connect: in milliseconds
        return shown * 1_000
    if isinstance(shown, str):  # in the session's time zone: UTC in tests
        shown = dt.datetime.fromisoformat(shown)
    micros: int = (shown.replace(tzinfo=dt.UTC) - _EPOCH) // _MICROSECOND
    return micros


class ReplayedClock:
    """A clock over scripted micro-batches.

    Parameters
    ----------
    transform : ClockTransform
    schema : Schema
        The columns of every micro-batch.
    watermark : bool
        Whether the frame has a watermark already, which is refused as on Spark.
    """

    def __init__(self, transform: ClockTransform, schema: pa.Schema, *, watermark: bool) -> None:
        settings: Any = transform.settings
        spark = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        settings.check(cast("DataFrame", Frame(spark)))
        mark = {WATERMARK: 0} if watermark else {}
        marked = [StructField(f.name, f.dataType, metadata=mark) for f in spark if mark]
        refuse_watermark(
            cast("DataFrame", Frame(StructType(marked))), settings.time, where=transform.operator
        )
        self._transform = transform
        self._schema = schema
        self.stored: Sequence[Any] | None = None  # what Spark keeps in a checkpoint

    def tick(self, rows: pa.Table) -> ClockMetrics:
        """One micro-batch."""
        transform, settings = self._transform, cast("Any", self._transform.settings)
        spec = settings.bind(self._schema)
        columns = [rows.column(settings.producer), rows.column(settings.time)]
        kind = spec.input.field("arrival").type
        now = pa.scalar(dt.datetime.now(dt.UTC), kind)  # as Spark: when the micro-batch starts
        arrived = pa.chunked_array([pa.repeat(now, len(rows))])
        if settings.arrival is not None:
            said = rows.column(settings.arrival).cast(kind)
            arrived = pc.if_else(pc.greater(said, arrived), arrived, said)  # null stays null
        columns.append(arrived)
        inputs = pa.table(columns, schema=spec.input)
        packs = summarizer(transform.core, spec)(iter(inputs.to_batches()))
        ticking = Ticking(transform.operator, transform.core, spec)
        self.stored, frame = ticking(
            self.stored, [pack for batch in packs for pack in batch.column(1).to_pylist()]
        )
        (told,) = frame.to_dict("records")
        return ClockMetrics(**{field.name: told[field.name] for field in fields(ClockMetrics)})
