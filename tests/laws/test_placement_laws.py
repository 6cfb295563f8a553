"""Cores with a clock of their own per shard go on with equal results on another number of shards.

The other cores have the law ``rescaling_changes_nothing``.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamops
from streamops.changelog.classify import copy_truncates
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import LatestCore
from streamops.kernel.core import State
from streamops.kernel.hashing import shard_of
from streamops.kernel.operator import Core
from streamops.kernel.placement import GREATEST, Placement, redistribute_states
from streamops.sketches.core.seen import FULL, SEEN, SeenCore
from streamops.sketches.core.seen_state import PREVIOUS
from streamops.state.operators import FORMATS, PLACEMENTS
from streamops.testing.laws import to_rows
from streamops.testing.laws.cases import same_tables
from streamops.time.core.track_clock import TrackClockCore
from tests.laws import test_history_laws, test_seen_laws, test_track_clock_laws
from tests.laws.changes_strategies import FOREVER, by_key, changes_of, histories
from tests.laws.changes_strategies import Case as LatestCase
from tests.sketches.seen_specs import change

SHARDS = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))


def play(
    core: Any,
    spec_of: Callable[[int], Any],
    batches: tuple[pa.Table, ...],
    numbers: tuple[int, int, int],
    by: tuple[str, ...],
    copies_of: Callable[[pa.Table], pa.Table | None] = lambda rows: None,
) -> list[list[Any]]:
    """The results of each micro-batch, of all shards; their number changes at each third."""
    placement: Placement = core.placement
    shards = numbers[0]
    states = [State.empty(core.layout(spec_of(shards)))] * shards
    results = []
    for number, batch in enumerate(batches):
        wanted = numbers[3 * number // len(batches)]
        if wanted != shards:
            found = dict(enumerate(states))
            identity = spec_of(shards).identity
            identity, states = redistribute_states(placement, identity, found, shards, wanted)
            assert identity == spec_of(wanted).identity
            shards = wanted
        spec, step = spec_of(shards), []
        copies, shard = copies_of(batch), shard_of(batch, by, shards)
        for at, state in enumerate(states):
            rows = batch.filter(pa.array(shard == at))
            if copies is not None:
                rows = pa.concat_tables([copies, rows]).combine_chunks()
            step.append(core.step(spec, state, [core.pack(spec, rows, "left")], None))
        states = [result.state for result in step]
        for state in states:
            core.check(spec, state)
        results.append(step)
    return results


def test_every_core_with_a_state_is_known() -> None:
    found: dict[str, Any] = {}
    for info in pkgutil.walk_packages(streamops.__path__, "streamops."):
        module: Any = importlib.import_module(info.name) if ".core." in info.name else None
        for core in filter(inspect.isclass, vars(module).values() if module else ()):
            if issubclass(core, Core) and core.TABLES:  # else it has no state
                found[core.STATE.kind] = core()
    assert found.keys() == FORMATS.keys()
    assert {name: core.placement for name, core in found.items()} == dict(PLACEMENTS)


@pytest.mark.laws
@given(case=histories(odd=1), numbers=SHARDS)
def test_latest_rows(case: LatestCase, numbers: tuple[int, int, int]) -> None:
    def emitted_by(steps: list[Any]) -> dict[Any, list[Any]]:
        rows = [row for step in steps for row in changes_of(step)]
        if case.spec.horizon != FOREVER:  # the first revision of a key depends on its shard
            rows = [{name: v for name, v in row.items() if name != "revision"} for row in rows]
        return by_key(case.spec, rows)

    whole, rescaled = (
        play(
            LatestCore(),
            lambda _: case.spec,
            case.batches,
            of,
            case.spec.by,
            lambda rows: copy_truncates(case.spec, rows),
        )
        for of in ((1, 1, 1), numbers)
    )
    assert list(map(emitted_by, rescaled)) == list(map(emitted_by, whole))


@pytest.mark.laws
@given(case=test_history_laws.cases(odd=1), numbers=SHARDS)
def test_histories_of_rows(case: test_history_laws.Case, numbers: tuple[int, int, int]) -> None:
    spec = case.spec
    whole, rescaled = (
        [
            test_history_laws.multisets(spec, [row for step in steps for row in changes_of(step)])
            for steps in play(HistoryCore(), lambda _: spec, case.batches, of, spec.by)
        ]
        for of in ((1, 1, 1), numbers)
    )
    assert rescaled == whole


@pytest.mark.laws
@given(case=test_track_clock_laws.histories(), numbers=SHARDS)
def test_clocks_of_devices(case: test_track_clock_laws.Case, numbers: tuple[int, int, int]) -> None:
    whole, rescaled = (
        test_track_clock_laws.by_id(
            [
                step.output
                for steps in play(
                    TrackClockCore(), lambda _: case.spec, case.batches, of, case.spec.by
                )
                for step in steps
            ]
        )
        for of in ((1, 1, 1), numbers)
    )
    assert rescaled == whole


@pytest.mark.laws
@given(case=test_seen_laws.histories(in_order=True), numbers=SHARDS)
def test_what_was_seen(case: test_seen_laws.Case, numbers: tuple[int, int, int]) -> None:
    whole, rescaled = (
        test_seen_laws.by_id([step.output for steps in played for step in steps])
        for played in (seen_steps(case, of) for of in ((1, 1, 1), numbers))
    )
    assert rescaled == whole


@pytest.mark.laws
@given(case=test_seen_laws.histories(in_order=True), numbers=SHARDS)
def test_too_small_filters_forget_nothing(
    case: test_seen_laws.Case, numbers: tuple[int, int, int]
) -> None:
    spec = change(case.spec, capacity=2, false_positive_rate=0.5, when_full="flag")
    oracle = case.oracle()
    for batch, steps in zip(
        case.batches, seen_steps(replace(case, spec=spec), numbers), strict=True
    ):
        found = {row["id"]: row[SEEN] for step in steps for row in to_rows(step.output)}
        rows = to_rows(batch)
        assert oracle.forgotten(rows, [found[row["id"]] for row in rows]) == []


def seen_steps(case: test_seen_laws.Case, numbers: tuple[int, int, int]) -> list[list[Any]]:
    by = case.spec.parameters.by
    return play(
        SeenCore(), lambda shards: change(case.spec, shards=shards), case.batches, numbers, by
    )


def test_filters_of_other_shards_are_not_asked() -> None:
    spec = change(
        test_seen_laws.seen_spec(test_seen_laws.SCHEMA, by=("id",), time=None, capacity=3_000),
        false_positive_rate=0.01,
        shards=16,
    )

    def rows(first: int, last: int) -> pa.Table:
        return test_seen_laws.table_of(
            [
                {"n": 0, "word": "", "ts": 0, "x": 0.0, "id": number, "map": None}
                for number in range(first, last)
            ]
        )

    batches = (rows(0, 2_000), rows(1_000, 1_001), rows(10_000, 10_900))
    *_, last = play(
        SeenCore(), lambda shards: change(spec, shards=shards), batches, (16, 16, 2), ("id",)
    )
    found = Counter(row[SEEN] for step in last for row in to_rows(step.output))
    assert not any(row[FULL] for step in last for row in to_rows(step.output))
    assert found["again"] <= 18, "more than two times the promised share of false positives"
    for number, step in enumerate(last):
        filters = step.state.tables[PREVIOUS]
        assert set(filters.column("shards").to_pylist()) == {16}
        # Of the old shards whose items it may receive.
        assert set(filters.column("shard").to_pylist()) == set(range(number, 16, 2))


def test_the_greatest_of_each_column_is_for_all_shards() -> None:
    schema = pa.schema([("sequence", pa.struct([("log", pa.int64())])), ("clock", pa.int64())])
    shards = [
        pa.table([[{"log": 3}], [5]], schema=schema),
        schema.empty_table(),
        pa.table([[{"log": 2}], [7]], schema=schema),
    ]
    merged = GREATEST.merge({}, shards)
    assert merged.to_pylist() == [{"sequence": {"log": 3}, "clock": 7}]
    assert [len(table) for table in GREATEST.split({}, merged, 4)] == [1] * 4
    assert len(GREATEST.merge({}, [schema.empty_table()] * 2)) == 0


def test_limits_reach_every_shard_and_rows_only_theirs() -> None:
    spec = _small_table()
    rows = _changes(spec, [("insert", k, n) for n, k in enumerate("abcdefgh")])
    deleted = _changes(spec, [("delete", "a", 20), ("insert", "z", 1_000)])
    step = LatestCore().step(
        spec, State.empty(LatestCore().layout(spec)), [LatestCore().pack(spec, rows)]
    )
    step = LatestCore().step(spec, step.state, [LatestCore().pack(spec, deleted)])
    assert step.state.tables["evicted"].num_rows == 1
    _, there = redistribute_states(LatestCore().placement, spec.identity, {0: step.state}, 1, 5)
    for number, state in enumerate(there):
        assert state.tables["evicted"].equals(step.state.tables["evicted"])
        assert state.watermark == step.state.watermark
        found = state.tables["rows"]
        assert set(shard_of(found.rename_columns(["k", *found.column_names[1:]]), ["k"], 5)) <= {
            number
        }
    _, back = redistribute_states(
        LatestCore().placement, spec.identity, dict(enumerate(there)), 5, 1
    )
    same_tables(back[0], step.state, "five shards and back")


def _small_table() -> Any:
    from streamops import changes

    schema = pa.schema([("_change_type", pa.string()), ("k", pa.string()), ("lsn", pa.int64())])
    operator = changes.normalize("k", sequence="lsn", horizon=10)
    return operator.parameters.resolve((schema,), carried=(None,), shards=1)


def _changes(spec: Any, rows: list[tuple[str, str, int]]) -> pa.Table:
    names = ["_change_type", "k", "lsn"]
    table = pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
    missing = [name for name in spec.input.names if name not in names]
    for name in missing:
        table = table.append_column(name, pa.nulls(len(table), spec.input.field(name).type))
    return table.select(spec.input.names).cast(spec.input)
