"""Colors by meaning. They differ in lightness, and for color-blind people."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

COLORS: Mapping[str, str] = MappingProxyType(
    {
        "on_time": "#2a6f97",
        "corrected": "#d9711c",
        "too_late": "#1c2530",
        "retracted": "#9aa4ae",
        "text": "#1c2530",
        "label": "#5c6672",
        "grid": "#e4e7ea",
        "background": "#ffffff",
    }
)
"""Colors by meaning: of rows and results (stragglers have the color of what they correct), and of
the picture around them."""

CATEGORIES = ("#2a6f97", "#d9711c", "#1c2530", "#67d0e6", "#8033cc", "#b29e74")
"""Colors of values without a meaning of their own, such as the variables of a pattern."""

MARKERS = ("o", "D", "X", "s", "^", "v")
"""A shape for every color, for pictures in black and white."""


def lighten(color: str, share: float = 0.8) -> str:
    """Mix a color with white, for the area whose edge has the color.

    Examples
    --------
    >>> lighten("#2a6f97")
    '#d4e2ea'
    """
    parts = (int(color[n : n + 2], 16) for n in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)
