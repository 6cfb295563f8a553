"""Restarts, and queries that are stuck or behind, by a clock. No Spark."""

from __future__ import annotations

import pytest

from streamops.kernel.errors import SinkError, SpecError, StateFormatError
from streamops.observe.core import supervision
from streamops.observe.core.progress import PartitionLag, Progress, Source
from streamops.observe.core.supervision import (
    Health,
    Member,
    Policy,
    SupervisionEvent,
    describe_error,
    is_lasting,
)

SECOND = 1_000_000
POLICY = Policy(
    restarts=2,
    backoff=SECOND,
    longest_backoff=60 * SECOND,
    reset_after=600 * SECOND,
    stuck_after=30 * SECOND,
    behind_after=100 * SECOND,
)


def running(at: int = 0) -> Member:
    member, _ = supervision.start(Member("m"), at)
    return supervision.run(member, at)[0]


def batch(second: int, *, lag: int | None = None, delay: int | None = None) -> Progress:
    lags = () if lag is None else (PartitionLag("t", 0, lag),)
    started = second * SECOND
    newest = None if delay is None else started - delay * SECOND
    source = Source("kafka", 1, lags)
    return Progress("q", "r", second, started, 1, newest=newest, sources=(source,))


def types(events: list[SupervisionEvent]) -> list[str]:
    return [event.type for event in events]


def facts(error: type, code: str) -> Exception:
    made: Exception = error(code, "it is wrong", got=1, expected=2, fix="mend it")
    return made


def test_a_query_that_fails_is_started_again_later_each_time_and_then_not() -> None:
    member, at, waits = running(), 0, []
    for _ in range(2):
        member, (event,) = supervision.fail(member, POLICY, at, OSError("disk"))
        assert (event.type, member.status) == ("restarting", "waiting")
        waits.append(member.restart_at - at)
        at = member.restart_at
        member, _ = supervision.start(member, at)
    assert waits == [SECOND, 2 * SECOND]
    assert member.restarts == 2
    member, (event,) = supervision.fail(member, POLICY, at, OSError("disk"))
    assert str(event) == "query m failed, restarts 2: OSError, after 2 restarts"
    assert member.status == "failed"


def test_a_query_that_ran_long_enough_has_all_its_restarts_again() -> None:
    member, _ = supervision.fail(running(), POLICY, 0, OSError())
    member, _ = supervision.start(member, SECOND)
    member, _ = supervision.run(member, SECOND)
    before, _ = supervision.observe(member, POLICY, 600 * SECOND, [], is_idle=True)
    after, _ = supervision.observe(member, POLICY, 601 * SECOND, [], is_idle=True)
    assert (before.failures, after.failures, after.restarts) == (1, 0, 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (facts(SpecError, "INVALID_PARAMETER"), True),
        (facts(StateFormatError, "STATE_SHARDS"), True),
        (facts(SinkError, "TARGET_COLUMNS"), True),
        (facts(SinkError, "TARGET_UNAVAILABLE"), False),
        (TypeError("start() takes 1 argument"), True),
        (OSError("no route to host"), False),
        (RuntimeError("x streamops.errors.SinkError: [FENCED] sinks.postgres: no"), True),
        (RuntimeError("x streamops.kernel.errors.SinkError: [TARGET_UNAVAILABLE] no"), False),
        (RuntimeError("pyspark.errors.exceptions.captured.AnalysisException: [X]"), True),
        (RuntimeError("org.apache.spark.sql.AnalysisException: [X]"), True),
        (RuntimeError("a row says AnalysisException and [FENCED]"), False),
    ],
)
def test_an_error_that_a_restart_cannot_mend_is_known(error: Exception, expected: bool) -> None:
    assert is_lasting(error) is expected
    member, (event,) = supervision.fail(running(), POLICY, 0, error)
    assert (member.status == "failed") is expected
    assert event.exception is error


def test_an_event_has_no_message_of_an_error() -> None:
    error = RuntimeError("row secret, streamops.errors.SinkError: [FENCED] secret")
    _, (event,) = supervision.fail(running(), POLICY, 0, error)
    assert "secret" not in str(event) + repr(event)
    assert describe_error(error) == "RuntimeError FENCED"
    assert describe_error(facts(SinkError, "FENCED")) == "SinkError FENCED"


@pytest.mark.parametrize("status", ["starting", "running"])
def test_a_query_without_progress_is_stuck_once_and_recovers(status: str) -> None:
    member = running() if status == "running" else supervision.start(Member("m"), 0)[0]
    member, events = supervision.check(member, POLICY, 30 * SECOND - 1)
    assert events == []
    member, (event,) = supervision.check(member, POLICY, 30 * SECOND)
    assert str(event) == f"query m stuck, restarts 0: {status}, no progress for 30.0 s"
    assert supervision.check(member, POLICY, 99 * SECOND)[1] == []
    assert not Health((member,)).is_live
    member, events = supervision.observe(member, POLICY, 99 * SECOND, [batch(99)], is_idle=False)
    assert types(events) == ["recovered"]
    assert (member.batch, Health((member,)).is_live) == (99, True)


def test_neither_an_idle_query_nor_one_that_waits_for_its_restart_is_stuck() -> None:
    idle, _ = supervision.observe(running(), POLICY, 29 * SECOND, [], is_idle=True)
    assert supervision.check(idle, POLICY, 58 * SECOND)[1] == []
    waiting, _ = supervision.fail(running(), POLICY, 0, OSError())
    assert supervision.check(waiting, POLICY, 500 * SECOND)[1] == []


def measured(progress: list[Progress]) -> list[tuple[int, str]]:
    member, found = running(), []
    for one in progress:
        member, events = supervision.measure(member, POLICY, [one])
        found += [(one.started // SECOND, event.type) for event in events]
    return found


def test_a_query_whose_lag_does_not_shrink_is_behind() -> None:
    assert measured([batch(s, lag=50) for s in range(0, 201, 10)]) == [(100, "behind")]
    assert measured([batch(s, lag=500 - s) for s in range(0, 201, 10)]) == []
    touching_zero = [batch(s, lag=0 if s == 50 else 50 + s) for s in range(0, 141, 10)]
    assert measured(touching_zero) == []


def test_a_query_that_read_its_source_to_the_end_has_caught_up() -> None:
    lags = [50] * 11 + [0]
    script = [batch(10 * i, lag=lag) for i, lag in enumerate(lags)]
    assert measured(script) == [(100, "behind"), (110, "caught_up")]


def test_a_query_whose_event_times_advance_too_slowly_is_behind() -> None:
    assert measured([batch(s, delay=s // 2) for s in range(0, 201, 10)]) == [(100, "behind")]
    assert measured([batch(s, delay=s // 3) for s in range(0, 201, 10)]) == []
    assert measured([batch(s) for s in range(0, 201, 10)]) == []


def test_a_job_is_ready_while_all_queries_run() -> None:
    ended, _ = supervision.end(running(), 0, "ended")
    waiting, _ = supervision.fail(running(), POLICY, 0, OSError())
    failed, _ = supervision.give_up(running(), 0, "x")
    assert Health((running(), ended)).is_ready
    assert not Health((running(), ended), is_checked=False).is_live
    job = Health((running(), waiting))
    assert (job.is_live, job.is_ready) == (True, False)
    job = Health((running(), failed))
    assert (job.is_live, job.is_ready) == (False, False)
    assert job.to_dict()["m"]["status"] == "failed"
