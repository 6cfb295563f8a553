"""An operator of sketches as a kind makes it; workers of Spark import from here."""

from __future__ import annotations

from typing import Any

from streamops import sketches
from streamops.sketches.per_key import per_key
from tests.sketches.linear import count_items, linear_sketch

__all__ = ["counted", "merging"]


def counted(column: str = "v", *, into: str = "n", **said: Any) -> Any:
    """Items per key, and per window if there is a size."""
    return per_key("sketches.counted", {into: count_items(column)}, said)  # type: ignore[arg-type]


def merging(column: str, **said: Any) -> Any:
    """Stored sketches of a key, merged: what they say, and the sketch."""
    agg = {
        "n": sketches.merged(column, like=count_items("v")),
        "all": sketches.merged(column, like=linear_sketch("v")),
    }
    return per_key("sketches.merging", agg, said)  # type: ignore[arg-type]
