"""Histories of rows in sliding windows with many edge cases."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from streamops import windows
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.windows.core.sliding import SlidingCore
from streamops.windows.core.sliding_spec import SlidingSpec
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
    table_of,
)
from tests.oracles.sliding import SlidingOracle
from tests.oracles.windows import Row


@st.composite
def oracles(draw: st.DrawFn) -> SlidingOracle:
    """Settings of sliding windows, as the oracle takes them."""
    size = draw(sizes)
    stragglers = draw(st.sampled_from(["retract", "update", "route", "drop"]))
    corrects = stragglers in ("update", "retract")
    early = draw(earlies)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True))
    return SlidingOracle(
        size=size,
        by=draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")])),
        time="ts",
        agg={name: AGGREGATES[name] for name in names},
        allowed_lateness=draw(latenesses(pace_of(size), corrects=corrects, early=early)),
        stragglers=stragglers,
        too_late=draw(st.sampled_from(["drop", "route"])) if corrects else "drop",
        early=early,
    )


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Windows, and micro-batches for them: some empty, with advancing times."""
    settings, base_time = draw(oracles()), draw(base_times)
    pace = pace_of(settings.size)
    odd = draw(st.sampled_from([0] * 8 + [1, 4]))
    full = draw(st.sampled_from([True, True, True, False]))
    drawn = draw(batches_from_a_seed(odd) if full else batches_row_by_row(odd))
    batches, count = [], 0
    for number, rows in enumerate(drawn):
        placed = []
        for time, *rest in rows:
            near = isinstance(time, tuple)
            instant = base_time + (number + time[0]) * pace + time[1] if near else time
            placed.append((instant, *rest, count * 7 % 131))
            count += 1
        batches.append(table_of(placed))
    delay = pace * draw(st.sampled_from([0, 0, 1, 2]))
    return case_of(settings, batches, delay=delay, seed=draw(st.integers(0, 2**16)))


def case_of(settings: SlidingOracle, batches: Sequence[pa.Table], *, delay: int, seed: int) -> Case:
    """The case of these windows over these micro-batches."""
    spec = spec_of(settings, delay)

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        oracle = settings.fresh()
        for (batch,), watermark in arrivals:
            oracle.watermark = watermark
            oracle.step(to_rows(batch), None)
        rows = [tuple(row.get(f.name) for f in SCHEMA) for row in oracle.arrived]
        packed = SlidingCore().pack(spec, table_of(rows).select(spec.input.names))
        return to_rows(SlidingCore().run(spec, [packed]).rows)

    return Case(
        core=SlidingCore(),
        spec=spec,
        batches=tuple((batch.select(spec.input.names),) for batch in batches),
        key=(*spec.by, spec.time),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def spec_of(settings: SlidingOracle, delay: int, schema: pa.Schema = SCHEMA) -> SlidingSpec:
    """The core's spec of the oracle's settings."""
    made = windows.sliding(
        dt.timedelta(microseconds=settings.size),
        time=settings.time,
        by=settings.by,
        agg=settings.agg,
        delay=dt.timedelta(microseconds=delay),
        allowed_lateness=dt.timedelta(microseconds=settings.allowed_lateness),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        early=settings.early,
    ).parameters
    return made.resolve((schema,), carried=(None,), shards=1)
