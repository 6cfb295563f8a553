"""Alarms: what rules find, told once per episode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamops.observe.core.facts import Facts, History, remember
from streamops.observe.core.rules import Rule

__all__ = ["QUIET", "Alarm", "Watch", "take_in"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that a rule found, told when it began.

    Its text says all of it.

    Parameters
    ----------
    code : str
        A stable word: ``LATE_ROWS``, ``LATE_SHARE``, ``STUCK_WATERMARK`` or
        ``POISONED_WATERMARK``.
    query, run : str
        The query's name, or its id where it has none; the id of this start of it.
    batch : int
        The micro-batch in which it began.
    operator : str
        The operator's name in ``observedMetrics``, or what else it is about.
    what : str
        What is wrong.
    numbers : str
        How wrong.
    culprits : tuple of str
        Who is to blame, as far as the query tells.
    rule : Rule
        What it was judged by.
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
        lines = [f"  {name + ':':<9} {said}" for name, said in facts.items() if said]
        where = f"query {self.query}, micro-batch {self.batch}"
        return "\n".join([f"[{self.code}] {where}: {self.what}", *lines])


@dataclass(frozen=True, slots=True)
class Watch:
    """What is remembered of one run of a query: its history, and which episodes are not over."""

    history: History = ()
    going_on: frozenset[tuple[Rule, str]] = frozenset()


QUIET = Watch()
"""Before the first micro-batch."""


def take_in(rules: Sequence[Rule], watch: Watch, facts: Facts) -> tuple[Watch, list[Alarm]]:
    """Take in a micro-batch, and tell which episodes begin with it.

    An episode of a rule and an operator goes on while the rule finds the operator in every
    micro-batch.
    """
    most = max(rule.remembers for rule in rules)
    history = remember(watch.history, facts, most)
    found = {(rule, each.operator): each for rule in rules for each in rule.judge(history)}
    alarms = [
        Alarm(
            rule.code,
            facts.query,
            facts.run,
            facts.batch,
            each.operator,
            each.what,
            each.numbers,
            each.culprits,
            rule,
            each.remedy,
        )
        for (rule, operator), each in found.items()
        if (rule, operator) not in watch.going_on
    ]
    return Watch(history, frozenset(found)), alarms
