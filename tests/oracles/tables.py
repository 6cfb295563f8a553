"""A join of two tables by folding both change streams and joining what is there, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.testing.values import comparable

Row = dict[str, Any]
TAKES = ("update_preimage", "delete")


@dataclass
class Bag:
    """A table as a bag of rows; what takes away a row that is not there is rejected."""

    rows: list[Row] = field(default_factory=list)

    def step(self, changes: Sequence[Row]) -> list[tuple[str, Row]]:
        """Apply the changes of a micro-batch, whose order does not matter."""
        for change in changes:
            if not takes(change):
                self.rows.append(without(change))
        rejected = []
        for change in changes:
            if takes(change):
                there = [comparable(row) for row in self.rows]
                if comparable(without(change)) in there:
                    del self.rows[there.index(comparable(without(change)))]
                else:
                    rejected.append(("not_there", without(change)))
        return rejected


@dataclass
class Versions:
    """A table whose rows have keys: of each key and what is joined on, the newest change counts."""

    key: Sequence[str]
    sequence: str
    newest: dict[Any, tuple[Any, Row | None]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        """What is there."""
        return [row for _, row in self.newest.values() if row is not None]

    def step(self, changes: Sequence[Row]) -> list[tuple[str, Row]]:
        """Apply the changes, those of older sequences to no avail."""
        for change in changes:
            key = comparable([change[name] for name in self.key])
            order = (comparable(change[self.sequence]), not takes(change))
            if key not in self.newest or self.newest[key][0] < order:
                self.newest[key] = (order, None if takes(change) else without(change))
        return []


def takes(change: Row) -> bool:
    return change["_change_type"] in TAKES


def without(change: Row) -> Row:
    return {name: value for name, value in change.items() if name != "_change_type"}


def joined(
    left: Sequence[Row],
    right: Sequence[Row],
    on: Mapping[str, str],
    how: str,
    names: tuple[Sequence[str], Mapping[str, str]],
) -> list[Row]:
    """The join of two bags of rows. ``names``: the left columns; the right ones, and their names."""
    lefts, rights = names
    rows = []
    partners = [0] * len(right)
    for one in left:
        alone = True
        for at, other in enumerate(right):
            pairs = [(one[a], other[b]) for a, b in on.items()]
            if all(a is not None and comparable(a) == comparable(b) for a, b in pairs):
                rows.append({**one, **{name: other[own] for own, name in rights.items()}})
                alone = False
                partners[at] += 1
        if alone and how in ("left", "full"):
            rows.append({**one, **dict.fromkeys(rights.values())})
    if how in ("right", "full"):
        for other, number in zip(right, partners, strict=True):
            if not number:
                row = {**dict.fromkeys(lefts), **{a: other[b] for a, b in on.items()}}
                rows.append({**row, **{name: other[own] for own, name in rights.items()}})
    return rows


@dataclass
class Folded:
    """Joined rows as the published changes leave them, each contradiction refused."""

    rows: Counter[Any] = field(default_factory=Counter)

    def step(self, emitted: Sequence[Row]) -> None:
        """Apply the changes of a micro-batch, in their order."""
        for change in emitted:
            row = comparable(without(change))
            if takes(change):
                assert self.rows[row] > 0, f"taken away and not there: {change}"
                self.rows[row] -= 1
            else:
                self.rows[row] += 1

    @property
    def there(self) -> Counter[Any]:
        """What is there, how often."""
        return +self.rows


def bag_of(rows: Sequence[Row]) -> Counter[Any]:
    return Counter(comparable(row) for row in rows)


Table = Callable[[], Bag | Versions]
