"""Run queries in parallel, and print their progress one query after the other."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TextIO, TypeVar

__all__ = ["Held", "side_by_side"]

_LANES = 3
Result = TypeVar("Result")


class Held(io.StringIO):
    """A text stream that buffers its output until :meth:`show`, and passes it on from then.

    Parameters
    ----------
    screen : text file
        The stream that the output is passed to.
    """

    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self._screen = screen
        self._visible = False
        self._lock = threading.Lock()

    def isatty(self) -> bool:
        """Whether the screen is a terminal."""
        return self._screen.isatty()

    def write(self, text: str, /) -> int:
        """Pass the text on, or buffer it."""
        with self._lock:
            return self._screen.write(text) if self._visible else super().write(text)

    def flush(self) -> None:
        """Flush the screen."""
        if not self.closed and self._visible:
            self._screen.flush()

    def show(self) -> None:
        """Write the buffer to the screen, and stop buffering."""
        with self._lock:
            self._screen.write(self.getvalue())
            self._screen.flush()
            self._visible = True


def side_by_side(
    run: Callable[[str, TextIO], Result],
    names: Iterable[str],
    screen: TextIO,
    stop: Callable[[], object],
) -> dict[str, Result]:
    """Run queries, three at a time: one alone does not use two cores.

    Parameters
    ----------
    run : callable
        Runs a query, by its name, and writes to the stream that it is given.
    names : iterable of str
        In the order in which they start, and in which their output is displayed.
    screen : text file
        Receives the output of one query after the other.
    stop : callable
        Stops the running queries if one of them fails.

    Returns
    -------
    dict
        The return values by name.
    """
    with ThreadPoolExecutor(_LANES) as lanes:
        held = {name: Held(screen) for name in names}
        running: dict[str, Future[Result]] = {
            name: lanes.submit(run, name, ours) for name, ours in held.items()
        }
        results: dict[str, Result] = {}
        try:
            for name, future in running.items():
                held[name].show()
                results[name] = future.result()
        except BaseException:
            for future in running.values():
                future.cancel()
            stop()
            raise
    return results
