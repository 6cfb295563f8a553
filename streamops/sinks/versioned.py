"""What the sinks for stores have in common that order the writes of a key by a version.

Tasks write the rows; the driver gets numbers. There is no ledger: a write that arrives again, or after a
later one, changes nothing.
"""

from __future__ import annotations

import logging
import random
import re
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, PREIMAGE, REVISION
from streamops.kernel.columns import take
from streamops.kernel.databases import public_path, secrets_of
from streamops.kernel.errors import SinkError, located
from streamops.kernel.parameters import require_columns
from streamops.kernel.prompt import prompt
from streamops.kernel.time import format_duration
from streamops.kernel.versions import to_arrow
from streamops.sinks import conditions
from streamops.sinks.core import versions
from streamops.sinks.core.versions import OLDER, WRITTEN, Again, Refused, Tie
from streamops.sinks.protocol import CheckedTarget
from streamops.sinks.sink import BatchWriter, hide, refuse_side_output
from streamops.spark.columns import column, refuse_duplicates, spark_schema
from streamops.spark.identity import Identity
from streamops.spark.json_columns import text_in_json, to_json_and_validity

_LOG = logging.getLogger("streamops.sinks")
_RECEIPT = pa.schema(
    [
        ("written", pa.int64()),
        ("older", pa.int64()),
        ("rejected", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.string()),
    ]
)
_KEY_TYPES = (
    T.StringType,
    T.IntegralType,
    T.DecimalType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.BinaryType,
)
_SECRET = re.compile("passw|secret|token|key|auth|credential", re.IGNORECASE)
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
_FAILURE = re.compile(r"SinkError: \[(TARGET_\w+)\][^\n]*\n +got: +([^\n]*)")


def _show(micros: int) -> str:
    return repr(format_duration(micros))


class Busy(Exception):
    """The store did not take a request, and may take it later."""


class _Pause:
    """Waits between attempts, each longer than the one before, for so many microseconds."""

    def __init__(self, patience: int) -> None:
        self._end, self._wait = time.monotonic() + patience / 1e6, _FIRST_WAIT

    def sleep(self) -> bool:
        """Wait, and return whether to try again."""
        if time.monotonic() + self._wait > self._end:
            return False
        time.sleep(self._wait * random.uniform(0.5, 1))
        self._wait = min(2 * self._wait, _LONGEST_WAIT)
        return True


@dataclass(frozen=True, kw_only=True, repr=False)
class VersionedStore(BatchWriter):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    key_bytes: ClassVar[tuple[int, int] | None] = None
    system: ClassVar[str]
    schemes: ClassVar[tuple[str, ...]]
    own_options: ClassVar[frozenset[str]]

    key: tuple[str, ...]
    sequence: tuple[str, ...] | None
    rejected: BatchWriter | None
    request_rows: int
    request_bytes: int
    timeout: int = field(metadata={"shown": _show})
    patience: int = field(metadata={"shown": _show})
    horizon: int = field(metadata={"shown": _show})
    client: Mapping[str, Any] = field(metadata={"shown": lambda client: repr(sorted(client))})

    def __post_init__(self) -> None:
        """Validate the parameters."""
        for address in self.addresses:
            text = str(address)
            if not text.startswith(self.schemes) or text in self.schemes:
                raise conditions.ADDRESS_UNSUPPORTED.error(
                    target=self.system, schemes=", ".join(self.schemes), got=public_path(text)
                )
        own = sorted(self.own_options & set(self.client))
        if own:
            raise conditions.OPTION_RESERVED.error(got=f"client with {', '.join(own)}")
        if self.rejected is not None and not isinstance(self.rejected, BatchWriter):
            raise conditions.NOT_A_SINK.error(parameter="rejected", got=repr(self.rejected))
        for parameter in ("request_rows", "request_bytes"):
            value = getattr(self, parameter)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise conditions.REQUEST_SIZE.error(parameter=parameter, got=repr(value))
        if self.horizon <= self.patience + self.timeout:
            raise conditions.HORIZON_TOO_SHORT.error(got=f"horizon={format_duration(self.horizon)}")

    @property
    @abstractmethod
    def target(self) -> str:
        """What the sink writes to, for people."""

    @property
    @abstractmethod
    def addresses(self) -> tuple[str, ...]:
        """Where the store is."""

    @abstractmethod
    def _connect(self) -> Any:
        """A client. It need not be connected yet."""

    @abstractmethod
    def _inspect(self, client: Any, *, create: bool, schema: T.StructType | None) -> Sequence[str]:
        """Return what does not exist, and create it for these rows if requested. Refuse what does not fit. Raises `Busy`."""

    @abstractmethod
    def _requests(
        self, writes: pa.Table, instead: Sequence[str] | None = None
    ) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        """What is sent for each write, and its bytes. `instead`: the rows of the same versions that they replace."""

    @abstractmethod
    def _send(self, client: Any, requests: pa.Table) -> list[str]:
        """Send a request, and return what became of each row. Raises `Busy` if nothing did."""

    def _checked(self) -> Iterator[CheckedTarget]:
        with located(self.label), self._client() as client:
            creates = tuple(self._look(client, create=False, patience=0))
        yield CheckedTarget(
            sink=self.label, target=self.target, creates=creates, entry=None, has_ledger=False
        )
        if self.rejected is not None:
            yield from self.rejected._checked()

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        with located(self.label):
            rows = self._plan(batch)
            with self._client() as client:
                self._look(client, create=True, patience=self.patience, schema=batch.schema)
            sink = replace(self, rejected=None)
            write = partial(
                _write_rows, sink, self._orders_by_revision(batch), self.rejected is not None
            )
            receipts = rows.mapInArrow(prompt(write), spark_schema(_RECEIPT))
        if self.rejected is None:
            self._account(receipts)
            return
        receipts = receipts.persist()
        try:
            self._account(receipts.where("row IS NULL"))
            rejected = receipts.where("row IS NOT NULL").select(
                F.lit(self.label).alias("operator"),
                F.lit("rejected").alias("output"),
                "reason",
                "row",
            )
            self.rejected._deliver(rejected, batch_id, identity)
        finally:
            receipts.unpersist()

    def _look(
        self, client: Any, *, create: bool, patience: int, schema: T.StructType | None = None
    ) -> Sequence[str]:
        """Inspect the store, again while it is busy."""
        pause = _Pause(patience)
        while True:
            try:
                return self._inspect(client, create=create, schema=schema)
            except Busy as error:
                if not pause.sleep():
                    raise self._error(conditions.STORE_UNAVAILABLE, error) from None

    def _account(self, receipts: DataFrame) -> None:
        """Run the tasks. Rows that were refused are an error if there is no sink for them."""
        with located(self.label):
            try:
                found = to_arrow(receipts)
            except Exception as error:  # PySpark's own errors differ between classic and Connect
                raise self._failure(error) from None
            written, older, rejected = (
                sum(found.column(name).to_pylist()) for name in ("written", "older", "rejected")
            )
            _LOG.info("%s: %d written, %d older, %d rejected", self.label, written, older, rejected)
            if rejected and self.rejected is None:
                first = next(filter(None, found.column("reason").to_pylist()))
                raise conditions.ROWS_REJECTED.error(
                    target=self.system, got=f"{rejected:,} rows; the first: {first}"
                )

    def _failure(self, error: Exception) -> Exception:
        """The error of a task, without the traceback of its process."""
        found = _FAILURE.search(str(error))
        if found is None:
            return error
        known = conditions.STORE_UNAVAILABLE, conditions.STORE_REFUSED, conditions.EVICTS
        make: Any = {of.code: of for of in known}[found[1]]
        return cast("SinkError", make.error(target=self.system, got=found[2]))

    def _plan(self, batch: DataFrame) -> DataFrame:
        """Text of the key, sequence, change type, validity and JSON of each row."""
        refuse_duplicates(batch)
        refuse_side_output(batch)
        require_columns(batch.columns, {"key": self.key, "sequence": self.sequence or ()})
        self._refuse_names(batch.columns)
        dtypes = {f.name: f.dataType for f in batch.schema.fields}
        sequence = self._sequence_of(batch)
        change: Column = F.lit(INSERT)
        if CHANGE_TYPE in dtypes:
            change = column(CHANGE_TYPE)
            batch = batch.where(~change.eqNullSafe(F.lit(PREIMAGE)))
        fields = [f for f in batch.schema.fields if f.name != CHANGE_TYPE]
        row = F.struct(*(column(f.name) for f in fields))
        text, is_invalid = to_json_and_validity(row, T.StructType(fields))
        return batch.select(
            self._key_text(dtypes).alias(versions.KEY),
            sequence.alias(versions.SEQUENCE),
            change.alias(versions.CHANGE),
            (F.lit(True) if is_invalid is None else ~is_invalid).alias(versions.IS_TEXT),
            text.alias(versions.DOCUMENT),
        )

    def _refuse_names(self, names: Sequence[str]) -> None:
        """Refuse columns with names that the store uses itself."""

    def _key_text(self, dtypes: dict[str, T.DataType]) -> Column:
        """The text of a key: of one column as it is, of several with colons between them."""
        texts = []
        for name in self.key:
            if not isinstance(dtypes[name], _KEY_TYPES):
                raise conditions.NOT_A_SQL_TYPE.error(
                    column=name, got=f"{name!r} of type {dtypes[name].simpleString()}"
                )
            text = F.when(column(name).isNotNull(), text_in_json(column(name), dtypes[name]))
            if len(self.key) > 1:
                text = F.replace(
                    F.replace(text, F.lit("%"), F.lit("%25")), F.lit(":"), F.lit("%3A")
                )
            texts.append(text)
        # concat_ws skips nulls.
        return F.concat(texts[0], *(F.concat(F.lit(":"), text) for text in texts[1:]))

    def _sequence_names(self, names: Sequence[str]) -> tuple[str, ...]:
        if self.sequence is None and REVISION not in names:
            raise conditions.NO_REVISION.error(column=REVISION, got=f"columns {', '.join(names)}")
        return self.sequence or (REVISION,)

    def _orders_by_revision(self, batch: DataFrame) -> bool:
        return self._sequence_names(batch.columns) == (REVISION,)

    def _sequence_of(self, batch: DataFrame) -> Column:
        """The sequence as one integer."""
        names = self._sequence_names(batch.columns)
        dtypes = [batch.schema[name].dataType for name in names]
        value = column(names[0])
        if len(names) == 1 and isinstance(dtypes[0], T.IntegralType):
            return value.cast("bigint")
        if len(names) == 1 and isinstance(dtypes[0], T.TimestampType):
            return F.unix_micros(value)
        types = ", ".join(dtype.simpleString() for dtype in dtypes)
        raise conditions.VERSION_TYPE.error(got=f"{', '.join(names)} of type {types}")

    @contextmanager
    def _client(self) -> Iterator[Any]:
        """A client, in whose errors are no secrets."""
        secrets = [text for url in self.addresses for text in secrets_of(url)]
        with hide(*secrets, *secrets_in(self.client)):
            client = self._connect()
            try:
                yield client
            finally:
                client.close()

    def write_rows(
        self, rows: Iterator[pa.RecordBatch], *, by_revision: bool, routes: bool
    ) -> Iterator[pa.RecordBatch]:
        """Write planned rows, and return receipts; with `routes`, also the rows that were refused."""
        with self._client() as client:
            for batch in rows:
                writes = versions.find_writes(
                    batch, by_revision=by_revision, key_bytes=self.key_bytes
                )
                answers = np.array(self._write(client, writes.latest), object)
                refused = np.flatnonzero((answers != WRITTEN) & (answers != OLDER))
                rejected = pa.concat_tables(
                    [
                        writes.invalid.cast(_REJECTED),
                        pa.table(
                            {
                                "reason": pa.array(answers[refused], pa.string()),
                                "row": take(writes.latest, refused).column(versions.DOCUMENT),
                            }
                        ).cast(_REJECTED),
                    ]
                )
                counts = [np.sum(answers == WRITTEN), np.sum(answers == OLDER), len(rejected)]
                yield _receipt(counts, None if routes else rejected)
                if routes:
                    yield from _routed(rejected)

    def _write(
        self, client: Any, writes: pa.Table, instead: Sequence[str] | None = None
    ) -> list[str]:
        """Write rows, and return what became of each. Of a tie, the row with the higher rank stays."""
        requests, sizes = self._requests(writes, instead)
        answers: list[str] = []
        for part in versions.cut(sizes, rows=self.request_rows, size=self.request_bytes):
            answers += self._send_all(client, requests.slice(part.start, part.stop - part.start))
        replaced = {}
        for at, answer in enumerate(answers):
            if isinstance(answer, Tie):
                own = versions.rank(writes.column(versions.DOCUMENT)[at].as_py())
                try:
                    stored = versions.rank(answer)
                except ValueError:
                    answers[at] = "the store has a value of the same version that is no row in JSON"
                    continue
                answers[at] = WRITTEN if own == stored else OLDER
                if own > stored:
                    replaced[at] = str(answer)
        if replaced:
            rows = take(writes, np.array([*replaced]))
            found = self._write(client, rows, [*replaced.values()])
            for at, answer in zip(replaced, found, strict=True):
                answers[at] = answer
        return answers

    def _send_all(self, client: Any, requests: pa.Table) -> list[str]:
        """Send rows until there is an answer to each. Wait longer each time that the store is busy."""
        answers: list[str] = [""] * len(requests)
        left = np.arange(len(requests))
        pause = _Pause(self.patience)
        while True:
            try:
                found = self._send(client, take(requests, left))
                cause = next((a for a in found if isinstance(a, Again)), "")
            except Busy as error:
                found, cause = [Again("")] * len(left), str(error)
            refused = next((a for a in found if isinstance(a, Refused)), None)
            if refused is not None:
                raise self._error(conditions.STORE_REFUSED, refused)
            for at, answer in zip(left.tolist(), found, strict=True):
                answers[at] = answer
            again = np.array([isinstance(answer, Again) for answer in found], np.bool_)
            if not again.all():  # it takes some
                pause = _Pause(self.patience)
            left = left[again]
            if not len(left):
                return answers
            if not pause.sleep():
                raise self._error(conditions.STORE_UNAVAILABLE, cause)

    def _error(self, condition: Any, cause: object) -> SinkError:
        text = " ".join(str(cause).split())
        error: SinkError = condition.error(target=self.system, got=text)
        return error


def secrets_in(options: Any, name: str = "password") -> list[str]:
    """Texts in options of a client that may be secrets, by the names of the options."""
    if isinstance(options, Mapping):
        return [
            text
            for n, value in options.items()
            if _SECRET.search(n)
            for text in secrets_in(value, n)
        ]
    if name == "http_auth":  # user and password
        parts = options.partition(":")[2:] if isinstance(options, str) else options[1:]
        return [str(part) for part in parts]
    return [options] if isinstance(options, str) else []


_REJECTED = pa.schema([("reason", pa.string()), ("row", pa.string())])


def _write_rows(
    sink: VersionedStore, by_revision: bool, routes: bool, rows: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return sink.write_rows(rows, by_revision=by_revision, routes=routes)


def _receipt(counts: Sequence[int], rejected: pa.Table | None) -> pa.RecordBatch:
    first = rejected.column("reason")[0].as_py() if rejected else None
    values = [*counts, first, None]
    return pa.record_batch(
        [pa.array([value], f.type) for value, f in zip(values, _RECEIPT, strict=True)],
        schema=_RECEIPT,
    )


def _routed(rejected: pa.Table) -> Iterator[pa.RecordBatch]:
    zeros = pa.array(np.zeros(len(rejected), np.int64))
    columns = [zeros, zeros, zeros, *rejected.columns]
    yield from pa.table(columns, schema=_RECEIPT).to_batches()
