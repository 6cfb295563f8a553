"""Which alarms are due after each micro-batch, computed from all progress of the run."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from streamops.observe import LateRows, LateShare, PoisonedWatermark, StuckWatermark
from streamops.observe.core.alarms import Rule
from streamops.observe.core.progress import Progress

QUERY = "the watermark of the query"
CLOCKS = ("producers",)
HOUR = 3_600_000_000


def groups(batches: Sequence[Progress]) -> list[list[Progress]]:
    """Each micro-batch with rows, and those without rows that follow it."""
    result: list[list[Progress]] = []
    for batch in batches:
        if batch.rows or not result:
            result.append([])
        result[-1].append(batch)
    return result


def violations(rule: Rule, batches: Sequence[Progress]) -> set[str]:
    """The operators that violate the rule after these micro-batches."""
    match rule:
        case LateRows() | LateShare():
            return late_operators(rule, groups(batches))
        case StuckWatermark():
            return {QUERY} if is_stuck(rule, groups(batches)) else set()
        case PoisonedWatermark():
            last = groups(batches)[-1]
            limit = last[-1].started + HOUR
            instants = [*(batch.newest for batch in last), last[-1].watermark]
            if any(at is not None and at > limit for at in instants):
                return {QUERY}
            clocks = {name: last[0].metrics.get(name, {"rows": None}) for name in CLOCKS}
            return {n for n, c in clocks.items() if c["rows"] and (c["newest_micros"] or 0) > limit}
    raise AssertionError(rule)


def late_operators(rule: LateRows | LateShare, grouped: list[list[Progress]]) -> set[str]:
    recent = [batch for group in grouped[-rule.batches :] for batch in group]
    found = set()
    for name in {name for batch in recent for name in batch.metrics}:
        metrics = [batch.metrics.get(name, {}) for batch in recent]
        late = sum(m.get(count) or 0 for m in metrics for count in rule.counts)
        classified = ("on_time", "stragglers", "too_late", "rejected")
        counts = classified if any("on_time" in m for m in metrics) else ("rows",)
        rows = sum(m.get(count) or 0 for m in metrics for count in counts)
        if isinstance(rule, LateRows):
            too_many = late >= rule.rows
        else:
            too_many = rows >= rule.at_least and late >= Decimal(str(rule.share)) * rows
        if too_many:
            found.add(name)
    return found


def is_stuck(rule: StuckWatermark, grouped: list[list[Progress]]) -> bool:
    recent = grouped[-rule.batches :]
    if len(recent) < rule.batches or not all(group[0].rows for group in recent):
        return False
    watermarks = {group[-1].watermark for group in recent}
    if len(watermarks) > 1 or None in watermarks:
        return False
    (watermark,) = watermarks
    assert watermark is not None
    # Event times up to the first of the recent micro-batches, and up to the last but one.
    start, end = (
        [b.newest for group in grouped[:stop] for b in group if b.newest is not None]
        for stop in (len(grouped) - rule.batches + 1, len(grouped) - 1)
    )
    advances = bool(end) and (not start or max(end) > max(start)) and max(end) > watermark
    # Or the newest event time of time.producers, from one micro-batch to the next.
    for name in CLOCKS:
        clock = [group[0].metrics[name] for group in recent[:-1] if name in group[0].metrics]
        held = [c for c in clock if None not in (c["rows"], c["held_by"])]
        times = [c["newest_micros"] for c in held if c["newest_micros"] is not None]
        for number, newest in enumerate(times[1:]):
            advances |= newest > times[number] and newest > watermark
    return advances


def alarms(rules: Sequence[Rule], batches: Sequence[Progress]) -> list[set[tuple[str, str]]]:
    """After each micro-batch: the code of the rule and the operator of each new alarm."""
    due, before = [], set()
    for count in range(1, len(batches) + 1):
        now = {(rule, name) for rule in rules for name in violations(rule, batches[:count])}
        due.append({(rule.code, name) for rule, name in now - before})
        before = now
    return due
