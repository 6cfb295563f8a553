"""Resolved operators of ``sketches.seen`` for tests of its core."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from streamops.sketches.core.seen import SeenParameters, SeenSpec

__all__ = ["change", "seen_spec"]


def seen_spec(schema: pa.Schema, *, shards: int = 1, **parameters: Any) -> SeenSpec:
    """The operator over these columns."""
    given: dict[str, Any] = {
        "false_positive_rate": 1e-9,
        "time": "ts",
        "horizon": None,
        "generations": 4,
        "again": "flag",
        "when_full": "fail",
    }
    return SeenSpec(SeenParameters(**(given | parameters)), schema, shards)


def change(spec: SeenSpec, **changed: Any) -> SeenSpec:
    """The operator with other parameters, columns or shards."""
    own = {f.name for f in fields(SeenSpec)}
    others = {name: value for name, value in changed.items() if name not in own}
    mine = {name: value for name, value in changed.items() if name in own}
    return replace(spec, parameters=replace(spec.parameters, **others), **mine)
