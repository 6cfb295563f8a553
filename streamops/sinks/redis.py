"""Keep keys of Redis or Valkey in sync with a stream."""

from __future__ import annotations

import hashlib
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from streamops.kernel.columns import combine_chunks
from streamops.kernel.databases import public_path
from streamops.kernel.parameters import Text, parse_distinct_names, require_package
from streamops.kernel.time import Duration, parse_duration
from streamops.sinks import conditions
from streamops.sinks.core.versions import (
    DELETES,
    DOCUMENT,
    KEY,
    OLDER,
    VERSION,
    WRITTEN,
    Again,
    Refused,
    Tie,
    join_text,
)
from streamops.sinks.sink import BatchWriter, elsewhere, parse_key
from streamops.sinks.versioned import Busy, VersionedStore

_WRITE = """
local value, deleted, former = KEYS[1], KEYS[2], KEYS[3]
local version, document, horizon, instead = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- Versions are compared as text: numbers of Lua have 53 bits.
local function newer(a, b) return #a > #b or (#a == #b and a > b) end
local stored = string.match(redis.call('GETRANGE', value, 0, 31), '^{"_version":(%d+)[,}]')
local removed = redis.call('GET', deleted)
-- Where versions of deletes were before: there may be a row, too.
if former and not removed then removed = string.match(redis.call('GETRANGE', former, 0, 31), '^%d+$') end
if (stored and newer(stored, version)) or (removed and newer(removed, version)) then return 0 end
if stored == version and document ~= '' then
  local same = redis.call('GET', value)
  if same ~= document and same ~= instead then return same end
end
if document == '' then
  redis.call('UNLINK', value)
  redis.call('SET', deleted, version, 'PX', horizon)
else
  redis.call('SET', value, document)
  if removed then redis.call('DEL', deleted) end
end
return 1
"""
_SHA = hashlib.sha1(_WRITE.encode(), usedforsecurity=False).hexdigest()
_BUSY = re.compile("MISCONF|NOREPLICAS|BUSY|UNKILLABLE")
# Errors of a command, and not of a row.
_OF_STORE = re.compile("(ERR )?unknown command|NOAUTH|WRONGPASS|NOPERM", re.IGNORECASE)
_VERSION = "_version"
_PREFIX = re.compile(r"[^{}]*(\{[^:{}]+\}[^{}]*)?")
_DELETED = "streamops.deleted:"


def redis(
    url: Text,
    prefix: str,
    *,
    key: str | Sequence[str],
    sequence: str | Sequence[str] | None = None,
    rejected: BatchWriter | None = None,
    topology: Literal["server", "cluster"] = "server",
    horizon: Duration = "1 hour",
    request_rows: int = 1_000,
    request_bytes: int = 5_000_000,
    timeout: Duration = "30 seconds",
    patience: Duration = "5 minutes",
    client: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
) -> RedisSink:
    """Keep keys of Redis or Valkey in sync with a stream.

    Of each key, the row of the latest sequence stays. A script in the server compares the version that is
    stored with that of the write, so a write that arrives again, or after a later one, changes nothing.
    Micro-batches are not atomic: readers see single values change. Tasks write; no row passes through the
    driver.

    Input        revisions, or rows with another sequence; change streams with a key
    Output       ``GET prefix:key`` returns the columns of the row in JSON, after a member ``_version``.
                 Several columns of the key have colons between them. ``_version`` is twice the
                 sequence, or one more
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        none needed: a sequence, and not the order of arrival, says which row is the latest
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    url : str
        Address of the server, such as ``"redis://cache:6379/0"``; ``rediss://`` for TLS.
    prefix : str
        What the keys begin with, before a colon, such as ``"orders"`` or ``"shop:orders"``. It has no braces
        but those of one hash tag, such as ``"{shop}"``. Sinks of a database have prefixes of which none begins
        with another one and a colon: otherwise two rows could have one key.
    key : str or sequence of str
        Columns that identify a row.
    sequence : str, optional
        The column that orders the rows of a key: an integer or a timestamp. Default: "revision".
    rejected : sink, optional
        Gets the rows that cannot be written, with the columns ``operator``, ``output``, ``reason`` and
        ``row`` of ``sinks.side_outputs``. Without it, such a row fails the micro-batch.
    topology : "server" or "cluster"
        Whether the address is that of a node of a cluster.
    horizon : timedelta or str
        How long after a delete an older write of the key may still arrive. The version of the delete
        expires then.
    request_rows, request_bytes : int
        The most rows and bytes of a pipeline. A larger row is a pipeline by itself.
    timeout : timedelta or str
        Of a pipeline.
    patience : timedelta or str
        How long a task repeats a pipeline while the server is busy, full or not reachable.
    client : mapping, optional
        Options of ``redis.Redis``, such as ``username``, ``password`` or ``ssl_ca_certs``. They are not in
        the ``repr``.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    RedisSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``redis`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> orders = sinks.redis("redis://localhost:6379/0", "orders", key="id")
    >>> changed.writeStream.foreachBatch(orders).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SchemaError``: ``SEQUENCE_TYPE``, ``FRAME_TYPE``, ``TYPE_UNSUPPORTED``,
    ``NAME_TAKEN``. ``SinkError``: ``TARGET_KIND``, the server may evict keys; ``TARGET_REFUSED``;
    ``TARGET_UNAVAILABLE``. The rows that were written before stay, and writing them again changes nothing.

    Reasons for `rejected`: "null_key", "null_sequence", "sequence_out_of_range", "conflicting_sequence",
    "unknown_change", "invalid_text", or the error of the server, such as "WRONGTYPE ...".

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Keeping Systems in Sync".
    """
    require_package("redis", package="redis", extra="redis")
    return RedisSink(
        url=url,
        prefix=prefix,
        key=parse_distinct_names(key, parameter="key"),
        sequence=parse_key(sequence, parameter="sequence"),
        rejected=rejected,
        topology=topology,
        horizon=parse_duration(horizon, parameter="horizon", minimum=1_000_000),
        request_rows=request_rows,
        request_bytes=request_bytes,
        timeout=parse_duration(timeout, parameter="timeout", minimum=1_000_000),
        patience=parse_duration(patience, parameter="patience", minimum=0),
        client=dict(client or {}),
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class RedisSink(VersionedStore):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.redis"
    system = "Redis"
    schemes = ("redis://", "rediss://", "unix://")
    own_options = frozenset(("decode_responses", "socket_timeout"))

    url: str = field(metadata={"shown": lambda url: repr(public_path(url))})
    prefix: str
    topology: Literal["server", "cluster"]

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        if not _PREFIX.fullmatch(self.prefix) or f"}}{_DELETED}" in f"{self.prefix}:":
            raise conditions.PREFIX.error(got=repr(self.prefix))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the server is."""
        return (self.url,)

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.prefix!r})"

    @property
    def target(self) -> str:
        """What the sink writes to, for people."""
        return f"keys '{self.prefix}:*'"

    def _connect(self) -> _Client:
        return _Client(self)

    def _refuse_names(self, names: Sequence[str]) -> None:
        if _VERSION in names:
            raise conditions.NAME_TAKEN.error(got=f"column {_VERSION}")

    def _inspect(
        self, client: _Client, *, create: bool, schema: T.StructType | None
    ) -> Sequence[str]:
        with self._failures(client):
            client.require_settings()
        return []

    @contextmanager
    def _failures(self, client: _Client) -> Iterator[None]:
        """Replace errors of the connection by those of the sink."""
        errors = _errors()
        try:
            yield
        except (
            errors.AuthenticationError,
            errors.AuthorizationError,
            errors.NoPermissionError,
        ) as error:
            raise self._error(conditions.STORE_REFUSED, error) from None
        except (errors.RedisError, OSError) as error:
            client.close()
            if "DB index is out of range" in str(error):
                raise elsewhere("a database of Redis", error) from None
            if isinstance(error.__context__, ssl.SSLError):
                raise self._error(conditions.STORE_UNAVAILABLE, error) from None
            raise Busy(f"{type(error).__name__}: {error}") from None

    def _requests(
        self, writes: pa.Table, instead: Sequence[str] | None = None
    ) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        version = combine_chunks(writes.column(VERSION)).cast(pa.large_string())
        deletes, document, key = (
            combine_chunks(writes.column(name)) for name in (DELETES, DOCUMENT, KEY)
        )
        rest = pc.utf8_slice_codeunits(document, 1)
        value = pc.if_else(deletes, "", join_text('{"_version":', version, ",", rest))
        key = join_text(f"{self.prefix}:", key)
        sizes = pc.add(pc.binary_length(key), pc.binary_length(value))
        same = pa.array(instead or [""] * len(key), pa.large_string())
        requests = {"key": key, "version": version, "value": value, "instead": same}
        return pa.table(requests), np.asarray(sizes)

    def _send(self, client: _Client, requests: pa.Table) -> list[str]:
        rows = list(zip(*(column.to_pylist() for column in requests.columns), strict=True))
        answers: list[str] = [""] * len(rows)
        horizon, is_cluster = self.horizon // 1_000, self.topology == "cluster"
        with self._failures(client):
            client.require_settings()
            for node, at in client.route([key for key, *_ in rows]):
                pipeline = node.pipeline(transaction=False)
                pipeline.execute_command("SCRIPT LOAD", _WRITE)
                for row in at:
                    key, version, value, instead = rows[row]
                    keys = [key, *tombstones_of(key, is_cluster=is_cluster)]
                    given = version, value, horizon, instead
                    pipeline.execute_command("EVALSHA", _SHA, len(keys), *keys, *given)
                loaded, *found = pipeline.execute(raise_on_error=False)
                for row, answer in zip(at, found, strict=True):
                    answers[row] = _read(loaded if isinstance(loaded, Exception) else answer)
        if any(isinstance(answer, Again) for answer in answers):
            client.close()  # slots may have moved
        return answers


class _Client:
    """A connection to a server, or to the nodes of a cluster, which is opened when it is used."""

    def __init__(self, sink: RedisSink) -> None:
        self._sink = sink
        self._connection: Any = None
        self._is_inspected = False

    @property
    def connection(self) -> Any:
        """The client of the package."""
        if self._connection is None:
            module = require_package("redis", package="redis", extra="redis")
            cluster = self._sink.topology == "cluster"
            make = module.RedisCluster if cluster else module.Redis
            seconds = self._sink.timeout / 1e6
            given = {"socket_timeout": seconds, **self._sink.client}
            self._connection = make.from_url(self._sink.url, **given)
        return self._connection

    def require_settings(self) -> None:
        """Refuse a server that evicts keys, once per connection: a version of a delete would be lost before its row."""
        if self._is_inspected:
            return
        for node in self._nodes():
            found = node.info()
            if found.get("role") == "slave":
                raise Busy(
                    "the server is a replica, which loses what it did not get from its primary"
                )
            policy = found.get("maxmemory_policy", "noeviction")
            if policy != "noeviction":
                raise conditions.EVICTS.error(target="Redis", got=f"maxmemory-policy {policy}")
        self._is_inspected = True

    def _nodes(self) -> list[Any]:
        connection = self.connection
        if self._sink.topology == "server":
            return [connection]
        return [connection.get_redis_connection(node) for node in connection.get_primaries()]

    def route(self, keys: Sequence[str]) -> Iterator[tuple[Any, Sequence[int]]]:
        """The servers, and the positions of the keys that each has."""
        connection = self.connection
        if self._sink.topology == "server":
            yield connection, range(len(keys))
            return
        nodes: dict[Any, list[int]] = {}
        for at, key in enumerate(keys):
            nodes.setdefault(connection.get_node_from_key(key), []).append(at)
        for node, rows in nodes.items():
            yield connection.get_redis_connection(node), rows

    def close(self) -> None:
        """Close the connection; the next use opens another one."""
        connection, self._connection, self._is_inspected = self._connection, None, False
        if connection is not None:
            connection.close()


def tombstones_of(key: str, *, is_cluster: bool = False) -> list[str]:
    """The key of the version of a delete, in the same slot of a cluster; and where it was before, if it was elsewhere.

    No prefix of a sink makes a row of such a key, and no two keys have one.

    Examples
    --------
    >>> tombstones_of("orders:7"), tombstones_of("{shop}:7")
    (['{orders:7}:deleted:'], ['{shop}streamops.deleted:{shop}:7$', '{shop}:deleted:{shop}:7'])
    """
    start = key.find("{")
    end = key.find("}", start + 1)
    if start < 0 or end <= start + 1:
        if is_cluster and "}" in key:  # where the tag of that name would end
            return [f"{{{_tag_of(key)}}}{_DELETED}{key}$"]
        return [f"{{{key}}}:deleted:"]
    tag = key[start : end + 1]
    return [f"{tag}{_DELETED}{key}$", f"{tag}:deleted:{key}"]


def _tag_of(key: str) -> int:
    """The lowest number that is in the slot of a key."""
    slot_of = require_package("redis.crc", package="redis", extra="redis").key_slot
    return _tag_in(slot_of, slot_of(key.encode()))


@lru_cache(16_384)
def _tag_in(slot_of: Callable[[bytes], int], slot: int) -> int:
    return next(number for number in count() if slot_of(b"%d" % number) == slot)


def _errors() -> Any:
    return require_package("redis.exceptions", package="redis", extra="redis")


def _read(answer: Any) -> str:
    """What became of a write: written, older, or the reason why not."""
    if isinstance(answer, bytes):
        return Tie(answer.decode(errors="backslashreplace"))  # which no row has: it is no JSON
    if not isinstance(answer, Exception):
        return WRITTEN if answer else OLDER
    errors, text = _errors(), f"{type(answer).__name__}: {answer}"
    busy = (
        errors.ConnectionError,
        errors.OutOfMemoryError,
        errors.ReadOnlyError,
        errors.ClusterDownError,
        errors.TryAgainError,
        errors.AskError,
        errors.NoScriptError,
    )
    of_store = errors.NoPermissionError, errors.AuthenticationError
    if isinstance(answer, of_store) or _OF_STORE.match(str(answer)):
        return Refused(text)
    return Again(text) if isinstance(answer, busy) or _BUSY.match(str(answer)) else text
