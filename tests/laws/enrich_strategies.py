"""Histories of facts and of changes of a table: disorder, duplicates, invalid changes."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from streamops import joins
from streamops.joins.core.enrich import EnrichCore, EnrichSpec
from streamops.testing.laws import Arrival, Case, to_rows
from tests.laws.asof_strategies import table_of
from tests.laws.changes_strategies import in_own_log
from tests.oracles.enrich import EnrichOracle
from tests.oracles.windows import Row

INSTANT = pa.timestamp("us", tz="UTC")
POSITION = pa.struct([("log", pa.int64()), ("offset", pa.int64())])
FACTS = pa.schema(
    [("word", pa.string()), ("x", pa.float64()), ("n", pa.int64()), ("v", pa.string())]
)
TABLE = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("v", pa.int64()),
        ("tags", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("ts", INSTANT),
        ("seq", POSITION),
        ("_change_type", pa.string()),
        ("_snapshot", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
        ("_tombstone", pa.bool_()),
        ("rejected", pa.struct([("reason", pa.string())])),
    ]
)
VALUES = ("v", "tags", "map")
FOREVER = 10**12
NAN = float("nan")
NUMBERS = [0.0, -0.0, NAN]


@st.composite
def histories(draw: st.DrawFn, *, odd: int = 2, forgets: bool = True) -> Case:
    """Few keys, many changes, some in conflict with others, and facts among them."""
    by = draw(st.sampled_from([(("word", "k"),), (("word", "k"), ("x", "x"))]))
    time = "ts" if draw(st.booleans()) else None
    dice = random.Random(draw(st.integers(0, 2**32)))
    most = draw(st.sampled_from([2, 5, 9]))
    late = draw(st.sampled_from([0, 3, 12]))
    torn = draw(st.sampled_from([1, 2, 4]))  # average number of changes with the same position
    horizon = draw(st.sampled_from([0, 2, 8])) if forgets else FOREVER
    horizon *= 1 if time is None else 1_000
    schema = TABLE
    if time is None:
        schema = schema.set(schema.names.index("seq"), pa.field("seq", pa.int64()))
    is_moved = time is not None and draw(st.booleans())
    snapshots = draw(st.booleans())
    if not snapshots:  # changes without snapshots need no flag
        schema = schema.remove(schema.names.index("_snapshot"))
    now, batches = 0, []
    for _ in range(draw(st.sampled_from([1, 3, 6]))):
        changes = []
        for _ in range(dice.randrange(most + 1)):
            now += dice.randrange(2)
            number = max(0, now - dice.randrange(late + 1)) // torn
            odd_one, torn_one = dice.randrange(8) < odd, torn > 1 and dice.random() < 0.7
            changes.append(_change(dice, len(by) == 2, snapshots, number, odd_one, torn_one))
        if is_moved:
            changes = [in_own_log(row) for row in changes]
        if time is None:
            whole = [row["seq"] and 4 * row["seq"]["log"] + row["seq"]["offset"] for row in changes]
            changes = [{**row, "seq": seq} for row, seq in zip(changes, whole, strict=True)]
        facts = [_fact(dice) for _ in range(dice.randrange(most + 1))]
        batches.append((table_of(facts, FACTS), table_of(changes, schema)))
    how, rejected = (
        draw(st.sampled_from(["left", "inner"])),
        draw(st.sampled_from(["drop", "route"])),
    )
    spec = spec_of(schema, by=dict(by), time=time, horizon=horizon, how=how, rejected=rejected)
    oracle = EnrichOracle(
        by=by,
        sequence=("seq",),
        values=spec.names.right,
        columns=tuple(schema.names),
        horizon=horizon,
        time=time,
        how=how,
        rejected=rejected,
    )
    return case_of(spec, oracle, batches, seed=draw(st.integers(0, 2**16)))


def spec_of(table: pa.Schema, **arguments: Any) -> EnrichSpec:
    """The core's spec; the horizon in microseconds where there is a time."""
    given: dict[str, Any] = {"by": {"word": "k"}, "sequence": "seq", "time": None, "how": "left"}
    given |= {"max_keys": 1_000, "when_full": "fail", "rejected": "drop", "into": "status"}
    given |= arguments
    if given["time"] is not None:
        given["horizon"] = dt.timedelta(microseconds=given["horizon"])
    parameters = joins.enrich(None, **given).parameters
    spec: EnrichSpec = parameters.resolve((FACTS, table), carried=(None, None), shards=1)
    return spec


def case_of(spec: EnrichSpec, oracle: EnrichOracle, batches: Sequence[Any], *, seed: int) -> Case:
    """A case for the laws."""

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        """The batch result: all changes are applied first."""
        left, right = (
            [row for batch, _ in arrivals for row in to_rows(batch[at])] for at in (0, 1)
        )
        return list(oracle.fresh().step(left, right, None).emitted)

    return Case(
        core=EnrichCore(),
        spec=spec,
        batches=tuple(batches),
        oracle=oracle.fresh,
        accepted=accepted,
        seed=seed,
    )


def _fact(dice: random.Random) -> Row:
    change_types, numbers = ["a", "b", "ä", "z", None], [*NUMBERS, 7.0, None]
    return {
        "word": dice.choice(change_types),
        "x": dice.choice(numbers),
        "n": dice.randrange(3),
        "v": dice.choice(["v", None]),
    }


def _change(
    dice: random.Random, pairs: bool, snapshots: bool, position: int, odd: bool, torn: bool
) -> Row:
    """A change whose content depends on its key and position; if torn, also on the dice.

    Torn changes are in conflict with others, in any micro-batch.
    """
    key, number = dice.choice(["a", "b", "ä"]), dice.choice(NUMBERS)
    snapshot = snapshots and dice.random() < 0.15
    named = f"{key}{number + 0.0}" if pairs else key
    fixed = random.Random(f"{named}{position}{snapshot}{dice.randrange(4) if torn else ''}")
    row: Row = {"k": key, "x": number if pairs else fixed.choice([1.0, NAN, None])}
    row |= {"v": fixed.choice([1, 1, 2, None]), "tags": fixed.choice([None, ["t"], ["t", None]])}
    row |= {"map": fixed.choice([None, [("a", 1)]]), "ts": 1_000 * position}
    row |= {"seq": {"log": position // 4, "offset": position % 4}, "_snapshot": snapshot}
    change_types = ["insert", "update_postimage", "update_postimage", "delete", "delete"]
    row |= {"_change_type": "insert" if snapshot else fixed.choice(change_types)}
    lacks = fixed.choice([[], [], ["v"], ["tags", "map"], ["v", "tags", "map", "k", "ghost"], None])
    row |= {"_unavailable": lacks, "_tombstone": None, "rejected": None}
    row |= {name: None for name in set(lacks or []) & set(VALUES)}
    if odd:
        row |= dice.choice(
            [
                {"_change_type": None},
                {"_change_type": "update_preimage"},
                {"_change_type": "upsert"},
                {"k": None},
                {"seq": None},
                {"_tombstone": True, "_change_type": None, "seq": None},
                {"rejected": {"reason": "own"}},
                {"ts": None},
                {"ts": 2**60},
                {"v": 77, "_unavailable": None},  # another content: a conflict, perhaps
            ]
        )
    return row
