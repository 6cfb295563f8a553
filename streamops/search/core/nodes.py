"""Compiled queries: trees of conditions, as rows of an Arrow list.

A query is a list of nodes in preorder: inner nodes combine their children, leaves are conditions on a
document. Negation is at the leaves only. The nodes of a query are part of the state, so their layout
may only change together with the version of the state.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, plain_floats, to_floats
from streamops.kernel.groups import Ids, Mask

ANY_COLUMN = -1
"""Instead of a column: a word may be in any text column."""

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


class NodeType(IntEnum):
    """What a node is. The numbers are part of the state."""

    AND = 0
    OR = 1
    WORD = 2  # `text` is a word of a text column
    PREFIX = 3  # a word of a text column begins with `text`
    PHRASE = 4  # the words of `text`, separated by spaces, follow one another in a text column
    VALUE = 5  # the string of a field equals `text`
    VALUE_PREFIX = 6  # the string of a field begins with `text`
    VALUE_RANGE = 7  # the string of a field is between `text` and `other`; null is no bound
    NUMBER = 8  # the number of a field is `low`
    NUMBER_RANGE = 9  # the number of a field is between `low` and `high`
    EXISTS = 10  # the field is not null


TEXT_TYPES = (NodeType.WORD, NodeType.PREFIX, NodeType.PHRASE)

NODE = pa.struct(
    [
        ("type", pa.int8()),
        ("parent", pa.int32()),  # number of a node of the query; -1 at the root
        ("negated", pa.bool_()),
        ("column", pa.int16()),  # number of a text column, or of a field, by its kind
        ("text", pa.string()),
        ("other", pa.string()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("bounds", pa.int8()),  # of a VALUE_RANGE: 1 if `text` is included, plus 2 if `other` is
    ]
)

NODES = pa.list_(NODE)


@dataclass(slots=True)
class Node:
    """One node, while a query is compiled."""

    node_type: NodeType
    negated: bool = False
    column: int = ANY_COLUMN
    text: str | None = None
    other: str | None = None
    low: int | None = None
    high: int | None = None
    bounds: int | None = None
    children: Sequence[Node] = ()
    position: int = 0


def flatten(root: Node) -> list[tuple[object, ...]]:
    """The nodes of a tree in preorder, as values of :data:`NODE`."""
    rows: list[tuple[object, ...]] = []

    def add(node: Node, parent: int) -> None:
        number = len(rows)
        rows.append(
            (
                int(node.node_type),
                parent,
                node.negated,
                node.column,
                node.text,
                node.other,
                node.low,
                node.high,
                node.bounds,
            )
        )
        for child in node.children:
            add(child, number)

    add(root, -1)
    return rows


def negate(node: Node) -> Node:
    """The tree that is true where the node is false, with negations at its leaves."""
    if node.node_type in (NodeType.AND, NodeType.OR):
        node_type = NodeType.OR if node.node_type == NodeType.AND else NodeType.AND
        children = [negate(child) for child in node.children]
        return Node(node_type, children=children, position=node.position)
    return Node(
        node.node_type,
        not node.negated,
        node.column,
        node.text,
        node.other,
        node.low,
        node.high,
        node.bounds,
        position=node.position,
    )


def combine(node_type: NodeType, children: Sequence[Node], position: int) -> Node:
    """One node over the children: the child itself if there is one, and no nested nodes of its kind."""
    flat: list[Node] = []
    for child in children:
        flat += child.children if child.node_type == node_type else [child]
    return flat[0] if len(flat) == 1 else Node(node_type, children=flat, position=position)


def map_leaves(node: Node, convert: Callable[[Node], Node]) -> Node:
    """The tree with converted leaves."""
    if node.node_type not in (NodeType.AND, NodeType.OR):
        return convert(node)
    children = [map_leaves(child, convert) for child in node.children]
    return combine(node.node_type, children, node.position)


EXPECTED = "string, boolean, an integer, float, double, date or timestamp"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z", re.ASCII)

_NANOSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class FieldType:
    """How the values of a field are parsed: None if it is a string."""

    expected: str
    parse: Callable[[str], int] | None = None


def field_type(dtype: pa.DataType) -> FieldType | None:
    """The type of a field; None if the column cannot be one."""
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return FieldType("a string")
    if pa.types.is_boolean(dtype):
        return FieldType("true or false", _parse_boolean)
    if pa.types.is_signed_integer(dtype):
        return FieldType("an integer", _parse_integer)
    if pa.types.is_floating(dtype):
        narrow = pa.types.is_float32(dtype)
        return FieldType("a number", _parse_single if narrow else _parse_double)
    if pa.types.is_date32(dtype):
        return FieldType("a date such as 2026-01-31", _parse_date)
    if pa.types.is_timestamp(dtype):
        return FieldType("a date or a time such as 2026-01-31T10:00:00Z", _parse_instant)
    return None


def to_integers(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, Mask]:
    """Values as integers of the same order, and where there is one: NaN is none, as null."""
    array = combine_chunks(column)
    dtype, valid = array.type, np.asarray(array.is_valid())
    if pa.types.is_floating(dtype):
        values = to_floats(array)
        return _ordered_bits(values), valid & ~np.isnan(values)
    if pa.types.is_boolean(dtype):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(dtype):
        array = array.cast(pa.int32())
    integers = array.cast(pa.int64()).fill_null(0)
    return np.asarray(integers), valid


def _ordered_bits(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ids:
    bits = plain_floats(values).view(np.int64)
    result: Ids = np.where(bits < 0, np.int64(LOWEST) - bits - 1, bits)
    return result


def _parse_boolean(text: str) -> int:
    return {"false": 0, "true": 1}[text.lower()]


def _parse_integer(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(text)
    number = int(text)
    if not LOWEST <= number <= HIGHEST:
        raise ValueError(text)
    return number


def _parse_double(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(text)
    number = float(text) + 0.0
    if math.isinf(number):
        raise ValueError(text)
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return LOWEST - bits - 1 if bits < 0 else bits


def _parse_single(text: str) -> int:
    """A number as the nearest 32-bit float, so that `price:0.1` finds 0.1 in a column of these."""
    _parse_double(text)
    return _parse_double(repr(float(np.float32(text))))


def _parse_date(text: str) -> int:
    return (dt.date.fromisoformat(text) - _EPOCH.date()).days


def _parse_instant(text: str) -> int:
    if _NANOSECONDS.search(text):
        raise ValueError(text)  # Python would cut them
    instant = dt.datetime.fromisoformat(text)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=dt.UTC)
    return (instant - _EPOCH) // _MICROSECOND
