"""Stored queries in simple Python: every query is evaluated on every document.

A query is a tree of tuples, which :func:`render` writes in Lucene's syntax. So nothing here is parsed, and
nothing is indexed.
"""

from __future__ import annotations

import datetime as dt
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.enrich import EnrichOracle
from tests.oracles.windows import Expected, Row

Query = tuple[Any, ...]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


def tokens_of(text: str | None) -> list[str]:
    """Runs of letters, marks, digits and underscores, in lower case."""
    spaced = "".join(
        char.lower() if char == "_" or unicodedata.category(char)[0] in "LMN" else " "
        for char in text or ""
    )
    return spaced.split()


def matches(query: Query, document: Row, text: Sequence[str], operator: str = "or") -> bool:
    """The definition: whether a document matches a query."""
    node_type, *rest = query

    def does(part: Query) -> bool:
        return matches(part, document, text, operator)

    if node_type == "and":
        return all(map(does, rest[0]))
    if node_type == "or":
        return any(map(does, rest[0]))
    if node_type == "not":
        return not does(rest[0])
    if node_type == "list":
        return _matches_list(rest[0], does, operator)
    column, *rest = rest
    if node_type in ("word", "prefix", "phrase"):
        columns = text if column is None else [column]
        return any(_is_in(node_type, rest[0], tokens_of(document[name])) for name in columns)
    value = document[column]
    if value is None or value != value:  # NaN
        return False
    if node_type == "exists":
        return True
    if node_type == "value":
        return bool(value == rest[0])
    if node_type == "begins":
        return str(value).startswith(rest[0])
    low, high, has_low, has_high = rest
    above = low is None or value > low or (has_low and value == low)
    below = high is None or value < high or (has_high and value == high)
    return bool(above and below)


def _matches_list(
    parts: Sequence[tuple[str, Query]], does: Callable[[Query], bool], operator: str
) -> bool:
    plain = [does(part) for sign, part in parts if not sign]
    required = [does(part) for sign, part in parts if sign == "+"]
    excluded = [does(part) for sign, part in parts if sign in ("-", "NOT ")]
    if operator == "and":
        return all(plain + required) and not any(excluded)
    is_optional = bool(required) or not plain
    return all(required) and not any(excluded) and (is_optional or any(plain))


def _is_in(node_type: str, wanted: Any, tokens: Sequence[str]) -> bool:
    if node_type == "word":
        return wanted.lower() in tokens
    if node_type == "prefix":
        return any(word.startswith(wanted.lower()) for word in tokens)
    phrase = [word.lower() for word in wanted]
    ends = range(len(tokens) - len(phrase) + 1)
    return any(list(tokens[at : at + len(phrase)]) == phrase for at in ends)


def render(query: Query) -> str:
    """The query in Lucene's syntax."""
    node_type, *rest = query
    if node_type in ("and", "or"):
        return f" {node_type.upper()} ".join(_nested(part) for part in rest[0])
    if node_type == "not":
        return f"NOT {_nested(rest[0])}"
    if node_type == "list":
        return " ".join(sign + _nested(part) for sign, part in rest[0])
    column, *rest = rest
    name = "" if column is None else f"{column}:"
    if node_type == "word":
        return name + rest[0]
    if node_type == "prefix":
        return f"{name}{rest[0]}*"
    if node_type == "phrase":
        return f'{name}"{" ".join(rest[0])}"'
    if node_type == "exists":
        return f"{name}*"
    if node_type == "value":
        return name + _show(rest[0])
    if node_type == "begins":
        return f"{name}{rest[0]}*"
    low, high, has_low, has_high = rest
    ends = ["*" if end is None else _show(end) for end in (low, high)]
    return f"{name}{'[' if has_low else '{'}{ends[0]} TO {ends[1]}{']' if has_high else '}'}"


def _nested(query: Query) -> str:
    text = render(query)
    return f"({text})" if query[0] in ("and", "or", "not", "list") else text


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return f'"{value}"'


@dataclass
class MatchOracle:
    """Stored queries in one shard.

    ``queries`` has the tree of each valid query by its text, ``invalid`` position and message of each
    invalid one; ``documents`` and ``columns`` the columns of both inputs.
    """

    text: tuple[str, ...]
    queries: dict[str, Query]
    invalid: dict[str | None, tuple[int, str]]
    documents: tuple[str, ...]
    columns: tuple[str, ...]
    horizon: int
    rejected: str
    operator: str = "or"
    instants: tuple[str, ...] = ()
    table: EnrichOracle = field(init=False)
    ids: dict[Any, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = {}
        self.table = EnrichOracle(
            by=(("id", "id"),),
            sequence=("lsn",),
            values=(("query", "query"),),
            columns=self.columns,
            horizon=self.horizon,
            rejected="route",
        )

    def fresh(self) -> MatchOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch, whose changes precede its documents."""
        types = ("insert", "update_postimage")
        wrong = [
            row for row in right if row["_change_type"] in types and row["query"] in self.invalid
        ]
        valid = [row for row in right if not any(row is other for other in wrong)]
        expected = self.table.step([], valid, watermark)
        self.ids |= {comparable([row["id"]]): row["id"] for row in right}
        rows = [
            (row["late"]["reason"], None, None, row["late"]["row"]["right"])
            for row in expected.late
        ]
        rows += [("invalid_query", *self.invalid[row["query"]], row) for row in wrong]
        expected.counts["rows"] += len(wrong)
        expected.counts["rejected"] += len(wrong)
        expected.late = []
        for reason, position, message, row in rows if self.rejected == "route" else ():
            late: Row = {"side": "right", "reason": reason}
            late |= dict.fromkeys(("lateness", "watermark", "window"))
            right = {name: row[name] for name in self.columns if name != "_change_type"}
            late |= {"row": {"left": None, "right": right}}
            late |= {"position": position, "message": message}
            expected.late.append({**dict.fromkeys(self.documents), "query_id": None, "late": late})
        for document in left:
            instants = {
                n: EPOCH + t * MICROSECOND
                for n, t in document.items()
                if n in self.instants and t is not None
            }
            content = document | instants
            for key in self.table.known:
                row = self.table.row_of(key)
                tree = None if row is None else self.queries[row["query"]]
                if tree is not None and matches(tree, content, self.text, self.operator):
                    output = {**document, "query_id": self.ids[key]}
                    expected.emitted.append(
                        output | ({"late": None} if self.rejected == "route" else {})
                    )
        expected.counts["results"] = len(expected.emitted)
        return expected

    def bound(self) -> int:
        """One row of state per known query, and the highest evicted sequence."""
        return self.table.bound()

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []
