"""The files of a checkpoint: paths, logs, and the metadata of the operators. Spark is not needed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from streamops.environment.settings import PARTITIONS, PROVIDER
from streamops.kernel.errors import CheckpointError
from streamops.state import conditions

MARKER = "_streamops_unfinished"
"""File in a new checkpoint until it is complete and verified."""

METADATA = "metadata"
"""File with the id of the query. Spark refuses a checkpoint with offsets and without it."""

ROCKSDB_STATE = "RocksDBStateStoreProvider"
HDFS_STATE = "HDFSBackedStateStoreProvider"
PROVIDERS = {"hdfs": HDFS_STATE, "rocksdb": ROCKSDB_STATE}
"""Classes of Spark's state stores, without their package."""


@dataclass(frozen=True, slots=True)
class OperatorFiles:
    """A stateful operator, as Spark describes it in a checkpoint.

    Parameters
    ----------
    number : int
        Its number in the query, from 0.
    api : str
        Spark's name of the operator, such as ``applyInPandasWithState``.
    stores : tuple of str
        Names of its state stores. Joins of Spark have several.
    partitions : int
        Number of partitions.
    properties : mapping
        What Spark stores about a ``transformWithState``: state variables, time mode.
    file : Path
        The file that was read.
    """

    number: int
    api: str
    stores: tuple[str, ...]
    partitions: int
    properties: Mapping[str, Any]
    file: Path

    @property
    def has_variables(self) -> bool:
        """Whether it is a ``transformWithState`` with state variables."""
        return self.api.startswith("transformWithState")

    @property
    def variables(self) -> list[str]:
        """Names of the state variables, with those of timers."""
        return [variable["stateName"] for variable in self.properties.get("stateVariables", [])]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on a local file system.

    Parameters
    ----------
    path : Path
        The directory, resolved.
    """

    path: Path

    @cached_property
    def commits(self) -> list[int]:
        """Numbers of the committed micro-batches, ascending."""
        return _numbers(self.path / "commits")

    @cached_property
    def offsets(self) -> list[int]:
        """Numbers of the planned micro-batches, ascending."""
        return _numbers(self.path / "offsets")

    @property
    def last(self) -> int:
        """The last committed micro-batch. There must be one."""
        return self.commits[-1]

    @property
    def is_unfinished(self) -> bool:
        """Whether a rewrite into this directory did not end."""
        return (self.path / MARKER).exists()

    @property
    def is_cut_off(self) -> bool:
        """Whether the driver crashed while it wrote the plan of the first micro-batch."""
        return not self.offsets and any((self.path / "offsets").glob(".0.*.tmp"))

    @cached_property
    def offset(self) -> Mapping[str, Any]:
        """Watermark, time and settings in the offsets of the last committed micro-batch."""
        _, lines = self.read_log("offsets", self.last)
        return dict(json.loads(lines[0]))

    @property
    def settings(self) -> dict[str, str]:
        """Spark's settings that the query is bound to."""
        return dict(self.offset.get("conf", {}))

    @property
    def partitions(self) -> int:
        """Number of partitions of each stateful operator."""
        return int(self.settings[PARTITIONS])

    @property
    def provider(self) -> str:
        """Class of the state store, without its package."""
        return provider_of(self.settings)

    @property
    def watermark(self) -> int:
        """Spark's watermark of the next micro-batch, in milliseconds; 0 if there is none."""
        _, lines = self.read_log("commits", self.last)
        return int(json.loads(lines[0]).get("nextBatchWatermarkMs", 0))

    @cached_property
    def operators(self) -> list[OperatorFiles]:
        """The stateful operators, by number."""
        return [self._operator(number) for number in _numbers(self.path / "state")]

    def read_log(self, log: str, batch: int) -> tuple[str, list[str]]:
        """Return the version of a log entry, and its lines of JSON.

        Raises
        ------
        CheckpointError
            ``CHECKPOINT_TORN``.
        """
        file = self.path / log / str(batch)
        return _read_entry(file)

    def files(self) -> Iterator[Path]:
        """Every file of the checkpoint.

        Raises
        ------
        CheckpointError
            ``CHECKPOINT_PATH``: a symbolic link.
        """
        for folder, folders, names in os.walk(self.path):
            for name in (*folders, *names):
                if Path(folder, name).is_symlink():
                    raise conditions.CHECKPOINT_LINK.error(
                        where=str(self.path), got=str(Path(folder, name))
                    )
            yield from (Path(folder, name) for name in names)

    def stamp(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file, to find out whether something changed."""
        return {
            str(file.relative_to(self.path)): (status.st_size, status.st_mtime_ns)
            for file in self.files()
            for status in [file.stat()]
        }

    def _operator(self, number: int) -> OperatorFiles:
        folder = self.path / "state" / str(number) / "_metadata"
        newest = _numbers(folder / "v2")
        file = folder / "v2" / str(newest[-1]) if newest else folder / "metadata"
        if not file.is_file():
            raise conditions.OPERATOR_METADATA_MISSING.error(
                where=str(self.path), got=f"no file {file.relative_to(self.path)}"
            )
        _, lines = _read_entry(file)
        info = json.loads(lines[0])
        stores = info["stateStoreInfo"]
        return OperatorFiles(
            number,
            info["operatorInfo"]["operatorName"],
            tuple(store["storeName"] for store in stores),
            stores[0]["numPartitions"],
            json.loads(info.get("operatorPropertiesJson") or "{}"),
            file,
        )


def provider_of(settings: Mapping[str, str]) -> str:
    """Class of the state store, without its package."""
    return settings.get(PROVIDER, HDFS_STATE).rpartition(".")[2]


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Open a checkpoint. Nothing is written.

    Raises
    ------
    CheckpointError
        ``CHECKPOINT_PATH``, ``NOT_A_CHECKPOINT``.
    """
    folder = local_path(path)
    missing = [name for name, there in _required(folder).items() if not (folder.is_dir() and there)]
    if missing and not (folder / MARKER).exists():
        raise conditions.NOT_A_CHECKPOINT.error(
            got=f"{folder} without {', '.join(missing)}" if folder.exists() else f"no {folder}"
        )
    return Checkpoint(folder)


def local_path(path: str | Path) -> Path:
    """Resolve a path, or a URI with the scheme ``file``."""
    text = str(path)
    parts = urlsplit(text)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        raise conditions.CHECKPOINT_NOT_LOCAL.error(got=text)
    return Path(unquote(parts.path) if parts.scheme == "file" else text).resolve()


def require_target(to: str | Path, source: Checkpoint) -> Path:
    """Resolve the directory of a new checkpoint: one that does not exist yet, or is empty.

    Raises
    ------
    CheckpointError
        ``CHECKPOINT_PATH``.
    """
    folder = local_path(to)
    if folder == source.path or source.path in folder.parents or folder in source.path.parents:
        raise conditions.TARGET_OVERLAPS.error(
            path=source.path, got=f"checkpoint {source.path}, new checkpoint {folder}"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if (folder / MARKER).exists():
            raise conditions.REWRITE_LEFT.error(got=str(folder))
        raise conditions.TARGET_NOT_EMPTY.error(got=str(folder))
    return folder


def _required(folder: Path) -> dict[str, bool]:
    return {
        METADATA: (folder / METADATA).is_file(),
        "offsets": (folder / "offsets").is_dir(),
    }


def _numbers(folder: Path) -> list[int]:
    """The numbers among the names in a folder, ascending; none if there is no such folder."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def _read_entry(file: Path) -> tuple[str, list[str]]:
    lines: list[str] = []
    try:
        version, *lines = file.read_text().splitlines()
        for line in lines[:1]:
            json.loads(line)
    except (OSError, ValueError) as error:
        raise _torn(file, str(error)) from error
    if not version.startswith("v") or not lines:
        raise _torn(file, f"{len(lines)} lines after {version!r}")
    return version, lines


def _torn(file: Path, got: str) -> CheckpointError:
    return conditions.CHECKPOINT_TORN.error(where=str(file), got=got)


_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


def find_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    """Yield each problem of the files. If the newest entries are torn, it is the last one.

    Raises
    ------
    CheckpointError
        ``CHECKPOINT_PATH``, or ``CHECKPOINT_UNSUPPORTED``.
    """
    where = str(checkpoint.path)
    if checkpoint.is_unfinished:
        yield conditions.CHECKPOINT_UNFINISHED.error(where=where, got=f"the file {MARKER}")
        return
    *_, _last = [*checkpoint.files(), None]
    try:
        for log in ("offsets", "commits"):
            for batch in getattr(checkpoint, log)[-2:]:
                checkpoint.read_log(log, batch)
    except CheckpointError as torn:
        yield torn
        return
    if checkpoint.is_cut_off:
        yield conditions.FIRST_PLAN_TORN.error(
            where=where, got="a temporary file in `offsets`, and no plan"
        )
        return
    if not checkpoint.commits:
        yield conditions.NOTHING_COMMITTED.error(where=where, got="no file in `commits`")
        return
    for problem in (*_batch_problems(checkpoint), *_format_problems(checkpoint)):
        problem.locate(where)
        yield problem


def _batch_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    last = checkpoint.last
    if checkpoint.offsets[-1:] > [last]:
        yield conditions.BATCH_UNFINISHED.error(
            got=f"offsets of micro-batch {checkpoint.offsets[-1]}, commits up to {last}"
        )
    if last not in checkpoint.offsets:
        yield conditions.OFFSETS_MISSING.error(
            last=last, got=f"commits up to {last}, offsets {checkpoint.offsets[-3:]}"
        )


def _format_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    if checkpoint.last not in checkpoint.offsets:
        return
    settings = checkpoint.settings
    versions = {log: checkpoint.read_log(log, checkpoint.last)[0] for log in ("offsets", "commits")}
    if settings.get(_FORMAT, "1") != "1" or set(versions.values()) != {"v1"}:
        yield conditions.CHECKPOINT_FORMAT.error(
            got=f"{_FORMAT}={settings.get(_FORMAT, '1')}, "
            + ", ".join(f"{log} {version}" for log, version in versions.items())
        )
    if checkpoint.provider not in (ROCKSDB_STATE, HDFS_STATE):
        yield conditions.STATE_STORE_UNKNOWN.error(got=settings[PROVIDER])
    if settings.get(_CHECKSUM, "false") != "false":
        yield conditions.ROW_CHECKSUMS.error(got=_CHECKSUM)
    if settings.get(_ENCODING, "unsaferow") != "unsaferow":
        yield conditions.STATE_ENCODING.error(got=f"{_ENCODING}={settings[_ENCODING]}")
    if not (checkpoint.path / METADATA).is_file():
        yield conditions.QUERY_ID_MISSING.error(got=f"no file {METADATA}")
