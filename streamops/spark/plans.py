"""What stands in the plan of a frame."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["has_node"]


def has_node(frame: Any, name: str) -> bool:
    """Whether a DataFrame's plan has a node of this name, such as ``EventTimeWatermark``."""
    return re.search(rf"^[\s:+~-]*{name} ", _plan(frame), re.MULTILINE) is not None


def _plan(frame: Any) -> str:
    """The plan as it was analysed, a node per line. There is no public way that does not print it."""
    if hasattr(frame, "_jdf"):
        return str(frame._jdf.queryExecution().analyzed().toString())
    return str(frame._explain_string(extended=True))
