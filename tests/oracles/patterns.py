"""Pattern matching by backtracking, row by row, in simple Python.

A pattern is a tuple: ``("row", variable)``, ``("gap", forbidden variables)``, ``("series", items)``,
``("either", items)``, ``("permute", items)``, ``("repeat", item, low, high, greedy)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

from tests.oracles.side_output import late_row
from tests.oracles.windows import Expected, Row, key_of

Node = tuple[Any, ...]
Path = list[str | None]
"""The variable of each row, or None if it is skipped."""

UNKNOWN = "unknown"
ENDLESS = 1 << 62
LEAST, GREATEST = -62_135_596_800_000_000, 253_402_300_799_999_999


def render(node: Node) -> str:
    """The pattern as text."""
    match node:
        case ("row", name):
            return str(name)
        case ("gap", forbidden):
            return " ".join(f"!{name}" for name in forbidden) or "..."
        case ("series", items):
            return "(" + " ".join(map(render, items)) + ")"
        case ("either", items):
            return "(" + " | ".join(map(render, items)) + ")"
        case ("permute", items):
            return "permute(" + ", ".join(map(render, items)) + ")"
        case ("repeat", item, low, high, greedy):
            text = render(item)
            return f"({text}){{{low},{'' if high is None else high}}}{'' if greedy else '?'}"
    raise AssertionError(node)


@dataclass
class Matcher:
    """One key: its rows up to the frontier, as the sets of variables whose conditions they satisfy."""

    rows: Sequence[frozenset[str]]
    is_open: bool
    """Whether more rows may follow, within the bound of the start."""
    limit: int
    """Rows from here on are beyond the bound."""
    step: int = 0
    reached: int = 0
    """The last item of the pattern that a row was assigned to, on any path so far."""
    dead: set[tuple[tuple[Node, ...], int]] = field(default_factory=set)
    """What does not match from where: without it, loops within loops take exponential time."""

    def paths(self, nodes: tuple[Node, ...], at: int) -> Iterator[Path | str]:
        """All paths in order of preference; UNKNOWN where one reaches an open frontier."""
        if (nodes, at) in self.dead:
            return
        is_dead = True
        for path in self._paths(nodes, at):
            is_dead = False
            yield path
        if is_dead:
            self.dead.add((nodes, at))

    def _paths(self, nodes: tuple[Node, ...], at: int) -> Iterator[Path | str]:
        if not nodes:
            yield []
            return
        head, rest = nodes[0], nodes[1:]
        match head:
            case ("step", number):
                outer, self.step = self.step, number
                yield from self.paths(rest, at)
                self.step = outer
            case ("row", name):
                yield from self._consume(name, lambda row: name in row, rest, at)
            case ("gap", forbidden):
                yield from self.paths(rest, at)
                free = lambda row: not row & set(forbidden)  # noqa: E731
                yield from self._consume(None, free, nodes, at)
            case ("series", items):
                yield from self.paths((*items, *rest), at)
            case ("either", items):
                for item in items:
                    yield from self.paths((item, *rest), at)
            case ("permute", items):
                for order in permutations(range(len(items))):
                    yield from self.paths((*(items[i] for i in order), *rest), at)
            case ("repeat", item, low, high, greedy):
                if low:
                    less = None if high is None else high - 1
                    again = ("repeat", item, low - 1, less, greedy)
                    then = ("again", at, again) if low == 1 else again
                    yield from self.paths((item, then, *rest), at)
                    return
                if high == 0:
                    yield from self.paths(rest, at)
                    return
                less = None if high is None else high - 1
                loop = ("again", at, ("repeat", item, 0, less, greedy))
                once, none = (item, loop, *rest), rest
                for choice in (once, none) if greedy else (none, once):
                    yield from self.paths(choice, at)
            case ("again", before, loop):
                # A repetition of nothing ends the loop.
                yield from self.paths(rest if at == before else (loop, *rest), at)

    def _consume(self, name: str | None, test: Any, rest: Any, at: int) -> Iterator[Path | str]:
        if at == len(self.rows) and self.is_open:
            yield UNKNOWN
        elif at < min(len(self.rows), self.limit) and test(self.rows[at]):
            if name is not None:
                self.reached = max(self.reached, self.step)
            for path in self.paths(rest, at + 1):
                yield path if path == UNKNOWN else [name, *path]

    def first(self, nodes: tuple[Node, ...], at: int) -> Path | str | None:
        """The preferred path from a row. UNKNOWN if it depends on further rows."""
        return next(self.paths(nodes, at), None)


@dataclass
class Answer:
    """The outcome of all decided starts of one key: positions of rows."""

    matches: list[tuple[int, Path]] = field(default_factory=list)
    timeouts: list[tuple[int, int]] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)
    needed: int | None = None


@dataclass(frozen=True)
class Query:
    """A pattern with all that decides about matches."""

    items: tuple[Node, ...]
    absent: tuple[str, ...] = ()
    within: int | None = None
    resume: str = "past last row"
    """Where the search continues after a match; "past horizon" if only the first one is searched."""
    variable: str = ""
    horizon: int | None = None

    def search(
        self,
        rows: Sequence[frozenset[str]],
        times: Sequence[int],
        may_start: Sequence[bool],
        watermark: int,
        is_open: bool,
        seen_from: Callable[[int], Sequence[frozenset[str]]] | None = None,
    ) -> Answer:
        """All decided matches of one key.

        With ``seen_from``, what the rows satisfy depends on the start, the position of which it takes.
        """
        answer, at = Answer(), 0
        while at < len(rows):
            if seen_from is not None:
                rows = seen_from(at)
            bound = ENDLESS if self.within is None else times[at] + self.within
            limit = next((i for i in range(at, len(rows)) if times[i] >= bound), len(rows))
            waits = is_open and bound - 1 > watermark
            matcher = Matcher(rows, waits, limit)
            path = matcher.first(self.items, at) if may_start[at] else None
            if path is not None and path != UNKNOWN and self.absent:
                after = rows[at + len(path) : limit]
                if any(row & set(self.absent) for row in after):
                    path = None
                elif waits:
                    path = UNKNOWN
            if path == UNKNOWN:
                answer.undecided.append(at)
                if self.resume != "to next row":
                    answer.needed = at
                    return answer
            elif isinstance(path, list):
                answer.matches.append((at, path))
                at += self._advance(path)
                if self.resume == "past horizon":
                    until = self.until(times[at - 1])
                    at = next((i for i in range(at, len(rows)) if times[i] >= until), len(rows))
                continue
            elif may_start[at] and not waits:
                self._timeout(rows, at, limit, answer)
            at += 1
        if answer.undecided:
            answer.needed = answer.undecided[0]
        return answer

    def until(self, match_end: int) -> int:
        """From when on the key of a match may match again, if only the first one is searched."""
        return ENDLESS if self.horizon is None else match_end + self.horizon

    def _advance(self, path: Path) -> int:
        if self.resume in ("past last row", "past horizon"):
            return len(path)
        its = [i for i, name in enumerate(path) if name == self.variable]
        if self.resume == "to next row" or not its:
            return 1
        return max(its[0] if self.resume == "to first" else its[-1], 1)

    def _timeout(self, rows: Sequence[frozenset[str]], at: int, limit: int, answer: Answer) -> None:
        """A partial match that needs a row at the bound, and its steps."""
        if Matcher(rows[:limit], False, limit).first(self.items, at) is not None:
            return  # it matched, and was followed by a row that it must not be followed by
        alive = Matcher(rows[:limit], True, ENDLESS).paths(self.items, at)
        if not any(path == UNKNOWN for path in alive):
            return
        number, items = 0, list[Node]()
        for item in self.items:
            number += item[0] != "gap"
            items += [("step", number), item]
        walker = Matcher(rows[:limit], False, limit)
        for _ in walker.paths(tuple(items), at):
            raise AssertionError
        if walker.reached:
            answer.timeouts.append((at, walker.reached))


@dataclass(frozen=True)
class Anchored:
    """A condition that is a function of (the row, the rows before it, the first row of the match)."""

    holds: Any


@dataclass
class PatternOracle:
    """Matches of all keys, row by row: every step searches all rows of the key since its last match."""

    query: Query
    by: tuple[str, ...]
    time: str
    tie: Callable[[Row], Any]
    """Orders the rows of one event time."""
    conditions: Mapping[str, Any]
    """By variable: a function of (the row, the rows of the key before it, nearest first), or Anchored."""
    measures: Mapping[str, Any]
    """By name: a function of pairs of a row and its variable."""
    stragglers: str = "drop"
    timeouts: str = "drop"
    max_rows: int | None = None
    """Of undecided rows, the oldest beyond this number are dropped."""

    watermark: int | None = None
    rows: dict[Any, list[Row]] = field(default_factory=dict)
    spent: dict[Any, set[int]] = field(default_factory=dict)
    """Rows, by identity, whose start is decided."""
    until: dict[Any, int] = field(default_factory=dict)
    """By key that matched, if only first matches are searched: from when on it may match again."""
    held: dict[int, frozenset[str]] = field(default_factory=dict)
    """By identity of a released row: the variables whose conditions it satisfies."""
    before: dict[int, list[Row]] = field(default_factory=dict)
    """By identity of a released row: the rows before it that conditions read."""
    dropped: dict[Any, set[int]] = field(default_factory=dict)
    """Rows, by identity, that are in no match because their key had too many."""

    def fresh(self) -> PatternOracle:
        """An oracle with the same parameters and no rows."""
        return replace(
            self, watermark=None, rows={}, spent={}, until={}, held={}, before={}, dropped={}
        )

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch."""
        expected = Expected()
        expected.counts |= {"timeouts": 0, "overflowed": 0, "rows": len(rows)}
        self.accept(rows, expected)
        if watermark is not None:
            self.watermark = watermark if self.watermark is None else max(watermark, self.watermark)
        if self.watermark is not None:
            self._search(self.watermark, True, expected)
        expected.counts["results"] = len(expected.emitted)
        return expected

    def accept(self, rows: Sequence[Row], expected: Expected) -> None:
        """Store the rows that are not late."""
        for row in rows:
            time = row[self.time]
            if time is None or not LEAST <= time <= GREATEST:
                expected.counts["rejected"] += 1
                self._route(row, "null_time" if time is None else "time_out_of_range", expected)
            elif self.watermark is not None and time <= self.watermark:
                expected.counts["too_late"] += 1
                self._route(row, "too_late", expected)
            else:
                expected.counts["on_time"] += 1
                self.rows.setdefault(key_of(row, self.by), []).append(row)

    def finish(self) -> list[Row]:
        """The matches at the end of the stream."""
        expected = Expected()
        rows = {key: [*of] for key, of in self.rows.items()}
        spent = {key: {*of} for key, of in self.spent.items()}
        copied = {"until": {**self.until}, "held": {**self.held}, "before": {**self.before}}
        copied["dropped"] = {key: {*of} for key, of in self.dropped.items()}
        end = replace(self, rows=rows, spent=spent, **copied)
        end._search(ENDLESS, False, expected)
        return expected.emitted

    def bound(self) -> int:
        """Rows that are not released, or whose bound has not passed, and keys that matched."""
        within = ENDLESS if self.query.within is None else self.query.within
        known = -ENDLESS if self.watermark is None else self.watermark
        every = [row for rows in self.rows.values() for row in rows]
        remembered = sum(until - 1 > known for until in self.until.values())
        return remembered + sum(row[self.time] + within - 1 > known for row in every)

    def _search(self, watermark: int, is_open: bool, expected: Expected) -> None:
        for key, rows in self.rows.items():
            known = [row for row in rows if row[self.time] <= watermark]
            known.sort(key=lambda row: (row[self.time], self.tie(row)))
            for at, row in enumerate(known):
                if id(row) not in self.held:
                    self.held[id(row)] = self._holds(known, at)
            spent = self.spent.setdefault(key, set())
            dropped = self.dropped.get(key, set())
            known = [row for row in known if id(row) not in dropped]
            held = [self.held[id(row)] for row in known]
            times = [row[self.time] for row in known]
            # Rows before the first start that is not decided are out of the way.
            first = 0
            if self.query.resume != "to next row":
                while first < len(known) and id(known[first]) in spent:
                    first += 1
            until = self.until.get(key, -ENDLESS)
            may_start = [id(row) not in spent and row[self.time] >= until for row in known]
            after = known[first:]

            def seen_from(
                at: int, after: list[Row] = after, held: list[Any] = held[first:]
            ) -> list[frozenset[str]]:
                anchored = [self._anchored(row, after[at]) for row in after]
                return [one | other for one, other in zip(held, anchored, strict=True)]

            answer = self.query.search(
                held[first:], times[first:], may_start[first:], watermark, is_open, seen_from
            )
            for at, path in answer.matches:
                self._emit(known[first + at :], path, expected)
                if self.query.resume == "past horizon":
                    self.until[key] = self.query.until(known[first + at + len(path) - 1][self.time])
            for at, steps in answer.timeouts:
                if self.timeouts == "route":
                    expected.counts["timeouts"] = expected.counts.get("timeouts", 0) + 1
                    self._late(known[first + at], "timed_out", expected, steps=steps)
            end = len(known) if answer.needed is None else first + answer.needed
            if self.query.resume == "to next row":
                undecided = {first + at for at in answer.undecided}
                spent |= {id(row) for i, row in enumerate(known) if i not in undecided}
            else:
                spent |= {id(row) for row in known[:end]}
            if self.max_rows is not None:
                self._drop(key, known[end:], expected)

    def _drop(self, key: Any, undecided: Sequence[Row], expected: Expected) -> None:
        """The oldest of too many undecided rows are in no match. Conditions still read them."""
        excess = len(undecided) - (self.max_rows or 0)
        if excess > 0:
            expected.counts["overflowed"] += excess
            self.dropped.setdefault(key, set()).update(id(row) for row in undecided[:excess])

    def _holds(self, rows: Sequence[Row], at: int) -> frozenset[str]:
        within = ENDLESS if self.query.within is None else self.query.within
        time = rows[at][self.time]
        before = [row for row in rows[:at][::-1] if time - row[self.time] < within]
        self.before[id(rows[at])] = before
        static = ((n, of) for n, of in self.conditions.items() if not isinstance(of, Anchored))
        return frozenset(name for name, holds in static if holds(rows[at], before))

    def _anchored(self, row: Row, first: Row) -> frozenset[str]:
        """The conditions over the first row of the match that a row satisfies."""
        named = ((n, of) for n, of in self.conditions.items() if isinstance(of, Anchored))
        return frozenset(name for name, of in named if of.holds(row, self.before[id(row)], first))

    def _emit(self, rows: Sequence[Row], path: Path, expected: Expected) -> None:
        assigned = [(row, name) for row, name in zip(rows, path, strict=False) if name is not None]
        result = {name: rows[0][name] for name in self.by}
        result |= {"match_start": rows[0][self.time], "match_end": rows[len(path) - 1][self.time]}
        result |= {name: of(assigned) for name, of in self.measures.items()}
        expected.emitted.append(result)

    def _route(self, row: Row, reason: str, expected: Expected) -> None:
        if self.stragglers == "route":
            details: dict[str, Any] = {"row": row}
            if reason == "too_late":
                assert self.watermark is not None
                lateness = self.watermark - row[self.time]
                details |= {"lateness": lateness, "watermark": self.watermark}
            self._late(row, reason, expected, **details)

    def _late(self, of: Row, reason: str, expected: Expected, **details: Any) -> None:
        has_time = reason in ("too_late", "timed_out")
        time = of[self.time] if has_time else None
        late = late_row(reason, details.pop("row", None), **{"steps": None} | details)
        keys = {name: of[name] for name in self.by}
        expected.late.append({**keys, "match_start": time, "match_end": time, "late": late})
