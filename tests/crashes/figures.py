"""The points that the tests have passed, and the table of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

PROPERTY = "crash points"


class Point(NamedTuple):
    """One operator on a state store, whose results one sink writes, crashed once."""

    operator: str
    store: str
    sink: str
    batch: int
    stage: str


def table(points: Iterable[Point], restarts: int, differences: int) -> list[str]:
    """The number of points by stage, store and sink."""
    distinct = set(points)
    columns = sorted({(point.store, point.sink) for point in distinct})
    by_stage = Counter((point.stage, point.store, point.sink) for point in distinct)
    stages = sorted({point.stage for point in distinct})
    width = max(map(len, stages), default=0)
    heads = [f"{store}, {sink}" for store, sink in columns]
    lines = ["  ".join([" " * width, *heads])]
    for stage in stages:
        counts = (by_stage[stage, *column] for column in columns)
        cells = (f"{n or '':>{len(head)}}" for n, head in zip(counts, heads, strict=True))
        lines.append("  ".join([f"{stage:<{width}}", *cells]))
    operators = len({(point.operator, point.store) for point in distinct})
    lines.append(
        f"{len(distinct)} points: {operators} operators on their stores, {restarts} restarts, {differences} differences"
    )
    return lines
