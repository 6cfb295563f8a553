"""Stored queries obey the laws of a core with two inputs, except those that the current queries exclude."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamops import search
from streamops.kernel.columns import concat
from streamops.kernel.core import State
from streamops.search.core.match import SearchCore
from streamops.testing import laws
from streamops.testing.laws import Arrival, Case, to_rows
from streamops.testing.laws.cases import same_rows
from tests.laws.asof_strategies import table_of
from tests.oracles.search import MatchOracle, Query, render
from tests.oracles.windows import Row
from tests.search.core.random_queries import DOCUMENTS, FIELDS, TEXT, document, query

pytestmark = pytest.mark.laws

QUERIES = pa.schema(
    [
        ("id", pa.string()),
        ("query", pa.string()),
        ("lsn", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
INVALID: dict[str | None, tuple[int, str]] = {
    None: (0, "the query is empty"),
    "a AND (b": (8, "the query ends too early"),
    "été~2": (0, "fuzzy search (~) is not supported: name the variants, with OR"),
}
DEPEND_ON_CUTTING = {"stream_equals_batch", "stream_equals_batch_over_accepted_rows"}
"""Laws that do not hold: results depend on the micro-batches, by design."""
DEPEND_ON_SHARDS = {"sharding_changes_nothing", "rescaling_changes_nothing"}
"""Laws that do not hold: the newest change of a shard determines which tombstones are evicted."""
NEITHER = {"sharding_changes_nothing", "metrics_count_every_row"}
"""Laws that cannot hold: documents have no key, and every shard receives all of them."""


def keep(case: Case, without: set[str]) -> None:
    some = [law for law in laws.CORE if law.__name__ not in without]
    assert len(some) == len(laws.CORE) - len(without)
    laws.check_laws(case, some)


@st.composite
def histories(draw: st.DrawFn, *, forgets: bool = True, odd: int = 2) -> Case:
    """Few queries that change often, and documents among them."""
    dice = random.Random(draw(st.integers(0, 2**32)))
    horizon = draw(st.sampled_from([0, 2, 8])) if forgets else 10**12
    late, rejected = draw(st.sampled_from([0, 3, 12])), draw(st.sampled_from(["drop", "route"]))
    operator = draw(st.sampled_from(["or", "and"]))
    trees: dict[str, Query] = {}
    now, batches = 0, []
    for _ in range(draw(st.sampled_from([1, 3, 6]))):
        changes = []
        for _ in range(dice.randrange(6)):
            now += dice.randrange(2)
            changes.append(_change(dice, trees, max(0, now - dice.randrange(late + 1)), odd))
        rows = [document(dice) for _ in range(dice.randrange(5))]
        batches.append((pa.Table.from_pylist(rows, DOCUMENTS), table_of(changes, QUERIES)))
    given_ = {"sequence": "lsn", "horizon": horizon, "rejected": rejected, "max_keys": 1_000}
    operator_ = search.match(None, text=TEXT, fields=FIELDS, default_operator=operator, **given_)
    spec = operator_.parameters.resolve((DOCUMENTS, QUERIES), carried=(None, None), shards=1)
    names = tuple(DOCUMENTS.names)
    oracle = MatchOracle(
        TEXT, trees, INVALID, names, tuple(QUERIES.names), horizon, rejected, operator, ("ts",)
    )

    def accepted(arrivals: Sequence[Arrival]) -> list[Row]:
        """The batch result: all changes are applied first."""
        left, right = (
            [row for batch, _ in arrivals for row in to_rows(batch[at])] for at in (0, 1)
        )
        return list(oracle.fresh().step(left, right, None).emitted)

    seed = draw(st.integers(0, 2**16))
    return Case(SearchCore(), spec, tuple(batches), oracle.fresh, accepted, seed=seed)


def _change(dice: random.Random, trees: dict[str, Query], lsn: int, odd: int) -> Row:
    """A change whose content depends on its id and position, except for some: these are in conflict."""
    name = dice.choice(["a", "b", "ä", "d"])
    fixed = random.Random(f"{name} {lsn} {dice.randrange(8) == 0}")
    tree = query(fixed, 2)
    text = render(tree)
    trees[text] = tree
    types = ["insert", "update_postimage", "update_postimage", "delete"]
    row: Row = {"id": name, "query": text, "lsn": lsn, "_change_type": fixed.choice(types)}
    if row["_change_type"] == "delete":
        row["query"] = fixed.choice([None, "never parsed ("])
    if dice.randrange(8) < odd:
        row |= dice.choice(
            [
                {"_change_type": None},
                {"_change_type": "update_preimage"},
                {"_change_type": "upsert"},
                {"id": None},
                {"lsn": None},
                *({"query": text} for text in INVALID),
                *({"query": text, "_change_type": "insert"} for text in INVALID),
            ]
        )
    return row


@given(case=histories())
def test_stored_queries_obey_the_laws(case: Case) -> None:
    keep(case, DEPEND_ON_CUTTING | DEPEND_ON_SHARDS | NEITHER)


@given(case=histories(forgets=False))
def test_without_eviction_the_number_of_shards_changes_nothing(case: Case) -> None:
    keep(case, DEPEND_ON_CUTTING | NEITHER)


@given(case=histories(forgets=False))
def test_a_batch_is_matched_with_the_final_queries(case: Case) -> None:
    found = to_rows(SearchCore().run(case.spec, case.pack(case.all_rows())).rows)
    found = [row for row in found if row.get("late") is None]
    same_rows(found, case.accepted([(b, None) for b in case.batches]), "a batch, and the oracle")


@given(case=histories(odd=0, forgets=False))
def test_the_queries_depend_neither_on_cuts_nor_on_arrival(case: Case) -> None:
    documents, changes = case.all_rows()
    expected = SearchCore().run(case.spec, case.pack((documents, changes))).rows
    none, state = case.empty_batch(), State.empty(SearchCore().layout(case.spec))
    for _, some in reversed(case.batches):
        state = SearchCore().step(case.spec, state, case.pack((none[0], some)), None).state
    last = SearchCore().step(case.spec, state, case.pack((documents, none[1])), None)
    found = [row for row in to_rows(expected) if row.get("late") is None]
    same_rows(to_rows(last.output), found, "in the end")


def test_a_case_has_matches_and_rejected_queries() -> None:
    """The histories are not trivial."""
    seen = {"results": 0, "rejected": 0}

    @settings(max_examples=25)
    @given(case=histories())
    def look(case: Case) -> None:
        for step in case.steps:
            seen["results"] += step.metrics.results
            seen["rejected"] += step.metrics.rejected
            assert len(concat([step.output, step.late])) >= step.metrics.results

    look()
    assert all(seen.values())
