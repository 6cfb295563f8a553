"""Random queries, and questions to them: answers are what the query did, and notes say what is not known.

    python -m tests.observe.questions 5000

asks so many, and prints what was wrong. The oracle is the whole query, with all keys and its own shards: it does not
look at what an explanation reads.
"""

from __future__ import annotations

import argparse
import datetime as dt
import decimal
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamops import aggregates as agg
from streamops import changes, observe, sketches, time, windows
from streamops.kernel.errors import StreamopsError
from streamops.kernel.values import comparable, same
from streamops.observe.question import UNVERIFIED
from streamops.testing import Replay, at
from tests.observe.test_explain import write_checkpoint

Rows = list[tuple[Any, ...]]
_INSTANT = pa.timestamp("us", tz="UTC")

KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "b", "", None]),
    "integer": (pa.int32(), [1, -1, 2**31 - 1, None]),
    "double": (pa.float64(), [float("nan"), -0.0, 0.5, float("inf"), None]),
    "binary": (pa.binary(), [b"", b"a", b"\xff", None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [dt.date(2024, 1, 1), dt.date(1, 1, 1), None]),
    "decimal": (pa.decimal128(10, 2), [decimal.Decimal("1.10"), decimal.Decimal("-0.01"), None]),
    "instant": (_INSTANT, [at(0), at(1), None]),
    "local": (pa.timestamp("us"), [at(0).replace(tzinfo=None), at(0.5).replace(tzinfo=None), None]),
    "struct": (
        pa.struct([("x", pa.int64()), ("y", pa.float64())]),
        [{"x": 1, "y": float("nan")}, {"x": None, "y": 0.0}, None],
    ),
}


def _schema(key: pa.DataType) -> pa.Schema:
    return pa.schema(
        [("k", key), ("ts", _INSTANT), ("v", pa.int64()), ("d", pa.string()), ("lsn", pa.int64())]
    )


def _tumbling(**options: Any) -> Any:
    of = {"n": agg.count(), "total": agg.sum("v")}
    return windows.tumbling("1 minute", time="ts", by="k", agg=of, **options)


DELAY = "10 seconds"
OPERATORS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: _tumbling(delay=DELAY),
    "update": lambda: _tumbling(delay=DELAY, allowed_lateness="1 minute", stragglers="update"),
    "session": lambda: windows.session(
        "20 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY
    ),
    "sliding": lambda: windows.sliding(
        "1 minute", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY
    ),
    "producers": lambda: [time.producers("d", time="ts", delay=DELAY, idle="1 hour"), _tumbling()],
    "seen": lambda: sketches.seen("k", capacity=1000, time="ts", horizon="1 minute"),
    "latest": lambda: changes.normalize("k", sequence="lsn", horizon=40),
    "history": lambda: changes.apply("k", sequence="lsn", horizon=40, history="intervals"),
    "other keys": lambda: [
        _tumbling(delay=DELAY),
        windows.tumbling("5 minutes", time="window_end", agg={"n": agg.sum("n")}),
    ],
}
_OF_CHANGES = {"latest", "history"}
_SHARED = {"seen", *_OF_CHANGES}
"""Operators of which other keys move the clock."""


@dataclass
class Query:
    """A query that ran, and what is known of it."""

    name: str
    key_type: str
    folder: Path
    schema: pa.Schema
    operator: Any
    sources: int
    keys: list[Any]
    results: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    arrived: list[tuple[int, Any]] = field(default_factory=list)
    upstream: list[dict[str, Any]] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint."""
        return self.folder / "checkpoint"


def simulate(folder: Path, rng: random.Random) -> Query:
    """Run a random query over random files."""
    name = rng.choice(list(OPERATORS))
    group = "text" if name in _OF_CHANGES or rng.random() < 0.3 else rng.choice(list(KEYS))
    dtype, values = KEYS[group]
    schema, operator = _schema(dtype), OPERATORS[name]()
    if name in _OF_CHANGES:
        values = ["a", "b", "c"]
        schema = schema.insert(0, pa.field("_change_type", pa.string()))
    if name in _SHARED:
        operator = operator.options(shards=rng.choice([1, 2, 3]))
    query = Query(name, group, folder, schema, operator, rng.choice([1, 1, 2, 3]), values)
    running, marks, inputs, clock = Replay(operator, schema), [], [], 0.0
    # A chain reports the rows of its last operator only.
    before = Replay(operator[0], schema) if name == "other keys" else None
    for _ in range(rng.randint(2, 6)):
        tables = []
        for _ in range(query.sources):
            rows: Rows = []
            for _ in range(rng.choice([0, 1, 3, 6])):
                clock += rng.choice([0, 1, 5, 30])
                late = rng.choice([0, 0, 0, 5, 40, 150])
                stamp = None if rng.random() < 0.05 else at(max(0, clock - late))
                row = (rng.choice(values), stamp, rng.randint(0, 9), rng.choice("xy"),
                       max(0, int(clock - late)))  # fmt: skip
                rows.append(("update_postimage", *row) if name in _OF_CHANGES else row)
                query.arrived.append((len(marks), row[0]))
            columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * len(schema)
            tables.append(pa.table(columns, schema=schema))
        marks.append(running._next)
        together = (pa.concat_tables(tables).combine_chunks(),)
        step = running._step(together)
        query.results += ((len(marks) - 1, row) for row in step.rows)
        query.upstream += [] if before is None else before._step(together).rows
        inputs.append(tuple([table] if len(table) else [] for table in tables))
    while running._next > running._current:
        marks.append(running._next)
        step = running._step(None)
        query.results += ((len(marks) - 1, row) for row in step.rows)
        query.upstream += [] if before is None else before._step(None).rows
        inputs.append(tuple([] for _ in range(query.sources)))
    write_checkpoint(query.checkpoint, inputs, marks, running._next)
    return query


def _sorted(results: Sequence[tuple[int, dict[str, Any]]]) -> list[Any]:
    return sorted((batch, comparable(row)) for batch, row in results)


def _ask(query: Query, **question: Any) -> observe.Explanation | StreamopsError:
    operator = question.pop("operator", query.operator)
    source = question.pop("source", None) or observe.files(schema=query.schema)
    try:
        return observe.explain(query.checkpoint, operator, source, **question)
    except StreamopsError as error:
        return error


def _of_key(query: Query, key: Any) -> list[tuple[int, dict[str, Any]]]:
    """The results of a key; without a column of it, those of windows in which it has rows."""
    ends = [of["window_end"] for of in query.upstream if "k" in of and same(of["k"], key)]
    return [
        (n, row) for n, row in query.results
        if (same(row["k"], key) if "k" in row
            else any(row["window_start"] <= end < row["window_end"] for end in ends))
    ]  # fmt: skip


def _expected_notes(query: Query) -> Counter[str]:
    return Counter(["UNVERIFIED"] + (["shards"] if query.name in _SHARED else []))


def _group_of(note: str) -> str:
    groups = {UNVERIFIED: "UNVERIFIED", "rows of other keys of a shard": "shards",
             "was written again": "rewritten", "does not exist any more": "missing", "the same is true": "more",
             "is not read": "unread", "are not read": "since"}  # fmt: skip
    return next((group for text, group in groups.items() if text in note), note)


def ask_key(query: Query, rng: random.Random) -> str:
    """The results and rows of a key are those of the query, and there are no other notes."""
    key = rng.choice(query.keys)
    found = _ask(query, where={"k": key})
    if isinstance(found, StreamopsError):
        return str(found)
    mine = [(of.batch, of.row) for of in found.key_results]
    if _sorted(mine) != _sorted(_of_key(query, key)):
        return f"{mine}, not {_of_key(query, key)}"
    rows = [of.batch for of in found.key_rows if of.operator == found.key_rows[0].operator]
    if sorted(rows) != [
        n for n, value in sorted(query.arrived, key=lambda of: of[0]) if same(value, key)
    ]:
        return f"rows of {rows}"
    if Counter(map(_group_of, found.notes)) != _expected_notes(query):
        return f"notes {found.notes}"
    return "" if str(found) else "no text"


def ask_window(query: Query, rng: random.Random) -> str:
    """An answer about one window has the results of it, and counts all other rows; text is an instant."""
    key, within = rng.choice(query.keys), at(60 * rng.randint(0, 8) + rng.choice([0, 30]))
    found = _ask(query, where={"k": key}, window=rng.choice([within, within.isoformat()]))
    if isinstance(found, StreamopsError):
        return str(found)
    expected = [
        (n, row) for n, row in _of_key(query, key)
        if (row["window_start"] <= within < row["window_end"] if "window_start" in row
            else within in [of for of in row.values() if isinstance(of, dt.datetime) and of.tzinfo])
    ]  # fmt: skip
    if _sorted([(of.batch, of.row) for of in found.key_results]) != _sorted(expected):
        return f"{found.key_results}, not {expected}"
    if found.reason == "result" and not expected:
        return "a result"
    lines = len(str(found).splitlines())
    return "" if lines < 45 + len(found.notes) else f"{lines} lines"


def ask_changed_files(query: Query, rng: random.Random) -> str:
    """Each file that was deleted or written again is named, and no other one."""
    files = sorted(query.folder.glob("*.parquet"))
    changed, expected = rng.sample(files, min(len(files), rng.randint(0, 2))), Counter[str]()
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in changed}
    for path in changed:
        what = rng.choice(["rewritten", "missing", "kept"])
        expected[what] += what != "kept"
        path.unlink()
        if what != "missing":
            pq.write_table(pa.table([[]] * len(query.schema), schema=query.schema), path)
            if what == "kept":
                path.write_bytes(before[path][0])
        if what == "kept":
            os.utime(path, ns=(before[path][1],) * 2)
        elif what == "rewritten":
            os.utime(path, ns=(before[path][1] + 5_000_000,) * 2)
    found = _ask(query, where={"k": rng.choice(query.keys)})
    for path, (content, stamp) in before.items():
        path.write_bytes(content)
        os.utime(path, ns=(stamp, stamp))
    if isinstance(found, StreamopsError):
        return str(found)
    groups = Counter(map(_group_of, found.notes))
    return "" if groups == _expected_notes(query) + +expected else f"{found.notes}, not {expected}"


def ask_since(query: Query, rng: random.Random) -> str:
    """Only later micro-batches are read; results without earlier rows are those of the query."""
    since, key = rng.randint(0, 7), rng.choice(query.keys)
    found = _ask(query, where={"k": key}, since=since)
    if isinstance(found, StreamopsError):
        return str(found)
    if any(of.batch < since for of in (*found.key_rows, *found.key_results)):
        return "an earlier micro-batch"
    last = max((int(of.name) for of in (query.checkpoint / "offsets").iterdir()), default=0)
    expected = _expected_notes(query) + Counter(["since"] if since > 0 else [])
    if Counter(map(_group_of, found.notes)) != (expected if since <= last else Counter()):
        return f"notes {found.notes}"
    if query.name == "tumbling" and not any(n < since for n, _ in query.arrived):
        mine = [(of.batch, of.row) for of in found.key_results]
        return "" if _sorted(mine) == _sorted(_of_key(query, key)) else f"{mine}"
    return ""


def ask_one_source(query: Query, rng: random.Random) -> str:
    """A source that is not read is noted."""
    number = rng.randrange(query.sources)
    source = observe.files(schema=query.schema, number=number)
    found = _ask(query, where={"k": rng.choice(query.keys)}, source=source)
    if isinstance(found, StreamopsError):
        return str(found)
    return (
        ""
        if Counter(map(_group_of, found.notes))["unread"] == query.sources - 1
        else f"{found.notes}"
    )


def ask_mistake(query: Query, rng: random.Random) -> str:
    """A mistaken question is an error that says so, and never "no row"."""
    key = rng.choice([of for of in query.keys if of is not None])
    wrong: Any = ("7" if query.key_type != "text" else 7) if query.key_type != "binary" else "a"
    mistakes: list[tuple[str, dict[str, Any]]] = [
        ("COLUMN_NOT_FOUND", {"where": {"kk": key}}),
        ("COLUMN_NOT_FOUND", {"where": {"v": 1}}),
        ("COLUMN_NOT_FOUND", {"where": {"k": key}, "result": {"totl": 3}}),
        ("VALUE_TYPE", {"where": {"k": wrong}}),
        ("VALUE_TYPE", {"where": {"k": object()}}),
        ("INVALID_PARAMETER", {"where": {"k": key}, "window": "today"}),
        ("INVALID_PARAMETER", {"where": {"k": key}, "window": (at(60), at(0))}),
        ("PARAMETER_TYPE", {"where": {"k": key}, "since": -1}),
        ("INVALID_PARAMETER", {"where": {"k": key}, "source": observe.files(number=9)}),
        ("COLUMN_NOT_FOUND", {"where": {"k": key}, "source": observe.files(
            prepare=lambda rows: rows.rename_columns([f"x{n}" for n in rows.column_names]))}),
    ]  # fmt: skip
    if query.name in ("tumbling", "update"):
        mistakes.append(("INVALID_PARAMETER", {"where": {"k": key}, "window": (at(1), at(61))}))
    code, question = rng.choice(mistakes)
    found = _ask(query, **question)
    return "" if isinstance(found, StreamopsError) and found.code == code else f"{code}: {found}"


def ask_other_operator(query: Query, rng: random.Random) -> str:
    """Another number of operators than in the folder of the states is an error."""
    chain = query.operator if isinstance(query.operator, list) else [query.operator]
    api = '{"operatorInfo":{"operatorName":"transformWithStateInPandasExec"},"stateStoreInfo":[{"storeName":' \
          '"default","numPartitions":1}],"operatorPropertiesJson":"{\\"stateVariables\\":[{\\"stateName\\":\\"stored\\"}]}"}'  # fmt: skip
    count = len(chain) + rng.choice([0, 1])
    for number in range(count):
        folder = query.checkpoint / "state" / str(number) / "_metadata" / "v2"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "0").write_text(f"v2\n{api}")
    found = _ask(query, where={"k": rng.choice(query.keys)})
    for path in sorted((query.checkpoint / "state").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (query.checkpoint / "state").rmdir()
    if count == len(chain):
        return str(found) if isinstance(found, StreamopsError) else ""
    is_refused = isinstance(found, StreamopsError) and "not that of the query" in str(found)
    return "" if is_refused else f"{count} operators: {found}"


ASKS: dict[str, Callable[[Query, random.Random], str]] = {
    "key": ask_key,
    "window": ask_window,
    "changed files": ask_changed_files,
    "since": ask_since,
    "one source": ask_one_source,
    "mistake": ask_mistake,
    "other operator": ask_other_operator,
}


def campaign(count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """What was wrong, and how many questions there were of each group."""
    failures, counts, number = list[str](), Counter[str](), 0
    while counts.total() < count:
        number += 1
        if number % 20 == 0:
            print(f"{len(failures)} wrong of {counts.total()}", *failures[-1:], file=sys.stderr)
        rng = random.Random(f"{seed} {number}")
        with tempfile.TemporaryDirectory() as folder:
            query = simulate(Path(folder), rng)
            if not query.arrived:
                continue
            for _ in range(12):
                group = rng.choice([*ASKS, "key", "key", "window"])
                error = ASKS[group](query, rng)
                counts[f"{group}"] += 1
                counts[query.name] += 0
                if error:
                    failures.append(
                        f"query {seed} {number}, {query.name} by {query.key_type}, {group}: {error}"
                    )
    return failures, counts


def main() -> None:
    """Ask as many questions as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.observe.questions")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    failures, counts = campaign(wanted.count, wanted.seed)
    print(*failures[:20], sep="\n\n")
    print(f"{len(failures)} wrong of {counts.total()}: {dict(counts)}")


if __name__ == "__main__":
    main()
