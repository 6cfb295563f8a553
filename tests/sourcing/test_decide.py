"""Commands to events: a shopping cart, seats, repeated commands, versions, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops import sourcing, windows
from streamops.errors import FunctionError, SchemaError, SpecError
from streamops.kernel.codec import decode, encode
from streamops.kernel.core import State
from streamops.kernel.versions import pylist
from streamops.process.core.per_key import PerKeyCore
from streamops.testing import at, laws, replay
from streamops.testing.batches import to_table
from tests.oracles.decide import DecideOracle
from tests.sourcing.alarms import alarms
from tests.sourcing.carts import COMMAND, VALUES, carts, change_cart, command, fold_cart
from tests.sourcing.folding import fold_table


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
        command_id="uid",
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


def oracle_of(**changed: Any) -> DecideOracle:
    """The oracle of carts with these parameters."""
    names = ("order_by", "max_ids", "stragglers", "expected_version")
    given: dict[str, Any] = {"expected_version": "version", "initial": {"items": {}}}
    given |= {name: changed[name] for name in names if name in changed}
    return DecideOracle(
        change_cart,
        fold_cart,
        by="cart",
        command_id="uid",
        time="ts",
        event=("type", "item"),
        **given,
    )


PARAMETERS = st.fixed_dictionaries(
    {
        "delay": st.sampled_from(["0 seconds", "10 seconds", "25 seconds"]),
        "order_by": st.sampled_from([(), ("op",), ("sku", "op")]),
        "max_ids": st.sampled_from([1, 2, 1_000]),
        "stragglers": st.sampled_from(["drop", "route"]),
        "expected_version": st.sampled_from([None, "version"]),
    }
)
HISTORY = laws.histories({**VALUES, "uid": st.sampled_from([None, *range(7)])}, time="ts")


@pytest.mark.laws
@given(parameters=PARAMETERS, batches=HISTORY, has_null=st.booleans(), seed=st.integers(0, 99))
def test_decisions_keep_the_laws(
    parameters: dict[str, Any], batches: list[Any], has_null: bool, seed: int
) -> None:
    if has_null:
        batches = [*batches, [{**command(1, "add"), "ts": None}]]
    oracle = oracle_of(**parameters)
    laws.check_operator(
        carts(**parameters),
        batches,
        schema=COMMAND,
        oracle=oracle.fresh,
        accepted=lambda arrivals: oracle.fresh().run(arrivals),
        seed=seed,
    )


@pytest.mark.laws
@given(batches=HISTORY, max_ids=st.sampled_from([1, 2, 1_000]))
def test_the_state_is_the_fold_of_the_events(batches: list[Any], max_ids: int) -> None:
    spec: Any = carts(delay="10 seconds", max_ids=max_ids).parameters
    spec = spec.resolve((COMMAND,), carried=(None,), shards=1)
    case = laws.Case(PerKeyCore(), spec, tuple((to_table(rows, COMMAND),) for rows in batches))
    emitted: dict[str, list[Any]] = {}
    for step in case.steps:
        for row in step.output.to_pylist():
            emitted.setdefault(row["cart"], []).append(row)
        stored = pylist(step.state.tables["keys"])
        states = {state.pop("key.0"): state for state in stored}
        expected = {}
        for cart, rows in emitted.items():
            events = [row for row in rows if row["rejection"] is None]
            assert [event["version"] for event in events] == [*range(1, len(events) + 1)]
            state = Cart({})
            for event in events:
                state = fold_cart(state, SimpleNamespace(**event))
            ids = [row["command_id"] for row in rows if row["command_id"] is not None]
            if ids:  # a state that equals the initial one is not stored
                expected[cart] = {
                    "state.version": len(events),
                    "state.command_ids": ids[-max_ids:],
                    "state.items": state.items,
                }
        assert states == expected


@dataclass(frozen=True)
class Cart:
    """A state that is not the library's."""

    items: dict[str, int]

    def _replace(self, items: dict[str, int]) -> Cart:
        return Cart(items)


# -- chains


def test_events_are_counted_per_window() -> None:
    per_minute = windows.tumbling(
        "1 minute",
        time="ts",
        by="cart",
        agg={"events": agg.count("type"), "rejections": agg.count("rejection")},
    )
    early = [command(1, "add"), command(2, "remove"), command(3, "remove"), command(3, "remove")]
    later = [command(70, "add"), command(61, "add", "ink"), command(62, "remove", "cup")]
    script = [early[::-1], later, [command(600, "add", cart="d")], []]
    results = replay([carts(), per_minute], script, schema=COMMAND)
    found = [row for result in results for row in result.rows]
    assert [(row["window_start"], row["events"], row["rejections"]) for row in found] == [
        (at(0), 2, 1),
        (at(60), 2, 1),
    ]


def test_commands_are_results_of_windows() -> None:
    counts = windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="5 seconds"
    )
    seconds = (0, 1, 2, 11, 12, 13, 14, 21, 31, 32, 33)
    rows = [{"k": "a", "ts": at(second)} for second in seconds]
    expected = [(at(10), 1, "raised", 3), (at(30), 2, "cleared", 1), (at(40), 3, "raised", 3)]
    for script in ([rows], [rows[:5], rows[5:]], [rows[5::-1], rows[6:]]):
        results = replay([counts, alarms()], [*script, [{"k": "b", "ts": at(600)}], []])
        found = [row for result in results for row in result.rows if row["k"] == "a"]
        values = [(row["window_end"], row["version"], row["type"], row["n"]) for row in found]
        assert values == expected


def test_a_field_that_may_be_null_can_be_added_to_a_stored_state() -> None:
    spec: Any = carts().parameters.resolve((COMMAND,), carried=(None,), shards=1)  # type: ignore[attr-defined]
    rows = to_table([command(1, "add"), command(9, "add", second=90)], COMMAND)
    start = State.empty(PerKeyCore().layout(spec))
    mark = int(at(50).timestamp()) * 1_000_000
    before = PerKeyCore().step(spec, start, [PerKeyCore().pack(spec, rows)], mark).state

    def fold_and_mark(state: Any, event: Any) -> Any:
        assert state.first is None
        return fold_cart(state, event)._replace(first=event.item)

    wide = {"state": "first string, items map<string,int>", "event": "type string, item string"}
    wider: Any = sourcing.decide(
        change_cart,
        fold_and_mark,
        by="cart",
        command_id="uid",
        time="ts",
        delay="0 seconds",
        initial={"items": {}},
        **wide,
    ).parameters
    wider = wider.resolve((COMMAND,), carried=(None,), shards=1)
    header = PerKeyCore.STATE, wider.identity, 1
    blob = encode(PerKeyCore.STATE, spec.identity, 1, before.tables)
    tables = decode(blob, *header, adapt=lambda stored, tables: tables)
    later = PerKeyCore().pack(wider, to_table([command(1, "add", second=95)], COMMAND))
    step = PerKeyCore().step(wider, State(mark, tables), [later], 2 * mark)
    assert [(row["version"], row["command_id"]) for row in step.output.to_pylist()] == [(2, "9")]
    assert step.metrics.ignored == 1  # type: ignore[attr-defined]
    (stored,) = pylist(step.state.tables["keys"])
    assert (stored["state.first"], stored["state.items"]) == ("pen", {"pen": 2})


@pytest.mark.parametrize(
    ("decide", "evolve"),
    [
        (lambda state, command: None, fold_cart),
        (lambda state, command: ("added", "pen"), fold_cart),
        (lambda state, command: [("added",)], fold_cart),
        (lambda state, command: [{"kinds": 1}], fold_cart),
        (lambda state, command: [("added", "pen")], lambda state, event: None),
        (lambda state, command: sourcing.Rejected(None), fold_cart),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_an_event_or_a_state_is_an_error(decide: Any, evolve: Any) -> None:
    operator = sourcing.decide(
        decide,
        evolve,
        by="cart",
        command_id="uid",
        time="ts",
        state="items map<string,int>",
        event="type string, item string",
        delay="0 seconds",
    )
    with pytest.raises(FunctionError) as caught:
        decided([[command(1, "add")]], operator)
    assert caught.value.code == "FUNCTION_RESULT"
    assert caught.value.where == "sourcing.decide"


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"state": "version int", "initial": {}}, "NAME_TAKEN"),
        ({"event": "rejection string"}, "NAME_TAKEN"),
        ({"command_id": None}, "PARAMETER_TYPE"),
        ({"time": None}, "PARAMETER_TYPE"),
        ({"expected_version": 5}, "PARAMETER_TYPE"),
        ({"max_ids": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"initial": {"things": {}}}, "INVALID_PARAMETER"),
        ({"initial": {"version": 7}}, "INVALID_PARAMETER"),
        ({"initial": [7]}, "INVALID_PARAMETER"),
        ({"state": "from string", "initial": {}}, "INVALID_PARAMETER"),
        ({"stragglers": "update"}, "UNKNOWN_CHOICE"),
    ],
    ids=repr,
)
def test_contradictions_are_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        carts(**changed)
    assert caught.value.code == code


def test_functions_are_required() -> None:
    with pytest.raises(SpecError, match="PARAMETER_TYPE"):
        sourcing.decide(None, fold_cart, by="c", command_id="i", time="t", state="", event="e int")  # type: ignore[arg-type]


def test_events_and_states_have_their_types_before_anybody_sees_them() -> None:
    seen: list[Any] = []

    def order(state: Any, command: Any) -> Any:
        seen.append(state.total)
        state.parts.append(9)  # has no effect
        return [{"amount": 0.1, "parts": (1, 2)}]

    def add(state: Any, event: Any) -> Any:
        parts, event.parts[0] = [*state.parts, *event.parts], 7
        return state._replace(total=(state.total or 0.0) + event.amount, parts=parts)

    operator = sourcing.decide(
        order,
        add,
        by="k",
        command_id="id",
        time="ts",
        state="total float, parts array<int>",
        initial={"parts": []},
        event="amount float, parts array<int>",
        delay="0 seconds",
    )
    rows = [{"k": "a", "ts": at(number), "id": number} for number in range(3)]
    logs = [
        [row for result in replay(operator, script, flush=True) for row in result.rows]
        for script in ([rows], [[row] for row in rows])
    ]
    assert logs[0] == logs[1]
    assert [row["parts"] for row in logs[0]] == 3 * [[1, 2]]
    assert seen == 2 * [None, 0.10000000149011612, 0.20000000298023224]
    # The state that is decided on is the fold of the log.
    fold = sourcing.fold(add, by="k", state="total float, parts array<int>", initial={"parts": []})
    amounts = pa.array([row["amount"] for row in logs[0]][:2], pa.float32())
    log = pa.table({"k": ["a"] * 2, "version": [1, 2], "amount": amounts, "parts": [[1, 2]] * 2})
    (state,) = fold_table(fold, log).to_pylist()
    assert state["total"] == seen[-1]


def test_an_event_of_another_type_is_an_error() -> None:
    operator = sourcing.decide(
        lambda state, command: [(Decimal("1.5"),)],
        lambda state, event: state,
        by="k",
        command_id="id",
        time="ts",
        state="n int",
        event="amount int",
        delay="0 seconds",
    )
    with pytest.raises(FunctionError, match="'amount'") as caught:
        replay(operator, [[{"k": "a", "ts": at(1), "id": 1}]], flush=True)
    assert caught.value.code == "VALUE_TYPE"


def test_a_command_id_is_read_from_its_own_column() -> None:
    operator = sourcing.decide(
        lambda state, command: [("e",)],
        lambda state, event: state,
        by="k",
        command_id="_1",
        time="ts",
        state="n int",
        event="type string",
        delay="0 seconds",
    )
    rows = [{"_1": n, "_2": "same", "k": "a", "ts": at(n)} for n in range(3)]
    found = [row["command_id"] for r in replay(operator, [rows], flush=True) for row in r.rows]
    assert found == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("dtype", "code"), [(None, "COLUMN_NOT_FOUND"), (pa.string(), "COLUMN_TYPE")]
)
def test_the_expected_version_is_an_integer_column(dtype: Any, code: str) -> None:
    operator = carts(expected_version="seen")
    columns = [("cart", pa.string()), ("uid", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    schema = pa.schema([*columns, *([("seen", dtype)] if dtype else [])])
    with pytest.raises(SchemaError) as caught:
        operator.parameters.resolve((schema,), carried=(None,), shards=1)
    assert caught.value.code == code
