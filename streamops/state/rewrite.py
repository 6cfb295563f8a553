"""Rewrite the checkpoint of a stopped query: another number of shards, or the current formats.

The original is only read. The new directory has a marker, and no ``metadata``, until its state was read
back and compared with the original: Spark refuses to start from it, and so does streamops.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from streamops.environment.settings import PARTITIONS, PROVIDER
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import located
from streamops.spark.definition import MAX_SHARDS
from streamops.spark.drive import Query
from streamops.spark.operator import Operator
from streamops.state import conditions
from streamops.state.checkpoint import (
    HDFS_STATE,
    MARKER,
    METADATA,
    PROVIDERS,
    ROCKSDB_STATE,
    Checkpoint,
    find_problems,
    open_checkpoint,
    require_target,
)
from streamops.state.mapping import Migration
from streamops.state.operators import FORMATS
from streamops.state.resolving import resolve
from streamops.state.shards import (
    OperatorState,
    StoredShard,
    convert,
    decode_shards,
    encode_shards,
    find_difference,
    migrate_shards,
    read_header,
    redistribute,
)
from streamops.state.stores import (
    STATE,
    StoredOperator,
    StoreWriter,
    partitions_of,
    read_shards,
    require_writable,
    session_or_new,
)
from streamops.state.templates import Template, open_template

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APIS = ("applyInPandasWithState", "transformWithStateInPandas")
Change = Callable[[int, Sequence[StoredShard]], tuple[OperatorState, OperatorState]]
"""From the number of an operator and its shards to its state in the current formats, and the state to write."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewritten operator.

    Parameters
    ----------
    operator : int
        Its number in the query.
    name : str
        Its layout and version.
    shards_before, shards : int
        Number of shards, before and now.
    entries : int
        Rows of its state.
    """

    operator: int
    name: str
    shards_before: int
    shards: int
    entries: int


def rescale(
    checkpoint: str | Path,
    to: str | Path,
    *,
    shards: int,
    operators: Sequence[int] | None = None,
    partitions: int | None = None,
    spark: SparkSession | None = None,
) -> list[Rewritten]:
    """Write a new checkpoint with another number of shards. The original is not changed.

    Stop the query first. Start it again with the new checkpoint and ``.options(shards=...)``. It
    continues with the micro-batch after the last one, and with the same results.

    Parameters
    ----------
    checkpoint : path
        The checkpoint of a stopped query, on a local file system.
    to : path
        Directory of the new checkpoint: it must not exist, or be empty.
    shards : int
        The new number of shards, from 1 to 32768.
    operators : sequence of int, optional
        The operators to change, by their number in the checkpoint; by default all of streamops.
    partitions : int, optional
        Also change Spark's number of partitions of the state, which is otherwise fixed by the
        checkpoint. Spark's own stateful operators cannot be changed with it.
    spark : SparkSession, optional
        A classic session; by default the running one, or a new local one.

    Returns
    -------
    list of Rewritten
        One per operator of streamops.

    Raises
    ------
    CheckpointError
        ``NOT_A_CHECKPOINT``, ``CHECKPOINT_PATH``, ``BATCH_UNFINISHED``,
        ``CHECKPOINT_FORMAT``, ``CHECKPOINT_CHANGED`` and others: see
        docs/operations.md.
    StateFormatError
        The state is damaged, or in an unknown format.
    RequirementError
        ``SESSION_TYPE``, ``VERSION_NOT_SUPPORTED``.
    SpecError
        ``PARAMETER_OUT_OF_RANGE``, ``UNKNOWN_OPERATOR``.
    """
    _require_number(shards, "shards", MAX_SHARDS)
    if partitions is not None:
        _require_number(partitions, "partitions", MAX_SHARDS)

    def change(number: int, rows: Sequence[StoredShard]) -> tuple[OperatorState, OperatorState]:
        current = convert(decode_shards(rows))
        chosen = operators is None or number in operators
        return current, redistribute(current, shards) if chosen else current

    work = _Rewrite.open(checkpoint, to, spark)
    known = [operator.number for operator in work.source.operators]
    unknown = sorted(set(operators or ()) - set(known))
    if unknown:
        raise conditions.UNKNOWN_OPERATOR_NUMBER.error(known=known, got=f"operators={unknown}")
    return work.run(change, partitions)


@located("state.migrate")
def migrate(
    checkpoint: str | Path,
    to: str | Path,
    operator: Operator | None = None,
    frame: DataFrame | None = None,
    *,
    rename: Mapping[str, str] | None = None,
    number: int | None = None,
    state_store: Literal["hdfs", "rocksdb"] | None = None,
    spark: SparkSession | None = None,
) -> list[Rewritten]:
    """Write a new checkpoint from which another version of a query continues. The original is not changed.

    Stop the query first, and start it again with the new checkpoint. Without an operator, the formats become
    the current ones. With one, its state becomes what the operator continues from: all that a
    restart accepts, and columns and aggregates with other names, key columns and stored columns of integers with
    more bits, another number of shards, and the other state API, if ``.options(state_api=...)`` selects it.

    Parameters
    ----------
    checkpoint, to, spark
        As in :func:`rescale`.
    operator : Operator, optional
        The operator with its new parameters.
    frame : DataFrame, optional
        The streaming frame that the query applies it to, with the new columns. Its rows are not read.
    rename : mapping of str to str, optional
        The new names of key columns, other columns of the input and aggregates, by their names in the state.
    number : int, optional
        The number of the operator in the checkpoint, if several have the same state.
    state_store : "hdfs" or "rocksdb", optional
        The state store of all operators; by default that of the checkpoint, and "rocksdb" for an operator
        that begins to use ``transformWithStateInPandas``.

    Returns
    -------
    list of Rewritten
        One per operator of streamops.

    Raises
    ------
    CheckpointError
        As in :func:`rescale`; ``NOTHING_TO_MIGRATE``: nothing would change; ``UNKNOWN_OPERATOR``;
        ``CHECKPOINT_UNSUPPORTED``: ``transformWithStateInPandas`` needs RocksDB; ``applyInPandasWithState`` is for one
        stateful operator per query, and for a state without segments.
    StateFormatError
        ``STATE_PARAMETERS``: the state does not have what the operator needs; ``STATE_VERSION``: a format from
        which there is no conversion.
    SpecError
        ``PARAMETER_MISSING``, ``PARAMETER_TYPE``, ``PARAMETER_WITHOUT_EFFECT``, ``DUPLICATE_COLUMN``.

    Examples
    --------
    >>> from streamops import state
    >>> state.migrate(
    ...     "/data/checkpoint", "/data/checkpoint-2", per_minute, views, rename={"origin": "airport"}
    ... )
    [Rewritten(operator=0, name='windows.grid version 1', shards_before=8, shards=8, entries=1432)]

    Notes
    -----
    An aggregate that was added is null where rows from before would be needed, as after a restart.
    """
    if (operator is None) != (frame is None) or (rename and operator is None):
        raise conditions.FRAME_MISSING.error(
            got=f"operator={operator!r}, frame={frame!r}, rename={rename!r}"
        )
    query = None if operator is None else resolve(operator, frame)
    session = frame.sparkSession if spark is None and frame is not None else spark
    work = _Rewrite.open(checkpoint, to, session)
    migration = None if query is None else Migration(query.step, dict(rename or {}))
    changed: list[int] = []

    def change(number_: int, rows: Sequence[StoredShard]) -> tuple[OperatorState, OperatorState]:
        first = read_header(rows[0])
        if migration is not None and number_ == chosen:
            current, after = migrate_shards(rows, migration)
        else:
            current = after = convert(decode_shards(rows))
        before = first.format, first.identity, first.shards
        if before != (after.format, after.identity, after.shards):
            changed.append(number_)
        return current, after

    provider = work.source.provider if state_store is None else PROVIDERS[state_store]
    with ExitStack() as stack:
        chosen = template = None
        if query is not None and migration is not None:
            chosen = work.find(migration.step.core.STATE, number)
            api = work.other_api(chosen, query)
            if api == APIS[1] and state_store is None:
                provider = ROCKSDB_STATE
            if api is not None:
                _refuse_store(provider, api == APIS[1])
                settings = _settings(work.source, provider)
                template = stack.enter_context(open_template(work.spark, query, api, settings))

        def check() -> None:
            if not changed and provider == work.source.provider and template is None:
                raise conditions.NOTHING_TO_MIGRATE.error(got=str(checkpoint))

        return work.run(change, None, check, provider, template)


def _settings(source: Checkpoint, provider: str) -> dict[str, str]:
    """The settings of a checkpoint with this state store."""
    other = {} if provider == source.provider else {PROVIDER: f"{STATE}.{provider}"}
    return {**source.settings, **other}


def _refuse_store(provider: str, has_variables: bool) -> None:
    if has_variables and provider == HDFS_STATE:
        raise conditions.ROCKSDB_NEEDED.error(got=provider)


@dataclass(frozen=True)
class _Plan:
    """An operator to write: what it was, what it becomes, and where its shards go."""

    stored: StoredOperator
    before: OperatorState | None  # in the current formats; None without a shard
    after: OperatorState | None
    rows: list[StoredShard]


@dataclass(frozen=True)
class _Rewrite:
    """The rewrite of one checkpoint into another directory."""

    source: Checkpoint
    to: Path
    spark: SparkSession
    stamp: Mapping[str, tuple[int, int]]
    """The files before they are read."""

    @cached_property
    def stored(self) -> list[StoredOperator]:
        """The operators of streamops."""
        read = (read_shards(self.spark, self.source, of) for of in self.source.operators)
        return [stored for stored in read if stored is not None]

    def find(self, layout: StateFormat, number: int | None) -> int:
        """The number of the only operator with this layout, and with this number if there is one."""
        known = {of.files.number: read_header(of.rows[0]).layout for of in self.stored if of.rows}
        found = [at for at, of in known.items() if FORMATS[of] == layout and number in (None, at)]
        if len(found) != 1:
            raise conditions.UNKNOWN_OPERATOR.error(
                where=str(self.source.path),
                known=sorted(known),
                got=f"number={number}, of which {len(found)} have the state of the operator: {known}",
            )
        return found[0]

    def other_api(self, number: int, query: Query) -> str | None:
        """The state API that an operator selects, if it is not that of its checkpoint."""
        (stored,) = (of for of in self.stored if of.files.number == number)
        found, wanted = APIS[stored.files.has_variables], query.operator.execution.state_api
        if wanted not in APIS or wanted == found:
            return None
        operators, segments = (
            len(self.source.operators),
            sum(len(of.segments) for of in stored.rows),
        )
        needs = None if wanted == APIS[1] else query.operator.requires_transform
        if operators > 1 or (segments and wanted == APIS[0]) or needs:
            raise conditions.STATE_API_NOT_SUITABLE.error(
                api=wanted, stored=found,
                got=f"{operators} operators, {segments} segments" + (f"; {needs}" if needs else ""),
            )  # fmt: skip
        return wanted

    @staticmethod
    def open(checkpoint: str | Path, to: str | Path, spark: SparkSession | None) -> _Rewrite:
        """Check the paths and the checkpoint."""
        source = open_checkpoint(checkpoint)
        target = require_target(to, source)
        for problem in find_problems(source):
            raise problem
        session = session_or_new(spark)
        require_writable(session)
        return _Rewrite(source, target, session, source.stamp())

    def run(
        self,
        change: Change,
        partitions: int | None,
        check: Callable[[], None] = lambda: None,
        provider: str | None = None,
        template: Template | None = None,
    ) -> list[Rewritten]:
        """Read everything, write everything, and verify it.

        With a template, the only operator gets its state API.
        """
        count = self.source.partitions if partitions is None else partitions
        plans = [self._plan(stored, change, count, template) for stored in self.stored]
        provider = self.source.provider if provider is None else provider
        self._refuse_foreign(plans, count, provider)
        check()
        self._begin(plans)
        rewritten = {plan.stored.files.number for plan in plans}
        self._copy(rewritten, template)
        settings = {**_settings(self.source, provider), PARTITIONS: str(count)}
        self._write(plans, count, settings)
        self._adapt(rewritten, count, settings)
        self._verify(plans, count)
        self._end()
        return [
            Rewritten(
                plan.stored.files.number,
                f"{plan.after.name} version {plan.after.format.version}",
                plan.before.shards,
                plan.after.shards,
                plan.after.entries,
            )
            for plan in plans
            if plan.before is not None and plan.after is not None
        ]

    def _plan(
        self, stored: StoredOperator, change: Change, partitions: int, template: Template | None
    ) -> _Plan:
        number = stored.files.number
        target = stored if template is None else template.stored
        if not stored.rows:
            return _Plan(target, None, None, [])
        with located(f"{self.source.path}, operator {number}"):
            before, after = change(number, stored.rows)
        if template is not None:
            before, after = template.convert_timers(before), template.convert_timers(after)
        partition_of = partitions_of(self.spark, after.shards, partitions)
        return _Plan(target, before, after, encode_shards(after, dict(enumerate(partition_of))))

    def _refuse_foreign(self, plans: Sequence[_Plan], partitions: int, provider: str) -> None:
        """Spark's own operators are copied with their files, in the same partitions and store only."""
        ours = {plan.stored.files.number for plan in plans}
        foreign = [of for of in self.source.operators if of.number not in ours]
        if foreign and partitions != self.source.partitions:
            raise conditions.SPARK_PARTITIONS.error(
                partitions=self.source.partitions,
                got=f"partitions={partitions}, "
                + ", ".join(f"operator {of.number} {of.api}" for of in foreign),
            )

        if provider == self.source.provider:
            return
        if foreign:
            raise conditions.SPARK_STATE_STORE.error(
                provider=self.source.provider,
                got=", ".join(f"operator {of.number} {of.api}" for of in foreign),
            )
        _refuse_store(provider, any(plan.stored.files.has_variables for plan in plans))

    def _begin(self, plans: Sequence[_Plan]) -> None:
        """The marker comes first, so that the directory is never without it before the end."""
        self.to.mkdir(parents=True, exist_ok=True)
        text = {
            "from": str(self.source.path),
            "micro_batch": self.source.last,
            "operators": [plan.stored.files.number for plan in plans],
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        (self.to / MARKER).write_text(json.dumps(text, indent=1) + "\n")

    def _copy(self, rewritten: set[int], template: Template | None) -> None:
        """Copy all files but the state of these operators, and the id of the query."""
        for file in self.source.files():
            parts = file.relative_to(self.source.path).parts
            if parts[0] in (METADATA, f".{METADATA}.crc"):
                continue
            if _operator_of(parts) in rewritten and (template or not _is_schema(parts[2:])):
                continue
            self._copy_file(file, parts)
        if template is None:
            return
        for file in template.checkpoint.files():
            parts = file.relative_to(template.checkpoint.path).parts
            if _operator_of(parts) in rewritten and _is_schema(parts[2:]):
                self._copy_file(file, parts)

    def _copy_file(self, file: Path, parts: Sequence[str]) -> None:
        target = self.to.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, target)

    def _write(self, plans: Sequence[_Plan], partitions: int, settings: Mapping[str, str]) -> None:
        writer = StoreWriter(self.spark, settings, self.source.last, self.to)
        for plan in plans:
            by_partition = defaultdict(list)
            for row in plan.rows:
                by_partition[row.partition].append(row)
            for partition in range(partitions):
                writer.write(plan.stored, partition, by_partition[partition])

    def _adapt(self, rewritten: set[int], partitions: int, settings: Mapping[str, str]) -> None:
        """Replace the paths, the number of partitions and the settings in the copied files."""
        for file in (self.to / "state").glob("*/_metadata/**/*"):
            if not file.is_file() or file.name.startswith("."):
                continue
            number = int(file.relative_to(self.to / "state").parts[0])
            new = partitions if number in rewritten else None
            _edit(file, partial(self._adapt_operator, partitions=new))

        def adapt_offset(entry: dict[str, Any]) -> dict[str, Any]:
            return {**entry, "conf": {**entry["conf"], **changed}}

        changed = {key: settings[key] for key in (PARTITIONS, PROVIDER) if key in settings}
        if settings != self.source.settings:
            for batch in self.source.offsets:
                _edit(self.to / "offsets" / str(batch), adapt_offset)

    def _adapt_operator(self, entry: dict[str, Any], *, partitions: int | None) -> dict[str, Any]:
        stores = []
        for store in entry["stateStoreInfo"]:
            files = [self._moved(path) for path in store.get("stateSchemaFilePaths", [])]
            changed: dict[str, Any] = {"stateSchemaFilePaths": files} if files else {}
            changed |= {"numPartitions": partitions} if partitions is not None else {}
            stores.append({**store, **changed})
        return {**entry, "stateStoreInfo": stores}

    def _moved(self, uri: str) -> str:
        """The URI of a file of the state, in the new checkpoint.

        The original may have been moved since it was written, so only the end of its path counts.
        """
        _, found, rest = uri.rpartition("/state/")
        if not found:
            raise conditions.OPERATOR_METADATA_UNKNOWN.error(got=uri)
        return f"file:{self.to}/state/{rest}"

    def _verify(self, plans: Sequence[_Plan], partitions: int) -> None:
        """Read the new state, and compare it with what was to be written, and with the original."""
        new = Checkpoint(self.to)
        found = {operator.number: operator for operator in new.operators}
        for plan in plans:
            operator = found[plan.stored.files.number]
            stored = read_shards(self.spark, new, operator)
            rows = sorted(stored.rows if stored else [], key=lambda row: row.shard)
            got = f"{len(rows)} shards in {operator.partitions} partitions"
            same = rows == sorted(plan.rows, key=lambda row: row.shard)
            if same and plan.after is not None and plan.before is not None:
                with located(f"{self.to}, operator {operator.number}"):
                    got = find_difference(decode_shards(rows), plan.before)
                same = not got
            if not same or operator.partitions != partitions:
                raise conditions.REWRITE_DIFFERS.error(
                    where=f"{self.to}, operator {operator.number}",
                    rows=len(plan.rows),
                    partitions=partitions,
                    path=self.source.path,
                    got=got,
                )

    def _end(self) -> None:
        """Make the new checkpoint usable, if the query did not run in the meantime."""
        if self.source.stamp() != self.stamp:
            raise conditions.CHECKPOINT_CHANGED.error(to=self.to, got=str(self.source.path))
        for name in (f".{METADATA}.crc", METADATA):
            if (self.source.path / name).is_file():
                shutil.copy2(self.source.path / name, self.to / name)
        (self.to / MARKER).unlink()


def _operator_of(parts: Sequence[str]) -> int | None:
    """The number of the operator whose state a file of a checkpoint belongs to."""
    is_state = parts[0] == "state" and len(parts) > 2 and parts[1].isdecimal()
    return int(parts[1]) if is_state else None


def _is_schema(parts: Sequence[str]) -> bool:
    """Whether a file below ``state/<operator>`` is metadata: of the operator, or of partition 0."""
    return parts[0].startswith("_") or "_metadata" in parts


def _edit(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the first entry of a log. Its checksum, which Spark need not find, is removed."""
    text = file.read_text()
    version, first, *rest = text.split("\n")
    entry = json.dumps(change(json.loads(first)), separators=(",", ":"))
    file.write_text("\n".join([version, entry, *rest]))
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def _require_number(value: object, parameter: str, most: int) -> None:
    if type(value) is not int or value not in range(1, most + 1):
        raise conditions.PARAMETER_OUT_OF_RANGE.error(
            parameter=parameter, most=most, got=f"{parameter}={value!r}"
        )
