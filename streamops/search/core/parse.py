"""Parse and compile queries in the syntax of Lucene.

``luqum`` parses the syntax. What a query means is defined here: its tree becomes conditions on text
columns and fields, with negations at the leaves. All queries of a micro-batch are analysed at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.parameters import require_package
from streamops.search.core.nodes import (
    ANY_COLUMN,
    HIGHEST,
    LOWEST,
    NODE,
    NODES,
    TEXT_TYPES,
    FieldType,
    Node,
    NodeType,
    combine,
    flatten,
    map_leaves,
    negate,
)

_SEPARATORS = r"[^\p{L}\p{M}\p{N}_]+"
_IN_WORD = np.zeros(256, np.bool_)
_IN_WORD[[*b"abcdefghijklmnopqrstuvwxyz0123456789_", *range(128, 256)]] = True


def split_tokens(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The words of each text, in order. A null has none.

    Examples
    --------
    >>> split_tokens(pa.array(["Don't PANIC, 42 times!", "ÉTÉ — naïve_1", None])).to_pylist()
    [['don', 't', 'panic', '42', 'times'], ['été', 'naïve_1'], []]
    """
    array = combine_chunks(texts).cast(pa.string())
    lower = _separate(pc.utf8_lower(array.fill_null("")))
    offsets = np.frombuffer(lower.buffers()[1], np.int32)[lower.offset :][: len(lower) + 1]
    data = lower.buffers()[2]
    if data is None or not len(lower) or offsets[-1] == offsets[0]:
        return pa.array([[]] * len(lower), pa.list_(pa.string()))
    codes = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    bounds = (offsets - offsets[0]).astype(np.int64)
    inside = _IN_WORD[codes]
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    # A text begins a new word, too.
    firsts = bounds[:-1][bounds[:-1] < bounds[1:]]
    begins[firsts] = inside[firsts]
    starts = np.flatnonzero(begins)
    stored = np.append(0, np.cumsum(inside))  # bytes of words before each byte
    letters = codes[inside]
    ends = np.append(stored[starts], len(letters)).astype(np.int32)
    tokens = pa.StringArray.from_buffers(
        len(starts), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters))
    )
    counts = np.searchsorted(starts, bounds).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(counts, pa.int32()), tokens)


def _separate(texts: pa.Array) -> pa.Array:
    """The texts; a space instead of each run of separators in those that are not ASCII."""
    is_ascii = pc.string_is_ascii(texts)
    if pc.all(is_ascii).as_py() is not False:
        return texts
    return pc.replace_with_mask(
        texts,
        pc.invert(is_ascii),
        pc.replace_substring_regex(texts.filter(pc.invert(is_ascii)), _SEPARATORS, " "),
    )


DefaultOperator = Literal["or", "and"]

MAX_LENGTH = 10_000
"""Characters that a query may have."""
MAX_DEPTH = 50
"""Levels of parentheses, fields and signs that a query may have."""
MAX_NODES = 1_000
"""Conditions that a query may have."""

_UNESCAPED = re.compile(r"(?<!\\)(?:\\\\)*([*?])")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_POSITION = re.compile(r"at position (\d+)!?\Z")
_SYMBOLS = re.compile(r"(&&|\|\||!)")
_DEGREE = re.compile(r"[~^][0-9]*\.")
_DIGITS = "0123456789"
_OPERATIONS = ("AndOperation", "OrOperation", "UnknownOperation")


@dataclass(slots=True)
class InvalidQuery(Exception):
    """Why a query is invalid: what is wrong, at which character, counted from 0."""

    message: str
    position: int


@dataclass(frozen=True, slots=True)
class Language:
    """What queries may refer to."""

    text: tuple[str, ...]
    fields: tuple[tuple[str, FieldType], ...]
    default_operator: DefaultOperator

    def column(self, name: str) -> tuple[int, FieldType | None] | None:
        """The number of a text column, or the number of a field and its type; None if unknown."""
        if name in self.text:
            return self.text.index(name), None
        for number, (field, dtype) in enumerate(self.fields):
            if field == name:
                return number, dtype
        return None


def require_luqum() -> None:
    """Refuse to build a plan without the parser."""
    require_package("luqum.thread", package="luqum", extra="search")


def compile_queries(
    language: Language, queries: Sequence[str | None]
) -> tuple[pa.Array, list[InvalidQuery | None]]:
    """The nodes of each query, null if it is invalid, and why it is."""
    parse = require_package("luqum.thread", package="luqum", extra="search")
    trees: list[Node | None] = []
    errors: list[InvalidQuery | None] = []
    for query in queries:
        tree, error = None, None
        try:
            tree = _parse_query(parse.parse, language, query)
        except InvalidQuery as invalid:
            error = invalid
        trees.append(tree)
        errors.append(error)
    rows = _analyse(trees, errors)
    flat = [node for row in rows for node in row or ()]
    ends = np.cumsum([0, *(len(row or ()) for row in rows)])
    is_null = np.array([row is None for row in rows] + [False], np.bool_)
    fields = list(NODE)
    values = [pa.array([node[at] for node in flat], field.type) for at, field in enumerate(fields)]
    nodes = pa.ListArray.from_arrays(
        pa.array(ends, pa.int32(), mask=is_null), pa.StructArray.from_arrays(values, fields=fields)
    )
    return nodes.cast(NODES), errors


def _analyse(
    trees: Sequence[Node | None], errors: list[InvalidQuery | None]
) -> list[list[tuple[object, ...]] | None]:
    """Split the texts of all trees into words, and flatten the trees."""
    texts: list[str | None] = []

    def collect(leaf: Node) -> Node:
        if leaf.node_type in TEXT_TYPES:
            texts.append(leaf.text)
        return leaf

    for tree in trees:
        if tree is not None:
            map_leaves(tree, collect)
    tokens = iter(split_tokens(pa.array(texts, pa.string())).to_pylist())
    convert = partial(_to_tokens, tokens)
    rows: list[list[tuple[object, ...]] | None] = []
    for number, tree in enumerate(trees):
        if tree is None:
            rows.append(None)
            continue
        wrong: list[InvalidQuery] = []
        row = flatten(map_leaves(tree, partial(convert, wrong)))
        if not wrong and len(row) > MAX_NODES:
            message = f"the query has {len(row):,} conditions: at most {MAX_NODES:,} are supported"
            wrong.append(InvalidQuery(message, 0))
        errors[number] = wrong[0] if wrong else None
        rows.append(None if wrong else row)
    return rows


def _to_tokens(tokens: Any, wrong: list[InvalidQuery], leaf: Node) -> Node:
    """A condition on text, by its words. A phrase requires each word, so that these can be looked up."""
    if leaf.node_type not in TEXT_TYPES:
        return leaf
    found: list[str] = next(tokens)
    make = partial(Node, negated=leaf.negated, column=leaf.column, position=leaf.position)
    if not found:
        wrong.append(InvalidQuery(f"{leaf.text!r} has no letters or digits", leaf.position))
        return leaf
    if leaf.node_type == NodeType.PREFIX:
        if len(found) > 1:
            message = f"a prefix is one word, and {leaf.text!r} has {len(found)}"
            wrong.append(InvalidQuery(message, leaf.position))
        return make(NodeType.PREFIX, text=found[0])
    if len(found) == 1:
        return make(NodeType.WORD, text=found[0])
    phrase = make(NodeType.PHRASE, text=" ".join(found))
    if leaf.negated:
        return phrase
    required = [make(NodeType.WORD, text=word) for word in dict.fromkeys(found)]
    return Node(NodeType.AND, children=[*required, phrase], position=leaf.position)


def _parse_query(parse: Callable[[str], Any], language: Language, query: str | None) -> Node:
    if query is None or not query.strip():
        raise InvalidQuery("the query is empty", 0)
    if len(query) > MAX_LENGTH:
        message = f"the query has {len(query):,} characters: at most {MAX_LENGTH:,} are supported"
        raise InvalidQuery(message, MAX_LENGTH)
    from luqum.exceptions import IllegalCharacterError, ParseSyntaxError

    try:
        tree = parse(query)
    except IllegalCharacterError as error:
        position = _position(str(error), query)
        raise InvalidQuery(f"unexpected {query[position : position + 1]!r}", position) from None
    except ParseSyntaxError as error:
        position = _position(str(error), query)
        if position == len(query):
            raise InvalidQuery("the query ends too early", position) from None
        raise InvalidQuery(f"unexpected {query[position:].split()[0]!r}", position) from None
    except (ArithmeticError, ValueError):  # luqum reads what is behind ~ and ^ as a number
        found = _DEGREE.search(query)
        position = len(query) if found is None else found.start()
        raise InvalidQuery("~ and ^ are not supported", position) from None
    return _Compiler(language).compile(tree, None, 0)


def _position(message: str, query: str) -> int:
    """The position in a message of luqum; the end if it has none."""
    found = _POSITION.search(message)
    return len(query) if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class _Compiler:
    """From the tree of luqum to nodes. ``column`` is the name in `name:...`, if the part is in one."""

    language: Language

    def compile(self, tree: Any, column: str | None, depth: int) -> Node:
        node_type, position = type(tree).__name__, int(tree.pos or 0)
        if depth > MAX_DEPTH:
            message = f"more than {MAX_DEPTH} levels of nested conditions"
            raise InvalidQuery(message, position)
        deeper = depth + 1
        match node_type:
            case "Group" | "FieldGroup":
                return self.compile(tree.children[0], column, deeper)
            case _ if node_type in _OPERATIONS:
                return self._compile_list(_regroup(tree), column, deeper, position)
            case "Plus":
                return self.compile(tree.children[0], column, deeper)
            case "Not" | "Prohibit":
                if node_type == "Prohibit" and self._is_number(tree.children[0], column):
                    return self._compile_value(f"-{tree.children[0].value}", column, position)
                return negate(self.compile(tree.children[0], column, deeper))
            case "SearchField":
                return self._compile_field(tree, column, deeper, position)
            case "Word":
                return self._compile_word(tree.value, column, position)
            case "Phrase":
                return self._compile_phrase(_ESCAPE.sub(r"\1", tree.value[1:-1]), column, position)
            case "Range":
                low, high = tree.children
                bounds = (tree.include_low, tree.include_high)
                return self._compile_range(low, high, bounds, column, position)
            case "From":
                return self._compile_range(
                    tree.children[0], None, (tree.include, True), column, position
                )
            case "To":
                return self._compile_range(
                    None, tree.children[0], (True, tree.include), column, position
                )
            case _:
                refuse_syntax(node_type, position)

    def _compile_list(
        self, items: list[list[list[Any]]], column: str | None, depth: int, position: int
    ) -> Node:
        """Conditions without an operator in between: required, excluded and optional ones."""
        required: list[Node] = []
        optional: list[Node] = []
        is_and = self.language.default_operator == "and"
        has_plus = False
        for item in items:
            node = self._compile_either(item, column, depth, position)
            # A sign in front of an operand of AND or OR is that of the operand.
            sign = self._sign(item[0][0], column) if len(item) == len(item[0]) == 1 else ""
            has_plus |= sign == "+"
            (required if is_and or sign else optional).append(node)
        if optional and not has_plus:
            required.append(combine(NodeType.OR, optional, position))
        return combine(NodeType.AND, required, position)

    def _compile_either(
        self, alternatives: list[list[Any]], column: str | None, depth: int, position: int
    ) -> Node:
        """Conditions with OR in between, each of them conditions with AND in between."""
        for parts in alternatives if len(alternatives) > 1 else ():
            if len(parts) == 1 and self._sign(parts[0], column) == "+":
                message = "a + has no meaning beside OR: use AND, or omit OR"
                raise InvalidQuery(message, int(parts[0].pos or 0))
        nodes = [
            combine(NodeType.AND, [self.compile(part, column, depth) for part in parts], position)
            for parts in alternatives
        ]
        return combine(NodeType.OR, nodes, position)

    def _compile_field(self, tree: Any, column: str | None, depth: int, position: int) -> Node:
        name = _ESCAPE.sub(r"\1", tree.name)
        if column is not None:
            message = f"the field {name!r} is inside the field {column!r}"
            raise InvalidQuery(message, position)
        if self.language.column(name) is None:
            known = [*self.language.text, *(field for field, _ in self.language.fields)]
            message = f"unknown field {name!r}: the fields are {', '.join(known)}"
            raise InvalidQuery(message, position)
        return self.compile(tree.children[0], name, depth)

    def _field(self, column: str | None) -> tuple[int, FieldType | None]:
        found = None if column is None else self.language.column(column)
        return (ANY_COLUMN, None) if found is None else found

    def _sign(self, tree: Any, column: str | None) -> str:
        """The sign of a part, "+", "-" or none. `name:-a` is `-name:a`."""
        match type(tree).__name__:
            case "SearchField":
                return self._sign(tree.children[0], _ESCAPE.sub(r"\1", tree.name))
            case "Plus":
                return "+"
            case "Not":
                return "-"
            case "Prohibit":
                return "" if self._is_number(tree.children[0], column) else "-"
        return ""

    def _is_number(self, tree: Any, column: str | None) -> bool:
        """Whether a sign before this part belongs to a number."""
        _, dtype = self._field(column)
        is_number = dtype is not None and dtype.expected in ("an integer", "a number")
        return is_number and type(tree).__name__ == "Word" and tree.value[0] in _DIGITS

    def _compile_word(self, value: str, column: str | None, position: int) -> Node:
        number, dtype = self._field(column)
        if column is not None and value == "*":
            if dtype is None:
                message = "* alone is supported in fields only: a text column has words, or none"
                raise InvalidQuery(message, position)
            return Node(NodeType.EXISTS, column=number, position=position)
        wildcard = _UNESCAPED.search(value)
        if wildcard is not None:
            at = wildcard.start(1)
            if value[at] == "?" or at != len(value) - 1 or at == 0:
                message = "a wildcard is supported as a * at the end of a word only"
                raise InvalidQuery(message, position + at)
            text = _ESCAPE.sub(r"\1", value[:-1])
            if dtype is None:
                return Node(NodeType.PREFIX, column=number, text=text, position=position)
            if dtype.parse is not None:
                message = f"a prefix in a field that has {dtype.expected}: use a range"
                raise InvalidQuery(message, position)
            return Node(NodeType.VALUE_PREFIX, column=number, text=text, position=position)
        if dtype is None:
            symbol = _SYMBOLS.match(value)
            if symbol is not None:
                message = f"{symbol[1]} is not an operator: use AND, OR or NOT, or escape it"
                raise InvalidQuery(message, position)
        return self._compile_value(_ESCAPE.sub(r"\1", value), column, position)

    def _compile_phrase(self, text: str, column: str | None, position: int) -> Node:
        return self._compile_value(text, column, position)

    def _compile_value(self, text: str, column: str | None, position: int) -> Node:
        number, dtype = self._field(column)
        if dtype is None:
            return Node(NodeType.PHRASE, column=number, text=text, position=position)
        if dtype.parse is None:
            return Node(NodeType.VALUE, column=number, text=text, position=position)
        low = _parse_bound(dtype, text, column, position)
        return Node(NodeType.NUMBER, column=number, low=low, position=position)

    def _compile_range(
        self,
        low: Any,
        high: Any,
        included: tuple[bool, bool],
        column: str | None,
        position: int,
    ) -> Node:
        number, dtype = self._field(column)
        if dtype is None:
            message = "a range is supported in fields only, not in text"
            raise InvalidQuery(message, position)
        texts = [None if bound is None else self._bound(bound, column) for bound in (low, high)]
        if dtype.parse is None:
            bounds = int(included[0]) + 2 * int(included[1])
            node = Node(NodeType.VALUE_RANGE, column=number, bounds=bounds, position=position)
            node.text, node.other = texts
            if texts == [None, None]:
                node.node_type, node.bounds = NodeType.EXISTS, None
            return node
        ends = [LOWEST, HIGHEST]
        for at, (text, bound) in enumerate(zip(texts, (low, high), strict=True)):
            if text is not None:
                value = _parse_bound(dtype, text, column, int(bound.pos or position))
                # An excluded bound is the next value: integers are dense in these orders.
                ends[at] = value + (0 if included[at] else (1, -1)[at])
        if ends[0] > HIGHEST or ends[1] < LOWEST:
            ends = [HIGHEST, LOWEST]  # no value is beyond these
        node = Node(NodeType.NUMBER_RANGE, column=number, position=position)
        node.low, node.high = ends
        return node

    def _bound(self, tree: Any, column: str | None) -> str | None:
        """The text of a bound; None if it is open."""
        node_type, position = type(tree).__name__, int(tree.pos or 0)
        if node_type == "Prohibit" and self._is_number(tree.children[0], column):
            return f"-{tree.children[0].value}"
        if node_type == "Phrase":
            return _ESCAPE.sub(r"\1", tree.value[1:-1])
        if node_type == "Word" and tree.value == "*":
            return None
        if node_type == "Word" and _UNESCAPED.search(tree.value) is None:
            return _ESCAPE.sub(r"\1", tree.value)
        message = "a bound of a range is a value, or * for none"
        raise InvalidQuery(message, position)


def _regroup(tree: Any) -> list[list[list[Any]]]:
    """The parts of an expression: side by side, then with OR, then with AND in between.

    Where a sign follows, ``luqum`` binds parts side by side more tightly than AND and OR. So the operators
    are read from its tree in the order of the text, and not its levels.
    """
    items: list[list[list[Any]]] = []
    stack = [(tree, "")]
    while stack:
        part, before = stack.pop()
        node_type = type(part).__name__
        if node_type in _OPERATIONS:
            first, *others = part.children
            stack += [(other, node_type) for other in reversed(others)]
            stack.append((first, before))
        elif before == "AndOperation":
            items[-1][-1].append(part)
        elif before == "OrOperation":
            items[-1].append([part])
        else:
            items.append([[part]])
    return items


def _parse_bound(dtype: FieldType, text: str, column: str | None, position: int) -> int:
    assert dtype.parse is not None
    try:
        return dtype.parse(text)
    except (ValueError, KeyError, OverflowError):
        message = f"{text!r} is not {dtype.expected}, as the field {column!r} has"
        raise InvalidQuery(message, position) from None


_REFUSED = {
    "Fuzzy": "fuzzy search (~) is not supported: name the variants, with OR",
    "Proximity": "words near one another (~) are not supported: use a phrase, or AND",
    "Boost": "a boost (^) is not supported: a query matches or does not, without a score",
    "Regex": "regular expressions are not supported",
}


def refuse_syntax(node_type: str, position: int) -> NoReturn:
    """Refuse a part of a query that is valid in Lucene."""
    raise InvalidQuery(_REFUSED.get(node_type, f"{node_type} is not supported"), position)
