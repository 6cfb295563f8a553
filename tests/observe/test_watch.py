"""The live view, of progress that Spark reported. No Spark."""

from __future__ import annotations

import doctest
import importlib
import io
import re
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress
from rich.console import Console

from streamops import observe
from streamops.errors import SpecError
from streamops.observe.watch import View, build_view, render, to_html
from tests.observe.recorded import QUERIES, SECRET, assert_no_values, parsed, recorded, totals_of


class Replayed:
    """A query that reports recorded progress, some micro-batches per request, and then ends."""

    def __init__(self, name: str, step: int = 1, error: Exception | None = None) -> None:
        self._all = [StreamingQueryProgress.fromJson(json) for json in recorded(name)]
        self._step, self._error, self._reached = step, error, 0
        self.requests: list[str] = []

    @property
    def isActive(self) -> bool:
        self._reached += self._step
        return self._reached < len(self._all)

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        self.requests.append("last")
        return self._reported[-1] if self._reported else None

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        self.requests.append("recent")
        return self._reported

    def exception(self) -> Exception | None:
        return self._error

    @property
    def _reported(self) -> list[StreamingQueryProgress]:
        return self._all[: max(self._reached, 0)]


def view_of(query: str, status: str = "running") -> View:
    ((_, totals),) = totals_of(query)
    return build_view(totals, parsed(query), status)


def text_of(view: View) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(render(view))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_view_has_the_facts_of_the_query() -> None:
    view = view_of("views")
    facts = dict(view.facts)
    assert view.title == "query views: running, micro-batch 11"
    assert facts["rows"] == "30 in 12 micro-batches"
    assert facts["watermark"] == "2024-01-01 00:01:30Z"
    assert (facts["late rows"], facts["corrections"]) == ("2", "0")
    assert re.fullmatch(r"0\.0  [▁-█]{12}", facts["rows per second"])
    assert "behind Kafka" not in facts
    assert "lateness" not in facts


def test_the_view_has_the_operators_with_late_rows_and_state() -> None:
    table = view_of("views").operators
    assert table is not None
    rows = {row[0]: dict(zip(table.columns[1:], row[1:], strict=True)) for row in table.rows}
    tumbling = rows["tumbling"]
    assert (tumbling["rows"], tumbling["late"], tumbling["corrections"]) == ("30", "2", "0")
    assert tumbling["state rows"].isdigit()
    assert tumbling["state"].endswith(" kB")
    assert rows["mine"]["late"] == "–"


def test_the_view_has_the_time_of_each_phase() -> None:
    table = view_of("clocks").phases
    assert table is not None
    assert table.rows[0][0] in {"addBatch", "queryPlanning"}
    assert 90 <= sum(int(row[-1].removesuffix(" %")) for row in table.rows) <= 103


def test_a_query_without_event_time_has_no_watermark() -> None:
    plain = recorded("views")[:1]
    plain[0]["eventTime"] = {}
    progress = observe.history(plain).progress
    from streamops.observe.core.progress import QueryTotals

    totals = QueryTotals(progress[0])
    totals.add(progress[0])
    facts = dict(build_view(totals, progress, "running").facts)
    assert not {"watermark", "delay of the watermark", "newest event time"} & facts.keys()


@pytest.mark.parametrize("query", QUERIES)
def test_no_value_of_a_row_is_displayed(query: str) -> None:
    view = view_of(query)
    assert_no_values(text_of(view))
    assert_no_values(to_html(view))


def test_names_are_escaped_in_html_and_are_no_markup_in_a_terminal() -> None:
    view = View("query [red]<b>x</b>[/red]: running", (("a", "[bold]<i>"),))
    assert "<b>query [red]&lt;b&gt;x&lt;/b&gt;[/red]" in to_html(view)
    assert "[red]<b>x</b>[/red]" in text_of(view)
    assert "[bold]<i>" in text_of(view)


def test_a_terminal_displays_the_query_until_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    query = Replayed("views")
    history = observe.watch(query, refresh="1 millisecond", display="terminal")
    assert history.batches["batch"].tolist() == list(range(12))
    displayed = capsys.readouterr().out
    assert "query views: ended, micro-batch 11" in displayed
    assert_no_values(displayed)
    assert "recent" not in query.requests[1:]  # no micro-batch was missed


def test_micro_batches_between_two_requests_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    history = observe.watch(Replayed("views", step=5), refresh="1 millisecond")
    assert len(history.progress) == 12
    assert "30 in 12 micro-batches" in capsys.readouterr().out


def test_an_error_is_named_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    class Failure(Exception):
        def getCondition(self) -> str:
            return "STREAM_FAILED"

    observe.watch(Replayed("views", step=20, error=Failure(f"the value {SECRET}")))
    displayed = capsys.readouterr().out
    assert "failed (STREAM_FAILED; query.exception() has the message)" in displayed
    assert_no_values(displayed)
    observe.watch(Replayed("views", step=20, error=ValueError(SECRET)))
    assert "failed (ValueError;" in capsys.readouterr().out


def test_a_query_without_a_micro_batch_is_displayed(capsys: pytest.CaptureFixture[str]) -> None:
    query = Replayed("views", step=0)
    history = observe.watch(query, refresh="1 millisecond", timeout="5 milliseconds")
    assert history.progress == ()
    assert "running, no micro-batch yet" in capsys.readouterr().out


def test_the_view_ends_after_its_timeout_and_the_query_goes_on() -> None:
    query = Replayed("views", step=0)
    start = time.monotonic()
    observe.watch(query, refresh="1 hour", timeout="50 milliseconds")
    assert 0.05 <= time.monotonic() - start < 30
    assert query.isActive


def test_an_interrupt_ends_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupt)
    history = observe.watch(Replayed("views", step=3))
    assert [progress.batch for progress in history.progress] == [0, 1, 2]


def test_a_notebook_displays_a_table_and_a_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display", reason="IPython is not installed")
    updates: list[str] = []
    handle = SimpleNamespace(update=lambda html: updates.append(html.data))
    monkeypatch.setattr(display, "display", lambda *_, display_id: handle)
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: shell)
    observe.watch(Replayed("views", step=6), refresh="1 millisecond")
    assert len(updates) == 2
    for html in updates:
        assert '<img src="data:image/png;base64,iVBOR' in html
        assert "<table>" in html
        assert_no_values(html)
    assert "ended, micro-batch 11" in updates[-1]


@pytest.mark.parametrize(
    ("query", "arguments", "code"),
    [
        ([], {}, "PARAMETER_TYPE"),
        ("views", {}, "PARAMETER_TYPE"),
        (Replayed("views"), {"display": "window"}, "UNKNOWN_CHOICE"),
    ],
    ids=["list", "name", "display"],
)
def test_invalid_arguments_are_refused(query: Any, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as caught:
        observe.watch(query, **arguments)
    assert (caught.value.code, caught.value.where) == (code, "observe.watch")


@pytest.mark.parametrize(
    "arguments", [{"refresh": "soon"}, {"timeout": "-1 second"}, {"timeout": ""}], ids=repr
)
def test_invalid_durations_are_refused(arguments: dict[str, str]) -> None:
    with pytest.raises(SpecError) as caught:
        observe.watch(Replayed("views"), **arguments)
    assert caught.value.where.startswith("observe.watch")


def test_docstring_examples_run() -> None:
    outcome = doctest.testmod(importlib.import_module("streamops.observe.watch"))
    assert outcome.failed == 0
    assert outcome.attempted >= 3
