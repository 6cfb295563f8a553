"""The state is a line, below its bound."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes

from streamops import aggregates as agg
from streamops import plots, windows
from streamops.kernel.errors import ColumnNotFound
from streamops.testing import replay
from tests.plots.artists import at, legend

BATCHES = {"batch": [2, 0, 1], "size": [60, 40, 75], "rows": [10, 50, 40], "most": [90, 50, 80]}


def line(ax: Axes, name: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in ax.lines if line.get_label() == name]
    return list(found.get_xdata()), list(found.get_ydata())


def test_the_state_is_drawn_in_the_order_of_the_micro_batches() -> None:
    ax = plots.plot_state(BATCHES, size="size", bound=100, rows="rows")
    assert line(ax, "state") == ([0, 1, 2], [40, 75, 60])
    assert line(ax, "input rows so far") == ([0, 1, 2], [50, 90, 100])
    assert line(ax, "bound")[1] == [100, 100]
    assert legend(ax) == ["state", "bound", "input rows so far"]
    assert ax.get_ylim()[0] == 0


def test_the_bound_can_be_a_column() -> None:
    assert line(plots.plot_state(BATCHES, size="size", bound="most"), "bound")[1] == [50, 80, 90]


def test_operators_have_a_line_of_their_own() -> None:
    rows = [
        {"batch": batch, "operator": name, "size": batch * factor}
        for batch in (0, 1)
        for name, factor in (("a", 1), ("b", 2))
    ]
    ax = plots.plot_state(rows, size="size", by="operator")
    assert (line(ax, "a")[1], line(ax, "b")[1]) == ([0, 1], [0, 2])
    assert len({found.get_color() for found in ax.lines}) == 2
    assert legend(ax) == ["a", "b"]


def test_the_state_of_a_replay_can_be_drawn() -> None:
    operator = windows.tumbling("10 minutes", time="ts", agg={"n": agg.count()}, delay="1 minute")
    batches = [[{"ts": at(10 * n)}, {"ts": at(10 * n + 1)}] for n in range(5)]
    results = replay(operator.options(shards=1), batches)
    ax = plots.plot_state(results, rows="rows")
    assert line(ax, "state")[1] == [result.state_rows for result in results]
    assert line(ax, "input rows so far")[1] == [2, 4, 6, 8, 10, 10]  # the last without data
    sizes = line(plots.plot_state(results, size="state_bytes"), "state")[1]
    assert sizes == [result.state_bytes for result in results]


def test_micro_batches_can_have_a_time() -> None:
    ax = plots.plot_state({"at": [at(0), at(1)], "size": [1, 2]}, size="size", batch="at")
    assert ax.get_xlabel() == "at"
    ax.figure.canvas.draw()
    assert any("09:00" in label.get_text() for label in ax.get_xticklabels())


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="'state_rows', given as `size`"):
        plots.plot_state({"batch": [0]})
