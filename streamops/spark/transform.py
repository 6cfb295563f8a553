"""Operators with one input and event time, built from older settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamops.kernel.parameters import require_choice
from streamops.spark.operator import (
    DEFAULT_SHARDS,
    Engine,
    Operator,
    StateApi,
    show_fields,
)
from streamops.spark.operator import Options as Execution

__all__ = [
    "DEFAULT_SHARDS",
    "Engine",
    "Options",
    "StateApi",
    "Transform",
    "require_choice",
    "show_fields",
]


@dataclass(frozen=True, slots=True)
class Options:
    """Options in the order in which older code passes them."""

    engine: Engine
    state_api: StateApi
    shards: int
    name: str

    def validated(self, where: str) -> Options:
        """These options, or an error."""
        Execution(self.name, self.shards, self.engine, self.state_api).validate(where)
        return self


if TYPE_CHECKING:

    class Transform(Operator):
        """The operator."""

        def __init__(
            self, operator: str, settings: Any, options: Any, core: Any, native: Any
        ) -> None: ...

else:

    def Transform(operator: str, settings: Any, options: Any, core: Any, native: Any):
        """The operator."""
        from streamops.spark.legacy import adapt

        return adapt("single", operator, settings, options, core, native=native)
