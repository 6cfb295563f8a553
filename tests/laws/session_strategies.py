"""Histories of rows in sessions with many edge cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import aggregates as agg_functions
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.windows.core.session import SessionCore
from streamops.windows.core.session_spec import SessionSpec
from tests.laws.strategies import (
    AGGREGATES,
    SCHEMA,
    base_times,
    batches_from_a_seed,
    batches_row_by_row,
    earlies,
    latenesses,
    pace_of,
    sizes,
)
from tests.oracles.sessions import SessionOracle
from tests.oracles.windows import Row

SESSIONS = SCHEMA.append(pa.field("lasts", pa.duration("us"))).append(pa.field("over", pa.bool_()))


@st.composite
def oracles(draw: st.DrawFn) -> SessionOracle:
    """Settings of sessions, as the oracle takes them."""
    gap = draw(sizes)
    stragglers = draw(st.sampled_from(["retract", "retract", "route", "drop"]))
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    early = draw(earlies)
    corrects = stragglers == "retract"
    cuts = draw(st.sampled_from(["", "", "until", "length", "both"]))
    return SessionOracle(
        gap=gap,
        by=draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")])),
        time="ts",
        agg={name: AGGREGATES[name] for name in names},
        gap_column=draw(st.sampled_from([None, "lasts"])),
        until="over" if cuts in ("until", "both") else None,
        max_length=max(gap * draw(st.sampled_from([10, 15, 12, 30])) // 10, 1)
        if cuts in ("length", "both")
        else None,
        allowed_lateness=draw(latenesses(pace_of(gap), corrects=corrects, early=early)),
        stragglers=stragglers,
        too_late=draw(st.sampled_from(["drop", "route"])) if stragglers == "retract" else "drop",
        early=early,
    )


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Sessions, and micro-batches for them: some empty, with advancing times."""
    settings, base_time = draw(oracles()), draw(base_times)
    pace = pace_of(settings.gap)
    odd = draw(st.sampled_from([0] * 8 + [1, 4]))
    full = draw(st.sampled_from([True, True, True, False]))
    drawn = draw(batches_from_a_seed(odd) if full else batches_row_by_row(odd))
    every = draw(st.sampled_from([3, 7, 2]))
    batches, count = [], 0
    for number, rows in enumerate(drawn):
        placed = []
        for time, *rest in rows:
            near = isinstance(time, tuple)
            instant = base_time + (number + time[0]) * pace + time[1] if near else time
            lasts = max(settings.gap // (1 + count % 3), 1)
            placed.append((instant, *rest, count * 7 % 131, lasts, count % every == 1))
            count += 1
        batches.append(table_of(placed))
    delay = pace * draw(st.sampled_from([0, 0, 1, 2]))
    return case_of(settings, batches, delay=delay, seed=draw(st.integers(0, 2**16)))


def table_of(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows as tuples in the order of the schema, instants as microseconds."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SESSIONS)
    arrays = [pa.array(columns[0], pa.int64()).cast(SESSIONS[0].type)]
    arrays += [pa.array(c, f.type) for c, f in zip(columns[1:], list(SESSIONS)[1:], strict=True)]
    return pa.table(arrays, schema=SESSIONS)


def case_of(settings: SessionOracle, batches: Sequence[pa.Table], *, delay: int, seed: int) -> Case:
    """The case of these sessions over these micro-batches."""
    spec = spec_of(settings, delay)

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        oracle = settings.fresh()
        for (batch,), watermark in arrivals:
            oracle.watermark = watermark
            oracle.step(to_rows(batch), None)
        rows = [tuple(item.row.get(f.name) for f in SESSIONS) for item in oracle.arrived]
        packed = SessionCore().pack(spec, table_of(rows).select(spec.input.names))
        return to_rows(SessionCore().run(spec, [packed]).rows)

    return Case(
        core=SessionCore(),
        spec=spec,
        batches=tuple((batch.select(spec.input.names),) for batch in batches),
        key=(*spec.by, "window_start", "window_end"),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def spec_of(settings: SessionOracle, delay: int) -> SessionSpec:
    """The core's spec of the oracle's settings."""
    aggregates = tuple(
        (name, repr(a), a.bind(SESSIONS, time="ts")) for name, a in settings.agg.items()
    )
    read = {"ts", *settings.by, *(name for *_, s in aggregates for name in s.inputs)}
    read |= {name for name in (settings.gap_column, settings.until) if name}
    return SessionSpec(
        operator="windows.session",
        agg=(("n", agg_functions.count()),),
        by=settings.by,
        time="ts",
        aggregates=aggregates,
        input=SESSIONS if settings.routes else pa.schema([f for f in SESSIONS if f.name in read]),
        delay=delay,
        allowed_lateness=settings.allowed_lateness,
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        early=settings.early,  # type: ignore[arg-type]
        gap=settings.gap,
        gap_column=settings.gap_column,
        until=settings.until,
        max_length=settings.max_length,
        when_longer="split",
    )
