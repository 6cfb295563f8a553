"""Errors are dots below their bound; estimates are between theirs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from streamops import plots
from streamops.kernel.errors import ColumnNotFound
from tests.plots.artists import at, dots, legend

ERRORS = {"bytes": [64, 1024, 256], "error": [0.1, 0.02, 0.06], "rse": [0.13, 0.03, 0.065]}


def test_positive_errors_are_on_a_logarithmic_axis_with_the_bound_as_a_line() -> None:
    ax = plots.plot_error(ERRORS, x="bytes", error="error", bound="rse")
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    assert sorted(dots(ax, "measured")) == [(64, 0.1), (256, 0.06), (1024, 0.02)]
    (line,) = ax.lines
    assert list(line.get_xdata()) == [64, 256, 1024]
    assert list(line.get_ydata()) == [0.13, 0.065, 0.03]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("bytes", "error")


def test_a_wide_axis_is_logarithmic() -> None:
    wide = {"bytes": [1, 21], "error": [0.1, 0.2]}
    assert plots.plot_error(wide, x="bytes", error="error").get_xscale() == "log"


def test_signed_errors_are_on_a_linear_axis_with_the_bound_as_a_band() -> None:
    rows = {"n": [10, 20], "error": [-0.01, 0.02], "rse": [0.03, 0.04]}
    ax = plots.plot_error(rows, x="n", error="error", bound="rse")
    assert ax.get_yscale() == "linear"
    (band,) = [c for c in ax.collections if c.get_label() == "bound"]
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (-0.04, 0.04)
    assert not ax.lines


def test_sketches_have_a_color_of_their_own() -> None:
    rows = [
        {"bytes": size, "error": error, "type": name}
        for name in ("hll", "theta")
        for size, error in ((1, 0.2), (2, 0.1))
    ]
    ax = plots.plot_error(rows, x="bytes", error="error", by="type")
    assert legend(ax) == ["hll", "theta"]
    assert len(dots(ax, "theta")) == 2


def test_shares_are_displayed_in_percent() -> None:
    ax = plots.plot_error(ERRORS, x="bytes", error="error")
    assert ax.yaxis.get_major_formatter()(0.015, 0) == "1.5 %"


def boxes(ax: Any) -> list[tuple[float, float, float, float]]:
    found = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    return [(b.get_x(), b.get_y(), b.get_width(), b.get_height()) for b in found]


def test_text_is_on_the_vertical_axis_from_the_top() -> None:
    rows = [
        {"page": page, "n": n, "low": n - 5, "high": n + 5, "exact": n + 1}
        for page, n in (("/a", 30), ("/b", 20))
    ]
    ax = plots.plot_estimates(
        rows, x="page", estimate="n", lower="low", upper="high", truth="exact"
    )
    assert dots(ax, "estimate") == [(30, 0), (20, 1)]
    assert [(left, width) for left, _, width, _ in boxes(ax)] == [(25, 10), (15, 10)]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["/a", "/b"]
    assert ax.yaxis_inverted()
    (exact,) = [c for c in ax.collections if c.get_label() == "exact"]
    assert [float(segment[0, 0]) for segment in exact.get_segments()] == [31, 21]
    assert legend(ax) == ["estimate", "bounds", "exact"]


def test_times_are_on_the_horizontal_axis() -> None:
    rows = [{"w": at(5 * n), "n": 10 + n, "low": 9, "high": 13} for n in range(3)]
    ax = plots.plot_estimates(rows, x="w", estimate="n", lower="low", upper="high")
    assert dots(ax, "estimate") == [(0, 10), (1, 11), (2, 12)]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["09:00", "09:05", "09:10"]
    assert [(bottom, height) for _, bottom, _, height in boxes(ax)] == [(9, 4)] * 3


def test_sketches_are_side_by_side() -> None:
    rows = [{"x": x, "k": k, "n": 10, "low": 5, "high": 15} for x in (0.1, 0.2) for k in (100, 200)]
    ax = plots.plot_estimates(rows, x="x", estimate="n", lower="low", upper="high", by="k")
    first, second = (np.array(dots(ax, name))[:, 0] for name in ("100", "200"))
    assert (first < np.round(first) + 1e-9).all()
    assert np.allclose(second - first, 0.31)
    spans = sorted((left, left + width) for left, _, width, _ in boxes(ax))
    assert all(end < start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(("low", "high", "scale"), [(5, 100, "linear"), (4, 100, "log")])
def test_the_axis_is_logarithmic_beyond_a_factor_of_twenty(low: int, high: int, scale: str) -> None:
    rows = [{"x": 1, "n": 50, "low": low, "high": high}]
    ax = plots.plot_estimates(rows, x="x", estimate="n", lower="low", upper="high")
    assert ax.get_yscale() == scale
    assert scale == "log" or ax.get_ylim()[0] == 0


def test_the_axis_does_not_begin_at_zero_if_the_values_are_close() -> None:
    rows = [{"x": 1, "n": 95, "low": 90, "high": 100}]
    ax = plots.plot_estimates(rows, x="x", estimate="n", lower="low", upper="high")
    assert ax.get_ylim()[0] > 80


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ColumnNotFound, match="'ci', given as `lower`"):
        plots.plot_estimates([{"x": 1, "n": 1}], x="x", estimate="n", lower="ci", upper="n")
