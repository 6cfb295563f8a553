"""Read a Delta table from its log and its Parquet files, by the protocol and without deltalake.

For logs without checkpoints, and tables without column mapping and deletion vectors.
"""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

Row = dict[str, Any]


def read_delta(path: str) -> list[Row]:
    """The rows of the newest version."""
    files: dict[str, dict[str, Any]] = {}
    schema: dict[str, Any] = {}
    for log in sorted(Path(path, "_delta_log").glob("*.json")):
        for action in map(json.loads, log.read_text().splitlines()):
            if "metaData" in action:
                schema = json.loads(action["metaData"]["schemaString"])
            if "remove" in action:
                files.pop(action["remove"]["path"], None)
        for action in map(json.loads, log.read_text().splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["partitionValues"]
    types = {field["name"]: field["type"] for field in schema["fields"]}
    rows = []
    for name, partition in files.items():
        values = {column: _parse(text, types[column]) for column, text in partition.items()}
        stored = pq.ParquetFile(Path(path, unquote(name))).read().to_pylist()
        rows += [{column: {**row, **values}.get(column) for column in types} for row in stored]
    return rows


def _parse(text: str | None, dtype: str) -> Any:
    """The value of a partition, of which an empty text is null."""
    if not text:
        return None
    if dtype in {"byte", "short", "integer", "long"}:
        return int(text)
    if dtype in {"float", "double"}:
        return float(text)
    if dtype.startswith("decimal"):
        return Decimal(text)
    if dtype == "boolean":
        return text == "true"
    if dtype == "date":
        return dt.date.fromisoformat(text)
    if dtype == "binary":
        return text.encode("latin-1")
    if dtype.startswith("timestamp"):
        value = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
        is_local = dtype == "timestamp_ntz"
        return value.replace(tzinfo=None if is_local else value.tzinfo or dt.UTC)
    return text
