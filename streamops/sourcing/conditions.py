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
REASON_MISSING = codes.FUNCTION_RESULT(
    "`decide` rejected a command without a reason",
    "text",
    "return [event] for one event, [] for none, and the whole state",
)
NOT_EVENTS = codes.FUNCTION_RESULT(
    "`decide` did not return a list of events",
    "a list, or Rejected",
    "return [event] for one event, [] for none, and the whole state",
)
NOT_AN_EVENT = codes.FUNCTION_RESULT(
    "`decide` returned what is not an event",
    "a tuple of {number}, or a dict: {names}",
    "return [event] for one event, [] for none, and the whole state",
)
BAD_STATE = codes.INVALID_PARAMETER(
    "the state has no fields",
    "fields of the state, and initial values of them",
    'state="balance bigint", initial={{"balance": 0}}',
)
EVENT_WITHOUT_VERSION = codes.MALFORMED_LOG(
    "an event has no version",
    "numbers: 1, 2, 3, … per entity, or after the version of the snapshot",
    "read the whole log, without rejections: .where('rejection IS NULL')",
)
VERSION_TWICE = codes.MALFORMED_LOG(
    "two different events have one version",
    "one event each: 1, 2, 3, … per entity, or after the version of the snapshot",
    "read the whole log, without rejections: .where('rejection IS NULL')",
)
EVENT_MISSING = codes.MALFORMED_LOG(
    "an event is missing in the log",
    "versions without gaps: 1, 2, 3, … per entity, or after the version of the snapshot",
    "read the whole log, without rejections: .where('rejection IS NULL')",
)
NAME_TAKEN = codes.NAME_TAKEN(
    "two fields have the same name: {taken}",
    "names unlike one another, and unlike those that the operator adds",
    "name the field {name!r} differently in `{parameter}`",
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
