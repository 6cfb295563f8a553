"""Conditions under which `patterns` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

CONDITION_INVALID = codes.CONDITION_INVALID.of(SchemaError)(
    "Spark does not accept a condition",
    "Spark SQL over the columns of one row",
    "patterns.previous(...) and patterns.initial(...) refer to other rows; there are no aggregates and no window functions",
)
CONDITION_NOT_BOOLEAN = codes.CONDITION_INVALID.of(SchemaError)(
    "the condition of {name!r} is neither true nor false",
    "boolean",
    "compare it with something: \"status = 'failed'\"",
)
CONDITION_OVER_MATCH = codes.CONDITION_INVALID(
    "a condition cannot refer to other rows of the match than its first one",
    "conditions over the row, earlier rows of its key, and the first row of the match",
    "compare with patterns.initial(column), the first row of the match, or with patterns.previous(column, n), the n-th row before; or filter the matches by their measures",
)
CONDITION_NEEDS_SPARK = codes.NOT_REPLAYABLE.of(SchemaError)(
    "the test kit evaluates no Spark SQL",
    "names of columns, without Spark",
    "add a column with the condition to the rows of the test, and name it in define",
)
HORIZON_MISSING = codes.PARAMETER_MISSING(
    "first matches on a stream need a horizon, or every key would be stored for ever",
    "a duration",
    'set how long after a match its key is stored: horizon="30 days"; if there are few keys, a long one: "36500 days"',
)
WITHIN_MISSING = codes.PARAMETER_MISSING(
    "a pattern on a stream needs a bound, or partial matches would be stored for ever",
    "a duration",
    'set how far the last row of a match may be behind the first: within="1 day"',
)
MAX_ROWS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`max_rows` is not a number of rows",
    "an integer, 1 or more",
    "leave it out ({default_max_rows:,})",
)
OFFSET_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`offset` is not a number of rows",
    "an integer, 1 or more",
    "1 is the row directly before; later rows are unknown to a condition",
)
PATTERN_TOO_LARGE = codes.PARAMETER_OUT_OF_RANGE(
    "the pattern has too many states",
    "at most {max_states} states: about one per variable, times its repetitions",
    "use a smaller number in {{n,m}}; permute of n variables has 2^n states, and of n groups n! orders",
)
TOO_MANY_CONDITIONS = codes.PARAMETER_OUT_OF_RANGE(
    "there are too many conditions",
    "at most {max_conditions}",
    "combine conditions with OR, or use several patterns",
)
NOT_A_MAPPING = codes.PARAMETER_TYPE(
    "`define` has no conditions by name",
    "a mapping of variables to conditions",
    'define={{"fail": "type = \'fail\'"}}; {{}} if every variable matches every row',
)
NOT_A_MEASURE = codes.PARAMETER_TYPE(
    "{name!r} is not a measure of a match",
    "a mapping of names to measures",
    'measures={{"attempts": patterns.count("fail")}}; patterns.count, and not aggregates.count',
)
HORIZON_WITHOUT_FIRST = codes.PARAMETER_WITHOUT_EFFECT(
    "no match is remembered: all of them are emitted",
    "horizon with matches='first'",
    "leave it out, or set matches='first'",
)
SKIP_WITHOUT_EVERY = codes.PARAMETER_WITHOUT_EFFECT(
    "the search does not continue after the first match of a key",
    "skip with matches='every'",
    "leave it out: it does not change which match is the first",
)
PATTERN_EMPTY = codes.PATTERN_INVALID(
    "the pattern matches no row at all, and so at every row",
    "a pattern with at least one required row",
    "write + instead of *, or leave ? out, for one of the variables",
)
PATTERN_OPEN = codes.PATTERN_INVALID(
    "the pattern {begins} with a gap, which has no certain bound",
    "a required row on both sides of `...` and of !name",
    "leave the gap out. At the end of the whole pattern, outside of groups and alternatives, !name means that no such row follows",
)
NOT_TEXT = codes.PATTERN_INVALID(
    "the pattern is not text",
    "text",
    'write it in quotes, such as "fail{{3,}} ok"',
)
PATTERN_SYNTAX = codes.PATTERN_INVALID(
    "the pattern cannot be read: {reason}",
    "names, ( ), |, permute( , ), a quantifier ? * + {{n}} {{n,}} {{,m}} {{n,m}} or a reluctant one with ? behind it, `...`, !name",
    'for example "a b+ c", "(a | b){{3,}}? c", "a ... b", "a !c b"',
)
VARIABLE_UNDEFINED = codes.PATTERN_INVALID(
    "!{name} would exclude every row",
    "a condition of {name!r} in define",
    "only variables without `!` may be left undefined: every row satisfies them",
)
ROWS_FULL = codes.STATE_FULL(
    "a key has more undecided rows than `max_rows`",
    "at most {max_rows:,}: max_rows",
    "shorten `within`; raise max_rows, which a checkpoint survives; or evict the oldest rows of such keys: when_full='evict_oldest'",
)
