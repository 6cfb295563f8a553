"""Operators that pass their rows on, annotated by a core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from streamops.changelog.chains import METRICS, STATE_API, Columns, Metadata, refuse_taken
from streamops.kernel.operator import Core, Spec
from streamops.spark.metadata import add_metadata
from streamops.spark.operator import Operator
from streamops.spark.results import restore


class AnnotatedSpec(Spec, ABC):
    """The parameters of an operator that passes its rows on, annotated."""

    __slots__ = ()

    @property
    @abstractmethod
    def adds(self) -> tuple[str, ...]:
        """Columns that are added to the rows."""

    @property
    @abstractmethod
    def marked(self) -> str:
        """Column that carries the metadata for the next operator."""

    @abstractmethod
    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that does not suit."""

    @abstractmethod
    def build_result(self, rows: DataFrame, columns: list[str]) -> DataFrame:
        """Compute the result from the rows of the core and the names of the input columns."""

    @abstractmethod
    def build_rows(self, rows: pa.Table) -> pa.Table:
        """Compute the result of a table: what the test kit passes on."""

    @abstractmethod
    def counts(self) -> Mapping[str, Column]:
        """Metrics that are aggregates over the result."""


def annotate_rows(name: str, parameters: AnnotatedSpec, core: Core[Any]) -> Operator:
    """Build an operator that passes its rows on, annotated by a core.

    Parameters
    ----------
    name : str
        Public name of the operator.
    parameters : AnnotatedSpec
    core : Core
        Its output has the columns of the input and what ``build_result`` of the parameters needs.
    """

    def check(frame: DataFrame, columns: Columns) -> None:
        parameters.check(frame)
        refuse_taken([*columns.marks], parameters.adds)

    def build_result(
        frame: DataFrame, rows: DataFrame, metadata: Metadata | None, metrics: str
    ) -> DataFrame:
        result = parameters.build_result(restore(rows, frame), frame.schema.names)
        counted = [count.alias(of) for of, count in parameters.counts().items()]
        if counted and (frame.isStreaming or metrics != name.rpartition(".")[2]):
            result = result.observe(metrics, *counted)
        if metadata is None:
            return result
        mark = {key: metadata[key] for key in (METRICS, STATE_API)}
        return add_metadata(result, parameters.marked, mark)

    return Operator(name, parameters, core, check=check, build_result=build_result)
