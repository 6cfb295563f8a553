"""The exported metrics: one list, from which both exporters read.

Names and units are those of OpenTelemetry. The names of Prometheus follow from them, by the rules with
which OpenTelemetry itself exports to Prometheus, so one dashboard shows both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from streamops.observe.core.progress import COUNTS, OperatorProgress, Progress, QueryTotals, Totals

Sample = tuple[Mapping[str, str], float]
"""Labels besides the query, and the value."""

LABELS = ("query", "operator", "phase")
"""All labels that occur. Each has few values: queries are limited by `Totals`, operators and phases by
the plans of the queries."""

_SUFFIXES = {"s": "_seconds", "By": "_bytes"}
_SECOND = 1e6


@dataclass(frozen=True)
class Instrument:
    """An exported metric.

    Parameters
    ----------
    name : str
        The name, as OpenTelemetry has it.
    type : {"counter", "gauge"}
        A counter is a total over all micro-batches since the exporter was added to the session; a
        gauge is the value of the last micro-batch.
    unit : str
        The unit, a code of UCUM.
    description : str
        What is measured.
    read : callable
        From the totals of a query to its samples.
    """

    name: str
    type: Literal["counter", "gauge"]
    unit: str
    description: str
    read: Callable[[QueryTotals], Iterator[Sample]]

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, as it is stored there."""
        name = self.name.replace(".", "_") + _SUFFIXES.get(self.unit, "")
        return f"{name}_total" if self.type == "counter" else name

    def samples(self, totals: Totals) -> Iterator[Sample]:
        """The samples of all queries."""
        for query, totals_of_query in totals:
            for labels, value in self.read(totals_of_query):
                yield {"query": query, **labels}, value


def _once(read: Callable[[QueryTotals], float | None]) -> Callable[[QueryTotals], Iterator[Sample]]:
    """One sample per query; none where it is not known."""

    def samples(totals: QueryTotals) -> Iterator[Sample]:
        value = read(totals)
        if value is not None:
            yield {}, value

    return samples


def _last(
    read: Callable[[Progress], int | None], scale: float = 1
) -> Callable[[QueryTotals], Iterator[Sample]]:
    """A value of the last micro-batch."""

    def value(totals: QueryTotals) -> float | None:
        found = read(totals.last)
        return None if found is None else found / scale

    return _once(value)


def _phases(totals: QueryTotals) -> Iterator[Sample]:
    for phase, duration in totals.phases.items():
        yield {"phase": phase}, duration / _SECOND


def _count(name: str) -> Callable[[QueryTotals], Iterator[Sample]]:
    def samples(totals: QueryTotals) -> Iterator[Sample]:
        for operator, counts in totals.counts.items():
            if name in counts:
                yield {"operator": operator}, counts[name]

    return samples


def _state(
    read: Callable[[OperatorProgress], int | None],
) -> Callable[[QueryTotals], Iterator[Sample]]:
    def samples(totals: QueryTotals) -> Iterator[Sample]:
        for name, operator in totals.operators.items():
            value = read(operator)
            if value is not None:
                yield {"operator": name}, value

    return samples


INSTRUMENTS: tuple[Instrument, ...] = (
    Instrument(
        "streamops.query.active",
        "gauge",
        "",
        "1 while the query is running, 0 when it has ended.",
        _once(lambda query: int(query.is_active)),
    ),
    Instrument(
        "streamops.micro_batches",
        "counter",
        "{micro_batch}",
        "Micro-batches.",
        _once(lambda query: query.batches),
    ),
    Instrument(
        "streamops.micro_batch.duration",
        "counter",
        "s",
        "How long micro-batches took.",
        _once(lambda query: query.duration / _SECOND),
    ),
    Instrument(
        "streamops.phase.duration",
        "counter",
        "s",
        "How long the phases of micro-batches took.",
        _phases,
    ),
    Instrument(
        "streamops.last_micro_batch.timestamp",
        "gauge",
        "s",
        "When the last micro-batch started, in seconds since 1970.",
        _last(lambda progress: progress.started, _SECOND),
    ),
    Instrument(
        "streamops.input.rows",
        "counter",
        "{row}",
        "Input rows of micro-batches.",
        _once(lambda query: query.rows),
    ),
    Instrument(
        "streamops.consumer.lag",
        "gauge",
        "{record}",
        "Records between the end of the last micro-batch and the end of the Kafka topics.",
        _last(lambda progress: progress.behind),
    ),
    Instrument(
        "streamops.consumer.data_loss.timestamp",
        "gauge",
        "s",
        "When the query loses data of its Kafka topics at this rate, in seconds since 1970.",
        _last(lambda progress: progress.loses_data_at, _SECOND),
    ),
    Instrument(
        "streamops.watermark.timestamp",
        "gauge",
        "s",
        "The watermark, in seconds since 1970.",
        _last(lambda progress: progress.watermark or None, _SECOND),
    ),
    Instrument(
        "streamops.watermark.delay",
        "gauge",
        "s",
        "How far the watermark was behind the clock when the last micro-batch started.",
        _last(lambda progress: progress.watermark_delay, _SECOND),
    ),
    Instrument(
        "streamops.event.delay",
        "gauge",
        "s",
        "How far the newest event time was behind the clock when the last micro-batch started.",
        _last(lambda progress: progress.event_delay, _SECOND),
    ),
    Instrument(
        "streamops.lateness",
        "gauge",
        "s",
        "How far the oldest row of the last micro-batch was behind the watermark.",
        _last(lambda progress: progress.lateness, _SECOND),
    ),
    Instrument(
        "streamops.operator.state.rows",
        "gauge",
        "{row}",
        "Rows of state.",
        _state(lambda operator: operator.state_rows),
    ),
    Instrument(
        "streamops.operator.state.size",
        "gauge",
        "By",
        "Bytes of state.",
        _state(lambda operator: operator.state_bytes),
    ),
    *(
        Instrument(f"streamops.operator.{name}", "counter", "{row}", description, _count(name))
        for name, description in COUNTS.items()
    ),
)
"""All exported metrics."""
