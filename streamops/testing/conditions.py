"""Conditions under which a script is not replayed or compared."""

from streamops.kernel import codes
from streamops.kernel.errors import CapacityError, SchemaError

DELETED_UNPUBLISHED = codes.DELETED_UNPUBLISHED(
    "a delete of a row that is not there",
    "a row",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
DUPLICATE_COLUMN = codes.DUPLICATE_COLUMN.of(SchemaError)(
    "a micro-batch has more than one column of the same name",
    "unique column names",
    "rename one of them",
)
TWO_COLUMNS_OF_A_NAME = codes.DUPLICATE_COLUMN.of(SchemaError)(
    "two columns have the same name",
    "unique column names",
    "rename or drop one of: {duplicates}",
)
BATCH_TYPE = codes.BATCH_TYPE(
    "a micro-batch does not have the types of the script",
    "{expected}",
    "cast the column, or pass the intended schema: schema=...",
)
INSERTED_TWICE = codes.INSERTED_TWICE(
    "a row was inserted that is already there",
    "an update",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
COLUMN_MISSPELT = codes.INVALID_ROWS.of(SchemaError)(
    "no row has both {column!r} and {other!r}: probably, they are one column",
    "one of: {columns}",
    "did you mean {other!r}? If both are columns, pass schema=...",
)
NOT_ROWS = codes.INVALID_ROWS(
    "these are not rows",
    "a DataFrame, a Table, or a list of dicts or Rows",
    "the rows of a micro-batch are result.rows, those of all [row for result in results for row in result.rows]",
)
ONE_ROW = codes.INVALID_ROWS(
    "this is one row, not a micro-batch",
    "a list of dicts, a Table or a pandas DataFrame for each micro-batch",
    "a list of lists of rows: [[{{...}}, {{...}}], [{{...}}]]",
)
NOT_A_BATCH = codes.INVALID_ROWS(
    "this is not a micro-batch",
    "a list of dicts, a Table or a pandas DataFrame for each micro-batch",
    "a list of lists of rows: [[{{...}}, {{...}}], [{{...}}]]",
)
NOT_BATCHES = codes.INVALID_ROWS(
    "this is not a script of micro-batches",
    "a list of micro-batches, each of which is a list of dicts, a Table or a pandas DataFrame",
    "replay(operator, [[{{...}}, {{...}}], [{{...}}]]): first the operator, then a list, also of one micro-batch",
)
NOT_A_CHAIN = codes.NOT_REPLAYABLE(
    "the test kit cannot run this",
    "an operator such as windows.tumbling(...), or a list of operators, of which only the first may have two inputs",
    "replay(operator, batches), in this order; test operators without a state and joins within a chain as a query, on testing.micro_batches",
)
NOT_IN_A_SCRIPT = codes.NOT_REPLAYABLE(
    "a replay has no frames, and `snapshot` is one",
    "an operator without it",
    "leave snapshot out, and write its rows into the script; or run it on Spark: streamops.testing.stream",
)
NOT_ONE_OPERATOR = codes.NOT_REPLAYABLE(
    "the laws are those of one operator",
    "one operator",
    "check each of them",
)
TESTING_EXTRA_MISSING = codes.PACKAGE_MISSING(
    "{package} is not installed",
    "the packages of the extra `testing`",
    codes.INSTALL.format(extra="testing"),
)
KEY_REQUIRED = codes.PARAMETER_MISSING(
    "the columns that identify a row are unknown",
    "key=..., or columns up to 'window_end'",
    'name the key: fold(rows, key=["user_id"])',
)
NO_SCHEMA = codes.PARAMETER_MISSING(
    "the columns of these micro-batches are unknown",
    "a row, a table, or schema=...",
    'schema=pa.schema([("ts", pa.timestamp("us", tz="UTC")), ...])',
)
TOO_MANY_BATCHES = codes.PARAMETER_OUT_OF_RANGE(
    "Spark does not keep the progress of the first micro-batches",
    "fewer than {limit}",
    "run them in parts, in one directory; or raise spark.sql.streaming.numRecentProgressUpdates",
)
NOT_AN_INSTANT = codes.PARAMETER_TYPE(
    "the test kit has no such instant",
    "numbers of seconds and microseconds, from the year 1 to 9999",
    "at(10), at(0.5), or at(10, micros=-1)",
)
NOT_A_PAIR = codes.PARAMETER_TYPE(
    "{thing} of an operator with two inputs is a pair",
    "{expected}",
    "write None for an input that has nothing: (rows, None)",
)
KEY_OF_A_MULTISET = codes.PARAMETER_WITHOUT_EFFECT(
    "a multiset has no key",
    "one of the two",
    "leave key out, or rows",
)
POSTIMAGE_ALONE = codes.POSTIMAGE_ALONE(
    "a postimage without its preimage",
    "a preimage before",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
PREIMAGE_ALONE = codes.PREIMAGE_ALONE(
    "a row was retracted and never replaced",
    "its postimage",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
PREIMAGE_NOT_PUBLISHED = codes.PREIMAGE_NOT_PUBLISHED(
    "a preimage is not the row that was published",
    "{published}",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
REVISION_OUT_OF_STEP = codes.REVISION_OUT_OF_STEP(
    "a revision does not follow the one before",
    "revision {revision}",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
TRANSCRIPT_MALFORMED = codes.TRANSCRIPT_MALFORMED(
    "the transcript is malformed: {reason}",
    "{expected}",
    "correct the transcript; streamops.testing.transcripts describes the format",
)
TYPE_NOT_CARRIED = codes.TYPE_UNSUPPORTED(
    "a column has a type that Spark does not have",
    "types that Spark exchanges with Arrow",
    "cast the column; unsigned integers to signed ones",
)
UNCHANGED = codes.UNCHANGED(
    "a row was published again without a change",
    "another value",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
UNKNOWN_CHANGE = codes.UNKNOWN_CHANGE(
    "{change!r} is not a change type",
    "insert, update_preimage, update_postimage or delete",
    "fold the rows of all micro-batches, in their order, each once; if they are, the operator that published them has a bug",
)
TIME_NOT_IN_PYTHON = codes.VALUE_TYPE.of(CapacityError)(
    "a time is outside the range of Python's datetime",
    "times in the years 1 to 9999",
    "read the result's `table` (or `late`), whose timestamps have no such limit",
)
PYTHON_SOURCE_UNSUPPORTED = codes.VERSION_NOT_SUPPORTED(
    "this Spark cannot end a run of a Python data source by itself",
    "Spark 4.2 or later",
    "source='files'",
)
