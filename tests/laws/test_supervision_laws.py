"""Laws of supervision: for every history of a query, whenever it is polled."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.observe.core import supervision
from streamops.observe.core.progress import PartitionLag, Progress, Source
from streamops.observe.core.supervision import Member, Policy

pytestmark = pytest.mark.laws

SECOND = 1_000_000
durations = st.integers(1, 300 * SECOND)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    return Policy(draw(st.integers(0, 6)), *(draw(durations) for _ in range(5)))


def running(at: int) -> Member:
    return supervision.run(supervision.start(Member("m"), at)[0], at)[0]


@given(policies(), st.integers(1, 10_000))
def test_a_wait_doubles_until_it_is_the_longest(policy: Policy, failures: int) -> None:
    wait, following = policy.wait(failures), policy.wait(failures + 1)
    assert following == min(2 * wait, policy.longest_backoff)
    assert policy.wait(1) == min(policy.backoff, policy.longest_backoff)


@given(policies(), st.lists(durations, max_size=30))
def test_restarts_between_two_successes_are_limited(policy: Policy, lives: list[int]) -> None:
    """Each life is how long a run lasts, until it fails."""
    member, at, since_success = running(0), 0, 0
    for life in lives:
        member, _ = supervision.observe(member, policy, at + life, [], is_idle=True)
        since_success = 0 if life >= policy.reset_after else since_success
        member, (event,) = supervision.fail(member, policy, at + life, OSError())
        since_success += 1
        assert event.type == ("restarting" if since_success <= policy.restarts else "failed")
        if event.type == "failed":
            assert member.status == "failed"
            break
        assert member.restart_at == at + life + policy.wait(since_success)
        at = member.restart_at
        member, _ = supervision.start(member, at)
        member, _ = supervision.run(member, at)


@given(policies(), st.lists(st.tuples(durations, st.booleans()), max_size=40))
def test_stuck_is_reported_at_the_first_check_and_once(
    policy: Policy, polls: list[tuple[int, bool]]
) -> None:
    member, at, progressed, is_stuck = running(0), 0, 0, False
    for gap, is_idle in polls:
        at += gap
        member, events = supervision.check(member, policy, at)
        due = at - progressed >= policy.stuck_after
        assert [event.type for event in events] == ["stuck"] * (due and not is_stuck)
        is_stuck |= due
        member, events = supervision.observe(member, policy, at, [], is_idle=is_idle)
        assert [event.type for event in events] == ["recovered"] * (is_idle and is_stuck)
        if is_idle:
            progressed, is_stuck = at, False


def at_most(batch: Progress, last: Progress, length: int) -> bool:
    return last.started - batch.started <= length


@given(
    durations,
    st.lists(st.tuples(durations, st.integers(0, 3)), min_size=1, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_behind_is_what_the_micro_batches_of_the_time_have_in_common(
    behind_after: int, script: list[tuple[int, int]], cuts: list[bool]
) -> None:
    """Never if the lag was zero within the time; however the micro-batches are read."""
    policy = Policy(0, 1, 1, 1, 1, behind_after)
    at, history = 0, []
    for number, (gap, lag) in enumerate(script):
        at += gap
        source = Source("kafka", 1, (PartitionLag("t", 0, lag),))
        history.append(Progress("q", "r", number, at, 1, sources=(source,)))
    member, pending, flags = running(0), [], []
    for progress, is_read in zip(history, cuts, strict=False):
        pending.append(progress)
        if is_read:
            member, _ = supervision.measure(member, policy, pending)
            pending = []
        one = running(0)
        for earlier in history[: progress.batch + 1]:
            one, _ = supervision.measure(one, policy, [earlier])
        flags.append(one.is_behind)
        assert len(one.samples) <= 23
        if one.is_behind:
            recent = [
                b for b in history[: progress.batch + 1] if at_most(b, progress, behind_after)
            ]
            assert all(batch.behind for batch in recent)
            assert progress.started - history[0].started >= behind_after
    member, _ = supervision.measure(member, policy, pending)
    assert member.is_behind == flags[-1]
