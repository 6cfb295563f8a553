"""Stuck and poisoned watermarks, and their culprits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamops.observe import PoisonedWatermark, StuckWatermark
from streamops.observe.core.progress import Progress
from tests.observe.core.history import SECOND, START, alarm_positions, alarms_of, micro_batch

THREE = StuckWatermark(batches=3)


def batch(watermark: int | None, newest: int | None, **more: Any) -> Progress:
    return micro_batch(watermark=watermark, newest=newest, **more)


def test_a_watermark_that_follows_the_event_times_is_not_stuck() -> None:
    assert alarm_positions(THREE, *(batch(n - 5, n) for n in range(10, 20))) == []


def test_a_watermark_that_does_not_advance_although_event_times_do_is_stuck() -> None:
    # Event times of the second micro-batch should have advanced the watermark of the third.
    assert alarm_positions(THREE, batch(5, 10), batch(5, 11), batch(5, 12), batch(5, 13)) == [2]


def test_a_query_without_a_first_watermark_can_be_stuck() -> None:
    stuck = [batch(None, n) for n in (10, 11, 12)]
    ((alarm,),) = [raised for raised in alarms_of(THREE, *stuck) if raised]
    assert alarm.numbers == (
        "watermark none yet in 3 micro-batches with 30 rows; newest event time 2023-11-14 22:13:32Z"
    )


def test_there_is_no_alarm_if_event_times_do_not_advance_either() -> None:
    assert alarm_positions(THREE, *(batch(5, 10) for _ in range(6))) == []
    assert alarm_positions(THREE, *(batch(5, None) for _ in range(6))) == []
    # They increase, but stay below the greatest one before.
    assert alarm_positions(THREE, batch(5, 30), *(batch(25, n) for n in (10, 11, 12, 13, 14))) == []
    # They stay below the watermark, which a previous run has advanced.
    assert alarm_positions(THREE, *(batch(25, n) for n in (10, 11, 12, 13))) == []


def test_event_times_of_the_last_micro_batch_are_ignored() -> None:
    assert alarm_positions(THREE, batch(5, 10), batch(5, 10), batch(5, 11), batch(6, 12)) == []


def test_the_first_event_times_are_an_advance() -> None:
    assert alarm_positions(THREE, batch(None, None), batch(None, 10), batch(None, 11)) == [2]


def test_the_rule_needs_enough_micro_batches_with_rows() -> None:
    quiet = micro_batch(0, watermark=5)
    assert alarm_positions(THREE, quiet, batch(5, 11), batch(5, 12)) == []
    assert alarm_positions(THREE, batch(5, 11), quiet, batch(5, 12), quiet, quiet) == []
    assert alarm_positions(THREE, batch(5, 11), quiet, batch(5, 12), quiet, batch(5, 12)) == [4]


def test_a_watermark_that_advances_in_a_micro_batch_without_rows_is_not_stuck() -> None:
    quiet = micro_batch(0, watermark=6)
    batches = [batch(5, 10), batch(5, 11), quiet, batch(6, 12), batch(7, 13)]
    assert alarm_positions(THREE, *batches) == []


def test_a_query_without_event_time_is_never_stuck() -> None:
    bare = Progress(query="q", run="r", batch=0, started=0, rows=5)
    assert alarm_positions(THREE, *[bare] * 5) == []
    assert alarm_positions(PoisonedWatermark(), *[bare] * 5) == []


def test_an_episode_ends_when_the_watermark_moves() -> None:
    stuck = [batch(5, n) for n in range(10, 14)]
    again = [batch(9, n) for n in range(14, 19)]
    assert alarm_positions(THREE, *stuck, *again) == [2, 6]


def test_a_source_without_rows_is_the_culprit() -> None:
    def two(newest: int, kafka: int, files: int) -> Progress:
        return batch(5, newest, sources=(("Kafka[a]", kafka), ("Files[b]", files)))

    alarms = alarms_of(THREE, two(9, 4, 9), *(two(n, 4, 0) for n in range(10, 14)))
    # It has rows in the first three micro-batches; then it is silent, in the same episode.
    assert [len(raised) for raised in alarms] == [0, 0, 1, 0, 0]
    assert alarms[2][0].culprits == ()
    *_, (alarm,) = alarms_of(THREE, *(two(n, 4, 0) for n in range(10, 13)))
    assert alarm.culprits == ("source Files[b]: no rows",)


def test_sources_with_equal_names_have_a_number() -> None:
    def two(newest: int) -> Progress:
        return batch(-9, newest, sources=(("Files[a]", 4), ("Files[a]", 0)))

    *_, (alarm,) = alarms_of(THREE, *map(two, range(3)))
    assert str(alarm) == (
        "[STUCK_WATERMARK] query views, micro-batch 0: "
        "the watermark does not advance although event times do\n"
        "  operator: the watermark of the query\n"
        "  numbers:  watermark 2023-11-14 22:13:11Z in 3 micro-batches with 30 rows; "
        "newest event time 2023-11-14 22:13:22Z\n"
        "  culprit:  source 1 (Files[a]): no rows\n"
        "  rule:     observe.StuckWatermark(batches=3)\n"
        "  remedy:   find out why the culprit is silent or slow; Spark waits for it without a "
        "timeout. time.producers has an idle timeout"
    )


def test_if_no_source_is_silent_the_remedy_lists_other_causes() -> None:
    one = [batch(-9, n, sources=(("Kafka[a]", 4),)) for n in range(3)]
    none = [batch(-9, n, sources=(("Kafka[a]", 0),)) for n in range(3)]
    changed = [batch(-9, 0, sources=(("a", 1), ("b", 1))), *one[1:]]
    for batches in (one, none, changed):
        *_, (alarm,) = alarms_of(THREE, *batches)
        assert alarm.culprits == ()
        assert alarm.remedy.startswith("no source is silent, so an input with its own watermark")
        assert alarm.remedy.endswith(
            "After a restart, older rows or a larger delay look the same until event times exceed "
            "those of the previous run"
        )


def producers(
    newest: int | None, held_by: str | None = "d7", clock: int | None = 10, **more: Any
) -> dict[str, Any]:
    """Metrics of time.producers. Times are seconds after START."""

    def micros(seconds: int | None) -> int | None:
        return None if seconds is None else (START + seconds) * SECOND

    metrics = {"rows": 9, "held_by": held_by, "led_by": "d1"}
    return {**metrics, "clock_micros": micros(clock), "newest_micros": micros(newest), **more}


def test_the_producer_that_holds_the_clock_is_the_culprit() -> None:
    # Spark reports the clock, which does not advance; only the operator reports newer rows.
    batches = [batch(5, 10, producers=producers(n)) for n in (20, 21, 21, 21)]
    alarms = alarms_of(THREE, *batches)
    assert [len(raised) for raised in alarms] == [0, 0, 1, 0]
    assert alarms[2][0].culprits == ("producer 'd7': the slowest clock",)
    assert alarms[2][0].numbers.endswith("30 rows; newest event time 2023-11-14 22:13:41Z")


def test_the_remedy_for_a_slow_producer_explains_the_idle_timeout() -> None:
    *_, (alarm,) = alarms_of(THREE, *(batch(5, 10, producers=producers(n)) for n in (20, 21, 21)))
    assert alarm.remedy == (
        "find out why the culprit is silent or slow; time.producers evicts it when it has been "
        "silent for `idle`, by arrival. If that is too long, use a shorter `idle`; if this alarm "
        "is too early, use more `batches` than there are micro-batches within `idle`"
    )
    # Spark waits for a silent source independently of the producers.
    both = [
        batch(5, 10, producers=producers(n), sources=(("a", 1), ("b", 0))) for n in (20, 21, 22)
    ]
    *_, (alarm,) = alarms_of(THREE, *both)
    assert alarm.culprits == ("source b: no rows", "producer 'd7': the slowest clock")
    assert alarm.remedy.startswith("find out why the culprit is silent or slow; Spark waits for it")


def test_an_expected_producer_without_rows_is_the_culprit() -> None:
    batches = [batch(None, None, producers=producers(n, clock=None)) for n in (20, 21, 22)]
    *_, (alarm,) = alarms_of(THREE, *batches)
    assert alarm.culprits == ("producer 'd7': has not sent a row yet",)


def test_a_producer_whose_clock_advances_is_not_a_culprit() -> None:
    # Another input holds the watermark. Event times of the last micro-batch are ignored.
    advancing = [batch(5, 10, producers=producers(20 + n, clock=10 + n)) for n in range(3)]
    *_, (alarm,) = alarms_of(THREE, *advancing)
    assert alarm.culprits == ()
    assert alarm.remedy.startswith("no source is silent")
    last = [batch(5, 10, producers=producers(20 + n, clock=10 + n // 2)) for n in range(3)]
    *_, (alarm,) = alarms_of(THREE, *last)
    assert alarm.culprits == ("producer 'd7': the slowest clock",)
    # Without rows the operator does not run, and its clock does not advance.
    no_rows = batch(5, 12, producers=producers(None, None, None, rows=None))
    *_, (alarm,) = alarms_of(THREE, advancing[0], no_rows, batch(5, 13))
    assert alarm.culprits == ("producer 'd7': the slowest clock",)


def test_times_of_producers_are_compared_as_numbers() -> None:
    # Numbers with 15 and 16 digits, which compare differently as text.
    years = [999_999_999 - START, 1_000_000_001 - START, 1_000_000_001 - START]
    slow = [batch(None, None, producers=producers(n, clock=-START)) for n in years]
    *_, (alarm,) = alarms_of(THREE, *slow)
    assert alarm.numbers.endswith("newest event time 2001-09-09 01:46:41Z")
    assert (
        alarm_positions(THREE, *(batch(None, None, producers=producers(n)) for n in years[::-1]))
        == []
    )


def test_a_clock_whose_producers_do_not_advance_is_not_stuck() -> None:
    same = [batch(5, 10, producers=producers(20)) for _ in range(5)]
    assert alarm_positions(THREE, *same) == []
    # No producer holds the clock, or there is no event time yet.
    free = [batch(5, 10, producers=producers(n, None)) for n in range(20, 25)]
    assert alarm_positions(THREE, *free) == []
    assert (
        alarm_positions(THREE, *[batch(5, 10, producers=producers(None)) for _ in range(5)]) == []
    )
    appears = [batch(5, 10), *(batch(5, 10, producers=producers(20)) for _ in range(4))]
    assert alarm_positions(THREE, *appears) == []
    # All producers are below a watermark that a previous run has advanced.
    below = [batch(30, 10, producers=producers(n)) for n in range(20, 25)]
    assert alarm_positions(THREE, *below) == []


YEAR_2999 = 32_472_144_000 - START
HOUR = 3_600


def test_a_watermark_exactly_at_the_limit_is_not_poisoned() -> None:
    rule = PoisonedWatermark()
    assert alarm_positions(rule, batch(HOUR, HOUR), batch(HOUR, None), batch(None, None)) == []
    assert alarm_positions(rule, batch(0, HOUR), batch(0, HOUR + 1), batch(0, HOUR)) == [1]
    assert alarm_positions(rule, batch(HOUR, 0), batch(HOUR + 1, 0), batch(HOUR, 0)) == [1]
    # The current time has reached it.
    assert alarm_positions(rule, batch(HOUR + 1, HOUR + 1, started=1)) == []


def test_a_row_from_the_future_raises_one_alarm_with_a_remedy() -> None:
    sent = batch(-5, YEAR_2999, batch=3)
    moved = micro_batch(0, watermark=YEAR_2999 - 10)
    later = [batch(YEAR_2999 - 10, n, started=n) for n in (20, 30)]
    alarms = alarms_of(PoisonedWatermark(), batch(-9, 0), sent, moved, *later)
    assert [len(raised) for raised in alarms] == [0, 1, 0, 0, 0]
    assert str(alarms[1][0]) == (
        "[POISONED_WATERMARK] query views, micro-batch 3: "
        "an event time is ahead of the current time, and advances the watermark\n"
        "  operator: the watermark of the query\n"
        "  numbers:  newest event time 2999-01-01 00:00:00Z: 356159 days after the micro-batch, "
        "which started at 2023-11-14 22:13:20Z\n"
        "  rule:     observe.PoisonedWatermark(ahead='1 hour')\n"
        "  remedy:   apply time.guard before the watermark is defined; this checkpoint contains the "
        "watermark, so start with a new one. observe.furthest_ahead finds who sent such rows"
    )


def test_a_query_that_starts_with_a_poisoned_watermark_raises_an_alarm() -> None:
    ((alarm,),) = alarms_of(PoisonedWatermark("0 seconds"), batch(90, 30))
    assert alarm.what == "the watermark is ahead of the current time, and does not go back"
    assert alarm.numbers == (
        "watermark 2023-11-14 22:14:50Z, newest event time 2023-11-14 22:13:50Z: "
        "1 minute 30 seconds after the micro-batch, which started at 2023-11-14 22:13:20Z"
    )


def test_a_distance_below_a_second_is_exact() -> None:
    half = replace(batch(None, None), newest=START * SECOND + 500_000)
    ((alarm,),) = alarms_of(PoisonedWatermark("0 seconds"), half)
    assert ": 500 milliseconds after the micro-batch" in alarm.numbers


def test_the_producer_furthest_ahead_is_the_culprit() -> None:
    metrics = producers(YEAR_2999, led_by="d7")
    ((alarm,),) = alarms_of(PoisonedWatermark(), batch(0, YEAR_2999, producers=metrics))
    assert alarm.operator == "the watermark of the query"
    assert alarm.culprits == ("producer 'd7': the newest event time",)


def test_a_leading_producer_that_is_not_ahead_is_not_a_culprit() -> None:
    # The producer that poisoned the watermark has been evicted; the watermark remains.
    healthy = producers(0, None, YEAR_2999, led_by="d8")
    ((alarm,),) = alarms_of(PoisonedWatermark(), batch(YEAR_2999, YEAR_2999, producers=healthy))
    assert alarm.culprits == ()
    assert alarm.remedy.endswith("observe.furthest_ahead finds who sent such rows")
    unknown = producers(None, None, None, led_by=None)
    ((alarm,),) = alarms_of(PoisonedWatermark(), batch(0, YEAR_2999, producers=unknown))
    assert alarm.culprits == ()


def test_a_producer_ahead_raises_an_alarm_before_the_watermark_advances() -> None:
    # Spark reports the clock, which the other producers hold.
    healthy = producers(HOUR, led_by="d8")
    ahead = producers(YEAR_2999, led_by="d7")
    alarms = alarms_of(
        PoisonedWatermark(),
        batch(0, 10, producers=healthy),
        batch(5, 10, producers=ahead),
        batch(5, 10, producers=ahead),
        batch(5, YEAR_2999, producers=ahead),
        batch(YEAR_2999, YEAR_2999, producers=healthy),
    )
    assert [len(raised) for raised in alarms] == [0, 1, 0, 1, 0]
    assert str(alarms[1][0]) == (
        "[POISONED_WATERMARK] query views, micro-batch 0: an event time is ahead of the current "
        "time, and advances the watermark when all other producers are silent\n"
        "  operator: producers\n"
        "  numbers:  newest event time 2999-01-01 00:00:00Z: 356159 days after the micro-batch, "
        "which started at 2023-11-14 22:13:20Z\n"
        "  culprit:  producer 'd7': the newest event time\n"
        "  rule:     observe.PoisonedWatermark(ahead='1 hour')\n"
        "  remedy:   apply time.guard before time.producers; this checkpoint contains the event time "
        "until its producer has been silent for `idle`. If all others are silent before that, "
        "start with a new checkpoint"
    )
    assert alarms[3][0].operator == "the watermark of the query"
