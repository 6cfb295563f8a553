"""Latest-value joins keep the laws of a core with two inputs that do not forbid to ask for now."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given

from streamops.joins.core import enrich as latest
from streamops.kernel.columns import concat
from streamops.testing import laws
from streamops.testing.laws import Case, to_rows
from streamops.testing.laws.cases import same_rows
from streamops.testing.laws.cores import order_within_a_batch_is_irrelevant
from tests.laws.changes_strategies import tight
from tests.laws.enrich_strategies import histories

pytestmark = pytest.mark.laws

NOW = {"stream_equals_batch", "stream_equals_batch_over_accepted_rows"}
"""What is said of now depends on how the streams are cut: that is what the operator is for."""
OF_SHARDS = {"sharding_changes_nothing"}
"""What is forgotten is forgotten by the newest change of a shard."""


def keep(case: Case, without: set[str]) -> None:
    some = [law for law in laws.CORE if law.__name__ not in without]
    assert len(some) == len(laws.CORE) - len(without)
    laws.check_laws(case, some)


@given(case=histories())
def test_a_latest_value_join_keeps_the_laws_of_a_pair(case: Case) -> None:
    keep(case, NOW | OF_SHARDS)


@given(case=histories(forgets=False))
def test_while_nothing_is_forgotten_shards_change_nothing(case: Case) -> None:
    keep(case, NOW)


@given(case=histories(forgets=False))
def test_a_batch_is_answered_by_what_the_table_says_in_the_end(case: Case) -> None:
    left, right = case.pack(case.all_rows())
    found = [row for row in to_rows(latest.run(case.spec, [left, right])) if row["status"]]
    arrivals = [(batch, None) for batch in case.batches]
    same_rows(found, case.accepted(arrivals), "a batch, and the oracle")


@given(case=histories())
def test_the_order_within_a_micro_batch_does_not_matter_where_not_all_keys_have_room(
    case: Case,
) -> None:
    spec = tight(case.spec, case.seed)
    laws.check_laws(replace(case, spec=spec), [order_within_a_batch_is_irrelevant])


@given(case=histories(odd=0, forgets=False))
def test_the_copy_depends_neither_on_cuts_nor_on_arrival(case: Case) -> None:
    """Whatever came before: facts that come last are answered by all of the table."""
    _, right = case.all_rows()
    facts = concat([left for left, _ in case.batches])
    expected = latest.run(case.spec, [facts, latest.pack(case.spec, right, "right")])
    nobody = case.spec.left.schema.empty_table()
    state = latest.empty(case.spec)
    for _, changes in reversed(case.batches):
        packed = latest.pack(case.spec, changes, "right")
        state = latest.step(case.spec, state, [nobody, packed], None).state
    last = latest.step(case.spec, state, [facts, latest.pack(case.spec, right, "right")], None)
    same_rows(to_rows(concat([last.output, last.late])), to_rows(expected), "in the end")


@given(case=histories(odd=0, forgets=False))
def test_a_snapshot_that_the_state_begins_with_is_one_that_comes_with_the_first_changes(
    case: Case,
) -> None:
    spec, none = case.spec, case.empty_batch()
    before = latest.pack(spec, case.all_rows()[1], "right")
    for name, value in (("_snapshot", True), ("_change_type", "insert"), ("_unavailable", None)):
        at = before.schema.get_field_index(name)
        kind = before.schema.field(at)
        before = before.set_column(at, kind, [pa.array([value] * len(before), kind.type)])
    begun = latest.begin(spec, latest.empty(spec), before.slice(0, 3))
    begun = latest.begin(spec, begun, before.slice(3))
    left, right = case.pack(case.batches[0] if case.batches else none)
    one = latest.step(spec, begun, [left, right], None)
    other = latest.step(spec, latest.empty(spec), [left, concat([before, right])], None)
    same_rows(to_rows(one.output), to_rows(other.output), "begun, and told")
    assert one.metrics == other.metrics
    for name, rows in one.state.tables.items():
        same_rows(to_rows(rows), to_rows(other.state.tables[name]), name)
