"""Conditions under which a source cannot be read."""

from streamops.kernel import codes
from streamops.kernel.errors import ChangeStreamError, RequirementError, SpecError

COLUMN_TYPE = codes.COLUMN_TYPE(
    "column {column!r} is not that of a Kafka record",
    "binary or string",
    "apply the operator to the rows of the Kafka source as they are",
)
NOT_A_BOUND = codes.INVALID_PARAMETER(
    "`{parameter}` is not a bound of the range",
    "'earliest', 'latest', an aware datetime, or offsets by topic and partition",
    "{parameter}=datetime(2026, 1, 1, tzinfo=timezone.utc)",
)
NOT_A_CLIENT_SETTING = codes.INVALID_PARAMETER(
    "`client` has a setting that the client refuses",
    "settings of librdkafka",
    "check names and values; names of Java, such as sasl.jaas.config, belong in `options`",
)
NOT_A_SLOT = codes.INVALID_PARAMETER(
    "`slot` is not the name of a replication slot",
    "lower-case letters, digits and '_', up to 63",
    'slot="shop_events"',
)
NOT_A_DEFAULT = codes.INVALID_PARAMETER(
    "`defaults` has a value that column {column!r} cannot have",
    "columns of `schema` that are not nested, with exact values of their types; instants with a zone",
    'defaults={{"country": "unknown"}}',
)
NOT_DEFAULTS = codes.PARAMETER_TYPE(
    "`defaults` is not a mapping",
    "values by the names of columns",
    'defaults={{"country": "unknown"}}',
)
NOT_A_REGISTRY_SETTING = codes.INVALID_PARAMETER(
    "`registry` has a setting that the client of the registry refuses",
    "settings of confluent_kafka.schema_registry.SchemaRegistryClient that are text, numbers or flags",
    'registry={{"url": "https://registry:8081", "basic.auth.user.info": user_and_password}}',
)
OPTION_TAKEN = codes.INVALID_PARAMETER(
    "`options` has options that the plan determines",
    "other options of Spark's Kafka source",
    "use topics, servers, start, end and isolation",
)
PARTITIONS_DIFFER = codes.INVALID_PARAMETER(
    "the range does not have two offsets for each partition",
    "the same topics and partitions in both; partitions and offsets are integers",
    "use start and end of a plan of sources.replay; JSON turns partitions to strings",
)
OFFSETS_INCOMPLETE = codes.INVALID_PARAMETER(
    "`{parameter}` does not have an offset for each partition, and for no other",
    "{partitions}",
    "use the offsets of a KafkaReplay, or a timestamp",
)
NOT_A_SCHEMA = codes.INVALID_SCHEMA(
    "`schema` is not the schema of an Avro record",
    "a schema of type record, in Avro's JSON",
    'schema=\'{{"type": "record", "name": "View", "fields": [...]}}\'',
)
LOG_BEHIND = codes.LOG_BEHIND(
    "the log of the server ends before the position that the query has read: the server was set back, and events that the query has read may not exist there",
    "{lsn} or later, as in the checkpoint",
    "compare the outbox table with what was read; create the slot again, and use a new checkpoint",
)
LOG_ENDS_EARLY = codes.MALFORMED_LOG.of(ChangeStreamError)(
    "the log ends within a transaction",
    "whole transactions",
    "start the query again; nothing was read",
)
MALFORMED_MESSAGE = codes.MALFORMED_LOG.of(ChangeStreamError)(
    "the log has a message that pgoutput does not write",
    "messages of pgoutput, protocol version 1",
    "check that the slot belongs to the plugin pgoutput of PostgreSQL 10 or later, and report the message as a mistake of streamops",
)
NAME_TAKEN = codes.NAME_TAKEN(
    "a name stands for two columns of the result: {taken}",
    "names unlike one another and unlike {reserved}",
    "rename column {name!r} in the table, or leave it out of `keep`",
)
OFFSET_UNREADABLE = codes.OTHER_SERVER(
    "the checkpoint has an offset of another source",
    "the position of a log, such as {{'system': '7301', 'lsn': '0/16B3748'}}",
    "use the checkpoint of this query, or a new one",
)
OTHER_SERVER = codes.OTHER_SERVER(
    "the checkpoint belongs to the log of another server, whose positions mean nothing here",
    "server {system}, as in the checkpoint",
    "correct the URL. After an upgrade or a move of the database: let the query read all events of the old server first, and then use a new checkpoint and a new slot",
)
AVRO_REQUIRED = codes.PACKAGE_MISSING(
    "the session cannot read Avro",
    "org.apache.spark:spark-avro_2.13, of the version of Spark",
    "add it to spark.jars.packages, or its jar to spark.jars, before the session starts",
)
KAFKA_CLIENT_REQUIRED = codes.PACKAGE_MISSING(
    "offsets are looked up by a client of Kafka, which is not installed",
    "confluent-kafka 2.16 or later",
    codes.INSTALL.format(extra="kafka"),
)
REGISTRY_KNOWS = codes.PARAMETERS_CONTRADICT(
    "`format` and `schema_id` are what the registry knows of each record",
    "columns in `schema`, and `registry` without `format` and `schema_id`",
    'kafka_events("page string NOT NULL, ms bigint", registry="https://registry:8081")',
)
REGISTRY_MISSING = codes.PARAMETER_WITHOUT_EFFECT(
    "`unknown_fields` and `defaults` are for records whose schemas are in a registry",
    "`registry` with them",
    "add `registry`, or leave them out",
)
TOMBSTONE_WITHOUT_KEY = codes.PARAMETER_MISSING(
    "a tombstone only has its message key",
    "the column with the message key in `keep`",
    'keep=["key"], or another choice of `tombstones`',
)
MAX_ROWS_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`max_rows` is not a number of rows",
    "an integer, 1 or more",
    "leave it out (10,000), or choose how many rows a micro-batch has",
)
NOT_A_SCHEMA_ID = codes.PARAMETER_OUT_OF_RANGE(
    "`schema_id` is not the id of a schema",
    "integers from 0 to {max_id}",
    "omit it if the records have no header; otherwise use the id of the registry",
)
OFFSET_OUT_OF_RANGE = codes.PARAMETER_OUT_OF_RANGE(
    "`{parameter}` has an offset that partition {partition} of {topic!r} does not have",
    "{first} to {latest}",
    "use the offsets of a KafkaReplay, or a timestamp",
)
NOT_A_REGISTRY = codes.PARAMETER_TYPE(
    "`registry` does not say where the registry is",
    "an http or https URL, or settings of its client with `url`",
    'registry="https://registry:8081"',
)
NOT_A_COLUMN = codes.PARAMETER_TYPE(
    "`columns` does not map columns of the result to columns of the table",
    "a mapping with some of the keys {columns}",
    'columns={{"aggregate_id": "order_id"}}',
)
PASSWORD_IN_URL = codes.PASSWORD_IN_URL(
    "`url` has a password, which would be shown in the plan and in the logs of Spark",
    "a URL without a password, such as postgresql://user@host/database",
    "write the password to a password file (~/.pgpass), or set PGPASSWORD, where the driver of Spark runs",
)
PASSWORD_IN_REGISTRY_URL = codes.PASSWORD_IN_URL(
    "`registry` has a URL with a user or a password, which would be shown",
    "a URL without them",
    'registry={{"url": "https://registry:8081", "basic.auth.user.info": user_and_password}}',
)
SLOT_AHEAD = codes.SLOT_AHEAD(
    "the slot {slot!r} was advanced beyond the position that this query has read: events between them cannot be read from the slot",
    "{lsn} or before, as in the checkpoint",
    "use a slot for each query, and do not read from it otherwise. If the checkpoint was restored or the slot created again: read the missing events from the outbox table, if they were not deleted there, and use a new checkpoint, which begins at the slot",
)
SLOT_IN_USE = codes.SLOT_IN_USE(
    "another connection reads from the slot",
    "one reader of a slot",
    "stop the other reader, or use a slot for each query",
)
SLOT_LOST = codes.SLOT_LOST(
    "the server has removed the log that the slot needs, with events that were not read",
    "a slot whose log is on the server",
    "read the missing events from the outbox table, if they were not deleted there; drop the slot, create it again, and use a new checkpoint. Raise max_slot_wal_keep_size, and monitor the lag of the query",
)
SLOT_MISSING = codes.SOURCE_MISSING.of(RequirementError)(
    "the replication slot does not exist: events that are written before it is created, or were written after it was dropped, are not read",
    "a logical replication slot of the plugin {plugin}",
    "{create_slot}, or create='create'. If a query has read from it: read the missing events from the outbox table, if they were not deleted there; drop the slot, create it again, and use a new checkpoint",
)
TABLE_NOT_FOUND = codes.SOURCE_MISSING(
    "the outbox table does not exist",
    "a table, or a partitioned table",
    "create it, or correct `schema`, `table` or the database of the URL",
)
TOPIC_NOT_FOUND = codes.SOURCE_MISSING(
    "there is no topic {topic!r}",
    "a topic that exists, and that the user may read",
    "create the topic, or correct its name",
)
KAFKA_REQUEST_FAILED = codes.SOURCE_UNAVAILABLE(
    "Kafka did not answer a request, or refused it",
    "a broker that answers, and permission to describe and read the topics",
    "check servers, the security settings in `client`, and the permissions of the user",
)
REGISTRY_UNAVAILABLE = codes.SOURCE_UNAVAILABLE(
    "the schema registry did not answer, or refused",
    "a registry that answers within half a minute, and permission to read its schemas",
    "no row is lost, because the micro-batch is not committed: check the URL and the credentials in `registry`, and start the query again",
)
LOG_UNAVAILABLE = codes.SOURCE_UNAVAILABLE(
    "the server did not answer a request, or refused it",
    "a server that is reachable, and a role with LOGIN and REPLICATION",
    "nothing is lost, because the slot keeps its log: remove the cause, and start the query again",
)
OUTBOX_NOT_EMPTY = codes.SOURCE_UNFIT(
    "the outbox table has rows from before the slot, which would never be read",
    "an empty table, or a slot that exists",
    "process these rows and delete them, then start again. If nobody needs them, create the slot: {create_slot}",
)
PUBLICATION_MISSING = codes.SOURCE_UNFIT(
    "the publication did not exist when rows were written that the slot has not read yet",
    "a publication that was created before the slot, and not dropped since",
    "read these events from the outbox table; drop the slot, create it again, and use a new checkpoint",
)
PUBLICATION_WITHOUT_TABLE = codes.SOURCE_UNFIT(
    "the publication does not have the outbox table",
    "{expected}",
    "ALTER PUBLICATION {publication} ADD TABLE {table}; if the table is partitioned, ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)",
)
PUBLICATION_WITHOUT_INSERTS = codes.SOURCE_UNFIT(
    "the publication does not have inserts",
    "{expected}",
    "ALTER PUBLICATION {publication} SET (publish = 'insert, update')",
)
SERVER_IS_A_STANDBY = codes.SOURCE_UNFIT(
    "the server is a standby: its slots do not move with a query",
    "the primary server",
    "connect to the primary, for example by target_session_attrs=read-write in the URL",
)
SLOT_UNFIT = codes.SOURCE_UNFIT(
    "the slot belongs to another plugin or another database",
    "type logical, plugin {plugin}, database {database}",
    "choose another name for the slot, or correct the database of the URL",
)
TABLE_WITHOUT_KEY = codes.SOURCE_UNFIT.of(SpecError)(
    "the outbox table has no primary key: with the publication, PostgreSQL would refuse updates of it",
    "a primary key",
    "ALTER TABLE {table} ADD PRIMARY KEY ({key})",
)
WAL_LEVEL = codes.SOURCE_UNFIT(
    "the log of the server does not have what is needed to read rows from it",
    "wal_level=logical",
    "ALTER SYSTEM SET wal_level = logical, and restart the server",
)
NO_PUBLICATION = codes.SOURCE_UNFIT(
    "the publication does not exist; without it the log has no rows of the outbox table",
    "a publication of the inserts and updates of the outbox table",
    "{statement}; or create='create'",
)
PUBLICATION_DROPPED = codes.SOURCE_UNFIT(
    "the publication does not exist; without it the log has no rows of the outbox table",
    "a publication of the inserts and updates of the outbox table",
    "{statement}; drop the slot, which cannot read rows that were written before, and create it again",
)
NOT_A_DECODED_TYPE = codes.TYPE_UNSUPPORTED(
    "column {column!r} has a type that records of a registry are not decoded to",
    "a boolean, number, string, binary, date, timestamp, time(6), interval day to second, or an array, map or struct of them",
    "declare the column as a string, and cast it behind the operator",
)
