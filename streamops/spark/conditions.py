"""Conditions under which `spark` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError, SpecError

NO_PREIMAGES = codes.CHANGE_STREAM_INPUT(
    "an update would add its row without removing the previous one",
    "a change stream in which each update has a preimage and a postimage",
    'df.transform(changes.normalize(...)) first, which stores the current rows; or preimages="publish" in from_debezium, "delete" in from_delta, which read the previous rows',
)
KEYS_DIFFER = codes.COLUMNS_DIFFER(
    "the key columns of the two inputs have different types",
    "one type on both sides",
    "give both columns one type ({conversion})",
)
COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} has values that Spark cannot compare",
    "any other type, also maps and variants",
    "cast the column, to string or binary, or drop it",
)
DUPLICATE_COLUMN = codes.DUPLICATE_COLUMN.of(SchemaError)(
    "the frame has more than one column of the same name",
    "unique column names",
    "rename or drop one of them before the operator",
)
TWO_FIELDS_OF_A_NAME = codes.DUPLICATE_COLUMN.of(SchemaError)(
    "a struct has two fields of the same name, which JSON has not",
    "unique names",
    "rename one of the fields",
)
NO_SIDE_OUTPUT = codes.FRAME_TYPE(
    "the frame has no column that tags side output",
    "{tag!r}, as an operator adds it",
    "set stragglers='route', too_late='route' or rejected='route' in the operator, or apply time.guard first, and keep the column",
)
NOT_A_SCHEMA = codes.INVALID_SCHEMA(
    "`schema` does not define the columns of a row",
    "a StructType, or columns and types as in SQL",
    'schema="id bigint, name string"',
)
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "the frame already has a column {column!r}",
    "a frame without {adds}",
    "df.withColumnRenamed({column!r}, ...) before this operator",
)
NOT_A_FRAME = codes.NOT_A_FRAME(
    "{what} is not a DataFrame",
    "a DataFrame",
    "pass the frame that spark.readStream or spark.read returns",
)
NAME_OF_A_TABLE = codes.NOT_A_FRAME(
    "{what} is not a DataFrame",
    "a DataFrame",
    "spark.table({name!r}), or spark.readStream.table({name!r}) for a stream",
)
PROTOBUF_UNFIT = codes.PACKAGE_MISSING(
    "protobuf does not fit the messages of this Spark",
    "{expected}",
    'pip install "{requirement}"',
)
NO_NATIVE_ENGINE = codes.PARAMETERS_CONTRADICT(
    "Spark has no native equivalent",
    "an operator and a policy that Spark has, too: a window without routing and without empty or early results, on a stream with stragglers='drop' and no allowed_lateness, of aggregates that Spark has, with spark.sql.ansi.enabled=true for sums of integers and decimals and means of decimals (docs/windows.md); or an interval join that Spark's join can express (docs/joins.md)",
    'engine="auto" or engine="kernel"',
)
RIGHT_MISSING = codes.PARAMETER_MISSING(
    "there is no right frame",
    "a DataFrame",
    "left.transform({operator}(right, ...)); None is for streamops.testing, which provides both frames",
)
EXPECTED_KEYS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`expected_keys` is not a number of keys",
    "an integer, 1 or more: about how many distinct keys have rows within a window",
    "leave it out if it is not known: a stream then runs on the kernel",
)
SHARDS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`shards` is out of range",
    "an integer from 1 to {max_shards}",
    "use the default ({default_shards}); more if the state of a shard exceeds some MB",
)
TRANSFORM_REQUIRED = codes.PARAMETERS_CONTRADICT(
    "the operator does not run behind this state API: {required}",
    "state_api='transformWithStateInPandas'",
    "leave state_api out, in a session with RocksDB",
)
OPTION_WITHOUT_EFFECT = codes.PARAMETER_WITHOUT_EFFECT(
    "the operator has neither state nor shards: Spark computes all of it",
    "no option but `name`",
    "omit the other options",
)
QUERY_UNKNOWN = codes.QUERY_UNKNOWN(
    "the query that delivers this micro-batch is not known",
    "a micro-batch that Spark passes to foreachBatch",
    "frame.writeStream.foreachBatch(sink); under Connect also checkpoint=, the location of the query; for a batch frame sink.write(frame, query=...)",
)
ROCKSDB_REQUIRED = codes.ROCKSDB_REQUIRED(
    "the state store of the session is not RocksDB",
    "{expected}",
    'spark.conf.set("{provider}", "{rocksdb}") before the first operator of the query is applied',
)
LATE_ROWS = codes.ROWS_REVISED(
    "late rows would count as results",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns: .where("late IS NULL").drop("late")',
)
REVISIONS_AND_LATE_ROWS = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns: .where("late IS NULL").drop("late")',
)
RESULTS_REVISED = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    'stragglers="drop" in the operator before; or select the rows that count, and drop the columns, such as the on-time results alone: {selection}',
)
CHANGES = codes.ROWS_REVISED(
    "each revision of a result would be counted again",
    "rows that each count once",
    "fold them to a table first, in foreachBatch or downstream",
)
PIPELINE_FUNCTION = codes.SESSION_TYPE.of(SpecError)(
    "Spark analyzes no frame inside of a function of a pipeline, and the operator needs the schema of its input",
    "an operator that is applied at the top level of the file, to a source outside of the pipeline",
    "apply the operator outside of the function, and return the finished frame: result = events.transform({operator}(...)); @dp.table def name(): return result",
)
NOTHING_MAY_FOLLOW = codes.STATE_API_NOT_CHAINABLE(
    "no stateful operator may follow applyInPandasWithState in the same query",
    "transformWithStateInPandas in the operator before",
    "build these frames again, without state_api",
)
GROUPS_TWICE = codes.STATE_API_NOT_CHAINABLE(
    "a query may have applyInPandasWithState only once",
    "transformWithStateInPandas in one of the two",
    "build these frames again, without state_api",
)
GROUPS_AFTER_AGGREGATION = codes.STATE_API_NOT_CHAINABLE(
    "applyInPandasWithState may not follow a Spark aggregation in the same query",
    "transformWithStateInPandas behind the aggregation",
    "build these frames again, without state_api",
)
MIXED_FRAMES = codes.STREAMING_FRAME(
    "one frame is a stream and the other is a batch frame",
    "two streaming frames, or two batch frames",
    "read the {batch} frame with spark.readStream, too; to look up the current rows of a small table, use joins.lookup(table, ...)",
)
TARGET_REFUSED = codes.TARGET_REFUSED(
    "a string has bytes that are not UTF-8, and JSON cannot hold them",
    "text in UTF-8",
    "F.make_valid_utf8(column), since Spark 4.0, replaces these bytes; or keep the column binary",
)
COLLATED_COLUMN = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a collation, which the kernel does not support",
    "string, compared byte by byte (UTF8_BINARY)",
    "df.withColumn({column!r}, F.lower({column!r}).cast('string')), or another form in which equal values have equal bytes",
)
KEYS_NOT_TEXT = codes.TYPE_UNSUPPORTED.of(SpecError)(
    "column {column!r} has a map whose keys are not strings, as those of JSON are",
    "map<string, ...>",
    "declare the keys as string, and cast them after this operator",
)
TYPE_NOT_CARRIED = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that Python operators cannot read",
    "a type that Spark can convert to Arrow",
    "cast the column, or drop it before the operator",
)
WATERMARK_LOST = codes.WATERMARK_LOST(
    "the query has a watermark upstream that no column of the frame carries any more, and Spark does not allow a second one",
    "a frame with the column that carries the watermark, or no watermark upstream",
    "keep the column with the watermark, such as window_end of windows; or remove withWatermark(...) upstream and pass delay=... to the operator there, whose output carries the watermark; move dropDuplicatesWithinWatermark(...) behind it",
)
NATIVE_WITHOUT_WATERMARK = codes.WATERMARK_MISSING.of(SpecError)(
    "Spark's own operators need the watermark on the event-time column itself",
    "a column that has the watermark, or the kernel, which finds it on another one",
    'engine="auto" or engine="kernel" in this operator',
)
WATERMARK_MISSING = codes.WATERMARK_MISSING(
    "a streaming frame needs a watermark, or its state would grow without bound",
    "delay=..., or a frame with withWatermark(...)",
    'set how long results wait for late rows: delay="30 seconds"',
)
WATERMARK_ON_OTHER_COLUMN = codes.WATERMARK_MISSING(
    "the frame's watermark is on {column!r}, and not on {time!r}",
    "a watermark on {time!r}, or delay=... and no watermark",
    'leave withWatermark({column!r}, ...) out and pass delay="30 seconds", say, or name {time!r} in withWatermark',
)
WATERMARK_ON_END = codes.WATERMARK_MISSING(
    "{time!r} is not the time up to which the frame is complete: a window is published once the watermark has "
    "reached {column!r}, so rows would be late",
    "time={column!r}, or windows that are read from a table or a topic",
    "pass time={column!r}",
)
LATENESS_OF_SPARK = codes.WATERMARK_TOO_TIGHT(
    "the frame's watermark leaves no room for the allowed lateness",
    "a lateness up to {room!r}: the delay of the frame's watermark, or the allowed_lateness of the operator before; behind Spark's own windows: 0",
    "leave allowed_lateness out: Spark's windows are not corrected. For stragglers, take windows of streamops before, with the same allowed_lateness",
)
LATENESS_TOO_LONG = codes.WATERMARK_TOO_TIGHT(
    "the frame's watermark leaves no room for the allowed lateness",
    "a lateness up to {room!r}: the delay of the frame's watermark, or the allowed_lateness of the operator before; behind Spark's own windows: 0",
    "call withWatermark with delay + allowed_lateness, or leave it to the operator: delay=...; in a chain, give the first operator the lateness",
)
CLOCK_BEHIND_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "a frame without a watermark: this operator defines one on {time!r}",
    "remove withWatermark({marks!r}, ...); apply this operator before all operators with a delay",
)
DELAY_ON_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "one of the two",
    "leave delay out; it is the frame's own delay less allowed_lateness",
)
DELAY_ON_OTHER_WATERMARK = codes.WATERMARK_TWICE(
    "the frame already has a watermark, and Spark does not allow a second one",
    "one of the two",
    "leave withWatermark({column!r}, ...) out: the operator defines one on {time!r}",
)
