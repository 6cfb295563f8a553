"""A writer without a ledger, as users write it first: a file per call of ``foreachBatch``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from streamops.kernel.versions import to_arrow
from streamops.sinks.core.ledger import Entry
from streamops.sinks.protocol import CheckedTarget
from streamops.sinks.sink import BatchWriter
from streamops.spark.identity import Identity


@dataclass(frozen=True, kw_only=True, repr=False)
class Unguarded(BatchWriter):
    """Appends every micro-batch that it is called with, also the second time."""

    where = "tests.unguarded"

    folder: str

    @property
    def label(self) -> str:
        return self.where

    def read_ledger(self) -> Entry | None:
        """The last micro-batch, by the names of the files."""
        numbers = [int(path.name.partition("-")[0]) for path in Path(self.folder).glob("*.parquet")]
        return Entry("", 0, "", max(numbers), 0, 0) if numbers else None

    def _checked(self) -> Iterator[CheckedTarget]:
        yield from ()

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        self.append(to_arrow(batch), batch_id)

    def append(self, rows: pa.Table, batch_id: int) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        path = Path(self.folder, f"{batch_id:05}-{uuid.uuid4().hex}.parquet")
        draft = path.with_suffix(".draft")
        pq.write_table(rows, draft)
        draft.rename(path)


def read_unguarded(folder: Path) -> pa.Table:
    """All rows that were appended."""
    files = sorted(map(str, folder.glob("*.parquet")))
    return pads.dataset(files, format="parquet").to_table()
