"""Questions to random queries, and single cases: an answer is what the query did, or says what is not known."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamops import aggregates as agg
from streamops import observe, time, windows
from streamops.kernel.errors import ColumnNotFound, SpecError, StreamopsError
from streamops.testing import at, replay
from tests.observe.questions import ASKS, campaign
from tests.observe.test_explain import COLUMNS, simulate, table, tumbling

BATCHES = [table(("a", at(5), 1), ("b", at(6), 2)), table(("a", at(300), 4)), table()]
PER_KEY = windows.tumbling("1 minute", time="ts", by="k", agg={"n": agg.count()})


def test_answers_are_what_queries_did() -> None:
    failures, counts = campaign(48, seed=11)
    assert not failures, failures[0]
    assert counts.keys() >= {"key", "window", "mistake"}


@pytest.mark.exhaustive
def test_answers_are_what_queries_did_five_thousand_times() -> None:
    failures, counts = campaign(5_000, seed=12)
    assert not failures, failures[0]
    assert counts.keys() >= ASKS.keys()


def _repeat_lines(checkpoint: Path) -> None:
    """Let the query read its source twice, as Spark does for a union of a frame with itself."""
    for file in (checkpoint / "offsets").iterdir():
        *head, line = file.read_text().splitlines()
        file.write_text("\n".join([*head, line, line]))


def test_a_union_of_a_source_with_itself_has_its_rows_twice(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    _repeat_lines(tmp_path / "c")
    found = observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})
    assert [of.row["n"] for of in found.key_results] == [2]
    assert any("reads it twice" in note for note in found.notes)


def test_a_clock_reads_its_source_for_itself(tmp_path: Path) -> None:
    """``time.producers`` is a second branch of the plan, whose rows are not those of the operator."""
    chain = [time.producers("k", time="ts", delay="1 second", idle="1 hour"), PER_KEY]
    batches = [BATCHES[0], table(("a", at(300), 4), ("b", at(301), 4))]
    results = simulate(tmp_path / "c", chain, batches)
    _repeat_lines(tmp_path / "c")
    found = observe.explain(tmp_path / "c", chain, observe.files(), where={"k": "a"})
    assert [of.row for of in found.key_results] == [
        r for b in results for r in b.rows if r["k"] == "a"
    ]
    assert found.key_results
    assert found.key_rows[0].operator == "windows.tumbling"
    assert not any("twice" in note for note in found.notes)


def test_a_replay_of_a_clock_can_be_flushed() -> None:
    chain = [time.producers("k", time="ts", delay="1 second", idle="1 hour"), PER_KEY]
    *_, last = replay(chain, [BATCHES[0]], flush=True)
    assert sorted(row["n"] for row in last.rows) == [1, 1]


def test_an_answer_about_one_window_has_one_window(tmp_path: Path) -> None:
    rows = [("a", at(60 * minute + n), n) for minute in range(4) for n in range(30)]
    simulate(tmp_path / "c", tumbling(), [table(*rows), table(("a", at(900), 1)), table()])
    found = observe.explain(
        tmp_path / "c", tumbling(), observe.files(), where={"k": "a"}, window=at(0)
    )
    lines = str(found).splitlines()
    assert sum("on time" in line for line in lines) == 20
    assert "and 10 more rows" in lines
    assert "and 91 rows outside of the window" in lines


def test_columns_may_be_names_of_folders(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    log = tmp_path / "c" / "sources" / "0"
    for number, (key, rows) in enumerate(zip("ab", BATCHES[:2], strict=True)):
        path = tmp_path / f"k={key}" / "0.parquet"
        path.parent.mkdir()
        pq.write_table(rows.drop_columns("k"), path)
        stamp = path.stat().st_mtime_ns // 1_000_000
        entry = {"path": path.as_uri(), "timestamp": stamp, "batchId": number}
        (log / str(number)).write_text(f"v1\n{json.dumps(entry)}")
    source = observe.files(schema="k string, ts timestamp, v bigint")
    found = observe.explain(tmp_path / "c", tumbling(), source, where={"k": "a"})
    assert [(of.row["n"], of.row["total"]) for of in found.key_results] == [(2, 3)]
    with pytest.raises(ColumnNotFound, match="names of folders"):
        observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})


def test_upper_and_lower_case_of_columns_are_the_same(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    for path in tmp_path.glob("*.parquet"):
        stamp = path.stat().st_mtime_ns
        pq.write_table(pq.read_table(path).rename_columns(["K", "Ts", "v"]), path)
        assert path.stat().st_mtime_ns >= stamp
    found = observe.explain(
        tmp_path / "c", tumbling(), observe.files(schema=COLUMNS), where={"k": "a"}
    )
    assert [of.row["n"] for of in found.key_results] == [1]


@pytest.mark.parametrize("schema", ["k strin", "k", "k string,,", "", 7, {"k": 7}])
def test_a_bad_schema_is_explained(schema: object) -> None:
    with pytest.raises(StreamopsError):
        observe.files(format="json", schema=schema)  # type: ignore[arg-type]


def test_a_source_of_another_format_is_named(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    for file in (tmp_path / "c" / "offsets").iterdir():
        file.write_text(file.read_text() + '\n{"topic":{"0":7}}')
    with pytest.raises(SpecError, match="source 1 of the query is of another kind"):
        observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})
    source = observe.files(number=0)
    found = observe.explain(tmp_path / "c", tumbling(), source, where={"k": "a"})
    assert any("source 1 of the query is not read" in note for note in found.notes)


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    damaged = next(tmp_path.glob("*.parquet"))
    before = damaged.stat()
    damaged.write_bytes(damaged.read_bytes()[:-4])
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(StreamopsError, match=re.escape(damaged.name.replace(" ", "%20"))):
        observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})


def test_a_checkpoint_of_spark_3_5_is_answered_with_a_note(tmp_path: Path) -> None:
    """It has a folder per operator, without metadata."""
    simulate(tmp_path / "c", tumbling(), BATCHES)
    (tmp_path / "c" / "state" / "0" / "0").mkdir(parents=True)
    found = observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})
    assert [of.row["n"] for of in found.key_results] == [1]
    assert any("CHECKPOINT_UNSUPPORTED" in note for note in found.notes)


def test_many_files_are_a_number_in_notes(tmp_path: Path) -> None:
    batches = [table(("a", at(second), 1)) for second in range(9)]
    simulate(tmp_path / "c", tumbling(), batches)
    for path in sorted(tmp_path.glob("*.parquet"))[1:]:
        path.unlink()
    found = observe.explain(tmp_path / "c", tumbling(), observe.files(), where={"k": "a"})
    assert sum("does not exist any more" in note for note in found.notes) == 3
    assert "the same is true of 5 more" in found.notes


def test_a_prepare_must_return_a_table(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    source = observe.files(prepare=lambda rows: rows.to_pandas())  # type: ignore[arg-type,return-value]
    with pytest.raises(SpecError, match="`prepare` does not return a Table"):
        observe.explain(tmp_path / "c", tumbling(), source, where={"k": "a"})
    assert isinstance(BATCHES[0], pa.Table)


def _chain(*before: object, **more: object) -> list[object]:
    agg_ = {"n": agg.count(), **more}
    return [*before, windows.tumbling("1 minute", time="ts", by="k", agg=agg_)]  # type: ignore[arg-type]


def test_earlier_operators_of_a_chain_begin_with_its_clock(tmp_path: Path) -> None:
    clock = time.producers("k", time="ts", delay="1 second", idle="1 hour")
    simulate(tmp_path / "c", _chain(clock), [*BATCHES, table(("a", at(900), 1))])
    found = observe.explain(
        tmp_path / "c",
        _chain(clock, total=agg.sum("v")),
        observe.files(),
        where={"k": "a"},
        earlier={1: _chain(clock)},
    )
    assert found.key_rows
    assert all("total" in of.row for of in found.key_results)


def test_a_change_before_what_is_read_has_happened(tmp_path: Path) -> None:
    simulate(tmp_path / "c", tumbling(), [*BATCHES, table(("a", at(900), 1)), table()])
    before = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count()}, delay="10 seconds"
    )
    found = observe.explain(
        tmp_path / "c", tumbling(), observe.files(), where={"k": "a"}, since=1, earlier={1: before}
    )
    assert found.key_results
    assert all(of.row["total"] is not None for of in found.key_results)


ROLLUP = [
    windows.tumbling("1 minute", time="ts", by=["s", "p"], delay="10 seconds", agg={"n": agg.count()}),
    windows.tumbling("5 minutes", time="window_end", by="s", agg={"n": agg.sum("n")}),
]  # fmt: skip
PAGES = pa.schema([("s", pa.string()), ("p", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize(
    ("page", "sites", "reason"), [("x", ["S"], "result"), ("z", [], "no_rows")]
)
def test_results_without_the_key_are_those_that_it_is_part_of(
    tmp_path: Path, page: str, sites: list[str], reason: str
) -> None:
    """The next operator has rows of other keys in the same window."""
    script = [[("S", "x", at(5)), ("T", "y", at(6))], [("T", "y", at(900))], [("T", "y", at(2000))]]
    batches = [pa.table(list(map(list, zip(*of, strict=True))), schema=PAGES) for of in script]
    simulate(tmp_path / "c", ROLLUP, batches, schema=PAGES)
    found = observe.explain(tmp_path / "c", ROLLUP, observe.files(), where={"p": page})
    assert found.reason == reason
    assert [of.row["s"] for of in found.key_results] == sites


@pytest.mark.parametrize(
    "question",
    [
        *({"where": of} for of in (None, [], "k", 7)),
        *({"result": of} for of in ("n", 7, ["n"])),
        *({"earlier": of} for of in (7, [tumbling()], {"x": tumbling()}, {-1: tumbling()},
                                     {2: [tumbling(), tumbling()]}, {2: 7})),
        *({"source": of} for of in (None, 7, "x", [7], observe.files(number=True),
                                    observe.files(columns={"kk": "k"}),
                                    observe.files(prepare=3))),  # type: ignore[arg-type]
        *({"operator": of} for of in (None, 7, [], [7], "x")),
    ],
    ids=str,
)  # fmt: skip
def test_an_odd_question_has_a_code(tmp_path: Path, question: dict[str, object]) -> None:
    simulate(tmp_path / "c", tumbling(), BATCHES)
    given: dict[str, Any] = {"where": {"k": "a"}, **question}
    operator, source = given.pop("operator", tumbling()), given.pop("source", observe.files())
    with pytest.raises(StreamopsError):
        observe.explain(tmp_path / "c", operator, source, **given)
