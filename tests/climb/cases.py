"""Every operator with a state, more micro-batches than versions of Spark, and the queries that run them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from streamops.environment.settings import ROCKSDB
from streamops.testing import at
from tests.spark.test_every_operator import CASES, STATELESS, Case, Rows
from tests.state.histories import batches_for

HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STORES = {"applyInPandasWithState": HDFS, "transformWithStateInPandas": ROCKSDB}
"""The state store with which a session selects a state API."""

SINGLE = "running"
"""The operator that other changes than an upgrade are tried on: it emits a row for each row."""

_END = at(3 * 24 * 3_600)
_PARTS = 4


def cases(count: int) -> dict[str, Case]:
    """The operators with a state, and `count` micro-batches, of which the last moves the watermark far ahead."""
    found = {}
    for name, case in CASES.items():
        if name in STATELESS:
            continue
        # Commands are no events: an entity accepts them in an order.
        batches = _halves(case) if name == "decide" else batches_for(case.schemas, count)
        batches = [*batches[: count - 1], tuple(map(_closed, batches[count - 1]))]
        found[name] = replace(case, batches=batches)
    return found


def queries(names: list[str]) -> dict[str, list[list[str]]]:
    """The operators of each query, by the state API.

    A query has ``applyInPandasWithState`` once. A union of many operators costs a fraction of a query for each.
    """
    return {
        "applyInPandasWithState": [[name] for name in names],
        "transformWithStateInPandas": [names[part::_PARTS] for part in range(_PARTS)],
    }


def _halves(case: Case) -> list[tuple[Rows, ...]]:
    return [(rows[part::2],) for (rows,) in case.batches for part in range(2)]


def _closed(rows: Rows) -> Rows:
    last = {name: _END if isinstance(v, dt.datetime) else v for name, v in rows[-1].items()}
    return [*rows, last] if last != rows[-1] else rows
