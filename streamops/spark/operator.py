"""An operator with its parameters, ready for ``DataFrame.transform``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from streamops.kernel.core import Core, Spec
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import require_choice, require_name

__all__ = [
    "DEFAULT_SHARDS",
    "Engine",
    "Native",
    "Operator",
    "Options",
    "Parameters",
    "StateApi",
    "show_fields",
]

Engine = Literal["auto", "kernel", "native"]
StateApi = Literal["auto", "applyInPandasWithState", "transformWithStateInPandas"]

DEFAULT_SHARDS = 8
MAX_SHARDS = 1 << 15

Native = Callable[..., "DataFrame | None"]
"""Spark's own operator as a function of (frames..., spec, whether the user requires it); it returns
None if Spark has no operator with the same meaning."""


@dataclass(frozen=True, slots=True)
class Options:
    """How an operator runs, whatever it computes.

    Parameters
    ----------
    name : str, optional
        Name of the metrics in ``observedMetrics``. The operator's own if None.
    shards : int
        Number of shards of the keys. It is part of the checkpoint.
    engine : "auto", "kernel" or "native"
        The kernel of streamops or Spark's own operator, if both can compute the same.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        Spark's state API that runs the kernel.
    """

    name: str | None = None
    shards: int = DEFAULT_SHARDS
    engine: Engine = "auto"
    state_api: StateApi = "auto"

    def validate(self, where: str) -> None:
        """Refuse options that are out of range."""
        require_choice(self.engine, Engine, parameter="engine", where=where)
        require_choice(self.state_api, StateApi, parameter="state_api", where=where)
        if self.name is not None:
            require_name(self.name, parameter="name", where=where)
        # 16.0 and True are in the range, too.
        if type(self.shards) is not int or self.shards not in range(1, MAX_SHARDS + 1):
            raise SpecError(
                "SHARDS_OUT_OF_RANGE",
                "`shards` is out of range",
                where=where,
                got=f"shards={self.shards!r}",
                expected=f"an integer from 1 to {MAX_SHARDS}",
                fix=f"use the default ({DEFAULT_SHARDS}); more if the state of a shard exceeds some MB",
            )


class Parameters(Protocol):
    """What the user passed to an operator: a frozen dataclass, validated where it is built.

    Properties about the inputs are tuples: of one entry, or of two, left first.
    """

    @property
    def times(self) -> tuple[str | None, ...]:
        """Event-time columns. None for an input without; with no time at all there is no watermark."""

    @property
    def delays(self) -> tuple[int | None, ...]:
        """Delays of the watermarks that the operator defines, in microseconds."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own, in microseconds."""

    @property
    def accepts_revisions(self) -> tuple[bool, ...]:
        """Whether an input may have rows that revise others, instead of rows that count once."""

    @property
    def needs_preimages(self) -> bool:
        """Whether an update must come with its preimage, on every input."""

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Columns whose values are compared or computed with."""

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> Spec:
        """Resolve the parameters against the schemas of the inputs.

        ``carried`` has the delays, in microseconds, of watermarks that the frames bring. An input
        with such a watermark has no delay in the spec.
        """


@dataclass(frozen=True, slots=True, repr=False)
class Operator:
    """A function from frame to frame, for ``DataFrame.transform``.

    Streaming and batch frames are supported alike. ``repr`` shows the whole specification.

    Parameters
    ----------
    name : str
        Public name, such as "windows.tumbling".
    parameters : Parameters
    core : Core
    right : DataFrame, optional
        The right frame of an operator with two inputs. None if the test kit provides both.
    native : callable, optional
        Spark's own operator, see :data:`Native`.
    check : callable, optional
        Refuse a frame whose Spark schema does not suit.
    project : callable, optional
        Column expressions that the core reads, instead of columns by name.
    initial : callable, optional
        From the operator and both frames: the right frame to use, and rows that its state starts with.
    finish : callable, optional
        From the frame, the output of the core and the column metadata for the next operator: the
        result, instead of the output as it is.
    follow_up : Operator, optional
        A second operator over the output of this one, in the same query.
    execution : Options
    """

    name: str
    parameters: Any
    core: Core
    right: DataFrame | None = None
    native: Native | None = None
    check: Callable[[DataFrame], None] | None = None
    project: Callable[[], Sequence[Column]] | None = None
    initial: Callable[..., tuple[DataFrame, DataFrame | None]] | None = None
    finish: Callable[..., DataFrame] | None = None
    follow_up: Operator | None = None
    execution: Options = Options()

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Build the result frame and check its plan.

        Raises
        ------
        SpecError
            ``RIGHT_MISSING``: the operator has two inputs and no right frame. ``NOT_A_FRAME``: the
            right frame is not a DataFrame.
        """
        # Imported late: an operator can be built, shown and replayed without the driver.
        from streamops.spark.drive import drive

        result = drive(self, frame)
        return result if self.follow_up is None else self.second(self.follow_up)(result)

    def second(self, follow_up: Operator) -> Operator:
        """The follow-up operator, with the options of this one."""
        return replace(follow_up, execution=self.execution)

    def options(
        self,
        *,
        name: str | None = None,
        shards: int | None = None,
        engine: Engine | None = None,
        state_api: StateApi | None = None,
    ) -> Operator:
        """Set how the operator runs. Options that are None stay as they are.

        Parameters
        ----------
        name : str, optional
            Name of the metrics in the query's ``observedMetrics``; by default the operator's own, such
            as "tumbling". Name both of two operators that meet in a union or a join of streams: Spark
            refuses two of the same name. The metrics of a batch are observed only if it is set.
        shards : int, optional
            Number of shards of the keys, 8 by default. Part of the checkpoint. Raise it if the state of
            a shard exceeds some megabytes.
        engine : "auto", "kernel" or "native", optional
            The kernel of streamops, or Spark's own operator where it computes the same. "auto" uses the
            kernel for streams.
        state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas", optional
            "auto" is ``transformWithStateInPandas``: it needs RocksDB, and operators can be chained.

        Returns
        -------
        Operator

        Raises
        ------
        SpecError
            ``UNKNOWN_CHOICE``, ``SHARDS_OUT_OF_RANGE``, ``NOT_A_NAME``, or ``NO_NATIVE_ENGINE``: Spark
            has no operator of its own for this one.
        """
        given: dict[str, Any] = {
            "name": name,
            "shards": shards,
            "engine": engine,
            "state_api": state_api,
        }
        execution = replace(
            self.execution, **{key: value for key, value in given.items() if value is not None}
        )
        execution.validate(self.name)
        if execution.engine == "native" and self.native is None:
            raise no_native_engine(self)
        return replace(self, execution=execution)

    @property
    def metrics_name(self) -> str:
        """Name of the metrics in ``observedMetrics``."""
        return self.execution.name or self.name.rpartition(".")[2]

    @property
    def sides(self) -> tuple[str, ...]:
        """Where each input is, for errors."""
        if len(self.parameters.times) == 1:
            return (self.name,)
        return (f"{self.name}, left frame", f"{self.name}, right frame")

    def __repr__(self) -> str:
        changed = [
            f"{f.name}={getattr(self.execution, f.name)!r}"
            for f in fields(Options)
            if getattr(self.execution, f.name) != f.default
        ]
        options = f".options({', '.join(changed)})" if changed else ""
        return f"{self.name}({', '.join(show_fields(self.parameters))}){options}"


def no_native_engine(operator: Operator) -> SpecError:
    """The error where Spark has no operator with the same meaning."""
    return SpecError(
        "NO_NATIVE_ENGINE",
        "Spark has no native equivalent",
        where=operator.name,
        got=f"engine='native' in {operator!r}",
        expected="an operator and a policy that Spark has, too: a window without routing and without "
        "empty or early results, on a stream with stragglers='drop' and no allowed_lateness, of aggregates "
        "that Spark has, with spark.sql.ansi.enabled=true for sums of integers and decimals and means of "
        "decimals (docs/windows.md); or an interval join that Spark's join can express (docs/joins.md)",
        fix='engine="auto" or engine="kernel"',
    )


def show_fields(parameters: Any) -> list[str]:
    """Name and value of each field, formatted as its metadata says; defining fields first."""
    ordered = sorted(fields(parameters), key=lambda f: not f.metadata.get("first", False))
    pairs = [(f, getattr(parameters, f.name)) for f in ordered if f.repr]
    return [f"{f.name}={f.metadata.get('shown', repr)(value)}" for f, value in pairs]
