"""Conditions under which `search` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

TEXT_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as text",
    "string",
    "F.array_join({column!r}, ' ') for an array; or name it in `fields`",
)
FIELD_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as a field",
    "{expected}",
    "cast it: a decimal without fractions to bigint; others to double, which rounds",
)
SAME_COLUMN = codes.DUPLICATE_COLUMN(
    "the id and the query cannot order the changes of a query",
    "other columns",
    "name the position in the log as `sequence`",
)
TEXT_AND_FIELD = codes.DUPLICATE_COLUMN(
    "a column cannot be text and a field",
    "each column once",
    "name it as text to search its words, or as a field to compare its whole value",
)
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "two columns of the result have the same name",
    "columns unlike {added}, which the operator adds",
    "rename the column before, or set another name for the id with into=...",
)
NOTHING_TO_SEARCH = codes.PARAMETER_MISSING(
    "the documents have neither text nor fields",
    "each column once",
    "name it as text to search its words, or as a field to compare its whole value",
)
DELAY_WITHOUT_AS_OF = codes.PARAMETER_WITHOUT_EFFECT(
    "no document waits: each is matched with the queries of its micro-batch",
    "them together with as_of",
    'as_of="ts" matches documents with the queries that were valid at their event time',
)
