"""Tasks replace the data files of a table whose rows a micro-batch changes, and the driver commits the names.

========  ======  ============================================================================
step      where   what happens
========  ======  ============================================================================
stage     tasks   each nets its keys, writes added rows as files of the table, and stages what
                  must be looked up: keys, sequences, and rows that are taken back
send      tasks   each sends the staged keys of a task, or the keys of a file of the table that
                  can have one by its statistics, to those who compare them, by a hash
compare   tasks   each checks the change stream against the keys that the table has, and sends the
                  positions of the rows that go to those who rewrite their files
rewrite   tasks   each writes the files again that lose rows, without these rows
commit    driver  files are added and removed in one commit, together with the ledger entry
========  ======  ============================================================================

Nothing of it knows a table format: that is a `Files`. Small files of a partition are rewritten together as soon as
one of them loses a row.
"""

from __future__ import annotations

import base64
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.columns import integers, take
from streamops.kernel.groups import Ids
from streamops.kernel.hashing import digests
from streamops.sinks import conditions, leftovers
from streamops.sinks.core import matching
from streamops.sinks.core.data_files import range_of, union_of
from streamops.sinks.core.matching import ADD, PUT, REMOVE, REPLACE
from streamops.sinks.core.net import (
    Form,
    Net,
    codes_of,
    compute_net,
    content_columns,
    form_of,
    refuse_fault,
    repeat,
)
from streamops.sinks.tasks import (
    Exchange,
    Message,
    Part,
    Receipts,
    from_bytes,
    in_groups,
    in_pieces,
    to_bytes,
)

_ROWS_PER_FILE, _BYTES_PER_FILE = 1 << 20, 128 << 20
_MOST_BYTES = 256 << 20
"""The memory of the rows that a task nets at a time. If it has more, it spills them to its local disk."""

_ROWS_PER_ADDRESSEE = 1 << 19
_FEWEST_ADDRESSEES = 16
_SMALL_FILE, _BYTES_TOGETHER = 8 << 20, 32 << 20
_ROLE, _COPIES, _FILE, _POSITION = "role", "copies", "file", "position"
# Columns of the table have names with a dot before, so that they differ from these.


class Files(ABC):
    """How a table stores rows in data files. Spark pickles it.

    A file is a dict of JSON with its "path", "rows", "size" and "partition".
    """

    schema: pa.Schema
    """The columns of the table."""

    @abstractmethod
    def filesystem(self) -> pafs.FileSystem:
        """The files of the table, in a process that may have none of them open."""

    @abstractmethod
    def convert(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its types. Refuses what the table does not take."""

    @abstractmethod
    def read(self, file: Part, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of a file in its order, in pieces and in the types of the table."""

    @abstractmethod
    def partition_of(self, rows: pa.Table) -> Ids:
        """A number of the partition of each row."""

    @abstractmethod
    def write(self, rows: pa.Table) -> Part:
        """Write rows of one partition to a new file, in their order."""

    @abstractmethod
    def rewrite(self, pieces: Iterator[pa.Table], like: Part) -> list[Part]:
        """Write the `stored` columns of rows of a file, or of several in its partition, to new files."""

    @property
    def stored(self) -> list[str]:
        """The columns that are stored in files."""
        names: list[str] = self.schema.names
        return names


@dataclass(frozen=True)
class Job:
    """What tasks do with the rows of a micro-batch.

    Parameters
    ----------
    files : Files
        The table.
    staging : str
        A folder in which tasks stage what must be looked up.
    form : "append", "upsert", "changes" or "multiset"
        The form of the rows.
    key, sequence : tuple of str
        The columns that identify a row, and that order the rows of a key.
    content : tuple of str
        The columns whose values a retraction repeats.
    """

    files: Files
    staging: str
    form: Form
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    content: tuple[str, ...]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        files: Files,
        staging: str,
        *,
        key: tuple[str, ...] | None,
        sequence: Sequence[str],
    ) -> Job:
        """What tasks do with rows of these columns."""
        form = form_of(names, key)
        values = [name for name in names if name != CHANGE_TYPE]
        content = content_columns(values, sequence if form == "changes" else ())
        return cls(files, staging, form, key or (), tuple(sequence), tuple(content))

    @property
    def by(self) -> tuple[str, ...]:
        """The columns by which rows are looked up."""
        return self.content if self.form == "multiset" else self.key

    @property
    def looked_up(self) -> tuple[str, ...]:
        """The columns that are read of files of the table which may have the rows."""
        return tuple(dict.fromkeys([*self.by, *self.compared]))

    @property
    def compared(self) -> tuple[str, ...]:
        """The other columns by which it is decided about a row that is found."""
        return self.sequence if self.form == "upsert" else ()


@dataclass(frozen=True)
class Replaced:
    """The files that a commit adds to a table, and those that it removes."""

    added: list[Part]
    removed: list[Part]


def deliver(job: Job, attempt: Part, tables: Iterator[pa.Table]) -> Iterator[Part]:
    """Write the added rows of a task to files of the table, and stage what must be looked up.

    The parts of the receipt have what `attempt` has.
    """
    for part in _stage_all(job, tables):
        yield {**part, **attempt}


def _stage_all(job: Job, tables: Iterator[pa.Table]) -> Iterator[Part]:
    if job.form == "append":
        for piece in in_pieces(tables, rows=_ROWS_PER_FILE, size=_BYTES_PER_FILE):
            yield {"added": [part for _, part in _write(job.files, job.files.convert(piece))]}
        return
    key = None if job.form == "multiset" else job.key
    for rows in in_groups(tables, job.by, size=_MOST_BYTES):
        yield _stage(job, compute_net(rows, key=key, sequence=job.sequence))


def _write(files: Files, rows: pa.Table) -> Iterator[tuple[Ids, Part]]:
    """Write rows to files of their partitions."""
    if not len(rows):
        return
    codes = files.partition_of(rows)
    order = np.argsort(codes, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield at, files.write(rows if len(at) == len(rows) else take(rows, at))


def _stage(job: Job, net: Net) -> Part:
    removed, added = job.files.convert(net.removed), job.files.convert(net.added)
    rows = repeat(added, net.added_copies)
    file, position = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int64)
    written: list[Part] = []
    for start in range(0, len(rows), _ROWS_PER_FILE):
        for at, part in _write(job.files, rows.slice(start, _ROWS_PER_FILE)):
            file[start + at], position[start + at] = len(written), np.arange(len(at))
            written.append(part)
    if job.form == "upsert":
        retained = [_mark(added, job.looked_up, PUT, file=file, position=position)]
    elif job.form == "multiset":
        retained = [_mark(removed, job.by, REMOVE, copies=net.removed_copies)]
    else:
        is_equal, is_new = pa.array(net.must_match), pa.array(~net.replaces)
        names = tuple(dict.fromkeys([*job.by, *job.content]))
        taken = [removed.filter(pa.array(~net.must_match)), added.filter(is_new)]
        marked = (
            _mark(part, job.by, role) for part, role in zip(taken, (REMOVE, ADD), strict=True)
        )
        retained = [_mark(removed.filter(is_equal), names, REPLACE), *marked]
    staged = pa.concat_tables(retained, promote_options="default")
    receipt: Part = {"added": written}
    if len(staged):
        name = f"{job.staging}/{uuid.uuid4().hex}.arrow"
        leftovers.write_file(job.files.filesystem(), name, to_bytes(staged))
        ends = range_of(staged.select([_dotted(name) for name in job.by]))
        receipt["staged"] = {
            "path": name,
            "rows": len(staged),
            "removed": len(removed),
            "range": base64.b64encode(to_bytes(ends)).decode(),
        }
    return receipt


def _dotted(name: str) -> str:
    return f".{name}"


def _mark(rows: pa.Table, names: Sequence[str], role: int, **numbers: Any) -> pa.Table:
    """Rows to look up, of which some columns are staged."""
    rows = rows.select(names).rename_columns([_dotted(name) for name in names])
    zeros = np.zeros(len(rows), np.int64)
    numbers = {_COPIES: zeros, _FILE: zeros.astype(np.int32), _POSITION: zeros, **numbers}
    for name, values in {_ROLE: np.full(len(rows), role, np.int8), **numbers}.items():
        rows = rows.append_column(name, pa.array(values))
    return rows


def _by_hash(
    rows: pa.Table, names: Sequence[str], count: int, seed: int = 42
) -> Iterator[tuple[int, pa.Table]]:
    """The rows by a digest of these columns."""
    if not names or count == 1 or not len(rows):
        yield 0, rows
        return
    codes = digests([rows.column(n) for n in names], seed=seed) % count
    order = np.argsort(codes, kind="stable")
    for at in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield int(codes[at[0]]), take(rows, at)


def replace_files(
    job: Job, receipts: Receipts, find: Callable[[pa.Table], Sequence[Part]]
) -> Replaced:
    """Find the files that have rows of a micro-batch, and write them again without these rows.

    Parameters
    ----------
    job : Job
        What tasks did with the rows.
    receipts : Receipts
        What they have written.
    find : function
        Returns the files that can have rows in a range, see `range_of`.

    Raises
    ------
    ChangeStreamError
        The change stream contradicts the table.
    SinkError
        ``TARGET_KEY``: the table has several rows of one key.
    """
    added = [file for part in receipts.parts for file in part["added"]]
    staged = [part["staged"] for part in receipts.parts if "staged" in part]
    # The number of the first file that the task of a receipt has added.
    counts = [len(part["added"]) for part in receipts.parts]
    firsts = [sum(counts[:n]) for n, part in enumerate(receipts.parts) if "staged" in part]
    candidates = find(_wanted(staged)) if staged else []
    if not candidates and not any(part["removed"] for part in staged):
        return Replaced(added, [])
    files = [*candidates, *added]
    first = len(candidates)
    groups = [*_groups(candidates), *([first + number] for number in range(len(added)))]
    rows = sum(part["rows"] for part in (*staged, *candidates))
    count = max(_FEWEST_ADDRESSEES, rows // _ROWS_PER_ADDRESSEE)
    sources = [*zip((first + n for n in firsts), staged, strict=True), *enumerate(candidates)]
    exchange = Exchange(
        len(sources),
        partial(_send, job, len(staged), sources, count),
        partial(_compare, job, _group_of(groups)),
        partial(_rewrite, job, files, groups),
    )
    if receipts.exchange is None:
        raise AssertionError("receipts of tasks that cannot send rows")
    rewritten = receipts.exchange(exchange)
    removed = {number for part in rewritten for number in part["removed"]}
    retained = [file for number, file in enumerate(added, first) if number not in removed]
    again = [file for part in rewritten for file in part["files"]]
    return Replaced(
        [*retained, *again], [files[number] for number in sorted(removed) if number < first]
    )


def _wanted(staged: Sequence[Part]) -> pa.Table:
    """The range of the values that are looked up."""
    wanted = union_of([from_bytes(base64.b64decode(part["range"])) for part in staged])
    return wanted.rename_columns([name[1:] for name in wanted.column_names])


def _groups(files: Sequence[Part]) -> list[list[int]]:
    """Numbers of files that are rewritten together: the small ones of a partition."""
    groups: list[list[int]] = []
    open_groups: dict[str, tuple[list[int], int]] = {}
    for number, file in enumerate(files):
        if file["size"] >= _SMALL_FILE:
            groups.append([number])
            continue
        partition = repr(file["partition"])
        group, size = open_groups.get(partition, ([], _BYTES_TOGETHER))
        if size + file["size"] > _BYTES_TOGETHER:
            group, size = [], 0
            groups.append(group)
        group.append(number)
        open_groups[partition] = group, size + file["size"]
    return groups


def _group_of(groups: Sequence[Sequence[int]]) -> Ids:
    """The number of the group of each file."""
    result = np.zeros(sum(map(len, groups)), np.int64)
    for number, group in enumerate(groups):
        result[list(group)] = number
    return result


def _send(
    job: Job, staged: int, sources: Sequence[tuple[int, Part]], count: int, number: int
) -> Iterator[Message]:
    """Send staged rows, or the keys of a file, by a hash."""
    file, part = sources[number]
    by = [_dotted(name) for name in job.by]
    if number < staged:
        try:
            with job.files.filesystem().open_input_file(part["path"]) as stream:
                rows = from_bytes(stream)
        except FileNotFoundError as error:
            got = "another run has removed what tasks have staged"
            raise conditions.COMMIT_CONFLICTS.error(got=got) from error
        numbers = pa.array(integers(rows, _FILE) + np.int32(file))
        rows = rows.set_column(rows.column_names.index(_FILE), _FILE, numbers)
        yield from _by_hash(rows, by, count)
        return
    start = 0
    for rows in job.files.read(part, job.looked_up):
        position = np.arange(start, start + len(rows))
        start += len(rows)
        rows = rows.rename_columns([_dotted(name) for name in rows.column_names])
        rows = rows.append_column(_FILE, pa.array(np.full(len(rows), file, np.int32)))
        yield from _by_hash(rows.append_column(_POSITION, pa.array(position)), by, count)


def _compare(
    job: Job, group_of: Ids, addressee: int, tables: Iterator[pa.Table]
) -> Iterator[Message]:
    """Compare staged rows with the rows of the table that have the same hash."""
    received: tuple[list[pa.Table], list[pa.Table]] = [], []
    for rows in tables:
        received[_ROLE not in rows.column_names].append(rows)
    if not received[0]:
        return
    wanted = _concat(received[0])
    by = [_dotted(name) for name in job.by]
    columns = [wanted.schema.field(_dotted(name)) for name in job.looked_up]
    positions = [pa.field(_FILE, pa.int32()), pa.field(_POSITION, pa.int64())]
    found = _concat([pa.schema([*columns, *positions]).empty_table(), *received[1]])
    if job.form == "multiset":  # Whichever attempt is used, it takes the same copies.
        order = np.lexsort((integers(found, _POSITION), integers(found, _FILE)))
        found = take(found, order)
    pairs = matching.match(wanted, found, by)
    if job.form != "multiset":
        matching.require_unique(found, pairs, by, job.key)
    goes = found.select([_FILE, _POSITION])
    if job.form == "upsert":
        newer = matching.is_newer(wanted, found, pairs, [_dotted(n) for n in job.sequence])
        older = wanted.select([_FILE, _POSITION])
        lost = take(older, pairs.wanted[~newer])
        goes = pa.concat_tables([take(goes, pairs.found[newer]), lost])
    elif job.form == "multiset":
        pairs = matching.take_copies(_displayed(wanted), integers(wanted, _COPIES), pairs)
        goes = take(goes, pairs.found)
    else:
        matching.check_types(_displayed(wanted), integers(wanted, _ROLE), pairs)
        goes = take(goes, pairs.found)
        expected = take(wanted.drop_columns([_COPIES, _FILE, _POSITION]), pairs.wanted)
        for name in expected.column_names:
            goes = goes.append_column(name, expected.column(name))
    groups = group_of[integers(goes, _FILE)]
    for group in np.unique(groups):
        yield int(group), take(goes, np.flatnonzero(groups == group))


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def _displayed(rows: pa.Table) -> pa.Table:
    """The columns of the table, for errors."""
    names = [name for name in rows.column_names if name.startswith(".")]
    return rows.select(names).rename_columns([name[1:] for name in names])


def _rewrite(
    job: Job,
    files: Sequence[Part],
    groups: Sequence[Sequence[int]],
    addressee: int,
    tables: Iterator[pa.Table],
) -> Iterator[Part]:
    """Write the files of a group again without the rows that go."""
    goes = _concat(list(tables))
    numbers = integers(goes, _FILE)

    def remaining() -> Iterator[pa.Table]:
        for number in groups[addressee]:
            rows = take(goes, np.flatnonzero(numbers == number))
            yield from _without(job, files[number], rows)

    group = list(groups[addressee])
    yield {"removed": group, "files": job.files.rewrite(remaining(), files[group[0]])}


def _without(job: Job, file: Part, goes: pa.Table) -> Iterator[pa.Table]:
    """Read a file without the rows at some positions, which must have the expected values."""
    positions = integers(goes, _POSITION)
    order = np.argsort(positions)
    goes, positions = take(goes, order), positions[order]
    stored = job.files.stored
    is_checked = _ROLE in goes.column_names
    content = job.content if is_checked else ()
    start = 0
    for piece in job.files.read(file, list(dict.fromkeys([*stored, *content]))):
        first, last = np.searchsorted(positions, [start, start + len(piece)])
        at = positions[first:last] - start
        if is_checked:
            _require_equal(goes.slice(first, last - first), take(piece, at), content)
        start += len(piece)
        stays = np.ones(len(piece), np.bool_)
        stays[at] = False
        yield piece.select(stored).filter(pa.array(stays))
    if len(positions) and int(positions[-1]) >= start:
        raise conditions.FILE_DAMAGED.error(
            file=file["path"], expected=f"more than {int(positions[-1])} rows", got=f"{start} rows"
        )


def _require_equal(expected: pa.Table, found: pa.Table, content: Sequence[str]) -> None:
    """Refuse a retraction of a row with other values."""
    must = np.flatnonzero(integers(expected, _ROLE) == REPLACE)
    wanted = take(_displayed(expected), must)
    before, after = codes_of([wanted, take(found, must)], content)
    refuse_fault(wanted, before != after, "PREIMAGE_NOT_PUBLISHED")
