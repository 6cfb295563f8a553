"""A streaming source of scripted micro-batches, for Spark 4.2 and later.

One file is one micro-batch, also under ``availableNow``, and also if it is empty. The driver sends the
rows to the task as an Arrow IPC stream, so every type is preserved.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType


class MicroBatches(DataSource):
    """Arrow files of a directory, in the order of their names, one per micro-batch."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._folder = options["path"]

    @classmethod
    def name(cls) -> str:
        """The name for ``readStream.format``."""
        return "streamops-micro-batches"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of offsets and rows."""
        return _Reader(self._folder)


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the number of micro-batches already read.

    Without ``SupportsTriggerAvailableNow``, Spark would end an ``availableNow`` run after one.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:
        return {"read": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(1)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = len(self._files())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        written = len(self._files()) if self._target is None else self._target
        if isinstance(limit, ReadAllAvailable):
            return {"read": written}
        return {"read": min(start["read"] + 1, written)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        files = self._files()[start["read"] : end["read"]]
        return [InputPartition(file.read_bytes()) for file in files]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.arrow"))
