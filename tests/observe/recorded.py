"""Progress that Spark 4.3 reported, one JSON a line, recorded by ``python -m tests.observe.record``.

The rows that the queries read have `MARKERS` in every column and in the observation of the user.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamops.observe.core.progress import Progress, Totals
from streamops.observe.history import history

DATA = Path(__file__).with_name("data")
QUERIES = ("views", "clocks")
SECRET, SECRET_NUMBER = "secret-4711", 987_654_321
MARKERS = (SECRET, str(SECRET_NUMBER), f"{SECRET_NUMBER:,}")


def recorded(query: str) -> list[dict[str, Any]]:
    """The progress of a query, as JSON."""
    return [json.loads(line) for line in (DATA / f"{query}.jsonl").read_text().splitlines()]


def parsed(query: str) -> tuple[Progress, ...]:
    """The same, parsed."""
    return history(recorded(query)).progress


def totals_of(*queries: str) -> Totals:
    """The totals of queries that have not ended."""
    totals = Totals(10)
    for query in queries:
        for progress in parsed(query):
            totals.add(progress)
    return totals


def assert_no_values(text: str) -> None:
    """Fail if a text contains a value of a row."""
    assert text
    assert [marker for marker in MARKERS if marker in text] == []
