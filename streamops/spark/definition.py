"""The definition of an operator: its parameters, its core, and how Spark runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pyspark.sql import Column, DataFrame

from streamops.changelog.chains import WATERMARK, Columns, Metadata
from streamops.kernel.errors import SpecError, located
from streamops.kernel.operator import Core, Spec
from streamops.kernel.parameters import require_choice, require_name
from streamops.spark import conditions

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
        The kernel of streamops or Spark's own operator, see :mod:`streamops.spark.definition`.
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
    check: Callable[[DataFrame, Columns], None] | None = None
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


EngineName = Literal["kernel", "native"]


class EngineChoice(NamedTuple):
    """The engine of an operator.

    Parameters
    ----------
    engine : "kernel" or "native"
    reason : str
        Why, for the description of the plan and the metrics.
    """

    engine: EngineName
    reason: str

    def __str__(self) -> str:
        return f"{self.engine}: {self.reason}"


def choose_engine(options: Options, limit: KeyLimit | None) -> EngineChoice:
    """Choose the engine of an operator that Spark has, too.

    "auto" is Spark's own operator up to the number of keys up to which it is the better one.

    Parameters
    ----------
    options : Options
        ``engine`` and ``expected_keys`` of the user.
    limit : KeyLimit, optional
        Up to how many keys Spark's own operator is the better one, for these frames and parameters.
        None if it has no operator with the same meaning.

    Examples
    --------
    >>> print(choose_engine(Options(expected_keys=500), KeyLimit(1000)))
    native: engine='auto', and expected_keys=500 is at most 1000
    >>> print(choose_engine(Options(), KeyLimit(1000)))
    kernel: engine='auto' without expected_keys
    >>> print(choose_engine(Options(engine="native"), KeyLimit(1000)))
    native: engine='native'
    """
    expected = options.expected_keys
    if options.engine != "auto":
        return EngineChoice(options.engine, f"engine={options.engine!r}")
    if limit is None:
        return EngineChoice(
            "kernel", "engine='auto', and Spark has no equivalent with these parameters"
        )
    if limit.keys is None:
        return EngineChoice("native", f"engine='auto', and {limit.reason}")
    if limit.keys == 0:
        return EngineChoice("kernel", f"engine='auto', and {limit.reason}")
    if expected is None:
        return EngineChoice("kernel", "engine='auto' without expected_keys")
    if expected <= limit.keys:
        return EngineChoice(
            "native", f"engine='auto', and expected_keys={expected} is at most {limit.keys}"
        )
    return EngineChoice(
        "kernel", f"engine='auto', and expected_keys={expected} is above {limit.keys}"
    )


def engine_of(operator: Definition, frames: Sequence[DataFrame], spec: Spec) -> EngineChoice | None:
    """Choose the engine of an operator over its frames; None if Spark does not have the operator.

    Raises
    ------
    SpecError
        Spark's own operator was selected. ``PARAMETERS_CONTRADICT``: it would mean something else.
        ``WATERMARK_MISSING``: Spark would refuse the query when it starts.
    """
    if operator.native is None:
        return None
    required = operator.execution.engine == "native"
    limit = operator.native.limit(*frames, spec)
    if limit is None and required:
        raise no_native_engine(operator)
    for frame, of, where in zip(frames, spec.inputs, operator.sides, strict=True):
        if not frame.isStreaming or of.time is None or of.delay is not None:
            continue
        # The kernel evicts by the watermark of the query, Spark's operators by that of the column.
        marked = [f.name for f in frame.schema.fields if WATERMARK in (f.metadata or {})]
        if of.time not in marked:
            if required:
                with located(where):
                    raise _watermark_elsewhere(of.time, marked)
            limit = KeyLimit(0, f"the watermark is not on {of.time!r}")
    return choose_engine(operator.execution, limit)


def no_native_engine(operator: Definition) -> SpecError:
    """The error where Spark has no operator with the same meaning."""
    return conditions.NO_NATIVE_ENGINE.error(got=f"engine='native' in {operator!r}")


def _watermark_elsewhere(time: str, marked: Sequence[str]) -> SpecError:
    return conditions.NATIVE_WITHOUT_WATERMARK.error(
        got=f"engine='native' with time={time!r}, and a watermark on {', '.join(marked)}"
    )
