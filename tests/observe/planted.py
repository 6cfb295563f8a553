"""Questions whose answers are planted: the oracle knows what it has written, and does not replay anything.

    python -m tests.observe.planted 10000                 of checkpoints that a replay writes
    python -m tests.observe.planted 10000 --on spark      of queries on Spark over files
    python -m tests.observe.planted 1000 --on kafka       of queries on Spark over topics

asks so many, and prints what was wrong, and how long an answer took.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import aggregates as agg
from streamops import joins, observe, patterns, process, sketches, windows
from streamops.testing import at
from tests.observe.test_explain import COLUMNS, DELAY, simulate

# The greatest event time of each micro-batch. Its rows are compared with the watermark of the one before it, which
# is 10 seconds behind the one before that.
CLOCK = (30, 100, 200, 400, 700)
LEFT = pa.schema([("k", pa.string()), ("lt", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
RIGHT = pa.schema([("k", pa.string()), ("rt", pa.timestamp("us", tz="UTC")), ("w", pa.int64())])

FLAGS = pa.schema([*list(COLUMNS)[:2], ("a", pa.bool_()), ("b", pa.bool_()), ("v", pa.int64())])

Source = tuple[Any, ...]
"""What the inputs are read from."""

Plan = list[tuple[int, int, tuple[Any, ...]]]
"""Rows: their micro-batch, their input, and their values without the key."""


@dataclass(frozen=True)
class Question:
    """A question, the rows that are planted for its key, and the answer."""

    cause: str
    key: str
    window: dt.datetime
    plan: Plan
    reason: str
    operator: int | None
    """Position of the operator that the reason is about."""


@dataclass(frozen=True)
class Subject:
    """An operator or a chain, and the causes that can be planted for it."""

    operator: Any
    causes: Sequence[str] = ("late", "rejected", "no_rows")
    has_open: bool = True
    rows: Callable[[float, int], list[tuple[int, tuple[Any, ...]]]] = lambda t, v: [(0, (at(t), v))]
    """The rows of a result: their inputs and values."""
    alone: Callable[[float, int], list[tuple[int, tuple[Any, ...]]]] | None = None
    """Rows that the last operator makes nothing of."""
    alone_reason: tuple[str, int] = ("no_result", 0)
    schema: Any = COLUMNS
    ask: Callable[[float], float] = lambda t: t
    late: Sequence[tuple[int, float, float]] = ((3, 1, 20), (4, 60, 100))
    """Micro-batches and event times of rows that are late."""


def _tumbling(**options: Any) -> Any:
    return windows.tumbling("1 minute", time="ts", by="k", delay=DELAY,
                            agg={"n": agg.count(), "total": agg.sum("v")}, **options)  # fmt: skip


def _emit(key: Any, rows: Any, state: Any) -> Iterator[tuple[int]]:
    for row in rows:
        yield (row.v,)


def _emit_many(key: Any, rows: Any, state: Any) -> Iterator[tuple[int]]:
    for row in rows:
        if row.n >= 2:
            yield (row.n,)


def _interval() -> Any:
    return joins.interval(None, "0 seconds", "10 seconds", by="k", time=("lt", "rt"), delay=DELAY)


def _pair(t: float, v: int) -> list[tuple[int, tuple[Any, ...]]]:
    return [(0, (at(t), v)), (1, (at(t + 2), v))]


def _far(t: float, v: int) -> list[tuple[int, tuple[Any, ...]]]:
    return [(0, (at(t), v)), (1, (at(t + 12), v))]


def _ab(t: float, v: int) -> list[tuple[int, tuple[Any, ...]]]:
    return [(0, (at(t), True, False, v)), (0, (at(t + 1), False, True, v))]


def _two(t: float, v: int) -> list[tuple[int, tuple[Any, ...]]]:
    return [(0, (at(t), v)), (0, (at(t), v))]


def _one(t: float, v: int) -> list[tuple[int, tuple[Any, ...]]]:
    return [(0, (at(t), v))]


def _window_end(t: float) -> float:
    return t // 60 * 60 + 60


_TIMED = ("late", "rejected", "no_rows")
SUBJECTS: dict[str, Subject] = {
    "tumbling": Subject(_tumbling()),
    "update": Subject(
        _tumbling(allowed_lateness="1 minute", stragglers="update"), late=((4, 1, 100),)
    ),
    "hopping": Subject(
        windows.hopping(
            "1 minute", "30 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY
        )
    ),
    "session": Subject(
        windows.session("20 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY)
    ),
    "sliding": Subject(
        windows.sliding("1 minute", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY)
    ),
    "over": Subject(
        windows.over(
            time="ts", values={"before": windows.lag("v")}, within="1 hour", by="k", delay=DELAY
        )
    ),
    "per_key": Subject(process.per_key(_emit, by="k", time="ts", output="x bigint", delay=DELAY)),
    "match": Subject(
        patterns.match(
            "A B",
            define={"A": "a", "B": "b"},
            time="ts",
            by="k",
            delay=DELAY,
            measures={"a": patterns.first("A", "v")},
            within="20 seconds",
        ),
        causes=(*_TIMED, "alone"),
        rows=_ab,
        alone=lambda t, v: _ab(t, v)[:1],
        schema=FLAGS,
    ),
    "interval": Subject(
        _interval(),
        causes=(*_TIMED, "alone", "alone"),
        has_open=False,
        rows=_pair,
        alone=_far,
        alone_reason=("no_partner", 0),
        schema=(LEFT, RIGHT),
    ),
    "asof": Subject(
        joins.asof(
            None,
            by="k",
            time="lt",
            version="rt",
            sequence="w",
            how="inner",
            delay=(DELAY, DELAY),
        ),
        causes=("rejected", "no_rows", "alone"),
        alone=lambda t, v: [(0, (at(t), v))],
        rows=lambda t, v: [(0, (at(t), v)), (1, (at(t - 1), v))],
        alone_reason=("no_partner", 0),
        schema=(LEFT, RIGHT),
    ),
    "tumbling, tumbling": Subject(
        [
            _tumbling(),
            windows.tumbling("5 minutes", time="window_end", by="k", agg={"most": agg.max("n")}),
        ],
        ask=_window_end,
    ),
    "tumbling, per_key": Subject(
        [_tumbling(), process.per_key(_emit_many, by="k", time="window_end", output="x bigint")],
        causes=(*_TIMED, "alone"),
        rows=_two,
        alone=_one,
        alone_reason=("no_result", 1),
        ask=_window_end,
    ),
    "interval, tumbling": Subject(
        [_interval(), windows.tumbling("1 minute", time="lt", by="k", agg={"n": agg.count()})],
        causes=("rejected", "no_rows", "alone"),
        rows=_pair,
        alone=_far,
        alone_reason=("no_partner", 0),
        schema=(LEFT, RIGHT),
    ),
    "seen, tumbling": Subject(
        [sketches.seen("k", capacity=1000, time="ts", horizon="1 hour"), _tumbling()],
        causes=("no_rows", "alone"),
        alone_reason=("no_result", 0),
        # A row with the same identity long before: the later one is dropped as a duplicate.
        alone=lambda t, v: [(0, (at(t - 60), v)), (0, (at(t), v))],
    ),
}


def plant(name: str, count: int, rng: random.Random) -> list[Question]:
    """Questions with keys of their own: half of them about results that do not exist."""
    of, found = SUBJECTS[name], list[Question]()
    causes = list(of.causes)
    if "alone" in causes:  # first, so that few questions have it
        causes.sort(key="alone".__ne__)
    else:
        start = list(SUBJECTS).index(name) % len(causes)
        causes = causes[start:] + causes[:start]
    for number in range(count):
        cause = "open" if of.has_open and rng.random() < 0.1 else "result"
        if number % 2:
            cause = causes[number // 2 % len(causes)]
        found.append(_plant(of, cause, f"{name} {number}", number, rng))
    return found


def _plant(of: Subject, cause: str, key: str, number: int, rng: random.Random) -> Question:
    batch, t = rng.choice([(0, rng.uniform(1, 25)), (2, rng.uniform(121, 165))])
    rows, reason, operator = of.rows(t, number), cause, None
    if cause == "late":
        batch, first, last = rng.choice(list(of.late))
        t = rng.uniform(first, last)
        rows, operator = of.rows(t, number), 0
    elif cause == "open":
        batch, t = 4, rng.uniform(692, 697)
        rows = of.rows(t, number)
    elif cause == "rejected":
        (side, (_, *values)), *_ = of.rows(t, number)
        rows, operator = [(side, (None, *values))], 0
    elif cause == "no_rows":
        rows = []
    elif cause == "alone":
        assert of.alone is not None
        batch, t = 2, rng.uniform(121, 165)
        rows = of.alone(t, number)
        reason, operator = of.alone_reason
    plan = [(batch, side, row) for side, row in rows]
    # Rows of the key that have nothing to do with the question, in other windows of all operators.
    if of.schema is COLUMNS and "seen" not in key and cause != "alone" and rng.random() < 0.5:
        plan.append((3, 0, (at(rng.uniform(330, 380)), 2 * number)))
    return Question(cause, key, at(of.ask(t)), plan, reason, operator)


def schemas(name: str) -> tuple[pa.Schema, ...]:
    """The schema of each input."""
    schema = SUBJECTS[name].schema
    return schema if isinstance(schema, tuple) else (schema,)


def micro_batches(
    name: str, questions: Sequence[Question], rng: random.Random
) -> list[tuple[pa.Table, ...]]:
    """All planted rows, shuffled within a micro-batch: of each, a table of each input."""
    batches = []
    for number, second in enumerate(CLOCK):
        tables = []
        for side, schema in enumerate(schemas(name)):
            rows = [(one.key, *row) for one in questions for batch, at_, row in one.plan
                    if (batch, at_) == (number, side)]  # fmt: skip
            rows.append((f"clock {number}", at(second), *[None] * (len(schema) - 2)))
            rng.shuffle(rows)
            tables.append(pa.table([list(column) for column in zip(*rows, strict=True)], schema))
        batches.append(tuple(tables))
    return batches


def write(folder: Path, name: str, questions: Sequence[Question], rng: random.Random) -> Source:
    """The checkpoint and the files of a query over all planted rows."""
    of = SUBJECTS[name]
    batches = [of if len(of) > 1 else of[0] for of in micro_batches(name, questions, rng)]
    simulate(folder, of.operator, batches, of.schema)
    return (observe.files(),) * len(schemas(name))


def ask(checkpoint: Path, name: str, one: Question, source: Source) -> observe.Explanation:
    """Ask it."""
    operator, where = SUBJECTS[name].operator, {"k": one.key}
    source = source if len(source) > 1 else source[0]
    return observe.explain(checkpoint, operator, source, where=where, window=one.window)


def wrong(name: str, one: Question, found: observe.Explanation) -> str:
    """What differs from the planted answer; empty if nothing does."""
    operators = SUBJECTS[name].operator
    names = [of.name for of in (operators if isinstance(operators, list) else [operators])]
    if names.count(names[0]) > 1:
        names = [f"{of}[{at_}]" for at_, of in enumerate(names)]
    expected = None if one.operator is None else names[one.operator]
    if (found.reason, found.operator) != (one.reason, expected):
        return f"{found.reason} by {found.operator}, not {one.reason} by {expected}"
    if sorted(map(repr, _values(found))) != sorted(repr(row[-1]) for _, _, row in one.plan):
        return "other rows"
    if one.cause == "open" and not (found.due and found.due > found.watermarks[-1][1]):
        return f"due at {found.due}"
    return ""


def _values(found: observe.Explanation) -> list[Any]:
    rows = [of.arrived.row for of in found.key_rows if of.operator == _first(found)]
    return [row.get("v", row.get("w")) for row in rows]


def _first(found: observe.Explanation) -> str | None:
    return found.key_rows[0].operator if found.key_rows else None


Write = Callable[[Path, str, Sequence[Question], random.Random], Source]
"""Writes what the query reads, and its checkpoint."""


def campaign(
    count: int, seed: int, write: Write = write, names: Sequence[str] = tuple(SUBJECTS)
) -> tuple[list[str], list[float], Counter[str]]:
    """Wrong answers, seconds per question, and questions by cause."""
    rng, failures, seconds = random.Random(seed), list[str](), list[float]()
    causes = Counter[str]()
    for name in names:
        questions = plant(name, -(-count // len(names)), rng)
        with tempfile.TemporaryDirectory() as folder:
            source = write(Path(folder) / "checkpoint", name, questions, rng)
            for one in questions:
                started = time.perf_counter()
                found = ask(Path(folder) / "checkpoint", name, one, source)
                seconds.append(time.perf_counter() - started)
                causes[one.cause] += 1
                error = wrong(name, one, found)
                if error:
                    failures.append(f"{one}: {error}\n{found}")
        print(f"{name}: {_summary(failures, seconds)}", file=sys.stderr, flush=True)
    return failures, seconds, causes


def _summary(failures: Sequence[str], seconds: Sequence[float]) -> str:
    times = f"median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s"
    return f"{len(failures)} wrong of {len(seconds)}; {times}"


def main() -> None:
    """Ask as many questions as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.observe.planted")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--on", choices=("replay", "spark", "kafka"), default="replay")
    wanted = parser.parse_args()
    with contextlib.ExitStack() as stack:
        writes = write
        if wanted.on != "replay":
            from tests.observe.planted_on_spark import writer

            writes = stack.enter_context(writer(wanted.on))
        failures, seconds, causes = campaign(wanted.count, wanted.seed, writes)
    print(*failures[:20], sep="\n\n")
    print(_summary(failures, seconds), dict(causes))


if __name__ == "__main__":
    main()
