"""Transcripts of folds, which run in batches: a log and a snapshot, and the table or the error.

A transcript has the columns of the log, the parameters of the fold, and rows as in other transcripts. Rows of
the snapshot and of the result are mappings.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from streamops import sourcing
from streamops.errors import StreamopsError
from streamops.kernel.errors import located
from streamops.testing.notation import COLUMN_TYPES
from tests.sourcing.folding import Rows, fold_log

FILE = Path(__file__).parent / "batch" / "fold.yaml"
TRANSCRIPTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))


def function(name: str) -> Any:
    """The function that ``module:name`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def parse_rows(lines: list[str], schema: pa.Schema) -> Rows:
    """Rows whose values are in the order of the columns."""
    columns = zip(*(line.split() for line in lines), strict=True)
    arrays = [
        pa.array([None if text == "null" else text for text in column], pa.string()).cast(part.type)
        for column, part in zip(columns, schema, strict=True)
    ]
    rows: Rows = pa.table(arrays, schema=schema).to_pylist()
    return rows


@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda item: item["name"])
def test_a_fold(transcript: dict[str, Any]) -> None:
    schema = pa.schema([(n, COLUMN_TYPES[type_]) for n, type_ in transcript["columns"].items()])
    spec = {
        name: function(value) if name in ("evolve", "upcast") else value
        for name, value in transcript["spec"].items()
    }
    log = parse_rows(transcript["log"], schema)
    for rows in (log, log[::-1]):
        if "error" not in transcript:
            found = fold_log(sourcing.fold(**spec), rows, schema, transcript.get("snapshot"))
            assert found == transcript["expect"]
            continue
        with pytest.raises(StreamopsError) as caught, located("sourcing.fold"):
            fold_log(sourcing.fold(**spec), rows, schema, transcript.get("snapshot"))
        assert caught.value.code == transcript["error"]
        assert all(row["k"] not in str(caught.value) for row in rows if len(row["k"]) > 1)
