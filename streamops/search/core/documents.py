"""The documents of a part of a micro-batch, as the conditions of queries see them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids, Mask
from streamops.search.core.nodes import to_integers


@dataclass(slots=True)
class Terms:
    """Distinct strings. The hash table is built once, and used for all micro-batches."""

    strings: pa.Array
    _numbers: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        strings = self.strings.to_pylist()
        self._numbers = dict(zip(strings, range(len(strings)), strict=True))

    def __len__(self) -> int:
        return len(self.strings)

    def find(self, strings: pa.Array) -> Ids:
        """The number of each string; -1 if it is not in the dictionary.

        Arrow's ``index_in`` would build its hash table in every call.
        """
        found = map(self._numbers.get, strings.to_pylist(), repeat(-1))
        return np.fromiter(found, np.int64, len(strings))


@dataclass(slots=True)
class Prefixes:
    """Find which of these distinct strings another string begins with."""

    terms: Terms
    lengths: list[int] = field(init=False)

    def __post_init__(self) -> None:
        lengths = pc.utf8_length(self.terms.strings)
        self.lengths = sorted(pc.unique(lengths).to_pylist())

    def find(self, strings: pa.Array) -> tuple[Ids, Ids]:
        """Pairs of a string and a prefix of it: the numbers of both."""
        found, owners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for length in self.lengths:
            begun = self.terms.find(pc.utf8_slice_codeunits(strings, 0, length))
            at = np.flatnonzero(begun >= 0)
            owners.append(at)
            found.append(begun[at])
        return np.concatenate(owners), np.concatenate(found)


UNKNOWN = -1


def spans(starts: Ids, counts: Ids) -> tuple[Ids, Ids]:
    """The numbers from each start, `count` of them, and which start each is from.

    Examples
    --------
    >>> [found.tolist() for found in spans(np.array([5, 0, 9]), np.array([2, 0, 1]))]
    [[5, 6, 9], [0, 0, 2]]
    """
    owner = np.repeat(np.arange(len(counts)), counts)
    ends = np.cumsum(counts)
    return np.arange(len(owner)) - (ends - counts - starts)[owner], owner


def pieces(sizes: Ids, most: int) -> Iterator[Ids]:
    """Positions, in pieces whose sizes add up to about `most`.

    Examples
    --------
    >>> [piece.tolist() for piece in pieces(np.array([3, 3, 9, 1, 1]), 5)]
    [[0], [1], [2, 3, 4]]
    """
    number = np.cumsum(sizes) // most
    starts = np.flatnonzero(np.diff(number)) + 1
    yield from (piece for piece in np.split(np.arange(len(sizes)), starts) if len(piece))


def distinct(keys: Ids) -> Ids:
    """The distinct keys, sorted. On keys in almost any order this is faster than NumPy's hash table."""
    ordered: Ids = np.sort(keys)
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    result: Ids = ordered[is_first]
    return result


@dataclass(frozen=True, slots=True)
class Tokens:
    """The words of a text column, of all documents: each as the number of its term."""

    term: Ids  # UNKNOWN if no query has the word
    bounds: Ids  # where the words of each document begin, and the end

    @staticmethod
    def of(column: pa.ChunkedArray, terms: Terms) -> tuple[Tokens, pa.Array, Ids]:
        """The words; and the distinct ones, with the number of each word in these."""
        lists = combine_chunks(column)
        flat = lists.flatten()
        bounds = np.append(0, np.cumsum(np.asarray(pc.list_value_length(lists)).astype(np.int64)))
        encoded = flat.dictionary_encode()
        number = np.asarray(encoded.indices).astype(np.int64)
        known = terms.find(encoded.dictionary)
        return Tokens(known[number], bounds), encoded.dictionary, number

    @property
    def document(self) -> Ids:
        """The document of each word."""
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    def contain(self, documents: Ids, phrases: Sequence[Ids]) -> Mask:
        """Which of these documents have the phrase beside each: terms that follow one another."""
        result = np.zeros(len(documents), np.bool_)
        sizes = np.array([len(phrase) for phrase in phrases], np.int64)
        flat = np.concatenate([np.zeros(0, np.int64), *phrases])
        offset = np.cumsum(sizes) - sizes
        # Where the first word of each phrase is in its document.
        tokens = np.flatnonzero(self.term != UNKNOWN)
        width = int(max(self.term.max(initial=0), flat.max(initial=0))) + 1
        keys = self.document[tokens] * width + self.term[tokens]
        order = np.argsort(keys, kind="stable")
        keys, tokens = keys[order], tokens[order]
        wanted = documents * width + flat[offset]
        first = np.searchsorted(keys, wanted)
        at, pair = spans(first, np.searchsorted(keys, wanted, "right") - first)
        position = tokens[at]
        end = self.bounds[documents + 1]
        for step in range(1, int(sizes.max(initial=0))):
            goes_on = sizes[pair] > step
            fits = position + step < end[pair]
            expected = flat[np.where(goes_on, offset[pair] + step, 0)]
            found = self.term[np.where(fits, position + step, 0)]
            alive = ~goes_on | (fits & (found == expected))
            position, pair = position[alive], pair[alive]
        result[pair] = True
        return result


@dataclass(frozen=True, slots=True)
class Integers:
    """A field of all documents as integers: numbers, or ranks among the strings in queries."""

    value: Ids
    valid: Mask

    @staticmethod
    def of_numbers(column: pa.ChunkedArray) -> Integers:
        """The numbers."""
        return Integers(*to_integers(column))

    @staticmethod
    def of_strings(values: pa.Array, number: Ids, valid: Mask, bounds: Sequence[str]) -> Integers:
        """Ranks of strings: 2 i + 1 if it is the bound i, and 2 i if it is below it, above the last.

        ``values`` are the distinct strings, ``number`` which of them each document has.
        """
        texts = np.empty(len(values), object)
        texts[:] = values.to_pylist()
        ordered = np.empty(len(bounds), object)
        ordered[:] = bounds
        left = np.searchsorted(ordered, texts)
        right = np.searchsorted(ordered, texts, "right")
        rank = left + right
        if not len(rank):
            rank = np.zeros(1, np.int64)
        return Integers(rank[np.where(valid, number, 0)].astype(np.int64), valid)
