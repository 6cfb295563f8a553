"""Operators with two inputs, built from older settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.spark.operator import Operator

__all__ = ["PairTransform", "Then", "bound"]

Both = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Then:
    """A follow-up operator."""

    settings: Any
    core: Any


if TYPE_CHECKING:

    class PairTransform(Operator):
        """The operator."""

        def __init__(
            self,
            operator: str,
            settings: Any,
            options: Any,
            core: Any,
            right: DataFrame | None,
            native: Any,
            then: Then | None = None,
            initial: Any = None,
        ) -> None: ...

else:

    def PairTransform(
        operator: str,
        settings: Any,
        options: Any,
        core: Any,
        right: DataFrame | None,
        native: Any,
        then: Then | None = None,
        initial: Any = None,
    ):
        """The operator."""
        from streamops.spark.legacy import adapt

        follow_up = None
        if then is not None:
            follow_up = adapt("running", operator, then.settings, options, then.core)
        return adapt(
            "pair",
            operator,
            settings,
            options,
            core,
            right=right,
            native=native,
            follow_up=follow_up,
            initial=initial,
        )


def bound(transform: Operator, left: pa.Schema, right: pa.Schema, *, carried: Both) -> Any:
    """The spec of an operator over these columns, the keys of its inputs checked."""
    from streamops.spark.drive import resolve

    spec: Any = resolve(transform, (left, right), carried)
    return spec.raw
