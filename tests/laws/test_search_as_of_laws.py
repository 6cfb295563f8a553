"""Stored queries as of event time obey every law of a core with two inputs and event time."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamops import search
from streamops.search.core.asof import SearchAsofCore
from streamops.testing import laws
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.testing.laws.cases import same_rows
from tests.laws.asof_strategies import table_of
from tests.laws.test_search_laws import INVALID
from tests.oracles.search import EPOCH, MICROSECOND, Query, render
from tests.oracles.search_as_of import AsOfOracle
from tests.oracles.windows import Expected, Row
from tests.search.core import random_queries
from tests.search.core.random_queries import FIELDS, TEXT, document, query

pytestmark = pytest.mark.laws

INSTANT = pa.timestamp("us", tz="UTC")
DOCUMENTS = pa.schema([("seen", INSTANT), *random_queries.DOCUMENTS])
QUERIES = pa.schema(
    [
        ("_unavailable", pa.list_(pa.string())),
        ("since", INSTANT),
        ("id", pa.string()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
        ("query", pa.string()),
    ]
)
SECOND = 1_000_000
BEYOND_HORIZON = 10**14
STRANGE = (None, 2**60, -(2**60))
WITHOUT_KEYS = {"sharding_changes_nothing"}
"""Laws that cannot hold: documents have no key, and every shard receives all of them."""
DEPENDS_ON_SHARDS = {"rescaling_changes_nothing"}
"""Laws that do not hold: the newest evicted delete of a shard determines which changes are forgotten."""


def keep(case: Case, without: set[str] = WITHOUT_KEYS) -> None:
    some = [law for law in laws.CORE if law.__name__ not in without]
    assert len(some) == len(laws.CORE) - len(without)
    laws.check_laws(case, some)


@st.composite
def histories(draw: st.DrawFn, *, waits_for: str = "both", forgets: bool = True) -> Case:
    """Few queries that change often, and documents among them; rows come late, and at equal times."""
    dice = random.Random(draw(st.integers(0, 2**32)))
    horizon = draw(st.sampled_from([0, 3 * SECOND])) if forgets else BEYOND_HORIZON
    delay = draw(st.sampled_from([0, 1, 4]))
    rejected, operator = dice.choice(["drop", "route"]), dice.choice(["or", "and"])
    odd = draw(st.sampled_from([0, 0, 2]))
    start = draw(st.sampled_from([0, 1_700_000_000 * SECOND, -5_000_000_000 * SECOND]))
    trees: dict[str, Query] = {}
    batches = []
    for number in range(draw(st.sampled_from([5, 3, 1]))):
        now = start + 2 * number * SECOND

        def when(now: int = now) -> Any:
            if dice.randrange(40) < odd:
                return dice.choice(STRANGE)
            return now + dice.randrange(-3, 4) * SECOND + dice.choice([0, 0, 0, -1, 1])

        changes = [_change(dice, trees, when(), odd) for _ in range(dice.randrange(7))]
        documents = [
            {"seen": when(), **document(dice)} | {"ts": _near_noon(dice)}
            for _ in range(dice.randrange(6))
        ]
        batches.append((table_of_documents(documents), table_of(changes, QUERIES)))
    operator_ = search.match(
        None,
        text=TEXT,
        fields=FIELDS,
        default_operator=operator,
        as_of="seen",
        time="since",
        sequence="lsn",
        horizon=dt.timedelta(microseconds=horizon),
        waits_for=waits_for,  # type: ignore[arg-type]
        delay=f"{delay} seconds",
        rejected=rejected,
        max_keys=1_000,
    )
    schemas = (DOCUMENTS, QUERIES)
    spec = operator_.parameters.resolve(schemas, carried=(None, None), shards=1)
    oracle = AsOfOracle(
        TEXT,
        trees,
        INVALID,
        tuple(DOCUMENTS.names),
        tuple(QUERIES.names),
        horizon,
        rejected,
        operator,
        ("ts",),
    )

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        return over_accepted_rows(oracle, arrivals)

    seed = draw(st.integers(0, 2**16))
    return Case(SearchAsofCore(), spec, tuple(batches), oracle.fresh, accepted, seed=seed)


def over_accepted_rows(oracle: AsOfOracle, arrivals: Sequence[Arrival]) -> list[Row]:
    """The matches of accepted documents, with all versions that arrived while the document waited."""
    played = oracle.fresh()
    following = [mark for _, mark in arrivals[1:]] + [None]
    documents: list[tuple[int, Row]] = []
    versions: list[tuple[int | None, list[Row]]] = []
    for number, (((left, right), mark), then) in enumerate(zip(arrivals, following, strict=True)):
        played.watermark = mark
        rows = to_rows(left)
        documents += [(number, row) for row in rows if played.accepts(row, Expected())]
        played.step([], to_rows(right), then)
        versions.append((mark, played.accepted))
    found = []
    for arrival, row in documents:
        there = [
            change
            for number, (mark, changes) in enumerate(versions)
            if number <= arrival or mark is None or row["seen"] > mark
            for change in changes
        ]
        alone = oracle.fresh()
        alone.take_in(there, Expected())
        found += alone.answer(row)
    return found


def table_of_documents(rows: Sequence[Row]) -> pa.Table:
    """Documents, whose field `ts` is a datetime and whose time is a number."""
    instants = [None if row["ts"] is None else (row["ts"] - EPOCH) // MICROSECOND for row in rows]
    return table_of([r | {"ts": ts} for r, ts in zip(rows, instants, strict=True)], DOCUMENTS)


def _near_noon(dice: random.Random) -> Any:
    return dice.choice([None, random_queries.value(dice, "ts")])


def _change(dice: random.Random, trees: dict[str, Query], since: Any, odd: int) -> Row:
    """A change whose content depends on its id and position, except for some: these are in conflict."""
    name, lsn = dice.choice(["a", "b", "ä", "d"]), dice.choice([1, 1, 2])
    fixed = random.Random(f"{name} {since} {lsn} {dice.randrange(8) == 0}")
    tree = query(fixed, 2)
    text = render(tree)
    trees[text] = tree
    types = ["insert", "update_postimage", "update_postimage", "delete"]
    row: Row = {"id": name, "query": text, "lsn": lsn, "since": since}
    row |= {"_change_type": fixed.choice(types), "_unavailable": None}
    if row["_change_type"] == "delete":
        row["query"] = fixed.choice([None, "never parsed ("])
    if dice.randrange(8) < odd:
        row |= dice.choice(
            [
                {"_change_type": None},
                {"_change_type": "upsert"},
                {"id": None},
                {"lsn": None},
                {"_unavailable": ["query"], "query": None},
                *({"query": text} for text in INVALID),
                *({"query": text, "_change_type": "insert"} for text in INVALID),
            ]
        )
        if dice.randrange(6) == 0 and since not in STRANGE:
            row["_change_type"] = "update_preimage"
    return row


@given(case=histories())
def test_stored_queries_as_of_event_time_obey_the_laws(case: Case) -> None:
    keep(case, WITHOUT_KEYS | DEPENDS_ON_SHARDS)


@given(case=histories(forgets=False))
def test_without_eviction_of_deleted_queries_the_number_of_shards_changes_nothing(
    case: Case,
) -> None:
    keep(case)


@given(case=histories(waits_for="documents", forgets=False))
def test_queries_that_nobody_waits_for_obey_every_law_except_stream_equals_batch(
    case: Case,
) -> None:
    # A query that arrives before all documents can be late: its time does not advance the watermark.
    keep(case, WITHOUT_KEYS | {"stream_equals_batch"})


@given(case=histories())
def test_a_batch_has_the_queries_that_were_valid_at_the_time_of_each_document(case: Case) -> None:
    documents, changes = case.all_rows()
    assert case.oracle is not None
    expected = case.oracle().step(to_rows(documents), to_rows(changes), 1 << 62)
    found = to_rows(SearchAsofCore().run(case.spec, case.pack((documents, changes))).rows)
    matched = [row for row in found if row.get("late") is None]
    same_rows(matched, expected.emitted, "a batch, and the oracle")


def test_a_case_has_matches_late_rows_and_forgotten_queries() -> None:
    """The histories are not trivial."""
    seen = {"results": 0, "rejected": 0, "too_late": 0, "evicted": 0}

    @settings(max_examples=25)
    @given(case=histories())
    def look(case: Case) -> None:
        for step in case.steps:
            for name in ("results", "rejected", "too_late"):
                seen[name] += getattr(step.metrics, name)
            seen["evicted"] += len(step.state.tables["evicted"])

    look()
    assert all(seen.values()), seen
