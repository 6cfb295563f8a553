"""A watermark that stands still, one that ran away, and who is to blame."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamops.observe import PoisonedWatermark, StuckWatermark
from streamops.observe.core.facts import Facts
from tests.observe.core.history import SECOND, START, micro_batch, raised, when

THREE = StuckWatermark(batches=3)


def moving(watermark: int | None, newest: int | None, **more: Any) -> Facts:
    return micro_batch(watermark=watermark, newest=newest, **more)


def test_a_watermark_that_follows_the_event_times_is_not_stuck() -> None:
    assert when(THREE, *(moving(n - 5, n) for n in range(10, 20))) == []


def test_a_watermark_that_stands_while_event_times_go_on_is_stuck() -> None:
    # The third micro-batch is the first in which it could have moved by what the second brought.
    assert when(THREE, moving(5, 10), moving(5, 11), moving(5, 12), moving(5, 13)) == [2]


def test_none_yet_is_a_watermark_that_can_be_stuck() -> None:
    stuck = [moving(None, n) for n in (10, 11, 12)]
    ((alarm,),) = [alarms for alarms in raised(THREE, *stuck) if alarms]
    assert alarm.numbers == (
        "watermark none yet through 3 micro-batches with 30 rows; "
        "newest event time 2023-11-14 22:13:32Z"
    )


def test_it_waits_where_the_event_times_stand_still_too() -> None:
    assert when(THREE, *(moving(5, 10) for _ in range(6))) == []
    assert when(THREE, *(moving(5, None) for _ in range(6))) == []
    # They go on, but not beyond what came before: older rows are no news to a watermark.
    assert when(THREE, moving(5, 30), *(moving(25, n) for n in (10, 11, 12, 13, 14))) == []
    # Nor beyond the watermark itself, which a run before this one may have brought so far.
    assert when(THREE, *(moving(25, n) for n in (10, 11, 12, 13))) == []


def test_what_the_last_micro_batch_brings_moves_the_watermark_of_the_next() -> None:
    assert when(THREE, moving(5, 10), moving(5, 10), moving(5, 11), moving(6, 12)) == []


def test_event_times_that_begin_are_event_times_that_go_on() -> None:
    assert when(THREE, moving(None, None), moving(None, 10), moving(None, 11)) == [2]


def test_every_micro_batch_must_have_rows_and_there_must_be_so_many() -> None:
    quiet = micro_batch(0, watermark=5)
    assert when(THREE, quiet, moving(5, 11), moving(5, 12)) == []
    assert when(THREE, moving(5, 11), quiet, moving(5, 12), quiet, quiet) == []
    assert when(THREE, moving(5, 11), quiet, moving(5, 12), quiet, moving(5, 12)) == [4]


def test_a_watermark_that_moves_in_a_micro_batch_without_rows_has_moved() -> None:
    told = [moving(5, 10), moving(5, 11), micro_batch(0, watermark=6), moving(6, 12), moving(7, 13)]
    assert when(THREE, *told) == []


def test_a_query_without_event_time_is_never_stuck() -> None:
    bare = Facts(query="q", run="r", batch=0, started=0, rows=5)
    assert when(THREE, *[bare] * 5) == []
    assert when(PoisonedWatermark(), *[bare] * 5) == []


def test_an_episode_ends_when_the_watermark_moves() -> None:
    stuck = [moving(5, n) for n in range(10, 14)]
    again = [moving(9, n) for n in range(14, 19)]
    assert when(THREE, *stuck, *again) == [2, 6]


def test_a_source_without_rows_is_the_culprit() -> None:
    def two(newest: int, kafka: int, files: int) -> Facts:
        return moving(5, newest, sources=(("Kafka[a]", kafka), ("Files[b]", files)))

    told = raised(THREE, two(9, 4, 9), *(two(n, 4, 0) for n in range(10, 14)))
    # In the first three it gave some; from then on it is silent, and the episode goes on.
    assert [len(alarms) for alarms in told] == [0, 0, 1, 0, 0]
    assert told[2][0].culprits == ()
    *_, (alarm,) = raised(THREE, *(two(n, 4, 0) for n in range(10, 13)))
    assert alarm.culprits == ("source Files[b]: no rows",)


def test_sources_alike_are_told_apart_by_their_number() -> None:
    def two(newest: int) -> Facts:
        return moving(-9, newest, sources=(("Files[a]", 4), ("Files[a]", 0)))

    *_, (alarm,) = raised(THREE, *map(two, range(3)))
    assert str(alarm) == (
        "[STUCK_WATERMARK] query views, micro-batch 0: "
        "the watermark stands still while event times go on\n"
        "  operator: the watermark of the query\n"
        "  numbers:  watermark 2023-11-14 22:13:11Z through 3 micro-batches with 30 rows; "
        "newest event time 2023-11-14 22:13:22Z\n"
        "  culprit:  source 1 (Files[a]): no rows\n"
        "  rule:     observe.StuckWatermark(batches=3)\n"
        "  remedy:   see why the culprit is silent or slow; Spark waits for it for ever. "
        "time.producers with an idle timeout goes on without it"
    )


def test_where_no_source_is_silent_the_remedy_says_what_else_it_may_be() -> None:
    one = [moving(-9, n, sources=(("Kafka[a]", 4),)) for n in range(3)]
    none = [moving(-9, n, sources=(("Kafka[a]", 0),)) for n in range(3)]
    changed = [moving(-9, 0, sources=(("a", 1), ("b", 1))), *one[1:]]
    for told in (one, none, changed):
        *_, (alarm,) = raised(THREE, *told)
        assert alarm.culprits == ()
        assert alarm.remedy.startswith("no source is silent, so one of the inputs")
        assert alarm.remedy.endswith(
            "After a restart, older rows or a larger delay look the same until event times are "
            "beyond those of the run before"
        )


def producers(
    newest: int | None, held_by: str | None = "d7", clock: int | None = 10, **more: Any
) -> dict[str, Any]:
    """What a clock of producers tells, of seconds after START."""

    def micros(seconds: int | None) -> int | None:
        return None if seconds is None else (START + seconds) * SECOND

    told = {"rows": 9, "held_by": held_by, "led_by": "d1"}
    return {**told, "clock_micros": micros(clock), "newest_micros": micros(newest), **more}


def test_the_producer_that_holds_the_clock_is_the_culprit() -> None:
    # Spark sees the clock of the producers, which stands; only the operator sees that others go on.
    told = [moving(5, 10, producers=producers(n)) for n in (20, 21, 21, 21)]
    alarms = raised(THREE, *told)
    assert [len(each) for each in alarms] == [0, 0, 1, 0]
    assert alarms[2][0].culprits == ("producer 'd7': the slowest clock",)
    assert alarms[2][0].numbers.endswith("30 rows; newest event time 2023-11-14 22:13:41Z")


def test_the_remedy_for_a_slow_producer_is_not_an_operator_that_is_there() -> None:
    *_, (alarm,) = raised(THREE, *(moving(5, 10, producers=producers(n)) for n in (20, 21, 21)))
    assert alarm.remedy == (
        "see why the culprit is silent or slow; time.producers forgets it when it has been silent "
        "for `idle`, by arrival. If that is too long, make `idle` shorter; if this alarm is too "
        "early, take more `batches` than micro-batches fit into `idle`"
    )
    # Spark waits for a silent source, whatever a producer does.
    both = [
        moving(5, 10, producers=producers(n), sources=(("a", 1), ("b", 0))) for n in (20, 21, 22)
    ]
    *_, (alarm,) = raised(THREE, *both)
    assert alarm.culprits == ("source b: no rows", "producer 'd7': the slowest clock")
    assert alarm.remedy.startswith("see why the culprit is silent or slow; Spark waits for it")


def test_a_producer_that_was_expected_and_never_heard_is_waited_for() -> None:
    told = [moving(None, None, producers=producers(n, clock=None)) for n in (20, 21, 22)]
    *_, (alarm,) = raised(THREE, *told)
    assert alarm.culprits == ("producer 'd7': is waited for",)


def test_a_producer_whose_clock_goes_on_is_no_culprit() -> None:
    # Another input holds the watermark. What the last brings moves the watermark of the next.
    goes = [moving(5, 10, producers=producers(20 + n, clock=10 + n)) for n in range(3)]
    *_, (alarm,) = raised(THREE, *goes)
    assert alarm.culprits == ()
    assert alarm.remedy.startswith("no source is silent")
    last = [moving(5, 10, producers=producers(20 + n, clock=10 + n // 2)) for n in range(3)]
    *_, (alarm,) = raised(THREE, *last)
    assert alarm.culprits == ("producer 'd7': the slowest clock",)
    # Where none of its rows came, it was not asked, and its clock stood.
    away = moving(5, 12, producers=producers(None, None, None, rows=None))
    *_, (alarm,) = raised(THREE, goes[0], away, moving(5, 13))
    assert alarm.culprits == ("producer 'd7': the slowest clock",)


def test_times_of_producers_are_compared_as_numbers() -> None:
    # Of different length, as in 2001 and around 1970, where text would compare otherwise.
    years = [999_999_999 - START, 1_000_000_001 - START, 1_000_000_001 - START]
    slow = [moving(None, None, producers=producers(n, clock=-START)) for n in years]
    *_, (alarm,) = raised(THREE, *slow)
    assert alarm.numbers.endswith("newest event time 2001-09-09 01:46:41Z")
    assert when(THREE, *(moving(None, None, producers=producers(n)) for n in years[::-1])) == []


def test_a_clock_that_stands_with_all_its_producers_is_not_stuck() -> None:
    same = [moving(5, 10, producers=producers(20)) for _ in range(5)]
    assert when(THREE, *same) == []
    # Nor one that nobody holds, or of which nothing is known yet.
    free = [moving(5, 10, producers=producers(n, None)) for n in range(20, 25)]
    assert when(THREE, *free) == []
    assert when(THREE, *[moving(5, 10, producers=producers(None)) for _ in range(5)]) == []
    comes = [moving(5, 10), *(moving(5, 10, producers=producers(20)) for _ in range(4))]
    assert when(THREE, *comes) == []
    # Nor one whose producers are all below a watermark that another run brought so far.
    below = [moving(30, 10, producers=producers(n)) for n in range(20, 25)]
    assert when(THREE, *below) == []


YEAR_2999 = 32_472_144_000 - START
HOUR = 3_600


def test_a_watermark_up_to_the_bound_ahead_of_the_clock_is_not_poisoned() -> None:
    rule = PoisonedWatermark()
    assert when(rule, moving(HOUR, HOUR), moving(HOUR, None), moving(None, None)) == []
    assert when(rule, moving(0, HOUR), moving(0, HOUR + 1), moving(0, HOUR)) == [1]
    assert when(rule, moving(HOUR, 0), moving(HOUR + 1, 0), moving(HOUR, 0)) == [1]
    # A clock that has come so far.
    assert when(rule, moving(HOUR + 1, HOUR + 1, started=1)) == []


def test_a_row_from_the_future_is_one_alarm_and_says_what_to_do() -> None:
    sent = moving(-5, YEAR_2999, batch=3)
    moved = micro_batch(0, watermark=YEAR_2999 - 10)
    later = [moving(YEAR_2999 - 10, n, started=n) for n in (20, 30)]
    alarms = raised(PoisonedWatermark(), moving(-9, 0), sent, moved, *later)
    assert [len(each) for each in alarms] == [0, 1, 0, 0, 0]
    assert str(alarms[1][0]) == (
        "[POISONED_WATERMARK] query views, micro-batch 3: "
        "an event time is ahead of the clock, and the watermark follows it\n"
        "  operator: the watermark of the query\n"
        "  numbers:  newest event time 2999-01-01 00:00:00Z: 356159 days after the micro-batch, "
        "which started at 2023-11-14 22:13:20Z\n"
        "  rule:     observe.PoisonedWatermark(ahead='1 hour')\n"
        "  remedy:   put time.guard before the watermark; this checkpoint keeps the watermark, so "
        "start from a new one. observe.furthest_ahead finds who sent such rows"
    )


def test_a_query_that_starts_with_a_poisoned_watermark_says_so() -> None:
    ((alarm,),) = raised(PoisonedWatermark("0 seconds"), moving(90, 30))
    assert alarm.what == "the watermark is ahead of the clock, and stays there"
    assert alarm.numbers == (
        "watermark 2023-11-14 22:14:50Z, newest event time 2023-11-14 22:13:50Z: "
        "1 minute 30 seconds after the micro-batch, which started at 2023-11-14 22:13:20Z"
    )


def test_less_than_a_second_ahead_is_said_exactly() -> None:
    half = replace(moving(None, None), newest=START * SECOND + 500_000)
    ((alarm,),) = raised(PoisonedWatermark("0 seconds"), half)
    assert ": 500 milliseconds after the micro-batch" in alarm.numbers


def test_the_producer_furthest_ahead_is_the_culprit() -> None:
    told = producers(YEAR_2999, led_by="d7")
    ((alarm,),) = raised(PoisonedWatermark(), moving(0, YEAR_2999, producers=told))
    assert alarm.operator == "the watermark of the query"
    assert alarm.culprits == ("producer 'd7': the clock furthest ahead",)


def test_who_leads_but_is_not_ahead_is_not_to_blame() -> None:
    # The one that made the clock run away is forgotten; the watermark stays.
    healthy = producers(0, None, YEAR_2999, led_by="d8")
    ((alarm,),) = raised(PoisonedWatermark(), moving(YEAR_2999, YEAR_2999, producers=healthy))
    assert alarm.culprits == ()
    assert alarm.remedy.endswith("observe.furthest_ahead finds who sent such rows")
    unknown = producers(None, None, None, led_by=None)
    ((alarm,),) = raised(PoisonedWatermark(), moving(0, YEAR_2999, producers=unknown))
    assert alarm.culprits == ()


def test_a_producer_ahead_is_told_before_the_watermark_follows_it() -> None:
    # Spark sees the clock, which the others hold.
    there = producers(HOUR, led_by="d8")
    ahead = producers(YEAR_2999, led_by="d7")
    alarms = raised(
        PoisonedWatermark(),
        moving(0, 10, producers=there),
        moving(5, 10, producers=ahead),
        moving(5, 10, producers=ahead),
        moving(5, YEAR_2999, producers=ahead),
        moving(YEAR_2999, YEAR_2999, producers=there),
    )
    assert [len(each) for each in alarms] == [0, 1, 0, 1, 0]
    assert str(alarms[1][0]) == (
        "[POISONED_WATERMARK] query views, micro-batch 0: an event time is ahead of the clock, and "
        "the watermark follows it when all other producers are silent\n"
        "  operator: producers\n"
        "  numbers:  newest event time 2999-01-01 00:00:00Z: 356159 days after the micro-batch, "
        "which started at 2023-11-14 22:13:20Z\n"
        "  culprit:  producer 'd7': the clock furthest ahead\n"
        "  rule:     observe.PoisonedWatermark(ahead='1 hour')\n"
        "  remedy:   put time.guard before time.producers; this checkpoint keeps the event time "
        "until its producer has been silent for `idle`. If all others are silent before, start "
        "from a new one"
    )
    assert alarms[3][0].operator == "the watermark of the query"
