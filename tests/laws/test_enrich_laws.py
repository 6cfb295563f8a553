"""Latest-value joins keep the laws of a core with two inputs that do not forbid to ask for now."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given

from streamops.joins.core import enrich as latest
from streamops.kernel.columns import concat
from streamops.testing import laws
from streamops.testing.laws import PairCase, rows_of
from streamops.testing.laws.comparing import same_rows
from streamops.testing.laws.cores import order_within_a_batch_is_irrelevant
from tests.laws.changes_strategies import tight
from tests.laws.enrich_strategies import histories

pytestmark = pytest.mark.laws

NOW = {"stream_equals_batch", "stream_equals_batch_over_accepted_rows"}
"""What is said of now depends on how the streams are cut: that is what the operator is for."""
OF_SHARDS = {"sharding_changes_nothing"}
"""What is forgotten is forgotten by the newest change of a shard."""


def keep(case: PairCase, without: set[str]) -> None:
    some = [law for law in laws.PAIR if law.__name__ not in without]
    assert len(some) == len(laws.PAIR) - len(without)
    laws.keep_pair(case, some)


@given(case=histories())
def test_a_latest_value_join_keeps_the_laws_of_a_pair(case: PairCase) -> None:
    keep(case, NOW | OF_SHARDS)


@given(case=histories(forgets=False))
def test_while_nothing_is_forgotten_shards_change_nothing(case: PairCase) -> None:
    keep(case, NOW)


@given(case=histories(forgets=False))
def test_a_batch_is_answered_by_what_the_table_says_in_the_end(case: PairCase) -> None:
    left, right = case.packed(case.everything(), lambda rows: [rows])
    found = [row for row in rows_of(latest.run(case.spec, [left, right])) if row["status"]]
    judged = [(*batch, None) for batch in case.batches]
    same_rows(found, case.accepted(judged), "a batch, and the oracle")


@given(case=histories())
def test_the_order_within_a_micro_batch_does_not_matter_where_not_all_keys_have_room(
    case: PairCase,
) -> None:
    spec = replace(case.spec, table=tight(case.spec.table, case.seed))
    laws.keep_pair(replace(case, spec=spec), [order_within_a_batch_is_irrelevant])


@given(case=histories(odd=0, forgets=False))
def test_the_copy_depends_neither_on_cuts_nor_on_arrival(case: PairCase) -> None:
    """Whatever came before: facts that come last are answered by all of the table."""
    _, right = case.everything()
    facts = concat([left for left, _ in case.batches])
    expected = latest.run(case.spec, [facts, latest.pack(case.spec, right, "right")])
    nobody = case.spec.facts.empty_table()
    state = latest.empty(case.spec)
    for _, changes in reversed(case.batches):
        packed = latest.pack(case.spec, changes, "right")
        state = latest.step(case.spec, state, [nobody, packed], None).state
    last = latest.step(case.spec, state, [facts, latest.pack(case.spec, right, "right")], None)
    same_rows(rows_of(concat([last.output, last.late])), rows_of(expected), "in the end")


@given(case=histories(odd=0, forgets=False))
def test_a_snapshot_that_the_state_begins_with_is_one_that_comes_with_the_first_changes(
    case: PairCase,
) -> None:
    spec, none = case.spec, case.nothing()
    before = latest.pack(spec, case.everything()[1], "right")
    for name, value in (("_snapshot", True), ("_change_type", "insert"), ("_unavailable", None)):
        at = before.schema.get_field_index(name)
        kind = before.schema.field(at)
        before = before.set_column(at, kind, [pa.array([value] * len(before), kind.type)])
    begun = latest.begin(spec, latest.empty(spec), before.slice(0, 3))
    begun = latest.begin(spec, begun, before.slice(3))
    left, right = case.packed((case.batches[0] if case.batches else none), lambda rows: [rows])
    one = latest.step(spec, begun, [left, right], None)
    other = latest.step(spec, latest.empty(spec), [left, concat([before, right])], None)
    same_rows(rows_of(one.output), rows_of(other.output), "begun, and told")
    assert one.metrics == other.metrics
    for name, rows in one.state.tables.items():
        same_rows(rows_of(rows), rows_of(other.state.tables[name]), name)
