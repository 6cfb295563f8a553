"""Why a query has a result, or none: the answer, and the time line of a key."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamops.observe.key_rows import KeyResult, KeyRow, KeyState, instant
from streamops.observe.time_line import draw

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Explanation:
    """The rows and results of one key, and why a result exists or does not.

    Parameters
    ----------
    reason : str
        "result", "open", "late", "rejected", "no_rows", "no_partner" or "no_result".
    answer : str
        The reason as a sentence.
    key_rows : tuple of KeyRow
        The rows that arrived, in their order.
    key_results : tuple of KeyResult
        The results that fit the conditions, in their order.
    due : int, optional
        Of an open result: Spark's watermark in milliseconds at which it is emitted.
    notes : tuple of str
        What could not be known: what checkpoint and source do not have any more, or do not say.
    operator : str, optional
        Without a result: the operator that has the rows, or has lost them.
    key_states : tuple of KeyState
        The state of the key after each micro-batch that changed it.
    watermarks : tuple of tuple of int
        Each micro-batch, and Spark's watermark in milliseconds.
    requested : tuple of KeyRow, optional
        The rows in the window that is asked about. ``str()`` shows up to 20 of them, and counts the others.
    """

    reason: str
    answer: str
    key_rows: tuple[KeyRow, ...]
    key_results: tuple[KeyResult, ...]
    due: int | None
    notes: tuple[str, ...]
    operator: str | None = None
    key_states: tuple[KeyState, ...] = ()
    watermarks: tuple[tuple[int, int], ...] = ()
    requested: tuple[KeyRow, ...] | None = None

    def __str__(self) -> str:
        rows = self.key_rows if self.requested is None else self.requested
        others = len(self.key_rows) - len(rows)
        events: list[KeyRow | KeyResult] = [*rows[:_DISPLAYED], *self.key_results[:_DISPLAYED]]
        events.sort(key=lambda event: event.batch)
        more = [
            f"and {count} {what}{'' if count == 1 else 's'}"
            for count, what in (
                (len(rows) - _DISPLAYED, "more row"),
                (len(self.key_results) - _DISPLAYED, "more result"),
                (others, "row"),
            )
            if count > 0
        ]
        if others:
            more[-1] += " outside of the window"
        notes = (f"note: {note}" for note in self.notes)
        return "\n".join([self.answer, *map(str, events), *more, *notes])

    @property
    def rows(self) -> pd.DataFrame:
        """One row per row of the key: micro-batch, operator, outcome, watermark, lateness, columns."""
        import pandas as pd

        found = [
            {
                "batch": of.batch,
                "operator": of.operator,
                "side": of.arrived.side,
                "outcome": of.arrived.outcome,
                "watermark": instant(of.arrived.watermark),
                "lateness": None
                if of.arrived.lateness is None
                else dt.timedelta(microseconds=of.arrived.lateness),
                "row": of.arrived.row,
            }
            for of in self.key_rows
        ]
        return pd.DataFrame(found, columns=list(found[0]) if found else list(_ROW_COLUMNS))

    @property
    def results(self) -> pd.DataFrame:
        """One row per result: its micro-batch, the number of its rows, and its columns."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"batch": of.batch, "rows": len(of.rows), "written": of.is_written, **of.row}
                for of in self.key_results
            ]
        )

    @property
    def states(self) -> pd.DataFrame:
        """One row per micro-batch and operator that changed its state: the tables of the state."""
        import pandas as pd

        found = [
            {"batch": of.batch, "operator": of.operator, **row}
            for of in self.key_states
            for row in of.rows
        ]
        return pd.DataFrame(found, columns=None if found else ["batch", "operator"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the time line: rows and results at their event times, by micro-batch, and the watermark.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        Axes

        Raises
        ------
        RequirementError
            ``PACKAGE_MISSING``: matplotlib is not installed.
        """
        title, _, _ = self.answer.partition(":")
        return draw(title, self.key_rows, self.key_results, self.watermarks, ax)


_DISPLAYED = 20
_ROW_COLUMNS = ("batch", "operator", "side", "outcome", "watermark", "lateness", "row")
