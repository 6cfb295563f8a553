"""Conditions under which values are not shredded, searched or erased."""

from streamops.kernel import codes

ALREADY_SHREDDED = codes.COLUMN_TYPE(
    "the values of the column are shredded already",
    "readable values",
    "omit the column",
)
SUBJECT_TYPE = codes.COLUMN_TYPE(
    "{column} cannot be used as subject",
    "string, tinyint, smallint, int or bigint",
    "cast it: F.col({name!r}).cast('string')",
)
KEY_TABLE_TYPE = codes.COLUMN_TYPE(
    "column {column!r} of the key table has the wrong type",
    "{dtype}",
    "cast the column: F.col({column!r}).cast({dtype!r})",
)
NOT_SHREDDED = codes.COLUMN_TYPE(
    "column {column!r} does not have shredded values",
    "binary, as erasure.shred writes it",
    "omit the column; if a format stored the bytes as text, convert them: F.unbase64",
)
EVENT_TIME_SHREDDED = codes.COLUMN_TYPE(
    "the column has the watermark of the stream, which needs its values",
    "columns without a watermark",
    "keep the event time readable, coarser if it identifies a person: F.date_trunc",
)
NOT_SHREDDABLE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as a shredded column",
    "{types}",
    "make it a string: {conversion}",
)
SAME_COLUMN = codes.DUPLICATE_COLUMN(
    "the subject would be shredded, and its key could not be found again",
    "a subject that is not among the columns",
    "use a surrogate id as subject, and shred the other columns",
)
DIALECT_UNSUPPORTED = codes.INVALID_PARAMETER(
    "keys cannot be stored in this database",
    "{expected}",
    "store the key table in one of these; the data may be anywhere",
)
KEY_TABLE_IN_MEMORY = codes.INVALID_PARAMETER(
    "the keys, and with them all shredded values, would be lost at the end of the process",
    "a file",
    "sqlite:////data/keys.db",
)
WRAPPING_KEY_SIZE = codes.INVALID_PARAMETER(
    "the function of the wrapping key does not return a key",
    "bytes, {key_size} of them",
    "store a key that secrets.token_bytes(32) made, and return it",
)
KEY_NOT_UNWRAPPED = codes.KEY_NOT_UNWRAPPED(
    "a key of the table is not wrapped by the present wrapping key",
    "keys that the present wrapping key unwraps",
    "pass the wrapping key by which the table was written",
)
KEY_TABLE_UNAVAILABLE = codes.KEY_TABLE_UNAVAILABLE(
    "the database of the key table refused a transaction, which had no effect",
    "a database that is reachable, and a role that may write the table",
    "nothing is lost: run it again once the cause is removed",
)
NOTHING_TO_SEARCH = codes.PARAMETER_MISSING(
    "there is nothing to search",
    "folders that exist, and at least one value",
    "check the paths: a search that reads nothing finds nothing",
)
VALUE_TOO_SHORT = codes.PARAMETER_OUT_OF_RANGE(
    "a short value is found by chance",
    "at least {shortest} bytes",
    "search for a longer value of the same person, or for several",
)
NOT_A_SUBJECT = codes.PARAMETER_TYPE(
    "a subject is neither text nor an integer; nothing was changed",
    "strings or integers, as in the column `subject`",
    "a pandas column with missing values has floats: column.dropna().astype('int64').tolist(); rows of Spark: [row.subject for row in rows]",
)
NOT_FOLDERS = codes.PARAMETER_TYPE(
    "`folders` does not name what is searched",
    "a path, or a list of paths",
    'search_files(["/data/checkpoint", "/data/log"], values)',
)
NOT_SEARCHABLE = codes.PARAMETER_TYPE(
    "`values` has something that is not searched byte by byte",
    "a mapping from names to texts or bytes",
    'pass each text in which the value is stored, under a name of its own: {{"number": "12345678", "date": "2024-05-01"}}',
)
WRAPPING_KEY_NOT_A_FUNCTION = codes.PARAMETER_TYPE(
    "`wrapping_key` is not a function",
    "a function without parameters that returns 32 bytes",
    "return the key from a function that reads it where the executors can: lambda: Path('/run/secrets/wrapping_key').read_bytes()",
)
NAME_WITHOUT_COLUMN = codes.PARAMETER_WITHOUT_EFFECT(
    "`names` has a column that is not among `columns`",
    "columns that are shredded",
    "add {name!r} to `columns`, or remove it from `names`",
)
VALUES_REJECTED = codes.ROW_REJECTED(
    "values could not be processed",
    "a key for the subject of each row, and values that are authentic",
    'use rejected="null" to mark these rows and continue',
)
BATCH_IS_A_STREAM = codes.STREAMING_FRAME(
    "keys are created for the rows that are there",
    "a micro-batch",
    "create the keys in foreachBatch, and shred the micro-batch there",
)
FRAME_IS_A_STREAM = codes.STREAMING_FRAME(
    "a stream has no rows that could be searched as a whole",
    "a batch frame",
    "search each micro-batch in foreachBatch, or the table that the query writes: spark.read",
)
KEYS_ARE_A_STREAM = codes.STREAMING_FRAME(
    "the key table is joined as it is when a row is processed",
    "a batch frame",
    "read it with spark.read instead of spark.readStream",
)
TYPE_UNKNOWN = codes.TYPE_UNSUPPORTED(
    "the type of the values in column {column!r} is not known",
    "the type that the column had",
    'erasure.unshred({{{column!r}: "string"}}, ...)',
)
VALUE_TYPE = codes.VALUE_TYPE(
    "not a type of shredded values",
    "{expected}",
    'write the type as Spark does: "bigint", "decimal(10,2)"',
)
