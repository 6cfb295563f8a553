"""Pictures of what every micro-batch emitted: results, corrections, retractions, late rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from streamops.kernel.parameters import Text
from streamops.plots import artists
from streamops.plots.artists import (
    CORRECTED,
    EARLY,
    EVENT,
    FIRST,
    ON_TIME,
    RETRACTED,
    STRAGGLER,
    TOO_LATE,
    Style,
)
from streamops.plots.data import (
    Data,
    Floats,
    Mask,
    add_key,
    read_keys,
    read_late,
    read_numbers,
    read_results,
    read_rows,
    require_time,
    to_coordinates,
    zone_of,
)

LANE = 0.36
INPUT = replace(EVENT, color=TOO_LATE.color)
STYLES = (EARLY, ON_TIME, FIRST, CORRECTED, RETRACTED)
LATE = replace(TOO_LATE, name="late row")


def plot_corrections(
    results: Data,
    events: Data | None = None,
    *,
    by: str | Sequence[str] | None = None,
    time: str | None = None,
    label: str | None = None,
    batch: str = "batch",
    start: str = "window_start",
    end: str = "window_end",
    zone: Text | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot what every micro-batch emitted: results, corrections, retractions and late rows.

    Time is to the right, micro-batches are downwards. In a change stream, what a micro-batch retracts
    is hatched, and above what it inserts. Results with a ``revision`` above 0 are orange, early ones
    (``timing``) dashed. Late rows of the side output are dots at their event time.

    Parameters
    ----------
    results : frame
        What ``testing.replay`` or ``testing.stream`` returns; or the output of the query with a column
        of the micro-batch, as a frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns
        by name. All rows are collected.
    events : frame, optional
        The input with a column of the micro-batch, to be drawn as dots above the results.
    by : str or sequence of str, optional
        Key columns: one row of the picture per micro-batch and key. Late rows are then left out.
    time : str, optional
        Event-time column of the events and of late rows. Without it, late rows are left out.
    label : str, optional
        Column to write into the bars, such as an aggregate; with a minus sign where it is retracted.
    batch : str
        Column with the number of the micro-batch.
    start, end : str
        Columns with the bounds of the windows, or of other intervals, such as "valid_from" and "valid_to"
        of a history. An end that is null is open.
    zone : str, optional
        Time zone of the axis, such as "Europe/Berlin". By default that of the column, or UTC.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    SpecError
        ``PARAMETER_OUT_OF_RANGE``: more than 5,000 rows or 60 keys. ``PARAMETER_MISSING``: events without `time`.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; ``STREAMING_FRAME``.

    Examples
    --------
    >>> from streamops import plots
    >>> window = {"window_start": 0, "window_end": 10}
    >>> results = [
    ...     window | {"batch": 0, "n": 4, "revision": 0, "_change_type": "insert"},
    ...     window | {"batch": 1, "n": 4, "revision": 0, "_change_type": "update_preimage"},
    ...     window | {"batch": 1, "n": 5, "revision": 1, "_change_type": "update_postimage"},
    ... ]
    >>> ax = plots.plot_corrections(results, label="n")
    >>> [text.get_text() for text in ax.texts]
    ['4', '−4', '5']
    """
    names = read_keys(by)
    require_time(events, time)
    late = read_late(results, None if by else time, batch=batch)
    columns = {"batch": batch, "start": start, "end": end, "label": label}
    rows = add_key(read_results(results, columns), names)
    points = pd.DataFrame({batch: [], "_key": []})
    if events is not None:
        read = read_rows(events, {"time": time, "batch": batch})
        points = add_key(read, names)
    numbers = read_numbers(results)
    drawn = _Drawing(
        rows,
        points,
        late,
        batch=batch,
        columns=(start, end, time, label),
        numbers=numbers,
        zone=zone,
    )
    return drawn.draw(ax)


@dataclass
class _Drawing:
    """The rows to draw, in bands: one per micro-batch, or per micro-batch and key."""

    rows: pd.DataFrame
    points: pd.DataFrame
    late: pd.DataFrame
    batch: str
    columns: tuple[str, str, str | None, str | None]
    numbers: set[int]
    zone: str | None
    entries: artists.Entries = field(default_factory=dict)

    def draw(self, ax: Axes | None) -> Axes:
        """Draw all bands, the axes and the legend."""
        start, end, time, label = self.columns
        starts, ends = (to_coordinates(self.rows[name]) for name in (start, end))
        times = self._times(self.points)
        lates = self._times(self.late)
        plain = ON_TIME if "timing" in self.rows else FIRST
        styles = artists.styles_of(self.rows, plain=plain)
        bands = self._bands()
        is_hatched = np.array([style.is_hatched for style in styles], dtype=bool)
        lanes, heights = self._lanes(bands, starts, ends, is_hatched)
        ax = artists.new_axes(ax, 1.2 + 1.3 * sum(heights))
        span = artists.set_limits(ax, starts, ends, times, lates)
        if np.isnan(ends).any():  # current versions of a history have no end
            ax.set_xlim(right=ax.get_xlim()[1] + 0.15 * span)
            span *= 1.15
        limit = ax.get_xlim()[1]
        ends = np.where(np.isnan(ends), limit + 0.02 * span, ends)
        tops = np.concatenate([[0.0], np.cumsum(heights)])
        for number, style in enumerate(styles):
            band = bands[self._band(self.rows, number)]
            y = tops[band] + lanes[number] * LANE
            artists.draw_bar(ax, starts[number], ends[number], y, style, span=span, height=0.28)
            if label is not None:
                value = self.rows[label].iloc[number]
                text = artists.format_value(value, style)
                right = min(ends[number], limit)
                artists.draw_label(ax, starts[number], right, y, text, style, span=span)
        self._draw_dots(ax, self.points, times, bands, tops, INPUT)
        for style, mask in self._late_styles():
            self._draw_dots(ax, self.late[mask], lates[mask], bands, tops, style)
        self.entries |= artists.patches_of(style for style in STYLES if style in styles)
        for top in tops:
            artists.draw_line(ax, top)
        ax.set_ylim(tops[-1], 0)
        artists.set_keys(
            ax, [*(tops[:-1] + np.array(heights) / 2)], [_name(*band) for band in bands]
        )
        time_columns = [self.rows[start], *([self.points[time]] if time in self.points else [])]
        zone = zone_of(*time_columns, zone=self.zone)
        artists.add_axis(ax, self.rows[start], zone)
        artists.label_axes(ax, "event time", "micro-batch")
        artists.add_legend(ax, self.entries)
        return ax

    def _times(self, table: pd.DataFrame) -> Floats:
        time = self.columns[2]
        return to_coordinates(table[time]) if len(table) else np.array([])

    def _band(self, table: pd.DataFrame, number: int) -> tuple[int, str]:
        key = table["_key"].iloc[number] if "_key" in table else ""
        return int(table[self.batch].iloc[number]), str(key)

    def _bands(self) -> dict[tuple[int, str], int]:
        """The position of every micro-batch, also without output; with keys, those that have rows in it."""
        found = {
            self._band(table, number)
            for table in (self.rows, self.points, self.late)
            for number in range(len(table))
        }
        numbers = {number for number, _ in found} | self.numbers
        if not numbers:
            return {(0, ""): 0}
        if all(key == "" for _, key in found):
            found = {(number, "") for number in range(min(numbers), max(numbers) + 1)}
        return {band: number for number, band in enumerate(sorted(found))}

    def _lanes(
        self, bands: dict[tuple[int, str], int], starts: Floats, ends: Floats, is_hatched: Mask
    ) -> tuple[Floats, list[float]]:
        """The lane of every row inside its band, dots first, and the heights of the bands."""
        lanes, heights = np.zeros(len(self.rows)), []
        band_of = [self._band(self.rows, number) for number in range(len(self.rows))]
        with_dots = {
            self._band(table, number)
            for table in (self.points, self.late)
            for number in range(len(table))
        }
        for band in bands:
            first = 0.35 if band in with_dots else 0.0
            ours = np.array([other == band for other in band_of], dtype=bool)
            for group in (ours & is_hatched, ours & ~is_hatched):
                positions = np.flatnonzero(group)
                until = np.where(np.isnan(ends[positions]), np.inf, ends[positions])
                of_group = artists.lanes_of(starts[positions], until)
                lanes[positions] = first + np.array(of_group) + 0.62 if len(positions) else 0.0
                first += max(of_group, default=-1) + 1
            heights.append(LANE * (max(first, 0.4) + 0.24))  # also without output
        return lanes, heights

    def _late_styles(self) -> list[tuple[Style, Mask]]:
        reasons = self.late["reason"].to_numpy(dtype=object)
        known = {"straggler": STRAGGLER, "too_late": TOO_LATE}
        styles = [known.get(reason, LATE) for reason in reasons]
        return [
            (style, np.array([other is style for other in styles], dtype=bool))
            for style in (STRAGGLER, TOO_LATE, LATE)
            if style in styles
        ]

    def _draw_dots(
        self,
        ax: Axes,
        table: pd.DataFrame,
        times: Floats,
        bands: dict[tuple[int, str], int],
        tops: Floats,
        style: Style,
    ) -> None:
        if not len(table):
            return
        y = [tops[bands[self._band(table, number)]] for number in range(len(table))]
        artists.draw_dots(ax, times, np.array(y) + 0.22 * LANE + 0.06, style)
        self.entries |= artists.dots_of([style])


def _name(batch: int, key: str) -> str:
    return f"{batch}, {key}" if key else str(batch)
