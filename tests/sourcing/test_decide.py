"""Commands to events: a shopping cart, seats, repeated commands, versions, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import sourcing
from streamops.errors import FunctionError, SpecError
from streamops.testing import at, laws, replay

TS = pa.timestamp("us", tz="UTC")
COMMAND = pa.schema(
    [
        ("cart", pa.string()),
        ("ts", TS),
        ("id", pa.int64()),
        ("op", pa.string()),
        ("sku", pa.string()),
        ("version", pa.int64()),
    ]
)


def change_cart(state: Any, command: Any) -> Any:
    """Removed is not the same as never added."""
    if command.op == "add":
        return [("added", command.sku)]
    if command.sku not in state.items:
        return sourcing.Rejected("never added")
    if state.items[command.sku] == 0:
        return sourcing.Rejected("already removed")
    return [{"type": "removed", "item": command.sku}]


def fold_cart(state: Any, event: Any) -> Any:
    count = state.items.get(event.item, 0)
    items = {**state.items, event.item: count + 1 if event.type == "added" else 0}
    return state._replace(items=items)


def carts(**changed: Any) -> Any:
    given: dict[str, Any] = {
        "by": "cart",
        "command_id": "id",
        "time": "ts",
        "state": "items map<string,int>",
        "initial": {"items": {}},
        "event": "type string, item string",
        "delay": "0 seconds",
        "expected_version": "version",
    }
    return sourcing.decide(change_cart, fold_cart, **{**given, **changed})


def command(id_: int | None, op: str, sku: str = "pen", *, cart: str = "c", **more: Any) -> Any:
    second = more.pop("second", id_ or 0)
    return {
        "cart": cart,
        "ts": at(second),
        "id": id_,
        "op": op,
        "sku": sku,
        "version": None,
        **more,
    }


def decided(script: Any, operator: Any = None, **options: Any) -> list[tuple[Any, ...]]:
    results = replay(operator or carts(), script, schema=COMMAND, flush=True, **options)
    names = ("command_id", "version", "type", "rejection")
    rows = [row for result in results for row in result.rows]
    return [tuple(row[name] for name in names) for row in rows]


def test_removed_is_not_the_same_as_never_added() -> None:
    script = [
        [command(1, "remove"), command(2, "add"), command(3, "remove")],
        [command(4, "remove"), command(5, "remove", "ink"), command(6, "add")],
    ]
    assert decided(script, restart=True) == [
        ("1", 0, None, "never added"),
        ("2", 1, "added", None),
        ("3", 2, "removed", None),
        ("4", 2, None, "already removed"),
        ("5", 2, None, "never added"),
        ("6", 3, "added", None),
    ]


def test_a_repeated_command_yields_nothing_and_is_counted() -> None:
    script = [[command(1, "add"), command(1, "add", second=2)], [command(1, "add", second=3)]]
    results = replay(carts(), [*script, [command(9, "add", cart="d", second=60)]], schema=COMMAND)
    rows = [row["command_id"] for result in results for row in result.rows]
    assert sorted(rows) == ["1", "9"]
    assert sum(result.counts.ignored for result in results if result.counts) == 2  # type: ignore[attr-defined]


def test_only_the_last_command_ids_are_remembered() -> None:
    again = [command(1, "add"), command(2, "add"), command(1, "add", second=3)]
    assert [row[1] for row in decided([again], carts(max_ids=2))] == [1, 2]
    assert [row[1] for row in decided([again], carts(max_ids=1))] == [1, 2, 3]


def test_a_rejected_command_is_not_decided_again() -> None:
    script = [[command(1, "remove"), command(2, "add"), command(1, "remove", second=3)]]
    assert [row[0] for row in decided(script)] == ["1", "2"]
    script = [
        [command(1, "add", version=1), command(2, "add"), command(1, "add", second=3, version=1)]
    ]
    assert [row[0] for row in decided(script)] == ["1", "2"]


def test_another_version_than_the_expected_one_is_a_rejection() -> None:
    script = [[command(n, "add", version=seen) for n, seen in ((1, 0), (2, 0), (3, 1), (4, None))]]
    assert decided(script) == [
        ("1", 1, "added", None),
        ("2", 1, None, "version_conflict"),
        ("3", 2, "added", None),
        ("4", 3, "added", None),
    ]


def test_a_command_without_an_id_is_rejected() -> None:
    assert decided([[command(None, "add")]]) == [(None, 0, None, "null_command_id")]


def reserve(state: Any, command: Any) -> Any:
    if state.holder is not None:
        return sourcing.Rejected(f"taken by {state.holder}")
    return [(command.sku,), (command.sku,)]


def hold(state: Any, event: Any) -> Any:
    return state._replace(holder=event.user)


def test_of_two_people_who_reserve_one_seat_the_first_by_event_time_has_it() -> None:
    seats = sourcing.decide(
        reserve,
        hold,
        by="cart",
        command_id="id",
        time="ts",
        state="holder string",
        event="user string",
        delay="5 seconds",
    )
    eve, ann = command(1, "", "eve", second=3), command(2, "", "ann", second=2)
    for script in ([[eve, ann]], [[eve], [ann]], [[ann], [eve]]):
        results = replay(seats, script, schema=COMMAND, flush=True)
        rows = [row for result in results for row in result.rows]
        assert [(r["command_id"], r["version"], r["user"], r["rejection"]) for r in rows] == [
            ("2", 1, "ann", None),
            ("2", 2, "ann", None),
            ("1", 2, None, "taken by ann"),
        ]


def test_commands_at_one_instant_are_decided_in_the_order_of_their_ids() -> None:
    script = [[command(2, "remove", second=0), command(1, "add", second=0)]]
    assert [row[0] for row in decided(script)] == ["1", "2"]
    script = [[command(2, "add", second=0), command(1, "remove", second=0)]]
    assert [row[2] for row in decided(script, carts(order_by="op"))] == ["added", "removed"]


VALUES = {
    "cart": st.sampled_from("cd"),
    "id": st.integers(0, 6),
    "op": st.sampled_from(["add", "remove"]),
    "sku": st.sampled_from(["pen", "ink"]),
    "version": st.sampled_from([None, None, 0, 1, 2]),
}


@pytest.mark.laws
@given(batches=laws.histories(VALUES, time="ts"))
def test_decisions_keep_the_laws(batches: list[Any]) -> None:
    laws.check_operator(carts(delay="10 seconds"), batches, schema=COMMAND)


@pytest.mark.laws
@given(batches=laws.histories(VALUES, time="ts"))
def test_the_state_is_the_fold_of_the_events(batches: list[Any]) -> None:
    operator = carts(delay="1 hour")
    results = replay(operator, batches, schema=COMMAND, flush=True)
    rows = sorted(
        (row for result in results for row in result.rows), key=lambda r: (r["cart"], r["version"])
    )
    commands: Any = operator.parameters.function
    for cart in "cd":
        events = [r for r in rows if r["cart"] == cart and r["rejection"] is None]
        assert [event["version"] for event in events] == list(range(1, len(events) + 1))
        items: dict[str, int] = {}
        for event in events:
            added = event["type"] == "added"
            assert added or items[event["item"]] > 0
            items[event["item"]] = items.get(event["item"], 0) + 1 if added else 0
    assert commands.command_id == "id"


@pytest.mark.parametrize(
    ("decide", "evolve"),
    [
        (lambda state, command: None, fold_cart),
        (lambda state, command: ("added", "pen"), fold_cart),
        (lambda state, command: [("added",)], fold_cart),
        (lambda state, command: [{"kinds": 1}], fold_cart),
        (lambda state, command: [("added", "pen")], lambda state, event: None),
    ],
)
def test_what_is_not_an_event_or_a_state_is_an_error(decide: Any, evolve: Any) -> None:
    operator = sourcing.decide(
        decide,
        evolve,
        by="cart",
        command_id="id",
        time="ts",
        state="items map<string,int>",
        event="type string, item string",
        delay="0 seconds",
    )
    with pytest.raises(FunctionError) as caught:
        decided([[command(1, "add")]], operator)
    assert caught.value.code == "OUTPUT_ROW"
    assert caught.value.where == "sourcing.decide"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"state": "version int", "initial": {}}, "NAME_TAKEN"),
        ({"event": "rejection string"}, "NAME_TAKEN"),
        ({"command_id": None}, "NOT_A_NAME"),
        ({"time": None}, "NOT_A_NAME"),
        ({"expected_version": 5}, "NOT_A_NAME"),
        ({"max_ids": 0}, "MAX_IDS_OUT_OF_RANGE"),
        ({"initial": {"things": {}}}, "BAD_STATE"),
        ({"stragglers": "update"}, "UNKNOWN_CHOICE"),
    ],
    ids=repr,
)
def test_contradictions_are_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        carts(**changed)
    assert caught.value.code == code


def test_functions_are_required() -> None:
    with pytest.raises(SpecError, match="NOT_A_FUNCTION"):
        sourcing.decide(None, fold_cart, by="c", command_id="i", time="t", state="", event="e int")  # type: ignore[arg-type]
