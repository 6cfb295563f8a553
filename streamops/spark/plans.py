"""What stands in the plan of a frame."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

from pyspark.sql import DataFrame

__all__ = ["has_node"]


def has_node(frame: DataFrame, name: str) -> bool:
    """Whether there is a node of this name, such as ``EventTimeWatermark``."""
    told = io.StringIO()
    # What Spark prints is all that a classic session and a Connect session both tell.
    with redirect_stdout(told):
        frame.explain(mode="extended")
    return re.search(rf"^[\s:+~-]*{name} ", told.getvalue(), re.MULTILINE) is not None
