"""Enrichment obeys the laws of a core with two inputs, except those that forbid to use the current row."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given

from streamops.joins.core import enrich as enrich
from streamops.joins.core.enrich import EnrichCore
from streamops.kernel.columns import concat
from streamops.kernel.core import State
from streamops.testing import laws
from streamops.testing.laws import Case, to_rows
from streamops.testing.laws.cases import same_rows
from streamops.testing.laws.cores import order_within_a_batch_is_irrelevant
from tests.laws.changes_strategies import tight
from tests.laws.enrich_strategies import histories

pytestmark = pytest.mark.laws

DEPEND_ON_CUTTING = {"stream_equals_batch", "stream_equals_batch_over_accepted_rows"}
"""Laws that do not hold: results depend on the micro-batches, by design."""
DEPEND_ON_SHARDS = {"sharding_changes_nothing", "rescaling_changes_nothing"}
"""Laws that do not hold: the newest change of a shard determines which tombstones are evicted."""


def keep(case: Case, without: set[str]) -> None:
    some = [law for law in laws.CORE if law.__name__ not in without]
    assert len(some) == len(laws.CORE) - len(without)
    laws.check_laws(case, some)


@given(case=histories())
def test_enrichment_obeys_the_laws(case: Case) -> None:
    keep(case, DEPEND_ON_CUTTING | DEPEND_ON_SHARDS)


@given(case=histories(forgets=False))
def test_without_eviction_sharding_changes_nothing(case: Case) -> None:
    keep(case, DEPEND_ON_CUTTING)


@given(case=histories(forgets=False))
def test_a_batch_is_joined_with_the_final_table(case: Case) -> None:
    left, right = case.pack(case.all_rows())
    found = [
        row for row in to_rows(EnrichCore().run(case.spec, [left, right]).rows) if row["status"]
    ]
    arrivals = [(batch, None) for batch in case.batches]
    same_rows(found, case.accepted(arrivals), "a batch, and the oracle")


@given(case=histories())
def test_the_order_within_a_micro_batch_does_not_matter_if_keys_exceed_the_limit(
    case: Case,
) -> None:
    spec = tight(case.spec, case.seed)
    laws.check_laws(replace(case, spec=spec), [order_within_a_batch_is_irrelevant])


@given(case=histories(odd=0, forgets=False))
def test_the_copy_depends_neither_on_cuts_nor_on_arrival(case: Case) -> None:
    """Facts that arrive last are joined with the final table, in any order of changes."""
    _, right = case.all_rows()
    facts = concat([left for left, _ in case.batches])
    expected = (
        EnrichCore().run(case.spec, [facts, EnrichCore().pack(case.spec, right, "right")]).rows
    )
    no_facts = case.spec.left.schema.empty_table()
    state = State.empty(EnrichCore().layout(case.spec))
    for _, changes in reversed(case.batches):
        packed = EnrichCore().pack(case.spec, changes, "right")
        state = EnrichCore().step(case.spec, state, [no_facts, packed], None).state
    last = EnrichCore().step(
        case.spec, state, [facts, EnrichCore().pack(case.spec, right, "right")], None
    )
    same_rows(to_rows(concat([last.output, last.late])), to_rows(expected), "in the end")


@given(case=histories(odd=0, forgets=False))
def test_an_initial_snapshot_equals_one_among_the_first_changes(
    case: Case,
) -> None:
    spec, none = case.spec, case.empty_batch()
    before = EnrichCore().pack(spec, case.all_rows()[1], "right")
    for name, value in (("_snapshot", True), ("_change_type", "insert"), ("_unavailable", None)):
        at = before.schema.get_field_index(name)
        field = before.schema.field(at)
        before = before.set_column(at, field, [pa.array([value] * len(before), field.type)])
    begun = EnrichCore().begin(spec, State.empty(EnrichCore().layout(spec)), before.slice(0, 3))
    begun = EnrichCore().begin(spec, begun, before.slice(3))
    left, right = case.pack(case.batches[0] if case.batches else none)
    one = EnrichCore().step(spec, begun, [left, right], None)
    other = EnrichCore().step(
        spec, State.empty(EnrichCore().layout(spec)), [left, concat([before, right])], None
    )
    same_rows(to_rows(one.output), to_rows(other.output), "initial snapshot, and first changes")
    assert one.metrics == other.metrics
    for name, rows in one.state.tables.items():
        same_rows(to_rows(rows), to_rows(other.state.tables[name]), name)
