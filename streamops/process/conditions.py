"""Conditions under which `process` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import FunctionError

COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the expected version",
    "an integer: the version that the sender of a command has seen",
    "cast it: df.withColumn({column!r}, F.col({column!r}).cast('bigint'))",
)
FUNCTION_RAISED = codes.FUNCTION_RAISED(
    "a function raised {error}",
    "no exception",
    "handle the exception in the function; process.per_key(errors='route') emits the rows that fail, with the message, as side output",
)
YIELD_BEFORE_ROW = codes.FUNCTION_RESULT(
    "the function yielded before it had read a row, so the output has no event time",
    "a yield inside the loop over the rows",
    "for row in rows: yield ...",
)
OUTPUT_ROW = codes.FUNCTION_RESULT(
    "the function did not yield a row of the output",
    "a tuple of {number}, or a dict: {names}",
    "yield ({names},)",
)
ROWS_NOT_READ = codes.FUNCTION_RESULT(
    "the function returned before it had read all rows",
    "a loop over all rows: where a micro-batch ends has no meaning",
    "for row in rows: ...; use `continue` to ignore a row",
)
TIMERS_WITHOUT_END = codes.FUNCTION_RESULT(
    "timers set each other without end, and a batch has an end",
    "timers that end",
    "set a timer only if the state requires one, or only for rows",
)
TIMER_NOT_AN_INSTANT = codes.FUNCTION_RESULT(
    "the time of a timer is not an instant",
    "a datetime with a time zone, such as the event time of a row",
    "timers.set(row.ts + timedelta(minutes=5))",
)
TIMER_NOT_LATER = codes.FUNCTION_RESULT(
    "a timer sets another one that is not later: they would never end",
    "a later time",
    "timers.set(time + timedelta(...)), with more than zero",
)
VALUE_MISSING = codes.FUNCTION_RESULT(
    "{thing} {field!r} has None where it is declared NOT NULL",
    "{expected}",
    "assign a value in the function, give it one in `initial`, or remove NOT NULL",
)
FIELD_NOT_AN_ATTRIBUTE = codes.INVALID_PARAMETER(
    "{name!r} is not a name of an attribute",
    "names of attributes",
    "name the field like a variable in Python",
)
INITIAL_NOT_A_MAPPING = codes.INVALID_PARAMETER(
    "`initial` is not a mapping of fields to values",
    "values by field",
    'initial={{"count": 0}}',
)
INITIAL_UNKNOWN = codes.INVALID_PARAMETER(
    "`initial` has a value for {name!r}, which is not a field of the state",
    "initial values of its fields",
    "add {name!r} to `state`, or remove it from `initial`",
)
INITIAL_MISSING = codes.INVALID_PARAMETER(
    "{name!r} is declared NOT NULL, and has no initial value",
    "a value that a new key has",
    "give {name!r} a value in `initial`, or remove NOT NULL",
)
INITIAL_TYPE = codes.INVALID_PARAMETER(
    "the initial value of {name!r} does not have the type of the field",
    "a value of type {dtype}",
    "change the value, or the type in `state`",
)
BAD_SCHEMA = codes.INVALID_SCHEMA(
    "values of {field!r} are not exchanged with Python",
    "types of Spark with values in Python; keys of maps are not nested",
    "declare another type: text or binary for values of your own form, an array of structs for a map with such keys",
)
NO_EVENT_TIME = codes.PARAMETER_MISSING(
    "`{parameter}` needs an event time: without one, rows are processed as they arrive",
    "time=... with it",
    'time="ts", delay="10 seconds"; or leave {parameter} out',
)
NO_OUTPUT = codes.PARAMETER_MISSING(
    "the function yields no columns",
    "at least one column",
    'output="total double"',
)
STATE_NAME_TAKEN = codes.PARAMETER_TYPE(
    "the name of the state is one of streamops",
    "a name of your own",
    'StateFormat("acme.my_operator", 1)',
)
NOT_A_CORE = codes.PARAMETER_TYPE(
    "`core` is not an object of a class derived from process.Core",
    "an object, such as MyCore()",
    "derive a class from process.Core, and pass an object of it: MyCore()",
)
NOT_PARAMETERS = codes.PARAMETER_TYPE(
    "`parameters` is not an object of a class derived from process.ShardSpec",
    "an object of a frozen dataclass that is derived from process.ShardSpec",
    "derive a frozen dataclass from process.ShardSpec, and pass an object of it",
)
CORE_WITHOUT_FUNCTION = codes.PARAMETER_TYPE(
    "`core` does not define {missing}",
    "STATE, TABLES and step; with event time, next_deadline",
    "define them in the class",
)
NOT_A_FUNCTION = codes.PARAMETER_TYPE(
    "`{parameter}` is not a function",
    "{signature}",
    "pass a function",
)
NOT_A_GENERATOR = codes.PARAMETER_TYPE(
    "`{parameter}` does not yield its output: a row has the event time of the input row that was read before it",
    "{signature}",
    "write `yield (value, ...)` for each row of the output, inside the loop over the rows",
)
OTHER_ARGUMENTS = codes.PARAMETER_TYPE(
    "`{parameter}` cannot be called with its arguments: {reason}",
    "{signature}",
    "{signature}; `timers` is passed if `on_timer` is given",
)
KEYS_FULL = codes.STATE_FULL(
    "there are more keys than `max_keys`",
    "at most {limit:,} there: max_keys, divided by shards",
    "raise max_keys, which a checkpoint survives; or forget keys: a state equal to the initial one is not stored",
)
STATE_PARAMETERS = codes.STATE_PARAMETERS(
    "this checkpoint was written with another state",
    "{stored}, as written; fields that may be null can be added",
    "{remedy}; or start from a new checkpoint",
)
VALUE_NOT_IN_PYTHON = codes.VALUE_TYPE.of(FunctionError)(
    "column {column!r} has a value that Python cannot represent",
    "dates and nested timestamps in the years 1 to 9999",
    "drop the column before the operator, or replace the value by null",
)
VALUE_TYPE = codes.VALUE_TYPE.of(FunctionError)(
    "a value of {thing} {field!r} does not have its type",
    "{expected}",
    "convert the value in the function, or declare another type",
)
