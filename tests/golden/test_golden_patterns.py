"""State of pattern matching, written once, is read for ever, or refused."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from streamops import patterns
from streamops.patterns.core.match import PatternCore
from streamops.testing.laws import to_rows
from tests.golden.pattern_states import (
    AFTER_FIRST,
    AFTER_INITIAL,
    BATCHES,
    FILE,
    FIRST,
    FIRST_FILE,
    GIVEN_FIRST,
    INITIAL,
    INITIAL_FILE,
    MORE,
    SPEC,
    Rows,
    spec_of,
    state,
    table,
)
from tests.golden.reading import Format, StoredState, multiset

FORMAT = Format(PatternCore(), "patterns.match")
STORED = StoredState(FILE, SPEC, state)
STORED_FIRST = StoredState(FIRST_FILE, FIRST, partial(state, FIRST))
STORED_INITIAL = StoredState(INITIAL_FILE, INITIAL, partial(state, INITIAL))
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    assert FORMAT.equals_its_history(STORED).rows == 6


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    everything = [row for rows, _ in (*BATCHES, *MORE) for row in rows]
    expected = multiset(
        to_rows(PatternCore().run(SPEC, [PatternCore().pack(SPEC, table(everything))]).rows)
    )
    assert expected, "the history has no match"
    assert multiset(continue_with(MORE, STORED)) == expected


def continue_with(batches: list[tuple[Rows, int | None]], stored: StoredState) -> list[Any]:
    """The results of further micro-batches."""
    now, found = FORMAT.read(stored), []
    for rows, watermark in batches:
        step = PatternCore().step(
            stored.spec, now, [PatternCore().pack(stored.spec, table(rows))], watermark
        )
        now = step.state
        found += to_rows(step.output)
    return found


def test_state_with_first_matches_is_the_state_that_its_history_leaves() -> None:
    assert len(FORMAT.equals_its_history(STORED_FIRST).tables["matched"]) == 1


def test_a_key_of_stored_state_does_not_match_again_within_the_horizon() -> None:
    (found,) = continue_with(AFTER_FIRST, STORED_FIRST)
    assert (found["user"], found["match_start"], found["match_end"]) == ("a", 13, 14)


def test_state_with_conditions_over_the_first_row_goes_on_as_if_nothing_had_happened() -> None:
    stored = FORMAT.equals_its_history(STORED_INITIAL).tables["rows"]
    # The row before the one at 2 was evicted, and its value is stored with that one.
    assert stored["earlier.0"].to_pylist() == [Decimal("1.50"), None, None, None, None]
    everything = [row for rows, _ in (*BATCHES, *AFTER_INITIAL) for row in rows]
    expected = to_rows(
        PatternCore().run(INITIAL, [PatternCore().pack(INITIAL, table(everything))]).rows
    )
    assert {(row["user"], row["match_end"]) for row in expected} == {("a", 11), (None, 12)}
    assert multiset(continue_with(AFTER_INITIAL, STORED_INITIAL)) == multiset(expected)


def test_the_horizon_may_change() -> None:
    longer = spec_of(**(GIVEN_FIRST | {"horizon": "1 day"}))
    assert FORMAT.read(STORED_FIRST, identity=longer.identity).rows
    assert STORED.spec.identity.keys() == FIRST.identity.keys()


def test_limits_and_side_output_may_change() -> None:
    changed = spec_of(max_rows=7, when_full="evict_oldest", timeouts="route", stragglers="route")
    assert read(identity=changed.identity).rows == 6


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    "changed",
    [
        {"pattern": "fail+ ok"},
        {"within": "21 microseconds"},
        {"skip": "past last row"},
        {"matches": "first", "horizon": "1 day", "skip": "past last row"},
        {"tie_break": "amount"},
        {"define": {"fail": "ok", "ok": "ok", "less": patterns.previous("amount") > "amount"}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
