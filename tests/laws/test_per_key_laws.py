"""Functions per key keep every law of a core."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import process
from streamops.kernel.columns import concat
from streamops.process.core.per_key import PerKeyCore
from streamops.testing import laws
from streamops.testing.batches import to_table
from streamops.testing.laws import to_rows
from tests.oracles.per_key import PerKeyOracle

pytestmark = pytest.mark.laws

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("v", pa.int64()),
        ("seq", pa.int64()),
    ]
)
STATE = "n bigint, items array<bigint>, last timestamp"
INITIAL = {"n": 0, "items": []}
OUTPUT = "what string, n bigint, items array<bigint>"
SECOND = dt.timedelta(seconds=1)


def collect(key: Any, rows: Iterator[Any], state: Any) -> Iterator[Any]:
    """The order of rows matters, and a zero forgets the key."""
    for row in rows:
        if row.v == 0:
            state.n, state.items, state.last = 0, [], None
            continue
        state.n += row.v or 0
        state.items.append(row.seq)
        state.last = row.ts
        if state.n % 2:
            yield "odd", state.n, list(state.items)


def watch(key: Any, rows: Iterator[Any], state: Any, timers: Any) -> Iterator[Any]:
    """Timers in the future, at the row, and in the past; some are cancelled."""
    for row in rows:
        state.n += 1
        if row.v is None:
            timers.cancel_all()
        else:
            timers.set(row.ts + row.v * 5 * SECOND)
        if row.v == 2 and state.last is not None:
            timers.cancel(state.last)
        state.last = row.ts
        yield "row", state.n, None


def fire(key: Any, time: dt.datetime, state: Any, timers: Any) -> Iterator[Any]:
    """Some timers set another one."""
    state.items.append(state.n)
    if len(state.items) % 3:
        timers.set(time + 7 * SECOND)
    yield "timer", len(timers.pending), list(state.items)
    if len(state.items) > 4:
        state.n, state.items, state.last = 0, [], None


VALUES = {
    "k": st.sampled_from(["a", "b", None]),
    "v": st.sampled_from([1, 0, 2, -1, None]),
    "seq": st.integers(0, 3),
}


@st.composite
def histories(draw: st.DrawFn, *, time: bool = True) -> laws.Case:
    has_timers = time and draw(st.booleans())
    parameters: dict[str, Any] = {}
    if time:
        parameters = {
            "time": "ts",
            "delay": draw(st.sampled_from(["0 seconds", "10 seconds", "25 seconds"])),
            "order_by": draw(st.sampled_from([(), ("seq",), ("seq", "v")])),
            "stragglers": draw(st.sampled_from(["drop", "route"])),
        }
    by = draw(st.sampled_from([("k",), (), ("k", "v")]))
    operator = process.per_key(
        watch if has_timers else collect,
        by=by,
        state=STATE,
        initial=INITIAL,
        output=OUTPUT,
        on_timer=fire if has_timers else None,
        **parameters,
    )
    spec: Any = operator.parameters.resolve((SCHEMA,), carried=(None,), shards=1)
    drawn = draw(laws.histories(VALUES, time="ts"))
    batches = [to_table(rows, SCHEMA) for rows in drawn]
    if draw(st.booleans()):
        batches.append(to_table([{"k": "a", "ts": None, "v": 1, "seq": 1}], SCHEMA))
    oracle = PerKeyOracle(spec)

    def accepted(arrivals: Sequence[laws.Arrival]) -> list[dict[str, Any]]:
        rows = concat([batch for (batch,), _ in arrivals])
        if not time:
            return to_rows(PerKeyCore().run(spec, [PerKeyCore().pack(spec, rows)]).rows)
        return oracle.fresh().run(arrivals)

    return laws.Case(
        core=PerKeyCore(),
        spec=spec,
        batches=tuple((batch,) for batch in batches),
        oracle=oracle.fresh,
        accepted=accepted,
        seed=draw(st.integers(0, 2**16)),
    )


@given(case=histories())
def test_functions_per_key_keep_every_law(case: laws.Case) -> None:
    laws.check_laws(case)


@given(case=histories(time=False))
def test_functions_over_rows_as_they_arrive_keep_the_laws(case: laws.Case) -> None:
    order = laws.CORE[
        [law.__name__ for law in laws.CORE].index("order_within_a_batch_is_irrelevant")
    ]
    laws.check_laws(case, [law for law in laws.CORE if law is not order])
