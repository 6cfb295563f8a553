"""Queries side by side, and their lines on one screen."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TextIO, TypeVar

__all__ = ["Held", "side_by_side"]

_LANES = 3
Told = TypeVar("Told")


class Held(io.StringIO):
    """A screen that keeps what is written until its turn comes, and then shows it at once.

    Parameters
    ----------
    screen : text file
        Where that is.
    """

    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self._screen = screen
        self._shown = False
        self._lock = threading.Lock()

    def isatty(self) -> bool:
        """Whether the screen is a terminal."""
        return self._screen.isatty()

    def write(self, text: str, /) -> int:
        """Show the text, or keep it."""
        with self._lock:
            return self._screen.write(text) if self._shown else super().write(text)

    def flush(self) -> None:
        """Let what was shown be seen."""
        if not self.closed and self._shown:
            self._screen.flush()

    def show(self) -> None:
        """Its turn has come."""
        with self._lock:
            self._screen.write(self.getvalue())
            self._screen.flush()
            self._shown = True


def side_by_side(
    run: Callable[[str, TextIO], Told],
    names: Iterable[str],
    screen: TextIO,
    stop: Callable[[], object],
) -> dict[str, Told]:
    """Run queries, three at a time: one alone does not use two cores.

    Parameters
    ----------
    run : callable
        Runs a query, by its name, and writes its lines to the screen that it is given.
    names : iterable of str
        In the order in which they begin, and in which their lines are shown.
    screen : text file
        Shows the lines of one query after those of another.
    stop : callable
        Ends what is running, if one of them fails.

    Returns
    -------
    dict
        What each returned.
    """
    with ThreadPoolExecutor(_LANES) as lanes:
        held = {name: Held(screen) for name in names}
        running: dict[str, Future[Told]] = {
            name: lanes.submit(run, name, ours) for name, ours in held.items()
        }
        told: dict[str, Told] = {}
        try:
            for name, each in running.items():
                held[name].show()
                told[name] = each.result()
        except BaseException:
            for each in running.values():
                each.cancel()
            stop()
            raise
    return told
