"""The distinct conditions of all queries, and which of them are true of which documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids, Mask
from streamops.search.core.documents import Integers, Tokens, distinct, pieces, spans
from streamops.search.core.nodes import ANY_COLUMN, NodeType
from streamops.search.core.terms import Prefixes, Terms

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
