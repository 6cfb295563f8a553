"""A picture of an explanation: what arrived, what was emitted, and the watermark in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamops.kernel.palette import COLORS, MARKERS
from streamops.kernel.parameters import require_package
from streamops.observe.key_rows import LATE, REJECTED, KeyResult, KeyRow, bounds_of, instant

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = {
    "on time": (COLORS["on_time"], MARKERS[0]),
    "straggler": (COLORS["corrected"], MARKERS[1]),
    "late": (COLORS["too_late"], MARKERS[2]),
    "rejected": (COLORS["retracted"], MARKERS[3]),
}


def draw(
    title: str,
    rows: Sequence[KeyRow],
    results: Sequence[KeyResult],
    watermarks: Sequence[tuple[int, int]],
    ax: Axes | None,
) -> Axes:
    """Draw a time line: event time to the right, micro-batches upwards."""
    require_package("matplotlib", package="matplotlib", extra="plots")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    if ax is None:
        _, ax = pyplot.subplots(figsize=(9, 4), layout="constrained")
    times = list[dt.datetime]()
    for of in results:
        names = bounds_of(of.row)
        instants = [v for v in of.row.values() if isinstance(v, dt.datetime)]
        bounds: Any = [of.row[name] for name in names] if names else instants[:1] * 2
        if bounds:
            times += bounds
            ax.plot(bounds, [of.batch] * 2, color=COLORS["corrected"], lw=6, alpha=0.4,
                    solid_capstyle="butt", label="result")  # fmt: skip
    for name, (color, marker) in _STYLES.items():
        found = [(instant(of.arrived.time), of.batch) for of in rows if _style(of) == name]
        points = [(time, batch) for time, batch in found if time is not None]
        if points:
            times += [time for time, _ in points]
            ax.plot(*zip(*points, strict=True), color=color, marker=marker, ls="", label=name)
    # The watermark begins in 1970: only what is near the rows is drawn.
    first, last = (min(times), max(times)) if times else (None, None)
    marks = [(instant(mark * 1_000), batch) for batch, mark in watermarks]
    near = [
        (min(mark, last), batch)
        for mark, batch in marks
        if mark is not None and first is not None and last is not None and mark >= first
    ]
    if near:
        ax.step(*zip(*near, strict=True), where="post", color=COLORS["label"], label="watermark")
    ax.set(xlabel="event time", ylabel="micro-batch", title=title)
    ax.grid(color=COLORS["grid"])
    ax.set_axisbelow(True)
    named = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    if named:
        ax.legend(named.values(), named.keys())
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.figure.autofmt_xdate()
    return ax


def _style(of: KeyRow) -> str:
    outcome = of.arrived.outcome
    if outcome.startswith("straggler"):
        return "straggler"
    return "rejected" if outcome in REJECTED else "late" if outcome in LATE else "on time"
