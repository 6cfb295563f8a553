"""Histories of rolling aggregates with many edge cases."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import pyarrow as pa
from hypothesis import strategies as st

from streamops import windows
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.windows.core.rolling import RollingCore, RollingSpec
from tests.laws.strategies import AGGREGATES, SCHEMA, base_times, pace_of, sizes, table_of, tables
from tests.oracles.rolling import RollingOracle
from tests.oracles.windows import Row


@st.composite
def oracles(draw: st.DrawFn) -> RollingOracle:
    """Settings of rolling aggregates, as the oracle takes them."""
    every = draw(sizes)
    names = draw(st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=3, unique=True))
    lengths = draw(st.lists(st.sampled_from([1, 2, 3, 5, 40]), min_size=1, max_size=3, unique=True))
    return RollingOracle(
        every=every,
        horizons={f"h{length}": length * every for length in lengths},
        by=draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")])),
        time="ts",
        agg={name: AGGREGATES[name] for name in names},
        stragglers=draw(st.sampled_from(["route", "drop"])),
    )


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Horizons, and micro-batches for them: some empty, with advancing times."""
    settings, base_time = draw(oracles()), draw(base_times)
    pace = pace_of(settings.every)
    batches = draw(tables(base_time, pace))
    delay = pace * draw(st.sampled_from([0, 0, 1, 2]))
    return case_of(settings, batches, delay=delay, seed=draw(st.integers(0, 2**16)))


def case_of(settings: RollingOracle, batches: Sequence[pa.Table], *, delay: int, seed: int) -> Case:
    """The case of these horizons over these micro-batches."""
    spec = spec_of(settings, delay)

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        oracle = settings.fresh()
        for (batch,), watermark in arrivals:
            oracle.watermark = watermark
            oracle.step(to_rows(batch), None)
        rows = [tuple(row.get(f.name) for f in SCHEMA) for row in oracle.arrived]
        packed = RollingCore().pack(spec, table_of(rows).select(spec.input.names))
        return to_rows(RollingCore().run(spec, [packed]).rows)

    return Case(
        core=RollingCore(),
        spec=spec,
        batches=tuple((batch.select(spec.input.names),) for batch in batches),
        key=(*spec.by, "window_end"),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def spec_of(settings: RollingOracle, delay: int) -> RollingSpec:
    """The core's spec of the oracle's settings."""
    made = windows.rolling(
        dt.timedelta(microseconds=settings.every),
        {name: dt.timedelta(microseconds=length) for name, length in settings.horizons.items()},
        time=settings.time,
        by=settings.by,
        agg=settings.agg,
        delay=dt.timedelta(microseconds=delay),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
    ).parameters
    return made.resolve((SCHEMA,), carried=(None,), shards=1)
