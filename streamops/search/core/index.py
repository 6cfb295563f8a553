"""An index of queries: each is filed under the conditions of which at least one must be true.

A document is compared only with the queries that are filed under one of its words or values. A query is
filed under its rarest required condition; under all conditions of an OR, if none is required by itself;
and in a list that is verified for every document, if it requires none: a query that only excludes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.search.core.documents import distinct, pieces, spans
from streamops.search.core.evaluate import Conditions, Documents, Found
from streamops.search.core.nodes import NodeType

_LOOKED_UP = (
    NodeType.WORD,
    NodeType.PREFIX,
    NodeType.VALUE,
    NodeType.VALUE_PREFIX,
    NodeType.NUMBER,
    NodeType.EXISTS,
)
"""Conditions by which documents find queries."""

_RANGES = (NodeType.NUMBER_RANGE, NodeType.VALUE_RANGE)
"""Conditions that find documents: by their sorted values."""

_NODES_AT_ONCE = 1 << 21
_ENOUGH_DOCUMENTS = 1 << 17
_GROWTH = 4

Matches = tuple[Ids, Ids]
"""Documents and queries, by document, then by query."""


@dataclass(slots=True)
class QueryIndex:
    """Compiled queries, and under which condition each is filed.

    The rarest condition is that of the documents seen so far, so the index is filed again as more of them
    arrive. What it finds does not depend on that.
    """

    conditions: Conditions
    node_type: Ids  # of each node
    parent: Ids  # number of a node of all queries; its own at roots
    depth: Ids
    negated: Mask
    condition: Ids  # number of the condition of a leaf; -1 at inner nodes
    starts: Ids  # first node of each query
    sizes: Ids  # number of nodes of each query
    children: Ids  # number of children of each node
    seen: int = 0  # number of documents
    filed: int = -1  # number of documents seen when the index was filed
    frequency: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    # Queries by the condition they are filed under; those of condition c are from bounds[c] on.
    queries: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    bounds: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    ranges: Ids = field(default_factory=lambda: np.zeros(0, np.int64))  # under which some are filed
    always: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    is_certain: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))

    @staticmethod
    def of(nodes: pa.ListArray, columns: int, fields: int) -> QueryIndex:
        """Build the index of these queries, over this number of text columns and fields."""
        sizes = np.asarray(pc.list_value_length(nodes)).astype(np.int64)
        starts = np.cumsum(sizes) - sizes
        table = pa.Table.from_struct_array(nodes.flatten())
        query = np.repeat(np.arange(len(sizes)), sizes)
        node_type = np.asarray(combine_chunks(table.column("type"))).astype(np.int64)
        relative = np.asarray(combine_chunks(table.column("parent"))).astype(np.int64)
        parent = np.where(relative < 0, 0, relative) + starts[query]
        leaves = np.flatnonzero(node_type > NodeType.OR)
        names = ("type", "column", "text", "other", "low", "high", "bounds")
        content = take(table.select(names), leaves)
        codes = key_codes(content.columns, len(content))
        groups, firsts = Groups.of(codes)
        condition = np.full(len(node_type), -1)
        condition[leaves] = groups.ids
        is_child = relative >= 0
        conditions = Conditions.of(take(content, firsts), columns, fields)
        return QueryIndex(
            conditions,
            node_type,
            parent,
            _depths(parent, is_child),
            np.asarray(combine_chunks(table.column("negated"))),
            condition,
            starts,
            sizes,
            np.bincount(parent[is_child], minlength=len(node_type)).astype(np.int64),
            frequency=np.zeros(len(firsts), np.int64),
        )

    def match(self, documents: Documents) -> Matches:
        """The documents and queries that match."""
        found = self.conditions.look_up(documents)
        self._observe(found.condition, documents.count)
        parts = [np.zeros(0, np.int64)]
        pairs = self.conditions.look_up_ranges(found, self.ranges, _NODES_AT_ONCE)
        for document, condition in chain([(found.document, found.condition)], pairs):
            first, counts = self.bounds[:-1][condition], np.diff(self.bounds)[condition]
            for some in pieces(counts, _NODES_AT_ONCE):
                at, pair = spans(first[some], counts[some])
                query = self.queries[at]
                key = document[some][pair] * len(self.starts) + query
                certain = self.is_certain[query]
                parts.append(key[certain])
                parts += self._verify_all(distinct(key[~certain]), found)
        for keys in self._pairs_of_unfiled(documents.count):
            parts += self._verify_all(keys, found)
        # A query that is filed under several conditions may be found by each of them.
        matches = distinct(np.concatenate(parts))
        return matches // len(self.starts), matches % len(self.starts)

    def _pairs_of_unfiled(self, documents: int) -> Iterator[Ids]:
        """Pairs of every document and the queries that are not filed under a condition."""
        if len(self.always):
            rows = max(_NODES_AT_ONCE // int(self.sizes[self.always].sum()), 1)
            for first in range(0, documents, rows):
                some = np.arange(first, min(first + rows, documents))
                yield (some[:, None] * len(self.starts) + self.always).ravel()

    def _verify_all(self, keys: Ids, found: Found) -> Iterator[Ids]:
        """The pairs that match, verified in pieces of a limited number of nodes."""
        for some in pieces(self.sizes[keys % len(self.starts)], _NODES_AT_ONCE):
            yield keys[some][self._verify(keys[some], found)]

    def _verify(self, keys: Ids, found: Found) -> Mask:
        """Evaluate all conditions of each pair of a document and a query."""
        document, query = keys // len(self.starts), keys % len(self.starts)
        node, pair = spans(self.starts[query], self.sizes[query])
        base = np.cumsum(self.sizes[query]) - self.sizes[query]
        condition = self.condition[node]
        leaf = np.flatnonzero(condition >= 0)
        value = np.zeros(len(node), np.bool_)
        true = self.conditions.evaluate(found, document[pair[leaf]], condition[leaf])
        value[leaf] = true ^ self.negated[node[leaf]]
        node_type, depth = self.node_type[node], self.depth[node]
        needed = np.where(node_type == NodeType.OR, 1, self.children[node])
        above = self.parent[node] - self.starts[query][pair] + base[pair]
        counts = np.zeros(len(node), np.int64)
        for level in range(int(depth.max(initial=0)), -1, -1):
            at = np.flatnonzero(depth == level)
            inner = at[node_type[at] <= NodeType.OR]
            value[inner] = counts[inner] >= needed[inner]
            if level:
                counts += np.bincount(above[at[value[at]]], minlength=len(node))
        result: Mask = value[base]
        return result

    def _observe(self, condition: Ids, documents: int) -> None:
        """Count the documents of each condition, and file the queries if there are many more."""
        if self.filed >= _ENOUGH_DOCUMENTS:
            return
        self.frequency += np.bincount(condition, minlength=len(self.frequency))
        self.seen += documents
        if self.filed < 0 or self.seen >= _GROWTH * self.filed:
            self._file()

    def _file(self) -> None:
        leaf = self.condition >= 0
        is_key = np.isin(self.node_type, _LOOKED_UP) & ~self.negated
        uses = np.bincount(self.condition[leaf], minlength=len(self.frequency))
        # Of conditions of as many documents, the one that the fewest queries have.
        costs = self.frequency + uses / (len(self.node_type) + 1.0)
        cost = np.full(len(self.node_type), np.inf)
        cost[is_key] = costs[self.condition[is_key]]
        # Ranges are found from the side of queries, and are not counted: half of the documents.
        is_range = np.isin(self.node_type, _RANGES) & ~self.negated
        cost[is_range] = 0.5 * self.seen + costs[self.condition[is_range]]
        cost[self.node_type == NodeType.OR] = 0.0
        chosen = np.arange(len(self.node_type))  # the child of each AND that is looked up
        for level in range(int(self.depth.max(initial=0)), 0, -1):
            at = np.flatnonzero(self.depth == level)
            parent = self.parent[at]
            is_or = self.node_type[parent] == NodeType.OR
            np.add.at(cost, parent[is_or], cost[at[is_or]])
            among, of = at[~is_or], parent[~is_or]
            order = np.lexsort((among, cost[among], of))
            among, of = among[order], of[order]
            first = np.append(True, of[1:] != of[:-1])[: len(of)]
            chosen[of[first]] = among[first]
            cost[of[first]] = cost[among[first]]
        roots = self.starts
        selected = np.zeros(len(self.node_type), np.bool_)
        selected[roots] = np.isfinite(cost[roots])
        for level in range(1, int(self.depth.max(initial=0)) + 1):
            at = np.flatnonzero(self.depth == level)
            parent = self.parent[at]
            goes_on = (self.node_type[parent] == NodeType.OR) | (chosen[parent] == at)
            selected[at] = selected[parent] & goes_on
        anchors = np.flatnonzero(selected & leaf)
        query = np.searchsorted(self.starts, anchors, "right") - 1
        order = np.argsort(self.condition[anchors], kind="stable")
        self.queries = query[order]
        number = np.arange(len(self.frequency) + 1)
        self.bounds = np.searchsorted(self.condition[anchors][order], number)
        filed = distinct(self.condition[anchors])
        self.ranges = filed[np.isin(self.conditions.node_type[filed], _RANGES)]
        self.always = np.flatnonzero(~np.isfinite(cost[roots]))
        self.is_certain = (self.sizes == 1) & np.isfinite(cost[roots])
        self.filed = self.seen


def _depths(parent: Ids, is_child: Mask) -> Ids:
    """The level of each node below its root."""
    depth, above = is_child.astype(np.int64), parent
    while (moves := is_child[above]).any():
        depth += moves
        above = parent[above]
    return depth
