"""Choose the engine of an operator: the kernel of streamops, or Spark's own operator."""

from __future__ import annotations

from typing import Literal, NamedTuple

from streamops.spark.definition import KeyLimit, Options

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
