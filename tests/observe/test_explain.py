"""One key of a query, replayed from a checkpoint that this module writes as Spark does."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops import aggregates as agg
from streamops import joins, observe, windows
from streamops.kernel.errors import ColumnNotFound, SpecError, StreamopsError
from streamops.observe.question import UNVERIFIED
from streamops.testing import Replay, at

COLUMNS = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
DELAY = "10 seconds"


def write_checkpoint(
    folder: Path, inputs: list[tuple[list[pa.Table], ...]], marks: list[int], last: int
) -> Path:
    """Write micro-batches: ``inputs`` has the files of each source in each of them, or none at all."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"1"}')
    sources = max(len(tables) for tables in inputs)
    logs = [-1] * sources
    for source in range(sources):  # as Spark makes them before there is a file
        (folder / "sources" / str(source)).mkdir(parents=True)
    for batch, (tables, mark) in enumerate(zip(inputs, marks, strict=True)):
        for source, files in enumerate(tables):
            if not files:
                continue
            logs[source] += 1
            log = folder / "sources" / str(source)
            entries = []
            for number, table in enumerate(files):
                path = folder.parent / f"input {source}-{batch}-{number}.parquet"
                pq.write_table(table, path)
                stamp = path.stat().st_mtime_ns // 1_000_000
                entry = {"path": path.as_uri(), "timestamp": stamp, "batchId": logs[source]}
                entries.append(entry)
            lines = map(json.dumps, entries)
            (log / str(logs[source])).write_text("\n".join(["v1", *lines]))
        head = json.dumps({"batchWatermarkMs": mark, "batchTimestampMs": 1, "conf": {}})
        ends = ["-" if end < 0 else json.dumps({"logOffset": end}) for end in logs]
        (folder / "offsets" / str(batch)).write_text("\n".join(["v1", head, *ends]))
        following = marks[batch + 1] if batch + 1 < len(marks) else last
        commit = json.dumps({"nextBatchWatermarkMs": following})
        (folder / "commits" / str(batch)).write_text(f"v1\n{commit}")
    return folder


def simulate(folder: Path, operator: Any, batches: list[Any], schema: Any = COLUMNS) -> Any:
    """Run a query, and write its checkpoint. Returns all results."""
    query = Replay(operator, schema)
    marks, inputs, results = [], [], []
    schemas = schema if isinstance(schema, tuple) else (schema,)
    for batch in batches:
        tables = (batch,) if len(schemas) == 1 else batch
        marks.append(query._next)
        results.append(query._step(tables))
        inputs.append(tuple([table] if len(table) else [] for table in tables))
    while query._next > query._current:
        marks.append(query._next)
        results.append(query._step(None))
        inputs.append(tuple([] for _ in schemas))
    write_checkpoint(folder, inputs, marks, query._next)
    return results


def table(*rows: tuple[Any, Any, Any]) -> pa.Table:
    """Rows of a key, a time and a value."""
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
    return pa.table(columns, schema=COLUMNS)


def tumbling(**options: Any) -> Any:
    return windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count(), "total": agg.sum("v")}, delay=DELAY,
        **options,
    )  # fmt: skip


OPERATORS = {
    "tumbling": tumbling(),
    "update": tumbling(allowed_lateness="1 minute", stragglers="update"),
    "hopping": windows.hopping(
        "1 minute", "30 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY
    ),
    "session": windows.session(
        "20 seconds", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY
    ),
    "sliding": windows.sliding("1 minute", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY),
    "chain": [
        tumbling(),
        windows.tumbling("5 minutes", time="window_end", by="k", agg={"most": agg.max("n")}),
    ],
}


def history(seed: int, batches: int = 12) -> list[pa.Table]:
    """Random micro-batches of four keys: late rows, null times, and empty ones."""
    rng, found, clock = random.Random(seed), [], 0.0
    for _ in range(batches):
        rows = []
        for _ in range(rng.randint(0, 8)):
            clock += rng.choice([0, 1, 5, 20])
            late = rng.choice([0, 0, 0, 5, 40, 150])
            time = None if rng.random() < 0.05 else at(max(0, clock - late))
            rows.append(
                (rng.choice("abc") if rng.random() < 0.9 else None, time, rng.randint(0, 9))
            )
        found.append(table(*rows))
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", OPERATORS)
def test_the_replay_of_a_key_has_the_results_of_the_query(
    tmp_path: Path, name: str, seed: int
) -> None:
    results = simulate(tmp_path / "checkpoint", OPERATORS[name], history(seed))
    for key in ("a", "b", "c", None):
        found = observe.explain(
            tmp_path / "checkpoint", OPERATORS[name], observe.files(), where={"k": key}
        )
        expected = [(of.batch, row) for of in results for row in of.rows if row["k"] == key]
        replayed = [(of.batch, of.row) for of in found.key_results]
        assert sorted(map(repr, replayed)) == sorted(map(repr, expected))
        assert str(found)


def test_each_planted_cause_is_the_reason(tmp_path: Path) -> None:
    batches = [
        table(("a", at(5), 1), ("a", at(30), 2), ("b", at(20), 5), ("r", None, 1)),
        table(("b", at(200), 1)),
        table(("b", at(201), 1)),
        table(("a", at(50), 7), ("late", at(10), 1), ("open", at(210), 1)),
    ]
    operator = tumbling()
    simulate(tmp_path / "checkpoint", operator, batches)

    def ask(key: str, second: float) -> observe.Explanation:
        return observe.explain(
            tmp_path / "checkpoint", operator, observe.files(), where={"k": key}, window=at(second)
        )

    counted = ask("a", 0)
    assert counted.reason == "result"
    assert counted.key_results[0].row["total"] == 3
    assert [of.arrived.row["v"] for of in counted.key_results[0].rows] == [1, 2]
    outcomes = [(of.batch, of.arrived.outcome) for of in counted.key_rows]
    assert outcomes == [(0, "on_time"), (0, "on_time"), (3, "too_late")]
    assert (
        counted.key_rows[2].arrived.lateness == 140 * 1_000_000
    )  # the watermark of micro-batch 2 is 200 s - 10 s
    assert "1 row was late" in counted.answer
    assert ask("late", 0).reason == "late"
    assert ask("nobody", 0).answer == "no row of k='nobody' arrived"
    assert ask("a", 600).answer.startswith("no row of k='a' in this window arrived; the nearest is")
    assert ask("a", 600).reason == "no_rows"
    assert ask("r", 0).reason == "rejected"
    pending = ask("open", 210)
    assert pending.reason == "open"
    # The window ends after 240 seconds, which is what the watermark must reach.
    assert pending.due == int(at(240).timestamp() * 1_000)


def test_due_is_the_first_watermark_with_the_result(tmp_path: Path) -> None:
    simulate(tmp_path / "checkpoint", OPERATORS["session"], [table(("a", at(7), 1))])
    found = observe.explain(
        tmp_path / "checkpoint", OPERATORS["session"], observe.files(), where={"k": "a"}
    )
    assert found.reason == "open"
    assert found.due == int(at(27).timestamp() * 1_000)


def test_an_answer_has_the_watermark_that_its_rows_met(tmp_path: Path) -> None:
    """Spark's is lower by the allowed lateness."""
    operator = tumbling(allowed_lateness="1 hour", stragglers="update")
    batches = [table(("a", at(second), 1)) for second in (5, 4_000, 4_001, 4_002)]
    simulate(tmp_path / "checkpoint", operator, batches)
    found = observe.explain(
        tmp_path / "checkpoint", operator, observe.files(), where={"k": "a"}, window=at(4_000)
    )
    mark, end = at(3_992), at(4_020)
    text = "%Y-%m-%d %H:%M:%SZ"
    assert (
        found.answer
        == f"the result is open until the watermark is {end:{text}}; it is {mark:{text}}"
    )
    assert f"watermark {at(3_990):{text}}" in str(found)


def test_a_micro_batch_without_a_commit_is_noted(tmp_path: Path) -> None:
    simulate(tmp_path / "checkpoint", tumbling(), [table(("a", at(5), 1)), table(("a", at(6), 2))])
    last = max(map(int, os.listdir(tmp_path / "checkpoint/commits")))
    (tmp_path / f"checkpoint/commits/{last}").unlink()
    found = observe.explain(tmp_path / "checkpoint", tumbling(), observe.files(), where={"k": "a"})
    assert found.notes == (
        UNVERIFIED,
        f"micro-batch {last} is not committed: the query is in it, or failed in it",
    )


def test_removed_files_and_plans_are_noted(tmp_path: Path) -> None:
    batches = [table(("a", at(5), 1)), table(("a", at(6), 2)), table(("a", at(200), 2))]
    simulate(tmp_path / "checkpoint", tumbling(), batches)
    (tmp_path / "input 0-1-0.parquet").unlink()
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()
    found = observe.explain(tmp_path / "checkpoint", tumbling(), observe.files(), where={"k": "a"})
    assert any("input%200-1-0" in note or "input 0-1-0" in note for note in found.notes)
    assert any("no plan before micro-batch 1" in note for note in found.notes)
    assert found.key_results[0].row["total"] == 1


def test_prepare_and_columns(tmp_path: Path) -> None:
    names = ["page", "ts", "v"]
    batches = [table(("a", at(5), 1), ("b", at(6), 2)), table(("a", at(200), 2))]
    simulate(tmp_path / "checkpoint", tumbling(), batches)
    for path in tmp_path.glob("*.parquet"):
        pq.write_table(pq.read_table(path).rename_columns(names), path)
    read = []

    def prepare(rows: pa.Table) -> pa.Table:
        read.append(len(rows))
        return rows.rename_columns(["k", "ts", "v"])

    source = observe.files(prepare=prepare, columns={"k": "page"})
    found = observe.explain(tmp_path / "checkpoint", tumbling(), source, where={"k": "a"})
    assert [of.row["n"] for of in found.key_results] == [1]
    assert sum(read) == 2  # the reader has skipped the row of the other key


def test_a_join_without_a_partner(tmp_path: Path) -> None:
    left = pa.schema([("k", pa.string()), ("lt", pa.timestamp("us", tz="UTC"))])
    right = pa.schema([("k", pa.string()), ("rt", pa.timestamp("us", tz="UTC"))])
    operator = joins.interval(
        None, "0 seconds", "10 seconds", by="k", time=("lt", "rt"), delay=DELAY
    )
    of = [
        (
            pa.table([["a", "b"], [at(5), at(5)]], schema=left),
            pa.table([["a"], [at(8)]], schema=right),
        ),
        (pa.table([["a"], [at(99)]], schema=left), pa.table([["a"], [at(200)]], schema=right)),
        (left.empty_table(), pa.table([["a"], [at(201)]], schema=right)),
    ]
    results = simulate(tmp_path / "checkpoint", operator, of, (left, right))
    pair = (observe.files(), observe.files())
    found = observe.explain(tmp_path / "checkpoint", operator, pair, where={"k": "a"})
    assert [r.row for r in found.key_results] == [r for b in results for r in b.rows]
    alone = observe.explain(tmp_path / "checkpoint", operator, pair, where={"k": "b"})
    assert alone.reason == "no_partner"


def test_parameters(tmp_path: Path) -> None:
    simulate(tmp_path / "checkpoint", tumbling(), [table(("a", at(5), 1))])
    with pytest.raises(ColumnNotFound, match="v"):
        observe.explain(tmp_path / "checkpoint", tumbling(), observe.files(), where={"v": 1})
    with pytest.raises(SpecError, match="source"):
        observe.explain(
            tmp_path / "checkpoint", tumbling(), (observe.files(),) * 2, where={"k": "a"}
        )
    with pytest.raises(StreamopsError, match="no "):
        observe.explain(tmp_path / "none", tumbling(), observe.files(), where={"k": "a"})
