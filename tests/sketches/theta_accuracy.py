"""Theta sketches against exact truth: ``python -m tests.sketches.theta_accuracy`` prints it.

The tables stand in ``docs/sketches.md``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Groups
from streamops.sketches.core.theta import Overlap, Theta

SIZES = (10**2, 10**3, 10**4, 10**5, 10**6)
KS = (1_024, 4_096, 16_384)
SHARES = (0.5, 0.1, 0.01)
_ROWS = 4_000_000  # in all trials of a figure


@dataclass(frozen=True)
class Figure:
    """What came out in so many trials, each over other items.

    ``error`` is the root of the mean of the squares of the relative errors, ``promised`` what
    it should be, ``within`` the share of trials in which the truth was within the bounds.
    """

    trials: int
    error: float
    worst: float
    promised: float
    within: float

    @staticmethod
    def of(arguments: pa.Array, truth: int, promised: float) -> Figure:
        estimate, lower, upper = (
            np.asarray(arguments.field(name)) for name in ("estimate", "lower", "upper")
        )
        errors = estimate / truth - 1
        within = np.mean((lower <= truth) & (truth <= upper))
        root = float(np.sqrt(np.mean(errors**2)))
        return Figure(len(arguments), root, float(np.max(np.abs(errors))), promised, float(within))


def distinct(size: int, k: int) -> Figure:
    """So many distinct users, counted with k hashes."""
    trials = int(np.clip(_ROWS // size, 10, 200))
    ids = np.repeat(np.arange(trials), size)
    rows = pa.table({"user": np.arange(trials * size) + 10**9})
    theta = Theta("user", k)
    arguments = theta.estimate(theta.update(Groups(ids, trials), rows))
    return Figure.of(arguments, size, 0.0 if size <= k else (k - 1) ** -0.5)


def overlap(share: float, k: int, size: int = 10**5, trials: int = 50) -> Figure:
    """Two audiences of that size, which share a part of their members."""
    both = round(size * share)
    one = np.concatenate([np.arange(size), np.arange(size) + size - both])
    pages = pa.array(np.repeat([0, 1], size))
    summary = Overlap("user", "page", pa.array([0, 1]), k)
    groups = Groups(np.zeros(2 * size, np.int64), 1)
    arguments = []
    for trial in range(trials):
        rows = pa.table({"user": one + (trial + 1) * 10**9, "page": pages})
        pairs = summary.estimate(summary.update(groups, rows)).field("pairs")
        arguments.append(pairs.flatten().field("both"))
    # k of the hashes of an audience are known; this part of them is in both.
    return Figure.of(pa.concat_arrays(arguments), both, (k * share) ** -0.5)


def percent(value: float) -> str:
    """As it stands in a table."""
    return "0" if value == 0 else f"{value:.2%}".replace("%", " %")


def _line(first: str, figures: list[Figure]) -> str:
    cells = [
        f"{percent(figure.error)} : {percent(figure.promised)} ({figure.within:.0%})".replace(
            "%)", " %)"
        )
        for figure in figures
    ]
    return f"| {first} | {' | '.join(cells)} |"


if __name__ == "__main__":
    head = "".join(f" k = {k:,} |" for k in KS)
    for first, rows in (("distinct", SIZES), ("shared", SHARES)):
        print(f"| {first} |{head}\n|---|{'---|' * len(KS)}")
        for row in rows:
            make = distinct if first == "distinct" else overlap
            print(_line(f"{row:,}", [make(row, k) for k in KS]))  # type: ignore[operator]
        print()
