"""The function per key of the job against the verification, at the boundaries of its rules."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.flights.rules import duty
from examples.flights.verify_rules import duty as verified
from streamops.testing import laws, replay
from tests.examples.flights.test_verify_rules import movements

COLUMNS = ["flight_id", "tailnum", "at", "violation", "since", "departures"]
HOURS = st.integers(0, 40).map(lambda half: half / 2)
FLIGHTS = st.lists(
    st.tuples(HOURS, st.one_of(st.none(), st.integers(1, 24).map(lambda half: half / 2))),
    min_size=1,
    max_size=8,
)


@pytest.mark.laws
@given(flights=FLIGHTS)
def test_the_function_raises_the_alerts_of_the_verification(
    flights: list[tuple[float, float | None]],
) -> None:
    log = movements(*((at, None if took is None else at + took) for at, took in flights))
    rows = log["movements"].sort_values(["at", "flight_id"], ignore_index=True)
    output = [row for result in replay(duty(), [rows], flush=True) for row in result.rows]
    found = pd.DataFrame(output, columns=COLUMNS).sort_values("flight_id", ignore_index=True)
    wanted = verified(log)[COLUMNS].sort_values("flight_id", ignore_index=True)
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


@pytest.mark.laws
@given(
    batches=laws.histories(
        {
            "tailnum": st.sampled_from(["N1", "N2"]),
            "event": st.sampled_from(["arrived", "departed"]),
            "flight_id": st.integers(1, 3),
        },
        time="at",
        pace="3 hours",
    )
)
def test_the_function_satisfies_the_laws(batches: list[list[dict[str, object]]]) -> None:
    if any(batches):
        laws.check_operator(duty(), batches)


def test_an_aircraft_at_rest_is_not_stored() -> None:
    landed, other = (movements(flight)["movements"] for flight in ((0, 3), (40, 42)))
    other = other.assign(tailnum="N2")
    both, alone = (replay(duty(), batches)[-1] for batches in ([landed, other], [other]))
    assert both.state_rows == alone.state_rows
    assert replay(duty(), [landed])[-1].state_rows == alone.state_rows
