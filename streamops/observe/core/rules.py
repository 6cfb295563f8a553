"""Rules: when a history of micro-batches is worth an alarm."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from streamops.kernel.errors import SpecError
from streamops.observe.core.facts import LEVELS, Facts, History

__all__ = [
    "LATE",
    "Finding",
    "LateRows",
    "LateShare",
    "Rule",
    "require_batches",
    "require_share",
]

LATE = ("stragglers", "too_late", "dropped")
"""Counts of late rows: of our operators, and (``dropped``) of Spark's own."""

_JUDGED = ("on_time", "stragglers", "too_late", "rejected")
_MOST_BATCHES = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found: the operator, what is wrong with it, in numbers, and what to do."""

    operator: str
    what: str
    numbers: str
    remedy: str
    culprits: tuple[str, ...] = ()


class Rule(ABC):
    """What all rules have in common."""

    code: ClassVar[str]

    @property
    def remembers(self) -> int:
        """How many micro-batches with rows it looks back on."""
        return 1

    @abstractmethod
    def judge(self, history: History) -> Iterator[Finding]:
        """What is wrong now, at most once for each operator.

        Parameters
        ----------
        history : tuple of Facts
            The micro-batches of one run, as :func:`streamops.observe.core.facts.remember` keeps
            them; never empty.
        """


@dataclass(frozen=True)
class LateRows(Rule):
    """Alarm where so many rows were late within the last micro-batches.

    Parameters
    ----------
    rows : int
        How many, >= 1.
    batches : int
        Within the last how many micro-batches with rows.
    counts : str or sequence of str
        What is counted, summed: counts that an operator tells in ``observedMetrics``, and
        ``dropped``, which stands for the ``numRowsDroppedByWatermark`` of Spark's own operators.
        Each operator is judged by itself.

    Raises
    ------
    SpecError
        A parameter is out of range, or `counts` names a level, such as ``state_rows``.

    Examples
    --------
    >>> LateRows(1_000, batches=10)
    LateRows(rows=1000, batches=10, counts=('stragglers', 'too_late', 'dropped'))
    """

    code: ClassVar[str] = "LATE_ROWS"

    rows: int
    batches: int = 1
    counts: Sequence[str] = LATE

    def __post_init__(self) -> None:
        _require_count(self, "rows", self.rows)
        require_batches(self, self.batches)
        object.__setattr__(self, "counts", _names(self, self.counts))

    @property
    def remembers(self) -> int:
        """How many micro-batches with rows it looks back on."""
        return self.batches

    def judge(self, history: History) -> Iterator[Finding]:
        """An alarm for each operator that counted too many."""
        recent = history[-self.batches :]
        for name, told, late, _ in _operators(recent, self.counts):
            if late >= self.rows:
                yield _finding(name, self.counts, told, f"{late:,} rows", recent)


@dataclass(frozen=True)
class LateShare(Rule):
    """Alarm where such a share of the rows was late within the last micro-batches.

    The share is of what the operator judged: ``on_time``, ``stragglers``, ``too_late`` and
    ``rejected`` together; of an operator that does not judge, of its ``rows``; of one of Spark's
    own, of all rows that came into the query (once, also behind ``time.producers``).

    Parameters
    ----------
    share : float
        0 < share <= 1.
    batches : int
        Within the last how many micro-batches with rows.
    at_least : int
        How many rows there must be in them: a share of few rows says little.
    counts : str or sequence of str
        As in :class:`LateRows`.

    Raises
    ------
    SpecError
        A parameter is out of range, or `counts` names a level, such as ``state_rows``.

    Examples
    --------
    >>> LateShare(0.01)
    LateShare(share=0.01, batches=10, at_least=100, counts=('stragglers', 'too_late', 'dropped'))
    """

    code: ClassVar[str] = "LATE_SHARE"

    share: float
    batches: int = 10
    at_least: int = 100
    counts: Sequence[str] = LATE

    def __post_init__(self) -> None:
        fix = "share=0.01 is one row in a hundred"
        require_share(self.share, where=_where(self), fix=fix)
        require_batches(self, self.batches)
        _require_count(self, "at_least", self.at_least)
        object.__setattr__(self, "counts", _names(self, self.counts))

    @property
    def remembers(self) -> int:
        """How many micro-batches with rows it looks back on."""
        return self.batches

    def judge(self, history: History) -> Iterator[Finding]:
        """An alarm for each operator that counted too large a share."""
        recent = history[-self.batches :]
        for name, told, late, rows in _operators(recent, self.counts):
            if rows >= self.at_least and late >= Fraction(str(self.share)) * rows:
                share = f"{100 * late / rows:.3g} % of {rows:,} rows"
                yield _finding(name, self.counts, told, share, recent)


def _counted(told: Any, name: str) -> int:
    """A count that was told; 0 where it is null, or no number."""
    value = told.get(name)
    return value if isinstance(value, int) else 0


def require_share(share: object, *, where: str, fix: str) -> None:
    """Refuse what is no part of the rows."""
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise SpecError(
            "SHARE_OUT_OF_RANGE",
            "`share` is not a share",
            where=where,
            got=f"share={share!r}",
            expected="a number above 0, at most 1",
            fix=fix,
        )


def require_batches(rule: Rule, batches: object, least: int = 1) -> None:
    """Refuse a number of micro-batches that cannot be looked back on."""
    if type(batches) is not int or not least <= batches <= _MOST_BATCHES:
        raise SpecError(
            "BATCHES_OUT_OF_RANGE",
            "`batches` is out of range",
            where=_where(rule),
            got=f"batches={batches!r}",
            expected=f"an integer from {least} to {_MOST_BATCHES}",
            fix="batches=10 looks back on ten micro-batches with rows",
        )


def _operators(
    recent: Sequence[Facts], counts: Sequence[str]
) -> Iterator[tuple[str, dict[str, int], int, int]]:
    """Operators that tell one of the counts: name, each count, their sum, and of how many rows."""
    names = dict.fromkeys(name for facts in recent for name in facts.counts)
    for name in names:
        all_told = [facts.counts[name] for facts in recent if name in facts.counts]
        there = [word for word in counts if any(word in told for told in all_told)]
        if there:
            told = {word: sum(_counted(each, word) for each in all_told) for word in there}
            yield name, told, sum(told.values()), sum(map(_rows, all_told))


def _rows(told: Any) -> int:
    if "on_time" in told:
        return sum(_counted(told, word) for word in _JUDGED)
    return _counted(told, "rows")


def _finding(
    operator: str,
    counts: Sequence[str],
    told: dict[str, int],
    amount: str,
    recent: Sequence[Facts],
) -> Finding:
    listed = ", ".join(f"{word} {number:,}" for word, number in told.items())
    late = set(counts) <= set(LATE)
    return Finding(
        operator,
        "too many rows are late" if late else f"too many rows are {' or '.join(counts)}",
        f"{amount} in the last {len(recent)} micro-batch{'es' * (len(recent) > 1)} with rows: "
        f"{listed}",
        "find who sends them (observe.account_late over rows that are routed); a larger delay or "
        "allowed_lateness accepts them (observe.lateness_needed says how much)"
        if late
        else "look at the rows: docs/operations.md says what each count counts",
    )


def _where(rule: Rule) -> str:
    return f"observe.{type(rule).__name__}"


def _require_count(rule: Rule, parameter: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise SpecError(
            "ROWS_OUT_OF_RANGE",
            f"`{parameter}` is no number of rows",
            where=_where(rule),
            got=f"{parameter}={value!r}",
            expected="an integer, 1 or more",
            fix=f"{parameter}=100, say; a share is observe.LateShare",
        )


def _names(rule: Rule, counts: object) -> tuple[str, ...]:
    names = (counts,) if isinstance(counts, str) or not isinstance(counts, Sequence) else counts
    if not names or not all(isinstance(name, str) and name for name in names):
        raise SpecError(
            "NOT_A_NAME",
            "`counts` does not name counts",
            where=_where(rule),
            got=f"counts={counts!r}",
            expected="names of counts, such as 'too_late'",
            fix=f"leave it out for {', '.join(LATE)}",
        )
    levels = [name for name in names if name in LEVELS]
    if levels:
        raise SpecError(
            "NOT_A_COUNT",
            f"a level cannot be summed over micro-batches: {', '.join(levels)}",
            where=_where(rule),
            got=f"counts={counts!r}",
            expected="counts of rows or events, such as 'too_late' or 'forgotten'",
            fix="watch a level in observedMetrics; a rule sums what it counts",
        )
    return tuple(dict.fromkeys(names))
