"""Rows for which a function of the user raises an exception: each is a result, or routed with the message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from streamops import process
from tests.bad_input.fates import ACCEPTED, Played
from tests.bad_input.test_conservation import EVENTS

pytestmark = pytest.mark.thorough

TOO_SMALL = "ValueError: less than 4"


def add_large(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    """The numbers from 4 on of a key, counted; the rest raises an exception after a result."""
    for row in rows:
        state.n += 1
        yield (state.n, row.v)
        if row.v is not None and row.v < 4:
            message = "less than 4"
            raise ValueError(message)


@pytest.mark.parametrize("timed", [True, False], ids=["by event time", "as rows arrive"])
def test_every_row_is_a_result_or_side_output(timed: bool) -> None:
    times: dict[str, Any] = {"time": "ts", "delay": "10 seconds", "stragglers": "route"}
    operator = process.per_key(
        add_large,
        by="k",
        state="n bigint",
        initial={"n": 0},
        output="n bigint, v double",
        errors="route",
        **(times if timed else {}),
    )
    played = Played.of(operator, (EVENTS,))
    rows = [row for batch in EVENTS.batches for row in batch]
    # Without event time only times that Python cannot represent are rejected, whatever the column.
    fate = {} if timed else {"null_time": ACCEPTED, "too_late": ACCEPTED}
    fate |= {} if timed else {"time_out_of_range": "timestamp_out_of_range"}
    rows = [(fate.get(row[0], row[0]), *row[1:]) for row in rows]
    taken = [row for row in rows if row[0] == ACCEPTED]
    failing = [row for row in taken if row[3] is not None and row[3] < 4]
    assert len(failing) > 3
    expected = Counter(row[0] for row in rows if row[0] != ACCEPTED)
    expected[TOO_SMALL] = len(failing)
    assert played.reasons() == expected
    assert played.metric("failed") == len(failing)
    good = [row for row in taken if row not in failing]
    assert played.rows().total() == len(good)
    assert played.metric("rows") == len(rows) == len(good) + expected.total()
    # What the function did for a row that failed is undone: the numbers of a key have no gaps.
    keys = Counter(row[1] for row in good)
    numbers = played.values("n")
    del numbers[None]  # of rejected rows
    assert numbers == Counter(n + 1 for count in keys.values() for n in range(count))
