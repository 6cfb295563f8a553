"""The fold of an event log: from the beginning, from snapshots, and of events of two schemas."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sourcing
from streamops.errors import FunctionError, SchemaError, SpecError
from streamops.kernel.errors import located
from streamops.testing import laws, replay
from tests.sourcing import wallets
from tests.sourcing.carts import COMMAND, STATE, VALUES, carts, fold_cart
from tests.sourcing.folding import Rows, fold_log

LOG = pa.schema(
    [("cart", pa.string()), ("version", pa.int64()), ("type", pa.string()), ("item", pa.string())]
)


def event(version: int | None, type_: str, item: str = "pen", cart: str = "c") -> dict[str, Any]:
    return {"cart": cart, "version": version, "type": type_, "item": item}


def folded(
    log: Rows, snapshot: Rows | None = None, *, schema: pa.Schema = LOG, **given: Any
) -> Rows:
    """The fold of the events of carts, or with other parameters, in a batch."""
    parameters = {"evolve": fold_cart, "by": "cart", **STATE, **given}
    return fold_log(sourcing.fold(**parameters), log, schema, snapshot)


CART = [event(1, "added"), event(2, "added", "ink"), event(3, "removed"), event(4, "added")]


def test_a_log_in_any_order_and_delivered_twice_is_folded() -> None:
    expected = [{"cart": "c", "version": 4, "items": {"pen": 1, "ink": 1}}]
    assert folded(CART) == folded([*CART[::-1], CART[2]]) == expected
    assert folded([]) == []


def test_a_list_of_an_event_that_is_changed_in_place_makes_no_other_event() -> None:
    def evolve(state: Any, event: Any) -> Any:
        event.x.sort()
        return state._replace(items={"n": len(event.x)})

    schema = pa.schema(
        [("cart", pa.string()), ("version", pa.int64()), ("x", pa.list_(pa.int64()))]
    )
    log = [{"cart": "c", "version": 1, "x": [2, 1]}] * 2
    (row,) = folded(log, schema=schema, evolve=evolve)
    assert row["items"] == {"n": 2}


@pytest.mark.laws
@given(batches=laws.histories(VALUES, time="ts"), seed=st.integers(0, 99), part=st.integers(0, 9))
def test_a_fold_equals_the_states_of_decisions_and_a_fold_from_any_snapshot(
    batches: list[Any], seed: int, part: int
) -> None:
    results = replay(carts(delay="1 hour"), batches, schema=COMMAND, flush=True)
    rows = [row for result in results for row in result.rows if row["rejection"] is None]
    log = [{name: row[name] for name in LOG.names} for row in rows]
    dice = random.Random(seed)
    dice.shuffle(log)
    early = [row for row in log if row["version"] <= part]
    later = [row for row in log if row["version"] > part or dice.random() < 0.5]
    assert folded(later, folded(early)) == folded(log)
    by_hand: dict[str, Any] = {}
    for row in sorted(log, key=lambda row: row["version"]):
        before = by_hand.get(row["cart"], _State({}))
        by_hand[row["cart"]] = fold_cart(before, SimpleNamespace(**row))
    assert {row["cart"]: row["items"] for row in folded(log)} == {
        cart: state.items for cart, state in by_hand.items()
    }


class _State:
    def __init__(self, items: dict[str, int]) -> None:
        self.items = items

    def _replace(self, items: dict[str, int]) -> _State:
        return _State(items)


def test_events_up_to_the_version_of_the_snapshot_are_ignored() -> None:
    snapshot = [{"cart": "c", "version": 2, "items": {"pen": 5}}]
    assert folded(CART[1:3], snapshot) == [{"cart": "c", "version": 3, "items": {"pen": 0}}]
    assert folded(CART[:2], snapshot) == snapshot
    assert folded([event(2, "added")], snapshot) == snapshot


def test_entities_of_the_snapshot_without_events_stay() -> None:
    snapshot = [{"cart": "a", "version": 7, "items": {"pen": 2}}]
    assert folded(CART, snapshot) == [*snapshot, *folded(CART)]


def test_an_event_schema_that_changes_half_way_through_the_log_is_upcast() -> None:
    old = [{"k": "w", "version": n, "cents": 150} for n in (1, 2)]
    new = [{"k": "w", "version": 3, "amount": 2.0, "currency": "USD"}]
    given: dict[str, Any] = {"evolve": wallets.add, "by": "k", "schema": wallets.BOTH}
    given |= wallets.STATE
    (row,) = folded(old + new, upcast=wallets.upcast, **given)
    assert row["totals"] == {"EUR": 3.0, "USD": 2.0}
    with pytest.raises(FunctionError, match=r"TypeError at .*in add"):
        folded(old + new, **given)


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ([event(2, "added")], "missing"),
        ([event(1, "added"), event(3, "added")], "missing"),
        ([event(1, "added"), event(1, "added", "ink")], "one version"),
        ([event(None, "added")], "no version"),
    ],
)
def test_a_log_that_is_not_complete_is_refused(log: Rows, what: str) -> None:
    with pytest.raises(SchemaError, match=what) as caught, located("sourcing.fold"):
        folded(log)
    assert caught.value.code == "MALFORMED_LOG"


def test_a_function_that_returns_no_state_is_refused() -> None:
    with pytest.raises(FunctionError, match="FUNCTION_RESULT"):
        folded(CART, evolve=lambda state, event: None)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"evolve": None}, "PARAMETER_TYPE"),
        ({"upcast": 5}, "PARAMETER_TYPE"),
        ({"version": 5}, "PARAMETER_TYPE"),
        ({"state": ""}, "INVALID_PARAMETER"),
        ({"initial": {"x": 1}}, "INVALID_PARAMETER"),
        ({"initial": {"items": 5}}, "INVALID_PARAMETER"),
        ({"state": "from string"}, "INVALID_PARAMETER"),
        ({"state": "version int"}, "NAME_TAKEN"),
        ({"snapshot": "table"}, "NOT_A_FRAME"),
    ],
    ids=repr,
)
def test_contradictions_are_refused(changed: dict[str, Any], code: str) -> None:
    given: dict[str, Any] = {"evolve": fold_cart, "by": "cart", "state": "items map<string,int>"}
    given |= changed
    with pytest.raises(SpecError) as caught:
        sourcing.fold(given.pop("evolve"), **given)
    assert caught.value.code == code


def test_a_script_of_micro_batches_is_refused() -> None:
    operator = sourcing.fold(fold_cart, by="cart", state="items map<string,int>")
    with pytest.raises(SpecError, match="NOT_REPLAYABLE"):
        replay(operator, [CART], schema=LOG)
