"""How tasks stage the rows of a large micro-batch in a database of SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.kernel.databases import parse_database_url
from streamops.sinks import sqlalchemy_connection as database
from streamops.sinks import staging
from streamops.sinks.core.net import Net, repeat
from streamops.sinks.staging import Write, taken_over


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging(staging.Staging):
    """How tasks insert their rows.

    Parameters
    ----------
    name : str
        Where they stage rows.
    schema : str, optional
        The schema of that table.
    """

    name: str
    schema: str | None

    @property
    def _staging_table(self) -> str:
        return self.name

    def _reduce(self, rows: pa.Table) -> Net:
        net = staging.Staging._reduce(self, in_utc(rows))
        copies = net.added_copies
        added = {n: np.repeat(getattr(net, n), copies) for n in ("replaces", "added_copies")}
        return replace(net, added=repeat(net.added, copies), **added)

    @contextmanager
    def _open(self) -> Iterator[Write]:
        merges, position = database.merges(), 0
        with database.reported(self.url):
            engine = database.start(parse_database_url(self.url, extra="sqlalchemy"))

        def write(rows: pa.Table) -> None:
            nonlocal position
            with database.reported(self.url), engine.begin() as connection:
                found = database.targets().inspect(connection, self.name, self.schema)
                if found is None:
                    raise taken_over()
                merges.stage(connection, (self.name, self.schema), found, rows, self.key, position)
            position += len(rows)

        try:
            yield write
        finally:
            engine.dispose()


def in_utc(rows: pa.Table) -> pa.Table:
    """The rows with instants in UTC, whatever the time zone of the session."""
    utc = pa.timestamp("us", "UTC")
    is_zoned = [
        pa.types.is_timestamp(part.type) and part.type.tz is not None for part in rows.schema
    ]
    fields = [p.with_type(utc) if z else p for p, z in zip(rows.schema, is_zoned, strict=True)]
    return rows.cast(pa.schema(fields))
