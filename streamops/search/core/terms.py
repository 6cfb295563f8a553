"""Dictionaries of the strings in queries: the number of each string, and of those that begin another."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.groups import Ids


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
    """Distinct strings, of which those are wanted that another string begins with."""

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
