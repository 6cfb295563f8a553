"""The language of stored queries in simple Python: from text to a tree of `tests/oracles/search.py`.

::

    query     = either { either }                 conditions side by side: signed, or optional
    either    = all { "OR" all }
    all       = condition { "AND" condition }
    condition = { "+" | "-" | "NOT" } ( "(" query ")" | [ name ":" ] ( value | "(" query ")" ) )
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.oracles.search import Query

_TOKEN = re.compile(
    r'\s*(?P<token>[-+():]|"[^"]*"|[\[{][^\]}]*[\]}]|[<>]=?|[^\s()":<>\[\]{}+-][^\s():\[\]{}]*)'
)

Values = Callable[[str, str], Any]
"""The value of a field, from its name and text."""


class NoMeaning(Exception):
    """A query that the language does not have."""


class Reader:
    """Read one query. Names that are not in ``values`` are text columns."""

    def __init__(self, text: str, fields: tuple[str, ...], value: Values) -> None:
        self.tokens = [found["token"] for found in _TOKEN.finditer(text)]
        self.fields, self.value, self.at = fields, value, 0

    def read(self) -> Query:
        """The whole query."""
        tree = self._query(None)
        assert self.at == len(self.tokens), self.tokens[self.at :]
        return tree

    @property
    def _token(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _skip(self, *tokens: str) -> str:
        if self._token in tokens and self._token:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def _query(self, name: str | None) -> Query:
        parts = [self._either(name)]
        while self._token not in ("", ")"):
            parts.append(self._either(name))
        if len(parts) == 1:
            sign, tree = parts[0]
            return ("not", tree) if sign == "-" else tree
        return ("list", parts)

    def _either(self, name: str | None) -> tuple[str, Query]:
        parts = [self._all(name)]
        while self._skip("OR"):
            parts.append(self._all(name))
        if len(parts) == 1:
            return parts[0]
        if any(sign == "+" for sign, _ in parts):
            raise NoMeaning("+ beside OR")
        return "", ("or", [_unsigned(*part) for part in parts])

    def _all(self, name: str | None) -> tuple[str, Query]:
        parts = [self._condition(name)]
        while self._skip("AND"):
            parts.append(self._condition(name))
        if len(parts) == 1:
            return parts[0]
        return "", ("and", [_unsigned(*part) for part in parts])

    def _condition(self, name: str | None) -> tuple[str, Query]:
        """The outermost sign, and what it is the sign of."""
        number = name in self.fields and re.match(r"[0-9]", (self.tokens[self.at :] + [""] * 2)[1])
        if self._token == "-" and number:
            self.at += 1
            return "", self._value(name, "-")
        sign = self._skip("+", "-", "NOT")
        if sign:
            return "+" if sign == "+" else "-", _unsigned(*self._condition(name))
        if self._skip("("):
            tree = self._query(name)
            assert self._skip(")")
            return "", tree
        if (self.tokens[self.at :] + [""] * 2)[1] == ":":
            name = self._token
            self.at += 2
            return self._condition(name)
        return "", self._value(name, "")

    def _value(self, name: str | None, minus: str) -> Query:
        token = self._token
        self.at += 1
        if name not in self.fields:
            if token[0] == '"':
                return ("phrase", name, token[1:-1].split())
            terms = re.findall(r"\w+", token)
            if token[-1] == "*":
                return ("prefix", name, terms[0])
            return ("word", name, terms[0]) if len(terms) == 1 else ("phrase", name, terms)
        if token == "*":
            return ("exists", name)
        if token[-1] == "*":
            return ("begins", name, token[:-1])
        if token[0] in "<>":
            end = self.value(name, self._token)
            self.at += 1
            is_low, included = token[0] == ">", len(token) == 2
            return ("range", name, *((end, None) if is_low else (None, end)), included, included)
        if token[0] in "[{":
            ends = token[1:-1].split(" TO ")
            low, high = (None if end == "*" else self.value(name, end) for end in ends)
            return ("range", name, low, high, token[0] == "[", token[-1] == "]")
        return ("value", name, self.value(name, minus + token.strip('"')))


def _unsigned(sign: str, tree: Query) -> Query:
    return ("not", tree) if sign == "-" else tree
