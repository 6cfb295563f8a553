"""Tasks deliver the rows of a micro-batch where nobody reads them, and the driver commits their receipts.

========  ======  ============================================================================
step      where   what happens
========  ======  ============================================================================
prepare   driver  what the target would refuse is refused, and it is decided where tasks write
deliver   tasks   each attempt of a task writes under a name of its own, and returns a receipt
commit    driver  the receipts become visible in one commit, together with the ledger entry
clean up  driver  what was delivered and is not committed is removed, once this run has taken over
========  ======  ============================================================================

Only receipts of successful attempts reach the driver. What other attempts wrote is never visible: those that
failed, those that Spark repeated or ran twice, and all of a driver that died before its commit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from streamops.kernel import errors
from streamops.kernel.columns import take
from streamops.kernel.errors import StreamopsError
from streamops.kernel.hashing import digests
from streamops.kernel.prompt import prompt
from streamops.kernel.versions import to_arrow
from streamops.sinks.core.net import digest
from streamops.spark.columns import column
from streamops.spark.identity import parallelism

SMALL = 8 << 20
"""Up to how many bytes a micro-batch passes through the driver, which is faster than tasks that write it."""

Part = dict[str, Any]
"""What a task has written, as values of JSON."""

Deliver = Callable[[Iterator[pa.Table]], Iterable[Part]]
"""Writes the rows of a task, and returns what it has written. Spark pickles it."""

Finish = Callable[[pa.Table], pa.Table]


Message = tuple[int, pa.Table]
"""Rows, and the number of the task that gets them."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """Tasks that send rows to each other. Spark pickles them.

    Parameters
    ----------
    items : int
        How many items are sent.
    send : function
        What is sent of an item, by its number.
    forward : function
        What is sent by an addressee of items, who gets all messages to it.
    finish : function
        What is written by an addressee of these.
    """

    items: int
    send: Callable[[int], Iterable[Message]]
    forward: Callable[[int, Iterator[pa.Table]], Iterable[Message]]
    finish: Callable[[int, Iterator[pa.Table]], Iterable[Part]]


@dataclass(frozen=True, slots=True)
class Receipts:
    """What the tasks of a micro-batch have delivered.

    Parameters
    ----------
    schema : Schema
        The columns of the rows.
    rows, size, digest : int
        The number of the rows, their bytes in memory, and the sum over the digests of them.
    parts : tuple of dict
        What the tasks have written.
    exchange : function, optional
        Runs further tasks of the same session.
    former_digest : int
        The digest by an earlier version, see ``digest``.
    """

    schema: pa.Schema
    rows: int
    size: int
    digest: int
    parts: tuple[Part, ...]
    exchange: Callable[[Exchange], list[Part]] | None = field(
        default=None, repr=False, compare=False
    )
    former_digest: int = field(default=0, compare=False)

    @property
    def width(self) -> int:
        """The bytes of a row, of which a column needs about eight."""
        return max(8, self.size // max(self.rows, 1))


def _unchanged(rows: pa.Table) -> pa.Table:
    return rows


@dataclass(frozen=True)
class Projection:
    """The rows of a micro-batch as a sink needs them.

    Parameters
    ----------
    frame : DataFrame
        The rows.
    finish : function
        What Arrow does with the rows of the frame. Spark pickles it.
    """

    frame: DataFrame
    finish: Finish = _unchanged

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the finished rows. Spark knows them without computing a row."""
        return self.finish(to_arrow(self.frame.limit(0))).schema

    def collect(self) -> pa.Table:
        """Compute the rows in the memory of the driver."""
        return self.finish(to_arrow(self.frame))

    def collect_small(self, small: int, width: int = 8) -> pa.Table | None:
        """Compute the rows in the memory of the driver; None if they have more bytes than a small micro-batch.

        No task returns more rows than a small micro-batch has of this width in bytes. The schema of the frame
        does not tell how long texts are, and asking for it takes milliseconds.
        """
        most = small // width
        # The lower 33 bits of this identifier count the rows of a partition. Parsing the text takes a call
        # of the JVM, and building the same column ten, of milliseconds each.
        is_among_first = f"(monotonically_increasing_id() & {(1 << 33) - 1}) < {most}"
        rows = to_arrow(self.frame.where(is_among_first))
        return self.finish(rows) if len(rows) < most and rows.nbytes <= small else None

    def run_tasks(self, deliver: Deliver, together: tuple[str, ...] = ()) -> Receipts:
        """Let tasks deliver the rows.

        Parameters
        ----------
        deliver : function
            What each task does with its rows, unless it has none.
        together : tuple of str
            Columns whose equal values one task must have.

        Raises
        ------
        StreamopsError
            Of `deliver`. Other exceptions fail the attempt of a task, and Spark repeats it.
        """
        frame = self.frame
        if together:
            frame = frame.repartition(parallelism(frame), *map(column, together))
        return run_tasks(frame, deliver, self.schema, self.finish)


def run_tasks(
    frame: DataFrame, deliver: Deliver, schema: pa.Schema, finish: Finish = _unchanged
) -> Receipts:
    """Let tasks deliver the finished rows of a frame, which have these columns."""
    found = to_arrow(frame.mapInArrow(prompt(partial(run_task, finish, deliver)), RECEIPT))
    return replace(add_up(schema, found), exchange=partial(run_exchange, frame))


def add_up(schema: pa.Schema, receipts: pa.Table) -> Receipts:
    """Add up what `run_task` returned, or raise the first error."""
    for text in receipts.column("error").to_pylist():
        if text:
            raise _decode(text)
    parts = (json.loads(text) for text in receipts.column("parts").to_pylist())
    # The sum of the digests wraps around, as that of a table.
    rows, size, total, former = (
        int(receipts.column(name).to_numpy().astype(np.int64).sum())
        for name in ("rows", "bytes", "digest", "former")
    )
    merged = tuple(chain.from_iterable(parts))
    return Receipts(schema, rows, size, total, merged, former_digest=former)


RECEIPT = "rows bigint, bytes bigint, digest bigint, former bigint, parts string, error string"


def run_task(
    finish: Finish, deliver: Deliver, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Deliver the rows of a task, and return a receipt of one row."""
    tables = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
    counted = Counted(map(finish, tables))
    parts: list[Part] = []
    error = ""
    try:
        first = next(counted, None)
        if first is None:
            return
        parts = list(deliver(chain([first], counted)))
    except StreamopsError as raised:  # which would be the same at the next attempt
        error = encode(raised)
    yield counted.receipt(parts, error)


_MESSAGE = "addressee int, rows binary, error string"
_FINISHED = "parts string, error string"

_TASKS_PER_CORE = 4


def run_exchange(frame: DataFrame, exchange: Exchange) -> list[Part]:
    """Run an exchange in the session of a frame, and return what its last tasks have written."""
    tasks = _TASKS_PER_CORE * parallelism(frame)
    items = frame.sparkSession.range(0, exchange.items, 1, min(tasks, exchange.items))
    sent = items.mapInArrow(prompt(partial(_send, exchange)), _MESSAGE)
    sent = sent.repartitionById(tasks, "addressee").sortWithinPartitions("addressee")
    sent = sent.mapInArrow(prompt(partial(_forward, exchange)), _MESSAGE)
    sent = sent.repartitionById(tasks, "addressee").sortWithinPartitions("addressee")
    found = to_arrow(sent.mapInArrow(prompt(partial(_finish, exchange)), _FINISHED))
    for text in found.column("error").to_pylist():
        if text:
            raise _decode(text)
    texts = (text for text in found.column("parts").to_pylist() if text is not None)
    return list(chain.from_iterable(map(json.loads, texts)))


def _send(exchange: Exchange, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = (int(number) for batch in batches for number in batch.column(0).to_pylist())
    yield from _messages(chain.from_iterable(map(exchange.send, numbers)))


def _forward(exchange: Exchange, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    inbox = _Inbox(batches)
    yield from _messages(chain.from_iterable(exchange.forward(*letter) for letter in inbox))
    if inbox.error is not None:
        yield _message(0, None, inbox.error)


def _finish(exchange: Exchange, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    inbox, parts, error = _Inbox(batches), None, None
    try:
        found = [list(exchange.finish(*letter)) for letter in inbox]
        parts, error = json.dumps(list(chain.from_iterable(found))), inbox.error
    except StreamopsError as raised:  # which would be the same at the next attempt
        error = encode(raised)
    yield pa.RecordBatch.from_pydict({"parts": [parts], "error": [error]}, _TEXTS)


_LETTER = pa.schema([("addressee", pa.int32()), ("rows", pa.binary()), ("error", pa.string())])
_TEXTS = pa.schema([("parts", pa.string()), ("error", pa.string())])


def _messages(messages: Iterator[Message]) -> Iterator[pa.RecordBatch]:
    try:
        for addressee, rows in messages:
            yield _message(addressee, to_bytes(rows), None)
    except StreamopsError as raised:
        yield _message(0, None, encode(raised))


def _message(addressee: int, rows: pa.Buffer | None, error: str | None) -> pa.RecordBatch:
    values = {"addressee": [addressee], "rows": [rows and rows.to_pybytes()], "error": [error]}
    return pa.RecordBatch.from_pydict(values, _LETTER)


class _Inbox:
    """The messages to a task by addressee, which are sorted; and the first error that was sent."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.error: str | None = None
        self._letters = self._read(batches)

    def _read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Message]:
        for batch in batches:
            for addressee, rows, error in zip(*batch.columns, strict=True):
                if error.is_valid:
                    self.error = self.error or error.as_py()
                else:
                    yield addressee.as_py(), from_bytes(rows.as_buffer())

    def __iter__(self) -> Iterator[tuple[int, Iterator[pa.Table]]]:
        for addressee, letters in groupby(self._letters, itemgetter(0)):
            yield addressee, (rows for _, rows in letters)


def to_bytes(rows: pa.Table) -> pa.Buffer:
    """The rows as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows.combine_chunks())
    return sink.getvalue()


def from_bytes(stream: Any) -> pa.Table:
    """The rows of a stream of Arrow."""
    return pa.ipc.open_stream(stream).read_all()


class Counted:
    """The rows of a task, which are counted while they are read."""

    def __init__(self, tables: Iterator[pa.Table]) -> None:
        self._tables = tables
        self.rows = self.bytes = 0
        self.digests = np.zeros(2, np.int64)

    def __iter__(self) -> Iterator[pa.Table]:
        return self

    def __next__(self) -> pa.Table:
        rows = next(self._tables)
        self.rows += len(rows)
        self.bytes += rows.nbytes
        self.digests += np.array(digest(rows), np.int64)
        return rows

    def receipt(self, parts: list[Part], error: str) -> pa.RecordBatch:
        """What the driver gets to know about the rows, in one row."""
        receipt = self.rows, self.bytes, *self.digests.tolist(), json.dumps(parts), error
        names = ("rows", "bytes", "digest", "former", "parts", "error")
        return pa.RecordBatch.from_pydict({n: [v] for n, v in zip(names, receipt, strict=True)})


def deliver_nothing(tables: Iterator[pa.Table]) -> Iterator[Part]:
    """Count the rows of a micro-batch that the target has, to see whether they are the same."""
    for _ in tables:
        pass
    yield from ()


def is_undelivered(content: object) -> bool:
    """Whether rows were only counted."""
    return isinstance(content, Receipts) and content.rows > 0 and not content.parts


def in_pieces(tables: Iterable[pa.Table], *, rows: int, size: int) -> Iterator[pa.Table]:
    """Combine tables to pieces with about so many rows or bytes.

    Examples
    --------
    >>> [len(piece) for piece in in_pieces([pa.table({"a": [1, 2]})] * 5, rows=4, size=1000)]
    [4, 4, 2]
    """
    held: list[pa.Table] = []
    count = total = 0
    for table in tables:
        held.append(table)
        count, total = count + len(table), total + table.nbytes
        if count >= rows or total >= size:
            yield pa.concat_tables(held)
            held, count, total = [], 0, 0
    if held:
        yield pa.concat_tables(held)


_GROUPS = 32
"""How many groups the rows of a task are divided into, if they are more than one group."""


def in_groups(tables: Iterable[pa.Table], names: Sequence[str], *, size: int) -> Iterator[pa.Table]:
    """Combine tables to groups with all rows of equal values in these columns.

    One group, if there are at most so many bytes. Others are written to local files, to be read one by one.

    Examples
    --------
    >>> tables = [pa.table({"k": range(1000)})] * 2
    >>> {len(set(g["k"].to_pylist())) * 2 == len(g) for g in in_groups(tables, ["k"], size=10)}
    {True}
    """
    rest = iter(tables)
    first = next(in_pieces(rest, rows=sys.maxsize, size=size), None)
    second = next(rest, None)
    if second is None:
        if first is not None:
            yield first
        return
    assert first is not None
    with TemporaryDirectory(prefix="streamops-") as folder, ExitStack() as files:
        paths = [Path(folder, f"{number}.arrow") for number in range(_GROUPS)]
        writers = [
            files.enter_context(pa.ipc.new_stream(str(path), first.schema)) for path in paths
        ]
        for piece in chain(
            [first], in_pieces(chain([second], rest), rows=sys.maxsize, size=size // 4)
        ):
            groups = digests(piece.select(list(names)).columns) % _GROUPS
            at = np.argsort(groups, kind="stable")
            bounds = np.searchsorted(groups[at], np.arange(_GROUPS + 1))
            ordered = take(piece, at)
            for number, writer in enumerate(writers):
                start, stop = bounds[number : number + 2]
                writer.write_table(ordered.slice(start, stop - start))
        del first, second, piece, ordered
        files.close()
        for path in paths:
            with pa.ipc.open_stream(str(path)) as reader:
                group = reader.read_all()
            if len(group):
                yield group
            path.unlink()


def encode(error: StreamopsError) -> str:
    """An error of a task as text, of which `add_up` makes the error again."""
    _, (*_, facts) = error.__reduce__()
    texts = {name: str(value) for name, value in facts["facts"].items()}
    values = {**{name: str(value) for name, value in facts.items()}, "facts": texts}
    return json.dumps([type(error).__name__, error.code, error.what, values])


def _decode(text: str) -> StreamopsError:
    name, code, what, facts = json.loads(text)
    error_type: type[StreamopsError] = getattr(errors, name)
    return error_type(code, what, **facts)
