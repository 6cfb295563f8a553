"""Conditions under which a query cannot be observed."""

from streamops.kernel import codes

NOT_AN_ACCOUNT = codes.FRAME_TYPE(
    "the frame is not an account of late rows",
    "{measures}, as in the result of observe.account_late",
    "late.transform(observe.account_late(...)) first; accounts with different scales cannot be merged",
)
NOT_LATE_ROWS = codes.FRAME_TYPE(
    "the frame does not have late rows",
    "reason, lateness (interval day to second), watermark (timestamp), row (struct)",
    "_, late = split_side_output(batch), and transform `late`",
)
NOT_A_COUNT = codes.INVALID_PARAMETER(
    "a gauge cannot be summed over micro-batches: {gauges}",
    "counts of rows or events, such as 'too_late' or 'forgotten'",
    "read a gauge from observedMetrics; a rule adds up counts",
)
BOUNDS_DESCEND = codes.INVALID_PARAMETER(
    "`bounds` is not a scale",
    "from 1 to {most} durations, each longer than the previous one",
    'use the default, or durations such as ("1 minute", "10 minutes", "1 hour")',
)
NAME_TAKEN = codes.NAME_TAKEN(
    "two columns of the result have the same name: {names}",
    "names that differ from each other and from {reserved}",
    "remove it if the result has such a column anyway, or rename the key column",
)
NOT_A_CLIENT_SETTING = codes.INVALID_PARAMETER(
    "`client` has a setting that the client refuses",
    "settings of librdkafka",
    "check names and values; names of Java, such as sasl.jaas.config, are options of Spark",
)
NOT_GROUPS = codes.INVALID_PARAMETER(
    "`groups` does not name a group of its own for each query",
    "a different group for each name of a query",
    'groups={{"views": "views-query"}}, where views is the queryName',
)
NO_RETENTION = codes.PARAMETER_MISSING(
    "DataLoss compares the query with the retention of its topics, which is not given",
    "retention=observe.KafkaRetention(...)",
    'AlarmListener(observe.DataLoss("3 hours"), retention=observe.KafkaRetention("broker:9092"))',
)
NO_RULE = codes.PARAMETER_MISSING(
    "the listener has no rules",
    "one or more rules",
    "AlarmListener(observe.StuckWatermark(), observe.PoisonedWatermark())",
)
NO_QUERIES = codes.PARAMETER_MISSING(
    "`queries` has no queries",
    "a mapping from names to functions that start a query",
    'supervise({{"views": start_views, "orders": start_orders}})',
)
BATCHES_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`batches` is out of range",
    "an integer from {least} to {max_batches}",
    "batches=10 evaluates the last ten micro-batches with rows",
)
RESTARTS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`restarts` is not a number of restarts",
    "an integer, 0 or more",
    "restarts=5 starts a query again up to five times without success",
)
QUERIES_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`max_queries` must be at least 1",
    "an integer, 1 or more",
    "leave `max_queries` out: the default is 100",
)
SHARE_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`share` is not a share",
    "a number above 0, at most 1",
    "share=0.01 is one row in a hundred, share=0.99 are 99 of 100 rows",
)
COUNT_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is not a number of rows",
    "an integer, 1 or more",
    "use an integer, such as {parameter}={example}",
)
ROWS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` is not a number of rows",
    "an integer, 1 or more",
    "use an integer, such as {parameter}={example}; for a share of the rows, use observe.LateShare",
)
BOUNDS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`bounds` is not a scale",
    "from 1 to {most} durations, each longer than the previous one",
    'use the default, or durations such as ("1 minute", "10 minutes", "1 hour")',
)
NOT_A_FUNCTION = codes.PARAMETER_TYPE(
    "`notify` is not a function",
    "a function with one parameter, the alarm",
    "use a function such as print, or the default, a warning in the log",
)
NOT_A_REQUEST = codes.PARAMETER_TYPE(
    "`until` is not a request to stop",
    "a threading.Event, or the path of a local file that does not exist yet",
    'until="/run/shop/stop": the job stops when there is such a file',
)
NOT_AN_OBSERVER = codes.PARAMETER_TYPE(
    "`on_event` is not a function",
    "a function with one parameter, the event",
    "use a function such as print, or leave it out: the log has all events",
)
NOT_A_START = codes.PARAMETER_TYPE(
    "a value of `queries` is not a function",
    "a function without parameters that starts a query and returns it",
    'pass the function, not the query that it started: {{"views": start_views}}',
)
NOT_A_NAME = codes.PARAMETER_TYPE(
    "`counts` is not a list of metrics",
    "names of counts, such as 'too_late'",
    "use the default: {late}",
)
NOT_A_QUERY = codes.PARAMETER_TYPE(
    "the argument is not a streaming query",
    "a StreamingQuery, as `writeStream.start()` returns it, or a list of its progress",
    "pass what `frame.writeStream.start()` returned",
)
NOT_A_RETENTION = codes.PARAMETER_TYPE(
    "`retention` is not one",
    "a KafkaRetention",
    'retention=observe.KafkaRetention("localhost:9092")',
)
NOT_A_RULE = codes.PARAMETER_TYPE(
    "an argument is not a rule",
    "LateRows, LateShare, StuckWatermark, PoisonedWatermark, ConsumerLag or DataLoss of observe",
    "pass each rule as an argument: AlarmListener(observe.LateShare(0.01))",
)
BATCH_ONLY = codes.STREAMING_FRAME(
    "the frame is a stream, which has no last row",
    "a batch frame",
    "call it in foreachBatch, on the batch",
)
NO_SOURCE_FILES = codes.SOURCE_UNAVAILABLE(
    "the files of the source do not exist any more",
    "one file of the source at least, or their columns",
    "pass observe.files(schema=...) with the columns of the files",
)
NOT_A_KEY = codes.COLUMN_NOT_FOUND(
    "`where` or `columns` names a column that is not a key of the operator: {column}",
    "key columns: {columns}",
    "pass values of key columns; conditions on results are `window` and `result`",
)
NOT_A_RESULT = codes.COLUMN_NOT_FOUND(
    "`result` names a column that results do not have: {column}",
    "columns of the results: {columns}",
    "pass values of these columns; values of keys belong to `where`",
)
NOT_IN_THE_SOURCE = codes.COLUMN_NOT_FOUND(
    "the rows of the source do not have the column {column}",
    "one of {columns}",
    "pass observe.files(prepare=...) with what the query does before the operator; columns that are names of"
    " folders need observe.files(schema=...)",
)
NOT_A_VALUE_OF = codes.VALUE_TYPE(
    "the value of {column} is not of its type, so no row has it",
    "a value of type {type}",
    "pass a value of this type; an instant needs a time zone, and a local time has none",
)
SOURCES_DIFFER = codes.INVALID_PARAMETER(
    "`source` does not fit the inputs of the operator and the sources of the query",
    "{inputs}",
    "pass one source for each input: files(), or (left, right). An input that is a union is a list of sources:"
    " [observe.files(number=0), observe.topics(..., number=1)]",
)
SOURCE_IS_OTHER = codes.INVALID_PARAMETER(
    "source {number} of the query is of another kind",
    "the function for its kind: observe.files, observe.topics or observe.table",
    "pass one source for each source of the query, with its `number`",
)
NOT_A_TABLE = codes.PARAMETER_TYPE(
    "`prepare` does not return a Table",
    "a function from Table to Table",
    "prepare=lambda rows: rows.rename_columns([...])",
)
OPERATOR_DIFFERS = codes.INVALID_PARAMETER(
    "the operator is not that of the query",
    "{expected}",
    "pass the operators of the query with its parameters; `earlier` takes those that it had before a change",
)
NOT_A_MAPPING = codes.PARAMETER_TYPE(
    "`{parameter}` is not a mapping",
    "a mapping, such as a dict",
    'where={{"page": "home"}}, result={{"views": 3}}, earlier={{17: before}}',
)
NOT_A_CHANGE = codes.INVALID_PARAMETER(
    "`earlier` does not say what the query ran before",
    "numbers of micro-batches, 0 or more, and as many operators as the query has: {operators}",
    "earlier={{17: before}}, if micro-batch 17 was the first one without `before`",
)
OFF_THE_GRID = codes.INVALID_PARAMETER(
    "the operator has no such window",
    "such as {nearest}",
    "pass an instant in the window, or its start and end",
)
NOT_A_START_OF_READING = codes.PARAMETER_TYPE(
    "`since` is not a number of a micro-batch, nor an instant",
    "an integer, 0 or more, or a datetime with a time zone",
    "since=1200, or since=datetime(2024, 1, 31, tzinfo=UTC)",
)
NO_SESSION_FOR_A_GUARD = codes.NOT_REPLAYABLE(
    "Spark computes {operator}, and there is no session",
    "a running session, or a chain that begins with an operator that has a state",
    "create a session before the call, or compute the column in `prepare`",
)
SCHEMA_REQUIRED = codes.PARAMETER_MISSING(
    "files of the format {format} have no types",
    "the columns of the files, as for the stream",
    'pass observe.files(schema="page string, ts timestamp")',
)
FOLDER_NEEDS_SPARK = codes.SOURCE_UNFIT(
    "the name of a folder is read by Spark only",
    "a value of type {type}",
    "pass observe.files(spark=spark): Spark reads the files as the query did",
)
NOT_A_PORT = codes.PARAMETER_OUT_OF_RANGE(
    "there is no such port to listen at",
    "a port from 1 to 65535 that no other process has, of an address of this machine",
    "port=8080; or another one, if a process listens there",
)
NOT_PARQUET = codes.SOURCE_UNAVAILABLE(
    "a file that the query read is not a file of Parquet, or is damaged",
    "a file of Parquet, as the query read it",
    "pass the format and the schema of the stream, such as observe.files(format='json', schema='page string, ts timestamp'); or restore the file",
)
STORE_UNKNOWN = codes.SOURCE_UNAVAILABLE(
    "the files are at a place that Arrow does not know",
    "a local path, or a URI such as s3://, gs:// or hdfs://",
    "copy the files and the checkpoint, or mount the place as a folder",
)
TOPIC_UNREADABLE = codes.SOURCE_UNAVAILABLE(
    "Kafka does not return the records of the micro-batches",
    "brokers that answer, and a user who may read the topics",
    "check `servers` and `client` of observe.topics(...)",
)
TABLE_UNFIT = codes.SOURCE_UNFIT(
    "the table has something that is not read without Spark",
    "a table without column mapping, deletion vectors and removed rows, and partitions by strings,"
    " numbers or dates",
    "write the rows of the micro-batches to files, and pass observe.files(...)",
)
JOB_NOT_FOUND = codes.INVALID_PARAMETER(
    "the job has no such object",
    "module:name, such as jobs.views:per_page, which can be imported from this directory",
    "assign the operator, or the list of operators, to a name of the module",
)
NOT_A_JOB = codes.PARAMETER_TYPE(
    "the object is not a {what}",
    "a {what}, such as observe.files(...)",
    "assign the {what} to a name of the module",
)
NOT_A_TERM = codes.INVALID_PARAMETER(
    "a condition is not a column and its value",
    "column=value, with one of the columns {columns}",
    "--where page=/home; for null, --null page",
)
TWO_TERMS = codes.INVALID_PARAMETER(
    "a column has two values",
    "one --where or --null for each column",
    "ask once for each key",
)
NOT_A_VALUE = codes.INVALID_PARAMETER(
    "the value of {column} is not of its type",
    "text that is a {type}",
    "write dates and instants as 2024-01-31 and 2024-01-31T00:00:00Z, and booleans as true or false",
)
NOT_A_WINDOW = codes.INVALID_PARAMETER(
    "`window` is not an instant",
    "an instant in the window, or its start and end",
    'a datetime, a pair of them, or text: "2024-01-31T00:00:00Z", "2024-01-31T00:00:00Z/2024-01-31T00:01:00Z"',
)
