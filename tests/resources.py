"""Memory and open files of this process, for tests that repeat something many times."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 32 << 20
"""How much larger the process may be in the last quarter than in the second, in bytes."""


@dataclass
class Resources:
    """What a process uses while something is repeated.

    Parameters
    ----------
    figures : list of dict
        One per measurement: by name, how much is used.
    """

    figures: list[dict[str, int]] = field(default_factory=list)

    def measure(self, **further: int) -> None:
        """Measure memory and open files, and add what else was measured."""
        self.figures.append({"memory": memory(), "files": open_files(), **further})

    def quarters(self) -> tuple[dict[str, int], dict[str, int]]:
        """The highest figures of the second quarter, and those of the last."""
        quarter = len(self.figures) // 4
        assert quarter, "too few measurements"
        parts = self.figures[quarter : 2 * quarter], self.figures[3 * quarter :]
        second, last = (
            {name: max(row[name] for row in part) for name in self.figures[0]} for part in parts
        )
        return second, last

    def check(self, except_for: Iterable[str] = ()) -> None:
        """Fail if the last quarter needs more than the second: of memory, `MEMORY` more."""
        second, last = self.quarters()
        for name in except_for:
            del second[name]
        assert last.pop("memory") <= second.pop("memory") + MEMORY, "memory grows"
        assert all(last[name] <= second[name] for name in second), (second, last)


def memory() -> int:
    """The resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files() -> int:
    """The open files and sockets of this process."""
    return len(os.listdir("/proc/self/fd"))
