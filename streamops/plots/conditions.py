"""Conditions under which a picture is not drawn."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be drawn on an axis",
    "timestamps or numbers",
    "convert the column first: pd.to_datetime(...), or a cast to timestamp_ltz in Spark",
)
NOT_A_TABLE = codes.NOT_A_FRAME.of(SchemaError)(
    "these are not rows with named columns",
    "a frame of PySpark, pandas, Arrow or Polars, rows as dicts, or columns by name",
    "pass a frame, or a list such as [{{'ts': ..., 'user': ...}}]",
)
OPERATOR_WITHOUT_WATERMARK = codes.NOT_REPLAYABLE(
    "`operator` does not compare rows with a watermark of one input",
    "an operator with event time and one input, such as windows.tumbling(...)",
    "leave it out, and pass the delay of the watermark: delay=...",
)
DELAY_AND_WATERMARK = codes.PARAMETERS_CONTRADICT(
    "the watermark is computed from `delay`, or by an operator, or read from a column",
    "one of them; an operator has its own allowed lateness",
    "leave out `delay` to draw the watermark that the query had",
)
TIME_MISSING = codes.PARAMETER_MISSING(
    "there are events, but not the column of their event time",
    "the name of a column",
    'time="ts", for example',
)
TOO_MANY_COLORS = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` has more values than there are colors",
    "at most {categories}",
    "select some of them, or combine rare ones, before you draw them",
)
TOO_MUCH_TO_DRAW = codes.PARAMETER_OUT_OF_RANGE(
    "a picture of so many {things} cannot be read",
    "at most {most:,} {things}",
    "select some keys, or a shorter period, before you draw them",
)
STREAMING_FRAME = codes.STREAMING_FRAME.of(SchemaError)(
    "a stream has no end, and a picture needs all rows",
    "a batch frame",
    "call it inside foreachBatch, or on the table that the stream wrote",
)
