"""Operators without event time, built from older settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamops.spark.operator import Operator

__all__ = ["TOLD", "RunningTransform", "told_by"]

TOLD = {
    "rows": "rows",
    "ignored": "rejected",
    "results": "results",
    "corrections": "corrections",
}


def told_by(core: Any) -> dict[str, str]:
    """The metrics of a core."""
    metrics: dict[str, str] = getattr(core, "TOLD", TOLD)
    return metrics


if TYPE_CHECKING:

    class RunningTransform(Operator):
        """The operator."""

        def __init__(self, operator: str, settings: Any, options: Any, core: Any) -> None: ...

else:

    def RunningTransform(operator: str, settings: Any, options: Any, core: Any):
        """The operator."""
        from streamops.spark.legacy import adapt

        return adapt("running", operator, settings, options, core)
