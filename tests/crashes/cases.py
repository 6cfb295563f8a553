"""Every operator with a state, its micro-batches, and the rows that its results amount to.

A row of the key ``~`` closes everything: it moves the watermark far ahead, after the rows of all others. So the
stream without that key is the batch result without that key, row by row.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from streamops import aggregates as agg
from streamops import windows
from streamops.testing import at
from tests.spark.test_every_operator import (
    CASES,
    CLOCKED,
    EVENT,
    EVENTS,
    TIMED,
    Case,
    Rows,
    at_once,
    replay_together,
)

END = "~"
LAST = 3
"""The micro-batch that closes everything."""

WITHOUT_ROWS = LAST + 1
"""The micro-batch that Spark adds after the last one, if there is a watermark."""

_DAYS = 3 * 24 * 3_600
_NOT_CONTENT = ("_change_type", "revision", "timing")
_SIGN = {"delete": -1, "update_preimage": -1}
_STATELESS = {"correct_clock", "guard", "from_debezium", "from_delta"}
_BY_ARRIVAL = {"chain", "enrich", "search", "seen"}
"""What these emit depends on what arrived before, so it is compared with a run of the core without a crash."""


def _close(case: Case) -> Case:
    """Let the last micro-batch have nothing but rows of the key ``~``, if there is a watermark."""
    last = tuple(_closing(rows) for rows in case.batches[LAST])
    return replace(case, batches=[*case.batches[:LAST], last])


def _closing(rows: Rows) -> Rows:
    far = [row for row in rows if at(600) in row.values()]
    if not far:
        return rows
    later = {at(600): at(_DAYS), at(610): at(_DAYS + 10)}
    row = {name: later.get(v, v) for name, v in far[0].items()}
    return [row | ({"k": END} if "k" in row else {})]


_RUNNING = windows.running(by="k", agg={"n": agg.count(), "total": agg.sum("v")}, changes="retract")

CRASHED: dict[str, Case] = {
    name: _close(case)
    for name, case in {**CASES, "running": Case(_RUNNING, (EVENT,), EVENTS)}.items()
    if name not in _STATELESS
}
"""The cases of ``tests/spark/test_every_operator.py`` that have a state."""


@functools.cache
def expected_rows(names: tuple[str, ...]) -> dict[str, Counter[str]]:
    """What the target of each operator has in the end."""
    cases = {name: CRASHED[name] for name in names}
    runs = replay_together(cases, (range(LAST + 1),))
    found = {}
    for name, case in cases.items():
        rows = [row for batch in runs[name] for row in batch]
        found[name] = net(rows if name in _BY_ARRIVAL else at_once(_as_batch(name, case)))
        assert found[name] == net(rows) != Counter(), name
    return found


def _as_batch(name: str, case: Case) -> Case:
    """In a batch there are no producers to wait for."""
    if name != "producers":
        return case
    counts = windows.tumbling("10 seconds", agg={"n": agg.count()}, **TIMED)
    return replace(case, operator=counts, schemas=(CLOCKED,))


def net(rows: Iterable[str]) -> Counter[str]:
    """The multiset of rows that rows or changes, as JSON, amount to, without the key that closes them."""
    found: Counter[str] = Counter()
    for row in map(json.loads, rows):
        sign = _SIGN.get(row.get("_change_type"), 1)
        content = {n: v for n, v in row.items() if n not in _NOT_CONTENT}
        if content.get("k") != END:
            found[json.dumps(content, sort_keys=True)] += sign
    assert min(found.values(), default=0) >= 0, f"rows were taken back that were not there: {found}"
    return +found
