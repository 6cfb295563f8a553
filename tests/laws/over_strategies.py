"""Histories of rows whose values depend on the rows before and after them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import windows
from streamops.testing.laws import Case
from streamops.windows.core.over import OverCore, OverSpec, RowFunction
from tests.laws.strategies import SCHEMA, base_times, pace_of, sizes, tables
from tests.oracles.over import OverOracle

FUNCTIONS = {
    "word_before": windows.lag("word"),
    "n_before": windows.lag("n", 3),
    "time_before": windows.lag("ts", 2),
    "x_after": windows.lead("x"),
    "d_after": windows.lead("d", 2),
    "number_after": windows.lead("number", 3),
    "change_n": windows.difference("n"),
    "change_x": windows.difference("x", 2),
    "change_d": windows.difference("d"),
    "rate_n": windows.rate("n", per="1 minute"),
    "rate_x": windows.rate("x"),
    "rate_d": windows.rate("d", 2, per="7 microseconds"),
}


def averages(length: int) -> dict[str, RowFunction]:
    """Averages whose half-lives are around a length."""
    return {
        "fast_x": windows.ewma("x", half_life="1 microsecond"),
        "same_x": windows.ewma("x", half_life=dt.timedelta(microseconds=length)),
        "slow_n": windows.ewma("n", half_life=dt.timedelta(microseconds=length * 37)),
        "slow_d": windows.ewma("d", half_life="3000 days"),
    }


@st.composite
def histories(draw: st.DrawFn, averaged: bool = False) -> Case:
    """Functions, and micro-batches for them: some empty, with advancing times."""
    length = draw(sizes)
    functions = {**FUNCTIONS, **(averages(length) if averaged else {})}
    names = draw(st.lists(st.sampled_from(sorted(functions)), min_size=1, max_size=4, unique=True))
    if averaged:
        names = list(dict.fromkeys([*names, draw(st.sampled_from(sorted(averages(length))))]))
    settings = OverOracle(
        values={name: functions[name] for name in names},
        within=max(length * draw(st.sampled_from([1, 2, 5, 20, 1000])) // 2, 1),
        by=draw(st.sampled_from([(), (), ("word",), ("number",), ("number", "word")])),
        time="ts",
        tie_break=draw(st.sampled_from([("seq",), ("x", "seq"), ()])),
        stragglers=draw(st.sampled_from(["route", "drop"])),
    )
    pace = pace_of(length)
    batches = draw(tables(draw(base_times), pace))
    delay = pace * draw(st.sampled_from([0, 0, 1, 2]))
    seed = draw(st.integers(0, 2**16))
    return case_of(settings, batches, delay=delay, seed=seed, has_oracle=not averaged)


def case_of(
    settings: OverOracle,
    batches: Sequence[pa.Table],
    *,
    delay: int,
    seed: int,
    has_oracle: bool = True,
) -> Case:
    """The case of these functions over these micro-batches."""
    return Case(
        core=OverCore(),
        spec=spec_of(settings.values, settings, delay),
        batches=tuple((batch,) for batch in batches),
        oracle=settings.fresh if has_oracle else None,
        seed=seed,
    )


def spec_of(values: Mapping[str, RowFunction], settings: OverOracle, delay: int) -> OverSpec:
    """The core's spec of the oracle's settings."""
    made: Any = windows.over(
        time=settings.time,
        values=values,
        within=dt.timedelta(microseconds=settings.within),
        by=settings.by,
        tie_break=settings.tie_break,
        delay=dt.timedelta(microseconds=delay),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
    ).parameters
    return made.resolve((SCHEMA,), carried=(None,), shards=1)
