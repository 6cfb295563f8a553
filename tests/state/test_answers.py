"""Each parameter that a state depends on may change, can be migrated, or needs history."""

from __future__ import annotations

from collections import defaultdict

from streamops.kernel.adapting import ACCEPTED, way_out
from streamops.state.operators import FORMATS
from streamops.testing import Replay
from tests.spark.test_every_operator import CASES


def parameters() -> dict[str, set[str]]:
    """The parameters of each layout."""
    layouts = {of: name for name, of in FORMATS.items()}
    found: dict[str, set[str]] = defaultdict(set)
    for case in CASES.values():
        if case.has_replay:
            schemas = case.schemas if len(case.schemas) > 1 else case.schemas[0]
            for stage in Replay(case.operator, schemas)._stages:
                step = stage.run_step
                found[layouts.get(step.core.STATE, "")] |= {*step.spec.identity}
    found.pop("")  # of the operator of a user
    return found


def test_no_parameter_is_without_an_answer() -> None:
    found = parameters()
    assert found.keys() == FORMATS.keys()
    for layout, names in found.items():
        for name in names - {*ACCEPTED.get(layout, ())}:
            remedy = way_out(layout, [name])
            assert "from history: " in remedy or "state.migrate" in remedy, (layout, name, remedy)
