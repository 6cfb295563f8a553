"""Compiled queries: trees of conditions, as rows of an Arrow list.

A query is a list of nodes in preorder: inner nodes combine their children, leaves are conditions on a
document. Negation is at the leaves only. The nodes of a query are part of the state, so their layout
may only change together with the version of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

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
