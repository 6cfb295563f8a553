"""What is remembered of the keys of a micro-batch, and the changes that meet it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.changelog.carry_forward import NONE, OrderedChanges
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.conflicts import Conflicts
from streamops.changelog.table import KeyedTable
from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.contract import State
from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Groups, Ids, Ints, Mask, ordered_pair_codes, pair_codes
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks

__all__ = ["KeyedBatch", "key_columns", "max_evicted", "over_limit", "to_flags", "to_positions"]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Remembered rows and changes of the same keys.

    In what concerns all, the remembered rows stand first, then the changes, then the givers: changes
    that values of remembered rows came of. Keys are numbered: those of remembered rows as these
    stand, then the others.

    Parameters
    ----------
    spec : KeyedTable
    kept, rest : Table
        Remembered rows of the keys that have changes, and of the others.
    judged : Judged
    givers : Table
        ``place``, ``is_log``, ``is_deleted`` and values of each.
    key, place : array of int64
        Of all. At one place of the log, different contents have different places here.
    lacks : array of bool
        All by values: which were not sent.
    loses : array of bool
        Which of all contradict another at their place, and do not count.
    """

    spec: KeyedTable
    kept: pa.Table
    rest: pa.Table
    judged: ClassifiedChanges
    givers: pa.Table
    key: Ids
    place: Ids
    lacks: Mask
    loses: Mask

    @staticmethod
    def of(
        spec: KeyedTable, state: State, judged: ClassifiedChanges
    ) -> tuple[KeyedBatch, Mask, Mask]:
        """Bring them together.

        Returns
        -------
        meeting : Meeting
        again : array of bool
            Changes that came before as they are.
        unknowable : array of bool
            Changes of keys that nothing is known of, which may belong below a delete that was forgotten.
        """
        rows, forgotten = state.tables["rows"], state.tables["forgotten"]
        names, count = key_columns(spec), len(judged.changes)
        keys = [
            pa.concat_arrays([combine_chunks(rows.column(column)), judged.column(name)])
            for column, name in zip(names, spec.by, strict=True)
        ]
        groups, _ = Groups.of(key_codes(keys, len(rows) + count))
        came = groups.ids[len(rows) :]
        present = np.unique(came)  # remembered keys, each there once, have the lowest numbers
        touched = present[present < len(rows)]
        number = np.full(groups.count, NONE)
        number[present] = np.arange(len(present))
        untouched = np.ones(len(rows), np.bool_)
        untouched[touched] = False
        kept = take(rows, touched)
        givers, owner, unsent = _givers(spec, kept)
        lacks = [
            to_flags(combine_chunks(kept.column("lacks")), len(spec.values)),
            judged.lacks,
            unsent,
        ]
        nothing = np.zeros(len(kept) + count + len(owner), np.bool_)
        key = np.concatenate([np.arange(len(touched)), number[came], owner])
        rest = rows.filter(pa.array(untouched))
        bare = KeyedBatch(
            spec, kept, rest, judged, givers, key, key, np.concatenate(lacks), nothing
        )

        order = ranks(pa.concat_arrays([bare.places, combine_chunks(forgotten.column("place"))]))
        own = order[: len(key)]
        logs = np.asarray(bare.logs).astype(np.int64)
        place = (
            ordered_pair_codes(logs, own)
            if spec.snapshots == "below_log"
            else ordered_pair_codes(own, logs)
        )
        contested = Conflicts.of(pair_codes(key, place), bare.values, bare.lacks, bare.is_delete)
        size = len(kept) + count
        among = contested.first(size)
        nothing[:size] = among.loses()
        meeting = replace(bare, place=ordered_pair_codes(place, contested.order), loses=nothing)
        unknowable = np.zeros(count, np.bool_)
        if len(forgotten):
            is_new = key[len(kept) : size] >= len(kept)
            is_below = own[len(kept) : size] <= order[len(key)]
            # What came at one place is judged as one, so that it can be compared.
            ages = among.newest(bare.ages)[len(kept) :]
            unknowable = is_new & is_below & spec.is_beyond(ages, judged.is_log, state)
        return meeting, among.again()[len(kept) :], unknowable

    def without(self, dropped: Mask, reason: str | None = None) -> KeyedBatch:
        """Without these changes, which are rejected if there is a reason and was none before."""
        every = np.ones(len(self.key), np.bool_)
        every[len(self.kept) : len(self.kept) + len(dropped)] = ~dropped
        return replace(
            self,
            judged=self.judged.without(dropped, reason),
            key=self.key[every],
            place=self.place[every],
            lacks=self.lacks[every],
            loses=self.loses[every],
        )

    def beyond(self) -> Mask:
        """Changes of keys for which there is no room."""
        size = len(self.kept)
        new = np.unique(self.key[self.key >= size])
        out = over_limit(self.spec, self.keys_of(new), size + len(self.rest))
        came = self.key[size : size + len(self.judged.changes)]
        return np.isin(came, new[out])

    def keys_of(self, numbers: Ids) -> list[pa.Array]:
        """Key columns of the keys of these numbers."""
        firsts = np.zeros(int(self.key.max(initial=NONE)) + 1, np.int64)
        firsts[self.key[::-1]] = np.arange(len(self.key) - 1, -1, -1)
        index = pa.array(firsts[numbers])
        pairs = zip(key_columns(self.spec), self.spec.by, strict=True)
        return [self._below(column, self.judged.column(name)).take(index) for column, name in pairs]

    @property
    def entries(self) -> OrderedChanges:
        """All, in order."""
        return OrderedChanges.of(self.key, self.place, self.is_delete)

    def is_own(self, entries: OrderedChanges) -> Mask:
        """Which entries are no givers."""
        result: Mask = entries.row < len(self.kept) + len(self.judged.changes)
        return result

    @property
    def values(self) -> list[pa.Array]:
        """Values of all."""
        return [
            self._all(f"value.{i}", self.judged.column(name))
            for i, name in enumerate(self.spec.values)
        ]

    @property
    def is_delete(self) -> Mask:
        """Which of all leave no row."""
        return np.asarray(self._all("is_deleted", pa.array(self.judged.is_delete)))

    @property
    def places(self) -> pa.Array:
        """Places of all."""
        return self._all("place", self.judged.sequence)

    @property
    def logs(self) -> pa.Array:
        """Which of all come of the log."""
        return self._all("is_log", pa.array(self.judged.is_log))

    @property
    def ages(self) -> Ints:
        """Of remembered rows and changes: by which deletes grow old."""
        return np.append(np.asarray(combine_chunks(self.kept.column("age"))), self.judged.age)

    def _below(self, kept: str, came: pa.Array) -> pa.Array:
        return pa.concat_arrays([combine_chunks(self.kept.column(kept)), came])

    def _all(self, name: str, came: pa.Array) -> pa.Array:
        return pa.concat_arrays(
            [combine_chunks(self.kept.column(name)), came, combine_chunks(self.givers.column(name))]
        )


def to_flags(lists: pa.Array, values: int) -> Mask:
    """Lists of numbers of values as flags."""
    found = np.zeros((len(lists), values), np.bool_)
    numbers = np.asarray(lists.flatten()).astype(np.int64)
    found[np.repeat(np.arange(len(lists)), list_sizes(lists)), numbers] = True
    return found


def to_positions(flags: Mask) -> pa.Array:
    """The reverse of ``to_flags``."""
    _, found = np.nonzero(flags)
    return make_lists(pa.array(found.astype(np.int32)), flags.sum(axis=1, dtype=np.int64))


def over_limit(spec: KeyedTable, keys: Sequence[pa.Array], known: int) -> Mask:
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


def max_evicted(forgotten: pa.Table) -> pa.Table:
    """Of deletes that are forgotten the highest place, and the greatest of what else is known of them."""
    columns = [combine_chunks(column) for column in forgotten.columns]
    columns = [column.take(pa.array([int(ranks(column).argmax())])) for column in columns]
    return pa.table(columns, schema=forgotten.schema)


def key_columns(spec: KeyedTable) -> list[str]:
    """Names of the key columns in a state."""
    return [f"key.{i}" for i in range(len(spec.by))]


def _givers(spec: KeyedTable, kept: pa.Table) -> tuple[pa.Table, Ids, Mask]:
    """The givers of remembered rows, of which row each is, and which values they were not sent."""
    lists = combine_chunks(kept.column("givers"))
    owner = np.repeat(np.arange(len(kept)), list_sizes(lists))
    givers = pa.Table.from_struct_array(lists.flatten())
    return givers, owner, to_flags(combine_chunks(givers.column("lacks")), len(spec.values))
