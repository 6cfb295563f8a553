"""Read the state stores of a checkpoint through Spark's public source, and write new ones.

Spark has no public way to write a state store. Stores are written by Spark's own classes, on the driver of
a classic session, so each version of Spark has to be tested: see :data:`TESTED`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, NullType, StringType, StructField, StructType

from streamops.environment.requirements import numbers
from streamops.kernel.errors import CheckpointError
from streamops.kernel.versions import require_state_reader, to_arrow
from streamops.spark.starting import VARIABLE, load_state
from streamops.spark.state_rows import SEGMENTS, STATE_SCHEMA
from streamops.spark.step import Stored
from streamops.state import conditions
from streamops.state.checkpoint import HDFS_STATE, Checkpoint, OperatorFiles, provider_of
from streamops.state.shards import StoredShard

TESTED: tuple[tuple[int, int], ...] = ((4, 3),)
"""Versions of Spark whose state stores are written. Others may have other classes and files."""

STORE = "default"
"""Name of the state store of an operator."""

_NAMES = tuple(field.split(" ")[0] for field in STATE_SCHEMA.split(", "))
_KEY_TO_TIME, _TIME_TO_KEY = "$eventTimers_keyToTimestamp", "$eventTimers_timestampToKey"
_TIMEOUT = "timeoutTimestamp"
STATE = "org.apache.spark.sql.execution.streaming.state"
"""Package of Spark's state stores."""
_MIN_DELTAS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"

_SHARD = StructType([StructField("shard", IntegerType())])
_EXPIRY = StructField("expiryTimestampMs", LongType(), nullable=False)
_BY_KEY = StructType([StructField("key", _SHARD), _EXPIRY])
_BY_TIME = StructType([_EXPIRY, StructField("key", _SHARD)])
_NUMBER = StructType([StructField("number", LongType())])
_SEGMENT_KEY = StructType([StructField("key", _SHARD), StructField("userKey", _NUMBER)])
_SEGMENT = StructType([StructField("blob", StringType())])
_NO_VALUE = StructType([StructField("__dummy__", NullType())])
_TYPES = {"bigint": LongType(), "string": StringType()}
_VALUE = StructType(
    [StructField(name, _TYPES[of]) for name, of in map(str.split, STATE_SCHEMA.split(", "))]
)


def _group_value(has_timers: bool) -> StructType:
    """The value of ``applyInPandasWithState``."""
    state, timeout = StructField("groupState", _VALUE), StructField(_TIMEOUT, LongType())
    return StructType([state, timeout] if has_timers else [state])


def session_or_new(spark: SparkSession | None) -> SparkSession:
    """The session, the running one, or a new local one."""
    from streamops.environment.session import local_session

    return spark or SparkSession.getActiveSession() or local_session(app_name="streamops state")


def read_rows(
    spark: SparkSession, path: str, operator: int, batch: int | None
) -> tuple[DataFrame, bool]:
    """The state of an operator, and whether its rows have a timeout.

    Columns are ``shard``, those of the state, ``timer``, and ``partition``. The timers of ``transformWithState`` are not among them: see :func:`read_shards`.

    Raises
    ------
    CheckpointError
        ``FOREIGN_OPERATOR``.
    RequirementError
        ``VERSION_NOT_SUPPORTED``: Spark cannot read state stores.
    """
    require_state_reader()
    frame = load_state(spark, path, operator, batch)
    names = list(_NAMES)
    value: Any = frame.schema["value"].dataType
    key: Any = frame.schema["key"].dataType
    found = value["groupState"].dataType if "groupState" in value.names else value
    if getattr(found, "names", None) != names or key.names != ["shard"]:
        raise conditions.FOREIGN_OPERATOR.error(
            where=path,
            state_schema=STATE_SCHEMA,
            got=f"operator {operator} with the state {found.simpleString()}",
        )
    state = F.col("value")["groupState"] if found is not value else F.col("value")
    has_timeout = found is not value and _TIMEOUT in value.names
    timer = F.col("value")[_TIMEOUT] if has_timeout else F.lit(None).cast("bigint")
    rows = frame.select(
        F.col("key")["shard"].alias("shard"),
        *(state[name].alias(name) for name in names),
        timer.alias("timer"),
        F.col("partition_id").alias("partition"),
    )
    return rows, has_timeout


def read_segments(
    spark: SparkSession, path: str, operator: int, batch: int | None
) -> DataFrame | None:
    """The segments of an operator: ``shard``, ``number`` and ``blob``; None if it cannot have any."""
    reader = spark.read.format("statestore").option("operatorId", operator)
    if batch is not None:
        reader = reader.option("batchId", batch)
    try:
        frame = reader.option("stateVarName", SEGMENTS).load(path)
        _ = frame.schema  # Connect loads nothing before
    except Exception as error:
        if "stateVarName" not in str(error):
            raise
        return None
    return frame.select(
        F.col("key")["shard"].alias("shard"),
        F.col("user_map_key")["number"].alias("number"),
        F.col("user_map_value")["blob"].alias("blob"),
    )


def may_be_ours(operator: OperatorFiles) -> bool:
    """Whether an operator of the query may be one of streamops, by Spark's metadata."""
    if operator.has_variables:
        return VARIABLE in operator.variables
    return operator.api == "applyInPandasWithState"


@dataclass(frozen=True, slots=True)
class StoredOperator:
    """The stored shards of an operator.

    Parameters
    ----------
    files : OperatorFiles
        The operator.
    rows : list of StoredShard
        Its shards.
    has_timers : bool
        Whether a shard has a timer or a timeout.
    """

    files: OperatorFiles
    rows: list[StoredShard]
    has_timers: bool


def read_shards(
    spark: SparkSession, checkpoint: Checkpoint, operator: OperatorFiles
) -> StoredOperator | None:
    """The shards of an operator in the last committed micro-batch, with their timers.

    None if it is not an operator of streamops.
    """
    path, last = str(checkpoint.path), checkpoint.last
    if not may_be_ours(operator):
        return None
    try:
        stored, has_timeout = read_rows(spark, path, operator.number, last)
    except CheckpointError as error:
        if error.code == "FOREIGN_OPERATOR":
            return None
        raise
    timers: dict[int, int] = {}
    has_timers, has_segments = (name in operator.variables for name in (_KEY_TO_TIME, SEGMENTS))
    if has_timers:
        frame = (
            spark.read.format("statestore")
            .option("operatorId", operator.number)
            .option("batchId", last)
            .option("readRegisteredTimers", True)
            .load(path)
        )
        rows = frame.select(F.col("key")["shard"], F.col("expiration_timestamp_ms")).collect()
        timers = {row[0]: row[1] for row in rows}
        if len(timers) < len(rows):
            raise conditions.TIMERS_CONTRADICT.error(
                where=f"{path}, operator {operator.number}",
                got=f"{len(rows)} timers of {len(timers)} shards",
            )
    segments: dict[int, dict[int, str]] = defaultdict(dict)
    found = read_segments(spark, path, operator.number, last) if has_segments else None
    for row in [] if found is None else to_arrow(found).to_pylist():
        segments[row["shard"]][row["number"]] = row["blob"]
    shards = [
        StoredShard(
            row["shard"],
            Stored(*(row[name] for name in _NAMES)),
            timers.get(row["shard"]) if operator.has_variables else row["timer"],
            row["partition"],
            segments[row["shard"]],
        )
        for row in to_arrow(stored).to_pylist()
    ]
    return StoredOperator(operator, shards, has_timers or has_timeout)


def require_writable(spark: SparkSession) -> None:
    """Refuse a session that cannot write state stores.

    Raises
    ------
    RequirementError
        ``SESSION_TYPE``, ``VERSION_NOT_SUPPORTED``.
    """
    if not hasattr(spark, "_jsparkSession"):
        raise conditions.CLASSIC_SESSION_REQUIRED.error(got="a session of Spark Connect")
    if numbers(spark.version)[:2] not in TESTED:
        raise conditions.SPARK_NOT_TESTED.error(
            expected=" or ".join((f"Spark {major}.{minor}" for major, minor in TESTED)),
            got=f"Spark {spark.version}",
        )


def partitions_of(spark: SparkSession, shards: int, partitions: int) -> list[int]:
    """The partition of each shard, as the shuffle of a stream assigns it."""
    number = F.pmod(F.hash(F.col("id").cast("int")), F.lit(partitions))
    rows = spark.range(shards).select("id", number.alias("partition")).collect()
    return [row["partition"] for row in sorted(rows, key=lambda row: row["id"])]


class StoreWriter:
    """Write the state stores of an operator into a new checkpoint.

    Parameters
    ----------
    spark : SparkSession
        A classic session. Settings of the checkpoint are used in a session of its own.
    settings : mapping of str to str
        Those that the query is bound to.
    last : int
        The last committed micro-batch.
    to : Path
        The new checkpoint.
    """

    def __init__(
        self, spark: SparkSession, settings: Mapping[str, str], last: int, to: Path
    ) -> None:
        self._spark: Any = spark.newSession()
        for key, value in settings.items():
            self._spark.conf.set(key, value)
        self._spark.conf.set(_MIN_DELTAS, "1")  # a snapshot at once
        self._provider = provider_of(settings)
        self._root = to / "state"
        self._next = last + 1
        java: Any = self._spark._jvm
        self._classes = getattr(java, STATE)
        state = self._spark._jsparkSession.sessionState()
        self._conf = self._classes.StateStoreConf.apply(state.conf())
        self._hadoop = state.newHadoopConf()
        # As a query sets it; the class refuses a configuration without one.
        self._run = java.java.util.UUID.randomUUID()
        self._hadoop.set("sql.streaming.runId", str(self._run))

    def write(self, of: StoredOperator, partition: int, rows: Sequence[StoredShard]) -> None:
        """Write the store of one partition, which may have no rows."""
        value = _VALUE if of.files.has_variables else _group_value(of.has_timers)
        with self._provide(of.files, partition, value) as provider:
            is_hdfs = self._provider == HDFS_STATE
            # RocksDB starts from an empty store of any version; the other store from version 0.
            store = (
                provider.getStore(0, self._none, True, False)
                if is_hdfs
                else provider.getStore(self._next - 1, self._none, True, True)
            )
            try:
                if of.files.has_variables:
                    self._put_variables(store, rows, of)
                else:
                    self._put_groups(store, rows, value)
                store.commit()
            except BaseException:
                # Closing a store that is neither committed nor aborted waits for two minutes.
                store.abort()
                raise
            # Writes the snapshot, and for RocksDB uploads it.
            provider.doMaintenance()
        if is_hdfs:
            self._rename_snapshot(self._root / str(of.files.number) / str(partition))

    def _put_groups(self, store: Any, rows: Sequence[StoredShard], value: StructType) -> None:
        """The state of ``applyInPandasWithState``, in the column family that every store has."""
        timers = [(row.timer,) if len(value) > 1 else () for row in rows]
        data = [(astuple(row.stored), *timer) for row, timer in zip(rows, timers, strict=True)]
        keys = self._unsafe([(row.shard,) for row in rows], _SHARD)
        for key, of_key in zip(keys, self._unsafe(data, value), strict=True):
            store.put(key, of_key, STORE)

    def _put_variables(self, store: Any, rows: Sequence[StoredShard], of: StoredOperator) -> None:
        """The state variables of ``transformWithState``, and both indexes of its timers."""
        self._create(store, VARIABLE, _SHARD, _VALUE, self._plain(_SHARD), internal=False)
        keys = self._unsafe([(row.shard,) for row in rows], _SHARD)
        stored = self._unsafe([astuple(row.stored) for row in rows], _VALUE)
        for key, value in zip(keys, stored, strict=True):
            store.put(key, value, VARIABLE)
        if SEGMENTS in of.files.variables:  # rows of segments are in the value
            by_shard = self._classes.PrefixKeyScanStateEncoderSpec(self._java(_SEGMENT_KEY), 1)
            self._create(store, SEGMENTS, _SEGMENT_KEY, _SEGMENT, by_shard, internal=False)
        if not of.has_timers:
            return
        prefix = self._classes.PrefixKeyScanStateEncoderSpec(self._java(_BY_KEY), 1)
        ordinals = self._spark._jvm.PythonUtils.toSeq([0])
        ordered = self._classes.RangeKeyScanStateEncoderSpec(self._java(_BY_TIME), ordinals)
        self._create(store, _KEY_TO_TIME, _BY_KEY, _NO_VALUE, prefix, internal=True)
        self._create(store, _TIME_TO_KEY, _BY_TIME, _NO_VALUE, ordered, internal=True)
        timed = [row for row in rows if row.timer is not None]
        by_key = self._unsafe([((row.shard,), row.timer) for row in timed], _BY_KEY)
        by_time = self._unsafe([(row.timer, (row.shard,)) for row in timed], _BY_TIME)
        nothing = self._unsafe([(None,)] * len(timed), _NO_VALUE)
        for one, other, value in zip(by_key, by_time, nothing, strict=True):
            store.put(one, value, _KEY_TO_TIME)
            store.put(other, value, _TIME_TO_KEY)

    @contextmanager
    def _provide(self, operator: OperatorFiles, partition: int, value: StructType) -> Iterator[Any]:
        """The provider of one partition, as Spark creates it for this operator."""
        root = f"file:{self._root}"  # not a URI: Hadoop's paths are not encoded
        store = self._classes.StateStoreId(root, operator.number, partition, STORE)
        provider = self._classes.StateStoreProvider.createAndInit(
            self._classes.StateStoreProviderId(store, self._run),
            self._java(_SHARD),
            self._java(value),
            self._plain(_SHARD),
            operator.has_variables,
            self._conf,
            self._hadoop,
            False,
            self._none,
        )
        try:
            yield provider
        finally:
            provider.close()

    def _create(
        self,
        store: Any,
        name: str,
        key: StructType,
        value: StructType,
        encoder: Any,
        *,
        internal: bool,
    ) -> None:
        store.createColFamilyIfAbsent(
            name, self._java(key), self._java(value), encoder, False, internal
        )

    def _plain(self, schema: StructType) -> Any:
        return self._classes.NoPrefixKeyStateEncoderSpec(self._java(schema))

    def _java(self, schema: StructType) -> Any:
        return self._spark._jsparkSession.parseDataType(schema.json())

    @property
    def _none(self) -> Any:
        return self._spark._jvm.scala.Option.empty()

    def _unsafe(self, rows: Iterable[Any], schema: StructType) -> list[Any]:
        """The rows as Spark stores them, in the JVM."""
        data = list(rows)
        if not data:
            return []
        # One column with a struct, so that all types are nested alike; then its fields.
        wrapped = StructType([StructField("row", schema)])
        frame = self._spark.createDataFrame([(row,) for row in data], wrapped)
        plan = frame.select("row.*")._jdf.queryExecution().executedPlan()
        return list(plan.executeCollect())

    def _rename_snapshot(self, folder: Path) -> None:
        """Give the first snapshot the version that the query continues from."""
        for suffix in ("1.delta", ".1.delta.crc"):
            (folder / suffix).unlink(missing_ok=True)
        for name, new in (
            ("1.snapshot", f"{self._next}.snapshot"),
            (".1.snapshot.crc", f".{self._next}.snapshot.crc"),
        ):
            (folder / name).rename(folder / new)
