"""The definition of an operator: its parameters, its core, and how Spark runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame

from streamops.kernel.operator import Core, Spec
from streamops.kernel.parameters import require_choice, require_name
from streamops.spark import conditions
from streamops.spark.metadata import Metadata

Engine = Literal["auto", "kernel", "native"]
StateApi = Literal["auto", "applyInPandasWithState", "transformWithStateInPandas"]

DEFAULT_SHARDS = 8
MAX_SHARDS = 1 << 15


class KeyLimit(NamedTuple):
    """Up to how many keys Spark's own operator is the better engine.

    Parameters
    ----------
    keys : int, optional
        None for any number, 0 for none.
    reason : str
        Why it is any number or none, for the description of the plan.
    """

    keys: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Native:
    """Spark's own operator with the same meaning.

    Parameters
    ----------
    limit : callable
        From (frames..., spec) to the number of keys up to which ``engine="auto"`` uses it: where it
        emits the same rows, and was measured to be cheaper. None if Spark has no operator with the
        same meaning for these parameters.
    build : callable
        From (frames..., spec) to the result, if there is a limit.
    """

    limit: Callable[..., KeyLimit | None]
    build: Callable[..., DataFrame]


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
        The kernel of streamops or Spark's own operator, see :mod:`streamops.spark.engines`.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        Spark's state API that runs the kernel, see :mod:`streamops.spark.state_apis`.
    expected_keys : int, optional
        About how many distinct keys have rows within a window: a hint for ``engine="auto"``.
    """

    name: str | None = None
    shards: int = DEFAULT_SHARDS
    engine: Engine = "auto"
    state_api: StateApi = "auto"
    expected_keys: int | None = None

    def validate(self) -> None:
        """Refuse options that are out of range."""
        require_choice(self.engine, Engine, parameter="engine")
        require_choice(self.state_api, StateApi, parameter="state_api")
        if self.name is not None:
            require_name(self.name, parameter="name")
        # 16.0 and True are in the range, too.
        if type(self.shards) is not int or self.shards not in range(1, MAX_SHARDS + 1):
            raise conditions.SHARDS_OUT_OF_RANGE.error(
                default_shards=DEFAULT_SHARDS, max_shards=MAX_SHARDS, got=f"shards={self.shards!r}"
            )
        if self.expected_keys is not None and (
            type(self.expected_keys) is not int or self.expected_keys < 1
        ):
            raise conditions.EXPECTED_KEYS_OUT_OF_RANGE.error(
                got=f"expected_keys={self.expected_keys!r}"
            )


class Frames(NamedTuple):
    """The frames that an operator reads.

    Parameters
    ----------
    sides : tuple of DataFrame
        One for each input.
    initial : DataFrame, optional
        Rows of the right input that the state of a stream starts with.
    """

    sides: tuple[DataFrame, ...]
    initial: DataFrame | None = None


BuildResult = Callable[[DataFrame, DataFrame, Metadata | None, str], DataFrame]
"""From a frame, the rows of the core, the column metadata for the next operator and the name of the metrics
to the result. In a batch there is no metadata."""


class RowParameters(Protocol):
    """Parameters of an operator without a core, as a dataclass: Spark computes all of it."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def adds(self) -> tuple[str, ...]:
        """Columns that it adds."""

    @property
    def marked(self) -> str:
        """Column that carries the metadata for the next operator."""

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that does not suit, such as one without the columns that it reads."""

    def apply(self, frame: DataFrame) -> DataFrame:
        """Build the result, such as the rows with the columns."""

    def counts(self) -> Mapping[str, Column]:
        """Metrics: aggregates over the columns of the result."""


@dataclass(frozen=True, slots=True, repr=False)
class Definition:
    """What an operator is; :class:`streamops.spark.operator.Operator` adds what users call.

    Parameters
    ----------
    name : str
        Public name, such as "windows.tumbling".
    parameters : Spec or RowParameters
    core : Core, optional
        The algorithm. None if the operator needs neither state nor a shuffle: its parameters are
        :class:`RowParameters` then.
    right : DataFrame, optional
        The right frame of an operator with two inputs. None if the test kit provides both.
    initial : DataFrame, optional
        Rows of the right frame that the state starts with, by ``Core.begin``.
    native : Native, optional
        Spark's own operator, if it has one.
    check : callable, optional
        Refuse a frame whose Spark schema does not suit.
    prepare : callable, optional
        Add columns that the core reads, and that the frames do not have.
    build_result : callable, optional
        Build the result, instead of the output of the core as it is.
    requires_transform : str, optional
        Why the operator needs ``transformWithStateInPandas``; None if it runs behind both state APIs.
    execution : Options
    """

    name: str
    parameters: Spec | RowParameters
    core: Core[Any] | None = None
    right: DataFrame | None = None
    initial: DataFrame | None = None
    native: Native | None = None
    check: Callable[[DataFrame], None] | None = None
    prepare: Callable[[Frames], Frames] | None = None
    build_result: BuildResult | None = None
    requires_transform: str | None = None
    execution: Options = Options()

    @property
    def metrics_name(self) -> str:
        """Name of the metrics in ``observedMetrics``."""
        return self.execution.name or self.name.rpartition(".")[2]

    @property
    def spec(self) -> Spec:
        """The parameters of an operator with a core."""
        assert isinstance(self.parameters, Spec), f"{self.name} has no core"
        return self.parameters

    @property
    def sides(self) -> tuple[str, ...]:
        """Where each input is, for errors."""
        if len(self.spec.inputs) == 1:
            return (self.name,)
        return (f"{self.name}, left frame", f"{self.name}, right frame")
