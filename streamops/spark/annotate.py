"""Operators that pass their rows on, annotated, built from older settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamops.spark.operator import Operator

__all__ = ["AnnotateTransform"]


if TYPE_CHECKING:

    class AnnotateTransform(Operator):
        """The operator."""

        def __init__(self, operator: str, settings: Any, options: Any, core: Any) -> None: ...

else:

    def AnnotateTransform(operator: str, settings: Any, options: Any, core: Any):
        """The operator."""
        from streamops.spark.legacy import annotate

        return annotate(operator, settings, options, core)
