"""The net effect of a micro-batch in a staging table, from which one transaction merges it into the target.

Tasks stage a large micro-batch in a table that all of them reach. Each attempt of a task marks its rows with
a number of its own, and the merge reads the rows of those attempts whose receipts the driver has.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SinkError
from streamops.sinks import conditions
from streamops.sinks.core import sql
from streamops.sinks.core.ledger import Entry
from streamops.sinks.core.net import Net, compute_net, content_columns, form_of
from streamops.sinks.protocol import Content
from streamops.sinks.sink import TableSink
from streamops.sinks.tasks import Part, Projection, Receipts, in_groups, in_pieces
from streamops.spark.identity import Identity

_ROWS_PER_PIECE, _BYTES_PER_PIECE = 1 << 18, 32 << 20
_BYTES_PER_GROUP = 128 << 20
_PREFIX = "streamops_staging"
_TAKEN_OVER = "the run that has removed the staging table of this one"

Nulls = list[list[str]]
"""Combinations of columns that are null together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the driver must know about staged rows. It has values of JSON.

    Parameters
    ----------
    rows : int
        How many are staged.
    deleted : int
        How many rows the target loses that no other replaces.
    removed, added : list of list of str
        Which columns are null together, in the removed and in the added rows: those of the key, or all that
        are compared.
    """

    rows: int = 0
    deleted: int = 0
    removed: Nulls = field(default_factory=list)
    added: Nulls = field(default_factory=list)

    @classmethod
    def of(cls, net: Net, key: Sequence[str] | None) -> Summary:
        """The summary of a net effect."""
        names = content_columns(net.added.column_names, ()) if key is None else key
        return cls(
            rows=len(net.removed) + len(net.added),
            deleted=int(net.removed_copies[~net.is_replaced].sum()),
            removed=_nulls(net.removed, names),
            added=_nulls(net.added, key or ()),
        )

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            rows=self.rows + other.rows,
            deleted=self.deleted + other.deleted,
            removed=_union(self.removed, other.removed),
            added=_union(self.added, other.added),
        )


def _union(some: Nulls, others: Nulls) -> Nulls:
    return some + [names for names in others if names not in some]


def _nulls(rows: pa.Table, names: Sequence[str]) -> Nulls:
    """Which of these columns are null together in at least one row."""
    if not len(rows) or not names:
        return []
    if not any(rows.column(name).null_count for name in names):
        return [[]]
    nulls = np.stack([np.asarray(combine_chunks(pc.is_null(rows.column(n)))) for n in names], 1)
    named = np.array(names, object)
    return [named[pattern].tolist() for pattern in np.unique(nulls, axis=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A micro-batch that is staged, or will be.

    Parameters
    ----------
    names : tuple of str
        The columns of the micro-batch.
    schema : Schema
        The columns that the target gets.
    summary : Summary
        What is staged.
    table : str
        The name of the table where tasks have staged it.
    attempts : tuple of int
        The attempts of tasks whose rows count.
    """

    names: tuple[str, ...]
    schema: pa.Schema
    summary: Summary
    table: str = ""
    attempts: tuple[int, ...] = ()


S = TypeVar("S", bound=Staged)


def add_receipts(empty: S, receipts: Receipts) -> S:
    """Add what tasks have staged to what is known of a micro-batch without rows."""
    summary, table, attempts = empty.summary, "", []
    for part in receipts.parts:
        summary += Summary(**part["summary"])
        table = part["table"]
        attempts.append(part["attempt"])
    return replace(empty, summary=summary, table=table, attempts=tuple(attempts))


def with_marks(net: Net, names: Sequence[str], key: Sequence[str] | None) -> pa.Table:
    """The rows to stage: added ones, or all of them with what is to be done with them."""
    if form_of(names, key) in {"append", "upsert"}:
        return net.added
    removed = _marked(net.removed, True, net.must_match, net.is_replaced, net.removed_copies)
    matches = np.zeros(len(net.added), np.bool_)
    added = _marked(net.added, False, matches, net.replaces, net.added_copies)
    return pa.concat_tables([removed, added]).combine_chunks()


def _marked(rows: pa.Table, removed: bool, matches: Any, replaced: Any, copies: Any) -> pa.Table:
    values = np.full(len(rows), removed), matches, replaced, copies.astype(np.int32)
    for name, column in zip(sql.MARKS, values, strict=True):
        rows = rows.append_column(name, pa.array(column))
    return rows


def with_attempt(rows: pa.Table, attempt: int) -> pa.Table:
    """The rows with the number of an attempt."""
    return rows.append_column(sql.ATTEMPT, pa.repeat(pa.scalar(attempt, pa.int64()), len(rows)))


Write = Callable[[pa.Table], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(ABC):
    """How tasks stage their rows. Spark pickles it, with the password if the URL has one.

    Parameters
    ----------
    url : str
        How they connect.
    key : tuple of str, optional
        Columns that identify a row.
    sequence : tuple of str
        Columns that order the rows of a key.
    """

    url: str
    key: tuple[str, ...] | None
    sequence: tuple[str, ...]

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[Part]:
        """Stage the rows of a task."""
        attempt, total = secrets.randbits(63), Summary()
        with ExitStack() as connections:
            write: Write | None = None
            for rows in self._groups(tables):
                net = self._reduce(rows)
                total += Summary.of(net, self.key)
                staged = with_marks(net, rows.column_names, self.key)
                if not len(staged):
                    continue
                with _errors_of_task():
                    if write is None:  # not before it is needed
                        write = connections.enter_context(self._open())
                    write(with_attempt(staged, attempt))
        yield {"table": self._staging_table, "attempt": attempt, "summary": asdict(total)}

    def _reduce(self, rows: pa.Table) -> Net:
        """The net effect of rows."""
        return compute_net(rows, key=self.key, sequence=self.sequence)

    @property
    @abstractmethod
    def _staging_table(self) -> str:
        """The name of the staging table."""

    @abstractmethod
    def _open(self) -> AbstractContextManager[Write]:
        """Connect, and return what stages rows."""

    def _groups(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Rows that fit into memory, with all rows of a key."""
        first = next(tables)
        names = together(first.column_names, self.key)

        def rest() -> Iterator[pa.Table]:
            yield first
            yield from tables

        if not names:
            return in_pieces(rest(), rows=_ROWS_PER_PIECE, size=_BYTES_PER_PIECE)
        return in_groups(rest(), names, size=_BYTES_PER_GROUP)


def together(names: Sequence[str], key: Sequence[str] | None) -> tuple[str, ...]:
    """The columns whose equal values one task must have."""
    if key is None and CHANGE_TYPE in names:
        return tuple(content_columns([n for n in names if n != CHANGE_TYPE], ()))
    return tuple(key or ())


def taken_over() -> SinkError:
    """The error of a task whose staging table is gone."""
    return conditions.FENCED.error(expected=_TAKEN_OVER, got="no table")


@contextmanager
def _errors_of_task() -> Iterator[None]:
    """Raise errors that another attempt would meet again; let Spark repeat the attempt after others."""
    try:
        yield
    except SinkError as error:
        if error.code == conditions.TARGET_UNAVAILABLE.code:
            raise ConnectionError(str(error)) from None
        raise


class MayNotStage(Exception):
    """The rows of a micro-batch must pass the driver."""


@dataclass(frozen=True, kw_only=True, repr=False)
class StagingSink(TableSink):
    """A sink whose tasks stage large micro-batches."""

    @property
    def _is_distributed(self) -> bool:
        return True

    def _together(self, schema: pa.Schema) -> tuple[str, ...]:
        return together(schema.names, self.key)

    def _receive(self, projection: Projection, batch_id: int, identity: Identity) -> Content:
        try:
            return super()._receive(projection, batch_id, identity)
        except MayNotStage:
            rows = projection.collect()
            self.session.is_small = rows.nbytes <= self._small // 2
            return rows

    def _new_staging(self, entry: Entry | None, batch: int) -> tuple[str, str]:
        """The name of a new staging table, and a comment on it."""
        generation = 1 if entry is None else entry.generation + (not self._is_own(entry))
        name = f"{prefix(self.name)}{generation}_{batch}_{secrets.token_hex(4)}"
        comment = f"streamops: rows of micro-batch {batch} of sink {self.name!r}, until they are committed"
        return name, comment

    def _is_left(self, name: str, entry: Entry) -> bool:
        """Whether a table is one that staged rows which are committed now, or never."""
        start = prefix(self.name)
        generation = entry.generation - (not self._is_own(entry))  # a newer run can have committed
        return name.startswith(start) and int(name[len(start) :].partition("_")[0]) <= generation

    def _is_own(self, entry: Entry) -> bool:
        return entry.run in self.session.runs


def prefix(sink: str) -> str:
    """How the names of the staging tables of a sink begin."""
    return f"{_PREFIX}_{hashlib.sha256(sink.encode()).hexdigest()[:12]}_"
