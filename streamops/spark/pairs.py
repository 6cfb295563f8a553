"""A transform of two frames: called on the left one, given the right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.kernel.contract import Core
from streamops.kernel.errors import SchemaError, SpecError
from streamops.kernel.pairs import PairCore, PairSpec
from streamops.spark.columns import type_name
from streamops.spark.parameters import require_frame
from streamops.spark.running import PerKey, RunningTransform
from streamops.spark.transform import Options, show_fields

__all__ = ["PairSettings", "PairTransform", "Then", "bound"]

Both = tuple[int | None, int | None]


class PairSettings(Protocol):
    """What a user said about an operator with two inputs, before it meets the frames.

    A dataclass, shown field by field. What it says of both sides stands in pairs, left first.
    """

    @property
    def times(self) -> tuple[str | None, str | None]:
        """Event-time columns; None for a side without. With two Nones there is no watermark."""

    @property
    def delays(self) -> Both:
        """Delays, in microseconds, of the watermarks that the operator defines itself."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own, in microseconds."""

    @property
    def of_results(self) -> tuple[bool, bool]:
        """Whether each side reads results that may be told again, instead of rows that count once."""

    @property
    def needs_preimages(self) -> bool:
        """Whether an update must come with the row before, on both sides."""

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared or computed with."""

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Both) -> PairSpec:
        """The operator's spec over these columns.

        ``carried`` are the delays, in microseconds, of watermarks that the frames bring, also of a
        side without event times beside one with: Spark waits for the least of both. A side that
        brings one has no delay in the spec.
        """


@dataclass(frozen=True, slots=True)
class Then:
    """A second step of an operator, over what the first one puts out, by a key of its own.

    Parameters
    ----------
    settings : PerKey
        Bound to the columns of the first step's output.
    core : Core
    """

    settings: PerKey
    core: Core


@dataclass(frozen=True, slots=True, repr=False)
class PairTransform:
    """A frame-to-frame function, for use with ``DataFrame.transform`` on the left frame.

    Its ``repr`` shows the whole specification. Two streaming frames and two batch frames are
    served alike.

    Parameters
    ----------
    operator : str
    settings : PairSettings
    options : Options
    core : PairCore
    right : DataFrame, optional
        The right frame. None where the test kit brings both sides.
    native : callable
        Spark's own operator on (left, right, spec, whether the user insists), or None where Spark
        has none that says the same.
    then : Then, optional
        What is done with the rows that the two frames make, in the same query.
    """

    operator: str
    settings: PairSettings
    options: Options
    core: PairCore
    right: DataFrame | None
    native: Callable[[DataFrame, DataFrame, Any, bool], DataFrame | None]
    then: Then | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked.

        Raises
        ------
        SpecError
            ``RIGHT_MISSING``: the transform was made without a right frame. ``NOT_A_FRAME``: that
            is something else.
        """
        # Imported late: a transform can be built, shown and replayed without the drive.
        from streamops.spark.pair_drive import drive_pair

        if self.right is None:
            raise SpecError(
                "RIGHT_MISSING",
                "there is no right frame",
                where=self.operator,
                got="right=None",
                expected="a DataFrame",
                fix=f"left.transform({self.operator}(right, ...)); None is for "
                "streamops.testing, which brings both sides",
            )
        require_frame(self.right, "the right frame", where=self.operator)
        if self.then is None:
            return drive_pair(self, frame, self.right)
        first, second = self.steps(self.then)
        return frame.transform(first).transform(second)

    def steps(self, then: Then) -> tuple[PairTransform, RunningTransform]:
        """Both steps as transforms. Only one state API lets another step follow."""
        first = replace(self, options=replace(self.options, state_api="auto"), then=None)
        return first, RunningTransform(self.operator, then.settings, self.options, then.core)

    @property
    def beyond_a_script(self) -> str | None:
        """A parameter that needs Spark, where there is one: a replay does without it."""
        return None

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), *show_fields(self.options)]
        return f"{self.operator}({', '.join(said)})"

    def with_options(self, **changes: Any) -> PairTransform:
        """The same with other options."""
        return replace(self, options=replace(self.options, **changes))


def bound(
    transform: PairTransform, left: pa.Schema, right: pa.Schema, *, carried: Both
) -> PairSpec:
    """The transform's spec over these columns, its sides' keys checked.

    Raises
    ------
    SchemaError
        ``KEY_TYPES_DIFFER``: equal values of the two sides would not meet.
    """
    spec = transform.settings.bind(left, right, carried=carried)
    for one, other in zip(spec.left.by, spec.right.by, strict=True):
        kinds = spec.left.input.field(one).type, spec.right.input.field(other).type
        if kinds[0] != kinds[1]:
            words = " and ".join(map(type_name, kinds))
            raise SchemaError(
                "KEY_TYPES_DIFFER",
                "the keys of the two sides are of different types",
                where=transform.operator,
                got=f"left {one!r} and right {other!r}: {words}",
                expected="one type on both sides",
                fix=f"cast one of them: right.withColumn({other!r}, "
                f"F.col({other!r}).cast({type_name(kinds[0])!r}))",
            )
    return spec
