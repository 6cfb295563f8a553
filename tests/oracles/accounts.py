"""Accounts of late rows, in plain Python.

Lateness and overdue (how far the watermark is beyond the end of the window) are microseconds;
both are None if the row has no event time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from math import floor
from typing import Any, NamedTuple


class Late(NamedTuple):
    key: Hashable
    lateness: int | None
    overdue: int | None


def account(rows: Iterable[Late], bounds: Sequence[int]) -> dict[Hashable, tuple[Any, ...]]:
    """By key: rows, least, greatest, total, rows up to each bound and any, rows saved by each."""
    groups: dict[Hashable, list[Late]] = defaultdict(list)
    for row in rows:
        groups[row.key].append(row)
    accounts = {}
    for key, group in groups.items():
        late = [row.lateness for row in group if row.lateness is not None]
        overdue = [row.overdue for row in group if row.overdue is not None]
        accounts[key] = (
            len(group),
            min(late) if late else None,
            max(late) if late else None,
            sum(late) if late else None,
            (*(sum(value <= bound for value in late) for bound in bounds), len(late)),
            tuple(sum(value < bound for value in overdue) for bound in bounds),
        )
    return accounts


def needed(rows: Iterable[Late], bounds: Sequence[int], share: str) -> tuple[Any, ...]:
    """Rows with a lateness, the lateness needed to save a share, the rows it saves, the bound below."""
    late = [row for row in rows if row.overdue is not None]
    if not late:
        return 0, None, 0, None
    below = None
    for bound in bounds:
        saved = sum(row.overdue < bound for row in late)
        if saved >= Decimal(share) * len(late):
            return len(late), bound, saved, below
        below = bound
    most = max(row.lateness for row in late)
    return len(late), (floor(most / 1_000) + 1) * 1_000, len(late), below
