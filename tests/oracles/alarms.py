"""Which rules find which operators, and when an alarm is due: from all facts, each time anew."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from streamops.observe import LateRows, LateShare, PoisonedWatermark, StuckWatermark
from streamops.observe.core.facts import Facts
from streamops.observe.core.rules import Rule

QUERY = "the watermark of the query"
CLOCKS = ("producers",)


def groups(facts: Sequence[Facts]) -> list[list[Facts]]:
    """Each micro-batch with rows, and those without rows that followed it."""
    made: list[list[Facts]] = []
    for each in facts:
        if each.rows or not made:
            made.append([])
        made[-1].append(each)
    return made


def holds(rule: Rule, facts: Sequence[Facts]) -> set[str]:
    """The operators that the rule finds after these micro-batches."""
    made = groups(facts)
    match rule:
        case LateRows() | LateShare():
            recent = [each for group in made[-rule.batches :] for each in group]
            found = set()
            for name in {name for each in recent for name in each.counts}:
                late = sum(
                    each.counts.get(name, {}).get(c) or 0 for each in recent for c in rule.counts
                )
                judged = ("on_time", "stragglers", "too_late", "rejected")
                tells = any("on_time" in each.counts.get(name, {}) for each in recent)
                words = judged if tells else ("rows",)
                rows = sum(each.counts.get(name, {}).get(c) or 0 for each in recent for c in words)
                if isinstance(rule, LateRows):
                    too_many = late >= rule.rows
                else:
                    too_many = rows >= rule.at_least and late >= Decimal(str(rule.share)) * rows
                if too_many:
                    found.add(name)
            return found
        case StuckWatermark():
            if len(made) < rule.batches or not all(g[0].rows for g in made[-rule.batches :]):
                return set()
            marks = {group[-1].watermark for group in made[-rule.batches :]}
            if len(marks) > 1 or None in marks:
                return set()
            # The greatest event time up to the first of them, and up to the last but one.
            start, end = (
                [e.newest for g in made[:stop] for e in g if e.newest is not None]
                for stop in (len(made) - rule.batches + 1, len(made) - 1)
            )
            (mark,) = marks
            assert mark is not None
            went_on = bool(end) and (not start or max(end) > max(start)) and max(end) > mark
            # Or any time that a clock of producers told: from one micro-batch to the next.
            clocks = [
                [g[0].counts[name] for g in made[-rule.batches : -1] if name in g[0].counts]
                for name in CLOCKS
            ]
            for told in clocks:
                held = [c for c in told if None not in (c["rows"], c["held_by"])]
                times = [c["newest_micros"] for c in held if c["newest_micros"] is not None]
                for number, newest in enumerate(times[1:]):
                    went_on |= newest > times[number] and newest > mark
            return {QUERY} if went_on else set()
        case PoisonedWatermark():
            last = made[-1]
            limit = last[-1].started + 3_600_000_000  # an hour
            newest = [each.newest for each in last if each.newest is not None]
            told = [*newest, *(m for m in [last[-1].watermark] if m is not None)]
            if any(each > limit for each in told):
                return {QUERY}
            clocks = {name: last[0].counts.get(name, {"rows": None}) for name in CLOCKS}
            return {n for n, c in clocks.items() if c["rows"] and (c["newest_micros"] or 0) > limit}
    raise AssertionError(rule)


def alarms(rules: Sequence[Rule], facts: Sequence[Facts]) -> list[set[tuple[str, str]]]:
    """After each micro-batch: the code of the rule and the operator of each alarm that is due."""
    due, before = [], set()
    for count in range(1, len(facts) + 1):
        now = {(rule, name) for rule in rules for name in holds(rule, facts[:count])}
        due.append({(rule.code, name) for rule, name in now - before})
        before = now
    return due
