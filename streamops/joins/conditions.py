"""Conditions under which `joins` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError

NO_ORDER = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "a type with an order",
    "name a column that grows: a log position, a commit version, an id",
)
FLAG_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as a deletion flag",
    "boolean",
    "use a condition: F.col('op') == 'd'",
)
MARK_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "cast the column; or rename it, if it is not {use}",
)
POSTS_UNORDERED = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use} of posts",
    "a type with an order: numbers, strings, binary, timestamps",
    "df.withColumn({column!r}, ...): a part of it that has an order",
)
SNAPSHOT_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the table's",
    "{expected}, as in the changes",
    "cast it: snapshot.withColumn({column!r}, ...)",
)
LOOKUP_KEY_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as the key {key!r}",
    "{expected}, as {key!r} of the frame",
    "give both columns one type ({conversion})",
)
COLUMN_TWICE = codes.DUPLICATE_COLUMN(
    "a column of the versions has two roles",
    "a column of its own for every role",
    "name another column, or add a copy to the versions before the join",
)
USER_IS_AUTHOR = codes.DUPLICATE_COLUMN(
    "column {column!r} cannot be both the follower and the followed author",
    "two columns of the right frame",
    'with one row per user and author followed: user="user", by={{"author": "whom"}}',
)
NOT_A_CHANGE_STREAM = codes.FRAME_TYPE(
    "the frame is not a change stream",
    "a column {change_type!r} of type string: insert, update_preimage, update_postimage, delete",
    "if rows are only added: df.withColumn({change_type!r}, F.lit('insert'))",
)
ROWS_NOT_WHOLE = codes.FRAME_TYPE(
    "versions must be complete rows, and some values of these may not have been sent",
    "rows with all their values",
    "apply changes.normalize between the reader and the join, which carries previous values forward (docs/joins.md); if the connector always sends complete rows, right.drop({unavailable!r})",
)
KEY_NOT_UNIQUE = codes.KEY_NOT_UNIQUE(
    "the table has several rows with the same key",
    "at most one row per key",
    "table.dropDuplicates({keys!r}), or a rule that selects one row per key",
)
NAME_TAKEN = codes.NAME_TAKEN(
    "`into` is the name of another column that the join may add",
    "a name other than {added}",
    'use another name, such as into="match"',
)
NO_FREE_NAME = codes.NAME_TAKEN.of(SchemaError)(
    "the right column {column!r} has no free name in the joined row",
    "right columns unlike the left ones ({names}), or unlike them with the suffix {suffix!r}",
    "right.withColumnRenamed({column!r}, 'another name') before the join",
)
ADDED_NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "two columns of the result have the same name: {taken}",
    "columns unlike {added}, which the join adds",
    "rename the column before the join, or set another name for the added one with into=...",
)
CHANGE_COLUMN_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "two columns of the result have the same name: {taken}",
    "columns unlike {added}, which the join adds",
    "rename the column before the join",
)
BOUNDS_REVERSED = codes.PARAMETERS_CONTRADICT(
    "no time lies between the bounds",
    "lower <= upper, both measured from the left row's time to the right's",
    "exchange them; the bounds of a right row that comes first are negative",
)
MATCHES_OF_LEFT_ROWS = codes.PARAMETERS_CONTRADICT(
    "one match is chosen for each left row, and not for right rows",
    "how='inner' or 'left'; 'semi' and 'anti' need no particular match",
    "how='left', or matches='every'",
)
NO_VERSION_CAN_MATCH = codes.PARAMETERS_CONTRADICT(
    "versions at the event time are excluded, and so are all others",
    "a tolerance above 0, or allow_exact=True",
    "allow_exact=True matches versions at exactly the event time",
)
REMEMBER_WITH_SEQUENCE = codes.PARAMETERS_CONTRADICT(
    "`sequence` and `remember` belong together",
    "both or neither",
    "remember=100_000 stores the sequences of that many deleted rows, so that late changes do not restore them; remember=0: none",
)
SEQUENCE_OF_CHANGES = codes.PARAMETERS_CONTRADICT(
    "a delete has the same revision as the row that it deletes: their order is unknown",
    "a position in a log, higher for a delete than for the deleted row",
    "omit sequence and remember: streamops emits changes once and in order; or rename the column, if it is a position",
)
SEQUENCE_OF_A_TABLE = codes.PARAMETERS_CONTRADICT(
    "a delete has the same revision as the row that it deletes: their order is unknown",
    "a position in a log, higher for a delete than for the deleted row",
    "sequence='position' after .withColumn('position', 2 * F.col('revision') + F.when(F.col('_change_type') == 'delete', 1).otherwise(0)); or rename the column, if it is a position",
)
SEQUENCE_OF_VERSIONS = codes.PARAMETERS_CONTRADICT(
    "a delete has the same revision as the row that it deletes: their order is unknown",
    "a position in a log, higher for a delete than for the deleted row",
    "store the position in the log among the values of the row, and deletes as rows with a flag (docs/joins.md, 'A captured table'); or rename the column, if it is a position",
)
NO_KEY = codes.PARAMETER_MISSING(
    "`by` names no column",
    "at least one key column",
    'by="user_id"; or a constant column on both sides to join all rows',
)
SEQUENCE_WITHOUT_KEY = codes.PARAMETER_MISSING(
    "a sequence orders the changes of a key, and there is no key",
    "it together with key=...",
    'name the primary key of each side: key=("order_id", "customer_id")',
)
TIE_BREAK_MISSING = codes.PARAMETER_MISSING(
    "the order of two right rows with the same time is undefined",
    "a column of the right that orders rows with the same time",
    'tie_break="id", for example: an id that grows, a log position, an offset',
)
TOLERANCE_MISSING = codes.PARAMETER_MISSING(
    "a later version can always arrive: a fact without a match would wait for ever",
    "a tolerance: a fact is joined once the watermark has passed its time by that",
    'tolerance="10 minutes", for example; batches do not need it',
)
CAP_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`cap` is not a number of posts",
    "an integer from 1 to {max_cap}",
    "cap=800, or the number of posts that is shown of a timeline",
)
REMEMBER_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`remember` is not a number of rows",
    "an integer, 0 or more",
    "remember=100_000, or the number of deletes between a change and its late copy",
)
NOT_A_PAIR = codes.PARAMETER_TYPE(
    "`{parameter}` is neither one value for both inputs nor a pair",
    "one value for both inputs, or a pair: left, right",
    "{parameter}={example}",
)
EARLY_WITHOUT_EFFECT = codes.PARAMETER_WITHOUT_EFFECT(
    "a match is final at once, and nothing else is emitted",
    "how='left', 'right', 'full' or 'anti', or matches='first' or 'last'",
    "omit early",
)
REFRESH_OF_A_STREAM = codes.PARAMETER_WITHOUT_EFFECT(
    "Spark plans a stream once: the table would not be read again",
    "refresh='never', or a micro-batch inside foreachBatch",
    "writeStream.foreachBatch(lambda batch, _: batch.transform(...).write...)",
)
REFRESH_WITHOUT_FUNCTION = codes.PARAMETER_WITHOUT_EFFECT(
    "a frame reads the same files every time",
    "a function that builds the frame again",
    "joins.lookup(lambda spark: spark.read.parquet(path), ...)",
)
TIE_BREAK_WITHOUT_CHOICE = codes.PARAMETER_WITHOUT_EFFECT(
    "every match is emitted: there are no ties to break",
    "it together with matches='first' or 'last'",
    "omit tie_break",
)
TOO_LATE_WITHOUT_ANSWERS = codes.PARAMETER_WITHOUT_EFFECT(
    "`too_late` applies beyond the allowed lateness of late facts and corrections",
    "it together with stragglers='answer' or late_versions='retract'",
    "stragglers='route' emits every late row",
)
TOO_LATE_WITHOUT_CORRECTIONS = codes.PARAMETER_WITHOUT_EFFECT(
    "`too_late` applies beyond the allowed lateness of corrections",
    "it together with stragglers='retract'",
    "stragglers='route' emits every late row",
)
UNTIL_WITHOUT_BACKWARD = codes.PARAMETER_WITHOUT_EFFECT(
    "`until` ends a version that began before the fact, and forward finds later ones only",
    "until with direction='backward' or 'nearest'",
    "omit until: the column is in the output nevertheless",
)
TIME_OF_ONE_SIDE = codes.PARAMETER_TYPE(
    "`time` is the event time of the left frame alone",
    "the name of one column",
    'time="ts", and version="since": version= is the time of the right frame',
)
ROWS_REVISED = codes.ROWS_REVISED(
    "a row joined with one version of the table would be retracted with another",
    "rows that are not revised, or a table that does not change",
    "joins.tables, which joins two change streams; or refresh='never', if the table never changes",
)
SNAPSHOT_IS_A_STREAM = codes.STREAMING_FRAME(
    "a snapshot is read completely, before all changes",
    "a batch frame",
    "use spark.read instead of spark.readStream; or omit snapshot, if its rows are among the changes and marked by a boolean column {column!r}",
)
TABLE_IS_A_STREAM = codes.STREAMING_FRAME(
    "the table of a lookup is read completely",
    "a batch frame",
    "use spark.read instead of spark.readStream; or joins.asof, which joins two streams",
)
TYPE_NOT_CARRIED = codes.TYPE_UNSUPPORTED(
    "column {column!r} of the table has a user-defined type",
    "a built-in type",
    "drop the column, or convert it: pyspark.ml.functions.vector_to_array for vectors",
)
