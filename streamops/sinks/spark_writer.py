"""Write micro-batches with the connector of a table format that the session has, each exactly once."""

from __future__ import annotations

import re
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from streamops.changelog.change_types import CHANGE_TYPE, FAULTS
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import StreamopsError, located
from streamops.kernel.prompt import prompt
from streamops.kernel.versions import to_arrow
from streamops.sinks import conditions, connectors
from streamops.sinks.core.ledger import Decision, Delivery, Entry
from streamops.sinks.core.net import Net, codes_of, compute_net, content_columns, form_of
from streamops.sinks.lake import LakeTable
from streamops.sinks.protocol import Attempt, Conflict, Found
from streamops.sinks.sink import columns_differ, refused, type_differs
from streamops.sinks.tasks import RECEIPT, Counted, Projection, Receipts, add_up, encode, in_groups
from streamops.spark.columns import map_type, quote
from streamops.spark.identity import Identity, parallelism

_MOST_BYTES = 32 << 20
"""About how many bytes of rows a task reduces at a time."""

_MISSING = re.compile(
    "TABLE_OR_VIEW_NOT_FOUND|PATH_(NOT_FOUND|DOES_NOT_EXIST)|DELTA_(MISSING_DELTA_)?TABLE"
)
_INTEGERS = ["tinyint", "smallint", "int", "bigint"]
_FAULT = re.compile(r"streamops:([A-Z_]+):(\{.*\})")


@dataclass(frozen=True, kw_only=True)
class Delivered(Receipts):
    """A micro-batch whose net effect tasks hold, and the session in which it is written."""

    frame: DataFrame
    session: SparkSession


class SparkAttempt(Attempt):
    """An attempt to commit a micro-batch with a connector."""

    def __init__(self, sink: SparkSink, content: Delivered, found: Found) -> None:
        self.sink, self.content, self.found = sink, content, found

    def write(self, decision: Decision) -> None:
        """Apply the micro-batch and the entry in one commit of the connector."""
        self.sink._write(self.content, decision, self.found.entry)


@dataclass(frozen=True, kw_only=True, repr=False)
class SparkSink(LakeTable):
    """A sink whose rows are written by a connector in the session of the micro-batch."""

    conflicts: ClassVar[re.Pattern[str]]
    """In the text of errors: another writer has committed first."""

    def __post_init__(self) -> None:
        """Refuse what the connectors do not do in one commit."""
        super().__post_init__()
        if self.columns == "add":
            raise conditions.SPARK_WRITER_COLUMNS.error(got='columns="add"')

    def _deliver_projection(
        self, projection: Projection, batch_id: int, identity: Identity
    ) -> None:
        batch = projection.frame
        session = connectors.clone(batch.sparkSession, self.session)
        if form_of(batch.columns, self.key) == "multiset":
            got = f"columns {', '.join(batch.columns)}, and no key"
            raise conditions.SPARK_WRITER_MULTISET.error(got=got)
        sequence = self._sequence_of(batch.columns)
        values = _nullable([f for f in batch.schema.fields if f.name != CHANGE_TYPE])
        with located(self.label), self.session.exclusive():
            with self._errors():
                partitions = self._fit(session, values)
            if self.key:
                batch = batch.repartition(parallelism(batch), *map(quote, self.key))
            reduce = partial(_reduce, self.key, sequence, partitions)
            reduced = batch.mapInArrow(prompt(reduce), _reduced_type(values)).persist()
            try:
                found = to_arrow(reduced.where("receipt IS NOT NULL").select("receipt.*"))
                counted = add_up(pa.schema([(name, pa.null()) for name in batch.columns]), found)
                facts = counted.schema, counted.rows, counted.size, counted.digest, counted.parts
                rows = reduced.where("receipt IS NULL")
                former = counted.former_digest
                content = Delivered(*facts, former_digest=former, frame=rows, session=session)
                self._accept(content, batch_id, identity)
            finally:
                reduced.unpersist()

    def _reduce(self, content: Any) -> Any:
        return content

    @contextmanager
    def _attempt(self, content: Any, delivery: Delivery) -> Iterator[SparkAttempt]:
        with self._errors():
            found = self._find(content.session, delivery)
            self._refuse_removed(found, delivery)
            own = found.entry
            is_known = own is not None and own.query == delivery.query
            others = {} if is_known else self._others(content.session)
            yield SparkAttempt(self, content, Found(own, others=others))

    def _fit(self, spark: SparkSession, values: StructType) -> list[str]:
        """Refuse rows that the table does not take as they are, and return the partitions by text."""
        if not self._exists(spark):
            if self.missing == "refuse":
                raise conditions.TABLE_MISSING.error(statement="", got=self._label)
            spark.createDataFrame([], values).writeTo(self._table).using(self._format).create()
        table = spark.table(self._table)
        known = {field.name: field.dataType.simpleString() for field in table.schema.fields}
        new = [name for name in values.names if name not in known]
        if new:
            raise columns_differ(new, (), list(known))
        for field in values.fields:
            got, found = field.dataType.simpleString(), known[field.name]
            is_wider = {got, found} <= {*_INTEGERS} and _INTEGERS.index(got) < _INTEGERS.index(
                found
            )
            if got != found and not is_wider:
                raise type_differs(field.name, got, found, got)
        partitions = self._partitions(spark)
        return [name for name in partitions if known[name] == "string" and name in values.names]

    def _apply(
        self, content: Delivered, decision: Decision, table: str, settings: Mapping[str, str]
    ) -> None:
        """Write the rows with one statement, whose session has these settings."""
        session, view = content.session, f"streamops_{uuid.uuid4().hex}"
        rows = content.frame.withColumn("_row", F.coalesce("added", "removed"))
        rows.createGlobalTempView(view)
        try:
            for name, value in settings.items():
                session.conf.set(name, value)
            source = f"{session.conf.get('spark.sql.globalTempDatabase')}.{view}"
            if self.key is not None and decision.action == "write" and content.rows:
                session.sql(self._statement(content.schema.names, table, source))
            else:
                _add(session.table(source), decision, table)
        finally:
            session.catalog.dropGlobalTempView(view)
            for name in settings:
                session.conf.unset(name)

    def _statement(self, names: Sequence[str], table: str, view: str) -> str:
        """Apply the net effect by key, and raise an error if it contradicts the table."""
        key, sequence = self.key or (), self._sequence_of(names)
        first, *others = [*key, *(n for n in names if n not in {*key, CHANGE_TYPE})]
        columns = ", ".join(map(quote, [first, *others]))
        put = ", ".join(f"_t.{quote(n)} = _s.added.{quote(n)}" for n in [first, *others])

        def insert(value: str) -> str:
            return f"INSERT ({columns}) VALUES ({', '.join([value, *_fields('_s.added', others)])})"

        def fault(code: str) -> str:
            row = f"to_json({_struct('_s._row', key)})"
            return f"coalesce(raise_error(concat('streamops:{code}:', {row})), {found})"

        (found,), (added,) = _fields("_s._row", [first]), _fields("_s.added", [first])
        same = " AND ".join(f"_t.{quote(n)} <=> _s._row.{quote(n)}" for n in key)
        if form_of(names, self.key) == "upsert":
            newer = f" AND {_struct('_s.added', sequence)} > {_struct('_t', sequence)}"
            cases = [
                f"MATCHED{newer if sequence else ''} THEN UPDATE SET {put}",
                f"NOT MATCHED THEN {insert(added)}",
            ]
        else:
            content = content_columns([first, *others], sequence)
            is_equal = f"{_struct('_s.removed', content)} <=> {_struct('_t', content)}"
            refuse = f"THEN UPDATE SET _t.{quote(first)} ="
            unpublished = fault("PREIMAGE_NOT_PUBLISHED")
            cases = [
                f"MATCHED AND _s.removed IS NULL {refuse} {fault('INSERTED_TWICE')}",
                f"MATCHED AND _s.must_match AND NOT ({is_equal}) {refuse} {unpublished}",
                "MATCHED AND _s.added IS NULL THEN DELETE",
                f"MATCHED THEN UPDATE SET {put}",
                f"NOT MATCHED AND _s.must_match THEN {insert(unpublished)}",
                f"NOT MATCHED AND _s.removed IS NOT NULL THEN {insert(fault('DELETED_UNPUBLISHED'))}",
                f"NOT MATCHED THEN {insert(added)}",
            ]
        return " WHEN ".join([f"MERGE INTO {table} _t USING {view} _s ON {same}", *cases])

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            spark = connectors.active_session()
            found = self._find(spark, None) if self._exists(spark) else None
            return None if found is None or found.removed_by else found.entry

    def _inspect(self) -> tuple[str, list[str], Entry | None]:
        label = f"table {self._label!r}"
        with self._errors():
            exists = self._exists(connectors.active_session())
        if not exists and self.missing == "refuse":
            raise conditions.TABLE_MISSING.error(statement="", got=self._label)
        return label, [] if exists else [label], self._read_ledger()

    def _exists(self, spark: SparkSession) -> bool:
        try:
            connectors.relation(spark.table(self._table))
        except AnalysisException as error:
            if _MISSING.search(str(error)):
                return False
            raise
        return True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in {"py4j", "pyspark"}:
                raise
            text = str(error)
            fault = _FAULT.search(text)
            if fault is not None:
                raise FAULTS[fault[1]].error(got=fault[2]) from None
            if self.conflicts.search(text):
                raise Conflict(refused("the table", error)) from None
            raise refused("the table", error) from error

    @property
    @abstractmethod
    def _format(self) -> str:
        """The name of the format in Spark."""

    @property
    @abstractmethod
    def _table(self) -> str:
        """The name of the table in SQL."""

    @property
    @abstractmethod
    def _label(self) -> str:
        """The name of the table in errors."""

    @abstractmethod
    def _partitions(self, spark: SparkSession) -> list[str]:
        """The columns by whose values the files of the table are partitioned."""

    @abstractmethod
    def _find(self, spark: SparkSession, delivery: Delivery | None) -> Any:
        """The entry that belongs to the rows of the table, and what has removed them."""

    @abstractmethod
    def _others(self, spark: SparkSession) -> dict[str, Entry]:
        """The entries of other sinks."""

    @abstractmethod
    def _write(self, content: Delivered, decision: Decision, entry: Entry | None) -> None:
        """Write rows and the entry in one commit, after the one with `entry`; otherwise raise Conflict."""


def _nullable(fields: Sequence[StructField]) -> StructType:
    return StructType([StructField(f.name, map_type(f.dataType, relax=True)) for f in fields])


def _reduced_type(values: StructType) -> StructType:
    types: list[Any] = [values, values, "boolean", StructType.fromDDL(RECEIPT)]
    result = StructType()
    for name, dtype in zip(_REDUCED, types, strict=True):
        result = result.add(name, dtype)
    return result


_REDUCED = ["added", "removed", "must_match", "receipt"]
_NO_RECEIPT = Counted(iter(())).receipt([], "").to_struct_array().slice(0, 0)


def _reduce(
    key: tuple[str, ...] | None,
    sequence: tuple[str, ...],
    partitions: Sequence[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the net effect of the rows of a task, and then a receipt."""
    tables = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
    first = next(tables, None)
    if first is None:
        return
    counted = Counted(chain([first], tables))
    error = ""
    try:
        for rows in in_groups(counted, key, size=_MOST_BYTES) if key else counted:
            _refuse_empty_text(rows, partitions)
            yield _align(compute_net(rows, key=key, sequence=sequence), key or ())
    except StreamopsError as raised:  # which would be the same at the next attempt
        error = encode(raised)
    none = pa.nulls(1, pa.struct([part for part in first.schema if part.name != CHANGE_TYPE]))
    receipt = counted.receipt([{}], error).to_struct_array()
    yield pa.RecordBatch.from_arrays([none, none, pa.nulls(1, pa.bool_()), receipt], _REDUCED)


def _align(net: Net, key: Sequence[str]) -> pa.RecordBatch:
    """The net effect as rows: what is removed, and what is added instead."""
    added, removed = _structs(net.added), _structs(net.removed)
    rows = len(removed) + int((~net.replaces).sum())
    if len(removed):
        by_removed, by_added = codes_of([net.removed, net.added], key)
        order = np.argsort(by_added)
        at = np.searchsorted(by_added[order], by_removed).clip(max=max(len(order) - 1, 0))
        instead = added.take(pa.array(order[at] if len(order) else at, mask=~net.is_replaced))
        added = pa.concat_arrays([instead, added.filter(pa.array(~net.replaces))])
    missing = rows - len(removed)
    removed = pa.concat_arrays([removed, pa.nulls(missing, removed.type)])
    must_match = np.append(net.must_match, np.zeros(missing, np.bool_))
    receipt = pa.nulls(rows, _NO_RECEIPT.type)
    return pa.RecordBatch.from_arrays([added, removed, pa.array(must_match), receipt], _REDUCED)


def _structs(rows: pa.Table) -> pa.StructArray:
    return pa.StructArray.from_arrays(
        [combine_chunks(column) for column in rows.columns], fields=list(rows.schema)
    )


def _refuse_empty_text(rows: pa.Table, partitions: Sequence[str]) -> None:
    """Refuse an empty text as the value of a partition, which is read as null."""
    for name in partitions:
        if pc.any(pc.equal(rows.column(name), "")).as_py():
            got, expected = "a partition by an empty text, which is read as null", "other text"
            raise type_differs(name, got, "string", expected)


def _add(rows: DataFrame, decision: Decision, table: str) -> None:
    """Add the rows to a table, after all others are removed if they are to be replaced."""
    lost = rows.where("removed IS NOT NULL")
    for row in lost.limit(1).collect() if decision.action == "replace" else []:
        code = "PREIMAGE_NOT_PUBLISHED" if row.must_match else "DELETED_UNPUBLISHED"
        raise FAULTS[code].error(got=str(row.removed.asDict()))
    added = rows.where("added IS NOT NULL").select("added.*")
    if decision.action == "replace":
        added.writeTo(table).overwrite(F.lit(True))
    else:
        (added.limit(0) if decision.action == "skip" else added).writeTo(table).append()


def _fields(of: str, names: Sequence[str]) -> list[str]:
    return [f"{of}.{quote(name)}" for name in names]


def _struct(of: str, names: Sequence[str]) -> str:
    return f"struct({', '.join(_fields(of, names))})"
