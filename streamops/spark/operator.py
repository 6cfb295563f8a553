"""An operator with its parameters, ready for ``DataFrame.transform``."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from streamops.environment.requirements import refuse_versions
from streamops.kernel.calls import explain_call
from streamops.kernel.columns import type_name
from streamops.kernel.errors import located
from streamops.spark import conditions
from streamops.spark.columns import require_spark_frame
from streamops.spark.definition import Definition, Engine, Options, StateApi, no_native_engine
from streamops.spark.drive import drive
from streamops.spark.identity import refuse_worker_python

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_CONDITION = "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION"


@contextlib.contextmanager
def refuse_pipeline_function(operator: str) -> Iterator[None]:
    """Replace Spark's error in a query function of a pipeline by one with a remedy.

    An operator reads the schema of its frames while it builds the plan. Spark's own stateful operators
    of Python do the same.

    Raises
    ------
    SpecError
        ``SESSION_TYPE``.
    """
    try:
        yield
    except PySparkException as error:
        if _CONDITION not in str(error):  # Spark 3.5 has no getCondition
            raise
        raise conditions.PIPELINE_FUNCTION.error(
            operator=operator,
            got="an operator that is applied inside of a function with @dp.table, "
            "@dp.materialized_view, @dp.temporary_view or @dp.append_flow",
        ) from error


@dataclass(frozen=True, slots=True, repr=False)
class Operator(Definition):
    """A function from frame to frame, for ``DataFrame.transform``.

    Streaming and batch frames are supported alike. ``repr`` shows the parameters that were written.

    Parameters
    ----------
    follow_up : Operator, optional
        A second operator over the output of this one, in the same query.
    """

    follow_up: Operator | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Build the result frame and check its plan.

        Raises
        ------
        SpecError
            ``PARAMETER_MISSING``: the operator has two inputs and no right frame. ``FRAME_TYPE``,
            ``NOT_A_FRAME``: the frame, or the right one, is not a DataFrame. ``SESSION_TYPE``: inside of a function of a pipeline.
        RequirementError
            ``VERSION_NOT_SUPPORTED``: a package is too old, or too new. ``PACKAGE_MISSING``: workers of a local
            session run a Python without the packages.
        """
        with located(self.name), refuse_pipeline_function(self.name):
            refuse_versions()
            require_spark_frame(frame, self.name)
            refuse_worker_python(frame)
            for step in self.steps:
                with located(step.name):
                    frame = drive(step, frame)
        return frame

    def __dir__(self) -> list[str]:
        # For completion: what a user may call.
        return ["options", *(name for name in object.__dir__(self) if name.startswith("__"))]

    if not TYPE_CHECKING:  # or a type checker would find every name

        def __getattr__(self, name: str) -> Any:
            """Explain that an operator is not yet applied, where a method of its result is called."""
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if hasattr(DataFrame, name):
                message = (
                    f"{self.name}(...) is an operator and not a frame, so it has no {name!r}: apply it "
                    f"to a frame first, as in df.transform({self.name}(...)).{name}"
                )
            raise AttributeError(message)

    @property
    def steps(self) -> tuple[Operator, ...]:
        """The operator, and its follow-up operator with the same options.

        Nothing may follow ``applyInPandasWithState``, so only the last step uses it.
        """
        if self.follow_up is None:
            return (self,)
        first = replace(self, execution=replace(self.execution, state_api="auto"))
        # As a stream numbers metrics of one name; a batch does not know those before.
        name = self.execution.name and f"{self.execution.name}-2"
        second = replace(self.execution, name=name)
        return first, replace(self.follow_up, execution=second)

    @explain_call("Operator.options", validates=False)
    def options(
        self,
        *,
        name: str | None = None,
        shards: int | None = None,
        engine: Engine | None = None,
        state_api: StateApi | None = None,
        expected_keys: int | None = None,
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
            The kernel of streamops, or Spark's own operator where it computes the same. "auto" uses
            Spark's windows for batches, and for streams the kernel, unless `expected_keys` is set.
            On a stream, ``explain(extended=True)`` and the metric ``engine`` show the choice and its
            reason. It is part of the checkpoint.
        state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas", optional
            "auto" is ``transformWithStateInPandas``, with which operators can be chained, if the session
            has RocksDB and protobuf; else ``applyInPandasWithState``, for one stateful operator per
            query. ``explain(extended=True)`` of the result shows the choice and its reason. It is part
            of the checkpoint.
        expected_keys : int, optional
            About how many distinct keys have rows within a window; 1 without key columns. With up to 1000,
            tumbling windows of a stream use Spark's own operator under ``engine="auto"`` if it emits
            the same rows: it costs less then, and does not count late rows exactly (docs/windows.md).
            A hint, which never changes what is computed.

        Returns
        -------
        Operator

        Raises
        ------
        SpecError
            ``UNKNOWN_CHOICE``, ``PARAMETER_OUT_OF_RANGE``, ``PARAMETER_TYPE``,
            ``PARAMETERS_CONTRADICT``: Spark has no operator of its own for this one;
            ``PARAMETER_WITHOUT_EFFECT``: the operator has neither state nor shards.
        """
        given: dict[str, Any] = {
            "name": name,
            "shards": shards,
            "engine": engine,
            "state_api": state_api,
            "expected_keys": expected_keys,
        }
        given = {key: value for key, value in given.items() if value is not None}
        execution = replace(self.execution, **given)
        with located(self.name):
            self._check_options(execution, given)
        return replace(self, execution=execution)

    def _check_options(self, execution: Options, given: dict[str, Any]) -> None:
        execution.validate()
        if self.core is None and given.keys() - {"name"}:
            raise conditions.OPTION_WITHOUT_EFFECT.error(
                got=", ".join(f"{key}={value!r}" for key, value in given.items())
            )
        if execution.engine == "native" and self.native is None:
            raise no_native_engine(self)

    def __repr__(self) -> str:
        changed = [
            f"{f.name}={getattr(self.execution, f.name)!r}"
            for f in fields(Options)
            if getattr(self.execution, f.name) != f.default
        ]
        options = f".options({', '.join(changed)})" if changed else ""
        return f"{show_call(self.name, self.parameters)}{options}"


def show_call(name: str, parameters: DataclassInstance) -> str:
    """The call of a public function with these parameters, as a user writes it.

    It has the fields that are parameters of the function, in its order, unless they have their defaults.
    An operator of a user, which has no such function, is shown with all fields.
    """
    module, _, function = name.rpartition(".")
    public = getattr(sys.modules.get(f"streamops.{module}"), function, None)
    texts = {
        of.metadata.get("parameter", of.name): _show_field(of, getattr(parameters, of.name))
        for of in fields(parameters)
        if of.repr
    }
    if public is not None:
        written = inspect.signature(public).parameters.values()
        texts = {p.name: texts[p.name] for p in written if texts.get(p.name) not in _defaults(p)}
    return f"{name}({', '.join(f'{name}={text}' for name, text in texts.items())})"


def _show_field(of: Field[Any], value: Any) -> str:
    if "shown" in of.metadata:
        return str(of.metadata["shown"](value))
    if isinstance(value, pa.Schema):
        names = [f.name if f.name.isidentifier() else f"`{f.name}`" for f in value]
        pairs = zip(names, value.types, strict=True)
        return repr(", ".join(f"{name} {type_name(dtype)}" for name, dtype in pairs))
    if str(of.type).startswith("tuple[tuple[str, "):  # values by name
        return repr(dict(value))
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return repr(value)


def _defaults(parameter: inspect.Parameter) -> set[str | None]:
    """How a parameter that nobody wrote may be shown; None if it is not a field."""
    default = parameter.default
    if default is parameter.empty:
        return {None}
    nothing = () if default else ("()", "[]", "{}")
    return {None, repr(default), repr((default,)), *nothing}
