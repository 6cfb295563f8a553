"""Histories of irregular rows that are put on a grid."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import strategies as st

from streamops import windows
from streamops.testing.laws import Case
from streamops.windows.core.resample import ResampleCore, ResampleSpec
from tests.laws.strategies import SCHEMA, base_times, pace_of, sizes, tables
from tests.oracles.resample import ResampleOracle

METHODS = {
    "word": ["previous", "null"],
    "number": ["previous", "linear", "null"],
    "n": ["previous", "linear"],
    "x": ["previous", "linear", "linear", "null"],
    "d": ["linear", "previous"],
}


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Methods, and micro-batches for them: some empty, with advancing times."""
    every = draw(sizes)
    by = draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")]))
    columns = st.sampled_from(sorted(METHODS.keys() - {*by}))
    names = draw(st.lists(columns, min_size=1, max_size=3, unique=True))
    settings = ResampleOracle(
        every=every,
        values={name: draw(st.sampled_from(METHODS[name])) for name in names},
        max_gap=max(every * draw(st.sampled_from([2, 1, 3, 10, 40])) // 2, 1),
        by=by,
        time="ts",
        tie_break=draw(st.sampled_from([("seq",), ("x", "seq"), ()])),
        stragglers=draw(st.sampled_from(["route", "drop"])),
    )
    pace = pace_of(every)
    batches = draw(tables(draw(base_times), pace))
    delay = pace * draw(st.sampled_from([0, 0, 1, 2]))
    return Case(
        core=ResampleCore(),
        spec=spec_of(settings, delay),
        batches=tuple((batch,) for batch in batches),
        oracle=settings.fresh,
        seed=draw(st.integers(0, 2**16)),
    )


def spec_of(settings: ResampleOracle, delay: int) -> ResampleSpec:
    """The core's spec of the oracle's settings."""
    made: Any = windows.resample(
        dt.timedelta(microseconds=settings.every),
        time=settings.time,
        values=settings.values,  # type: ignore[arg-type]
        max_gap=dt.timedelta(microseconds=settings.max_gap),
        by=settings.by,
        tie_break=settings.tie_break,
        delay=dt.timedelta(microseconds=delay),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
    ).parameters
    return made.resolve((SCHEMA,), carried=(None,), shards=1)
