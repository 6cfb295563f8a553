"""What a sink does with a delivery, for every entry in the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamops.errors import SinkError
from streamops.sinks.core.ledger import Delivery, Entry, decide

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
    decision = decide(entry, delivery, sink="s", **policy)
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
    with pytest.raises(SinkError) as error:
        decide(entry, delivery, sink="sinks.postgres('daily')")
    assert error.value.code == code
    assert error.value.where == "sinks.postgres('daily')"
    if code not in {"LEDGER_LOST", "NEW_CHECKPOINT"}:
        for choice in ("continue", "replace"):
            with pytest.raises(SinkError, match=code):
                decide(entry, delivery, sink="s", new_checkpoint=choice)
