"""A transform: an operator with its settings, ready for ``DataFrame.transform``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.kernel.contract import Core, Spec
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import require_choice, require_name

__all__ = [
    "Engine",
    "Options",
    "Settings",
    "StateApi",
    "Transform",
    "is_named",
    "require_choice",
    "show_fields",
]

Engine = Literal["auto", "kernel", "native"]
StateApi = Literal["auto", "applyInPandasWithState", "transformWithStateInPandas"]

DEFAULT_SHARDS = 8
MAX_SHARDS = 1 << 15


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs, whatever it computes.

    Parameters
    ----------
    engine : "auto", "kernel" or "native"
        Our kernel or Spark's own operator, where both can say the same.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        Spark's interface to state that drives the kernel.
    shards : int
        Pieces that the keys are spread over. Belongs to the checkpoint.
    name : str
        Under which the counts appear in ``observedMetrics``.
    """

    engine: Engine
    state_api: StateApi
    shards: int
    name: str

    def validated(self, where: str) -> Options:
        """These options, or an error."""
        require_choice(self.engine, Engine, parameter="engine", where=where)
        require_choice(self.state_api, StateApi, parameter="state_api", where=where)
        require_name(self.name, parameter="name", where=where)
        # 16.0 and True are in the range, too.
        if type(self.shards) is not int or self.shards not in range(1, MAX_SHARDS + 1):
            raise SpecError(
                "SHARDS_OUT_OF_RANGE",
                "`shards` is out of range",
                where=where,
                got=f"shards={self.shards!r}",
                expected=f"an integer from 1 to {MAX_SHARDS}",
                fix=f"leave it out ({DEFAULT_SHARDS}); more where a shard's state passes some MB",
            )
        return self


def is_named(options: Options, operator: str) -> bool:
    """Whether the user gave a name; else it is the operator's own.

    Spark refuses two observations of one name in a query. Nobody listens to those of a batch
    unasked, and two operators in the branches of a union or a join would be refused for them.
    """
    return options.name != operator.rpartition(".")[2]


class Settings(Protocol):
    """What a user said about an operator, before it meets a frame."""

    @property
    def time(self) -> str:
        """Event-time column."""

    @property
    def delay(self) -> int | None:
        """Delay of the operator's own watermark, in microseconds."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own, in microseconds."""

    @property
    def of_results(self) -> bool:
        """Whether it reads results of windows, instead of events."""

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""

    def bind(self, schema: pa.Schema, *, carried: int | None) -> Spec:
        """The operator's spec over these columns.

        ``carried`` is the delay, in microseconds, of a watermark that the frame brings.
        """


@dataclass(frozen=True, slots=True, repr=False)
class Transform:
    """A frame-to-frame function, for use with ``DataFrame.transform``.

    Its ``repr`` shows the whole specification. Streaming and batch frames are served alike.
    """

    operator: str
    settings: Settings
    options: Options
    core: Core
    native: Callable[[DataFrame, Any, bool], DataFrame | None]

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The result frame, its plan checked."""
        # Imported late: a transform can be built, shown and replayed without the drive.
        from streamops.spark.drive import drive

        return drive(self, frame)

    def __repr__(self) -> str:
        said = [*show_fields(self.settings), *show_fields(self.options)]
        return f"{self.operator}({', '.join(said)})"


def show_fields(settings: Any) -> list[str]:
    """Name and value of each field, shown as its metadata says: a duration in words, what defines it first."""
    ordered = sorted(fields(settings), key=lambda f: not f.metadata.get("first", False))
    pairs = [(f, getattr(settings, f.name)) for f in ordered if f.repr]
    return [f"{f.name}={f.metadata.get('shown', repr)(value)}" for f, value in pairs]
