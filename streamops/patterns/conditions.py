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
    "compare it with something: \"status = 'failed'\", patterns.previous('price') < 'price'",
)
CONDITION_OVER_MATCH = codes.CONDITION_INVALID(
    "a condition cannot refer to other rows of the match than its first one",
    "conditions over the row, earlier rows of its key, and the first row of the match",
    "compare with patterns.initial(column), the first row of the match, or with patterns.previous(column, n), the n-th row before; or filter the matches by their measures",
)
CONDITION_AS_BOOLEAN = codes.CONDITION_INVALID(
    "a condition has no value before there are rows",
    "&, | or ~",
    "write (a) & (b), (a) | (b), ~(a); chained comparisons such as a < b < c as two",
)
CONDITION_TYPES = codes.CONDITION_INVALID.of(SchemaError)(
    "the condition of {name!r} does not suit the types of its columns",
    "comparisons of values of one type, or of numbers",
    "cast a side in its Spark SQL: patterns.previous('CAST(price AS DOUBLE)')",
)
INTEGER_TOO_LARGE = codes.CONDITION_INVALID(
    "an integer in a condition does not fit into 64 bits",
    "an integer from -2^63 to 2^63 - 1",
    "write it as Spark SQL of its type: \"CAST('9223372036854775808' AS DECIMAL(20,0))\"",
)
NOT_A_CONDITION = codes.CONDITION_INVALID(
    "this cannot be part of a condition",
    "Spark SQL as text, a number, patterns.previous(...), patterns.initial(...) or patterns.current(...)",
    "conditions see the row, earlier rows of its key, and the first row of the match: compare with patterns.previous(...) or patterns.initial(...), or filter the matches by their measures; a text literal is Spark SQL, too: \"'text'\"",
)
CONDITION_NEEDS_SPARK = codes.NOT_REPLAYABLE.of(SchemaError)(
    "the test kit evaluates no Spark SQL",
    "names of columns, without Spark",
    "add a column with the condition to the rows of the test, and name it in define",
)
CONDITION_OVERFLOW = codes.NUMERIC_OVERFLOW(
    "a number in the condition of {name!r} does not fit into its type",
    "values that the type of the result has",
    "cast to a wider type in its Spark SQL, on both sides: patterns.previous('CAST(price AS DOUBLE)'), or AS DECIMAL(20,0) for exact integers",
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
VARIABLE_UNKNOWN = codes.PATTERN_INVALID(
    "the pattern has no variable {name!r}",
    "one of {variables}",
    "add it to the pattern, or leave it out",
)
VARIABLE_MISSPELT = codes.PATTERN_INVALID(
    "the pattern has no variable {name!r}",
    "one of {variables}",
    "did you mean {near!r}?",
)
ROWS_FULL = codes.STATE_FULL(
    "a key has more undecided rows than `max_rows`",
    "at most {max_rows:,}: max_rows",
    "shorten `within`; raise max_rows, which a checkpoint survives; or evict the oldest rows of such keys: when_full='evict_oldest'",
)
UNKNOWN_SKIP = codes.UNKNOWN_CHOICE(
    "`skip` is not one of its choices",
    "'past last row', 'to next row', 'to first NAME' or 'to last NAME'",
    "'past last row' if matches must not overlap, 'to next row' if they may",
)
SKIP_TO_ANY = codes.UNKNOWN_CHOICE(
    "there are exponentially many combinations of later rows",
    "'past last row', 'to next row', 'to first NAME' or 'to last NAME'",
    "'to next row' finds one match from every row that starts one, the preferred one",
)
