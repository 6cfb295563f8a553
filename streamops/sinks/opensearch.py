"""Keep an index of OpenSearch or Elasticsearch in sync with a stream."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from streamops.kernel.columns import take
from streamops.kernel.databases import public_path
from streamops.kernel.parameters import Text, parse_distinct_names, require_package
from streamops.kernel.time import Duration, parse_duration
from streamops.sinks import conditions
from streamops.sinks.core.bulk import BUSY, error_type, read_answer, request_lines, show_reasons
from streamops.sinks.core.versions import (
    DELETES,
    KEY,
    OLDER,
    VERSION,
    WRITTEN,
    Again,
    Tie,
    parse_exactly,
    parse_seconds,
)
from streamops.sinks.opensearch_index import missing_mapping, new_mapping, require_one_index
from streamops.sinks.sink import BatchWriter, parse_key
from streamops.sinks.versioned import Busy, VersionedStore

_METADATA = frozenset(
    [
        "_id",
        "_index",
        "_source",
        "_type",
        "_routing",
        "_field_names",
        "_ignored",
        "_version",
        "_seq_no",
        "_primary_term",
        "_nested_path",
        "_doc_count",
        "_size",
        "_deleted",
    ]
)
_NAME = re.compile(r'(?![-_+.])[^A-Z\\/*?"<>| ,#:]{1,255}')
_TOO_LARGE = 413


def opensearch(
    url: Text | Sequence[str],
    index: str,
    *,
    key: str | Sequence[str],
    sequence: str | Sequence[str] | None = None,
    rejected: BatchWriter | None = None,
    deletes: Literal["remove", "mark"] = "remove",
    horizon: Duration = "1 hour",
    request_rows: int = 1_000,
    request_bytes: int = 5_000_000,
    timeout: Duration = "30 seconds",
    patience: Duration = "5 minutes",
    client: Mapping[str, Any] | None = None,
    checkpoint: str | None = None,
) -> OpenSearchSink:
    """Keep an index of OpenSearch or Elasticsearch in sync with a stream.

    Of each key, the document of the latest sequence stays. The index orders the writes of a key by their
    version, so a write that arrives again, or after a later one, changes nothing. Micro-batches are not
    atomic: readers see single documents change. Tasks write; no row passes through the driver.

    Input        revisions, or rows with another sequence; change streams with a key
    Output       documents with the columns of the row in JSON. ``_id`` is the key; several columns have
                 colons between them. ``_version`` is twice the sequence, or one more
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        none needed: a sequence, and not the order of arrival, says which row is the latest
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    url : str or sequence of str
        Address of a node, such as ``"https://search:9200"``, or of several.
    index : str
        Name of the index, or an alias of one. It is created if it does not exist. Columns that it does not
        map are mapped by their types, unless its owner has dynamic templates, or ``dynamic`` is not true.
    key : str or sequence of str
        Columns that identify a document.
    sequence : str, optional
        The column that orders the rows of a key: an integer or a timestamp. Default: "revision".
    rejected : sink, optional
        Gets the rows that cannot be written, with the columns ``operator``, ``output``, ``reason`` and
        ``row`` of ``sinks.side_outputs``. Without it, such a row fails the micro-batch.
    deletes : "remove" or "mark"
        "remove": deleted documents are removed. The index remembers their versions for `horizon`, in the
        memory of each shard. "mark": they become ``{"_deleted": true}``, which is remembered until you
        delete it, also while shards move and restart; readers use an alias with a filter.
    horizon : timedelta or str
        How long after a delete an older write of the key may still arrive: ``index.gc_deletes``.
    request_rows, request_bytes : int
        The most rows and bytes of a request. A larger row is a request by itself.
    timeout : timedelta or str
        Of a request.
    patience : timedelta or str
        How long a task repeats a request while the cluster is busy or not reachable.
    client : mapping, optional
        Options of ``opensearchpy.OpenSearch``, such as ``http_auth``, ``ca_certs`` or ``headers``. They are
        not in the ``repr``.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    OpenSearchSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``opensearch`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> orders = sinks.opensearch("http://localhost:9200", "orders", key="id")
    >>> changed.writeStream.foreachBatch(orders).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SchemaError``: ``SEQUENCE_TYPE``, ``FRAME_TYPE``, ``TYPE_UNSUPPORTED``,
    ``NAME_TAKEN``. ``SinkError``: ``TARGET_KIND``, the index forgets deletes too early;
    ``TARGET_REFUSED``; ``TARGET_UNAVAILABLE``. The rows that were written before stay, and writing them
    again changes nothing.

    Reasons for `rejected`: "null_key", "key_length" (an ``_id`` has 1 to 512 bytes), "null_sequence",
    "sequence_out_of_range", "unknown_change", "invalid_text", or the error of the index, such as
    "mapper_parsing_exception: ...".

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Keeping Systems in Sync".
    """
    require_package("opensearchpy", package="opensearch-py", extra="opensearch")
    return OpenSearchSink(
        url=(url,) if isinstance(url, str) else tuple(url),
        index=index,
        key=parse_distinct_names(key, parameter="key"),
        sequence=parse_key(sequence, parameter="sequence"),
        rejected=rejected,
        deletes=deletes,
        horizon=parse_duration(horizon, parameter="horizon", minimum=1_000_000),
        request_rows=request_rows,
        request_bytes=request_bytes,
        timeout=parse_duration(timeout, parameter="timeout", minimum=1_000_000),
        patience=parse_duration(patience, parameter="patience", minimum=0),
        client=dict(client or {}),
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class OpenSearchSink(VersionedStore):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = "sinks.opensearch"
    system = "OpenSearch"
    key_bytes = (1, 512)
    schemes = ("https://", "http://")
    own_options = frozenset(("hosts", "max_retries", "timeout"))

    url: tuple[str, ...] = field(
        metadata={"shown": lambda url: ", ".join(repr(public_path(one)) for one in url)}
    )
    index: str
    deletes: Literal["remove", "mark"]

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        if not _NAME.fullmatch(self.index):
            raise conditions.INDEX_NAME.error(got=repr(self.index))

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the nodes are."""
        return self.url

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({self.index!r})"

    @property
    def target(self) -> str:
        """What the sink writes to, for people."""
        return f"index {self.index!r}"

    def _connect(self) -> Any:
        module = require_package("opensearchpy", package="opensearch-py", extra="opensearch")
        seconds = self.timeout / 1e6
        exact = type("Exact", (module.JSONSerializer,), {"loads": staticmethod(parse_exactly)})()
        given = {"serializers": {exact.mimetype: exact}, **self.client}
        return module.OpenSearch(list(self.url), max_retries=0, timeout=seconds, **given)

    def _refuse_names(self, names: Sequence[str]) -> None:
        taken = sorted(_METADATA & set(names))
        if taken:
            raise conditions.NAME_TAKEN.error(got=f"columns {', '.join(taken)}")

    def _inspect(self, client: Any, *, create: bool, schema: T.StructType | None) -> Sequence[str]:
        seconds = math.ceil(self.horizon / 1e6)
        found = self._request(client, "GET", "?flat_settings=true")
        missing = found is None
        if missing and create:
            # Another driver may do it at the same time, and a template may add settings of its own.
            body = {
                "settings": {"index.gc_deletes": f"{seconds}s"},
                "mappings": new_mapping(schema),
            }
            self._request(client, "PUT", "", json.dumps(body))
            found = self._request(client, "GET", "?flat_settings=true")
        if found is None:
            return [self.target]
        index = require_one_index(found, self.index)
        given = index["settings"].get("index.gc_deletes", "60s")
        if self.deletes == "remove" and parse_seconds(given) < seconds:
            raise conditions.DELETES_FORGOTTEN.error(
                index=self.index, seconds=seconds, got=f"index.gc_deletes of {given}"
            )
        added = missing_mapping(index["mappings"], schema) if create and schema else {}
        if added:
            self._request(client, "PUT", "/_mapping", json.dumps(added))
        return [self.target] * (missing and not create)

    def _request(self, client: Any, method: str, path: str, body: str | None = None) -> Any:
        """The answer of the cluster; None if there is no index, or another driver has created it."""
        errors = _errors()
        try:
            return client.transport.perform_request(method, self._path + path, body=body)
        except errors.NotFoundError:
            return None
        except errors.TransportError as error:
            if _type_of(error) == "resource_already_exists_exception":
                return None
            raise self._failed(error) from None

    def _requests(
        self, writes: pa.Table, instead: Sequence[str] | None = None
    ) -> tuple[pa.Table, np.ndarray[Any, Any]]:
        replaces = instead is not None
        lines = request_lines(writes, marks=self.deletes == "mark", replaces=replaces)
        requests = writes.select([KEY, VERSION, DELETES]).append_column("line", lines)
        return requests, np.asarray(pc.binary_length(lines))

    def _send(self, client: Any, requests: pa.Table) -> list[str]:
        errors = _errors()
        body = "".join(requests.column("line").to_pylist())
        path = f"{self._path}/_bulk?filter_path=errors,items.*.status,items.*.error"
        try:
            answer = client.transport.perform_request("POST", path, body=body)
        except errors.TransportError as error:
            if error.status_code != _TOO_LARGE:
                raise self._failed(error) from None
            if len(requests) == 1:
                return ["the document is larger than the cluster takes"]
            middle = len(requests) // 2
            parts = requests.slice(0, middle), requests.slice(middle)
            return [answer for part in parts for answer in self._send(client, part)]
        if not answer["errors"]:
            return [WRITTEN] * len(requests)
        answers = [read_answer(item) for item in answer["items"]]
        self._find_ties(client, requests, answers)
        return answers

    def _find_ties(self, client: Any, requests: pa.Table, answers: list[str]) -> None:
        """Find out which documents are refused because the index has one of the same version, or an older one by now."""
        is_row = np.array([answer == OLDER for answer in answers])
        at = np.flatnonzero(is_row & ~np.asarray(requests.column(DELETES)))
        if not len(at):
            return
        rows = take(requests, at)
        body = json.dumps({"ids": rows.column(KEY).to_pylist()})
        stored = self._request(client, "POST", "/_mget", body)
        if stored is None:
            raise Busy("the index was removed while rows were written")
        versions = rows.column(VERSION).to_pylist()
        for row, version, doc in zip(at, versions, stored["docs"], strict=True):
            if "error" in doc:  # such as a shard that is not available
                answers[row] = Again(show_reasons(doc["error"]))
            elif doc.get("found") and doc["_version"] <= version:
                is_same = doc["_version"] == version
                answers[row] = (Tie if is_same else Again)(json.dumps(doc["_source"]))

    def _failed(self, error: Any) -> Exception:
        """The error of a request."""
        errors = _errors()
        if isinstance(error, errors.SSLError):
            return self._error(conditions.STORE_UNAVAILABLE, _show(error))
        if isinstance(error, errors.ConnectionError) or error.status_code in BUSY:
            return Busy(_show(error))
        return self._error(conditions.STORE_REFUSED, _show(error))

    @property
    def _path(self) -> str:
        return f"/{quote(self.index, safe='')}"


def _errors() -> Any:
    return require_package("opensearchpy.exceptions", package="opensearch-py", extra="opensearch")


def _type_of(error: Any) -> str:
    """The type of an error of the client."""
    return error_type(error.info.get("error") if isinstance(error.info, Mapping) else None)


def _show(error: Any) -> str:
    """The text of an error of the client."""
    if isinstance(error.info, Mapping):
        cause = error.info.get("error")
        return f"{error.status_code} {error_type(cause)}: {show_reasons(cause)}"
    return f"{error.status_code} {error.error}: {error.info}"
