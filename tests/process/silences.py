"""The operator that "Write your own operator" in docs/process.md develops, as a module."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from streamops.kernel.time import parse_duration
from streamops.spark.operator import Operator

_PAGE = Path(__file__).parents[2] / "docs" / "process.md"


def _source() -> str:
    blocks = [block.split("\n```", 1)[0] for block in _PAGE.read_text().split("```python\n")[1:]]
    wanted = ("class SilencesSpec", "class Silences(")
    return "\n".join(block for block in blocks if any(name in block for name in wanted))


silences: Any = None
exec("from datetime import timedelta\nfrom streamops import process\n" + _source())


def silences_of(*, longest: str, by: str, time: str, delay: str | None = None) -> Operator:
    """The operator, with durations as text: for transcripts."""

    def read(text: str) -> dt.timedelta:
        micros = parse_duration(text, parameter="longest", minimum=0)
        return dt.timedelta(microseconds=micros)

    bound = None if delay is None else read(delay)
    made: Operator = silences(read(longest), by=by, time=time, delay=bound)
    return made
