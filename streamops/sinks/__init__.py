"""Sinks: write micro-batches to a target, each exactly once."""

from streamops.sinks.delta import delta
from streamops.sinks.parquet import parquet, read_parquet
from streamops.sinks.postgres import postgres
from streamops.sinks.sqlalchemy import sqlalchemy

__all__ = ["delta", "parquet", "postgres", "read_parquet", "sqlalchemy"]
