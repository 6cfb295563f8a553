"""Column definitions as text, such as ``"count bigint, last timestamp NOT NULL"``, without Spark.

Spark parses such text in the JVM. Specs are built without one, in tests and on workers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NoReturn

import pyarrow as pa

from streamops.kernel import conditions


def quote(name: str) -> str:
    """Quote a name.

    Examples
    --------
    >>> quote('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'


SchemaLike = str | pa.Schema | Mapping[str, str]
"""The type of parameters that define columns: DDL text, an Arrow schema, or types by name."""

_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ltz": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\W\d]\w*|\d+|[<>(),:])")


def parse_schema(value: object, *, parameter: str) -> pa.Schema:
    """Return the columns that a parameter defines.

    Parameters
    ----------
    value : str, Schema or mapping
        DDL text, an Arrow schema, or Spark's names of types by column name.
    parameter : str
        The parameter, for the error.

    Raises
    ------
    SpecError
        ``INVALID_SCHEMA``.

    Examples
    --------
    >>> schema = parse_schema("n int NOT NULL, tags array<string>", parameter="state")
    >>> [(field.name, str(field.type), field.nullable) for field in schema]
    [('n', 'int32', False), ('tags', 'list<element: string>', True)]
    """
    if isinstance(value, pa.Schema):
        fields = list(value.remove_metadata())
    elif isinstance(value, str):
        fields = _Parser(value, parameter).fields()
    elif isinstance(value, Mapping):
        parsers = {name: _Parser(type_, parameter) for name, type_ in value.items()}
        fields = [pa.field(str(name), parser.only_type()) for name, parser in parsers.items()]
    else:
        _refuse(value, "it does not define columns", parameter)
    names = [field.name.lower() for field in fields]
    twice = sorted({field.name for field in fields if names.count(field.name.lower()) > 1})
    if twice:
        _refuse(value, f"a column is defined twice: {', '.join(twice)}", parameter)
    return pa.schema(fields)


def _refuse(value: object, reason: str, parameter: str) -> NoReturn:
    raise conditions.BAD_SCHEMA.error(
        parameter=parameter,
        reason=reason,
        types=", ".join(sorted(_TYPES)),
        got=f"{parameter}={value!r}",
    )


class _Parser:
    """A parser of one text."""

    def __init__(self, text: object, parameter: str) -> None:
        self.text, self.parameter = text, parameter
        self.tokens = list(self._scan())
        self.at = 0

    def _scan(self) -> Iterator[str]:
        if not isinstance(self.text, str):
            self.refuse("a type is not text")
        end = 0
        while self.text[end:].strip():
            found = _TOKEN.match(self.text, end)
            if found is None:
                self.refuse(f"unexpected {self.text[end:].strip()[:10]!r}")
            yield found[1]
            end = found.end()

    def refuse(self, reason: str) -> NoReturn:
        _refuse(self.text, reason, self.parameter)

    def fields(self) -> list[pa.Field]:
        """All columns of the text."""
        fields: list[pa.Field] = []
        while self.at < len(self.tokens):
            if fields:
                self.expect(",")
            fields.append(self.field(""))
        return fields

    def only_type(self) -> pa.DataType:
        """The type that the whole text is."""
        dtype = self.dtype()
        if self.at < len(self.tokens):
            self.refuse(f"unexpected {self.tokens[self.at]!r}")
        return dtype

    def field(self, separator: str) -> pa.Field:
        name = self.next("a name")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not (name[0].isalpha() or name[0] == "_"):
            self.refuse(f"{name!r} is not a name")
        if separator or self.peek() == ":":
            self.expect(":")
        dtype = self.dtype()
        nullable = True
        if self.peek().lower() == "not":
            self.at += 1
            if self.next("NULL").lower() != "null":
                self.refuse("NOT without NULL")
            nullable = False
        return pa.field(name, dtype, nullable=nullable)

    def dtype(self) -> pa.DataType:
        name = self.next("a type").lower()
        match name:
            case "array":
                self.expect("<")
                element = self.dtype()
                self.expect(">")
                return pa.list_(pa.field("element", element))
            case "map":
                self.expect("<")
                key = self.dtype()
                self.expect(",")
                value = self.dtype()
                self.expect(">")
                return pa.map_(key, value)
            case "struct":
                self.expect("<")
                fields = [self.field(":")]
                while self.peek() == ",":
                    self.at += 1
                    fields.append(self.field(":"))
                self.expect(">")
                return pa.struct(fields)
            case "decimal" | "dec" | "numeric":
                return self.decimal()
        if name not in _TYPES:
            self.refuse(f"unknown type {name!r}")
        return _TYPES[name]

    def decimal(self) -> pa.DataType:
        precision, scale = 10, 0
        if self.peek() == "(":
            self.at += 1
            precision = self.number()
            if self.peek() == ",":
                self.at += 1
                scale = self.number()
            self.expect(")")
        if not 0 < precision <= 38 or scale > precision:
            self.refuse(f"decimal({precision},{scale}) is out of range")
        return pa.decimal128(precision, scale)

    def number(self) -> int:
        token = self.next("a number")
        if not token.isdigit():
            self.refuse(f"{token!r} is not a number")
        return int(token)

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self, what: str) -> str:
        if self.at >= len(self.tokens):
            self.refuse(f"{what} is missing at the end")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        if self.next(repr(token)) != token:
            self.refuse(f"{token!r} is missing before {self.tokens[self.at - 1]!r}")
