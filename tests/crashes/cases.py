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
from streamops.testing import Replay, at
from tests.spark.test_every_operator import (
    CASES,
    CLOCKED,
    STATELESS,
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
_BY_ARRIVAL = {"enrich", "search", "seen"}
"""What these emit depends on what arrived before, so it is compared with a run of the core without a crash.

So does what a chain emits: its second operator has the watermark of the first.
"""


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


CRASHED: dict[str, Case] = {
    name: _close(case) for name, case in CASES.items() if name not in STATELESS
}
"""The cases of ``tests/spark/test_every_operator.py`` that have a state."""


@functools.cache
def expected_rows(names: tuple[str, ...]) -> dict[str, Counter[str]]:
    """What the target of each operator has in the end, if one query has them."""
    runs, _ = _replay(names)
    found = {}
    for name in names:
        case, rows = CRASHED[name], [row for batch in runs[name] for row in batch]
        found[name] = net(rows if _is_by_arrival(name) else at_once(_as_batch(name, case)))
        assert found[name] == net(rows) != Counter(), name
    return found


def shows_a_crash(names: tuple[str, ...], name: str, number: int) -> bool:
    """Whether an operator of a query has something to lose in a micro-batch: a state, or rows."""
    return has_state(names, name, number) or has_rows(names, name, number)


def has_state(names: tuple[str, ...], name: str, number: int) -> bool:
    """Whether an operator of a query has a state before a micro-batch."""
    _, states = _replay(names)
    return number < len(states[name]) and states[name][number]


def has_rows(names: tuple[str, ...], name: str, number: int) -> bool:
    """Whether an operator of a query has results in a micro-batch."""
    runs, _ = _replay(names)
    return number < len(runs[name]) and bool(runs[name][number])


@functools.cache
def _replay(
    names: tuple[str, ...],
) -> tuple[dict[str, list[list[str]]], dict[str, list[bool]]]:
    """The results of each micro-batch, and whether all steps of the operator had a state before it."""
    states: dict[str, list[bool]] = {name: [] for name in names}

    def look(name: str, query: Replay) -> None:
        states[name].append(all(stage.stored for stage in query._stages))

    runs = replay_together({name: CRASHED[name] for name in names}, (range(LAST + 1),), look)
    return runs, states


def _is_by_arrival(name: str) -> bool:
    return name in _BY_ARRIVAL or (len(CRASHED[name].chain) > 1 and name != "producers")


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
