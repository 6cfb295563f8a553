"""Theta sketches err no more than is promised, at fixed items."""

from __future__ import annotations

import pytest

from tests.sketches.theta_accuracy import KS, SHARES, SIZES, Figure, distinct, overlap, percent

pytestmark = pytest.mark.thorough

# A few figures in the quick tests, all of them in the exhaustive ones.
QUICK = {(10**2, 1_024), (10**3, 1_024), (10**4, 1_024), (10**4, 4_096)}


def cases(rows: tuple[float, ...]) -> list[object]:
    return [
        pytest.param(row, k, marks=[] if (row, k) in QUICK else [pytest.mark.exhaustive])
        for row in rows
        for k in KS
    ]


def keeps_its_promise(figure: Figure) -> bool:
    """The root of a mean of few squares may be a little above; two standard errors are bounds."""
    return (
        figure.error <= 1.3 * figure.promised
        and figure.worst <= 4 * figure.promised
        and figure.within >= 0.9
    )


@pytest.mark.parametrize(("size", "k"), cases(SIZES))
def test_errors_of_numbers_are_within_the_bound(size: int, k: int) -> None:
    figure = distinct(size, k)
    assert keeps_its_promise(figure), figure
    assert (figure.error == 0) == (size <= k)


@pytest.mark.parametrize(("share", "k"), cases(SHARES))
def test_errors_of_overlaps_are_within_the_bound(share: float, k: int) -> None:
    figure = overlap(share, k)
    assert keeps_its_promise(figure), figure


def test_figures_are_formatted_as_percentages() -> None:
    assert (percent(0.0), percent(0.015625)) == ("0", "1.56 %")
