"""The syntax of patterns: from text to a tree.

::

    pattern    = alternative { "|" alternative }
    alternative = { element | gap }
    element    = ( name | "(" pattern ")" | "permute" "(" pattern { "," pattern } ")" ) [ quantifier ]
    quantifier = ( "?" | "*" | "+" | "{n}" | "{n,}" | "{,m}" | "{n,m}" ) [ "?" ]
    gap        = { "..." | "!" name }

A gap skips any number of rows, as few as possible; rows that satisfy a name behind ``!`` are not
skipped. ``!`` at the end of the pattern is not a gap: no such row may follow before the bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from streamops.patterns import conditions

_TOKEN = re.compile(
    r"\s*(?P<token>[A-Za-z_]\w*|\.\.\.|[!()|,]|[*+?]\??|\{\s*\d*\s*,?\s*\d*\s*\}\??)", re.ASCII
)
_COUNTS = re.compile(r"\{\s*(\d*)\s*(,?)\s*(\d*)\s*\}")
_LOOPS = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_PERMUTE = "permute"
_MAX_DEPTH = 64  # the parser is recursive, and no pattern has more states
_MAX_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Row:
    """One row that satisfies the condition of a variable."""

    variable: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Any number of rows, as few as possible, none of which satisfies one of these variables."""

    forbidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """One item after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of the items; the first one that leads to a match is preferred."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Permutation:
    """All items in any order; the order in which they are written is preferred."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """The item ``low`` to ``high`` times, or without limit if ``high`` is None."""

    item: Node
    low: int
    high: int | None
    greedy: bool


Node = Row | Gap | Series | Alternation | Permutation | Repetition


@dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern.

    Parameters
    ----------
    text : str
        As the user wrote it.
    items : tuple of Node
        The items of the outermost series.
    absent : tuple of str
        Variables that no row after the match may satisfy before the bound.
    """

    text: str
    items: tuple[Node, ...]
    absent: tuple[str, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables that rows are assigned to, in order of appearance."""
        found = (node.variable for node in _walk(Series(self.items)) if isinstance(node, Row))
        return tuple(dict.fromkeys(found))

    @property
    def negated(self) -> tuple[str, ...]:
        """Variables behind ``!``."""
        gaps = (node.forbidden for node in _walk(Series(self.items)) if isinstance(node, Gap))
        return tuple(dict.fromkeys([name for names in (*gaps, self.absent) for name in names]))


def parse_pattern(text: object) -> Pattern:
    """Parse a pattern.

    Raises
    ------
    SpecError
        ``PATTERN_INVALID``, with the position of the mistake.

    Examples
    --------
    >>> parse_pattern("a !c b{2,}? !d").items
    (Row(variable='a'), Gap(forbidden=('c',)), Repetition(item=Row(variable='b'), low=2, high=None, greedy=False))
    """
    if not isinstance(text, str):
        raise conditions.NOT_TEXT.error(got=f"{text!r} of type {type(text).__name__}")
    return _Parser(text).parse()


def _walk(node: Node) -> Iterator[Node]:
    yield node
    children = node.items if isinstance(node, Series | Alternation | Permutation) else ()
    for child in (node.item,) if isinstance(node, Repetition) else children:
        yield from _walk(child)


class _Parser:
    """A recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.tokens: list[tuple[str, int]] = []
        end = len(text.rstrip())
        at = 0
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self._refuse(at, f"{text[at]!r} has no meaning in a pattern")
            self.tokens.append((found["token"], found.start("token")))
            at = found.end()
        self.tokens.append(("", end))

    def parse(self) -> Pattern:
        root = self._alternation()
        if self._token:
            self._refuse(self._position, f"unexpected {self._token!r}")
        items = root.items if isinstance(root, Series) else (root,)
        absent: tuple[str, ...] = ()
        match items:
            case (*before, Gap(forbidden=(_, *_) as names)):
                items, absent = tuple(before), names
        return Pattern(self.text, items, absent)

    @property
    def _token(self) -> str:
        return self.tokens[self.at][0]

    @property
    def _position(self) -> int:
        return self.tokens[self.at][1]

    def _next(self) -> str:
        token = self._token
        self.at += 1
        return token

    def _alternation(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self._refuse(self._position, f"groups are nested more than {_MAX_DEPTH - 1} deep")
        items = [self._series()]
        while self._token == "|":
            self._next()
            items.append(self._series())
        self.depth -= 1
        return items[0] if len(items) == 1 else Alternation(tuple(items))

    def _series(self) -> Node:
        items: list[Node] = []
        start = self._position
        while self._token not in {"", "|", ")", ","}:
            if self._token in {"...", "!"}:
                items.append(self._gap())
            else:
                items.append(self._element())
        if not items:
            self._refuse(start, "a variable is missing here")
        return items[0] if len(items) == 1 else Series(tuple(items))

    def _gap(self) -> Gap:
        forbidden: list[str] = []
        while self._token in {"...", "!"}:
            if self._next() == "!":
                if not self._token.isidentifier():
                    self._refuse(self._position, "`!` needs the name of a variable behind it")
                forbidden.append(self._next())
        return Gap(tuple(dict.fromkeys(forbidden)))

    def _element(self) -> Node:
        start, token = self._position, self._next()
        if token == "(":
            item = self._alternation()
            self._close(start)
        elif token.lower() == _PERMUTE and self._token == "(":
            self._next()
            items = [self._alternation()]
            while self._token == ",":
                self._next()
                items.append(self._alternation())
            self._close(start)
            item = Permutation(tuple(items))
        elif token.isidentifier():
            item = Row(token)
        else:
            self._refuse(start, f"{token!r} needs something before it")
        return self._quantified(item)

    def _close(self, start: int) -> None:
        if self._token != ")":
            self._refuse(start, "this group is not closed by `)`")
        self._next()

    def _quantified(self, item: Node) -> Node:
        token, start = self._token, self._position
        if token[:1] not in {"?", "*", "+", "{"}:
            return item
        self._next()
        if token[0] == "{":
            found = _COUNTS.match(token)
            assert found is not None
            low, comma, high = found.groups()
            if max(len(low or ""), len(high or "")) > _MAX_DIGITS:
                self._refuse(start, f"a number has more than {_MAX_DIGITS} digits")
            bounds = int(low or 0), int(high) if high else None if comma else int(low or 0)
        else:
            bounds = _LOOPS[token[0]]
        if bounds[1] is not None and (bounds[1] < 1 or bounds[1] < bounds[0]):
            self._refuse(start, f"{token!r} repeats nothing")
        if self._token[:1] in {"?", "*", "+", "{"}:
            self._refuse(self._position, "a quantifier behind a quantifier: use a group")
        greedy = not (len(token) > 1 and token.endswith("?"))
        return Repetition(item, bounds[0], bounds[1], greedy)

    def _refuse(self, at: int, what: str) -> NoReturn:
        raise conditions.PATTERN_SYNTAX.error(
            reason=what, got=f"{self.text!r}, at character {at + 1}"
        )
