"""Pattern matching by backtracking, row by row, in simple Python.

A pattern is a tuple: ``("row", variable)``, ``("gap", forbidden variables)``, ``("series", items)``,
``("either", items)``, ``("permute", items)``, ``("repeat", item, low, high, greedy)``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

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

    def paths(self, nodes: tuple[Node, ...], at: int) -> Iterator[Path | str]:
        """All paths in order of preference; UNKNOWN where one reaches an open frontier."""
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
                    yield from self.paths((item, again, *rest), at)
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
    variable: str = ""

    def search(
        self,
        rows: Sequence[frozenset[str]],
        times: Sequence[int],
        may_start: Sequence[bool],
        watermark: int,
        is_open: bool,
    ) -> Answer:
        """All decided matches of one key."""
        answer, at = Answer(), 0
        while at < len(rows):
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
                continue
            elif may_start[at] and not waits:
                self._timeout(rows, at, limit, answer)
            at += 1
        if answer.undecided:
            answer.needed = answer.undecided[0]
        return answer

    def _advance(self, path: Path) -> int:
        if self.resume == "past last row":
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
