"""What an explanation has besides its reason: rows of results, states, targets, pictures, earlier operators."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import joins, observe, sinks, windows
from streamops.kernel.errors import SpecError
from streamops.observe.question import UNVERIFIED
from streamops.testing import Replay, at
from tests.observe.planted import LEFT, RIGHT
from tests.observe.test_explain import COLUMNS, DELAY, simulate, table, tumbling

BATCHES = [
    table(("a", at(5), 1), ("a", None, 9), ("b", at(6), 5)),
    table(("a", at(30), 2), ("b", at(150), 5)),
    table(("b", at(200), 5)),
    table(("a", at(10), 4), ("a", at(190), 8)),
]


def explain(folder: Path, operator: Any = None, **options: Any) -> observe.Explanation:
    if not (folder / "checkpoint").exists():
        simulate(folder / "checkpoint", operator or tumbling(), BATCHES)
    operator = operator or tumbling()
    return observe.explain(
        folder / "checkpoint", operator, observe.files(), where={"k": "a"}, **options
    )


def entry(query: str, batch: int) -> Any:
    return SimpleNamespace(read_ledger=lambda: SimpleNamespace(query=query, batch=batch))


def test_results_are_written_up_to_the_micro_batch_of_the_ledger(tmp_path: Path) -> None:
    (made,) = explain(tmp_path).key_results
    assert made.is_written is None
    for batch, is_written in ((made.batch - 1, False), (made.batch, True), (made.batch + 1, True)):
        found = explain(tmp_path, sink=entry("1", batch))
        assert [of.is_written for of in found.key_results] == [is_written]
        assert (", written" in str(found)) is is_written
        assert found.results["written"].tolist() == [is_written]
    other = explain(tmp_path, sink=entry("2", 9))
    assert [of.is_written for of in other.key_results] == [None]
    assert other.notes == (UNVERIFIED, "the ledger of the sink has an entry of another query, 2")
    none = explain(tmp_path, sink=SimpleNamespace(read_ledger=lambda: None))
    assert none.notes == (UNVERIFIED, "the ledger of the sink has no entry")


def test_the_ledger_of_a_folder(tmp_path: Path) -> None:
    sink = sinks.parquet(str(tmp_path / "target"))
    assert explain(tmp_path, sink=sink).notes == (UNVERIFIED, "the ledger of the sink has no entry")


def test_the_state_of_the_key_after_each_micro_batch(tmp_path: Path) -> None:
    found = explain(tmp_path).states
    counts = [[pane["n.count"] for pane in panes] for panes in found["panes"]]
    assert found["batch"].tolist()[:2] == [0, 1]
    assert counts[:2] == [[1], [2]]
    assert set(found["k"]) == {"a"}


def test_a_picture_has_rows_results_and_the_watermark(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    import matplotlib as mpl

    mpl.use("Agg")
    ax = explain(tmp_path).plot()
    legend = ax.get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["result", "on time", "late", "watermark"]
    lines = {str(line.get_label()): line for line in ax.lines}
    assert len(lines["on time"].get_xdata()) == 3
    assert len(lines["late"].get_xdata()) == 1
    assert list(lines["late"].get_ydata()) == [3]
    empty = observe.explain(
        tmp_path / "checkpoint", tumbling(), observe.files(), where={"k": "nobody"}
    )
    assert empty.plot(ax=ax.figure.add_subplot()).get_legend() is None


def test_an_instant_needs_a_time_zone(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="time zone"):
        explain(tmp_path, window=at(0).replace(tzinfo=None))


def test_rows_of_results_without_bounds(tmp_path: Path) -> None:
    sliding = windows.sliding("1 minute", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY)
    found = explain(tmp_path, sliding)
    rows = {of.row["ts"]: [r.arrived.row["v"] for r in of.rows] for of in found.key_results}
    # The row at 10 seconds was late; the one at 190 seconds is as of the end of the stream.
    assert rows == {at(5): [1], at(30): [1, 2], at(190): [8]}
    assert [len(of.rows) for of in found.key_results] == [of.row["n"] for of in found.key_results]


def test_a_late_row_is_no_part_of_a_later_result(tmp_path: Path) -> None:
    sliding = windows.sliding("1 minute", time="ts", by="k", agg={"n": agg.count()}, delay=DELAY)
    batches = [
        table(("b", at(150), 1)),
        table(("b", at(151), 1)),
        table(("a", at(135), 1), ("a", at(180), 2)),
        table(("b", at(300), 1)),
    ]
    simulate(tmp_path / "checkpoint", sliding, batches)
    (made,) = explain(tmp_path, sliding).key_results
    assert made.row["n"] == 1
    assert [of.arrived.row["v"] for of in made.rows] == [2]


def test_rows_of_a_join_and_its_nearest_partner(tmp_path: Path) -> None:
    operator = joins.interval(
        None, "0 seconds", "10 seconds", by="k", time=("lt", "rt"), delay=DELAY
    )
    left = pa.table([["a", "a", "a"], [at(5), at(50), at(99)], [1, 2, 3]], schema=LEFT)
    right = pa.table([["a", "a", "a"], [at(8), at(30), at(75)], [4, 5, 6]], schema=RIGHT)
    simulate(tmp_path / "checkpoint", operator, [(left, right)], (LEFT, RIGHT))

    def ask(second: float) -> observe.Explanation:
        pair = (observe.files(), observe.files())
        return observe.explain(
            tmp_path / "checkpoint", operator, pair, where={"k": "a"}, window=at(second)
        )

    (joined,) = ask(5).key_results
    assert [of.arrived.row for of in joined.rows] == [left.to_pylist()[0], right.to_pylist()[0]]
    alone = ask(50)
    assert (alone.reason, alone.operator) == ("no_partner", "joins.interval")
    # 20 seconds before it, and 25 seconds after it.
    assert "the nearest of the other input" in alone.answer
    assert "w=5" in alone.answer


def test_earlier_operators_have_the_results_of_the_query(tmp_path: Path) -> None:
    def counting(**more: Any) -> Any:
        return windows.tumbling(
            "1 minute", time="ts", by="k", agg={"n": agg.count(), **more}, delay=DELAY
        )

    before, after = counting(), counting(total=agg.sum("v"))
    batches = [*BATCHES[:2], table(("a", at(140), 4)), table(("a", at(170), 8), ("b", at(290), 1))]
    simulate(tmp_path / "checkpoint", after, batches)
    # The query was restarted with another aggregate before micro-batch 3.
    first, second = Replay(before, COLUMNS), Replay(after, COLUMNS)
    expected = [first._step((rows,)) for rows in batches[:3]]
    for mine, other in zip(second._stages, first._stages, strict=True):
        mine.stored, mine.stores = other.stored, other.stores
    second._next, second._current, second._batches = first._next, first._current, 3
    expected += [second._step((batches[3],)), second._step(None)]
    rows = [row for of in expected for row in of.rows if row["k"] == "a"]
    assert None in [row.get("total", 0) for row in rows], rows

    found = explain(tmp_path, after, earlier={3: before})
    assert [of.row for of in found.key_results] == rows
    assert [of.row for of in explain(tmp_path, after).key_results] != rows


def test_a_chain_with_other_keys_has_their_rows(tmp_path: Path) -> None:
    per_minute = windows.tumbling("5 minutes", time="window_end", agg={"most": agg.max("n")})
    results = simulate(tmp_path / "checkpoint", [tumbling(), per_minute], BATCHES)
    found = explain(tmp_path, [tumbling(), per_minute])
    assert [of.row for of in found.key_results] == [row for of in results for row in of.rows]
    assert found.notes == (UNVERIFIED,)
