"""The distinct conditions of all queries, and which of them are true of which documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.versions import table_of
from streamops.search.core.documents import (
    Integers,
    Prefixes,
    Terms,
    Tokens,
    distinct,
    pieces,
    spans,
)
from streamops.search.core.nodes import ANY_COLUMN, NodeType

NOWHERE = -1


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents: the words of each text column, and the fields."""

    tokens: Sequence[pa.ChunkedArray]  # lists of words
    fields: Sequence[pa.ChunkedArray]
    count: int


@dataclass(frozen=True, slots=True)
class Found:
    """What was looked up: the conditions that are true of documents, and the documents' content.

    ``keys`` are a document and a condition in one number, sorted.
    """

    keys: Ids
    document: Ids
    condition: Ids
    tokens: Sequence[Tokens]
    fields: Sequence[Integers | None]  # None if no range needs them


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions by number, and the dictionaries by which documents find them."""

    node_type: Ids
    column: Ids
    low: Ids
    high: Ids
    terms: Terms
    prefixes: Prefixes
    # Number of the condition for each column (the first is any column) and term, or prefix.
    of_term: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    of_prefix: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    phrases: dict[int, Ids]  # the terms of each phrase
    strings: Sequence[tuple[Terms, Ids, Prefixes, Ids, Sequence[str]]]  # of each field
    numbers: Sequence[tuple[Ids, Ids]]  # of each field: sorted values, and their conditions
    exists: Ids  # of each field

    def __len__(self) -> int:
        return len(self.node_type)

    @staticmethod
    def of(table: pa.Table, columns: int, fields: int) -> Conditions:
        """Number the conditions, which are distinct."""
        node_type, column = (
            np.asarray(combine_chunks(table.column(name))).astype(np.int64)
            for name in ("type", "column")
        )
        low, high = (
            np.array(combine_chunks(table.column(name)).fill_null(0)) for name in ("low", "high")
        )
        text, other = (combine_chunks(table.column(name)) for name in ("text", "other"))

        def texts(at: Ids) -> pa.Array:
            return text.take(pa.array(at))

        def table_of(at: Ids, terms: Terms) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
            result = np.full((columns + 1, max(len(terms), 1)), NOWHERE)
            result[column[at] + 1, terms.find(texts(at))] = at
            return result

        is_word, is_prefix, is_phrase = (
            np.flatnonzero(node_type == which)
            for which in (NodeType.WORD, NodeType.PREFIX, NodeType.PHRASE)
        )
        split = pc.split_pattern(texts(is_phrase), " ")
        flat = split.flatten()
        terms = Terms(pc.unique(pa.concat_arrays([texts(is_word), flat])))
        prefixes = Prefixes(Terms(pc.unique(texts(is_prefix))))
        sizes = np.asarray(pc.list_value_length(split)).astype(np.int64)
        tokens = np.split(terms.find(flat), np.cumsum(sizes)[:-1]) if len(sizes) else []
        strings, numbers = [], []
        exists = np.full(fields, NOWHERE)
        for number in range(fields):
            own = (column == number) & (node_type > NodeType.PHRASE)
            value, begun, between = (
                np.flatnonzero(own & (node_type == which))
                for which in (NodeType.VALUE, NodeType.VALUE_PREFIX, NodeType.VALUE_RANGE)
            )
            bounds, has = [], []
            for side in (text, other):
                bound = side.take(pa.array(between))
                bounds.append(bound)
                has.append(np.asarray(bound.is_valid()))
            known = sorted(set(pa.concat_arrays(bounds).drop_null().to_pylist()))
            if len(between):
                _rank_bounds(table, between, bounds, has, known, low, high)
            strings.append(
                (Terms(texts(value)), value, Prefixes(Terms(texts(begun))), begun, known)
            )
            equal = np.flatnonzero(own & (node_type == NodeType.NUMBER))
            equal = equal[np.argsort(low[equal], kind="stable")]
            numbers.append((low[equal], equal))
            exists[number] = next(
                iter(np.flatnonzero(own & (node_type == NodeType.EXISTS))), NOWHERE
            )
        return Conditions(
            node_type,
            column,
            low,
            high,
            terms,
            prefixes,
            table_of(is_word, terms),
            table_of(is_prefix, prefixes.terms),
            dict(zip(is_phrase.tolist(), tokens, strict=True)),
            strings,
            numbers,
            exists,
        )

    def look_up(self, documents: Documents) -> Found:
        """All conditions on words, prefixes and values that are true, by document."""
        tokens: list[Tokens] = []
        fields: list[Integers | None] = []
        pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        pairs += self._look_up_tokens(documents, tokens)
        pairs += self._look_up_fields(documents, fields)
        count = max(len(self), 1)
        keys = distinct(
            np.concatenate([document * count + condition for document, condition in pairs])
        )
        return Found(keys, keys // count, keys % count, tokens, fields)

    def look_up_ranges(self, found: Found, conditions: Ids, most: int) -> Iterator[tuple[Ids, Ids]]:
        """Documents in each of these ranges: pairs of both, about `most` at once."""
        for number in np.unique(self.column[conditions]):
            field = found.fields[number]
            assert field is not None, "a range has a bound"
            valid = np.flatnonzero(field.valid)
            order = valid[np.argsort(field.value[valid], kind="stable")]
            values = field.value[order]
            ranges = conditions[self.column[conditions] == number]
            first = np.searchsorted(values, self.low[ranges])
            last = np.searchsorted(values, self.high[ranges], "right")
            counts = np.maximum(last - first, 0)
            for some in pieces(counts, most):
                at, owner = spans(first[some], counts[some])
                yield order[at], ranges[some][owner]

    def evaluate(self, found: Found, document: Ids, condition: Ids) -> Mask:
        """Whether each condition is true of the document beside it."""
        node_type = self.node_type[condition]
        key = document * len(self) + condition
        known = found.keys
        at = np.searchsorted(known, key)
        result = np.zeros(len(key), np.bool_)
        inside = at < len(known)
        result[inside] = known[at[inside]] == key[inside]
        ranges = np.flatnonzero(
            (node_type == NodeType.NUMBER_RANGE) | (node_type == NodeType.VALUE_RANGE)
        )
        for number in np.unique(self.column[condition[ranges]]):
            rows = ranges[self.column[condition[ranges]] == number]
            field = found.fields[number]
            assert field is not None, "a range has a bound"
            value = field.value[document[rows]]
            of = condition[rows]
            result[rows] = (
                field.valid[document[rows]] & (self.low[of] <= value) & (value <= self.high[of])
            )
        phrases = np.flatnonzero(node_type == NodeType.PHRASE)
        if len(phrases):
            pairs, inverse = np.unique(key[phrases], return_inverse=True)
            result[phrases] = self._find_phrases(found, pairs)[inverse]
        return result

    def _find_phrases(self, found: Found, keys: Ids) -> Mask:
        document, condition = keys // len(self), keys % len(self)
        result = np.zeros(len(keys), np.bool_)
        column = self.column[condition]
        for number, tokens in enumerate(found.tokens):
            at = np.flatnonzero(((column == number) | (column == ANY_COLUMN)) & ~result)
            if len(at):
                phrases = [self.phrases[c] for c in condition[at].tolist()]
                result[at] = tokens.contain(document[at], phrases)
        return result

    def _look_up_tokens(
        self, documents: Documents, views: list[Tokens]
    ) -> Iterator[tuple[Ids, Ids]]:
        for number, column in enumerate(documents.tokens):
            tokens, spellings, which = Tokens.of(column, self.terms)
            views.append(tokens)
            document = tokens.document
            at = np.flatnonzero(tokens.term >= 0)
            for row in (0, number + 1):
                condition = self.of_term[row][tokens.term[at]]
                found = condition >= 0
                yield document[at[found]], condition[found]
            if len(self.prefixes.terms):
                word, prefix = self.prefixes.find(spellings)
                order = np.argsort(word, kind="stable")
                prefix = prefix[order]
                bounds = np.searchsorted(word[order], np.arange(len(spellings) + 1))
                start, size = bounds[:-1][which], np.diff(bounds)[which]
                begun, owner = spans(start, size)
                for row in (0, number + 1):
                    condition = self.of_prefix[row][prefix[begun]]
                    found = condition >= 0
                    yield document[owner[found]], condition[found]

    def _look_up_fields(
        self, documents: Documents, views: list[Integers | None]
    ) -> Iterator[tuple[Ids, Ids]]:
        for number, chunked in enumerate(documents.fields):
            column = combine_chunks(chunked)
            valid = np.asarray(column.is_valid())
            terms, values, prefixes, begun, bounds = self.strings[number]
            if pa.types.is_string(column.type):
                encoded = column.dictionary_encode()
                spellings = encoded.dictionary
                which = np.asarray(encoded.indices.fill_null(0)).astype(np.int64)
                present = np.flatnonzero(valid)
                of = terms.find(spellings)[which[present]] if len(spellings) else which[present]
                found = of >= 0 if len(terms) else np.zeros(len(of), np.bool_)
                yield present[found], values[of[found]]
                if len(prefixes.terms) and len(present):
                    word, prefix = prefixes.find(spellings)
                    order = np.argsort(word, kind="stable")
                    ends = np.searchsorted(word[order], np.arange(len(spellings) + 1))
                    start, size = ends[:-1][which[present]], np.diff(ends)[which[present]]
                    at, owner = spans(start, size)
                    yield present[owner], begun[prefix[order][at]]
                views.append(
                    Integers.of_strings(spellings, which, valid, bounds) if bounds else None
                )
            else:
                integers = Integers.of_numbers(column)
                valid = integers.valid  # NaN is not a value
                views.append(integers)
                ordered, conditions = self.numbers[number]
                if len(ordered):
                    at = np.minimum(np.searchsorted(ordered, integers.value), len(ordered) - 1)
                    found = integers.valid & (ordered[at] == integers.value)
                    yield np.flatnonzero(found), conditions[at[found]]
            if self.exists[number] != NOWHERE:
                rows = np.flatnonzero(valid)
                yield rows, np.full(len(rows), self.exists[number])


def _rank_bounds(
    table: pa.Table,
    at: Ids,
    bounds: Sequence[pa.Array],
    has: Sequence[Mask],
    known: Sequence[str],
    low: Ids,
    high: Ids,
) -> None:
    """Bounds of ranges of strings as ranks, see :meth:`Integers.of_strings`."""
    number = Terms(pa.array(known, pa.string()))
    included = np.asarray(combine_chunks(table.column("bounds")).fill_null(0))[at]
    lower, upper = (2 * number.find(bound) + 1 for bound in bounds)
    low[at] = np.where(has[0], lower + ((included & 1) == 0), -1)
    high[at] = np.where(has[1], upper - ((included & 2) == 0), 2 * len(known) + 1)


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
        table = table_of(nodes.flatten())
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
