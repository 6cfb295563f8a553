"""What all sinks share: from the micro-batch of ``foreachBatch`` to one delivery."""

from __future__ import annotations

import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.databases import mask
from streamops.kernel.errors import SinkError, StreamopsError, located
from streamops.kernel.parameters import parse_distinct_names, require_columns
from streamops.sinks import conditions
from streamops.sinks.core.ledger import (
    Action,
    Decision,
    Delivery,
    Entry,
    Location,
    NewCheckpoint,
    Repeated,
    decide,
    require_location,
)
from streamops.sinks.core.net import compute_net, digest, form_of
from streamops.sinks.protocol import (
    Attempt,
    Checked,
    CheckedTarget,
    Conflict,
    Content,
    Found,
    Reduced,
)
from streamops.sinks.tasks import (
    SMALL,
    Deliver,
    Projection,
    Receipts,
    deliver_nothing,
    is_undelivered,
)
from streamops.spark.columns import column, refuse_duplicates, require_frame
from streamops.spark.identity import Identity, begin_run, name_cause
from streamops.spark.json_columns import refuse_invalid_text, to_checked_json
from streamops.spark.operator import show_call
from streamops.spark.side_output import side_output_tags

_LOG = logging.getLogger("streamops.sinks")


@contextmanager
def hide(*secrets: str | None) -> Iterator[None]:
    """Remove secrets from the messages of exceptions."""
    try:
        yield
    except Exception as error:
        text = mask(str(error), secrets)
        if text == str(error):
            raise
        if isinstance(error, StreamopsError):
            facts = {name: mask(str(value), secrets) for name, value in error.facts.items()}
            raise error.replace(got=mask(str(error.got), secrets), facts=facts) from None
        raise RuntimeError(text) from None


def unavailable(target: str, error: Exception, *, hint: str = "") -> SinkError:
    """The error about a target that cannot be reached."""
    return conditions.TARGET_UNAVAILABLE.error(
        target=target, hint=hint, got=f"{type(error).__name__}: {error}"
    )


def refused(target: str, error: Exception) -> SinkError:
    """The error about a target that does not accept the rows."""
    return conditions.ROWS_REFUSED.error(target=target, got=f"{type(error).__name__}: {error}")


def elsewhere(target: str, error: Exception) -> SinkError:
    """The error about a path or a URL that leads to no target."""
    return conditions.NOT_A_TARGET.error(target=target, got=f"{type(error).__name__}: {error}")


def columns_differ(
    new: Sequence[str], required: Sequence[str], known: Sequence[str], *, note: str = ""
) -> SinkError:
    """The error about columns that only the rows have, or that only the table has and requires."""
    return conditions.TARGET_COLUMNS.error(
        note=note,
        columns=", ".join(known),
        got=f"not in the table: {', '.join(new) or 'none'}; required by the table, and not in the rows: "
        f"{', '.join(required) or 'none'}",
    )


def type_differs(name: str, got: object, found: object, expected: object) -> SinkError:
    """The error about a column of the table that does not take the values of the rows."""
    return conditions.COLUMN_TOO_NARROW.error(
        column=name, expected=expected, got=f"{got} for {found}"
    )


Transform = Callable[[DataFrame], DataFrame]
Columns = Literal["exact", "add"]
Missing = Literal["create", "refuse"]


_OF_PARENTS: list[Any] = []
"""Connections of the process that this one was forked from. To close one would end it there, too."""


class Session:
    """What a sink remembers in one process: an open connection, and the runs that it has served."""

    def __init__(self) -> None:
        self.connection: Any = None
        self.clone: Any = None
        self.runs, self.width = set[str](), 8
        self.is_taken = self.is_small = self.has_leftovers = self.is_warned = False
        self._lock, self._process = threading.RLock(), os.getpid()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let one thread at a time use the connection, which has one transaction."""
        if self._process != os.getpid():
            self._abandon()
            self._lock, self._process = threading.RLock(), os.getpid()
        with self._lock:
            yield

    def close(self) -> None:
        """Close the connection, whose transaction ends without effect."""
        if self._process != os.getpid():
            self._abandon()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _abandon(self) -> None:
        """Forget what belongs to the process that this one was forked from."""
        connection, self.connection = self.connection, None
        if connection is not None:
            _OF_PARENTS.append(connection)
        self.runs = set()

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark Connect copies the sink to the server, where it opens a connection of its own.
        return Session, ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Session)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True, repr=False)
class BatchWriter(ABC):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``.

    Parameters
    ----------
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.
    """

    where: ClassVar[str]

    checkpoint: str | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a micro-batch. For use with ``DataStreamWriter.foreachBatch``."""
        with located(self.label):
            require_frame(batch, "the micro-batch")
        with (
            located(self.label),
            name_cause(identity := begin_run(batch, batch_id, self.checkpoint)),
        ):
            self._deliver(batch, batch_id, identity)

    def write(self, frame: DataFrame, *, query: str, batch_id: int = 0) -> None:
        """Write a batch frame as a micro-batch of a query with this name.

        Parameters
        ----------
        frame : DataFrame
            A batch frame.
        query : str
            Identifies the job in the ledger, as a checkpoint does for a streaming query.
        batch_id : int
            Its number: 0, 1, 2, ...
        """
        with located(self.label):
            require_frame(frame, "the argument")
        # A job has no runs that could write at the same time under one name.
        self._deliver(frame, batch_id, Identity(query, f"{query} (batch)"))

    def after(self, transform: Transform) -> Transformed:
        """Return a sink that transforms micro-batches before it writes them to this one.

        Examples
        --------
        >>> from streamops import sinks
        >>> orders = sinks.postgres("postgresql://host/db", "large_orders")
        >>> large = orders.after(lambda batch: batch.where("amount > 1000"))
        """
        return Transformed(transform=transform, writer=self, checkpoint=self.checkpoint)

    def check(self) -> Checked:
        """Connect to each target, and return what is there, before a query starts. Nothing is written.

        Raises
        ------
        SinkError
            A target cannot be reached, does not exist and may not be created, or belongs to another sink.

        Examples
        --------
        >>> from streamops import sinks
        >>> daily = sinks.postgres("postgresql://host/db", "daily")
        >>> daily.check()
        sinks.postgres('daily')
          target:      table "public"."daily"
          to create:   table "public"."daily", table "public"."streamops_ledger"
          micro-batch: none yet
        """
        return Checked(tuple(self._checked()))

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return self.where

    @abstractmethod
    def _checked(self) -> Iterator[CheckedTarget]:
        """Connect to each target, and yield what is there."""

    @abstractmethod
    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        """Write a micro-batch of a query."""

    def __repr__(self) -> str:
        return show_call(self.where, self)


@dataclass(frozen=True, kw_only=True, repr=False)
class Transformed(BatchWriter):
    """A sink with a transformation before it."""

    transform: Transform
    writer: BatchWriter

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return self.writer.label

    def _checked(self) -> Iterator[CheckedTarget]:
        return self.writer._checked()

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        self.writer._deliver(self.transform(batch), batch_id, identity)

    def __repr__(self) -> str:
        return f"{self.writer!r}.after({self.transform!r})"


_ATTEMPTS = 20
"""How often a commit is tried while others commit, for example to compact the files of a table."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Sink(BatchWriter):
    """A target of micro-batches, each of which it applies exactly once.

    Parameters
    ----------
    name : str
        Identifies the sink in the ledger of the target.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do with a target that a query has written.
    repeated : "fail" or "skip"
        What happens if a repeated micro-batch has other rows than the first time.
    """

    _small: ClassVar[int] = SMALL
    name: str
    new_checkpoint: NewCheckpoint = "refuse"
    repeated: Repeated = "fail"
    session: Session = field(default_factory=Session, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.session.is_taken:  # this sink is a changed copy of another
            object.__setattr__(self, "session", Session())
        self.session.is_taken = True

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.name!r})"

    def read_ledger(self) -> Entry | None:
        """Return the entry of this sink in the ledger; None if there is none."""
        with located(self.label), self.session.exclusive():
            return self._read_ledger()

    @abstractmethod
    def _read_ledger(self) -> Entry | None:
        """Return the entry of this sink in the ledger."""

    def _checked(self) -> Iterator[CheckedTarget]:
        with located(self.label), self.session.exclusive():
            target, creates, entry = self._inspect()
        yield CheckedTarget(sink=self.label, target=target, creates=tuple(creates), entry=entry)

    @abstractmethod
    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        """Return the target, what must be created, and the entry. Refuse what a delivery would refuse."""

    def _require_location(self, entry: Entry | None, location: Location) -> None:
        """Refuse an entry of another target, unless one that was created again is accepted."""
        if entry is not None:
            accepts = self.new_checkpoint != "refuse"
            require_location(entry, location, accepts=accepts)

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        with located(self.label), self.session.exclusive():
            refuse_duplicates(batch)
            refuse_side_output(batch)
            self._deliver_projection(self._project(batch), batch_id, identity)

    def _deliver_projection(
        self, projection: Projection, batch_id: int, identity: Identity
    ) -> None:
        """Write the rows of a projection, all of which are results."""
        with located(self.label), self.session.exclusive():
            self._accept(self._receive(projection, batch_id, identity), batch_id, identity)

    def _deliver_rows(self, rows: pa.Table, batch_id: int, identity: Identity) -> None:
        """Write the rows of a micro-batch, all of which are results."""
        with located(self.label), self.session.exclusive():
            self._accept(rows, batch_id, identity)

    def _project(self, batch: DataFrame) -> Projection:
        """The columns that the sink needs, in types that the target has."""
        return Projection(batch)

    def _receive(self, projection: Projection, batch_id: int, identity: Identity) -> Content:
        """Collect a small micro-batch, or let tasks deliver a large one.

        A micro-batch is taken for small if the one before it was. If it is not, Spark computes it again.
        """
        if not self._is_distributed:
            return projection.collect()
        most, session = self._small, self.session
        if session.is_small and (rows := projection.collect_small(most, session.width)) is not None:
            return rows
        session.is_small, schema = False, projection.schema
        together = self._together(schema)
        if together is None:
            return projection.collect()
        action = self._foresee(schema, self._delivery(schema.empty_table(), batch_id, identity))
        deliver = deliver_nothing if action == "skip" else self._prepare(schema, batch_id, action)
        receipts = projection.run_tasks(deliver, together)
        session.is_small, session.width = receipts.size <= most // 2, receipts.width
        return receipts

    def _foresee(self, schema: pa.Schema, delivery: Delivery) -> Action:
        """What the ledger says about a micro-batch before it is computed. A repeated one has equal rows."""
        with self._attempt(self._reduce(schema.empty_table()), delivery) as attempt:
            return self._foretell(attempt.found, delivery)

    def _foretell(self, found: Found, delivery: Delivery) -> Action:
        if found.entry is not None:
            delivery = replace(delivery, rows=found.entry.rows, digest=found.entry.digest)
        return self._decide(found, delivery).action

    def _delivery(self, content: Content, batch_id: int, identity: Identity) -> Delivery:
        if isinstance(content, Receipts):
            rows, digests = content.rows, (content.digest, content.former_digest)
        else:
            rows, digests = content.num_rows, digest(content)
        query, run, offsets, _ = identity
        is_first = run not in self.session.runs
        return Delivery(query, run, batch_id, rows, digests[0], is_first, offsets, digests[1])

    def _accept(self, content: Content, batch_id: int, identity: Identity) -> None:
        delivery = self._delivery(content, batch_id, identity)
        self._commit(content, delivery)
        self.session.runs.add(identity.run)
        # Not before: until this run has taken over, another one may commit what it has left.
        if delivery.is_first or isinstance(content, Receipts) or self.session.has_leftovers:
            try:
                self._clean_up(delivery)
            except SinkError as error:  # the micro-batch is committed
                _LOG.warning(
                    "%s: what failed attempts have left stays there: %s", self.label, error
                )

    def _commit(self, content: Content, delivery: Delivery) -> None:
        """Read the ledger, decide and commit, again and again if other writers come first."""
        reduced, last = self._reduce(content), Conflict()
        for _ in range(_ATTEMPTS):
            try:
                with self._attempt(reduced, delivery) as attempt:
                    decision = self._decide(attempt.found, delivery)
                    if decision.action != "skip" and is_undelivered(content):
                        raise Conflict()  # the target was set back after it was asked
                    if decision.entry != attempt.found.entry:
                        attempt.write(decision)
                return
            except Conflict as conflict:
                last = conflict
        raise last.reason or conditions.COMMIT_CONFLICTS.error(got=f"{_ATTEMPTS} attempts")

    def _decide(self, found: Found, delivery: Delivery) -> Decision:
        """Decide about a delivery by the entries that the ledger has."""
        return decide(
            found.entry,
            delivery,
            location=found.location,
            others=found.others,
            new_checkpoint=self.new_checkpoint,
            repeated=self.repeated,
        )

    def _reduce(self, content: Content) -> Any:
        """What an attempt needs of a micro-batch: for example its net effect."""
        return content

    @abstractmethod
    def _attempt(self, content: Any, delivery: Delivery) -> AbstractContextManager[Attempt]:
        """Begin to commit a micro-batch, as `_reduce` returned it. Locks the ledger if the target has locks."""

    @property
    def _is_distributed(self) -> bool:
        """Whether tasks write a large micro-batch, of which the driver commits the receipts."""
        return False

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Deliver:
        """Refuse what the target would refuse, and return what tasks do with their rows.

        Parameters
        ----------
        schema : Schema
            The columns of the rows.
        batch_id : int
            The micro-batch.
        action : "write" or "replace"
            Whether the rows are added to those of the target, or replace them.
        """
        raise NotImplementedError

    def _together(self, schema: pa.Schema) -> tuple[str, ...] | None:
        """Columns whose equal values one task must have; None if tasks cannot write these rows."""
        return ()

    def _clean_up(self, delivery: Delivery) -> None:
        """Remove what attempts before this delivery, which is committed, have left."""


@dataclass(frozen=True, kw_only=True, repr=False)
class KeyedSink(Sink):
    """A sink that distinguishes rows by a key, or takes all of them.

    Parameters
    ----------
    key : tuple of str, optional
        Columns that identify a row.
    sequence : tuple of str, optional
        Columns that order the rows of a key. None: "revision", if there is such a column.
    """

    key: tuple[str, ...] | None
    sequence: tuple[str, ...] | None

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        names = batch.columns
        if self.key is None and REVISION in names and CHANGE_TYPE not in names:
            if not self.session.is_warned:
                _LOG.warning(
                    "%s: without `key`, the target gets a row for each revision of a result. "
                    "With `key`, the latest one replaces those before",
                    self.label,
                )
            self.session.is_warned = True
        super()._deliver(batch, batch_id, identity)

    def _reduce(self, content: Content) -> Any:
        return self._reduced(content)

    def _reduced(self, rows: pa.Table) -> Reduced:
        sequence = self._sequence_of(rows.column_names)
        net = compute_net(rows, key=self.key, sequence=sequence)
        return Reduced(net, tuple(rows.column_names))

    def _sequence_of(self, names: Sequence[str]) -> tuple[str, ...]:
        """The columns that order the rows of a key."""
        form = form_of(names, self.key)
        columns = {"key": self.key or (), "sequence": self.sequence or ()}
        require_columns(names, columns)
        if self.sequence is not None or form in {"append", "multiset"}:
            return self.sequence or ()
        if REVISION in names:
            return (REVISION,)
        if form == "upsert":
            return ()
        raise conditions.NO_REVISION.error(column=REVISION, got=f"columns {', '.join(names)}")


@dataclass(frozen=True, kw_only=True, repr=False)
class TableSink(KeyedSink):
    """A sink whose target is a table of rows.

    Parameters
    ----------
    columns : "exact" or "add"
        Whether columns that the table does not have are an error, or are added to it.
    missing : "create" or "refuse"
        What happens if the table does not exist.
    """

    columns: Columns
    missing: Missing


def parse_key(key: str | Sequence[str] | None, *, parameter: str) -> Any:
    """Parse names of columns, or None."""
    return None if key is None else parse_distinct_names(key, parameter=parameter)


def refuse_side_output(batch: DataFrame) -> None:
    """Refuse a frame that has results and side output in it."""
    tags = list(side_output_tags(batch))
    if tags:
        raise conditions.SIDE_OUTPUT.error(got=f"column {tags[0]!r}")


JSON = {b"streamops": b"json"}
"""Metadata of Arrow columns whose strings are JSON."""


def project_json(batch: DataFrame, *, keep_lists: bool) -> Projection:
    """Project nested columns to JSON. With `keep_lists`, plain lists stay."""
    nested = {f.name: f.dataType for f in batch.schema.fields if _is_nested(f.dataType, keep_lists)}
    as_json = {name: to_checked_json(column(name), dtype) for name, dtype in nested.items()}
    frame = batch.select(*(as_json.get(n, column(n)).alias(n) for n in batch.columns))
    return Projection(frame, partial(_mark_json, tuple(nested)))


def _mark_json(nested: tuple[str, ...], rows: pa.Table) -> pa.Table:
    refuse_invalid_text(rows, list(nested))
    fields = [f.with_metadata(JSON) if f.name in nested else f for f in rows.schema]
    return rows.cast(pa.schema(fields))


def _is_nested(dtype: DataType, keep_lists: bool) -> bool:
    if isinstance(dtype, ArrayType) and keep_lists:
        return isinstance(dtype.elementType, ArrayType | MapType | StructType)
    return isinstance(dtype, ArrayType | MapType | StructType)
