"""Conditions under which `spark` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError, SpecError

COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} has values that Spark cannot compare",
    "any other type, also maps and variants",
    "cast the column, to string or binary, or drop it",
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
NOT_A_SPARK_FRAME = codes.FRAME_TYPE.of(SpecError)(
    "an operator is applied to something that is not a DataFrame of Spark",
    "a DataFrame of Spark, streaming or batch",
    "df.transform({operator}(...)), with df from spark.readStream, spark.read or spark.createDataFrame(...); without Spark: streamops.testing.replay(operator, [rows])",
)
NOT_A_SCHEMA = codes.INVALID_SCHEMA(
    "`schema` does not define the columns of a row",
    "a StructType, or columns and types as in SQL",
    'schema="id bigint, name string"',
)
NOT_A_FRAME = codes.NOT_A_FRAME(
    "{what} is not a DataFrame",
    "a DataFrame",
    "pass a DataFrame of Spark: spark.read returns one, and spark.createDataFrame(frame) makes one of a frame of pandas",
)
NAME_OF_A_TABLE = codes.NOT_A_FRAME(
    "{what} is not a DataFrame",
    "a DataFrame",
    "spark.table({name!r}), or spark.readStream.table({name!r}) for a stream",
)
OTHER_PYTHON = codes.PACKAGE_MISSING(
    "the workers of this session run another Python, without the packages of streamops",
    "the Python of the driver, {driver}, or one with the same packages",
    'os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts; streamops.local_session() sets it. Stop this session first: spark.stop()',
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
PIPELINE_FUNCTION = codes.SESSION_TYPE.of(SpecError)(
    "Spark analyzes no frame inside of a function of a pipeline, and the operator needs the schema of its input",
    "an operator that is applied at the top level of the file, to a source outside of the pipeline",
    "apply the operator outside of the function, and return the finished frame: result = events.transform({operator}(...)); @dp.table def name(): return result",
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
NATIVE_WITHOUT_WATERMARK = codes.WATERMARK_MISSING.of(SpecError)(
    "Spark's own operators need the watermark on the event-time column itself",
    "a column that has the watermark, or the kernel, which finds it on another one",
    'engine="auto" or engine="kernel" in this operator',
)
