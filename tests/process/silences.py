"""The operator that "Write your own operator" in docs/process.md develops, as a module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "process.md"


def _source() -> str:
    blocks = [block.split("\n```", 1)[0] for block in _PAGE.read_text().split("```python\n")[1:]]
    wanted = ("class SilencesSpec", "class Silences(")
    return "\n".join(block for block in blocks if any(name in block for name in wanted))


silences: Any
exec("from datetime import timedelta\nfrom streamops import process\n" + _source())
