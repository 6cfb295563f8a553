"""Rules about the number and the share of late rows, and the validation of all rules."""

from __future__ import annotations

from typing import Any

import pytest

from streamops.kernel.errors import SpecError
from streamops.observe import LateRows, LateShare, PoisonedWatermark, StuckWatermark
from tests.observe.core.history import alarm_positions, alarms_of, micro_batch


def late(rows: int, of: int = 100, **more: Any) -> Any:
    metrics = {"on_time": of - rows, "stragglers": 0, "too_late": rows, "rejected": 0, "rows": of}
    return micro_batch(of, tumbling=metrics, **more)


def test_an_alarm_is_raised_when_the_limit_is_reached_and_once_per_episode() -> None:
    # The sum over three micro-batches: 4, 9, 10, 10, 9, 4, 10.
    rule = LateRows(10, batches=3)
    assert alarm_positions(
        rule, late(4), late(5), late(1), late(4), late(4), *[late(0)] * 2, late(10)
    ) == [
        2,
        7,
    ]


def test_micro_batches_without_rows_are_not_counted() -> None:
    quiet = micro_batch(0)
    assert alarm_positions(LateRows(10, batches=2), late(5), *[quiet] * 5, late(5)) == [6]


def test_counts_of_a_micro_batch_without_input_rows_are_included() -> None:
    # A downstream window receives rows when the upstream window emits its results.
    behind = micro_batch(0, hourly={"on_time": 90, "too_late": 10, "stragglers": None})
    assert alarm_positions(LateRows(10), micro_batch(5), behind) == [1]


def test_a_share_is_computed_over_all_recent_micro_batches() -> None:
    # 1 of 100; 3 of 200 are 1.5 %; 6 of 300 are 2 %.
    assert alarm_positions(LateShare(0.02, batches=3), late(1), late(2), late(3)) == [2]


def test_a_share_equal_to_the_limit_raises_an_alarm() -> None:
    assert alarm_positions(LateShare(0.07, at_least=1), late(7)) == [0]
    assert alarm_positions(LateShare(0.07, at_least=1), late(69, of=1_000)) == []


def test_a_share_of_too_few_rows_raises_no_alarm() -> None:
    assert alarm_positions(LateShare(0.1), late(99, of=99), late(1, of=1)) == [1]


def test_rejected_rows_are_part_of_the_total_and_may_be_counted() -> None:
    bad = {"on_time": 95, "stragglers": 0, "too_late": 0, "rejected": 5}
    assert alarm_positions(LateShare(0.05), micro_batch(tumbling=bad)) == []
    assert alarm_positions(LateShare(0.05, counts="rejected"), micro_batch(tumbling=bad)) == [0]


def test_rules_apply_to_the_dropped_rows_of_native_operators() -> None:
    native = {"stateOperators[0] (stateStoreSave)": {"rows": 200, "dropped": 4}}
    ((alarm,),) = alarms_of(LateShare(0.02), micro_batch(200, **native))
    assert alarm.operator == "stateOperators[0] (stateStoreSave)"
    assert alarm.numbers == "2 % of 200 rows in the last 1 micro-batch with rows: dropped 4"


def test_a_rule_may_use_any_count_of_any_operator() -> None:
    guard = {"rows": 1_000, "routed": 30, "future": 29}
    rule = LateShare(0.03, counts=["routed"])
    ((alarm,),) = alarms_of(rule, micro_batch(guard=guard, tumbling={"on_time": 1_000}))
    assert (alarm.operator, alarm.what) == ("guard", "too many rows are routed")
    assert alarm.remedy == "inspect the rows: docs/operations.md describes each metric"


def test_each_operator_has_its_own_episodes() -> None:
    def both(one: int, other: int) -> Any:
        return micro_batch(a={"too_late": one}, b={"too_late": other})

    alarms = alarms_of(LateRows(5), both(5, 0), both(5, 5), both(0, 5), both(5, 5))
    assert [[alarm.operator for alarm in raised] for raised in alarms] == [["a"], ["b"], [], ["a"]]


def test_an_alarm_shows_query_operator_numbers_rule_and_remedy() -> None:
    first = late(0, of=1_000)
    metrics = {"on_time": 1_950, "stragglers": 40, "too_late": 10, "rejected": 0}
    _, (alarm,) = alarms_of(LateShare(0.01), first, micro_batch(2_000, batch=17, tumbling=metrics))
    assert str(alarm) == (
        "[LATE_SHARE] query views, micro-batch 17: too many rows are late\n"
        "  operator: tumbling\n"
        "  numbers:  1.67 % of 3,000 rows in the last 2 micro-batches with rows: "
        "stragglers 40, too_late 10\n"
        "  rule:     observe.LateShare(share=0.01, batches=10, at_least=100, "
        "counts=('stragglers', 'too_late', 'dropped'))\n"
        "  remedy:   find out who sends them (observe.account_late on the side output); a larger "
        "delay or allowed_lateness accepts them (observe.lateness_needed estimates it)"
    )
    ((alarm,),) = alarms_of(
        LateRows(1_000, counts="stragglers"), micro_batch(w={"stragglers": 1_000})
    )
    assert alarm.numbers == "1,000 rows in the last 1 micro-batch with rows: stragglers 1,000"
    assert (alarm.query, alarm.run, alarm.batch, alarm.culprits) == ("views", "r", 0, ())


@pytest.mark.parametrize(
    ("make", "arguments", "code"),
    [
        *(
            (LateRows, {"rows": rows}, "PARAMETER_OUT_OF_RANGE")
            for rows in (0, -1, 1.5, True, None)
        ),
        *(
            (LateRows, {"rows": 1, "batches": batches}, "PARAMETER_OUT_OF_RANGE")
            for batches in (0, 10_001, 2.0, True)
        ),
        *(
            (LateRows, {"rows": 1, "counts": counts}, "PARAMETER_TYPE")
            for counts in ((), "", [1], None, ["too_late", ""])
        ),
        *(
            (LateShare, {"share": share}, "PARAMETER_OUT_OF_RANGE")
            for share in (0, 1.5, -0.1, float("nan"), True, "1 %", None)
        ),
        (LateShare, {"share": 0.1, "batches": 0}, "PARAMETER_OUT_OF_RANGE"),
        (LateShare, {"share": 0.1, "at_least": 0}, "PARAMETER_OUT_OF_RANGE"),
        (LateShare, {"share": 0.1, "counts": 1}, "PARAMETER_TYPE"),
        (LateShare, {"share": 0.1, "counts": ["too_late", "active"]}, "INVALID_PARAMETER"),
        (LateRows, {"rows": 1, "counts": "state_bytes"}, "INVALID_PARAMETER"),
        (StuckWatermark, {"batches": 2}, "PARAMETER_OUT_OF_RANGE"),
        (StuckWatermark, {"batches": "10"}, "PARAMETER_OUT_OF_RANGE"),
        (PoisonedWatermark, {"ahead": "-1 second"}, "INVALID_DURATION"),
        (PoisonedWatermark, {"ahead": "1 month"}, "INVALID_DURATION"),
        (PoisonedWatermark, {"ahead": None}, "INVALID_DURATION"),
    ],
    ids=repr,
)
def test_a_parameter_out_of_range_is_refused(
    make: Any, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(SpecError) as caught:
        make(**arguments)
    assert (caught.value.code, caught.value.where) == (code, f"observe.{make.__name__}")
    parameter, value = list(arguments.items())[-1]
    assert f"{parameter}={value!r}" in str(caught.value)


def test_errors_show_the_value_and_what_is_expected() -> None:
    with pytest.raises(SpecError) as caught:
        LateShare(5)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] observe.LateShare: `share` is not a share\n"
        "  got:       share=5\n"
        "  expected:  a number above 0, at most 1\n"
        "  fix:       share=0.01 is one row in a hundred, share=0.99 are 99 of 100 rows"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    with pytest.raises(SpecError) as caught:
        LateRows(1, counts=["forgotten", "behind"])
    assert str(caught.value) == (
        "[INVALID_PARAMETER] observe.LateRows: a gauge cannot be summed over micro-batches: behind\n"
        "  got:       counts=['forgotten', 'behind']\n"
        "  expected:  counts of rows or events, such as 'too_late' or 'forgotten'\n"
        "  fix:       read a gauge from observedMetrics; a rule adds up counts"
        "\n  see:       docs/errors.md#invalid_parameter"
    )
    with pytest.raises(SpecError) as caught:
        StuckWatermark(batches=2)
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] observe.StuckWatermark: `batches` is out of range\n"
        "  got:       batches=2\n"
        "  expected:  an integer from 3 to 10000\n"
        "  fix:       batches=10 evaluates the last ten micro-batches with rows"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


def test_rules_are_compared_by_value() -> None:
    assert LateRows(5, counts=["too_late", "too_late"]) == LateRows(5, counts="too_late")
    assert len({PoisonedWatermark("60 minutes"), PoisonedWatermark()}) == 1
