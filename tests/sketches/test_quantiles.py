"""Approximate percentiles: running per key, and per window."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops import aggregates, windows
from streamops.kernel.errors import SchemaError, SpecError
from streamops.testing import at, replay
from tests.oracles import kll as oracle

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("ms", pa.float64())],
)
SHARES = [0.25, 0.5, 1.0]


def row(key: str | None, ms: float | None, second: int = 0) -> dict[str, Any]:
    return {"k": key, "ts": at(second), "ms": ms}


def played(transform: Any, batches: Any, **arguments: Any) -> list[list[dict[str, Any]]]:
    return [batch.rows for batch in replay(transform, batches, schema=SCHEMA, **arguments)]


def test_quantiles_of_a_key_are_emitted_whenever_they_change() -> None:
    running = windows.running(by="k", agg={"quantiles": aggregates.approx_percentile("ms", [0.5])})
    first, second, third = played(
        running,
        [
            [row("a", 5.0), row("a", 7.0), row(None, 1.0), row("b", None)],
            [row("a", None), row("b", 2.0)],
            [row("a", 9.0), row("a", 6.0), row("a", 8.0)],
        ],
        restart=True,
    )
    found = [
        {item["k"]: (item["quantiles"]["estimate"], item["revision"]) for item in rows}
        for rows in (first, second, third)
    ]
    assert found == [
        {"a": ([5.0], 0), None: ([1.0], 0), "b": (None, 0)},
        {"b": ([2.0], 1)},
        {"a": ([7.0], 1)},
    ]


def test_retractions_equal_the_emitted_values_beyond_k_values() -> None:
    rng = np.random.default_rng(5)
    batches = [[row("a", float(ms)) for ms in rng.normal(size=40)] for _ in range(12)]
    running = windows.running(
        by="k", agg={"said": aggregates.approx_percentile("ms", SHARES, k=8)}, changes="retract"
    )
    emitted: list[Any] = []
    for rows in played(running, batches):
        old = [item["said"] for item in rows if item["_change_type"] == "update_preimage"]
        new = [item["said"] for item in rows if item["_change_type"] != "update_preimage"]
        assert old == emitted[-1:]
        emitted += new
    assert [item["count"] for item in emitted] == [40 * (i + 1) for i in range(12)]
    plain = oracle.of([item["ms"] for item in batches[0]], 8)
    for batch in batches[1:]:
        plain = oracle.union([plain, oracle.of([item["ms"] for item in batch], 8)])
    assert emitted[-1]["estimate"] == [plain.quantile(share) for share in SHARES]


def test_percentiles_of_a_long_and_of_overlapping_windows() -> None:
    rows = [row("a", float(i), i) for i in range(300)]
    given: dict[str, Any] = {"by": "k", "time": "ts", "delay": "0 seconds"}
    few = {"quantiles": aggregates.approx_percentile("ms", SHARES, k=20)}
    hopping = windows.hopping("1 minute", "30 seconds", agg=few, **given)
    found = [
        item for batch in played(hopping, [rows[:100], rows[100:]], flush=True) for item in batch
    ]
    sizes = {item["window_start"]: item["quantiles"]["count"] for item in found}
    assert sizes == {
        at(second): 30 if second in (-30, 270) else 60 for second in range(-30, 271, 30)
    }
    agg = {"quantiles": aggregates.approx_percentile("ms", SHARES)}
    whole = windows.tumbling("5 minutes", agg=agg, **given)
    (last,) = played(whole, [rows], flush=True)[-1]
    assert (last["window_start"], last["quantiles"]["count"]) == (at(0), 300)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"percentage": []}, "PARAMETER_MISSING"),
        ({"percentage": [2]}, "PARAMETER_OUT_OF_RANGE"),
        ({"k": 1}, "PARAMETER_OUT_OF_RANGE"),
        ({"column": None}, "PARAMETER_TYPE"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: Any, code: str) -> None:
    given = {"column": "ms", "percentage": [0.5]} | parameters
    with pytest.raises(SpecError) as caught:
        aggregates.approx_percentile(given.pop("column"), given.pop("percentage"), **given)
    assert (caught.value.code, caught.value.where) == (code, "aggregates.approx_percentile")


def test_a_column_that_is_not_a_number_is_refused() -> None:
    running = windows.running(agg={"quantiles": aggregates.approx_percentile("k", [0.5])})
    with pytest.raises(SchemaError) as caught:
        replay(running, [[row("a", 1.0)]], schema=SCHEMA)
    assert caught.value.code == "COLUMN_TYPE"
    assert caught.value.where == "windows.running"
