"""Fold a change stream to a table, and check every change.

In plain Python, one row at a time, for tests and small results. It shares no code with the operators
that emit corrections, because their tests depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from streamops.kernel.columns import column_not_found
from streamops.kernel.values import comparable, same
from streamops.testing import conditions
from streamops.testing.results import Published, results_in

Row = dict[str, Any]
Semantics = Literal["keyed", "multiset"]

_WHERE = "streamops.testing.fold"


def fold(
    published: Published,
    *,
    key: str | Sequence[str] | None = None,
    rows: Semantics = "keyed",
) -> list[Row]:
    """Compute the table that a stream of results amounts to.

    With a column ``_change_type``: ``insert`` and ``update_postimage`` set a row, ``delete``
    removes it, ``update_preimage`` retracts exactly the row published before. With a column
    ``revision`` only: a row replaces the one of the same key. With neither: each key is
    published once.

    Parameters
    ----------
    published : iterable of mapping or BatchResult, or Table
        Rows in the order of their publication. Late and rejected rows, which have a reason in ``late``
        or ``rejected``, are left out.
    key : str or sequence of str, optional
        Columns that identify a row. By default the columns up to ``window_end``. Required for sliding
        windows: the keys and the event time.
    rows : "keyed" or "multiset"
        A multiset for rows without a key, as in many joins: it may contain equal rows, and ``delete``
        and ``update_preimage`` retract exactly one equal row.

    Returns
    -------
    list of dict
        The rows, without ``_change_type``, ``late`` and ``rejected``, in order of first publication.

    Raises
    ------
    ChangeStreamError
        ``INSERTED_TWICE``, ``PREIMAGE_NOT_PUBLISHED``, ``PREIMAGE_ALONE``,
        ``POSTIMAGE_ALONE``, ``DELETED_UNPUBLISHED``, ``UNCHANGED``, ``REVISION_OUT_OF_STEP``
        or ``UNKNOWN_CHANGE``: the stream contradicts itself.
    SpecError
        ``PARAMETER_MISSING``: the columns that identify a row are unknown. ``PARAMETER_WITHOUT_EFFECT``,
        ``UNKNOWN_CHOICE``.
    ColumnNotFound
        A row lacks a column of the key.

    Examples
    --------
    >>> fold(
    ...     [
    ...         {"k": "a", "n": 1, "revision": 0, "_change_type": "insert"},
    ...         {"k": "a", "n": 1, "revision": 0, "_change_type": "update_preimage"},
    ...         {"k": "a", "n": 2, "revision": 1, "_change_type": "update_postimage"},
    ...     ],
    ...     key="k",
    ... )
    [{'k': 'a', 'n': 2, 'revision': 1}]
    >>> fold([{"n": 1, "_change_type": type_} for type_ in ("insert", "insert", "delete")], rows="multiset")
    [{'n': 1}]
    """
    names = (key,) if isinstance(key, str) else None if key is None else tuple(key)
    if rows == "multiset" and names is not None:
        raise conditions.KEY_OF_A_MULTISET.error(got=f"key={key!r} and rows='multiset'")
    folded: _Multiset | _Keyed = _Multiset() if rows == "multiset" else _Keyed(names)
    for row in results_in(published):
        folded.apply(row)
    for row in folded.retracted():
        raise conditions.PREIMAGE_ALONE.error(got=row)
    return folded.rows()


class _Multiset:
    """The table so far, of rows without a key."""

    def __init__(self) -> None:
        self.table: dict[Any, list[tuple[int, Row]]] = {}  # equal rows, with their order
        self.preimages: list[Row] = []  # without a postimage yet
        self.applied = 0

    def apply(self, row: Row) -> None:
        change = row.pop("_change_type", "insert")
        if change in ("delete", "update_preimage"):
            self._retract(row, change)
            return
        if change == "update_postimage":
            if not self.preimages:
                raise conditions.POSTIMAGE_ALONE.error(got=row)
            self.preimages.pop()  # any of them: without a key, they cannot be matched
        elif change != "insert":
            raise conditions.UNKNOWN_CHANGE.error(change=change, got=row)
        self.table.setdefault(comparable(row), []).append((self.applied, row))
        self.applied += 1

    def _retract(self, row: Row, change: str) -> None:
        equal = self.table.get(comparable(row))
        if not equal and change == "delete":
            raise conditions.DELETED_UNPUBLISHED.error(got=row)
        if not equal:
            published = "nothing: there is no such row"
            raise conditions.PREIMAGE_NOT_PUBLISHED.error(published=published, got=row)
        equal.pop()
        if change == "update_preimage":
            self.preimages.append(row)

    def retracted(self) -> list[Row]:
        """Preimages without a postimage."""
        return self.preimages

    def rows(self) -> list[Row]:
        """The table, in order of publication."""
        ordered = [item for equal in self.table.values() for item in equal]
        return [row for _, row in sorted(ordered, key=lambda item: item[0])]


class _Keyed:
    """The table so far, of rows with a key."""

    def __init__(self, key: tuple[str, ...] | None) -> None:
        self.key = key
        self.table: dict[Any, Row] = {}
        self.preimages: dict[Any, Row] = {}  # without a postimage yet
        self.revisions: dict[Any, int] = {}  # the latest per key, also of deleted keys
        self.deleted: set[Any] = set()  # keys that were not published again

    def apply(self, row: Row) -> None:
        key = tuple(comparable(row[name]) for name in self._key_of(row))
        if "_change_type" not in row:
            self._insert(key, row, replaces="revision" in row)
            return
        change = row.pop("_change_type")
        if change == "insert":
            self._insert(key, row, replaces=False)
        elif change == "update_preimage":
            before = self.table.pop(key, None)
            if before is None or not same(before, row):
                published = before or "nothing: there is no row with this key"
                raise conditions.PREIMAGE_NOT_PUBLISHED.error(published=published, got=row)
            self.preimages[key] = row
        elif change == "update_postimage":
            before = self.preimages.pop(key, None)
            if before is None:
                raise conditions.POSTIMAGE_ALONE.error(got=row)
            self._set(key, row, before)
        elif change == "delete":
            if self.table.pop(key, None) is None:
                raise conditions.DELETED_UNPUBLISHED.error(got=row)
            self.deleted.add(key)
        else:
            raise conditions.UNKNOWN_CHANGE.error(change=change, got=row)

    def retracted(self) -> list[Row]:
        """Preimages without a postimage."""
        return list(self.preimages.values())

    def rows(self) -> list[Row]:
        """The table, in order of first publication."""
        return list(self.table.values())

    def _key_of(self, row: Row) -> tuple[str, ...]:
        if self.key is None:
            names = list(row)
            if "window_end" not in names:
                raise conditions.KEY_REQUIRED.error(got=f"columns {', '.join(names)}")
            self.key = tuple(names[: names.index("window_end") + 1])
        for name in self.key:
            if name not in row:
                raise column_not_found(name, row, role="key")
        return self.key

    def _insert(self, key: Any, row: Row, *, replaces: bool) -> None:
        before = self.preimages.get(key, self.table.get(key))
        if before is not None and not replaces:
            raise conditions.INSERTED_TWICE.error(got=row)
        self._set(key, row, before)

    def _set(self, key: Any, row: Row, before: Row | None) -> None:
        if before is not None:
            new, old = ({k: v for k, v in r.items() if k != "revision"} for r in (row, before))
            if same(new, old):
                raise conditions.UNCHANGED.error(got=row)
        if "revision" in row:
            self._check_revision(key, row)
        self.table[key] = row

    def _check_revision(self, key: Any, row: Row) -> None:
        last, revision = self.revisions.get(key), row["revision"]
        # A row published again after a delete continues the revisions of the rows that replaced it.
        was_deleted = key in self.deleted
        self.deleted.discard(key)
        if last is not None and revision != last + 1 and not (was_deleted and revision > last):
            raise conditions.REVISION_OUT_OF_STEP.error(revision=last + 1, got=row)
        self.revisions[key] = revision
