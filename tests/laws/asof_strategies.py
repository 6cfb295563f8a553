"""Histories of facts and versions with many edge cases."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import joins
from streamops.joins.core.asof import AsofCore, AsofSpec, WaitsFor
from streamops.spark.drive import resolve
from streamops.testing.laws import Arrival, Case, to_rows
from tests.laws.strategies import STRANGERS, base_times
from tests.oracles.asof import AsofOracle, Fact
from tests.oracles.windows import Expected, Row

INSTANT = pa.timestamp("us", tz="UTC")
FACTS = pa.schema(
    [("ts", INSTANT), ("word", pa.string()), ("number", pa.float64()), ("n", pa.int64())]
)
TABLE = pa.schema(
    [
        ("since", INSTANT),
        ("till", INSTANT),
        ("name", pa.string()),
        ("number", pa.float64()),
        ("n", pa.int64()),
        ("seq", pa.int64()),
        ("gone", pa.bool_()),
        ("_change_type", pa.string()),
        ("_tombstone", pa.bool_()),
    ]
)

NAN = float("nan")
NAMES = ["a", "a", "a", "b", None]
NUMBERS = [0.0, 0.0, 0.0, -0.0, NAN, None]
# Few, so that versions are duplicates or in conflict.
CONTENTS = [1, 1, 2, None]
SEQUENCES = [1, 1, 2, 3, -5]
PACES = [0, 1, -1, -2, -3, -4, -5, 0, -8]
NUDGES = [0, 0, 1, -1, 333]
TOMBSTONES = [False, None, False, None, True]
CHANGES = ["insert", "insert", "update_postimage", "update_preimage", "delete"]


@st.composite
def oracles(draw: st.DrawFn, pace: int) -> AsofOracle:
    """Parameters of as-of joins, for the oracle."""
    stragglers = draw(st.sampled_from(["answer", "answer", "route", "drop"]))
    late_versions = draw(st.sampled_from(["retract", "retract", "ignore"]))
    later = stragglers == "answer" or late_versions == "retract"
    deletes = draw(st.sampled_from(["changes", "deleted", None]))
    aside: set[str] = {"changes": {"_change_type"}, "deleted": {"gone"}}.get(deletes, set())
    hidden = {"gone", "_change_type"} - aside
    if draw(st.booleans()):
        aside = aside | {"_tombstone"}
    else:
        hidden = hidden | {"_tombstone"}
    columns = tuple(name for name in TABLE.names if name not in hidden)
    by = draw(
        st.sampled_from(
            [(("word", "name"),), (("word", "name"),), (("word", "name"), ("number", "number"))]
        )
    )
    keys = {name for _, name in by}
    rest = [name for name in columns if name not in keys | aside]
    direction = draw(st.sampled_from(["backward", "backward", "forward", "nearest"]))
    tolerances = (
        [4 * pace, pace, 0] if direction != "backward" else [None] * 3 + [4 * pace, pace, 0]
    )
    tolerance = draw(st.sampled_from(tolerances))
    return AsofOracle(
        by=by,
        time="ts",
        version="since",
        sequence="seq",
        columns=columns,
        joined=tuple((n, f"{n}_right" if n in FACTS.names else n) for n in rest),
        until=draw(st.sampled_from([None, "till"])) if direction != "forward" else None,
        deleted="gone" if deletes == "deleted" else None,
        changes=deletes == "changes",
        how=draw(st.sampled_from(["left", "inner"])),
        tolerance=tolerance,
        direction=direction,
        allow_exact=tolerance == 0 or draw(st.booleans()),
        allowed_lateness=pace * draw(st.sampled_from([3, 100, 1, 0])),
        stragglers=stragglers,
        late_versions=late_versions,
        too_late=draw(st.sampled_from(["drop", "route"])) if later else "drop",
    )


@st.composite
def histories(draw: st.DrawFn, waits_for: WaitsFor = "both") -> Case:
    """Facts and versions in micro-batches: some empty, each somewhat later than the one before."""
    pace = draw(st.sampled_from([10_000, 4_000, 1_000]))
    settings, start = draw(oracles(pace)), draw(base_times)
    odd = draw(st.sampled_from([0] * 8 + [1, 4]))
    seed, count = draw(st.integers(0, 2**32)), draw(st.integers(6, 10))
    most = draw(st.sampled_from([6, 10, 2]))
    batches = []
    for number in range(count):  # each from dice of its own: fewer are the same ones
        dice = random.Random(f"{seed} {number}")
        now = start + number * 2 * pace

        def when(dice: random.Random = dice, now: int = now) -> int | None:
            near = dice.randrange(8 + odd) < 8
            if not near:
                return dice.choice(STRANGERS)
            return now + dice.choice(PACES) * pace + dice.choice(NUDGES)

        left = [_fact(dice, when()) for _ in range(dice.choice([0, most // 2, most]))]
        right = [_version(dice, when, odd) for _ in range(dice.choice([0, most // 2, most]))]
        batches.append((table_of(left, FACTS), table_of(right, TABLE).select(settings.columns)))
    delay = pace * draw(st.sampled_from([0, 1, 3]))
    spec = spec_of(settings, delay, waits_for=waits_for)
    return case_of(spec, settings, batches, seed=draw(st.integers(0, 2**32)))


def case_of(
    spec: AsofSpec,
    settings: AsofOracle,
    batches: Sequence[tuple[pa.Table, pa.Table]],
    *,
    seed: int = 0,
) -> Case:
    """A case for the laws."""

    def accepted(arrivals: Sequence[Arrival]) -> Sequence[Row]:
        return over_accepted_rows(settings, arrivals)

    return Case(
        core=AsofCore(),
        spec=spec,
        batches=tuple(batches),
        oracle=settings.fresh,
        accepted=accepted,
        seed=seed,
    )


def over_accepted_rows(settings: AsofOracle, arrivals: Sequence[Arrival]) -> list[Row]:
    """The results of accepted facts, by all versions that arrived before the result was final.

    A result is final once the watermark has passed the event time; forward and nearest, plus the
    tolerance; if results are retracted, plus the allowed lateness. An earlier version counts, late or
    not.
    """
    patience = settings.ahead + (settings.allowed_lateness if settings.retracts else 0)
    versions: list[tuple[list[Row], int | None]] = []
    facts: list[tuple[int, Row]] = []
    for number, ((left, right), previous_watermark) in enumerate(arrivals):
        oracle, expected = replace(settings.fresh(), watermark=previous_watermark), Expected()
        versions.append(
            ([r for r in to_rows(right) if oracle.judge_version(r, expected)], previous_watermark)
        )
        for row in to_rows(left):
            oracle.judge_fact(row, expected)
        facts += [(number, fact.row) for fact in oracle.facts]
    results = Expected()
    for arrival, fact in facts:
        oracle = settings.fresh()
        open_ = [
            rows
            for number, (rows, previous_watermark) in enumerate(versions)
            if number <= arrival
            or previous_watermark is None
            or fact[settings.time] > previous_watermark - patience
        ]
        oracle.take_in([row for rows in open_ for row in rows], Expected())
        oracle.emit(Fact(fact), results)
    return results.emitted


def _fact(dice: random.Random, when: int | None) -> Row:
    values = dice.choice(NAMES), dice.choice(NUMBERS), dice.randrange(3)
    return dict(zip(FACTS.names, (when, *values), strict=True))


def _version(dice: random.Random, when: Any, odd: int) -> Row:
    row = {"since": when(), "till": None, "name": dice.choice(NAMES)}
    row |= {"number": dice.choice(NUMBERS), "n": dice.choice(CONTENTS)}
    row |= {"seq": dice.choice(SEQUENCES), "gone": dice.choice([False, False, None, True])}
    row["_change_type"] = dice.choice(CHANGES)
    row["_tombstone"] = dice.choice(TOMBSTONES)
    if row["_tombstone"] and dice.randrange(2):
        row |= {"since": None, "seq": None, "_change_type": None}
    if row["since"] is not None and abs(row["since"]) < 2**60:
        row["till"] = dice.choice([None, row["since"], row["since"] + dice.choice([1, 5_000])])
    if odd and dice.randrange(4) == 0:
        row |= {"seq": None} if dice.randrange(2) else {"till": 0}
        row["_change_type"] = dice.choice([None, "upsert", "insert"])
    return row


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Rows with instants in microseconds as a table."""
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        dtype = pa.int64() if field.type == INSTANT else field.type
        columns.append(pa.array(values, dtype).cast(field.type))
    return pa.table(columns, schema=schema)


def spec_of(
    settings: AsofOracle,
    delay: int = 0,
    *,
    waits_for: WaitsFor = "both",
    facts: pa.Schema = FACTS,
) -> AsofSpec:
    """The core's spec of the oracle's settings."""

    def duration(micros: int | None) -> dt.timedelta | None:
        return None if micros is None else dt.timedelta(microseconds=micros)

    made = joins.asof(
        None,
        by=dict(settings.by),
        time=settings.time,
        version=settings.version,
        sequence=settings.sequence,
        until=settings.until,
        deleted=settings.deleted,
        how=settings.how,  # type: ignore[arg-type]
        tolerance=duration(settings.tolerance),
        direction=settings.direction,  # type: ignore[arg-type]
        allow_exact=settings.allow_exact,
        waits_for=waits_for,
        delay=duration(delay),
        allowed_lateness=dt.timedelta(microseconds=settings.allowed_lateness),
        stragglers=settings.stragglers,  # type: ignore[arg-type]
        late_versions=settings.late_versions,  # type: ignore[arg-type]
        too_late=settings.too_late,  # type: ignore[arg-type]
        into="status",
    )
    table = pa.schema([TABLE.field(name) for name in settings.columns])
    spec = resolve(made, (facts, table), (None, None))
    assert isinstance(spec, AsofSpec)
    return spec
