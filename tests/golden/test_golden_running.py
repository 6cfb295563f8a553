"""State of running aggregates, written once, is read for ever, or refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.testing.laws import to_rows
from streamops.windows.core.running import RunningCore
from tests.golden.reading import Format, StoredState, multiset
from tests.golden.running_states import BATCHES, FILE, MORE, SPEC, spec_of, state, table
from tests.oracles.running import RunningOracle

FORMAT = Format(RunningCore(), "windows.running")
STORED = StoredState(FILE, SPEC, state)
read, refused = partial(FORMAT.read, STORED), partial(FORMAT.refused, STORED)


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    assert FORMAT.equals_its_history(STORED).rows == 4


def test_a_stream_goes_on_from_state_of_version_1_as_if_nothing_had_happened() -> None:
    values = [("most", max), ("there", len)]
    answers: Any = {
        name: lambda rows, answer=answer, least=least: answer(
            [row["n"] for row in rows if row["n"] is not None], **least
        )
        for (name, answer), least in zip(values, [{"default": None}, {}], strict=True)
    }
    oracle = RunningOracle(SPEC.by, answers, "retract")
    for rows in BATCHES:
        oracle.step(to_rows(table(rows)), None)
    now = read()
    for rows in MORE:
        step = RunningCore().step(SPEC, now, [RunningCore().pack(SPEC, table(rows))], None)
        now = step.state
        assert multiset(to_rows(step.output)) == multiset(
            oracle.step(to_rows(table(rows)), None).emitted
        )


def test_a_state_does_not_depend_on_how_many_keys_there_may_be() -> None:
    assert read(identity=spec_of(max_keys=7).identity).rows == 4


def test_state_of_version_1_is_refused_by_another_version() -> None:
    FORMAT.refuses_another_version(STORED)


@pytest.mark.parametrize(
    "changed",
    [{"changes": "update"}, {"by": ("page",)}, {"agg": {"most": agg.min("n")}}],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
