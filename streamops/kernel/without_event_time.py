"""Defaults for cores without event time: every step emits all its output; nothing is pending."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamops.kernel.core import State

__all__ = ["finish", "next_deadline"]


def finish(spec: Any, state: State) -> pa.Table:
    """Return no rows: all output has been emitted."""
    return spec.output.empty_table()


def next_deadline(spec: Any, state: State) -> int | None:
    """Return None: without rows there is no output."""
    return None
