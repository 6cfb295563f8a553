"""How far the ranks of KLL sketches are off, against exact truth, at fixed seeds.

``python -m tests.sketches.kll_accuracy`` prints the table of docs/sketches.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Groups
from streamops.sketches.core.kll import QuantileSketch, rank_error

Values = npt.NDArray[np.float64]

DECILES = tuple(i / 10 for i in range(1, 10))
ROOMS = (100, 200, 800)
COUNTS = (100, 1_000, 10_000, 100_000, 1_000_000)
PARTS = (1, 2, 7, 100)


def _zigzag(count: int, rng: np.random.Generator) -> Values:
    """The least, the greatest, the next ones: whatever was kept last is furthest from what comes."""
    rising = np.arange(count, dtype=np.float64)
    mixed = np.empty(count)
    half = (count + 1) // 2
    mixed[::2], mixed[1::2] = rising[:half], rising[half:][::-1]
    return mixed


# By name; each has its values in the order in which they come.
STREAMS: dict[str, Callable[[int, np.random.Generator], Values]] = {
    "uniform": lambda n, rng: rng.random(n),
    "normal": lambda n, rng: rng.normal(size=n),
    "heavy tail": lambda n, rng: rng.pareto(1.0, n),
    "sorted": lambda n, rng: np.arange(n, dtype=np.float64),
    "reversed": lambda n, rng: np.arange(n, dtype=np.float64)[::-1],
    "20 distinct": lambda n, rng: rng.integers(0, 20, n).astype(np.float64),
    "zigzag": _zigzag,
    # The same hundred times over: coins that are hashed from content must not fall alike.
    "repeated": lambda n, rng: np.tile(rng.normal(size=n // 100), 100),
}


@dataclass(frozen=True)
class Trial:
    """A stream, cut into micro-batches, and sketched."""

    stream: str
    k: int
    count: int
    parts: int
    seed: int

    @property
    def values(self) -> Values:
        return STREAMS[self.stream](self.count, np.random.default_rng(self.seed))

    def sketch(self) -> QuantileSketch:
        return QuantileSketch("value", self.k, DECILES)

    def states(self) -> list[pa.Array]:
        """Each micro-batch merged into what was there."""
        stored_items: list[pa.Array] | None = None
        for part in np.array_split(self.values, self.parts):
            fresh = self.sketch().update(_one(len(part)), pa.table({"value": part}))
            stored_items = fresh if stored_items is None else self._merged([stored_items, fresh])
        assert stored_items is not None
        return stored_items

    def _merged(self, states: Sequence[list[pa.Array]]) -> list[pa.Array]:
        columns = [pa.concat_arrays(item) for item in zip(*states, strict=True)]
        return self.sketch().merge(_one(len(states)), columns)

    def errors(self) -> tuple[float, float]:
        """How far the ranks of the deciles are off at most, and the ranks of all values."""
        states, truth = self.states(), np.sort(self.values)
        found = self.sketch().estimate(states)[0].as_py()
        upto = np.searchsorted(truth, found["estimate"], "right") / self.count
        below = np.searchsorted(truth, found["estimate"], "left") / self.count
        deciles = np.maximum(np.maximum(below - DECILES, DECILES - upto), 0).max()
        points = np.unique(truth)[:: max(1, self.count // 1000)]
        ranks = np.array(self.sketch().ranks(states, points.tolist())[0].as_py())
        known = np.searchsorted(truth, points, "right") / self.count
        return float(deciles), float(np.abs(ranks - known).max())

    def misses(self) -> int:
        """Deciles that are outside their bounds."""
        truth = np.sort(self.values)
        exact = truth[np.ceil(np.round(np.array(DECILES) * self.count, 6)).astype(int) - 1]
        lower, upper = (item[0].as_py() for item in self.sketch().bounds(self.states()))
        return int(((exact < lower) | (exact > upper)).sum())


def _one(rows: int) -> Groups:
    return Groups(np.zeros(rows, np.int64), 1)


def trials(
    rooms: Sequence[int] = ROOMS, counts: Sequence[int] = COUNTS, seeds: Sequence[int] = (0,)
) -> Iterator[Trial]:
    """Every stream, cut in every way."""
    for stream, k, count, parts, seed in product(STREAMS, rooms, counts, PARTS, seeds):
        yield Trial(stream, k, count, parts, seed)


def table() -> str:
    """Measured and promised: the worst of the deciles, and in brackets the worst rank of any value."""
    arguments = ["| k | promised | " + " | ".join(f"{count:,}" for count in COUNTS) + " |"]
    arguments.append("|---" * (2 + len(COUNTS)) + "|")
    for k in ROOMS:
        cells = []
        for count in COUNTS:
            found = [item.errors() for item in trials([k], [count])]
            deciles, ranks = (100 * max(item) for item in zip(*found, strict=True))
            cells.append(f"{deciles:.2f} % ({ranks:.2f} %)")
        arguments.append(f"| {k} | {100 * rank_error(k):.2f} % | " + " | ".join(cells) + " |")
    return "\n".join(arguments)


if __name__ == "__main__":
    print(table())
