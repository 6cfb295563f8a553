"""The number of a commit of Delta's connector decides which of two drivers writes a micro-batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from streamops.errors import SinkError
from streamops.sinks.core.delta_history import (
    application,
    find_entry,
    next_number,
    other_entries,
    recalled,
    to_text,
)
from streamops.sinks.core.ledger import Decision, Delivery, Entry, decide

ENTRY = Entry("query", 3, "run", 5, rows=2, digest=-7, former=("old",))


def commit(
    number: int, entry: Entry | None = None, sink: str = "s", **facts: Any
) -> dict[str, Any]:
    text = "of somebody" if entry is None else to_text(sink, number, entry)
    return {
        "version": number,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "userMetadata": text,
        **facts,
    }


class Log:
    """The log of a table, whose commits the connector skips if their number is not above the last one."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.commits: list[dict[str, Any]] = []
        self.written: list[int] = []

    def read(self) -> tuple[int | None, Entry | None]:
        return self.numbers.get(application("s")), find_entry(self.numbers, "s", self.commits).entry

    def write(self, number: int, decision: Decision) -> None:
        if number > self.numbers.get(application("s"), -1):
            self.numbers[application("s")] = number
            self.commits.insert(0, commit(number, decision.entry))
            self.written += [decision.entry.batch] * (decision.action == "write")


def drive(log: Log, run: str, batches: range) -> Iterator[None]:
    """Deliver micro-batches. Another driver may do something between each read and its commit."""
    for batch in batches:
        while True:
            number, entry = log.read()
            delivery = Delivery("query", run, batch, 1, batch, is_first=batch == batches[0])
            try:
                decision = decide(entry, delivery)
            except SinkError as error:
                if error.code in {"FENCED", "CHECKPOINT_BEHIND"}:
                    return  # the other one goes on
                raise
            yield
            if decision.entry == entry:
                break
            log.write(next_number(number, entry, decision), decision)
            yield
            if log.read()[1] == decision.entry:
                break


def test_each_micro_batch_is_written_once_by_two_drivers_in_any_order() -> None:
    for start, order in itertools.product((0, 1), itertools.product((0, 1), repeat=11)):
        log = Log()
        first = drive(log, "first", range(4))
        next(first), next(first)
        drivers = [first, drive(log, "second", range(start, 4))]
        for turn in order:
            next(drivers[turn], None)
        for driver in drivers:
            list(driver)
        # A driver that was fenced by one that ended is started again.
        list(drive(log, "third", range(log.written[-1], 4)))
        assert log.written == [0, 1, 2, 3], (start, order)


def test_the_number_has_the_last_micro_batch_when_the_log_does_not_have_the_entry() -> None:
    numbers = {application("s"): next_number(None, None, Decision("write", ENTRY))}
    found = find_entry(numbers, "s", [commit(9, operation="OPTIMIZE")])
    entry = recalled(found.entry, "query", 6, rows=1, digest=2)
    assert entry is not None
    assert (entry.query, entry.batch) == ("query", 5)
    assert not found.removed_by
    again = Delivery("query", "new run", 5, rows=2, digest=9, is_first=True)
    assert decide(recalled(found.entry, "query", 5, 2, 9), again).action == "skip"
    unknown = recalled(found.entry, "query", 0, 2, 9)
    assert unknown is not None
    assert unknown.query != "query", "a first micro-batch may be of another query"


def test_a_query_that_follows_another_has_a_higher_number() -> None:
    last = next_number(None, None, Decision("write", ENTRY))
    other = Decision("replace", Entry("other", 4, "run", 0, 1, 1, former=("old", "query")))
    assert next_number(last, ENTRY, other) > last
    assert next_number(next_number(last, ENTRY, other), other.entry, other) == next_number(
        last, ENTRY, other
    )


def test_commits_after_the_entry_that_remove_all_rows_are_found() -> None:
    numbers = {application("s"): 7}
    for facts, removes in (
        ({"operation": "RESTORE"}, True),
        ({"operation": "DELETE", "operationParameters": {"predicate": '["true"]'}}, True),
        ({"operation": "DELETE", "operationParameters": {"predicate": '["(k = 1)"]'}}, False),
        ({"operationParameters": {"mode": "Overwrite"}}, True),
        ({"operation": "OPTIMIZE"}, False),
    ):
        found = find_entry(
            numbers, "s", [commit(9, **facts), commit(7, ENTRY), commit(1, operation="RESTORE")]
        )
        assert found.entry == ENTRY
        assert bool(found.removed_by) == removes, facts


def test_entries_of_other_sinks_are_found() -> None:
    commits = [commit(7, ENTRY), commit(8, ENTRY, "other"), commit(2)]
    numbers = {application("s"): 7, application("other"): 8}
    assert other_entries(numbers, "s", commits) == {"other": ENTRY}
    assert other_entries({application("s"): 7}, "s", commits) == {}
