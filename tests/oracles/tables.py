"""A join of two tables: fold both change streams, and join their rows, row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.windows import Expected

Row = dict[str, Any]
TAKES = ("update_preimage", "delete")


@dataclass
class Multiset:
    """A table as a multiset of rows. A delete of a row that does not exist is rejected."""

    rows: list[Row] = field(default_factory=list)

    def fresh(self) -> Multiset:
        """An oracle with the same parameters and no rows."""
        return Multiset()

    def late(self, changes: Sequence[Row]) -> int:
        """Changes that are not newer than the stored rows: unknown without a sequence."""
        return 0

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
class KeyedMultiset(Multiset):
    """The same for rows with keys: each exists at most once; in a conflict, the greatest."""

    key: Sequence[str] = ()
    again: int = 0
    """Repeated changes of the last micro-batch."""

    def fresh(self) -> KeyedMultiset:
        """An oracle with the same parameters and no rows."""
        return KeyedMultiset(key=self.key)

    def late(self, changes: Sequence[Row]) -> int:
        """Repeated changes."""
        other = replace(self, rows=list(self.rows))
        other.step(changes)
        return other.again

    def step(self, changes: Sequence[Row]) -> list[tuple[str, Row]]:
        """Apply the changes of a micro-batch, then remove rows that exist more than once."""
        before = multiset_of(self.rows)
        rejected = super().step(changes)
        self.again, rows = 0, self.rows
        self.rows = []
        for key in {comparable([row[name] for name in self.key]) for row in rows}:
            mine = [row for row in rows if comparable([row[n] for n in self.key]) == key]
            best = max(mine, key=content)
            self.rows.append(best)
            copies = [row for row in mine if comparable(row) == comparable(best)]
            self.again += len(copies) - 1
            others = [row for row in mine if comparable(row) != comparable(best)]
            inserted = Counter(multiset_of(others))
            inserted.subtract({row: before[row] for row in inserted})
            for row in others:
                if inserted[comparable(row)] > 0:
                    inserted[comparable(row)] -= 1
                    rejected.append(("contradiction", row))
        return rejected


@dataclass
class Versions:
    """A table whose rows have keys: the newest change per key and join columns is effective."""

    key: Sequence[str]
    sequence: str
    newest: dict[Any, tuple[Any, Row | None]] = field(default_factory=dict)

    def fresh(self) -> Versions:
        """An oracle with the same parameters and no rows."""
        return Versions(self.key, self.sequence)

    def late(self, changes: Sequence[Row]) -> int:
        """Changes that are not newer than the stored rows."""
        late = 0
        for change in self._good(changes):
            order, row = self.newest.get(self._of(change), (None, None))
            same = row is None or takes(change) or comparable(row) == comparable(without(change))
            late += order is not None and (
                self._order(change) < order or (self._order(change) == order and same)
            )
        return late

    def _good(self, changes: Sequence[Row]) -> list[Row]:
        """Changes that do not conflict with a greater one of the same position."""
        good = []
        for change in changes:
            of, order = self._of(change), self._order(change)
            rivals = [without(c) for c in changes if (self._of(c), self._order(c)) == (of, order)]
            known, row = self.newest.get(of, (None, None))
            if known == order and row is not None:
                rivals.append(row)
            if takes(change) or content(without(change)) == max(map(content, rivals)):
                good.append(change)
        return good

    def _of(self, change: Row) -> Any:
        return comparable([change[name] for name in self.key])

    def _order(self, change: Row) -> Any:
        return (comparable(change[self.sequence]), not takes(change))

    @property
    def rows(self) -> list[Row]:
        """The rows of the table."""
        return [row for _, row in self.newest.values() if row is not None]

    def step(self, changes: Sequence[Row]) -> list[tuple[str, Row]]:
        """Apply the changes; those with older sequences have no effect."""
        good = self._good(changes)
        for change in good:
            key, order = self._of(change), self._order(change)
            if key not in self.newest or self.newest[key][0] <= order:
                self.newest[key] = (order, None if takes(change) else without(change))
        bad = [change for change in changes if not any(change is other for other in good)]
        return [("contradiction", without(change)) for change in bad]


def takes(change: Row) -> bool:
    return change["_change_type"] in TAKES


def content(row: Row) -> Any:
    """Of rows in conflict, the greatest by this is effective."""
    return [comparable(row[name]) for name in sorted(row)]


def without(change: Row) -> Row:
    return {name: value for name, value in change.items() if name != "_change_type"}


def joined(
    left: Sequence[Row],
    right: Sequence[Row],
    on: Mapping[str, str],
    how: str,
    names: tuple[Sequence[str], Mapping[str, str]],
) -> list[Row]:
    """The join of two multisets of rows. ``names``: the left columns; the right ones, and their names."""
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
    """Joined rows, folded from the emitted changes; contradictions are errors."""

    rows: Counter[Any] = field(default_factory=Counter)

    def step(self, emitted: Sequence[Row]) -> None:
        """Apply the changes of a micro-batch, in their order."""
        for change in emitted:
            row = comparable(without(change))
            if takes(change):
                assert self.rows[row] > 0, f"deleted, but does not exist: {change}"
                self.rows[row] -= 1
            else:
                self.rows[row] += 1

    @property
    def there(self) -> Counter[Any]:
        """The rows, with their multiplicity."""
        return +self.rows


def multiset_of(rows: Sequence[Row]) -> Counter[Any]:
    return Counter(comparable(row) for row in rows)


@dataclass
class TablesOracle:
    """The output of a join of two tables in a micro-batch: the difference to the join before."""

    left: Multiset | Versions
    right: Multiset | Versions
    on: Mapping[str, str]
    how: str
    names: tuple[Sequence[str], Mapping[str, str]]
    identity: Sequence[str] | None = None
    remembers: bool = False

    def fresh(self) -> TablesOracle:
        """An oracle with the same parameters and no rows."""
        left, right = self.left.fresh(), self.right.fresh()
        return replace(self, left=left, right=right)

    def rows(self) -> list[Row]:
        """The join of both tables."""
        return joined(self.left.rows, self.right.rows, self.on, self.how, self.names)

    def step(
        self, left: Sequence[Row], right: Sequence[Row], watermark: int | None = None
    ) -> Expected:
        """The expected results of a micro-batch."""
        before, expected = self.rows(), Expected()
        rejected = late = 0
        sides = [("left", self.left, left, self.on), ("right", self.right, right, self.on.values())]
        for name, table, changes, on in sides:
            outer = self.how in (name, "full")
            # Rows that can never be in the result are ignored.
            joinable = [c for c in changes if outer or all(c[column] is not None for column in on)]
            late += table.late(joinable)
            rejected += len(table.step(joinable))
        self._emit(before, self.rows(), expected)
        rows = len(left) + len(right)
        expected.counts |= {"rows": rows, "rejected": rejected, "too_late": late}
        expected.counts["on_time"] = rows - rejected - late
        return expected

    def _emit(self, before: Sequence[Row], after: Sequence[Row], expected: Expected) -> None:
        goes, comes = without_common(before, after), without_common(after, before)
        if self.identity is not None:
            for row in goes:
                partners = [new for new in comes if self._of(new) == self._of(row)]
                assert len(partners) <= 1, "the history has a key twice"
                if partners:
                    expected.emitted.append({**row, "_change_type": "update_preimage"})
                    expected.emitted.append({**partners[0], "_change_type": "update_postimage"})
                    expected.counts["corrections"] += 1
            updated = {self._of(row) for row in goes} & {self._of(row) for row in comes}
            goes = [row for row in goes if self._of(row) not in updated]
            comes = [row for row in comes if self._of(row) not in updated]
        changes: dict[str, list[Row]] = {"delete": goes, "insert": comes}
        expected.emitted += [{**r, "_change_type": k} for k, rows in changes.items() for r in rows]
        expected.counts["results"] += len(comes)

    def _of(self, row: Row) -> Any:
        return comparable([row[name] for name in self.identity or ()])

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []

    def bound(self) -> int:
        """One row of state per distinct row, and per remembered row."""
        tables = (self.left, self.right)
        if self.remembers:
            return sum(len(table.newest) for table in tables if isinstance(table, Versions))
        return sum(len(multiset_of(table.rows)) for table in tables)


def without_common(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """The rows that are not among the others, each as often as it is not."""
    left = multiset_of(others)
    found = []
    for row in rows:
        if left[comparable(row)]:
            left[comparable(row)] -= 1
        else:
            found.append(row)
    return found
