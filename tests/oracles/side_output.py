"""The column ``late`` of a row in the side output, field by field."""

from __future__ import annotations

from typing import Any


def late_row(
    reason: str,
    row: Any,
    *,
    side: str | None = None,
    lateness: int | None = None,
    watermark: int | None = None,
    window: tuple[int, int] | None = None,
    **further: Any,
) -> dict[str, Any]:
    """The value of ``late``; with a side, the row is that of one of two inputs."""
    return {
        "side": side,
        "reason": reason,
        "lateness": lateness,
        "watermark": watermark,
        "window": None if window is None else dict(zip(("start", "end"), window, strict=True)),
        "row": row if side is None else {"left": None, "right": None} | {side: row},
        **further,
    }
