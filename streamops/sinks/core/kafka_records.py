"""The records of a Kafka topic for the net effect of a micro-batch.

============  ==========================================  ==============================================
form          records in JSON                             records in Debezium's envelope
============  ==========================================  ==============================================
append        the row, without message key                ``c`` with the row
upsert        the row                                     ``u`` with the row, and without the row before
changes       the row; a tombstone for a deleted key      ``c``, ``u``, ``d`` with the row before and
                                                          after; a tombstone after ``d``
multiset      the row with ``_change_type``, without      ``c`` and ``d``, without message key
              message key
============  ==========================================  ==============================================
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT
from streamops.kernel.columns import combine_chunks
from streamops.sinks.core.ledger import Entry
from streamops.sinks.core.net import Form, Net, repeat

Envelope = Literal["json", "debezium"]

KEY, VALUE = "streamops_key", "streamops_value"
"""Columns with the JSON of the key and of the row. Spark computes them."""

_TEXT = pa.large_string()
_FIELDS = {*(f.name for f in fields(Entry)), "partitions"}


def make_records(net: Net, form: Form, envelope: Envelope, source: str) -> pa.Table:
    """Return the records, in the order in which they are written: columns "key" and "value".

    Parameters
    ----------
    net : Net
        The net effect of a micro-batch, with the columns ``KEY`` (if there is a key) and ``VALUE``.
    form : str
        The form of the rows.
    envelope : "json" or "debezium"
        What a record looks like.
    source : str
        JSON for the field "source" of Debezium's envelope.
    """
    removed, added = net.removed, net.added
    if form == "multiset":
        removed = repeat(removed, net.removed_copies)
        added = repeat(added, net.added_copies)
        if envelope == "json":
            lost = _with_change_type(_text(removed, VALUE), DELETE)
            new = _with_change_type(_text(added, VALUE), INSERT)
        else:
            lost = _wrap(_text(removed, VALUE), _null(removed), "d", source)
            new = _wrap(_null(added), _text(added, VALUE), "c", source)
        return _concat([_records(_null(removed), lost), _records(_null(added), new)])
    keys = _text(added, KEY) if KEY in added.column_names else _null(added)
    if form != "changes":
        values = _text(added, VALUE)
        if envelope == "debezium":
            values = _wrap(_null(added), values, "c" if form == "append" else "u", source)
        return _records(keys, values)
    deleted = removed.filter(pa.array(~net.is_replaced))
    tombstones = _records(_text(deleted, KEY), _null(deleted))
    if envelope == "json":
        return _concat([tombstones, _records(keys, _text(added, VALUE))])
    deletes = _wrap(_text(deleted, VALUE), _null(deleted), "d", source)
    before = _rows_before(net)
    updates = _wrap(before, _text(added, VALUE), "u", source)
    inserts = _wrap(before, _text(added, VALUE), "c", source)
    return _concat(
        [
            _records(_text(deleted, KEY), deletes),
            tombstones,
            _records(keys, pc.if_else(pa.array(net.replaces), updates, inserts)),
        ]
    )


def encode_entry(entry: Entry, partitions: int = 0) -> bytes:
    """Return the value of a ledger record.

    Parameters
    ----------
    entry : Entry
        The entry.
    partitions : int
        To how many partitions the next micro-batch is written one by one; 0: in one transaction.
    """
    return json.dumps({**asdict(entry), "partitions": partitions}).encode()


def decode_entry(value: bytes) -> tuple[Entry, int]:
    """Return the entry of a ledger record, and its number of partitions.

    Raises
    ------
    ValueError
        The record is not an entry.

    Examples
    --------
    >>> entry = Entry("query", 1, "run", 0, rows=2, digest=7, former=("old",))
    >>> decode_entry(encode_entry(entry, 6)) == (entry, 6)
    True
    """
    values = json.loads(value)
    if not _is_entry(values):
        message = f"not an entry of a sink: {value[:200]!r}"
        raise ValueError(message)
    partitions = values.pop("partitions")
    return Entry.of(*(values[field.name] for field in fields(Entry))), partitions


def _is_entry(values: Any) -> bool:
    if type(values) is not dict or values.keys() != _FIELDS:
        return False
    lists = values["former"], values["offsets"]
    if any(type(of) is not list for of in lists):
        return False
    texts = [values[name] for name in ("query", "run", "target", "target_id")]
    texts += [text for of in lists for text in of]
    numbers = [values[n] for n in ("generation", "batch", "rows", "digest", "partitions")]
    return all(type(t) is str for t in texts) and all(type(n) is int for n in numbers)


def _rows_before(net: Net) -> pa.Array:
    """For each added row, the JSON of the row that it replaces; null for a new key."""
    lost = net.removed.filter(pa.array(net.is_replaced))
    at = pc.index_in(_text(net.added, KEY), value_set=_text(lost, KEY))
    return _text(lost, VALUE).take(at)


def _wrap(before: pa.Array, after: pa.Array, operation: str, source: str) -> pa.Array:
    """Rows in Debezium's envelope, as its JSON converter writes it without schemas."""
    end = f',"source":{source},"op":"{operation}"}}'
    before, after = before.fill_null("null"), after.fill_null("null")
    return _join('{"before":', before, ',"after":', after, end)


def _with_change_type(rows: pa.Array, change_type: str) -> pa.Array:
    """JSON objects with the change type as the first field."""
    begin = f'{{"{CHANGE_TYPE}":"{change_type}"'
    rest = pc.utf8_slice_codeunits(rows, 1)
    has_fields = pc.not_equal(rest, pa.scalar("}", _TEXT))
    between = pc.if_else(has_fields, pa.scalar(",", _TEXT), pa.scalar("", _TEXT))
    return _join(begin, between, rest)


def _join(*parts: str | pa.Array) -> pa.Array:
    texts = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT))


def _text(rows: pa.Table, name: str) -> pa.Array:
    return combine_chunks(rows.column(name)).cast(_TEXT)


def _null(rows: pa.Table) -> pa.Array:
    return pa.nulls(len(rows), _TEXT)


def _records(keys: pa.Array, values: pa.Array) -> pa.Table:
    return pa.table({"key": keys, "value": values})


def _concat(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables)
