"""State of running values, written once, is read for ever, or refused."""

from __future__ import annotations

from typing import Any

import pytest

from streamops import aggregates as agg
from streamops.kernel.codec import decode
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.errors import StateFormatError
from streamops.sketches.core import running
from streamops.testing.laws import rows_of
from tests.golden.running_states import BATCHES, FILE, MORE, SPEC, spec_of, state, table
from tests.golden.states import SHARDS
from tests.golden.test_golden_states import bag
from tests.oracles.running import RunningOracle


def read(**known: Any) -> State:
    said = {"layout": running.STATE, "identity": SPEC.identity, "shards": SHARDS} | known
    return State(None, decode(FILE.read_bytes(), **said, where="sketches.counted"))


def refused(**known: Any) -> StateFormatError:
    with pytest.raises(StateFormatError) as caught:
        read(**known)
    return caught.value


def test_state_of_version_1_is_the_state_that_its_history_leaves() -> None:
    found, now = read().tables["keys"], state().tables["keys"]
    assert len(found) == 4
    assert found.schema == now.schema
    assert bag(rows_of(found)) == bag(rows_of(now))
    running.check(SPEC, read())


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
        oracle.step(rows_of(table(rows)), None)
    now = read()
    for rows in MORE:
        step = running.step(SPEC, now, running.pack(SPEC, table(rows)), None)
        now = step.state
        assert bag(rows_of(step.emitted)) == bag(oracle.step(rows_of(table(rows)), None).emitted)


def test_a_state_does_not_depend_on_how_many_keys_there_may_be() -> None:
    assert read(identity=spec_of(max_keys=7).identity).rows == 4


def test_state_of_version_1_is_refused_by_another_version() -> None:
    error = refused(layout=StateFormat("sketches.running", 2))
    assert (error.code, error.got) == ("STATE_VERSION", "frame 1, sketches.running version 1")


@pytest.mark.parametrize(
    "changed",
    [{"changes": "update"}, {"by": ("page",)}, {"agg": {"most": agg.min("n")}}],
    ids=repr,
)
def test_other_parameters_are_refused_by_name(changed: dict[str, Any]) -> None:
    error = refused(identity=spec_of(**changed).identity)
    assert error.code == "STATE_PARAMETERS"
    assert next(iter(changed)) in error.what
