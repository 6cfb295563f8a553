"""What a sink does with a delivery, for every entry in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from streamops.errors import SinkError
from streamops.kernel.errors import located
from streamops.sinks.core.ledger import Delivery, Entry, Location, decide
from streamops.sinks.core.net import digest

ENTRY = Entry("query", 3, "run", 7, rows=10, digest=99)
NEXT = Delivery("query", "run", 8, rows=5, digest=1, is_first=False)
AGAIN = Delivery("query", "run", 7, rows=10, digest=99, is_first=False)
FIRST = {"run": "new run", "is_first": True}


@pytest.mark.parametrize(
    ("entry", "delivery", "policy", "action", "after"),
    [
        (None, replace(NEXT, batch=0), {}, "write", {"generation": 1, "batch": 0}),
        (None, NEXT, {"new_checkpoint": "continue"}, "write", {"generation": 1, "batch": 8}),
        (ENTRY, NEXT, {}, "write", {"generation": 3, "batch": 8, "rows": 5, "digest": 1}),
        (ENTRY, replace(NEXT, **FIRST), {}, "write", {"generation": 4, "run": "new run"}),
        (ENTRY, AGAIN, {}, "skip", {"generation": 3, "batch": 7}),
        (ENTRY, replace(AGAIN, **FIRST), {}, "skip", {"generation": 4, "run": "new run"}),
        (
            ENTRY,
            replace(AGAIN, digest=98, **FIRST),
            {"repeated": "skip"},
            "skip",
            {"rows": 10, "digest": 99},
        ),
        (
            ENTRY,
            replace(NEXT, query="other", batch=0, **FIRST),
            {"new_checkpoint": "continue"},
            "write",
            {"query": "other", "generation": 4, "batch": 0, "former": ("query",)},
        ),
        (
            replace(ENTRY, former=("first",)),
            replace(NEXT, query="other", batch=0, **FIRST),
            {"new_checkpoint": "replace"},
            "replace",
            {"query": "other", "generation": 4, "batch": 0, "former": ("first", "query")},
        ),
    ],
)
def test_accepted(
    entry: Entry | None, delivery: Delivery, policy: Any, action: str, after: dict[str, Any]
) -> None:
    decision = decide(entry, delivery, **policy)
    assert decision.action == action
    assert {name: getattr(decision.entry, name) for name in after} == after


@pytest.mark.parametrize(
    ("entry", "delivery", "code"),
    [
        (None, NEXT, "LEDGER_LOST"),
        (ENTRY, replace(NEXT, run="old run"), "FENCED"),
        (ENTRY, replace(AGAIN, run="old run"), "FENCED"),
        (ENTRY, replace(NEXT, batch=3, run="old run"), "FENCED"),
        (ENTRY, replace(NEXT, batch=9, **FIRST), "BATCH_GAP"),
        (ENTRY, replace(NEXT, batch=9), "BATCH_GAP"),
        (ENTRY, replace(NEXT, batch=6, **FIRST), "CHECKPOINT_BEHIND"),
        (ENTRY, replace(AGAIN, digest=98, **FIRST), "BATCH_DIFFERS"),
        (ENTRY, replace(AGAIN, rows=11, **FIRST), "BATCH_DIFFERS"),
        (ENTRY, replace(NEXT, query="other", batch=0, **FIRST), "NEW_CHECKPOINT"),
        # The query whose place another one took must not come back, whatever it may do at its start.
        (ENTRY, replace(NEXT, query="other", **FIRST), "FENCED"),
        (ENTRY, replace(NEXT, query="other", batch=0), "FENCED"),
        (
            replace(ENTRY, former=("other",)),
            replace(NEXT, query="other", batch=0, **FIRST),
            "FENCED",
        ),
    ],
)
def test_refused(entry: Entry | None, delivery: Delivery, code: str) -> None:
    with pytest.raises(SinkError) as error, located("sinks.postgres('daily')"):
        decide(entry, delivery)
    assert error.value.code == code
    assert error.value.where == "sinks.postgres('daily')"
    if code not in {"LEDGER_LOST", "NEW_CHECKPOINT"}:
        for choice in ("continue", "replace"):
            with pytest.raises(SinkError, match=code):
                decide(entry, delivery, new_checkpoint=choice)


HERE = Location("s.t", "1")
ELSEWHERE, AGAIN_HERE, RENAMED, DROPPED = (
    Location("s.u", "2"),
    Location("s.t", "2"),
    Location("s.u", "1"),
    Location("s.t", ""),
)
EMPTIED = replace(HERE, is_empty=True)
ANEW = replace(NEXT, query="other", batch=0, **FIRST)


@pytest.mark.parametrize(
    ("location", "delivery", "policy", "outcome"),
    [
        (HERE, NEXT, "refuse", "write"),
        (RENAMED, NEXT, "refuse", "write"),
        (HERE, ANEW, "replace", "replace"),
        *((ELSEWHERE, NEXT, policy, "LEDGER_OTHER_TARGET") for policy in ("refuse", "continue")),
        *((ELSEWHERE, ANEW, policy, "LEDGER_OTHER_TARGET") for policy in ("refuse", "replace")),
        (Location("s.u", ""), NEXT, "refuse", "LEDGER_OTHER_TARGET"),
        *(
            (location, delivery, policy, outcome)
            for location in (AGAIN_HERE, DROPPED, EMPTIED)
            for delivery, policy, outcome in (
                (NEXT, "refuse", "TARGET_RECREATED"),
                (NEXT, "continue", "write"),
                (NEXT, "replace", "TARGET_RECREATED"),  # the micro-batches before do not come again
                (AGAIN, "refuse", "TARGET_RECREATED"),
                (AGAIN, "continue", "skip"),
                (ANEW, "refuse", "TARGET_RECREATED"),
                (ANEW, "continue", "write"),
                (ANEW, "replace", "replace"),
            )
        ),
    ],
)
def test_an_entry_belongs_to_one_target(
    location: Location, delivery: Delivery, policy: Any, outcome: str
) -> None:
    def decided() -> str:
        entry = ENTRY.at(HERE)
        given = {"location": location, "new_checkpoint": policy}
        decision = decide(entry, delivery, **given)  # type: ignore[arg-type]
        return decision.action

    if outcome.islower():
        assert decided() == outcome
    else:
        with pytest.raises(SinkError) as error:
            decided()
        assert error.value.code == outcome


def test_a_target_that_lost_no_rows_may_be_empty() -> None:
    entry = replace(ENTRY.at(HERE), rows=0)
    assert decide(entry, NEXT, location=EMPTIED).action == "write"


def test_other_entries_of_the_target() -> None:
    first = replace(NEXT, batch=0, **FIRST)
    others = {"old name": replace(ENTRY.at(HERE), batch=0)}
    with pytest.raises(SinkError, match="LEDGER_OTHER_NAME"):
        decide(None, first, location=HERE, others=others)
    for allowed in (
        decide(None, first, location=HERE, others=others, new_checkpoint="continue"),
        decide(None, replace(first, run="run"), location=HERE, others=others),
        decide(None, replace(first, query="other"), location=HERE, others=others),
    ):
        assert allowed.action == "write"
    with pytest.raises(SinkError, match="TARGET_SHARED"):
        decide(ENTRY.at(HERE), ANEW, location=HERE, others=others, new_checkpoint="replace")


def test_an_entry_of_an_earlier_version_is_of_the_same_rows() -> None:
    rows = pa.table({"a": [1, None], "b": pa.array([[1], [2, None]])})
    found, former = digest(rows)
    assert found != former
    again = replace(AGAIN, rows=2, digest=found, former_digest=former, **FIRST)
    assert decide(replace(ENTRY, rows=2, digest=former), again).action == "skip"
    # With the digest of this version, other rows are refused that the former one takes for the same.
    moved = pa.table({"a": [1, None], "b": pa.array([[1], [None, 2]])})
    assert digest(moved)[1] == former
    other = replace(again, digest=digest(moved)[0])
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        decide(replace(ENTRY, rows=2, digest=found), other)
