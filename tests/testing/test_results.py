"""Results as Python values."""

from __future__ import annotations

import datetime as dt

import pytest

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import CapacityError
from streamops.kernel.time import MAX_INSTANT
from streamops.testing import replay


def test_a_window_that_ends_after_the_year_9999_is_in_the_table_only() -> None:
    daily = windows.tumbling("1 day", time="ts", agg={"n": agg.count()}, delay="0 seconds")
    noon = dt.datetime(9999, 12, 31, 12, tzinfo=dt.UTC)
    result = replay(daily, [[{"ts": noon}]], flush=True)[-1]
    assert result.table.column("n").to_pylist() == [1]
    assert result.table.column("window_end").cast("int64").to_pylist() == [MAX_INSTANT + 1]
    with pytest.raises(CapacityError, match="TIME_NOT_IN_PYTHON") as caught:
        _ = result.rows
    assert "`table`" in caught.value.fix
