"""A change stream folded to the table it stands for, with its contract checked row by row.

Written to be read, one row at a time in plain Python: for tests and small results. It is the
referee of the operators that publish corrections, so it shares no code with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from streamops.kernel.errors import ChangeStreamError, ColumnNotFound, SpecError
from streamops.kernel.parameters import require_choice
from streamops.testing.results import Published, results_in
from streamops.testing.values import comparable, same

__all__ = ["fold"]

Row = dict[str, Any]
Kind = Literal["keyed", "multiset"]


def fold(
    published: Published,
    *,
    key: str | Sequence[str] | None = None,
    rows: Kind = "keyed",
) -> list[Row]:
    """The table that a stream of results stands for once everything was published.

    With a column ``_change_type``: ``insert`` and ``update_postimage`` set a row, ``delete``
    removes it, ``update_preimage`` takes back exactly the row published before. With a column
    ``revision`` alone: a row replaces the one of the same key. With neither: each key is
    published once.

    Parameters
    ----------
    published : iterable of mapping or BatchResult, or Table
        Rows in the order of their publication. Late and rejected rows, which say why in ``late`` or
        ``rejected``, are left out.
    key : str or sequence of str, optional
        Columns that identify a row. For windows, the columns up to ``window_end``; to be given for
        sliding windows: the keys and the event time.
    rows : "keyed" or "multiset"
        A multiset where nothing identifies a row, as in many joins: equal rows may stand beside one
        another, and ``delete`` and ``update_preimage`` take back exactly one equal row. It has no
        key.

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
        ``KEY_REQUIRED``: nothing tells which columns identify a row. ``KEY_OF_A_MULTISET``,
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
    >>> fold([{"n": 1, "_change_type": word} for word in ("insert", "insert", "delete")], rows="multiset")
    [{'n': 1}]
    """
    require_choice(rows, Kind, parameter="rows", where="streamops.testing.fold")
    names = (key,) if isinstance(key, str) else None if key is None else tuple(key)
    if rows == "multiset" and names is not None:
        raise SpecError(
            "KEY_OF_A_MULTISET",
            "a multiset has no key",
            where="streamops.testing.fold",
            got=f"key={key!r} and rows='multiset'",
            expected="one of the two",
            fix="leave key out, or rows",
        )
    folded: _Multiset | _Folded = _Multiset() if rows == "multiset" else _Folded(names)
    for row in results_in(published):
        folded.apply(row)
    folded.end()
    return folded.rows()


class _Multiset:
    """The table so far, of rows that nothing identifies."""

    def __init__(self) -> None:
        self.table: dict[Any, list[tuple[int, Row]]] = {}  # equal rows, with their places
        self.taken: list[Row] = []  # preimages that wait for a postimage
        self.applied = 0

    def apply(self, row: Row) -> None:
        """Take in the next row."""
        change = row.pop("_change_type", "insert")
        if change in ("delete", "update_preimage"):
            self._take_back(row, change)
            return
        if change == "update_postimage":
            if not self.taken:
                _refuse_alone(row)
            self.taken.pop()  # any of them: nothing says whose it is
        elif change != "insert":
            _refuse_unknown(change, row)
        self.table.setdefault(comparable(row), []).append((self.applied, row))
        self.applied += 1

    def _take_back(self, row: Row, change: str) -> None:
        equal = self.table.get(comparable(row))
        if not equal and change == "delete":
            _refuse_deleted(row)
        if not equal:
            _refuse_preimage(row, "nothing: no such row stands")
        equal.pop()
        if change == "update_preimage":
            self.taken.append(row)

    def end(self) -> None:
        """Nothing more comes."""
        for row in self.taken:
            _refuse_forgotten(row)

    def rows(self) -> list[Row]:
        """The table, in order of publication."""
        placed = [each for equal in self.table.values() for each in equal]
        return [row for _, row in sorted(placed, key=lambda each: each[0])]


class _Folded:
    """The table so far."""

    def __init__(self, key: tuple[str, ...] | None) -> None:
        self.key = key
        self.table: dict[Any, Row] = {}
        self.taken: dict[Any, Row] = {}  # preimages that wait for their postimage
        self.revisions: dict[Any, int] = {}  # newest of each key, also of deleted ones
        self.deleted: set[Any] = set()  # keys that were not published again since

    def apply(self, row: Row) -> None:
        """Take in the next row."""
        key = tuple(comparable(row[name]) for name in self._key_of(row))
        if "_change_type" not in row:
            self._insert(key, row, replaces="revision" in row)
            return
        change = row.pop("_change_type")
        if change == "insert":
            self._insert(key, row, replaces=False)
        elif change == "update_preimage":
            self._take_back(key, row)
        elif change == "update_postimage":
            self._correct(key, row)
        elif change == "delete":
            if self.table.pop(key, None) is None:
                _refuse_deleted(row)
            self.deleted.add(key)
        else:
            _refuse_unknown(change, row)

    def end(self) -> None:
        """Nothing more comes."""
        for row in self.taken.values():
            _refuse_forgotten(row)

    def rows(self) -> list[Row]:
        """The table, in order of first publication."""
        return list(self.table.values())

    def _key_of(self, row: Row) -> tuple[str, ...]:
        if self.key is None:
            names = list(row)
            if "window_end" not in names:
                raise SpecError(
                    "KEY_REQUIRED",
                    "nothing tells which columns identify a row",
                    where="streamops.testing.fold",
                    got=f"columns {', '.join(names)}",
                    expected="key=..., or columns up to 'window_end'",
                    fix='name the key: fold(rows, key=["user_id"])',
                )
            self.key = tuple(names[: names.index("window_end") + 1])
        for name in self.key:
            if name not in row:
                raise ColumnNotFound(name, row, where="streamops.testing.fold", role="key")
        return self.key

    def _insert(self, key: Any, row: Row, *, replaces: bool) -> None:
        before = self.taken.get(key, self.table.get(key))
        if before is not None and not replaces:
            _refuse("INSERTED_TWICE", "a row was inserted that is already there", row, "an update")
        if before is not None:
            self._refuse_unchanged(before, row)
        self._step(key, row)
        self.table[key] = row

    def _take_back(self, key: Any, row: Row) -> None:
        before = self.table.pop(key, None)
        if before is None or not same(before, row):
            _refuse_preimage(row, before or "nothing: no row of this key stands")
        self.taken[key] = row

    def _correct(self, key: Any, row: Row) -> None:
        before = self.taken.pop(key, None)
        if before is None:
            _refuse_alone(row)
        self._refuse_unchanged(before, row)
        self._step(key, row)
        self.table[key] = row

    def _refuse_unchanged(self, before: Row, row: Row) -> None:
        values, old = ({k: v for k, v in r.items() if k != "revision"} for r in (row, before))
        if same(values, old):
            _refuse("UNCHANGED", "a row was published again without a change", row, "another value")

    def _step(self, key: Any, row: Row) -> None:
        if "revision" not in row:
            return
        before = self.revisions.get(key)
        # What comes back after a delete goes on from the rows that replaced it meanwhile.
        again = key in self.deleted
        self.deleted.discard(key)
        if before is not None and not (
            row["revision"] == before + 1 or (again and row["revision"] > before)
        ):
            _refuse(
                "REVISION_OUT_OF_STEP",
                "a revision does not follow the one before",
                row,
                f"revision {before + 1}",
            )
        self.revisions[key] = row["revision"]


def _refuse_deleted(row: Row) -> NoReturn:
    _refuse("DELETED_UNPUBLISHED", "a delete of a row that is not there", row, "a row")


def _refuse_preimage(row: Row, stands: Any) -> NoReturn:
    what = "a preimage is not the row that was published"
    _refuse("PREIMAGE_NOT_PUBLISHED", what, row, stands)


def _refuse_alone(row: Row) -> NoReturn:
    _refuse("POSTIMAGE_ALONE", "a postimage without its preimage", row, "a preimage before")


def _refuse_forgotten(row: Row) -> NoReturn:
    _refuse("PREIMAGE_ALONE", "a row was taken back and never replaced", row, "its postimage")


def _refuse_unknown(change: Any, row: Row) -> NoReturn:
    words = "insert, update_preimage, update_postimage or delete"
    _refuse("UNKNOWN_CHANGE", f"no change type is called {change!r}", row, words)


def _refuse(code: str, what: str, row: Row, expected: Any) -> NoReturn:
    raise ChangeStreamError(
        code,
        what,
        where="streamops.testing.fold",
        got=row,
        expected=expected,
        fix="fold the rows of all micro-batches, in their order, each once; "
        "if they are, the operator that published them is wrong",
    )
