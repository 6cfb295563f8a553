"""Wait until a target has what a writer wrote: reading your own writes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence

from streamops.kernel.calls import explain_call
from streamops.kernel.parameters import parse_names
from streamops.kernel.time import Duration, parse_duration
from streamops.sinks import conditions, leftovers
from streamops.sinks.core import sql
from streamops.sinks.core.tokens import Token, parse_token, path_of, tokens_of
from streamops.sinks.rewind import open_checkpoint
from streamops.sinks.sink import BatchWriter, Sink, Transformed
from streamops.spark.identity import parse_offsets

_TICK = 0.01  # seconds


@explain_call("sinks.wait_for")
def wait_for(
    target: BatchWriter | str,
    *tokens: str,
    timeout: Duration = "30 seconds",
    watermark: bool = False,
) -> None:
    """Wait until a target has what a writer wrote to the source of a query.

    A writer passes a token of what it wrote to a reader, which waits for it before it reads. So the reader sees
    its own writes, although the query is behind.

    Parameters
    ----------
    target : sink or str
        The sink with which the query writes, in a process of the reader; or the checkpoint location of the query: a
        path, or a URI of a file system that PyArrow supports. A checkpoint serves every target.
    tokens : str
        ``"kafka:TOPIC:PARTITION:OFFSET"``: a record, as its producer got it acknowledged. ``"lsn:16/B374D848"``: a position of
        PostgreSQL's log at or after a commit, for ``sources.outbox``: ``pg_current_wal_lsn()`` after it. ``"delta:17"``: a
        version of a Delta table that the query reads. ``"file:PATH"``: a file that a file source reads, with a checkpoint as
        the target.
    timeout : duration
        How long to wait.
    watermark : bool, default False
        Also wait until the watermark to which the writes lead is in force, so that the windows that they close have
        results. The target is the checkpoint of a query with event time. Spark runs a micro-batch for it, also without new rows.

    Raises
    ------
    SinkError
        ``WAIT_TIMEOUT``: the target does not have all of it. ``OFFSETS_UNKNOWN``: the ledger does not say
        what the query has read. ``NOT_A_CHECKPOINT``: there is none, or a file of it was cut off; or the target is not available.
    SpecError
        ``INVALID_PARAMETER``: not a token; `watermark` with a sink. ``PARAMETER_TYPE``.

    Examples
    --------
    >>> from streamops import sinks
    >>> views = sinks.postgres("postgresql://host/db", "views", key="page")
    >>> sinks.wait_for(views, f"kafka:{message.topic()}:{message.partition()}:{message.offset()}")

    Notes
    -----
    The function returns after the micro-batch that read the write is committed in the target. Rows that an operator
    holds back, such as those of an open window, have no result by then. Spark computes the watermark from the rows of
    earlier micro-batches: a window that the write itself closes has its result one micro-batch later. If several sources of the query read
    the topic, or files with the extension of the file from its folder, or from another partition of it, all of them have read the write.

    Ledgers of ``sinks.postgres``, ``iceberg``, ``parquet``, ``kafka`` and ``sqlalchemy`` have the offsets of the
    last micro-batch. For other targets, and for asynchronous progress tracking, pass the checkpoint.
    The ledger is read every 10 milliseconds, or half of the time if all readings take longer. With PostgreSQL,
    :func:`wait_for_sql` does it in the database.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Keeping Systems in Sync", and chapter 5, "Reading
    Your Own Writes".
    """
    limit = time.monotonic() + parse_duration(timeout, parameter="timeout", minimum=0) / 1e6
    wanted = [parse_token(token) for token in tokens]
    log, quickest = _log_of(target, watermark=watermark), float("inf")
    while True:
        begun = time.monotonic()
        offsets = log.read_offsets()
        wanted = [token for token in wanted if not log.has(token, offsets)]
        if not wanted:
            return
        now = time.monotonic()
        if now >= limit:
            raise conditions.WAIT_TIMEOUT.error(
                tokens=", ".join(token.text for token in wanted),
                got=f"offsets {', '.join(offsets) or 'of no micro-batch'}",
            )
        # A reading that waited for a lock says nothing about the next one.
        quickest = min(quickest, now - begun)
        time.sleep(min(max(_TICK, quickest), limit - now))


@explain_call("sinks.tokens")
def tokens(target: BatchWriter | str) -> tuple[str, ...]:
    """The tokens of everything that a target has read, for :func:`wait_for` with another target.

    So a new version of a job takes over when it has all that the old one had, and a reader that has seen one
    target does not go back when it reads another. If the old one emits windows, wait with ``watermark=True``.

    Parameters
    ----------
    target : sink or str
        As in :func:`wait_for`.

    Returns
    -------
    tuple of str
        One for each partition of a topic, log of PostgreSQL and Delta table. Empty before the first micro-batch. File sources
        have none.

    Raises
    ------
    SinkError
        ``OFFSETS_UNKNOWN``, ``NOT_A_CHECKPOINT``; or the target is not available.
    SpecError
        ``PARAMETER_TYPE``.

    Examples
    --------
    >>> sinks.wait_for("checkpoints/views_2", *sinks.tokens(views_1), timeout="1 hour", watermark=True)
    """
    return tuple(tokens_of(_log_of(target).read_offsets()))


def wait_for_sql(schema: str = "public") -> str:
    """Return the statement that creates a function of PostgreSQL that waits like :func:`wait_for`.

    ``streamops_wait_for(sink text, token text, timeout interval)`` reads the ledger in the schema of the tables. A
    reader calls it in a statement before the one that reads, in a transaction with READ COMMITTED. It raises
    ``query_canceled`` after `timeout`. It needs the right to read the table ``streamops_ledger``.

    Parameters
    ----------
    schema : str
        The schema of the ledger, and of the function.

    Returns
    -------
    str
        ``CREATE OR REPLACE FUNCTION``.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.

    Examples
    --------
    >>> print(sinks.wait_for_sql("shop"), file=open("migrations/17_wait_for.sql", "w"))

    See Also
    --------
    wait_for : the tokens.
    """
    return sql.create_wait_function(*parse_names(schema, parameter="schema"))


def _log_of(target: BatchWriter | str, *, watermark: bool = False) -> _LedgerLog | _CheckpointLog:
    if isinstance(target, str):
        return _CheckpointLog(target, watermark=watermark)
    if watermark:
        raise conditions.WATERMARK_NEEDS_CHECKPOINT.error(got=f"a {type(target).__name__}")
    return _LedgerLog(target)


class _LedgerLog:
    """The offsets in the ledger of a sink."""

    def __init__(self, target: object) -> None:
        while isinstance(target, Transformed):
            target = target.writer
        if not isinstance(target, Sink):
            raise conditions.NOT_A_WAIT_TARGET.error(got=f"a {type(target).__name__}")
        self._sink = target

    def read_offsets(self) -> Sequence[str]:
        """Where the sources are after the last micro-batch that the target has; empty before the first one."""
        entry = self._sink.read_ledger()
        if entry is not None and not entry.offsets:
            raise conditions.OFFSETS_UNKNOWN.error(got=f"micro-batch {entry.batch} without offsets")
        return () if entry is None else entry.offsets

    def has(self, token: Token, offsets: Sequence[str]) -> bool:
        """Whether the target has what a token names."""
        if token.is_in is None:
            raise conditions.FILE_NEEDS_CHECKPOINT.error(got=repr(token.text))
        return token.is_reached(offsets)


class _CheckpointLog:
    """The offsets of the last micro-batch that a checkpoint committed; `watermark`: and whose watermark is in force."""

    def __init__(self, checkpoint: str, *, watermark: bool) -> None:
        self._files, self._root, _ = open_checkpoint(checkpoint)
        self._watermark = watermark
        self._read, self._found = set[str](), dict[int, dict[str, int]]()

    def read_offsets(self) -> Sequence[str]:
        """Where the sources are after the last micro-batch that is committed; empty before the first one."""
        committed = [int(name) for name in self._names("commits") if name.isdecimal()]
        if not committed:
            return ()
        last = max(committed)
        plan, *lines = self._lines(f"offsets/{last}")
        if self._watermark:
            in_force = json.loads(plan)["batchWatermarkMs"]
            if json.loads(self._lines(f"commits/{last}")[0])["nextBatchWatermarkMs"] > in_force:
                # The last micro-batch has the watermark to which the one before led.
                if last - 1 not in committed:
                    return ()
                lines = self._lines(f"offsets/{last - 1}")[1:]
        return parse_offsets(lines)

    def has(self, token: Token, offsets: Sequence[str]) -> bool:
        """Whether the micro-batches have what a token names."""
        if token.is_in is not None:
            return token.is_reached(offsets)
        if not offsets:
            return False
        self._read_sources()
        path, like = token.path, _sort_of(token.path)
        having = [source for source, files in self._found.items() if path in files]
        for source, files in self._found.items():
            # Two sources that read a folder, as in a self join, list a file at different times.
            is_alike = any(_sort_of(other) == like for other in files)
            if source in having or is_alike:
                at = int(json.loads(offsets[source] or "{}").get("logOffset", -1))
                if at < files.get(path, at + 1):
                    return False
        return bool(having)

    def _read_sources(self) -> None:
        """Read what file sources have listed since the last time."""
        for source in self._names("sources"):
            for name in self._names(f"sources/{source}"):
                path = f"sources/{source}/{name}"
                if path in self._read or not name.removesuffix(".compact").isdecimal():
                    continue
                self._read.add(path)
                for line in self._lines(path):
                    listed = json.loads(line)
                    # Other sources have their first offsets here, such as a number.
                    if isinstance(listed, dict) and "path" in listed:
                        files = self._found.setdefault(int(source), {})
                        files[path_of(listed["path"])] = int(listed["batchId"])

    def _names(self, folder: str) -> list[str]:
        entries = leftovers.list_entries(self._files, f"{self._root}/{folder}")
        return [info.base_name for info in entries]

    def _lines(self, path: str) -> list[str]:
        """The lines of a file of Spark after its version, each of which is JSON, or stands for nothing."""
        with self._files.open_input_stream(f"{self._root}/{path}") as stream:
            text = stream.read()
        try:
            _, first, *others = text.decode().splitlines()
            for line in (first, *others):
                if line != "-":
                    json.loads(line)
        except ValueError as error:
            raise conditions.CHECKPOINT_TORN.error(got=f"{path}: {error}") from None
        return [first, *others]


def _sort_of(path: str) -> tuple[str, str]:
    """The folder and the extension of a file. Those of partitions are in one."""
    folder, _, name = path.rpartition("/")
    return re.sub("/[^/=]+=[^/]*", "", folder), name.partition(".")[2]
