"""The names, units and samples of the exported metrics."""

from __future__ import annotations

import re

import pytest

from streamops.observe.core.instruments import INSTRUMENTS, LABELS, Instrument
from tests.observe.recorded import totals_of

BY_NAME = {instrument.prometheus_name: instrument for instrument in INSTRUMENTS}


def samples(name: str) -> list[tuple[dict[str, str], float]]:
    return [(dict(labels), value) for labels, value in BY_NAME[name].samples(totals_of("views"))]


def test_names_are_unique_and_follow_the_conventions() -> None:
    assert len(BY_NAME) == len(INSTRUMENTS) == len({i.name for i in INSTRUMENTS})
    for name, instrument in BY_NAME.items():
        assert re.fullmatch(r"streamops(_[a-z]+)+", name), name
        assert name.endswith("_total") == (instrument.type == "counter")
        assert ("_seconds" in name) == (instrument.unit == "s")
        assert ("_bytes" in name) == (instrument.unit == "By")
        assert instrument.description.endswith(".")


def test_counters_are_totals_and_gauges_are_of_the_last_micro_batch() -> None:
    assert samples("streamops_micro_batches_total") == [({"query": "views"}, 12)]
    assert samples("streamops_input_rows_total") == [({"query": "views"}, 30)]
    assert samples("streamops_query_active") == [({"query": "views"}, 1)]
    (watermark,) = samples("streamops_watermark_timestamp_seconds")
    assert watermark[1] == 1_704_067_290  # 2024-01-01 00:01:30


def test_counts_and_state_have_the_operator_as_a_label() -> None:
    assert samples("streamops_operator_too_late_total") == [
        ({"query": "views", "operator": "tumbling"}, 1)
    ]
    state = dict(
        (labels["operator"], value) for labels, value in samples("streamops_operator_state_rows")
    )
    assert state.keys() == {"tumbling", "stateOperators[0] (transformWithStateInPandasExec)"}


def test_the_phases_take_the_time_of_the_micro_batches() -> None:
    ((_, whole),) = samples("streamops_micro_batch_duration_seconds_total")
    phases = samples("streamops_phase_duration_seconds_total")
    assert {"addBatch", "queryPlanning"} <= {labels["phase"] for labels, _ in phases}
    assert 0.9 * whole < sum(value for _, value in phases) <= whole


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda instrument: instrument.name)
def test_all_samples_of_a_metric_have_the_same_labels(instrument: Instrument) -> None:
    found = [tuple(labels) for labels, _ in instrument.samples(totals_of("views", "clocks"))]
    assert len({*found}) <= 1
    assert all({*labels} <= {*LABELS} for labels in found)
