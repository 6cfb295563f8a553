"""The micro-batches of a query, as frames and as a plot."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from streamops.kernel.errors import SpecError, located
from streamops.kernel.palette import CATEGORIES
from streamops.kernel.parameters import require_package
from streamops.observe import conditions
from streamops.observe.core.progress import LATE, Progress
from streamops.observe.progress import read_progress

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_SIZE = (10.0, 6.0)  # inches
_TWIN = "streamops late rows"  # marks the axes of rows
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


def draw(batches: pd.DataFrame, operators: pd.DataFrame, axes: Iterable[Axes] | None) -> list[Axes]:
    """Draw the frames of a history on four axes, or on those of a new figure."""
    drawn = _new_axes() if axes is None else [*axes]
    x = batches["batch"].to_numpy()
    rates, times, state, phases = drawn
    _prepare(rates, "rows per second")
    rates.plot(x, batches["rows_per_second"], color=CATEGORIES[0], label="processed")
    rates.plot(x, batches["input_rows_per_second"], color=CATEGORIES[1], label="arrived")
    late = [name for name in ("late", "corrections", "side_output") if batches[name].any()]
    _prepare(times, "delay of the watermark")
    times.ticklabel_format(useOffset=False)
    for other in times.get_shared_x_axes().get_siblings(times):  # of a plot on the same axes
        if other.get_label() == _TWIN:
            other.remove()
    unit, name = _unit(batches["watermark_delay"], _UNITS)
    times.plot(x, batches["watermark_delay"] / unit, color=CATEGORIES[2], label="watermark")
    times.plot(x, batches["event_delay"] / unit, color=CATEGORIES[3], label="newest event")
    times.set_ylabel(name)
    if late:  # rows share the time axis, so one sees which watermark they were late by
        rows = times.twinx()
        rows.set_label(_TWIN)
        rows.set_ylabel("rows")
        for column, color in zip(late, (CATEGORIES[1], CATEGORIES[4], CATEGORIES[5]), strict=False):
            label = column.replace("_", " ")
            some = batches[column] > 0
            rows.plot(x[some], batches[column][some], color=color, marker=".", ls="", label=label)
        rows.set_ylim(bottom=0)
        # One legend for both: two may cover each other.
        for line in rows.lines:
            times.plot([], [], color=line.get_color(), marker=".", ls="", label=line.get_label())
    _prepare(state, "bytes of state")
    unit, name = _unit(operators["state_bytes"], _BYTES)
    sized = operators.dropna(subset=["state_bytes"])
    for number, (operator, rows_of) in enumerate(sized.groupby("operator", sort=False)):
        values = rows_of["state_bytes"].astype("float64") / unit
        color = CATEGORIES[number % len(CATEGORIES)]
        state.plot(rows_of["batch"], values, color=color, label=operator)
    state.set_ylabel(name)
    _prepare(phases, "seconds per micro-batch")
    names = [column for column in batches.columns if column.startswith("seconds.")]
    if names:
        stacked = [batches[column].fillna(0.0) for column in names]
        labels = [column.removeprefix("seconds.") for column in names]
        colors = [CATEGORIES[number % len(CATEGORIES)] for number in range(len(names))]
        phases.stackplot(x, stacked, labels=labels, colors=colors)
    for ax in drawn:
        _finish(ax)
    return drawn


def _new_axes() -> list[Axes]:
    """Four axes of a new figure, which pyplot does not know: it need not be closed."""
    with located("observe"):
        figure_module = require_package("matplotlib.figure", package="matplotlib", extra="watch")
    figure = figure_module.Figure(figsize=_SIZE, layout="constrained")
    return [*figure.subplots(2, 2).flat]


def _prepare(ax: Axes, title: str) -> None:
    ax.clear()
    ax.set_title(title, loc="left", fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)


def _finish(ax: Axes) -> None:
    ax.set_xlabel("micro-batch", fontsize="small")
    locator: Any = ax.xaxis.get_major_locator()
    locator.set_params(integer=True)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize="small")


def _unit(values: Any, units: tuple[tuple[float, str], ...]) -> tuple[float, str]:
    """The greatest unit in which the greatest value is at least 1."""
    greatest = values.abs().max() if len(values.dropna()) else 0
    return next((unit for unit in units if greatest >= unit[0]), units[-1])


_NAT = -(1 << 63)  # what NumPy takes for no instant


@dataclass(frozen=True)
class QueryHistory:
    """The micro-batches of a query, oldest first.

    It contains numbers, and no values of rows.

    Parameters
    ----------
    progress : tuple of Progress
        The parsed progress of each micro-batch.
    """

    progress: tuple[Progress, ...]

    def __repr__(self) -> str:
        if not self.progress:
            return "QueryHistory of no micro-batches"
        first, last = self.progress[0], self.progress[-1]
        return f"QueryHistory of {last.query}: micro-batches {first.batch} to {last.batch}"

    @property
    def batches(self) -> pd.DataFrame:
        """One row per micro-batch: rows, rates, watermark, late rows, time per phase."""
        import numpy as np
        import pandas as pd

        phases = list(dict.fromkeys(name for p in self.progress for name in p.phases))
        rows = [
            {
                "query": p.query,
                "batch": p.batch,
                "started": p.started,
                "seconds": _seconds(p.duration),
                "rows": p.rows,
                "input_rows_per_second": p.input_rate,
                "rows_per_second": p.processing_rate,
                "watermark": p.watermark or None,
                "watermark_delay": _seconds(p.watermark_delay),
                "event_delay": _seconds(p.event_delay),
                "lateness": _seconds(p.lateness),
                "late": p.count(*LATE),
                "corrections": p.count("corrections"),
                "side_output": p.count("side_output"),
                "behind": p.behind,
                **{f"seconds.{name}": _seconds(p.phases.get(name)) for name in phases},
            }
            for p in self.progress
        ]
        frame = pd.DataFrame(rows, columns=None if rows else list(_BATCH_COLUMNS))
        for instant in ("started", "watermark"):
            # In microseconds: nanoseconds end in the year 2262, and a watermark may be poisoned.
            times = np.array(
                [_NAT if row[instant] is None else row[instant] for row in rows], "M8[us]"
            )
            try:
                frame[instant] = pd.Series(times).dt.tz_localize("UTC")
            except pd.errors.OutOfBoundsDatetime:  # pandas before 2 has nanoseconds only
                aware = [at and at.replace(tzinfo=dt.UTC) for at in times.astype(object)]
                frame[instant] = pd.Series(aware, dtype=object)
        durations = ["watermark_delay", "event_delay", "lateness"]
        measured = [n for n in frame.columns if n.startswith("seconds") or n.endswith("per_second")]
        floats = dict.fromkeys([*measured, *durations], "float64")
        return frame.astype({"behind": "Int64", **floats})

    @property
    def operators(self) -> pd.DataFrame:
        """One row per micro-batch and operator: its counts, and rows and bytes of its state."""
        import pandas as pd

        found = [(p, operator) for p in self.progress for operator in p.operators]
        names = list(dict.fromkeys(name for _, operator in found for name in operator.counts))
        rows = [
            {
                "query": p.query,
                "batch": p.batch,
                "operator": operator.name,
                "late": operator.late,
                **{name: operator.counts.get(name) for name in names},
                "state_rows": operator.state_rows,
                "state_bytes": operator.state_bytes,
            }
            for p, operator in found
        ]
        columns = ["query", "batch", "operator", "late", *names, "state_rows", "state_bytes"]
        frame = pd.DataFrame(rows, columns=columns)
        return frame.astype(dict.fromkeys(columns[3:], "Int64"))

    def plot(self, axes: Iterable[Axes] | None = None) -> list[Axes]:
        """Plot rows per second, watermark and late rows, state, and time per phase.

        Parameters
        ----------
        axes : iterable of Axes, optional
            Four axes to draw on. Default: those of a new figure.

        Returns
        -------
        list of Axes
            The four axes.

        Raises
        ------
        RequirementError
            ``PACKAGE_MISSING``: matplotlib is not installed.
        """
        return draw(self.batches, self.operators, axes)


_BATCH_COLUMNS = (
    *("query", "batch", "started", "seconds", "rows", "input_rows_per_second", "rows_per_second"),
    *("watermark", "watermark_delay", "event_delay", "lateness", "late", "corrections"),
    *("side_output", "behind"),
)


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / 1e6


def history(source: Any) -> QueryHistory:
    """The recent micro-batches of a query, as frames and as a plot.

    Parameters
    ----------
    source : StreamingQuery or iterable of StreamingQueryProgress
        A query, running or ended. Spark retains its last 100 micro-batches
        (``spark.sql.streaming.numRecentProgressUpdates``); or progress that a listener collected.
        Instead of a ``StreamingQueryProgress``, its JSON, as text or dict.

    Returns
    -------
    QueryHistory
        ``batches`` and ``operators`` are frames of pandas, and ``plot()`` draws them.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.

    Examples
    --------
    >>> history = observe.history(query)
    >>> history.batches[["batch", "rows_per_second", "late"]]
    >>> history.plot()
    >>> history([])
    QueryHistory of no micro-batches

    See Also
    --------
    watch : the same, live.
    """
    recent = getattr(source, "recentProgress", source)
    if isinstance(recent, str | Mapping) or not isinstance(recent, Iterable):
        raise not_a_query(source)
    return QueryHistory(tuple(read_progress(_revive(progress, source)) for progress in recent))


def _revive(progress: Any, source: Any) -> Any:
    if isinstance(progress, StreamingQueryProgress):
        return progress
    if isinstance(progress, str):
        try:
            progress = json.loads(progress)
        except ValueError:
            raise not_a_query(source) from None
    if not isinstance(progress, Mapping):
        raise not_a_query(source)
    return StreamingQueryProgress.fromJson(dict(progress))


def not_a_query(source: Any) -> SpecError:
    """The error about a value that has no progress."""
    return conditions.NOT_A_QUERY.error(got=f"an object of type {type(source).__name__}")
