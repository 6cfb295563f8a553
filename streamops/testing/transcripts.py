"""Scenarios as data: a script of micro-batches, and what each must put out.

A file holds one transcript or several, separated by ``---``::

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

``spec`` holds the operator's own parameters; aggregates are ``count``, ``sum v``, ``last v by
seq`` or, with more to say, ``{distinct: v, at_most: 3}``; ``time``, where it is needed, is the column ``ts`` unless it says otherwise. ``columns`` gives the columns and
their types, by default ``{k: string, ts: timestamp}``; a row is its words in that order, or a
mapping. ``options``, such as ``{shards: 1}``, are those of ``Operator.options``. ``with_watermark`` is the delay of a watermark that the frame brings; ``behind`` a clock
that defines one, as in ``{time.producers: {producer: k, delay: 5 seconds, ...}}``. Times count from
``epoch``, by default 2024-01-01T00:00:00Z; an ISO timestamp with an offset is a time as well.

A line of the script is a micro-batch. ``rows`` has data, or none. ``no_data: true`` is the
micro-batch that Spark adds at the end of an ``availableNow`` run that moved the watermark: what
follows it is a restart, and so is a line with ``restart: true``. ``expect`` and ``late`` are everything that comes out, in any order;
what is not said must not come. A late row has the ``window`` it missed; of sliding windows, which
end with each event, it has none, and its own time stands for it. ``watermark`` (of the operator, that the micro-batch closes by),
``counts`` and ``state_rows`` are checked where they are given, and so is what a ``clock`` tells. Of
operators that go by no time, such as ``changes.normalize``, ``late`` has the rows that are put aside
in the column ``rejected``: each with its ``row`` and the ``reason``. Those that say something of each
row, such as ``time.track_clock``, count nothing that could be checked.

An operator with two inputs, which takes ``right``, is given it by the script: a line has the rows of
``left`` and ``right`` instead of ``rows``, or of one of them. ``columns`` and ``with_watermark`` may
be said of each side, as in ``columns: {left: {k: string, ts: timestamp}, right: {...}}``, and a
``time``, a ``delay``, a ``key`` or a ``sequence`` as a list, ``[5 seconds, 1 minute]``. A late row says
its ``side``.
"""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from streamops.kernel.time import parse_duration
from streamops.spark.drive import resolve
from streamops.spark.operator import Operator
from streamops.spark.step import metric_fields
from streamops.testing.batches import START
from streamops.testing.notation import COLUMN_TYPES, instant, malformed, mapping, refuse_unknown
from streamops.testing.rows import missing_extra
from streamops.testing.script import Line, read_line

__all__ = ["Transcript", "load", "parse"]

_PUBLIC = ("aggregates", "changes", "joins", "time", "windows")
_SIDES = ("left", "right")
_PAIRS = (
    "time",
    "delay",
    "key",
    "sequence",
)  # of which a pair is a tuple, which YAML does not have
_COLUMNS = {"k": "string", "ts": "timestamp"}
_KEYS = {
    "name",
    "operator",
    "spec",
    "options",
    "script",
    "columns",
    "with_watermark",
    "behind",
    "epoch",
}


@dataclass(frozen=True, slots=True)
class Transcript:
    """A scenario: an operator, a script, and what must come of it."""

    name: str
    operator: Operator
    schemas: tuple[pa.Schema, ...]
    watermark: Any
    lines: tuple[Line, ...]
    behind: Operator | None = None

    @property
    def chain(self) -> list[Operator]:
        """The operator, behind its clock if it has one."""
        return [self.operator] if self.behind is None else [self.behind, self.operator]

    @property
    def schema(self) -> Any:
        """The columns of its input; of an operator with two inputs, a pair."""
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


def load(path: str | os.PathLike[str]) -> list[Transcript]:
    """The transcripts of a file.

    Raises
    ------
    SpecError
        ``TRANSCRIPT_MALFORMED``, or what the operator says of its parameters.
    RequirementError
        ``TESTING_EXTRA_MISSING``: PyYAML is not installed.
    """
    return parse(Path(path).read_text(encoding="utf-8"), where=Path(path).name)


def parse(text: str, *, where: str = "transcript") -> list[Transcript]:
    """The transcripts of a text. See :func:`load`."""
    found = [_transcript(document, where) for document in _documents(text, where)]
    names = [transcript.name for transcript in found]
    if not found or len(set(names)) < len(names):
        raise malformed(
            where, "a file needs transcripts of different names", got=names, expected="one or more"
        )
    return found


def _documents(text: str, where: str) -> list[Any]:
    try:
        import yaml
    except ImportError as error:
        raise missing_extra("PyYAML", "transcripts") from error

    # The one in C reads the same ten times faster; PyYAML need not have it.
    safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(safe):  # type: ignore[misc]
        """Refuses a key given twice, where YAML's own would silently take the last."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            twice = sorted({str(key) for key in keys if keys.count(key) > 1})
            if twice:
                raise malformed(where, "a key is given twice", got=twice, expected="once")
            return dict(super().construct_mapping(node, deep))

    try:
        return [d for d in yaml.load_all(text, Loader) if d is not None]
    except yaml.YAMLError as error:
        raise malformed(where, "this is not YAML", got=error, expected="YAML") from error


def _transcript(said: Any, where: str) -> Transcript:
    refuse_unknown(said, _KEYS, {"name", "operator", "spec", "script"}, where)
    where = f"{where}, {said['name']!r}"
    epoch = instant(said.get("epoch", START), START, where) or START
    operator = _made(said["operator"], mapping(said["spec"], where, "spec"), where)
    operator = operator.options(**mapping(said.get("options", {}), where, "options"))
    count = len(operator.parameters.times)
    sides = _SIDES if count > 1 else ("",)
    columns = said.get("columns", dict.fromkeys(sides, _COLUMNS) if sides[0] else _COLUMNS)
    schemas = tuple(_schema(each, where) for each in _by_side(columns, sides, where, "columns"))
    brought = _by_side(said.get("with_watermark"), sides, where, "with_watermark")
    carried = tuple(
        None if each is None else parse_duration(each, parameter="with_watermark", where=where)
        for each in brought
    )
    behind, watermark = None, brought[0] if len(sides) == 1 else tuple(brought)
    if "behind" in said:
        behind = _clock(mapping(said["behind"], where, "behind"), where)
        carried = (behind.parameters.delay,)
    spec: Any = resolve(operator, schemas, carried)
    counts = frozenset({*metric_fields(operator.core).values(), "state_rows"})
    if operator.finish is not None:
        finished = operator.parameters.finished(spec.output.empty_table())
        spec = SimpleNamespace(inputs=spec.inputs, output=finished.schema, event_time=None)
        counts = frozenset()
    elif operator.follow_up is not None:
        spec = resolve(operator.second(operator.follow_up), (spec.output,), (None,))
    script = said["script"]
    if not isinstance(script, list) or not script:
        raise malformed(where, "the script has no lines", got=script, expected="a list of lines")
    lines = tuple(
        read_line(line, schemas, spec, epoch, f"{where}, line {number}", counts)
        for number, line in enumerate(script, start=1)
    )
    return Transcript(said["name"], operator, schemas, watermark, lines, behind)


def _schema(columns: Any, where: str) -> pa.Schema:
    for name, kind in mapping(columns, where, "columns").items():
        if kind not in COLUMN_TYPES:
            raise malformed(
                where,
                f"column {name!r} has no known type",
                got=kind,
                expected=", ".join(COLUMN_TYPES),
            )
    return pa.schema([(name, COLUMN_TYPES[kind]) for name, kind in columns.items()])


def _by_side(said: Any, sides: tuple[str, ...], where: str, what: str) -> list[Any]:
    """What is said of the one input, or of both: of each by itself where it is a mapping."""
    if len(sides) == 1:
        return [said]
    if not isinstance(said, dict):
        return [said for _ in sides]
    refuse_unknown(said, set(sides), set(sides) if what == "columns" else set(), where)
    return [said.get(side) for side in sides]


def _public(family: str, name: str) -> Any:
    """What users import under this name; None if there is no such thing."""
    # By name, as the transcript has it: the test kit depends on no family of operators.
    module = importlib.import_module(f"streamops.{family}") if family in _PUBLIC else None
    return getattr(module, name) if module is not None and name in module.__all__ else None


def _clock(named: dict[str, Any], where: str) -> Operator:
    clocks = [_made(name, mapping(said, where, name), where) for name, said in named.items()]
    match clocks:
        case [Operator() as clock] if clock.project is not None:
            return clock
    raise malformed(where, "not a clock", got=named, expected="{time.producers: {...}}")


def _made(name: Any, said: dict[str, Any], where: str) -> Any:
    family, _, word = str(name).partition(".")
    operator = _public(family, word) if family != "aggregates" else None
    if operator is None:
        raise malformed(where, "no such operator", got=name, expected="such as windows.tumbling")
    taken = inspect.signature(operator).parameters
    if "agg" in taken:
        agg = mapping(said.get("agg", {}), where, "agg")
        said = said | {"agg": {k: _aggregate(v, where) for k, v in agg.items()}}
    if "time" in taken and taken["time"].default is inspect.Parameter.empty:
        said = {"time": "ts", **said}
    if "right" in taken:
        pairs = {k: tuple(v) for k, v in said.items() if k in _PAIRS and isinstance(v, list)}
        said = {"right": None, **said, **pairs}
    try:
        return operator(**said)
    except TypeError as error:
        raise malformed(
            where, "the operator does not take this spec", got=error, expected="its parameters"
        ) from error


def _aggregate(text: Any, where: str) -> Any:
    named: dict[Any, Any] = dict(text) if isinstance(text, dict) else {}
    words = [str(key) for key in list(named)[:1]] or str(text).split()
    function = _public("aggregates", words[0]) if words and words[0].islower() else None
    try:
        match words[1:]:
            case [] if function and named:
                first = named.pop(words[0])
                return function(*(first if isinstance(first, list) else [first]), **named)
            case [column, "by", tie_break] if function:
                return function(column, tie_break=tie_break)
            case [] | [_] if function:
                return function(*words[1:])
    except TypeError:
        pass  # it takes something else
    raise malformed(where, "not an aggregate", got=text, expected="count, sum v, last v by seq")
