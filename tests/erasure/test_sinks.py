"""Sinks take shredded rows exactly once: a repeated micro-batch is the same, unless its key was deleted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.errors import SinkError
from streamops.spark.identity import Identity
from tests.erasure.samples import Entries, columns_of, entries_of, shred

RUN = Identity("query", "run 1")
AGAIN = Identity("query", "run 2")
SUBJECTS = ["ann", "bob"]
KEYS = entries_of(*SUBJECTS)


def micro_batch(entries: Entries) -> pa.Table:
    (email,), _ = shred(columns_of(email=pa.string()), SUBJECTS, entries, email=["a@x", "b@x"])
    return pa.table({"user": SUBJECTS, "email": email})


def test_a_repeated_micro_batch_is_skipped(tmp_path: Path) -> None:
    for run in (RUN, AGAIN):
        sinks.parquet(str(tmp_path))._deliver_rows(micro_batch(KEYS), 0, run)
    assert len(sinks.read_parquet(str(tmp_path)).to_table()) == 2


def test_an_erasure_between_two_attempts_is_refused_and_can_be_skipped(tmp_path: Path) -> None:
    sinks.parquet(str(tmp_path))._deliver_rows(micro_batch(KEYS), 0, RUN)
    erased = micro_batch({**KEYS, "ann": [(1, None)]})
    with pytest.raises(SinkError, match="BATCH_DIFFERS"):
        sinks.parquet(str(tmp_path))._deliver_rows(erased, 0, AGAIN)
    sinks.parquet(str(tmp_path), repeated="skip")._deliver_rows(erased, 0, AGAIN)
    assert sinks.read_parquet(str(tmp_path)).to_table().column("email").null_count == 0
