"""A kit for testing streams.

``replay`` runs an operator over scripted micro-batches without Spark, ``stream`` runs the same
script on Spark. Modules are imported when they are used: importing this package does not need pytest,
chispa and PyYAML, which the extra ``streamops[testing]`` installs.
"""

from __future__ import annotations

import importlib
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from streamops.kernel.calls import explain_call

if TYPE_CHECKING:
    from streamops.testing.batches import START, at
    from streamops.testing.folding import fold
    from streamops.testing.replaying import Replay, replay
    from streamops.testing.results import BatchResult
    from streamops.testing.rows import assert_rows
    from streamops.testing.streaming import micro_batches, stream

__all__ = [
    "START",
    "BatchResult",
    "Replay",
    "assert_rows",
    "at",
    "fold",
    "micro_batches",
    "replay",
    "stream",
]

_MODULES = {
    "START": "batches",
    "BatchResult": "results",
    "Replay": "replaying",
    "assert_rows": "rows",
    "at": "batches",
    "fold": "folding",
    "micro_batches": "streaming",
    "replay": "replaying",
    "stream": "streaming",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = getattr(importlib.import_module(f"streamops.testing.{_MODULES[name]}"), name)
        return explain_call(f"streamops.testing.{name}")(found) if isfunction(found) else found
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)


def __dir__() -> list[str]:
    return sorted(__all__)
