"""Scenarios as data: a script of micro-batches with the expected output, and assertions for them.

A file has one transcript or several, separated by ``---``::

    name: a straggler takes its window back
    operator: windows.tumbling
    spec:
      {size: 10 seconds, delay: 5 seconds, allowed_lateness: 20 seconds, stragglers: retract,
       by: k, agg: {n: count}}
    script:
      - rows: [a 1s, a 4s]
      - rows: [a 15s]
      - no_data: true
        watermark: 10s
        expect:
          - {k: a, window: "[0s, 10s)", n: 2, revision: 0, change: insert}
      - rows: [a 3s]
        expect:
          - {k: a, window: "[0s, 10s)", n: 2, revision: 0, change: update_preimage}
          - {k: a, window: "[0s, 10s)", n: 3, revision: 1, change: update_postimage}
        counts: {stragglers: 1, corrections: 1}

``spec`` has the parameters of the operator. Aggregates are ``count``, ``sum v``, ``last v by seq`` or,
with parameters, ``{distinct: v, at_most: 3}``; so are functions of other rows: ``lag v``. A required ``time`` is the column ``ts`` by default.
Measures of matches are ``count a``, ``first a v``, ``classifiers``. A function of one's own is ``module:name``;
as the ``operator``, one that returns an operator, such as one of ``process.per_shard``.
``columns`` has the columns and their types, by default ``{k: string, ts: timestamp}``. A row is a
mapping, or its values in the order of the columns. ``options``, such as ``{shards: 1}``, are those of
``Operator.options``. ``with_watermark`` is the delay of the watermark of the frame; ``behind`` is a clock
before the operator, as in ``{time.producers: {producer: k, delay: 5 seconds, ...}}``. Times count from
``epoch``, by default 2024-01-01T00:00:00Z, or are ISO timestamps with an offset.
Conditions of patterns are columns, or comparisons with another row, such as ``previous v < v``.

A line of the script is a micro-batch, with ``rows`` or without. ``no_data: true`` is the micro-batch that
Spark adds at the end of an ``availableNow`` run that advanced the watermark: the query restarts after it,
and before a line with ``restart: true``. ``expect`` and ``late`` list all output in any order; output
that is not listed must not occur. A late row has the ``window`` that it missed, or in sliding windows,
which end with each event, its own time. These are checked if they are given: ``watermark`` (of the
operator, in this micro-batch), ``counts``, ``state_rows``, and ``clock`` (metrics of a clock).

For operators without event time, such as ``changes.normalize``, ``late`` has the rows of the column
``rejected``, with ``row`` and ``reason``. Operators that annotate rows, such as ``time.track_clock``,
have no counts.

For an operator with two inputs, a line has rows of ``left``, ``right`` or both instead of ``rows``.
``columns`` and ``with_watermark`` may have a value per side, as in
``columns: {left: {k: string, ts: timestamp}, right: {...}}``; a ``time``, ``delay``, ``key`` or
``sequence`` may be a list, ``[5 seconds, 1 minute]``. A late row has its ``side``.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import operator as operators
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from streamops.changelog.table import REJECTED
from streamops.kernel.core import SIDES
from streamops.kernel.errors import located
from streamops.kernel.time import parse_duration
from streamops.kernel.values import same
from streamops.kernel.versions import reports_every_micro_batch
from streamops.spark.clocks import ClockSpec
from streamops.spark.drive import resolve
from streamops.spark.operator import Operator
from streamops.testing.batches import START, remedies_for_a_script
from streamops.testing.notation import (
    COLUMN_TYPES,
    Line,
    Outline,
    instant,
    malformed,
    read_line,
    require_keys,
    require_mapping,
    routes_rejected,
)
from streamops.testing.replaying import Replay
from streamops.testing.results import BatchResult
from streamops.testing.rows import assert_rows, missing_extra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamops.spark.definition import StateApi
    from streamops.testing.streaming import Source

__tracebackhide__ = True

_FAMILIES = (
    "aggregates",
    "changes",
    "joins",
    "patterns",
    "process",
    "search",
    "sourcing",
    "time",
    "windows",
)
_FUNCTIONS = ("function", "on_timer", "decide", "evolve")
# Parameters of which a pair is a tuple, which YAML does not have.
_PAIRS = ("time", "delay", "key", "sequence")
_COMPARE = {
    "<": operators.lt,
    "<=": operators.le,
    ">": operators.gt,
    ">=": operators.ge,
    "==": operators.eq,
    "!=": operators.ne,
}
_COLUMNS = {"k": "string", "ts": "timestamp"}
_REQUIRED = {"name", "operator", "spec", "script"}
_OPTIONAL = {"options", "columns", "with_watermark", "behind", "epoch"}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A scenario: an operator, a script, and the expected output."""

    name: str
    operator: Operator
    schemas: tuple[pa.Schema, ...]
    watermark: Any
    lines: tuple[Line, ...]
    behind: Operator | None = None

    @property
    def chain(self) -> list[Operator]:
        """The operator, after its clock if it has one."""
        return [self.operator] if self.behind is None else [self.behind, self.operator]

    @property
    def schema(self) -> Any:
        """The columns of the input; for two inputs, a pair."""
        return self.schemas if len(self.schemas) > 1 else self.schemas[0]

    def runs(self) -> Iterator[list[Line]]:
        """The lines between two restarts."""
        run: list[Line] = []
        for line in self.lines:
            if line.restart and run:
                yield run
                run = []
            run.append(line)
            if line.rows is None:
                yield run
                run = []
        if run:
            yield run


def assert_replays(
    transcript: Transcript, *, restart: bool = False, shards: int | None = None
) -> None:
    """Fail if a replay without Spark differs from the transcript.

    Parameters
    ----------
    transcript : Transcript
    restart : bool, default False
        Restart between every two lines.
    shards : int, optional
        Overrides the number of shards of the operator.
    """
    query = Replay(
        transcript.chain,
        transcript.schema,
        watermark=transcript.watermark,
        shards=shards,
        restart=restart,
    )
    _check(transcript, query.run)


def assert_streams(
    spark: SparkSession,
    transcript: Transcript,
    *,
    state_api: StateApi = "auto",
    shards: int | None = None,
    source: Source = "auto",
    directory: str | os.PathLike[str] | None = None,
) -> None:
    """Fail if a query on Spark differs from the transcript.

    Parameters
    ----------
    spark : SparkSession
    transcript : Transcript
    state_api, shards
        Override the options of the operator.
    source : "auto", "python" or "files"
        See :func:`streamops.testing.micro_batches`; "files" is faster.
    directory : path, optional
        Where the checkpoint is stored. By default a temporary directory.
    """
    from streamops.testing.streaming import stream

    operator = transcript.operator.options(state_api=state_api, shards=shards)
    # The clock uses the state API of its own options.
    chain = [operator] if transcript.behind is None else [transcript.behind, operator]
    with tempfile.TemporaryDirectory(prefix="streamops-") as temporary:
        run = functools.partial(
            stream,
            spark,
            chain,
            watermark=transcript.watermark,
            schema=transcript.schema,
            source=source,
            directory=temporary if directory is None else directory,
        )
        _check(transcript, run, has_metrics=reports_every_micro_batch())


def _check(
    transcript: Transcript,
    run: Callable[[list[Any]], list[BatchResult]],
    *,
    has_metrics: bool = True,
) -> None:
    """Compare each line with its micro-batch. Those without new rows may have no metrics."""
    number = 0
    for lines in transcript.runs():
        results = run([line.rows for line in lines if line.rows is not None])
        if len(results) > len(lines):
            # The transcript does not list the micro-batch without data: it must have no output.
            lines = [*lines, Line()]
        for line, result in zip(lines, results, strict=False):
            number += 1
            is_known = has_metrics or line.rows is not None
            try:
                _compare(line if is_known else _without_metrics(line), result)
            except AssertionError as error:
                message = f"{transcript.name!r}, line {number}: {error}"
                raise AssertionError(message) from None
        if len(lines) > len(results):
            message = (
                f"{transcript.name!r}, line {number + 1}: there is no micro-batch without data "
                "here, as the watermark did not move"
            )
            raise AssertionError(message)


def _compare(line: Line, result: BatchResult) -> None:
    rows, late = result.rows, result.late_rows
    if routes_rejected(result.table.schema):
        late = [row[REJECTED] for row in rows if row[REJECTED] is not None]
        rows = [row for row in rows if row.pop(REJECTED) is None]
    assert_rows(rows, line.expect)
    assert_rows(late, line.late)
    for name, expected in line.checks.items():
        source = result if name in ("watermark", "state_rows") else result.counts
        _assert_same(name, getattr(source, name), expected)
    for name, expected in line.clock.items():
        _assert_same(f"{name} of the clock", getattr(result.clock, name, None), expected)


def _without_metrics(line: Line) -> Line:
    checks = {name: value for name, value in line.checks.items() if name == "watermark"}
    return replace(line, checks=checks, clock={})


def _assert_same(name: str, found: Any, expected: Any) -> None:
    if not same(found, expected):
        message = f"{name} is {found}, expected {expected}"
        raise AssertionError(message)


def load(path: str | os.PathLike[str]) -> list[Transcript]:
    """Read the transcripts of a file.

    Raises
    ------
    SpecError
        ``TRANSCRIPT_MALFORMED``, or an error of the operator about its parameters.
    RequirementError
        ``PACKAGE_MISSING``: PyYAML is not installed.
    """
    with located(Path(path).name):
        return _parse(Path(path).read_text(encoding="utf-8"))


def parse(text: str) -> list[Transcript]:
    """Read the transcripts of a text. See :func:`load`."""
    with located("transcript"):
        return _parse(text)


def _parse(text: str) -> list[Transcript]:
    found = [_transcript(document) for document in _documents(text)]
    names = [transcript.name for transcript in found]
    if not found or len(set(names)) < len(names):
        raise malformed(
            "a file needs transcripts of different names", got=names, expected="one or more"
        )
    return found


def _documents(text: str) -> list[Any]:
    try:
        import yaml
    except ImportError as error:
        raise missing_extra("PyYAML", "transcripts") from error

    # The loader in C is ten times faster, but PyYAML may be built without it.
    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(safe):  # type: ignore[misc]
        """Refuses duplicate keys, of which YAML's own loader silently takes the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            duplicates = sorted({str(key) for key in keys if keys.count(key) > 1})
            if duplicates:
                raise malformed("a key is given twice", got=duplicates, expected="once")
            return dict(super().construct_mapping(node, deep))

    try:
        return [d for d in yaml.load_all(text, Loader) if d is not None]
    except yaml.YAMLError as error:
        raise malformed("this is not YAML", got=error, expected="YAML") from error


@remedies_for_a_script()
def _transcript(value: Any) -> Transcript:
    document = require_keys(value, _REQUIRED | _OPTIONAL, _REQUIRED)
    with located(at=repr(document["name"])):
        return _read_transcript(document)


def _read_transcript(document: dict[str, Any]) -> Transcript:
    epoch = instant(document.get("epoch", START), START) or START
    operator = _create(document["operator"], require_mapping(document["spec"], "spec"))
    operator = operator.options(**require_mapping(document.get("options", {}), "options"))
    sides = SIDES[: len(operator.spec.times)]
    columns = document.get(
        "columns", _COLUMNS if len(sides) == 1 else dict.fromkeys(sides, _COLUMNS)
    )
    schemas = tuple(_schema(item) for item in _per_side(columns, sides, "columns"))
    watermarks = _per_side(document.get("with_watermark"), sides, "with_watermark")
    carried = tuple(
        None if delay is None else parse_duration(delay, parameter="with_watermark")
        for delay in watermarks
    )
    behind = None
    if "behind" in document:
        behind = _clock(require_mapping(document["behind"], "behind"))
        carried = (cast("ClockSpec", behind.parameters).delay,)
    spec = resolve(operator, schemas, carried)
    counts = frozenset({*operator.core.METRICS.values(), "state_rows"})
    if operator.build_result is not None:
        finished = operator.parameters.build_rows(spec.output.empty_table())
        outline = Outline(spec.inputs, finished.schema, None)
        counts = frozenset()
    else:
        if operator.follow_up is not None:
            spec = resolve(operator.steps[1], (spec.output,), (None,))
        outline = Outline(spec.inputs, spec.output, spec.event_time)
    script = document["script"]
    if not isinstance(script, list) or not script:
        raise malformed("the script has no lines", got=script, expected="a list of lines")
    lines = []
    for number, line in enumerate(script, start=1):
        with located(at=f"line {number}"):
            lines.append(read_line(line, schemas, outline, epoch, counts))
    watermark = watermarks[0] if len(sides) == 1 else tuple(watermarks)
    return Transcript(document["name"], operator, schemas, watermark, tuple(lines), behind)


def _schema(columns: Any) -> pa.Schema:
    for name, type_ in require_mapping(columns, "columns").items():
        if type_ not in COLUMN_TYPES:
            raise malformed(
                f"column {name!r} has no known type", got=type_, expected=", ".join(COLUMN_TYPES)
            )
    return pa.schema([(name, COLUMN_TYPES[type_]) for name, type_ in columns.items()])


def _per_side(value: Any, sides: tuple[str, ...], what: str) -> list[Any]:
    """The value for each input. With two inputs, a mapping has a value per side."""
    if len(sides) == 1:
        return [value]
    if not isinstance(value, dict):
        return [value for _ in sides]
    require_keys(value, set(sides), set(sides) if what == "columns" else set())
    return [value.get(side) for side in sides]


def _import(family: str, name: str) -> Any:
    """The public function of this name; None if there is none."""
    # By name, as the transcript has it: the test kit does not depend on a family of operators.
    module = importlib.import_module(f"streamops.{family}") if family in _FAMILIES else None
    return getattr(module, name) if module is not None and name in module.__all__ else None


def _clock(named: dict[str, Any]) -> Operator:
    clocks = [_create(name, require_mapping(spec, name)) for name, spec in named.items()]
    match clocks:
        case [Operator(parameters=ClockSpec()) as clock]:
            return clock
    raise malformed("not a clock", got=named, expected="{time.producers: {...}}")


def _create(name: Any, arguments: dict[str, Any]) -> Any:
    family, _, function = str(name).partition(".")
    operator: Any = _import(family, function) if family != "aggregates" else None
    if ":" in str(name):
        operator = _function(name)
    try:
        parameters = inspect.signature(operator).parameters
    except (TypeError, ValueError):
        raise malformed("no such operator", got=name, expected="such as windows.tumbling") from None
    if "agg" in parameters:
        agg = require_mapping(arguments.get("agg", {}), "agg")
        arguments = arguments | {"agg": {key: _aggregate(v) for key, v in agg.items()}}
    if name == "windows.over":
        values = require_mapping(arguments.get("values", {}), "values")
        functions = {key: _aggregate(value, family) for key, value in values.items()}
        arguments = arguments | {"values": functions}
    if "measures" in parameters:
        measures = require_mapping(arguments.get("measures", {}), "measures")
        measures = {key: _measure(value) for key, value in measures.items()}
        arguments = arguments | {"measures": measures}
    if "define" in parameters:
        define = require_mapping(arguments.get("define", {}), "define")
        arguments = arguments | {"define": {key: _condition(v) for key, v in define.items()}}
    if "time" in parameters and parameters["time"].default is inspect.Parameter.empty:
        arguments = {"time": "ts", **arguments}
    named = {key: v for key, v in arguments.items() if key in _FUNCTIONS}
    arguments = {**arguments, **{key: _function(v) for key, v in named.items()}}
    if "right" in parameters:
        lists = {key: v for key, v in arguments.items() if key in _PAIRS and isinstance(v, list)}
        pairs = {key: tuple(v) for key, v in lists.items()}
        arguments = {"right": None, **arguments, **pairs}
    if "queries" in parameters:
        arguments = {"queries": None, **arguments}
    try:
        made = operator(**arguments)
    except TypeError as error:
        raise malformed(
            "the operator does not take this spec", got=error, expected="its parameters"
        ) from error
    if not isinstance(made, Operator):
        raise malformed(
            f"{name} does not return an operator", got=repr(made), expected="an Operator"
        )
    return made


def _function(name: Any) -> Any:
    """The function that ``module:name`` names."""
    module, _, attribute = str(name).partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise malformed(
            "no such function", got=name, expected="module:name, such as tests.totals:add_up"
        ) from error


def _aggregate(value: Any, family: str = "aggregates") -> Any:
    arguments: dict[Any, Any] = dict(value) if isinstance(value, dict) else {}
    parts = [str(key) for key in list(arguments)[:1]] or str(value).split()
    function = _import(family, parts[0]) if parts and parts[0].islower() else None
    try:
        match parts[1:]:
            case [] if function and arguments:
                first = arguments.pop(parts[0])
                return function(*(first if isinstance(first, list) else [first]), **arguments)
            case [column, "by", tie_break] if function:
                return function(column, tie_break=tie_break)
            case [] | [_] if function:
                return function(*parts[1:])
    except TypeError:
        pass  # it has other parameters
    raise malformed("not an aggregate", got=value, expected="count, sum v, last v by seq")


def _condition(value: Any) -> Any:
    """A column; or a comparison with another row, such as ``previous v < v``."""
    match str(value).split():
        case ["previous" | "initial" as name, column, sign, other] if sign in _COMPARE:
            return _COMPARE[sign](_import("patterns", name)(column), other)
    return value


def _measure(value: Any) -> Any:
    name, *arguments = str(value).split()
    function = _import("patterns", name)
    try:
        if function is not None:
            return function(*arguments)
    except TypeError:
        pass  # it has other parameters
    raise malformed("not a measure", got=value, expected="count a, first a v, classifiers")
