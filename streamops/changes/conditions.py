"""Conditions under which `changes` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

COLUMNS_DIFFER = codes.COLUMNS_DIFFER(
    "the columns of {one} and of {other} differ",
    "the same names with the same types",
    "select or cast the columns of one of them",
)
COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as `{role}`",
    "JSON as string or binary",
    'read the messages unparsed; Avro: F.to_json(from_avro(...), {{"ignoreNullFields": "false"}})',
)
NOT_A_CHANGE_FEED = codes.FRAME_TYPE(
    "the frame does not have the columns of Delta's change data feed",
    "{expected}",
    'spark.readStream.format("delta").option("readChangeFeed", "true")',
)
NOT_A_CHANGE_STREAM = codes.FRAME_TYPE(
    "the frame is not a change stream",
    "a column {change_type!r} of type string",
    "for rows that are only inserted: df.withColumn({change_type!r}, F.lit('insert'))",
)
NO_CHANGES = codes.FRAME_TYPE(
    "the frame is not a change stream",
    "a column {column!r}",
    "fold the output of an operator that emits changes",
)
CHANGES_UNORDERED = codes.FRAME_TYPE(
    "no column orders the changes of a key",
    "a column {revision!r}, as from changes.normalize and windows, or `sequence`",
    "changes.fold(rows='multiset') for joins, changes.aggregate and timelines, whose rows have no key; sequence='_sequence' for captured changes",
)
VERSIONS_UNORDERED = codes.FRAME_TYPE(
    "no column orders the versions of a key",
    "a column {revision!r}, as from changes.normalize and windows, or `sequence`",
    "sequence='version', or the column that orders the rows of a key",
)
NOT_A_PLACEHOLDER = codes.INVALID_PARAMETER(
    "`placeholder` is not the text of a placeholder",
    "the connector's unavailable.value.placeholder",
    "omit it, if the connector uses the default",
)
KEY_CALLED_PAYLOAD = codes.NAME_TAKEN(
    "a key column called 'payload' looks like the wrapper of a message key",
    "another name, or records whose deletes have their row",
    "omit message_key",
)
KEY_OF_THE_FEED = codes.NAME_TAKEN(
    "{taken!r} describes a change, and is not a column of its row",
    "columns that identify a row of the table",
    'from_delta("id")',
)
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "a column of the row has the name of one that is added: {taken}",
    "names unlike {added}",
    "df.withColumnRenamed({name!r}, ...) before this operator",
)
SUM_OVERFLOW = codes.NUMERIC_OVERFLOW(
    "the sum of {inputs!r} does not fit into its type",
    "a value of type {wanted}",
    "cast the column to a wider type first: decimal(38,0) for integers; double, which rounds",
)
AGGREGATE_BY_TIME = codes.PARAMETER_MISSING(
    "{aggregation!r} is ordered by event time, which rows of a table do not have",
    "count, sum, mean, min, max, variance, stddev, count_distinct, percentile or top",
    "aggregates.top(1, {column!r}, ranked_by=..., tie_break=...) takes the value of the row that is greatest in a column",
)
DELETES_UNKNOWN = codes.PARAMETER_MISSING(
    "no column tells which rows are deletes, or two columns do",
    "a column {column!r}, or value=... without one",
    'value="value" for a Kafka topic, whose deletes have a null value',
)
NO_AGGREGATE = codes.PARAMETER_MISSING(
    "no aggregate to compute",
    "at least one named aggregate",
    'agg={{"rows": aggregates.count()}}',
)
TOMBSTONE_WITHOUT_KEY = codes.PARAMETER_MISSING(
    "a tombstone only has its message key",
    "the column with the message keys",
    'message_key="key", or tombstones="drop"',
)
KEY_MISSING = codes.PARAMETER_MISSING(
    "no column identifies a row",
    "columns that identify a row, or rows='multiset'",
    'fold("id"); or, if rows have no key, fold(rows="multiset")',
)
NOT_A_NUMBER_OF_ROWS = codes.PARAMETER_OUT_OF_RANGE(
    "`show` is not a number of differences",
    "an integer, 0 or more",
    "omit it",
)
SEQUENCE_OF_A_MULTISET = codes.PARAMETER_WITHOUT_EFFECT(
    "a multiset does not depend on the order of changes",
    "`sequence` together with `key`, or no `sequence`",
    "omit it; drop the column before the operator if it is not part of the row",
)
SURROGATE_WITHOUT_HISTORY = codes.PARAMETER_WITHOUT_EFFECT(
    "`surrogate` identifies an interval, and the table has no intervals",
    "history='intervals' beside it",
    "leave surrogate out: the key identifies a row",
)
TRACK_WITHOUT_HISTORY = codes.PARAMETER_WITHOUT_EFFECT(
    "`track` defines where an interval ends, and the table has no intervals",
    "history='intervals' beside it",
    "leave track out",
)
KEY_OF_A_MULTISET = codes.PARAMETER_WITHOUT_EFFECT(
    "a multiset has no key",
    "columns that identify a row, or rows='multiset'",
    'fold("id"); or, if rows have no key, fold(rows="multiset")',
)
STREAMING_FRAME = codes.STREAMING_FRAME.of(SchemaError)(
    "a stream has no end, and this operator needs all rows",
    "a batch frame",
    "call it inside foreachBatch, or on the table that the stream wrote",
)
TABLES_DIFFER = codes.TABLES_DIFFER(
    "two tables differ",
    "the same rows in both tables",
    "look at the first difference: which changes of this key were published?",
)
