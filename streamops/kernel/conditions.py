"""Conditions under which `kernel` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import CallError, StateFormatError

COLUMN_NOT_FOUND = codes.COLUMN_NOT_FOUND(
    "column {column!r}, given as `{role}`, does not exist",
    "one of: {names}",
    "name one of: {names}",
)
COLUMN_MISSPELT = codes.COLUMN_NOT_FOUND(
    "column {column!r}, given as `{role}`, does not exist",
    "one of: {names}",
    "did you mean {close!r}?",
)
COLUMN_IN_OTHER_CASE = codes.COLUMN_NOT_FOUND(
    "column {column!r}, given as `{role}`, does not exist",
    "one of: {names}",
    "did you mean {close!r}? (names are case-sensitive here)",
)
COLUMN_IS_A_FIELD = codes.COLUMN_NOT_FOUND(
    "column {column!r}, given as `{role}`, does not exist",
    "one of: {names}",
    "make the field a column first: df.withColumn({part!r}, F.col({column!r}))",
)
COLUMN_IS_AN_EXPRESSION = codes.COLUMN_NOT_FOUND(
    "column {column!r}, given as `{role}`, does not exist",
    "one of: {names}",
    "make the expression a column first: df.withColumn('value', F.expr({column!r}))",
)
INSTANT_AS_INTEGER = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.timestamp_millis({column!r})) for milliseconds since 1970; timestamp_seconds, timestamp_micros for others",
)
INSTANT_AS_FRACTION = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.timestamp_seconds({column!r})) for seconds since 1970",
)
INSTANT_AS_WINDOW = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.window_time({column!r})) if it is a window of Spark's",
)
# F.to_timestamp returns what spark.sql.timestampType says.
INSTANT_WITHOUT_ZONE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.col({column!r}).cast('timestamp_ltz'))",
)
INSTANT_AS_TEXT = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.col({column!r}).try_cast('timestamp_ltz')), which turns text that is no timestamp into null; time.guard({column!r}) also delivers such rows as side output",
)
INSTANT_AS_TEXT_OF_SPARK_3 = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as {use}",
    "{expected}",
    "df.withColumn({column!r}, F.col({column!r}).cast('timestamp_ltz')), which turns text that is no timestamp into null unless spark.sql.ansi.enabled is true; time.guard({column!r}) also delivers such rows as side output",
)
CHANGE_COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} cannot be used as `{role}`",
    "{expected}",
    "cast the column, or name another",
)
SAME_COLUMN = codes.DUPLICATE_COLUMN(
    "`{roles}` and `{role}` name the same column",
    "different columns",
    "name the column that holds what `{role}` describes",
)
COLUMN_NAMED_TWICE = codes.DUPLICATE_COLUMN(
    "`{parameter}` names a column twice",
    "one column or several, each once",
    "leave the second one out: {parameter}={once!r}",
)
KEY_AS_SEQUENCE = codes.DUPLICATE_COLUMN(
    "a key column cannot order the changes of a key",
    "other columns",
    "name the position in the log as `sequence`",
)
CALENDAR_DURATION = codes.INVALID_DURATION(
    "`{parameter}` must be a fixed duration, and a {unit} is not one",
    "weeks, days, hours, minutes, seconds, milliseconds, microseconds",
    'a fixed length, such as "{days} days"; {unit}s of a calendar are those of a time zone: windows.calendar("{unit}", zone)',
)
DURATION_TOO_FINE = codes.INVALID_DURATION(
    "`{parameter}` is finer than the engine can honour",
    "a multiple of {whole}",
    "round it: Spark keeps its watermark in whole milliseconds",
)
DURATION_TOO_LARGE = codes.INVALID_DURATION(
    "`{parameter}` is longer than the calendar",
    "at most {max_instant}",
    'pass a shorter duration, such as {parameter}="1 day"',
)
DURATION_TOO_SMALL = codes.INVALID_DURATION(
    "`{parameter}` is too small",
    "at least {minimum}",
    'pass a larger duration, such as {parameter}="1 minute"',
)
NOT_A_DURATION = codes.INVALID_DURATION(
    "`{parameter}` is not a duration",
    'a timedelta, or text such as "30 minutes" or "1 hour 30 minutes"',
    "units are {units}, singular or plural",
)
DURATION_MISSPELT = codes.INVALID_DURATION(
    "`{parameter}` is not a duration",
    'a timedelta, or text such as "30 minutes" or "1 hour 30 minutes"',
    'did you mean "{meant}"?',
)
DURATION_WITHOUT_UNIT = codes.INVALID_DURATION(
    "`{parameter}` is not a duration",
    'a timedelta, or text such as "30 minutes" or "1 hour 30 minutes"',
    'write the unit: {parameter}="{value} seconds", say',
)
NAIVE_DATETIME = codes.INVALID_PARAMETER(
    "`{parameter}` has no time zone",
    "an aware datetime",
    "add a time zone: datetime(..., tzinfo=timezone.utc)",
)
NOT_A_TOPIC = codes.INVALID_PARAMETER(
    "`{parameter}` has a name that is not that of a topic",
    "letters, digits, '.', '_' and '-', up to 249, but not '.' or '..'",
    "name a topic by itself; a pattern is not supported",
)
NOT_SERVERS = codes.INVALID_PARAMETER(
    "`servers` does not list addresses of brokers",
    "host:port, or several of them with commas between",
    'servers="host1:9092,host2:9092"; a user and a password belong into `client`',
)
ZONE_UNKNOWN = codes.INVALID_PARAMETER(
    "`zone` is not a time zone",
    "an IANA name such as 'Europe/Berlin'; zoneinfo.available_timezones() lists them",
    "write the name of a zone, or 'UTC'",
)
ZONE_MISSPELT = codes.INVALID_PARAMETER(
    "`zone` is not a time zone",
    "an IANA name such as 'Europe/Berlin'; zoneinfo.available_timezones() lists them",
    "did you mean {zone!r}?",
)
BAD_SCHEMA = codes.INVALID_SCHEMA(
    "`{parameter}` is not a list of columns: {reason}",
    'names and types as in SQL, such as "count bigint, last timestamp", or an Arrow schema',
    'write {parameter}="count bigint, last timestamp"; types are {types}, decimal(p,s), array<...>, map<...,...> and struct<name:...>',
)
NAME_TAKEN = codes.NAME_TAKEN(
    "a name stands for two columns of the result: {taken}",
    "names unlike one another and unlike {reserved}",
    "rename the column before the operator: df.withColumnRenamed({name!r}, ...); or choose another name in `{parameter}`",
)
AGGREGATE_WITHOUT_REPR = codes.NOT_AN_AGGREGATE(
    "{name!r} is an aggregate that a checkpoint cannot identify",
    "a repr that says which aggregate it is, and nothing else",
    "make {value} a dataclass, or give it a __repr__",
)
AGGREGATES_NOT_NAMED = codes.NOT_AN_AGGREGATE(
    "`agg` is not a mapping of names to aggregates",
    "a mapping: the column of the result, and its aggregate",
    'agg={{"{name}": aggregates.{call}}}',
)
NOT_AN_AGGREGATE = codes.NOT_AN_AGGREGATE(
    "{name!r} is not an aggregate",
    "a mapping of names to aggregates of streamops.aggregates",
    'agg={{"{name}": aggregates.{call}}}, or another function of streamops.aggregates',
)
AGGREGATE_NOT_CALLED = codes.NOT_AN_AGGREGATE(
    "{name!r} is not an aggregate",
    "a mapping of names to aggregates of streamops.aggregates",
    'call it: agg={{"{name}": aggregates.{call}(...)}}',
)
AGGREGATE_OF_AN_EXPRESSION = codes.NOT_AN_AGGREGATE(
    "`agg` has an aggregate of Spark over an expression",
    "a mapping of names to aggregates of streamops.aggregates",
    'make the expression a column first: df.withColumn("value", ...); then agg={{"{name}": aggregates.{call}}}',
)
NOT_A_URL = codes.NOT_A_URL(
    "`url` is not the URL of a PostgreSQL database",
    "postgresql://user@host/database, with known parameters",
    "write the characters @ / : % ? # and spaces of a user or a password as %40, %2F, %3A, %25, %3F, %23 and %20; or leave the password to a password file or PGPASSWORD",
)
NOT_A_DATABASE_URL = codes.NOT_A_URL(
    "`url` is not the URL of a database",
    "dialect+driver://user@host/database",
    "{hint}write it as in the documentation of SQLAlchemy's create_engine, with the characters @ : / % ? # of a user or a password as %40, %3A, %2F, %25, %3F and %23",
)
FRAME_AS_ARGUMENT = codes.NOT_CALLED(
    "a frame is passed where the parameters of the operator are expected",
    "an operator with its parameters, which is applied to the frame",
    "df.transform({operator}(...)), with the parameters in the parentheses",
)
LEFT_FRAME_AS_ARGUMENT = codes.NOT_CALLED(
    "a frame is passed where the parameters of the operator are expected",
    "an operator with its parameters, which is applied to the frame",
    "left.transform({operator}(right, ...))",
)
DIALECT_UNKNOWN = codes.PACKAGE_MISSING(
    "SQLAlchemy does not know the dialect of `url`",
    "a dialect of SQLAlchemy, or of a package that is installed",
    "install the package of the dialect, such as duckdb-engine; or correct its name",
)
PACKAGE_MISSING = codes.PACKAGE_MISSING(
    "the package {package} is not installed",
    "the package {package}",
    codes.INSTALL,
)
PACKAGE_TOO_OLD = codes.VERSION_NOT_SUPPORTED(
    "{package} is too old",
    "{package} {since} or later",
    "pip install 'streamops[{extra}]'; where a runtime has its own, as a library of the notebook or of the job",
)
PARAMETER_MISSING = codes.PARAMETER_MISSING.of(CallError)(
    "{named} must be given",
    "{expected}",
    "pass {described}",
)
NO_COLUMN_NAMED = codes.PARAMETER_MISSING(
    "`{parameter}` names no column",
    "one column or several, each once",
    '{parameter}=["id"]',
)
MAX_KEYS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`max_keys` is not a number of keys",
    "an integer, 1 or more",
    "leave it out ({default:,}), or say how many keys there may be",
)
NOT_A_BOOLEAN = codes.PARAMETER_TYPE(
    "`{parameter}` is neither true nor false",
    "True or False",
    "write {parameter}=True or {parameter}=False",
)
NOT_A_NAME = codes.PARAMETER_TYPE(
    "`{parameter}` is not a name",
    "text",
    'write the name in quotes, such as "ts", and not F.col("ts")',
)
EXPRESSION_AS_NAME = codes.PARAMETER_TYPE(
    "`{parameter}` is not a name",
    "text",
    'make the expression a column first: df.withColumn("value", ...); then write "value"',
)
DELAY_WITHOUT_WATERMARK = codes.PARAMETER_WITHOUT_EFFECT(
    "the right input has a delay, and is not part of the watermark",
    "one delay, that of the left input",
    "delay={delay!r}, or waits_for='both'",
)
SEQUENCE_TYPE = codes.SEQUENCE_TYPE(
    "column {column!r} cannot order changes",
    "numbers, timestamps, dates, binary, or structs and arrays of them; not text",
    "cast text before: numbers to bigint or decimal, times to timestamp, and text of one length, such as ULIDs, to binary; PostgreSQL's LSNs: df.withColumn({column!r}, changes.parse_lsn({column!r}))",
)
STATE_FOREIGN = codes.STATE_CORRUPT(
    "these bytes are not a state of streamops",
    "{expected}",
    "check that the checkpoint belongs to this query",
)
STATE_CORRUPT = codes.STATE_CORRUPT(
    "this state is damaged",
    "{expected}",
    "restore the checkpoint from a copy, or start from a new one and replay",
)
STATE_TOO_LARGE = codes.STATE_FULL.of(StateFormatError)(
    "the state of a shard is larger than the limit",
    "at most {limit:,} bytes",
    "use more shards, also of a checkpoint: state.rescale. If the checkpoint is much smaller than these bytes, find out who wrote it",
)
STATE_OF_ANOTHER = codes.STATE_KIND(
    "this checkpoint belongs to another operator",
    "{kind}",
    "start from a new checkpoint, or use the code that wrote this one",
)
STATE_PARAMETERS = codes.STATE_PARAMETERS(
    "this checkpoint was written with other parameters: {changed}",
    "{stored}, as written",
    "pass the parameters of the checkpoint, or {remedy}",
)
STATE_SHARDS = codes.STATE_SHARDS(
    "this checkpoint has another number of shards",
    "shards={found}, as in the checkpoint",
    "pass shards={found}; or stop the query, and run python -m streamops state rescale CHECKPOINT --to NEW --shards {shards}",
)
STATE_VERSION = codes.STATE_VERSION(
    "this state was written in a format that cannot be converted",
    "{expected}",
    "use the release of streamops that wrote it (docs/state-formats.md), or start from a new checkpoint",
)
STATE_FORMAT = codes.STATE_VERSION(
    "this checkpoint was written in another state format",
    "{expected}",
    "use a release of streamops that reads it (docs/state-formats.md), or start from a new checkpoint",
)
TOO_MANY_ARGUMENTS = codes.TOO_MANY_ARGUMENTS(
    "an argument has no name",
    "{expected}",
    "write the name of the parameter, such as {free}=...",
)
NOT_IMPORTED = codes.INVALID_PARAMETER(
    "{parameter} does not lead to an object",
    "module:name, of a module that Python finds from the working directory",
    "{parameter} jobs.views:per_minute, for example",
)
NOT_HASHABLE = codes.TYPE_UNSUPPORTED(
    "a key, an identity or an item has a type that Spark does not hash",
    "a boolean, number, string, binary, date, time, timestamp, day-time interval, or a struct or array of these",
    "cast it to one of these; a map: F.array_sort(F.map_entries(column))",
)
UNKNOWN_CHOICE = codes.UNKNOWN_CHOICE(
    "`{parameter}` is not one of its choices",
    "one of {choices}",
    "write one of {choices}{meaning}",
)
CHOICE_MISSPELT = codes.UNKNOWN_CHOICE(
    "`{parameter}` is not one of its choices",
    "one of {choices}",
    "write {parameter}={near!r}, or another of them{meaning}",
)
UNKNOWN_PARAMETER = codes.UNKNOWN_PARAMETER(
    "there is no parameter `{parameter}`",
    "{expected}",
    "leave it out; help({operator}) describes the parameters",
)
PARAMETER_MISSPELT = codes.UNKNOWN_PARAMETER(
    "there is no parameter `{parameter}`",
    "{expected}",
    "did you mean {meant}=?",
)
PARAMETER_OF_OTHERS = codes.UNKNOWN_PARAMETER(
    "there is no parameter `{parameter}`",
    "{expected}",
    "write {meant}= instead of {parameter}=",
)
PARAMETER_IS_AN_OPTION = codes.UNKNOWN_PARAMETER(
    "there is no parameter `{parameter}`",
    "{expected}",
    "{operator}(...).options({parameter}=...)",
)
WATERMARK_NOT_WAITED_FOR = codes.WATERMARK_NOT_WAITED_FOR(
    "the right input has a watermark, and Spark waits for the lowest watermark of a query",
    "a right frame without a watermark, or waits_for='both'",
    "remove withWatermark(...) from it; or set waits_for='both' if results should wait for it",
)
ARROW_TOO_OLD = codes.VERSION_NOT_SUPPORTED(
    "this version of Arrow does not have {what}",
    "pyarrow {since} or later",
    "use pyarrow {since} or later, or {instead}",
)
ARROW_TOO_NEW = codes.VERSION_NOT_SUPPORTED(
    "{what} of this version of Spark fails with this version of Arrow",
    "pyarrow before {before}, or another version of Spark",
    "install pyarrow<{before}, or use {instead}",
)
SPARK_TOO_OLD = codes.VERSION_NOT_SUPPORTED(
    "this version of Spark does not have {what}",
    "Spark {since} or later",
    "run the query on Spark {since} or later, or use {instead}",
)
