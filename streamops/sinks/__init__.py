"""Sinks: write micro-batches to a target, each exactly once, or keep a store in sync.

=====================  =========================================================================
``postgres``           a table of PostgreSQL
``delta``              a table of Delta Lake, without a JVM
``iceberg``            a table of Apache Iceberg, without a JVM
``parquet``            a folder of Parquet files, and ``read_parquet``, which reads it
``sqlalchemy``         a table of another database
``kafka``              a topic of Kafka
``opensearch``         an index of OpenSearch or Elasticsearch
``redis``              keys of Redis or Valkey
``fan_out``            several targets from one micro-batch
``side_outputs``       results to one target, late and rejected rows to another
``rewind``             sets a checkpoint back to what a restored target has
``wait_for``           until a target has what a writer wrote; ``wait_for_sql``: in PostgreSQL;
                       ``tokens``: of what a target has
=====================  =========================================================================
"""

from streamops.kernel.calls import explain_calls
from streamops.sinks.delta import delta
from streamops.sinks.iceberg import iceberg
from streamops.sinks.kafka import kafka
from streamops.sinks.opensearch import opensearch
from streamops.sinks.parquet import parquet, read_parquet
from streamops.sinks.postgres import postgres
from streamops.sinks.redis import redis
from streamops.sinks.rewind import rewind
from streamops.sinks.routing import fan_out, side_outputs
from streamops.sinks.sqlalchemy import sqlalchemy
from streamops.sinks.waiting import tokens, wait_for, wait_for_sql

__all__ = [
    "delta",
    "fan_out",
    "iceberg",
    "kafka",
    "opensearch",
    "parquet",
    "postgres",
    "read_parquet",
    "redis",
    "rewind",
    "side_outputs",
    "sqlalchemy",
    "tokens",
    "wait_for",
    "wait_for_sql",
]

explain_calls(globals())
