"""Choose the engine of an operator: the kernel of streamops, or Spark's own operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from pyspark.sql import DataFrame

from streamops.kernel.errors import SpecError, located
from streamops.kernel.operator import Spec
from streamops.spark import conditions
from streamops.spark.definition import Definition, KeyLimit, Options
from streamops.spark.metadata import WATERMARK

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
