"""The examples of the documentation run, its links resolve, and it documents all public names."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamops
from streamops import aggregates, observe, patterns, plots, testing, windows
from streamops.environment.requirements import numbers
from streamops.kernel import codec, conditions
from streamops.kernel.calendar import LONGEST, Unit, Weekday
from streamops.kernel.core import ClockMetrics, Metrics
from streamops.kernel.segments import INDEX, UNMERGED
from streamops.spark.definition import DEFAULT_SHARDS, MAX_SHARDS, Engine, StateApi
from streamops.spark.state_rows import STATE_SCHEMA
from streamops.time.core import producers, track_clock
from streamops.time.core.producers import ProducersCore
from streamops.time.core.track_clock import TrackClockCore
from streamops.windows.core import compare
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.compare_spec import Revised
from streamops.windows.core.grid import GridCore
from streamops.windows.core.sliding import SlidingCore
from streamops.windows.core.spec import Stragglers, TooLate
from website import pictures

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<target>[^)\s]+)\)")
SECTIONS = [
    "Problem",
    "Criteria",
    "Out of scope",
    "Options",
    "Decision",
    "Consequences",
    "When to reconsider",
]

CHOICES = (Stragglers, TooLate, Engine, StateApi, Unit, Weekday)
DECISIONS = sorted((ROOT / "decisions").glob("*.md"))
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples" / "README.md",
    *DECISIONS,
]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Example:
    """A fenced block of Python. ``spark``: it needs a session, of Spark ``since`` or later. ``output``: what it prints."""

    path: Path
    line: int
    spark: bool
    source: str
    output: str
    since: tuple[int, ...] = ()

    @property
    def runs_here(self) -> bool:
        return numbers(pyspark.__version__) >= self.since

    def run(self, namespace: dict[str, Any]) -> str:
        # Lines are counted as in the document, so that a traceback leads there.
        code = compile("\n" * self.line + self.source, named(self.path), "exec")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        return printed.getvalue()


def examples(path: Path) -> list[Example]:
    """The Python blocks of a document; a ``text`` block right below one is its output."""
    text = path.read_text()
    found = []
    fences = list(FENCE.finditer(text))
    for fence, after in zip_longest(fences, fences[1:]):
        info = fence["info"].split()
        if info[:1] != ["python"]:
            continue
        adjacent = after is not None and not text[fence.end() : after.start()].strip()
        output = after["text"] if adjacent and after["info"] == "text" else ""
        line = text.count("\n", 0, fence.start("text"))
        since = numbers(info[2]) if len(info) > 2 else ()
        found.append(Example(path, line, "spark" in info, fence["text"], output, since))
    return found


def anchors(path: Path) -> set[str]:
    """The headings of a document, as anchors, and those that it names."""
    text = FENCE.sub("", path.read_text())
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {*re.findall(r'<a id="([^"]+)">', text)} | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def broken_links(path: Path) -> Iterator[str]:
    """Broken relative links."""
    for link in LINK.finditer(FENCE.sub("", path.read_text())):
        target = link["target"]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


def documented() -> set[str]:
    """Every word in code style in the documentation, but for the page that is written from the code."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    pages.remove(ROOT / "docs" / "errors.md")
    return {word for page in pages for word in terms(page)}


def terms(path: Path) -> set[str]:
    """Every word in code style, without the quotes of a choice."""
    spans = re.findall(r"`([^`\n]+)`", FENCE.sub("", path.read_text()))
    return {word for span in spans for word in re.findall(r"\w+", span)}


def public(module: ModuleType) -> set[str]:
    """The public names of a module, and the parameters of its functions and classes."""
    found = set()
    for name in module.__all__:
        if name.startswith("__"):
            continue
        found.add(name)
        thing = getattr(module, name)
        if callable(thing):
            parameters = inspect.signature(thing).parameters
            found |= set(parameters) - {inspect.getfullargspec(thing).varkw}
    return found


PURE = [path for path in DOCUMENTS if any(not item.spark for item in examples(path))]


@pytest.mark.parametrize("path", PURE, ids=named)
def test_every_example_prints_its_documented_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    for example in examples(path):
        if not example.spark:
            assert example.run(namespace) == example.output


@pytest.mark.smoke
def test_the_example_of_the_readme_prints_the_same_on_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    without, on_spark = examples(ROOT / "README.md")
    assert on_spark.spark
    assert without.run(namespace) == on_spark.run(namespace) == without.output


def test_the_picture_of_the_readme_is_what_the_code_draws() -> None:
    assert pictures.README_FILE.read_bytes() == pictures.README.svg()


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 600


@pytest.mark.slow
def test_the_first_example_on_a_stream_emits_results_and_corrections(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listeners: dict[str, Any] = {}
    (listener,) = (e for e in examples(ROOT / "docs" / "operations.md") if "Totals" in e.source)
    listener.run(listeners)
    totals = listeners["Totals"]("tumbling")
    spark.streams.addListener(totals)
    namespace: dict[str, Any] = {}
    (example,) = (item for item in examples(ROOT / "docs" / "index.md") if item.spark)
    try:
        printed = example.run(namespace)
    finally:
        for query in spark.streams.active:
            query.stop()
    progress = [p.observedMetrics.get("tumbling") for p in namespace["query"].recentProgress]
    metrics = [counts for counts in progress if counts is not None]
    rows, on_time, stragglers, corrections, results = (
        sum(counts[name] or 0 for counts in metrics)
        for name in ("rows", "on_time", "stragglers", "corrections", "results")
    )
    assert rows == on_time + stragglers
    assert results > 0
    assert 0 < corrections <= stragglers
    assert "state_bytes=" in printed
    # A listener is called a little later than the progress of the query is updated.
    waited = time.monotonic() + 30
    while totals.counts["rows"] < rows and time.monotonic() < waited:
        time.sleep(0.1)
    spark.streams.removeListener(totals)
    assert (totals.counts["rows"], totals.counts["corrections"]) == (rows, corrections)


def test_the_function_of_the_guide_writes_results_and_late_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    (example,) = (e for e in examples(ROOT / "docs" / "windows.md") if "def write(" in e.source)
    # A relative path would be relative to where the JVM was started.
    placed = example.source.replace('f"out/', f'f"{tmp_path}/out/')
    namespace: dict[str, Any] = {}
    replace(example, source=placed).run(namespace)
    rows = spark.range(3).select(F.when(F.col("id") > 0, F.timestamp_seconds("id")).alias("ts"))
    routed = windows.tumbling(
        "10 seconds", time="ts", agg={"n": aggregates.count()}, stragglers="route"
    )
    for _ in range(2):  # the same batch id may be written twice
        namespace["write"](rows.transform(routed), 7)
    results = pq.read_table(tmp_path / "out" / "results" / "batch=7")
    late = pq.read_table(tmp_path / "out" / "late" / "batch=7")
    assert results.column("n").to_pylist() == [2]
    assert late.column("reason").to_pylist() == ["null_time"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_every_link_resolves(path: Path) -> None:
    assert list(broken_links(path)) == []


def test_a_broken_link_is_detected(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n[good](page.md#a-title) [good](#a-title) [good](https://spark.apache.org)\n"
        "[gone](gone.md) [no heading](page.md#b) ![picture](picture.png)\n"
        "```python\n[not a link](x)\n```\n"
    )
    assert list(broken_links(page)) == ["gone.md", "page.md#b"]


@pytest.mark.parametrize(
    "module",
    [streamops, aggregates, observe, patterns, plots, windows, testing],
    ids=lambda module: module.__name__,
)
def test_every_name_of_the_api_is_documented(module: ModuleType) -> None:
    assert public(module) - documented() == set()


def test_every_choice_and_every_column_is_documented() -> None:
    transform = windows.tumbling(
        "1 hour",
        time="ts",
        agg={"n": aggregates.count()},
        stragglers="retract",
        allowed_lateness="1 hour",
        too_late="route",
    )
    instant = pa.timestamp("us", tz="UTC")
    spec: Any = transform.parameters.resolve(
        (pa.schema([("ts", instant)]),), carried=(0,), shards=1
    )
    used = {
        *(set(spec.output.names) - {"n"}),
        *(field.name for field in spec.output.field("late").type),
        *(field.name for field in fields(Metrics)),
        *(word for choice in CHOICES for word in get_args(choice)),
    }
    assert used - documented() == set()


def test_names_of_the_time_module_are_documented_and_operators_are_in_the_table() -> None:
    times = streamops.time
    guarding = import_module("streamops.time.guard")
    choices = (guarding.OutOfBounds, guarding.Unusable, track_clock.Otherwise)
    clock = times.correct_clock("a", sent="b", received="c")
    tracked = times.track_clock("a", by="d", sent="b", received="c")
    of_time = (times.guard("a"), clock, tracked, times.processing_time())
    used = {
        *(field.name for field in fields(ClockMetrics)),
        *public(times),
        *guarding.REASONS,
        *tracked.parameters.qualities,
        *(word for choice in choices for word in get_args(choice)),
        *(name for transform in of_time for name in transform.parameters.adds),
    }
    assert used - documented() == set()
    assert set(times.__all__) - terms(ROOT / "docs" / "which-operator.md") == set()


def test_columns_of_accounts_are_documented_and_operators_are_in_the_table() -> None:
    terms_used = set(observe.accounts.MEASURES) | {"any", "needed", "not_enough"}
    assert terms_used - documented() == set()
    assert set(observe.__all__) - terms(ROOT / "docs" / "which-operator.md") == set()


def test_an_undocumented_name_is_detected() -> None:
    def unheard(size: str, cutoff: str) -> None: ...

    planted = ModuleType("planted")
    planted.__all__ = ["unheard"]
    planted.unheard = unheard
    assert public(planted) - documented() == {"unheard", "cutoff"}


def test_the_table_of_operators_lists_every_operator_by_purpose() -> None:
    listed = terms(ROOT / "docs" / "which-operator.md")
    assert set(windows.__all__) - listed == set()
    assert set(aggregates.__all__) - {"Aggregate"} - listed == set()


def test_the_documented_state_formats_match_the_code() -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    assert f"## The frame, version {codec.FRAME}\n" in text
    assert f"## {GridCore.STATE.kind}, version {GridCore.STATE.version}\n" in text
    for name, dtype in map(str.split, STATE_SCHEMA.split(", ")):
        assert f"| `{name}` | {dtype} |" in text
    *days, most = map(str, LONGEST.values())
    assert f"days: {', '.join(days)} or {most} |" in text
    assert GridCore.STATE.segmented
    assert "**[Segments](#segments)**, with " in text
    for table in ("panes", "revisions", INDEX, UNMERGED):
        assert f"**Table `{table}`**" in text
    for name in ("number", "first", "last", "scale", "rows", "size", "checksum"):
        assert f"`{name}`" in text[text.index("## Segments") : text.index("## Conventions")]


def test_the_documented_state_of_sliding_windows_matches_the_code() -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {SlidingCore.STATE.kind}, version {SlidingCore.STATE.version}\n"
    own = text[text.index(heading) : text.index("## What may change")]
    for table in ("timestamps", "revisions"):
        assert f"**Table `{table}`**" in own


def test_the_documented_state_of_producers_matches_the_code() -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {ProducersCore.STATE.kind}, version {ProducersCore.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    spec = producers.ProducersSpec(
        producer="k",
        time="ts",
        delay=0,
        idle=1,
        arrival=None,
        expected=(),
        producer_type=pa.string(),
    )
    for name, schema in ProducersCore().layout(spec).items():
        assert f"**Table `{name}`**" in own
        assert (
            re.findall(r"^\| `(\w+(?:\.0)?)` \|", own[own.index("**Table") :], re.M) == schema.names
        )
    for key in spec.identity:
        assert f"| `{key}` |" in own


def test_the_values_and_the_state_of_a_comparison_are_documented() -> None:
    glossary, text = (ROOT / "docs" / name for name in ("glossary.md", "state-formats.md"))
    (row,) = (line for line in glossary.read_text().splitlines() if line.startswith("| `reason` |"))
    reasons = set(re.findall(r'"(bad_[a-z]+)"', inspect.getsource(compare)))
    assert reasons == set(re.findall(r"`(bad_[a-z]+)`", row))
    heading = f"## {CompareCore.STATE.kind}, version {CompareCore.STATE.version}\n"
    own = text.read_text().partition(heading)[2].partition("## What may change")[0]
    for column in ("**Table `windows`**", "`start`, `end`", "`revision`", "`source`", "`is_there`"):
        assert column in own
    assert all(f"`{word}`" in own for word in get_args(Revised))


def test_the_state_of_tracked_clocks_is_documented() -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {TrackClockCore.STATE.kind}, version {TrackClockCore.STATE.version}\n"
    own = text.partition(heading)[2].partition("## What may change")[0]
    types = {"by": pa.string(), "sent": pa.timestamp("us"), "received": pa.timestamp("us")}
    spec = track_clock.TrackClockSpec(
        time="time",
        sent="sent",
        received="received",
        tolerance=0,
        longest_wait=None,
        largest_offset=None,
        otherwise="received",
        by=("by",),
        horizon=1,
        step=1,
        input=pa.schema(types),
    )
    for name, schema in TrackClockCore().layout(spec).items():
        assert f"**Table `{name}`**" in own
        assert {column for column in schema.names if column != "key.0"} <= set(
            re.findall(r"`(\w+)`", own)
        )
    assert set(spec.identity) <= set(re.findall(r"`(\w+)`", own))


def test_every_refusal_of_state_is_documented() -> None:
    raised = [
        condition.code
        for name, condition in vars(conditions).items()
        if re.search(rf"conditions\.{name}\b", inspect.getsource(codec))
    ]
    text = (ROOT / "docs" / "state-formats.md").read_text()
    documented = re.findall(r"^\| `(STATE_[A-Z]+)` \|", text, re.MULTILINE)
    assert sorted(documented) == sorted(raised)


def test_the_documented_numbers_of_shards_match_the_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    assert f"`shards`, {DEFAULT_SHARDS} by default, from 1 to {MAX_SHARDS}" in text


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [int(path.name.split("-")[0]) for path in DECISIONS]
    assert numbers == list(range(1, len(DECISIONS) + 1))


@pytest.mark.parametrize("path", DECISIONS, ids=named)
def test_a_decision_has_every_section(path: Path) -> None:
    assert re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE) == SECTIONS
