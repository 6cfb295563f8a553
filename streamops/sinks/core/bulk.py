"""The bulk protocol of OpenSearch and Elasticsearch: requests, and what their answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.sinks.core.versions import (
    DELETES,
    DOCUMENT,
    KEY,
    OLDER,
    VERSION,
    WRITTEN,
    Again,
    Refused,
    join_text,
)

BUSY = frozenset((429, 502, 503, 504))
"""Statuses after which the same request may succeed."""
_OF_TARGET = frozenset(("index_closed_exception", "index_not_found_exception"))
"""Errors with which all documents of an index are refused, with the status of a wrong document."""
TOMBSTONE = '{"_deleted":true}'
"""What a deleted document becomes, if deletes are marked."""


def request_lines(writes: pa.Table, *, marks: bool, replaces: bool = False) -> pa.Array:
    r"""Return the lines of a bulk request, one text per write.

    A document of the same version is a conflict, unless `replaces`. A delete of the same version is not.

    Examples
    --------
    >>> writes = {"key": ["a"], "version": [3], "deletes": [True], "document": ["{}"]}
    >>> request_lines(pa.table(writes), marks=False).to_pylist()
    ['{"delete":{"_id":"a","version":3,"version_type":"external_gte"}}\n']
    """
    deletes, document = (combine_chunks(writes.column(name)) for name in (DELETES, DOCUMENT))
    takes_same = pc.or_(deletes, replaces)
    if marks:
        document = pc.if_else(deletes, TOMBSTONE, document)
        deletes = pc.and_(deletes, False)
    return join_text(
        pc.if_else(deletes, '{"delete":{"_id":', '{"index":{"_id":'),
        _quoted(combine_chunks(writes.column(KEY))),
        ',"version":',
        combine_chunks(writes.column(VERSION)),
        pc.if_else(
            takes_same, ',"version_type":"external_gte"}}\n', ',"version_type":"external"}}\n'
        ),
        pc.if_else(deletes, "", join_text(document, "\n")),
    )


def _quoted(texts: pa.Array) -> pa.Array:
    """Texts as strings of JSON."""
    special = pc.match_substring_regex(texts, r'[\x00-\x1f"\\]')
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
    quoted = join_text('"', texts, '"')
    return pc.replace_with_mask(quoted, special, pa.array(escaped, quoted.type))


def read_answer(item: Mapping[str, Any]) -> str:
    """Return what became of a write: written, older, or the reason why not.

    Examples
    --------
    >>> read_answer({"index": {"status": 201}}), read_answer({"delete": {"status": 404}})
    ('written', 'written')
    """
    ((action, answer),) = item.items()
    status, error = answer["status"], answer.get("error")
    if status < 300 or (status == 404 and action == "delete" and error is None):
        return WRITTEN
    text = f"{error_type(error)}: {show_reasons(error)}"
    if status == 409:
        return OLDER
    if status in BUSY or status >= 500:
        return Again(f"{status} {text}")
    if status != 400 or error_type(error) in _OF_TARGET:
        return Refused(f"{status} {text}")
    return text


def error_type(error: Any) -> str:
    """The type of an error, such as "mapper_parsing_exception"."""
    return str(error["type"]) if isinstance(error, Mapping) and "type" in error else "error"


def show_reasons(error: Any) -> str:
    """The reason of an error, and those of its causes."""
    reasons = [] if isinstance(error, Mapping) else [str(error)]
    while isinstance(error, Mapping):
        reasons.append(str(error.get("reason", "")))
        error = error.get("caused_by")
    return ": ".join(dict.fromkeys(filter(None, reasons)))
