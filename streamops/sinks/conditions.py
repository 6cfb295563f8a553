"""Conditions under which sinks refuse a target, a frame or a micro-batch."""

from streamops.kernel import codes
from streamops.kernel.errors import SchemaError, SinkError

BATCH_DIFFERS = codes.BATCH_DIFFERS(
    "a repeated micro-batch has other rows than the first time",
    "{rows} rows and digest {digest}, as the target has committed",
    'find what is not deterministic before the sink, often rand(), uuid(), current_timestamp(), a lookup of a table that changes, or a source that does not replay; to keep what the target has, start once with repeated="skip"',
)
BATCH_GAP = codes.BATCH_GAP(
    "the target lacks micro-batches of this query: it was restored from an older copy",
    "micro-batch {batch}, after the last one that the target has",
    "sinks.rewind(checkpoint, sink) sets the checkpoint back to the target; or restore a newer copy of the target",
)
CHECKPOINT_BEHIND = codes.CHECKPOINT_BEHIND(
    "the checkpoint is older than the target: it is an older copy, or the original of a rewritten one",
    "micro-batch {batch} or {next_batch}",
    "use the newest copy of the checkpoint, or the one into which it was rescaled or migrated; or restore the target from a copy that is as old",
)
FENCED = codes.FENCED(
    "a newer run writes to this sink",
    "{expected}",
    "stop this query, and nothing else: the newer one has taken over, and no row was written here",
)
FILE_DAMAGED = codes.FILE_DAMAGED(
    "{file} is missing, or is not as it was written", "{expected}", "restore the folder from a copy"
)
NO_REVISION = codes.FRAME_TYPE(
    "no column orders the changes of a key",
    "a column {column!r}, as from changes.normalize and windows, or `sequence`",
    "sequence='_sequence' for captured changes; no key for rows of joins and changes.aggregate, which have none",
)
NO_SIDE_OUTPUT = codes.FRAME_TYPE(
    "the frame has no column that tags side output",
    "a column late, rejected or guarded, as an operator adds it",
    'stragglers="route", too_late="route" or rejected="route" in the operator; or use the sink of the results alone',
)
SIDE_OUTPUT = codes.FRAME_TYPE(
    "the frame has results and side output, which would be mixed",
    "results only",
    "sinks.side_outputs(results=sink, rejected=another sink)",
)
NO_SUCH_CATALOG = codes.INVALID_PARAMETER(
    "pyiceberg cannot open the catalog",
    "a catalog in the configuration of pyiceberg, or all properties that its type needs",
    'catalog={{"name": "prod", "type": "rest", "uri": "https://host/catalog"}}; or set PYICEBERG_CATALOG__PROD__URI before Python starts',
)
NOT_A_TABLE = codes.INVALID_PARAMETER(
    "`table` has no namespace", "a namespace and a table", 'table="shop.daily"'
)
OPTION_RESERVED = codes.INVALID_PARAMETER(
    "the sink sets these options of the client itself",
    "other settings, such as security.protocol",
    "remove them: the addresses are a parameter of the sink, and so are the limits of a request",
)
REQUEST_SIZE = codes.INVALID_PARAMETER(
    "`{parameter}` is not a positive integer",
    "1 or more",
    "leave `{parameter}` out for the default",
)
ADDRESS_UNSUPPORTED = codes.INVALID_PARAMETER(
    "`url` is not an address of {target}",
    "an address that begins with one of {schemes}",
    "user and password may be in the address, or in `client`",
)
PREFIX = codes.INVALID_PARAMETER(
    "the versions of deletes could be rows of this prefix",
    "a prefix without braces but those of one hash tag, which has no colon",
    'prefix="shop:orders", or "{{shop}}:orders" for one slot of a cluster',
)
INDEX_NAME = codes.INVALID_PARAMETER(
    "OpenSearch has no index of this name",
    'one index: lower case, no blank, and none of \\ / * ? " < > | , #',
    "name one index, or an alias of one",
)
SPARK_WRITER_OPTIONS = codes.PARAMETERS_CONTRADICT(
    "the connector reads the options of a store from the session",
    'no `storage_options` with writer="spark"',
    "set them in the configuration of the session: spark.hadoop...",
)
SPARK_WRITER_COLUMNS = codes.PARAMETERS_CONTRADICT(
    'writer="spark" does not add columns to a table',
    'columns="exact"',
    "add the columns before the query starts: ALTER TABLE ... ADD COLUMNS",
)
SPARK_WRITER_CATALOG = codes.PARAMETERS_CONTRADICT(
    "Iceberg's runtime reads the properties of a catalog from the session",
    'the name of a catalog of the session with writer="spark"',
    "set them in the configuration of the session: spark.sql.catalog.<name>...",
)
SPARK_WRITER_SESSION = codes.SESSION_TYPE(
    "the ledger is read through the JVM of the session, which Spark Connect does not give access to",
    'a classic session with writer="spark"',
    "run the query in a classic session, or use the other writer, if it takes the table",
)
SPARK_WRITER_MULTISET = codes.TARGET_KIND(
    'writer="spark" does not write change streams without a key: no MERGE removes one of several equal rows',
    "appended rows, or rows with a key",
    "pass `key`; or fold the changes before the sink: changes.fold; or write to a table that the other writer takes",
)
LEDGER_EXPIRES = codes.TARGET_KIND(
    "the topic of the ledger deletes entries after a time",
    "cleanup.policy=compact, and no other policy",
    "kafka-configs.sh --alter --entity-type topics --entity-name {ledger} --add-config cleanup.policy=compact",
)
NOT_ONE_INDEX = codes.TARGET_KIND(
    "the index cannot keep the latest row of each key",
    "one index that takes writes, and stores each document by its _id as it was sent",
    "write to an index of its own; to use another one later, fill it with a new checkpoint, and then move the alias of the readers from {index}",
)
EVICTS = codes.TARGET_KIND(
    "{target} evicts keys when its memory is full, and deleted rows would come back",
    "maxmemory-policy noeviction on each node",
    "CONFIG SET maxmemory-policy noeviction; or write to a server of its own",
)
DELETES_FORGOTTEN = codes.TARGET_KIND(
    "the index forgets deletes before the horizon",
    "index.gc_deletes of at least {seconds}s",
    'PUT {index}/_settings {{"index.gc_deletes": "{seconds}s"}}; or a shorter `horizon`; or deletes=\'mark\'',
)
PATH_UNSUPPORTED = codes.INVALID_PARAMETER(
    "deltalake takes '%' and two digits in a local path for an encoded character, in part only",
    "a path without such a sequence",
    "rename the folder, or use a symbolic link",
)
HORIZON_TOO_SHORT = codes.PARAMETERS_CONTRADICT(
    "a delete would be forgotten while an older write may still be repeated",
    "a `horizon` longer than `patience` and `timeout` together",
    "a longer `horizon`, or a shorter `patience`",
)
LEDGER_INVALID = codes.LEDGER_INVALID(
    "the ledger has a record of this sink that is not an entry",
    "a record that this sink wrote",
    "find out who else writes to the topic {ledger!r}; name another one with `ledger`",
)
LEDGER_LOST = codes.LEDGER_LOST(
    "the target has no ledger entry of this sink, but the query has delivered micro-batches before",
    "micro-batch 0, or the entry of the micro-batch before",
    'restore the ledger together with the table; a sink that is new to a running query: new_checkpoint="continue"',
)
ROWS_REMOVED = codes.LEDGER_LOST(
    "another writer has removed the rows that the ledger counts",
    "commits that keep the rows of this sink, or RESTORE to a version with an entry",
    'RESTORE the table to a version before that commit; or start with a new checkpoint; or, if the query shall go on with the table as it is, start once with new_checkpoint="continue"',
)
SPARK_ROWS_REMOVED = codes.LEDGER_LOST(
    "another writer has removed the rows that the ledger counts, or set the table back",
    "commits that keep the rows of this sink",
    'start with a new checkpoint; or, if the query shall go on with the table as it is, start once with new_checkpoint="continue"',
)
SNAPSHOT_REMOVED_ROWS = codes.LEDGER_LOST(
    "another writer has removed the rows that the ledger counts",
    "snapshots that keep the rows of this sink, or a rollback to one with an entry",
    'roll the table back to a snapshot before that one; or start with a new checkpoint; or, if the query shall go on with the table as it is, start once with new_checkpoint="continue"',
)
NO_LEDGER_ENTRY = codes.LEDGER_LOST(
    "the target has no ledger entry of this sink",
    "the entry of query {query}",
    "restore the ledger together with the table, or start from a new checkpoint",
)
LEDGER_OTHER_NAME = codes.LEDGER_OTHER_NAME(
    "this query writes to the target under another name already, so rows would be written twice",
    "name={other!r}, which the ledger has",
    'use name={other!r}; if this sink shall write the rows from now on, or others than that one: new_checkpoint="continue" once',
)
LEDGER_OTHER_TARGET = codes.LEDGER_OTHER_TARGET(
    "the ledger entry of this name belongs to another target",
    "{target}, with micro-batch {batch} of query {query}",
    "give each sink of this ledger a `name` of its own",
)
NAME_TAKEN = codes.NAME_TAKEN.of(SchemaError)(
    "the frame has columns with names that the sink uses itself",
    "other names",
    "rename the columns",
)
NAME_TOO_LONG = codes.NAME_TOO_LONG(
    "`{parameter}` is longer than names of PostgreSQL, which cuts it",
    "at most {max_bytes} bytes",
    "use a shorter name",
)
COLUMN_NAME_TOO_LONG = codes.NAME_TOO_LONG.of(SchemaError)(
    "the name of a column is longer than PostgreSQL's",
    "at most {max_bytes} bytes",
    "rename the column",
)
NEW_CHECKPOINT = codes.NEW_CHECKPOINT(
    "the target belongs to a query with another checkpoint",
    "query {query}, whose last micro-batch was {batch}",
    'start with the checkpoint of that query; or new_checkpoint="replace", which empties the target first; or, if the new query starts where the old one ended, new_checkpoint="continue"',
)
OTHER_CHECKPOINT = codes.NEW_CHECKPOINT(
    "the target belongs to a query with another checkpoint",
    "query {query}",
    "use the checkpoint of that query",
)
NOT_A_CHECKPOINT = codes.NOT_A_CHECKPOINT.of(SinkError)(
    "there is no checkpoint",
    "the checkpoint location of a query, with a file `metadata`",
    "pass what the query has as option checkpointLocation",
)
CHECKPOINT_TORN = codes.NOT_A_CHECKPOINT.of(SinkError)(
    "a file of the checkpoint is incomplete",
    "a version, and lines of JSON",
    "python -m streamops doctor CHECKPOINT says what a crash has left, and what to do",
)
NOT_A_CATALOG = codes.PARAMETER_TYPE(
    "`catalog` is neither a name nor a mapping of text to text",
    "the name of a catalog in the configuration of pyiceberg, or its properties",
    'catalog={{"name": "prod", "type": "rest", "uri": "https://host/catalog"}}',
)
NOT_A_FILESYSTEM = codes.PARAMETER_TYPE(
    "`filesystem` is not a file system of Arrow",
    "pyarrow.fs.FileSystem",
    "pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem)) for one of fsspec",
)
NOT_A_SINK = codes.PARAMETER_TYPE(
    "`{parameter}` is not a sink",
    "a sink, such as sinks.postgres(...)",
    "{parameter}=sinks.postgres(url, table)",
)
NOT_OPTIONS = codes.PARAMETER_TYPE(
    "`storage_options` is not a mapping of text to text",
    "a dictionary whose keys and values are text",
    'storage_options={{"AWS_REGION": "eu-central-1"}}',
)
NOT_SINKS = codes.PARAMETER_TYPE(
    "the argument is not a mapping of names to sinks",
    "at least one sink, such as sinks.postgres(...)",
    'sinks.fan_out({{"daily": sinks.postgres(...), "audit": sinks.parquet(...)}})',
)
REWIND_TOO_FAR = codes.REWIND_TOO_FAR(
    "the checkpoint does not have the last micro-batch of the target, or the state after it",
    "micro-batch {batch}",
    "restore a newer copy of the target, or start from a new checkpoint",
)
TARGET_COLUMNS = codes.TARGET_COLUMNS(
    "the columns of the table and of the rows differ",
    "columns {columns}",
    "select the columns of the table; columns='add' adds new columns to it{note}",
)
NEW_COLUMNS = codes.TARGET_COLUMNS(
    "the rows have columns that the rows before do not have",
    "columns {columns}",
    "select these columns; columns='add' adds new ones",
)
TARGET_FEATURE = codes.TARGET_FEATURE(
    "the table has a feature that this sink does not write",
    "a table with features that deltalake writes",
    "copy the rows to a new table without it{features}",
)
ICEBERG_FEATURE = codes.TARGET_FEATURE(
    "the table has a feature that this sink does not read or write",
    "a table whose files, deletes and partitions pyiceberg reads and writes",
    "a property: ALTER TABLE ... UNSET TBLPROPERTIES; files: CALL system.rewrite_data_files in Spark; anything else: copy the rows to a new table without it",
)
COLLATION = codes.TARGET_KEY(
    "the database takes different keys for equal ones",
    "values that are equal only if all their characters are",
    "give the columns a binary collation",
)
KEY_COMPARISON = codes.TARGET_KEY(
    "column {column!r} of the table takes some different keys for equal ones",
    "a type and a collation for which only the same values are equal",
    "use text with a deterministic collation",
)
NULL_IN_KEY = codes.TARGET_KEY(
    "a key has a null in {name!r}, and the unique index of the table takes nulls for different",
    "keys without null, or an index with NULLS NOT DISTINCT",
    "CREATE UNIQUE INDEX ON the table ({columns}) NULLS NOT DISTINCT, from PostgreSQL 15, and drop the other; or replace null before the sink: F.coalesce",
)
KEY_NOT_UNIQUE = codes.TARGET_KEY(
    "the table has several rows of one key",
    "one row per value of {key}",
    "remove all rows of the key but one, or write appended rows without `key`",
)
NO_UNIQUE_INDEX = codes.TARGET_KEY(
    "the table has no unique index on the key",
    "one on exactly {key}, not deferrable, partial or on expressions, for which only the same keys are equal",
    "CREATE UNIQUE INDEX ON {table} ({columns}){nulls}",
)
NOT_TRANSACTIONAL = codes.TARGET_KIND(
    "the target cannot keep each row exactly once",
    "a table whose rows are committed together with the ledger, and that does not drop rows",
    "write to another table; in MySQL and MariaDB, ALTER TABLE ... ENGINE=InnoDB",
)
NOT_A_TARGET = codes.TARGET_KIND(
    "there is something else where {target} should be, or nothing can be",
    "{target}, or a place where one can be created",
    "correct the path or the URL of the sink",
)
NOT_A_PLAIN_TABLE = codes.TARGET_KIND(
    "the target cannot keep each row exactly once",
    "a logged table of this database, ordinary or partitioned, all of whose rows are visible",
    "{remedy}; or write to another table",
)
TABLE_MISSING = codes.TARGET_MISSING(
    "the table does not exist", "a table, because of missing='refuse'", "create it{statement}"
)
TOPIC_MISSING = codes.TARGET_MISSING(
    "the topic does not exist",
    "a topic that exists: its partitions and retention are yours to choose",
    "create it: kafka-topics.sh --create --topic {topic} --partitions ...",
)
NO_MANIFEST = codes.TARGET_MISSING(
    "no micro-batch was committed to this folder",
    "a folder that sinks.parquet has written",
    "check the path, or wait for the first micro-batch",
)
NO_SCHEMA = codes.TARGET_MISSING(
    "the table does not exist, and the search path has no schema to create it in",
    "a search path with a schema that exists",
    "name the schema: schema='public'",
)
TARGET_RECREATED = codes.TARGET_RECREATED(
    "the target was emptied, or dropped and created again, since its last micro-batch",
    "the target with the rows up to micro-batch {batch} of query {query}",
    'if it has these rows, as after a dump was restored, start once with new_checkpoint="continue"; if not, restore it together with the ledger, or write it anew: with a new checkpoint, and new_checkpoint="replace" or another `name`',
)
VALUES_CHANGED = codes.TARGET_REFUSED(
    "column {column!r} of the table would change or refuse values",
    "values that are the same when they are read",
    "alter the type of the column in the table, or convert these values before the sink",
)
ROWS_REJECTED = codes.TARGET_REFUSED(
    "{target} refused rows of the micro-batch",
    "rows that {target} takes",
    "rejected=another sink, which gets these rows; or correct them before the sink. All other rows were written, and writing them again changes nothing",
)
STORE_REFUSED = codes.TARGET_REFUSED(
    "{target} refused the micro-batch",
    "a target that this user may read and write",
    "correct the cause, and start the query again: rows that were written already are written again, which changes nothing",
)
ROWS_REFUSED = codes.TARGET_REFUSED(
    "{target} refused the rows of the micro-batch",
    "rows that satisfy the constraints of the table",
    "nothing was written: change the constraint, or filter or convert these rows before the sink",
)
NO_PARTITION = codes.TARGET_REFUSED(
    "a value of {column!r} has no partition by {transform}",
    "a value whose partition is in the range of its type, and an instant in the years 1 to 9999 for identity, day and hour",
    "nothing was written: filter these rows before the sink; or partition the table by another transform, such as bucket: ALTER TABLE ... REPLACE PARTITION FIELD",
)
NO_PRIVILEGE = codes.TARGET_REFUSED(
    "the user may not write to the target",
    "a user that may read and write the table and the ledger, and create what is missing",
    "GRANT the privileges, or name a `schema` of the user",
)
TARGET_SHARED = codes.TARGET_SHARED(
    "other sinks write to this target, and their rows would be removed",
    "no entry of another sink; the ledger has {others}",
    'delete the rows of this sink in the target, and start with new_checkpoint="continue"',
)
TARGET_TRIGGER = codes.TARGET_TRIGGER(
    "a trigger of the table changes what the sink writes",
    "triggers that neither change nor skip rows of the sink",
    "drop the trigger, or write to another table",
)
TRIGGER_OR_FOREIGN_KEY = codes.TARGET_TRIGGER(
    "a trigger or a foreign key of the table changes what the sink writes",
    "triggers that do not change the columns of the rows, skip rows, or write to this table; and no foreign key from the table to itself that cascades",
    "drop or disable the trigger, or write to another table",
)
COLUMN_TOO_WIDE = codes.TARGET_TYPE(
    "column {column!r} of the table has values that the frame cannot have",
    "values of the type of the frame",
    "cast the column of the frame to a wider type",
)
COLUMN_TOO_NARROW = codes.TARGET_TYPE(
    "column {column!r} of the table does not take these values without loss",
    "{expected}",
    "cast the column of the frame, or alter the type in the table",
)
TYPE_CHANGED = codes.TARGET_TYPE(
    "column {column!r} has another type than in the rows before",
    "{expected}",
    "cast the column of the frame",
)
STORE_UNAVAILABLE = codes.TARGET_UNAVAILABLE(
    "{target} did not take the micro-batch in time",
    "a target that is reachable and takes rows again within `patience`",
    "nothing is lost: start the query again once the cause is removed; or a longer `patience`",
)
COMMIT_CONFLICTS = codes.TARGET_UNAVAILABLE(
    "other writers commit to the target all the time",
    "a commit to the version of the target that was read",
    "nothing was written, and nothing is lost: pause the other writers, and start the query again",
)
TARGET_UNAVAILABLE = codes.TARGET_UNAVAILABLE(
    "{target} did not take the micro-batch",
    "a target that is reachable and accepts the transaction",
    "{hint}nothing is lost: start the query again once the cause is removed. If the connection broke in the commit, the target may have the micro-batch; the ledger knows, and it is not written twice",
)
VERSION_TYPE = codes.SEQUENCE_TYPE(
    "the sequence cannot be the version of a key",
    "one column with an integer or a timestamp, from 0 to 2^62 - 1",
    "changes.normalize gives each key a `revision`; of a position in the log of PostgreSQL: df.withColumn('lsn', F.col('_sequence.offset')), and sequence='lsn'",
)
NTZ_IN_MAP = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a timestamp without time zone inside of a map, and deltalake creates a table that cannot be read",
    "timestamp inside of maps, or a table that exists",
    "cast it to timestamp, or create the table before with the feature timestampNtz",
)
NOT_A_PARQUET_TYPE = codes.TYPE_UNSUPPORTED(
    "a column has a type that Parquet does not have",
    "columns with types that Arrow writes to Parquet",
    "cast or drop the column",
)
NOT_A_POSTGRES_TYPE = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that PostgreSQL does not have",
    "a plain type, or an array, struct or map",
    "cast the column",
)
NOT_A_SQL_TYPE = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that cannot be stored",
    "a boolean, number, string, binary, date or timestamp; in a key no float or double",
    "cast the column",
)
TYPE_NOT_IN_DELTA = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that a Delta table does not have",
    "a boolean, number, string, binary, date, timestamp, or an array, struct or map of these; in a key no map, and no float or double inside of another type",
    "cast the column",
)
TYPE_NOT_IN_ICEBERG = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that an Iceberg table does not have",
    "a boolean, signed number, string, binary, date, timestamp in microseconds, or an array, struct or map of these",
    "cast the column",
)
KEY_NOT_COMPARABLE = codes.TYPE_UNSUPPORTED(
    "key column {column!r} has a type whose values cannot be compared",
    "a boolean, number, string, binary, date, timestamp, or an array, struct or map of these; in a key no map, and no float or double inside of another type",
    "cast the column",
)
NOT_A_TOKEN = codes.INVALID_PARAMETER(
    "`tokens` has something that is not a token",
    "kafka:TOPIC:PARTITION:OFFSET, lsn:16/B374D848, delta:VERSION, or file:PATH",
    "pass what the writer returned in one of these forms",
)
NOT_A_WAIT_TARGET = codes.PARAMETER_TYPE(
    "`target` has no ledger of its own",
    "a sink with a ledger, or the checkpoint location of the query",
    "pass the sink that the reader reads, or the checkpoint location",
)
WATERMARK_NEEDS_CHECKPOINT = codes.INVALID_PARAMETER(
    "a ledger does not have the watermark",
    "the checkpoint location of the query, with `watermark=True`",
    "pass the checkpoint location of the query as `target`",
)
FILE_NEEDS_CHECKPOINT = codes.INVALID_PARAMETER(
    "a ledger does not list files",
    "tokens of Kafka, PostgreSQL or Delta Lake with a sink; files with a checkpoint",
    "pass the checkpoint location of the query as `target`",
)
OFFSETS_UNKNOWN = codes.OFFSETS_UNKNOWN(
    "the ledger does not say what the query has read",
    "an entry with the offsets of the micro-batch",
    "pass the checkpoint location of the query as `target`: sinks.delta, asynchronous progress tracking, and sink.write leave no offsets in the ledger",
)
WAIT_TIMEOUT = codes.WAIT_TIMEOUT(
    "the target does not have what was written before the end of `timeout`: {tokens}",
    "offsets of the sources behind it",
    "wait longer; see whether the query runs and keeps up, and whether it reads this source: observe.progress",
)
