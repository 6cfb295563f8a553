"""Conditions under which `search` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

SAME_COLUMN = codes.DUPLICATE_COLUMN(
    "the id and the query cannot order the changes of a query",
    "other columns",
    "name the position in the log as `sequence`",
)
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "two columns of the result have the same name",
    "columns unlike {added}, which the operator adds",
    "rename the column before, or set another name for the id with into=...",
)
DELAY_WITHOUT_AS_OF = codes.PARAMETER_WITHOUT_EFFECT(
    "no document waits: each is matched with the queries of its micro-batch",
    "them together with as_of",
    'as_of="ts" matches documents with the queries that were valid at their event time',
)
