"""Other parameters of joins after a restart: the results are those of a definition over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from streamops import joins, patterns
from streamops.joins.core.asof import AsofCore
from streamops.joins.core.enrich import EnrichCore
from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.tables import TablesCore
from streamops.kernel.codec import decode, encode
from streamops.kernel.core import SIDES, State
from streamops.kernel.errors import StateFormatError
from streamops.kernel.hashing import shard_of
from streamops.kernel.lag import without_lag
from streamops.kernel.operator import Core
from streamops.kernel.values import comparable
from streamops.patterns.core.match import PatternCore
from streamops.search.core.asof import SearchAsofCore
from streamops.spark.operator import Operator
from streamops.testing import Replay
from streamops.testing import at as at_time
from streamops.testing.laws.cases import same_rows, to_rows
from tests.laws.asof_strategies import FACTS, TABLE
from tests.laws.asof_strategies import histories as asof_histories
from tests.laws.asof_strategies import spec_of as asof_spec
from tests.laws.enrich_strategies import histories as enrich_histories
from tests.laws.enrich_strategies import spec_of as enrich_spec
from tests.laws.interval_strategies import HOWS, LEFT, PACE, RIGHT, spec_of
from tests.laws.interval_strategies import histories as interval_histories
from tests.laws.pattern_strategies import histories as pattern_histories
from tests.laws.tables_strategies import KEYS, ON, SCHEMAS
from tests.laws.tables_strategies import histories as tables_histories
from tests.laws.tables_strategies import spec_of as tables_spec
from tests.laws.test_changed_aggregates_laws import restart
from tests.laws.test_search_as_of_laws import histories as search_histories
from tests.laws.test_timeline_laws import FOLLOWS, POSTS
from tests.laws.test_timeline_laws import histories as timeline_histories
from tests.oracles.asof import AsofOracle
from tests.oracles.enrich import EnrichOracle
from tests.oracles.interval import IntervalOracle, Pair
from tests.oracles.patterns import PatternOracle
from tests.oracles.tables import TablesOracle, Versions
from tests.oracles.windows import Row

pytestmark = pytest.mark.laws

SHARDS = 2


def accepted_changes(core: Core[Any], before: Any, after: Any) -> set[str]:
    """The parameters that differ, if a checkpoint accepts them all."""
    stored, wanted = before.identity, after.identity
    changed = {name for name in wanted if wanted[name] != stored[name]}
    blob = encode(core.STATE, stored, SHARDS, {})
    try:
        decode(blob, core.STATE, wanted, SHARDS, adapt=lambda stored, tables: tables)
    except StateFormatError:
        return set()
    return changed


@dataclass
class Shards:
    """The shards of an operator, which are stored and read again before every step."""

    core: Core[Any]
    spec: Any
    shards: int = SHARDS
    states: list[State] = field(init=False)

    def __post_init__(self) -> None:
        self.states = [State.empty(self.core.layout(self.spec)) for _ in range(self.shards)]
        self.deadlines: list[int | None] = [None] * self.shards
        self.began = False

    def change(self, spec: Any) -> bool:
        """Restart with other parameters; whether a checkpoint accepts them."""
        stored, wanted = self.spec.identity, spec.identity
        changed = accepted_changes(self.core, self.spec, spec)
        if not changed:
            return False
        event(f"changed {sorted(changed)}")
        for at, state in enumerate(self.states):
            blob = encode(self.core.STATE, stored, SHARDS, state.tables)
            adapt = partial(self.core.adapt, spec, watermark=state.watermark)
            tables = decode(blob, self.core.STATE, wanted, SHARDS, adapt=adapt)
            self.states[at], _ = without_lag(State(state.watermark, tables))
        self.spec, self.began = spec, False
        return True

    def step(self, inputs: Sequence[pa.Table], watermark: int | None) -> list[Row]:
        """One micro-batch. Shards in which nothing is due are left alone, as on Spark."""
        shards = [
            shard_of(rows, of.by, self.shards)
            for rows, of in zip(inputs, self.spec.inputs, strict=True)
        ]
        output: list[Row] = []
        for at, state in enumerate(self.states):
            own = [
                self.core.pack(self.spec, rows.filter(pa.array(shard == at)), side)
                for rows, shard, side in zip(inputs, shards, SIDES, strict=False)
            ]
            due = self.deadlines[at]
            idle = watermark is None or due is None or watermark < due
            if self.began and idle and not any(map(len, own)):
                # Without event time, a shard has a clock of its own.
                reached = state.watermark if watermark is None else watermark
                self.states[at] = replace(state, watermark=reached)
                continue
            step = self.core.step(self.spec, state, own, watermark)
            self.core.check(self.spec, step.state)
            self.states[at] = step.state
            self.deadlines[at] = self.core.next_deadline(self.spec, step.state)
            output += to_rows(step.rows)
        self.began = True
        return output

    def finish(self) -> list[Row]:
        return [row for state in self.states for row in to_rows(self.core.finish(self.spec, state))]


@dataclass
class ChangingInterval(IntervalOracle):
    """Interval joins whose parameters change.

    A pair counts if its rows match by the bounds in force when the later of them arrives, and the
    earlier one has not left by then. A row has left if it could not be part of a further result by the
    parameters before a change. What was published for a row that has left stays.
    """

    evicted: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    pairs: set[tuple[int, int]] = field(default_factory=set)

    def change(self, to: IntervalOracle) -> None:
        """Other parameters from now on."""
        patience = self.allowed_lateness if self.corrects else 0
        longer = max(self.upper, 0) if self.matches != "every" else 0
        for side, evicted in enumerate(self.evicted):
            more = (longer if side else 0) + patience
            preserves = self.how in (("left", "full", "anti"), ("right", "full"))[side]
            rows = (self.left, self.right)[side]
            for number, row in enumerate(rows):
                keyless = any(row[pair[side]] is None for pair in self.by)
                if self._passed(self._end(side, number) + more) or (keyless and not preserves):
                    evicted.add(number)
        if self.how in ("semi", "anti"):
            self.evicted[0].update(i for i, _ in self.pairs)
        if self.matches != "every" and not self.corrects:
            self.evicted[0].update(
                i
                for (i, _), status in self.published.items()
                if i is not None and status != "early"
            )
        for name in ("lower", "upper", "how", "matches", "tie_break", "allowed_lateness"):
            setattr(self, name, getattr(to, name))
        for name in ("stragglers", "too_late", "early", "columns"):
            setattr(self, name, getattr(to, name))
        self.left, self.right = (
            [{name: row.get(name) for name in names} for row in rows]
            for rows, names in zip((self.left, self.right), self.columns, strict=True)
        )

    def _wanted(
        self, old: tuple[int, int], previous_watermark: int | None
    ) -> list[tuple[Pair, str]]:
        left, right = self.evicted
        alive = {
            (i, j)
            for i, ours in enumerate(self.left)
            for j, theirs in enumerate(self.right)
            if i not in left and j not in right and self.meet(ours, theirs)
        }
        self.pairs |= {(i, j) for i, j in alive if i >= old[0] or j >= old[1]}
        pairs = sorted(alive if self.matches != "every" else self.pairs)
        self._find_late(
            [(i, j) for i, j in pairs if i >= old[0] or j >= old[1]], old, previous_watermark
        )
        lone_left = [of for of in self._lone(0, {i for i, _ in pairs}) if of[0] not in left]
        lone_right = [of for of in self._lone(1, {j for _, j in pairs}) if of[0] not in right]
        wanted: dict[Pair, str] = {}
        if self.matches != "every":
            wanted |= dict(self._answered(pairs, dict(lone_left)))
        elif self.how == "semi":
            for i, j in pairs:
                status = self._status((i, None), (i, j))
                if i not in left and wanted.get((i, None)) != "matched":
                    wanted[i, None] = status
        else:
            if self.how != "anti":
                wanted |= {pair: self._status(pair, pair) for pair in pairs}
            if self.how in ("left", "full", "anti"):
                wanted |= {(i, None): status for i, status in lone_left}
            if self.how in ("right", "full"):
                wanted |= {(None, j): status for j, status in lone_right}
        stays = {
            (i, j): status
            for (i, j), status in self.published.items()
            if not self.takes_back
            or i in left
            or (j in right and i is None)
            or ((i, j) in self.pairs and self.matches == "every")
        }
        return list((stays | wanted).items())


BOUNDS = [0, -PACE, -4 * PACE, 2 * PACE, 1, -7]
WIDTHS = [0, PACE, 3 * PACE, 6 * PACE, 1, 333]


def change_interval(dice: Random, before: IntervalOracle) -> IntervalOracle:
    """Another join, which differs in some parameters."""
    after = replace(before)
    which = dice.sample(["bounds", "how", "matches", "policy"], dice.choice([1, 1, 2, 4]))
    if "bounds" in which:
        after.lower = dice.choice([0, -PACE, -4 * PACE, 2 * PACE, 1, -7])
        after.upper = after.lower + dice.choice([0, PACE, 3 * PACE, 6 * PACE, 1, 333])
    if "how" in which:
        after.how = dice.choice(HOWS if before.matches == "every" else ["inner", "left"])
    if "matches" in which and before.matches != "every":
        after.matches = dice.choice(["first", "last"])
    if "policy" in which:
        after.allowed_lateness = PACE * dice.choice([3, 100, 1, 0])
        after.stragglers = dice.choice(["retract", "route", "drop"])
        after.early = dice.choice(["never", "every batch"])
    if after.stragglers != "retract":
        after.too_late = "drop"
    if after.matches == "every" and after.how in ("inner", "semi"):
        after.early = "never"
    return after


WITHOUT = tuple(
    pa.schema([column for column in schema if column.name not in removed])
    for schema, removed in ((LEFT, ("n",)), (RIGHT, ("number",)))
)


OTHER = WITHOUT[1].append(pa.field("more", pa.int64()))


@given(case=interval_histories(), seed=st.integers(0, 1 << 32))
def test_interval_joins_may_change(case: Any, seed: int) -> None:
    dice = Random(seed)
    first = case.oracle()
    if dice.random() < 0.5:  # without revisions, more may change
        first = replace(first, stragglers="drop", too_late="drop", early="never")
    for _ in range(20):  # most changes are refused
        second, schemas = change_interval(dice, first), [(LEFT, RIGHT)] * 2
        uses = {name for pair in first.by for name in pair} | {second.tie_break}
        if "number" not in uses and dice.random() < 0.5:
            schemas = [dice.choice([(LEFT, RIGHT), WITHOUT, (LEFT, OTHER)]) for _ in range(2)]
        plans = [
            (replace(of, columns=tuple(tuple(schema.names) for schema in pair)), pair)
            for of, pair in zip((first, second), schemas, strict=True)
        ]
        specs = [spec_of(of, 0, pair) for of, pair in plans]
        if accepted_changes(IntervalCore(), *specs):
            break
    oracle = ChangingInterval(**vars(plans[0][0]))
    shards = Shards(IntervalCore(), specs[0])
    now = 0
    for number, (batch, watermark) in enumerate(
        zip(case.batches, case.watermarks(case.batches), strict=True)
    ):
        if number and dice.random() < 0.5 and shards.change(specs[1 - now]):
            now = 1 - now
            oracle.change(plans[now][0])
        inputs = [
            _with_columns(rows, schema) for rows, schema in zip(batch, plans[now][1], strict=True)
        ]
        left, right = map(to_rows, inputs)
        expected = oracle.step(left, right, watermark)
        found = shards.step(inputs, watermark)
        same_rows(found, [*expected.emitted, *expected.late], f"step {number}, and the oracle")
    same_rows(shards.finish(), oracle.finish(), "at the end, and the oracle")


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema; null where they have none."""
    columns = [
        rows.column(of.name) if of.name in rows.column_names else pa.nulls(len(rows), of.type)
        for of in schema
    ]
    return pa.table(columns, schema=schema)


@dataclass
class ChangingAsof(AsofOracle):
    """As-of joins whose parameters change.

    A fact is joined by the parameters in force when the watermark has passed it, with the versions that
    have not left before the change. A fact that has left is not revised.
    """

    def change(self, to: AsofOracle, facts: Sequence[str]) -> None:
        """Other parameters from now on."""
        self.facts = [fact for fact in self.facts if self._waits(fact)]
        for name in ("columns", "joined", "how", "tolerance", "direction", "allow_exact"):
            setattr(self, name, getattr(to, name))
        for name in ("allowed_lateness", "stragglers", "late_versions", "too_late"):
            setattr(self, name, getattr(to, name))
        with_columns = {id(row): {n: row.get(n) for n in to.columns} for row in self.ever.values()}
        for fact in self.facts:
            fact.row = {name: fact.row.get(name) for name in facts}
            if isinstance(fact.answered, dict):
                fact.answered = {name: fact.answered.get(name) for name in to.columns}
        self.stored = {at: with_columns[id(row)] for at, row in self.stored.items()}
        self.ever = dict(self.stored)


def change_asof(dice: Random, before: AsofOracle) -> AsofOracle:
    """Another join, which differs in some parameters."""
    after = replace(before)
    which = dice.sample(["tolerance", "direction", "how", "policy"], dice.choice([0, 1, 1, 2, 4]))
    if "direction" in which:
        after.direction = dice.choice(["backward", "forward", "nearest"])
        after.allow_exact = dice.random() < 0.5
    if "tolerance" in which or (after.direction != "backward" and after.tolerance is None):
        after.tolerance = dice.choice([40_000, 10_000, 4_000, 1_000, 0])
    if after.direction == "backward" and "tolerance" in which and dice.random() < 0.3:
        after.tolerance = None
    after.allow_exact |= after.tolerance == 0
    if "how" in which:
        after.how = dice.choice(["left", "inner"])
    if "policy" in which:
        after.allowed_lateness = dice.choice([0, 1_000, 12_000, 400_000])
        after.stragglers = dice.choice(["answer", "route", "drop"])
    if after.direction == "forward":
        after.until = before.until
    later = after.stragglers == "answer" or after.retracts
    after.too_late = dice.choice(["drop", "route"]) if later else "drop"
    return after


def asof_plan(oracle: AsofOracle, facts: pa.Schema, columns: Sequence[str]) -> Any:
    """A join of these columns: the definition, and its spec."""
    taken, keys = set(facts.names), {name for _, name in oracle.by}
    aside = {*keys, oracle.deleted, "_change_type", "_tombstone"}
    rest = [name for name in columns if name not in aside]
    joined = tuple((n, f"{n}_right" if n in taken else n) for n in rest)
    of = replace(oracle, columns=tuple(columns), joined=joined)
    return of, facts, asof_spec(of, facts=facts)


@given(case=asof_histories(), seed=st.integers(0, 1 << 32))
def test_asof_joins_may_change(case: Any, seed: int) -> None:
    dice = Random(seed)
    first = case.oracle()
    if dice.random() < 0.5:  # without revisions, more may change
        first = replace(first, late_versions="ignore")
        if first.stragglers != "answer":
            first.too_late = "drop"
    few = pa.schema([column for column in FACTS if column.name != "n"])
    for _ in range(20):
        second, plans = change_asof(dice, first), []
        if second.direction == "forward" and second.until is not None:
            continue
        for of in (first, second):
            columns = [name for name in first.columns if name != "n" or dice.random() < 0.6]
            plans.append(asof_plan(of, dice.choice([FACTS, FACTS, few]), columns))
        if accepted_changes(AsofCore(), plans[0][2], plans[1][2]):
            break
    else:
        plans = [plans[0]] * 2 if plans else [asof_plan(first, FACTS, first.columns)] * 2
    oracle, shards, now = ChangingAsof(**vars(plans[0][0])), Shards(AsofCore(), plans[0][2]), 0
    marks = case.watermarks(case.batches)
    for number, (batch, watermark) in enumerate(zip(case.batches, marks, strict=True)):
        if number and dice.random() < 0.5 and shards.change(plans[1 - now][2]):
            now = 1 - now
            oracle.change(plans[now][0], plans[now][1].names)
        schemas = (plans[now][1], pa.schema([TABLE.field(n) for n in plans[now][0].columns]))
        inputs = [_with_columns(rows, of) for rows, of in zip(batch, schemas, strict=True)]
        left, right = map(to_rows, inputs)
        expected = oracle.step(left, right, watermark)
        found = shards.step(inputs, watermark)
        same_rows(found, [*expected.emitted, *expected.late], f"step {number}, and the oracle")
    same_rows(shards.finish(), oracle.finish(), "at the end, and the oracle")


@dataclass
class ChangingPatterns(PatternOracle):
    """Patterns whose bound changes. A row whose bound has passed before a change is in no later match."""

    evicted: list[Row] = field(default_factory=list)
    """They stay in memory, as the oracle knows rows by their identity."""

    def change(self, to: PatternOracle) -> None:
        """Another bound, and other measures, from now on."""
        within, known = self.query.within, self.watermark
        if within is not None and known is not None:
            for key, rows in self.rows.items():
                self.evicted += rows
                self.rows[key] = [row for row in rows if row[self.time] + within - 1 > known]
        self.query, self.measures = to.query, to.measures


@given(case=pattern_histories(), seed=st.integers(0, 1 << 32))
def test_patterns_may_change(case: Any, seed: int) -> None:
    dice, first = Random(seed), case.oracle()
    within = dice.choice([1, 1_000, 3_000, 5_001, 20_000, 60_000])
    second = replace(first, query=replace(first.query, within=within))
    spec = replace(case.spec, within=within)
    if dice.random() < 0.3:
        spec, second = replace(spec, measures=(), resolved=()), replace(second, measures={})
    plans, now = [(first, case.spec), (second, spec)], 0
    oracle, shards = ChangingPatterns(**vars(first)), Shards(PatternCore(), case.spec)
    marks = case.watermarks(case.batches)
    for number, (batch, watermark) in enumerate(zip(case.batches, marks, strict=True)):
        if number and dice.random() < 0.5 and shards.change(plans[1 - now][1]):
            now = 1 - now
            oracle.change(plans[now][0])
        expected = oracle.step(to_rows(batch[0]), watermark)
        found = shards.step(batch, watermark)
        same_rows(found, [*expected.emitted, *expected.late], f"step {number}, and the oracle")
    same_rows(shards.finish(), oracle.finish(), "at the end, and the oracle")


@dataclass
class ChangingEnrichment(EnrichOracle):
    """An enrichment whose columns change: null in the changes from before."""

    def change(self, to: EnrichOracle) -> None:
        """Other columns from now on."""
        both = {*self.columns} & {*to.columns}
        self.columns, self.values = to.columns, to.values
        for key, positions in self.known.items():
            ordered = dict[Any, list[Row]]()
            for position, rows in positions.items():
                # The state has the greatest of several; the others only supply values.
                for at, row in enumerate(rows, 1):
                    before = (*position[:-1], position[-1] - 1, at)
                    ordered[position if at == len(rows) else before] = [
                        {name: row.get(name) for name in to.columns}
                        | {"_unavailable": [n for n in row["_unavailable"] or () if n in both]}
                    ]
            self.known[key] = ordered


@given(case=enrich_histories(), seed=st.integers(0, 1 << 32))
def test_columns_of_an_enrichment_may_change(case: Any, seed: int) -> None:
    dice, first = Random(seed), case.oracle()
    whole, plans = case.spec.right.schema, []
    for _ in range(2):
        without = set(dice.sample(["v", "tags", "map"], dice.randint(0, 3)))
        schema = pa.schema([column for column in whole if column.name not in without])
        spec = enrich_spec(
            schema,
            by=dict(first.by),
            time=first.time,
            horizon=first.horizon,
            how=first.how,
            rejected=first.rejected,
        )
        of = replace(first, columns=tuple(schema.names), values=spec.names.right)
        plans.append((of, spec, schema))
    oracle, now = ChangingEnrichment(**vars(plans[0][0])), 0
    shards = Shards(EnrichCore(), plans[0][1], shards=1)
    for number, (facts, changes) in enumerate(case.batches):
        if number and dice.random() < 0.5 and shards.change(plans[1 - now][1]):
            now = 1 - now
            oracle.change(plans[now][0])
        inputs = [facts, _with_columns(changes, plans[now][2])]
        left, right = map(to_rows, inputs)
        expected = oracle.step(left, right, None)
        found = shards.step(inputs, None)
        same_rows(found, [*expected.emitted, *expected.late], f"step {number}, and the oracle")


@given(history=tables_histories(sequenced=True, disorder=True), seed=st.integers(0, 1 << 32))
def test_columns_of_tables_may_change(history: Any, seed: int) -> None:
    dice, how = Random(seed), history.spec.how
    arguments = {"how": how, "key": KEYS, "sequence": "seq", "remember": 1_000}
    plans = []
    for _ in range(2):
        names = [{"v"} if dice.random() < 0.5 else set[str]() for _ in range(2)]
        left, right = (
            pa.schema([column for column in schema if column.name not in without])
            for schema, without in zip(SCHEMAS, names, strict=True)
        )
        spec = tables_spec((left, right), **arguments)
        own = [name for name in left.names if name != "_change_type"]
        plans.append(((left, right), spec, (own, dict(spec.names.right))))
    keys = [(KEYS[0], *ON), (KEYS[1], *ON.values())]
    sides = [Versions(key, "seq") for key in keys]
    identity = [*KEYS, *ON]
    oracle = TablesOracle(sides[0], sides[1], ON, how, plans[0][2], identity)
    shards, now = Shards(TablesCore(), plans[0][1]), 0
    for number, batch in enumerate(history.batches):
        if number and dice.random() < 0.5 and shards.change(plans[1 - now][1]):
            now = 1 - now
            oracle.names = plans[now][2]
            for side, schema in zip(sides, plans[now][0], strict=True):
                _set_columns(side, schema)
        inputs = [
            _with_columns(pa.Table.from_pylist(rows, schema), of)
            for rows, schema, of in zip(batch, SCHEMAS, plans[now][0], strict=True)
        ]
        left, right = map(to_rows, inputs)
        expected = oracle.step(left, right)
        same_rows(shards.step(inputs, None), expected.emitted, f"step {number}, and the oracle")


@given(case=search_histories(), seed=st.integers(0, 1 << 32))
def test_columns_of_documents_may_change(case: Any, seed: int) -> None:
    dice, oracle, now = Random(seed), case.oracle(), seed % 2
    documents, queries = (of.schema for of in case.spec.inputs)
    schemas = [documents, documents.append(pa.field("more", pa.int64()))]
    specs = [
        case.spec.resolve((schema, queries), carried=(None, None), shards=1) for schema in schemas
    ]
    shards, marks = Shards(SearchAsofCore(), specs[now], shards=1), case.watermarks(case.batches)
    for number, (batch, watermark) in enumerate(zip(case.batches, marks, strict=True)):
        if number and dice.random() < 0.5 and shards.change(specs[1 - now]):
            now = 1 - now
            oracle.waiting = [
                {name: row.get(name) for name in schemas[now].names} for row in oracle.waiting
            ]
        oracle.documents = tuple(schemas[now].names)
        rows = batch[0]
        if now:
            rows = rows.append_column("more", pa.array(range(len(rows)), pa.int64()))
        expected = oracle.step(to_rows(rows), to_rows(batch[1]), watermark)
        found = shards.step([rows, batch[1]], watermark)
        same_rows(found, [*expected.emitted, *expected.late], f"step {number}, and the oracle")
    same_rows(shards.finish(), oracle.finish(), "at the end, and the oracle")


def _set_columns(table: Versions, schema: pa.Schema) -> None:
    names = [name for name in schema.names if name != "_change_type"]
    table.newest = {
        key: (order, None if row is None else {name: row.get(name) for name in names})
        for key, (order, row) in table.newest.items()
    }


@given(history=timeline_histories(sequenced=True), seed=st.integers(0, 1 << 32))
def test_columns_of_timelines_may_change(history: Any, seed: int) -> None:
    dice, home, found = Random(seed), history.home(), list[Row]()
    query = Replay(history.transform, (POSTS, FOLLOWS), shards=SHARDS)
    few = pa.schema([column for column in POSTS if column.name != "likes"])
    schema = POSTS
    for number, batch in enumerate(history.batches):
        if number and dice.random() < 0.5:
            schema = few if schema is POSTS else POSTS
            names = schema.names[:-1]
            _set_columns(home.posts, schema)
            found = [{name: row.get(name) for name in (*names, "user")} for row in found]
            restart_with(query, (schema, FOLLOWS))
        posts = [{name: row[name] for name in schema.names} for row in batch[0]]
        home.step(posts, batch[1])
        for result in query.run([(posts, batch[1])]):
            for row in result.rows:
                change = row.pop("_change_type")
                row.pop("lsn_right", None)
                if change in ("delete", "update_preimage"):
                    same = [at for at, of in enumerate(found) if comparable(of) == comparable(row)]
                    del found[same[0]]
                else:
                    found.append(row)
        same_rows(found, home.rows(), f"step {number}, and the oracle")


def restart_with(query: Replay, schemas: tuple[pa.Schema, ...]) -> None:
    """Start a query again, over other columns."""
    query._schemas = schemas
    frames = tuple(
        replace(frame, columns=schema)
        for frame, schema in zip(query._stages[0].frames, schemas, strict=True)
    )
    for stage in query._stages:
        stage.frames = frames
        stage._start()
        frames = (stage.output,)


def _interval(upper: int) -> Operator:
    return joins.interval(
        None, "0 seconds", f"{upper} seconds", by="k", time="ts", how="left", delay="5 seconds"
    )


def _asof(tolerance: int) -> Operator:
    return joins.asof(
        None,
        by="k",
        time="ts",
        version="ts",
        sequence="n",
        direction="forward",
        tolerance=f"{tolerance} seconds",
        delay="5 seconds",
    )


def _pattern(within: int) -> Operator:
    return patterns.match(
        "a",
        define={"a": "n"},
        time="ts",
        by="k",
        within=f"{within} seconds",
        measures={},
        delay="5 seconds",
        timeouts="drop",
    )


@pytest.mark.parametrize("build", [_interval, _asof, _pattern])
@given(
    bounds=st.lists(st.integers(1, 60), min_size=2, max_size=4),
    moves=st.lists(st.integers(0, 40), min_size=8, max_size=8),
)
def test_the_watermark_stays_behind_event_times(
    build: Callable[[int], Operator], bounds: list[int], moves: list[int]
) -> None:
    """Spark's watermark is that of the bound before, until event times have moved it."""
    number = pa.bool_() if build is _pattern else pa.int64()
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("n", number)])
    inputs = 1 if build is _pattern else 2
    query = Replay(build(bounds[0]), schema if inputs == 1 else (schema, schema), shards=SHARDS)
    start, newest, watermarks = int(at_time(0).timestamp()), 1_000, [0]
    for at, move in enumerate(moves):
        if at % 2:  # every second micro-batch is the first one after a restart
            restart(query, build(bounds[at // 2 % len(bounds)]))
        newest += move
        rows = [{"k": "a", "ts": at_time(newest), "n": True if inputs == 1 else 1}]
        query.run([rows if inputs == 1 else (rows, rows)])
        (stage,) = query._stages
        seen = {watermark for _, watermark, *_ in stage.stored.values() if watermark is not None}
        assert len(seen) <= 1, "shards differ"
        latest = max(seen, default=0)
        assert watermarks[-1] <= latest <= (start + newest - 5) * 1_000_000
        watermarks.append(latest)
    rows = [{"k": "a", "ts": at_time(newest + 100), "n": None}]
    query.run([rows if inputs == 1 else (rows, rows)])
    assert {row[1] for row in query._stages[0].stored.values()} == {
        (start + newest + 95) * 1_000_000
    }
