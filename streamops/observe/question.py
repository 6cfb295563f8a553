"""What a question to a checkpoint means, and whether it is one about this query."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.codec import StoredFrame
from streamops.kernel.errors import CheckpointError, StreamopsError
from streamops.kernel.time import format_instant, parse_instant
from streamops.kernel.values import Refused, UnsupportedType, converter
from streamops.kernel.versions import create_frame, to_arrow
from streamops.observe import conditions
from streamops.observe.plan import MicroBatch, Recorded, RecordedSource
from streamops.spark.annotate import AnnotatedSpec
from streamops.spark.clocks import ClockSpec
from streamops.spark.columns import spark_schema
from streamops.spark.operator import Operator
from streamops.spark.step import Stored
from streamops.state.checkpoint import Checkpoint, OperatorFiles
from streamops.state.shards import StoredShard, read_header
from streamops.state.stores import may_be_ours, read_rows
from streamops.testing.batches import Chain, expand
from streamops.testing.recorded import RecordedReplay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Window = dt.datetime | tuple[dt.datetime, dt.datetime]
Source = RecordedSource | Sequence[RecordedSource | Sequence[RecordedSource]]
Part = tuple[RecordedSource, Recorded]
"""A source that an input of the operator reads, and what the checkpoint has of it."""
Headers = Sequence[StoredFrame]
"""The different headers that shards of an operator have."""

_INSTANT = pa.timestamp("us", tz="UTC")
_ARRIVAL = "__streamops_arrival"
UNVERIFIED = "the parameters of the operator are not compared with those of the query, as no session reads its state"


def parse_window(window: Any) -> Window | None:
    """An instant in a window, or its start and end, from instants or text."""
    given = window.split("/") if isinstance(window, str) else window
    instants = list(given) if isinstance(given, list | tuple) else [given]
    if window is None:
        return None
    try:
        instants = [dt.datetime.fromisoformat(of) if isinstance(of, str) else of for of in instants]
    except ValueError as error:
        raise conditions.NOT_A_WINDOW.error(got=f"{window!r}") from error
    is_pair = isinstance(window, str | tuple | list) and len(instants) == 2
    are_instants = all(isinstance(of, dt.datetime) for of in instants)
    if not are_instants or not (is_pair or len(instants) == 1):
        raise conditions.NOT_A_WINDOW.error(got=f"{window!r:.100}")
    marks = [parse_instant(of, parameter="window") for of in instants]
    if marks != sorted(set(marks)):
        raise conditions.NOT_A_WINDOW.error(got=f"{window!r}, which ends before it starts")
    return (instants[0], instants[1]) if is_pair else instants[0]


def cut(plan: list[MicroBatch], since: Any) -> list[MicroBatch]:
    """The micro-batches from one on, by its number or by the time when it was planned."""
    if since is None:
        return plan
    if isinstance(since, dt.datetime):
        millis = parse_instant(since, parameter="since") // 1_000
        return [batch for batch in plan if batch.planned >= millis]
    if type(since) is not int or since < 0:
        raise conditions.NOT_A_START_OF_READING.error(got=f"since={since!r}")
    return [batch for batch in plan if batch.number >= since]


def versions_of(earlier: Mapping[int, Chain], operator: Chain, count: int) -> dict[int, Chain]:
    """The operators of a query by the first micro-batch of each, from those that it had before changes."""
    ends = [0, *sorted(earlier)] if all(type(of) is int and of >= 0 for of in earlier) else []
    if not ends or any(len(split_guards(of)[1]) != count for of in earlier.values()):
        got = ", ".join(f"{number!r}: {of!r:.60}" for number, of in earlier.items())
        raise conditions.NOT_A_CHANGE.error(operators=count, got=got)
    return dict(zip(ends, [*(earlier[of] for of in ends[1:]), operator], strict=True))


def is_clock(operator: Operator) -> bool:
    """Whether an operator passes its rows on, and defines their watermark."""
    return isinstance(operator.parameters, ClockSpec)


def split_guards(operator: Chain) -> tuple[list[Operator], list[Operator]]:
    """The operators before the first one that has a state, such as ``time.guard``, and the others."""
    given: list[Any] = [*operator] if isinstance(operator, list | tuple) else [operator]
    first = 0
    while first < len(given) and isinstance(given[first], Operator) and given[first].core is None:
        first += 1
    return given[:first], expand(given[first:])


def guarded(
    rows: pa.Table, guards: Sequence[Operator], spark: SparkSession | None, planned: int
) -> pa.Table:
    """What operators that Spark computes make of the rows of a micro-batch, planned at this time."""
    for of in guards:
        if spark is None:
            raise conditions.NO_SESSION_FOR_A_GUARD.error(operator=of.name, got="no session")
        parameters: Any = of.parameters
        if hasattr(
            parameters, "arrival"
        ):  # the micro-batch started when it was planned, and not now
            start = pa.repeat(pa.scalar(planned * 1_000, _INSTANT), len(rows))
            arrival = start
            if parameters.arrival is not None:
                arrival = pc.min_element_wise(rows.column(parameters.arrival), start)
            rows = rows.append_column(_ARRIVAL, arrival)
            parameters = replace(parameters, arrival=_ARRIVAL)
        frame = parameters.apply(create_frame(spark, rows, spark_schema(rows.schema)))
        rows = to_arrow(frame.drop(_ARRIVAL))
    return rows


def keys_of(operators: Sequence[Operator]) -> tuple[str, ...]:
    """The columns that a question may name: keys of the first operator, and of those that it passes its rows to."""
    names = dict[str, None]()
    for operator in operators:
        if not is_clock(operator):
            names |= dict.fromkeys(operator.spec.inputs[0].by)
        if not isinstance(operator.parameters, ClockSpec | AnnotatedSpec):
            break
    return tuple(names)


def needs_all_keys(operators: Sequence[Operator], where: Mapping[str, Any]) -> bool:
    """Whether rows of other keys bear on the results of a key: they move a clock, or are merged with it."""
    keyed = [of for of in operators if not is_clock(of)]
    return any(has_shard_clock(of) or not where.keys() <= {*of.spec.inputs[0].by} for of in keyed)


def has_shard_clock(operator: Operator) -> bool:
    """Whether rows of all keys of a shard move its clock, or share its limits."""
    assert operator.core is not None, "a chain has operators with a core"
    placement = operator.core.placement
    return placement.watermark == "greatest" or "evicted" in placement.tables


def require_mappings(**given: object) -> None:
    """Refuse anything but a mapping."""
    for parameter, value in given.items():
        if not isinstance(value, Mapping):
            got = f"{parameter}={value!r:.80}"
            raise conditions.NOT_A_MAPPING.error(parameter=parameter, got=got)


def typed(values: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """Values of columns as the columns have them; another type is a mistake, and not "no row"."""
    found = {}
    for name, value in values.items():
        type_ = schema.field(name).type
        try:
            found[name] = converter(type_)(value)
        except (Refused, UnsupportedType, ValueError, OverflowError, ArithmeticError) as error:
            got = f"{value!r:.80} ({type(value).__name__})"
            raise conditions.NOT_A_VALUE_OF.error(column=name, type=type_, got=got) from error
    return found


def require_on_grid(window: Window | None, spec: Any) -> None:
    """Refuse a window that the operator does not have, if it has a grid of windows."""
    if window is None or not hasattr(spec, "grid") or "window_start" not in spec.output.names:
        return
    first, *end = window if isinstance(window, tuple) else (window,)
    start = parse_instant(first, parameter="window")
    low, high = spec.grid.windows_of(np.array([start]))
    numbers = np.arange(low[0] - 1, high[0] + 2)
    bounds = [
        *zip(spec.grid.start_of(numbers).tolist(), spec.grid.end_of(numbers).tolist(), strict=True)
    ]
    here = [(a, b) for a, b in bounds if a <= start < b]
    wanted = [(start, parse_instant(of, parameter="window")) for of in end]
    if not (set(wanted) <= set(here) if wanted else here):
        nearest = ", ".join(
            f"{format_instant(a)}/{format_instant(b)}" for a, b in (here or bounds)[:2]
        )
        raise conditions.OFF_THE_GRID.error(nearest=nearest, got=f"window={window!r}")


def _listed(of: Any) -> list[Any]:
    return [*of] if isinstance(of, list | tuple) else [of]


@dataclass(frozen=True, slots=True)
class Lines:
    """The sources of a query: one line of each offset, and one folder of the checkpoint.

    Parameters
    ----------
    folders : tuple of int
        The folder of each line. A source that a query reads twice has two lines, and one folder.
    notes : tuple of str
        What the checkpoint does not say.
    """

    folders: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, checkpoint: Checkpoint, plan: Sequence[MicroBatch], clocks: int) -> Lines:
        """The lines that rows come from: for a clock (``time.producers``) a query reads everything twice."""
        lines = [tuple(batch.ends[at] for batch in plan) for at in range(len(plan[0].ends))]
        folder = checkpoint.path / "sources"
        names = {of.name for of in folder.iterdir()} if folder.is_dir() else set[str]()
        there = sum(map(str.isdecimal, names))
        for _ in range(clocks):
            half = len(lines) // 2
            if half >= there and half and lines[:half] == lines[half:]:
                lines = lines[:half]
        if not 0 < there < len(lines) or not names >= {*map(str, range(there))}:
            return cls(tuple(range(len(lines))))
        folders = list[int]()
        for at, line in enumerate(lines):
            new = max(folders, default=-1) + 1
            is_again = line in lines[:at] and len(lines) - at > there - new
            if new >= there and not is_again:  # not every layout of source has a folder
                return cls(tuple(range(len(lines))))
            folders.append(folders[lines.index(line)] if is_again else new)
        note = f"the query has {len(lines)} inputs of {there} sources: it reads {'it' if there == 1 else 'some'} twice"
        return cls(tuple(folders), (note,))


def assign(
    source: Source, inputs: int, checkpoint: Checkpoint, plan: Sequence[MicroBatch], clocks: int
) -> tuple[list[list[Part]], list[str]]:
    """Of each input, its sources, and what is not read."""
    lines = Lines.of(checkpoint, plan, clocks)
    count = len(lines.folders)
    nested = [_listed(of) for of in _listed(source)]
    if inputs == 1:
        nested = [[of for group in nested for of in group]]
    flat = [of for group in nested for of in group]
    wrong = [of for of in flat if not isinstance(of, RecordedSource)]
    numbers = {getattr(of, "number", None) for of in flat}
    is_one_for_all = inputs == 1 and len(flat) == 1 and None in numbers
    by_position = numbers == {None} and (len(flat) == count or (inputs == 1 and len(flat) < count))
    by_number = numbers <= set(range(count))
    if (
        wrong
        or len(nested) != inputs
        or not flat
        or not (is_one_for_all or by_position or by_number)
    ):
        of_query = "1 source" if count == 1 else f"{count} sources"
        one = "a source for it" if inputs == 1 else "a source for each"
        raise conditions.SOURCES_DIFFER.error(
            inputs=f"{one}: the operator has {inputs} input{'' if inputs == 1 else 's'}, the query {of_query}",
            got=f"{len(flat)} sources" + "".join(f", a {type(of).__name__}" for of in wrong[:1]),
        )
    parts, at = list[list[Part]](), 0
    for group in nested:
        found = list[Part]()
        for of in group:
            chosen = range(count) if is_one_for_all else [at if of.number is None else of.number]
            at += 1
            found += ((of, Recorded(checkpoint, n, lines.folders[n], plan)) for n in chosen)
        parts.append(found)
    read = {of.number for group in parts for _, of in group}
    return parts, [
        *lines.notes,
        *(f"source {n} of the query is not read: its rows are missing here"
          for n in range(count) if n not in read),
    ]  # fmt: skip


@lru_cache(maxsize=64)
def _headers(
    spark: SparkSession, path: str, query: str, last: int, number: int
) -> tuple[StoredFrame, ...]:
    """The different headers of the state of an operator after a micro-batch.

    A shard without rows since a restart has the parameters of before it. Equal headers have one fingerprint.
    """
    from pyspark.sql import functions as F

    rows, _ = read_rows(spark, path, number, last)
    of_header = F.first(F.struct("shard", "blob"))
    found = rows.groupBy("fingerprint").agg(of_header.alias("of")).select("of.*").collect()
    return tuple(
        read_header(StoredShard(row["shard"], Stored(0, None, None, 0, row["blob"]), None, 0))
        for row in found
    )


def stored_headers(
    checkpoint: Checkpoint, operators: Sequence[Operator], spark: SparkSession | None
) -> tuple[list[Headers], list[str]]:
    """The headers of the states of a query by operator, and what cannot be known of them.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``: the query has other operators.
    """
    try:
        stored = checkpoint.operators
    except CheckpointError as error:  # Spark 3.5 writes no metadata of operators
        return [], [f"{UNVERIFIED} ({error.code})"]
    if not stored or not checkpoint.commits:
        return [], [UNVERIFIED]
    ours = [of for of in stored if may_be_ours(of)]
    others = [of.api for of in stored if not may_be_ours(of)]
    is_native = any(of.native is not None and of.execution.engine != "kernel" for of in operators)
    notes = [f"the query also has {api} of Spark, which is not replayed" for api in others]
    if is_native and len(ours) + len(others) == len(operators) and others:
        return [], [f"Spark's own operator ran ({', '.join(others)}): {UNVERIFIED}"]
    if len(ours) != len(operators):
        raise conditions.OPERATOR_DIFFERS.error(
            expected=_count(len(ours), stored), got=_count(len(operators), operators)
        )
    if spark is None:
        return [], [*notes, UNVERIFIED]
    query = json.loads((checkpoint.path / "metadata").read_text()).get("id", "")
    try:
        found: list[Headers] = [
            _headers(spark, str(checkpoint.path), query, checkpoint.last, of.number) for of in ours
        ]
    except Exception as error:  # Spark's own errors have many classes
        why = error.code if isinstance(error, StreamopsError) else type(error).__name__
        return [], [*notes, f"{UNVERIFIED} ({why})"]
    return (found, notes) if all(found) else ([], [*notes, UNVERIFIED])


def _count(number: int, names: Sequence[Operator | OperatorFiles]) -> str:
    names_ = ", ".join(of.name if isinstance(of, Operator) else of.api for of in names)
    return f"{number} operator{'' if number == 1 else 's'} of streamops with a state ({names_})"


def with_stored_shards(operators: Sequence[Operator], headers: Sequence[Headers]) -> list[Operator]:
    """The operators with the numbers of shards that the query has, unless two of a layout have different ones."""
    by_layout: dict[str, set[int]] = {}
    for header in (of for headers_ in headers for of in headers_):
        by_layout.setdefault(header.layout, set()).add(header.shards)
    found = list[Operator]()
    for of in operators:
        assert of.core is not None, "a chain has operators with a core"
        stored = by_layout.get(of.core.STATE.kind, ())
        shards = next(iter(stored)) if len(stored) == 1 else of.execution.shards
        found.append(replace(of, execution=replace(of.execution, shards=shards)))
    return found


def require_same(replay: RecordedReplay, headers: Sequence[Headers]) -> None:
    """Refuse operators whose parameters differ from those in the state of the query."""
    left = [[(h.layout, {"shards": h.shards} | _plain(h.identity)) for h in of] for of in headers]
    for layout, shards, identity in replay.identities():
        mine = {"shards": shards} | _plain(identity)
        same = next((of for of in left if (layout, mine) in of), None)
        if same is not None:
            left.remove(same)
            continue
        stored = next((of for names in left for name, of in names if name == layout), None)
        if stored is None:
            got, expected = layout, ", ".join(names[0][0] for names in left)
        else:
            differing = [name for name in {**stored, **mine} if stored.get(name) != mine.get(name)]
            got, expected = (
                ", ".join(f"{name}={of.get(name)!r}" for name in differing) for of in (mine, stored)
            )
            expected = f"{layout} with {expected}"
        raise conditions.OPERATOR_DIFFERS.error(expected=expected, got=got)


def _plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(identity))
    return found


def running_session(parts: Sequence[Sequence[Part]]) -> SparkSession | None:
    """The session of a source, or the running one."""
    from pyspark.sql import SparkSession

    for of, _ in (part for group in parts for part in group):
        if getattr(of, "spark", None) is not None:
            found: SparkSession = of.spark  # type: ignore[attr-defined]
            return found
    with suppress(Exception):  # a session that was stopped
        return SparkSession.getActiveSession()
    return None
