"""Random tables, texts, patterns and queries that others could have made.

Each file generates cases of one kind, and compares what the library does with an expectation that does not
come from the library. `make test` runs few cases, `make borders` many.
"""

from __future__ import annotations

import os

IS_LONG = os.environ.get("STREAMOPS_BORDERS") == "long"


def cases(quick: int, long: int) -> int:
    """The number of cases: `long` in `make borders`, else `quick`."""
    return long if IS_LONG else quick
