"""What an account of late rows says, counted as plainly as possible.

Lateness and overdue (how far the end of the window is behind the watermark) are microseconds;
both are None where the row had no time.
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
    """By key: rows, least, greatest, total, up to each bound and any, saved with each bound."""
    groups: dict[Hashable, list[Late]] = defaultdict(list)
    for row in rows:
        groups[row.key].append(row)
    told = {}
    for key, group in groups.items():
        late = [row.lateness for row in group if row.lateness is not None]
        overdue = [row.overdue for row in group if row.overdue is not None]
        told[key] = (
            len(group),
            min(late) if late else None,
            max(late) if late else None,
            sum(late) if late else None,
            (*(sum(each <= bound for each in late) for bound in bounds), len(late)),
            tuple(sum(each < bound for each in overdue) for bound in bounds),
        )
    return told


def needed(rows: Iterable[Late], bounds: Sequence[int], share: str) -> tuple[Any, ...]:
    """Rows with a lateness, what is needed to save so many of them, how many that saves, and the
    bound below."""
    timed = [row for row in rows if row.overdue is not None]
    if not timed:
        return 0, None, 0, None
    below = None
    for bound in bounds:
        saved = sum(row.overdue < bound for row in timed)
        if saved >= Decimal(share) * len(timed):
            return len(timed), bound, saved, below
        below = bound
    most = max(row.lateness for row in timed)
    return len(timed), (floor(most / 1_000) + 1) * 1_000, len(timed), below
