"""Conditions under which `kernel` raises an error."""

from streamops.kernel import codes
from streamops.kernel.errors import CallError

SAME_COLUMN = codes.DUPLICATE_COLUMN(
    "`{roles}` and `{role}` name the same column",
    "different columns",
    "name the column that holds what `{role}` describes",
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
BAD_SCHEMA = codes.INVALID_SCHEMA(
    "`{parameter}` is not a list of columns: {reason}",
    'names and types as in SQL, such as "count bigint, last timestamp", or an Arrow schema',
    'write {parameter}="count bigint, last timestamp"; types are {types}, decimal(p,s), array<...>, map<...,...> and struct<name:...>',
)
AGGREGATE_WITHOUT_REPR = codes.NOT_AN_AGGREGATE(
    "{name!r} is an aggregate that a checkpoint cannot identify",
    "a repr that says which aggregate it is, and nothing else",
    "make {value} a dataclass, or give it a __repr__",
)
NOT_A_URL = codes.NOT_A_URL(
    "`url` is not the URL of a PostgreSQL database",
    "postgresql://user@host/database, with known parameters",
    "write the characters @ / : % ? # and spaces of a user or a password as %40, %2F, %3A, %25, %3F, %23 and %20; or leave the password to a password file or PGPASSWORD",
)
NOT_A_DATABASE_URL = codes.NOT_A_URL(
    "`url` is not the URL of a database",
    "dialect+driver://user@host/database",
    "write it as in the documentation of SQLAlchemy's create_engine, with the characters @ : / % ? # of a user or a password as %40, %3A, %2F, %25, %3F and %23",
)
DIALECT_UNKNOWN = codes.PACKAGE_MISSING(
    "SQLAlchemy does not know the dialect of `url`",
    "a dialect of SQLAlchemy, or of a package that is installed",
    "install the package of the dialect, such as duckdb-engine; or correct its name",
)
PACKAGE_MISSING = codes.PACKAGE_MISSING(
    "the package {package} is not installed",
    "the package {package}",
    "pip install 'streamops[{extra}]'",
)
PARAMETER_MISSING = codes.PARAMETER_MISSING.of(CallError)(
    "{named} must be given",
    "{expected}",
    "pass {described}",
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
STATE_VERSION = codes.STATE_VERSION(
    "this state was written in a format that cannot be converted",
    "{expected}",
    "use the release of streamops that wrote it (docs/state-formats.md), or start from a new checkpoint",
)
TOO_MANY_ARGUMENTS = codes.TOO_MANY_ARGUMENTS(
    "an argument has no name",
    "{expected}",
    "write the name of the parameter, such as {free}=...",
)
KEY_NOT_HASHABLE = codes.TYPE_UNSUPPORTED(
    "a key has a type that Spark does not hash",
    "a boolean, number, string, binary, date, time, timestamp, day-time interval, or a struct or array of these",
    "cast it to one of these; a map: F.array_sort(F.map_entries(column))",
)
WATERMARK_NOT_WAITED_FOR = codes.WATERMARK_NOT_WAITED_FOR(
    "the right input has a watermark, and Spark waits for the lowest watermark of a query",
    "a right frame without a watermark, or waits_for='both'",
    "remove withWatermark(...) from it; or set waits_for='both' if results should wait for it",
)
