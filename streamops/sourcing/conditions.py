"""Conditions under which `sourcing` raises an error."""

from streamops.kernel import codes

COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the version",
    "an integer: the number of the event in its entity, from 1",
    "F.row_number() over the entity, ordered by the position in the log",
)
OUTPUT_ROW = codes.FUNCTION_RESULT(
    "`evolve` did not return a state",
    "state._replace(...)",
    "return the whole state",
)
BAD_STATE = codes.INVALID_PARAMETER(
    "the state has no fields",
    "fields of the state, and initial values of them",
    'state="balance bigint", initial={{"balance": 0}}',
)
MAX_IDS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`max_ids` is not a number of command ids",
    "an integer, 1 or more",
    "leave it out ({default_max_ids:,})",
)
NOT_A_FUNCTION_OF_STATE = codes.PARAMETER_TYPE(
    "`{parameter}` is not a function",
    "def {parameter}(state, ...)",
    "pass a function",
)
NOT_A_FUNCTION = codes.PARAMETER_TYPE(
    "`{parameter}` is not a function",
    "def {parameter}(...)",
    "pass a function",
)
FOLD_OF_A_STREAM = codes.STREAMING_FRAME(
    "a log is folded as a whole",
    "a batch frame",
    "spark.read instead of spark.readStream; on a stream, sourcing.decide has the current state, and process.per_key folds events",
)
