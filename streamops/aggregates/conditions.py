"""Conditions under which `aggregates` raises an error."""

from streamops.kernel import codes

SUM_OVERFLOW = codes.NUMERIC_OVERFLOW(
    "the {function} of {column!r} does not fit into its type",
    "a value of type {wanted}",
    "cast the column to a wider type first: decimal(38,0) for integers; double, which rounds",
)
AGGREGATE_BY_TIME = codes.PARAMETER_MISSING(
    "{aggregate!r} orders rows by event time, and this operator has none",
    "an aggregate that does not depend on event time",
    'aggregates.top(1, {column!r}, ranked_by="ts", tie_break=...) is the value of the latest row, and of the earliest one if ranked by a column that decreases with time; or aggregate by windows: tumbling, cumulative, session',
)
TIME_REQUIRED = codes.PARAMETER_MISSING(
    "{aggregate!r} orders rows by event time",
    "to_spark(time=...)",
    'name the event-time column: to_spark(time="ts")',
)
PARAMETER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is not a number of values",
    "an integer, 1 or more",
    "{parameter}=1000 stores up to a thousand values per group",
)
AGGREGATE_FULL = codes.STATE_FULL(
    "a result needs more values of {column!r} than `at_most`",
    "at most {at_most:,} per group: at_most={at_most}",
    "raise at_most; or return null: when_full='null'. On a stream, with a new checkpoint",
)
