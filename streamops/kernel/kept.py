"""What is remembered of the keys of a micro-batch, and the changes that meet it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import codes, key_codes, one, take
from streamops.kernel.contract import State
from streamops.kernel.errors import CapacityError
from streamops.kernel.filled import NONE, Entries
from streamops.kernel.groups import Groups, Ids, Ints, Mask, in_order, pair
from streamops.kernel.hashing import xxhash64
from streamops.kernel.judged import Judged
from streamops.kernel.keyed import KeyedTable
from streamops.kernel.ordering import ranks

__all__ = ["Meeting", "beyond", "contents", "key_columns", "repeated"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """Remembered rows and changes of the same keys.

    In what concerns both, the remembered rows stand first. Keys are numbered: those of remembered
    rows as these stand, then the others.

    Parameters
    ----------
    spec : KeyedTable
    kept, rest : Table
        Remembered rows of the keys that have changes, and of the others.
    judged : Judged
    key, place : array of int64
        Of remembered rows and changes.
    lacks : array of bool
        Remembered rows and changes by values: which were not sent, or came of another change.
    cells : Table
        Values that came of another change: ``owner`` (a remembered row), ``value``, ``place``,
        ``is_log``.
    at : array of int64
        Place of each cell.
    """

    spec: KeyedTable
    kept: pa.Table
    rest: pa.Table
    judged: Judged
    key: Ids
    place: Ids
    lacks: Mask
    cells: pa.Table
    at: Ids

    @staticmethod
    def of(spec: KeyedTable, state: State, judged: Judged) -> tuple[Meeting, Mask]:
        """Bring them together; also: which changes are of keys of which something was forgotten."""
        rows, forgotten = state.tables["rows"], state.tables["forgotten"]
        names = key_columns(spec)
        keys = [
            pa.concat_arrays([one(rows.column(column)), judged.column(name)])
            for column, name in zip(names, spec.by, strict=True)
        ]
        groups, _ = Groups.of(key_codes(keys, len(rows) + len(judged.changes)))
        came = groups.ids[len(rows) :]
        present = np.unique(came)  # remembered keys, each there once, have the lowest numbers
        touched = present[present < len(rows)]
        number = np.full(groups.count, NONE)
        number[present] = np.arange(len(present))
        untouched = np.ones(len(rows), np.bool_)
        untouched[touched] = False
        kept = take(rows, touched)
        key = np.concatenate([np.arange(len(touched)), number[came]])

        cells, lacks = _cells(spec, kept)
        places = [one(kept.column("place")), judged.sequence, one(cells.column("place"))]
        pool = pa.concat_arrays([*places, one(forgotten.column("place"))])
        order = ranks(pool)
        is_log = [np.asarray(one(kept.column("is_log"))), judged.is_log]
        logs = np.concatenate([*is_log, np.asarray(one(cells.column("is_log")))]).astype(np.int64)
        own = order[: len(logs)]
        place = in_order(logs, own) if spec.snapshots == "below_log" else in_order(own, logs)
        size = len(key)
        meeting = Meeting(
            spec,
            kept,
            rows.filter(pa.array(untouched)),
            judged,
            key,
            place[:size],
            np.concatenate([lacks, judged.lacks]),
            cells,
            place[size:],
        )
        highest = order[len(logs) :].max(initial=np.iinfo(np.int64).min)
        unknown = key[len(kept) :] >= len(kept)
        return meeting, unknown & (own[len(kept) : size] <= highest) & bool(len(forgotten))

    def without(self, dropped: Mask, reason: str | None = None) -> Meeting:
        """Without these changes, which are rejected if there is a reason."""
        stays = np.append(np.ones(len(self.kept), np.bool_), ~dropped)
        return Meeting(
            self.spec,
            self.kept,
            self.rest,
            self.judged.without(dropped, reason),
            self.key[stays],
            self.place[stays],
            self.lacks[stays],
            self.cells,
            self.at,
        )

    def repeated(self) -> tuple[Mask, Mask]:
        """Changes that came before as they are; and those at one place that are not the same.

        What is remembered stands, and was published. Of changes that came together none is chosen.
        """
        content = contents(self.values, self.lacks, self.is_delete)
        again, conflict = repeated(pair(self.key, self.place), content, len(self.kept))
        return again[len(self.kept) :], conflict[len(self.kept) :]

    def beyond(self) -> Mask:
        """Changes of keys for which there is no room."""
        size = len(self.kept)
        new = np.unique(self.key[self.key >= size])
        out = beyond(self.spec, self.keys_of(new), size + len(self.rest))
        return np.isin(self.key[size:], new[out])

    def keys_of(self, numbers: Ids) -> list[pa.Array]:
        """Key columns of the keys of these numbers."""
        firsts = np.zeros(int(self.key.max(initial=NONE)) + 1, np.int64)
        firsts[self.key[::-1]] = np.arange(len(self.key) - 1, -1, -1)
        index = pa.array(firsts[numbers])
        pairs = zip(key_columns(self.spec), self.spec.by, strict=True)
        return [self._below(column, self.judged.column(name)).take(index) for column, name in pairs]

    @property
    def values(self) -> list[pa.Array]:
        """Values of remembered rows and changes."""
        return [
            self._below(f"value.{i}", self.judged.column(name))
            for i, name in enumerate(self.spec.values)
        ]

    @property
    def is_delete(self) -> Mask:
        """Which remembered rows and changes leave no row."""
        return np.append(np.asarray(one(self.kept.column("is_deleted"))), self.judged.is_delete)

    @property
    def entries(self) -> Entries:
        """Remembered rows, changes and cells, in order."""
        owner = np.asarray(one(self.cells.column("owner")))
        none = np.full(len(self.key), NONE)
        return Entries.of(
            np.append(self.key, owner),
            np.append(self.place, self.at),
            np.append(np.arange(len(self.key)), owner),
            np.append(self.is_delete, np.zeros(len(owner), np.bool_)),
            np.append(none, np.asarray(one(self.cells.column("value")))).astype(np.int64),
        )

    @property
    def places(self) -> pa.Array:
        """Places of remembered rows, changes and cells, as the origins of entries name them."""
        both = self._below("place", self.judged.sequence)
        return pa.concat_arrays([both, one(self.cells.column("place"))])

    @property
    def logs(self) -> pa.Array:
        """The same: whether each comes of the log."""
        both = self._below("is_log", pa.array(self.judged.is_log))
        return pa.concat_arrays([both, one(self.cells.column("is_log"))])

    @property
    def ages(self) -> Ints:
        """Of remembered rows and changes: by which deletes grow old."""
        return np.append(np.asarray(one(self.kept.column("age"))), self.judged.age)

    def _below(self, kept: str, came: pa.Array) -> pa.Array:
        return pa.concat_arrays([one(self.kept.column(kept)), came])


def contents(values: Sequence[pa.Array], lacks: Mask, is_delete: Mask) -> Ids:
    """A code for what each change says: that of two deletes is the same."""
    content = is_delete.astype(np.int64)
    for number, each in enumerate(values):
        code = codes(each)
        lowest = code.min(initial=0)
        code = np.where(lacks[:, number], lowest - 1, code)
        content = pair(content, np.where(is_delete, lowest - 2, code))
    return content


def repeated(place: Ids, content: Ids, kept: int) -> tuple[Mask, Mask]:
    """Changes that came before as they are; and those at one place that are not the same.

    What is remembered, the first so many, stands. Of changes that came together none is chosen.
    """
    groups, firsts = Groups.of(place)
    first = firsts[groups.ids]
    same = content == content[first]
    agreed = (groups.least(same.astype(np.int64)) == 1)[groups.ids]
    is_kept, is_first = first < kept, first == np.arange(len(first))
    return ~is_first & same & (is_kept | agreed), np.where(is_kept, ~same, ~agreed)


def beyond(spec: KeyedTable, keys: Sequence[pa.Array], known: int) -> Mask:
    """Which of these keys there is no room for, where so many are known already."""
    room = max(spec.limit - known, 0)
    count = len(keys[0])
    out = np.zeros(count, np.bool_)
    if count <= room:
        return out
    if spec.when_full == "fail":
        raise CapacityError(
            "KEYS_FULL",
            "there are more keys than may be kept",
            where=spec.where,
            got=f"{known + count:,} keys in one shard",
            expected=f"at most {spec.limit:,} there: max_keys, divided by shards",
            fix="raise max_keys, which a checkpoint survives; or have changes of further keys "
            "rejected: when_full='reject'",
        )
    # By their hash, so that it is not the order of arrival that says which.
    out[np.argsort(xxhash64(keys), kind="stable")[room:]] = True
    return out


def key_columns(spec: KeyedTable) -> list[str]:
    """Names of the key columns in a state."""
    return [f"key.{i}" for i in range(len(spec.by))]


def _cells(spec: KeyedTable, kept: pa.Table) -> tuple[pa.Table, Mask]:
    """The cells of remembered rows of which the place is known; and all values that have one."""
    lists = one(kept.column("cells"))
    sizes = np.asarray(lists.value_lengths()).astype(np.int64)
    owner = np.repeat(np.arange(len(kept)), sizes)
    value, place, is_log = lists.flatten().flatten()
    lacks = np.zeros((len(kept), len(spec.values)), np.bool_)
    lacks[owner, np.asarray(value).astype(np.int64)] = True
    names = ["owner", "value", "place", "is_log"]
    cells = pa.table([pa.array(owner), value, place, is_log], names=names)
    return cells.filter(place.is_valid()), lacks
