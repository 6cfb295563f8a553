"""Alarms: evaluate rules on the recent micro-batches of one query run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from streamops.observe.core.progress import Progress

GAUGES = (
    *("state_rows", "state_bytes", "active", "behind"),
    *("watermark", "clock", "newest", "clock_micros", "newest_micros"),
)
"""Metrics that are not counts, so a sum over micro-batches has no meaning."""


History = tuple[Progress, ...]
"""Micro-batches with rows, oldest first, each merged with the ones without rows that follow it."""


def append_progress(history: History, progress: Progress, length: int) -> History:
    """Append a micro-batch to a history of at most `length` micro-batches with rows.

    A micro-batch without rows is merged into the previous one: Spark runs it to close the windows
    of the previous one, and the operators downstream process their results.
    """
    previous = history[-1] if history else None
    newest_so_far = _greatest(previous.newest_so_far if previous else None, progress.newest)
    current = replace(progress, newest_so_far=newest_so_far)
    if previous is None or progress.rows:
        return (*history, current)[-length:]
    merged = replace(
        current,
        rows=previous.rows,
        newest=_greatest(previous.newest, progress.newest),
        sources=previous.sources,
        metrics=_merge_metrics(previous.metrics, progress.metrics),
    )
    return (*history[:-1], merged)


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem that a rule found in an operator."""

    operator: str
    what: str
    numbers: str
    remedy: str
    culprits: tuple[str, ...] = ()


class Rule(ABC):
    """A condition on the history of one run."""

    code: ClassVar[str]
    batches: int = 1
    """The number of micro-batches with rows that the rule depends on."""

    @abstractmethod
    def evaluate(self, history: History) -> Iterator[Finding]:
        """Yield the current findings, at most one per operator. The history is never empty."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A finding of a rule, raised in the micro-batch in which it began.

    ``str(alarm)`` contains all fields.

    Parameters
    ----------
    code : str
        Stable code: ``LATE_ROWS``, ``LATE_SHARE``, ``STUCK_WATERMARK``,
        ``POISONED_WATERMARK``, ``CONSUMER_LAG`` or ``DATA_LOSS``.
    query, run : str
        Name of the query, or its id if it has no name; id of the run.
    batch : int
        The micro-batch in which the episode began.
    operator : str
        Name of the operator in ``observedMetrics``, "the watermark of the query", or a source.
    what : str
        The problem.
    numbers : str
        The measured values.
    culprits : tuple of str
        Sources or producers that cause the problem, as far as the query reports them.
    rule : Rule
        The rule that was violated.
    remedy : str
        What to do.
    """

    code: str
    query: str
    run: str
    batch: int
    operator: str
    what: str
    numbers: str
    culprits: tuple[str, ...]
    rule: Rule
    remedy: str

    def __str__(self) -> str:
        facts = {
            "operator": self.operator,
            "numbers": self.numbers,
            "culprit": "; ".join(self.culprits),
            "rule": f"observe.{self.rule!r}",
            "remedy": self.remedy,
        }
        lines = [f"  {name + ':':<9} {value}" for name, value in facts.items() if value]
        where = f"query {self.query}, micro-batch {self.batch}"
        return "\n".join([f"[{self.code}] {where}: {self.what}", *lines])


@dataclass(frozen=True, slots=True)
class Run:
    """State of the rules for one run: its history, and the episodes that have not ended."""

    history: History = ()
    episodes: frozenset[tuple[Rule, str]] = frozenset()


def raise_alarms(rules: Sequence[Rule], run: Run, progress: Progress) -> tuple[Run, list[Alarm]]:
    """Process a micro-batch, and return an alarm for each episode that begins with it.

    An episode of a rule and an operator lasts as long as each micro-batch has such a finding.
    """
    history = append_progress(run.history, progress, max(rule.batches for rule in rules))
    found = {(rule, f.operator): f for rule in rules for f in rule.evaluate(history)}
    alarms = [
        Alarm(
            code=rule.code,
            query=progress.query,
            run=progress.run,
            batch=progress.batch,
            rule=rule,
            **{f.name: getattr(finding, f.name) for f in fields(finding)},
        )
        for (rule, operator), finding in found.items()
        if (rule, operator) not in run.episodes
    ]
    return Run(history, frozenset(found)), alarms


def _greatest(*values: int | None) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _merge_metrics(
    previous: Mapping[str, Mapping[str, Any]], current: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Add up counts; of gauges and of other values, use the latest that is not None."""
    merged = {operator: dict(metrics) for operator, metrics in previous.items()}
    for operator, metrics in current.items():
        total = merged.setdefault(operator, {})
        for name, value in metrics.items():
            before = total.get(name)
            if isinstance(value, int) and isinstance(before, int) and name not in GAUGES:
                total[name] = before + value
            elif value is not None or name not in total:
                total[name] = value
    return merged
