"""Event-time operators for Spark Structured Streaming.

Everything is imported when it is first used: a Spark worker that unpickles one function of
``streamops.kernel`` does not pay for the rest.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamops import (
        aggregates,
        changes,
        erasure,
        errors,
        joins,
        observe,
        patterns,
        plots,
        process,
        search,
        sinks,
        sketches,
        sources,
        sourcing,
        state,
        testing,
        time,
        windows,
    )
    from streamops.environment.session import local_session
    from streamops.spark.side_output import split_side_output

__all__ = [
    "__version__",
    "aggregates",
    "changes",
    "erasure",
    "errors",
    "joins",
    "local_session",
    "observe",
    "patterns",
    "plots",
    "process",
    "search",
    "sinks",
    "sketches",
    "sources",
    "sourcing",
    "split_side_output",
    "state",
    "testing",
    "time",
    "windows",
]

__version__ = "0.1.0"


_FUNCTIONS = {
    "local_session": "streamops.environment.session",
    "split_side_output": "streamops.spark.side_output",
}


if not TYPE_CHECKING:  # or a type checker would find every name

    def __getattr__(name: str) -> Any:
        if name in _FUNCTIONS:
            return getattr(importlib.import_module(_FUNCTIONS[name]), name)
        if name in {*__all__} - {"__version__"}:
            return importlib.import_module(f"streamops.{name}")
        message = f"module {__name__!r} has no attribute {name!r}"
        # With these, Python suggests the nearest name.
        raise AttributeError(message, name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
