"""Each setting of a table in a lake that docs/guarantees.md names is tried on a table that has it."""

from __future__ import annotations

import re

import pytest

from tests.docs.test_readme import ROOT

delta = pytest.importorskip("tests.sinks.test_delta_settings")
iceberg = pytest.importorskip("tests.sinks.test_iceberg_settings")

SECTION = (ROOT / "docs" / "guarantees.md").read_text().partition("### Settings of tables in a lake")[2]  # fmt: skip
_, DELTA, ICEBERG, *_ = re.split(r"\n\| `sinks\.\w+`: ", SECTION)
OWN_TESTS = {
    "appendOnly",
    "enableChangeDataFeed",
    "logRetentionDuration",
    "enableExpiredLogCleanup",
}


def settings_of(text: str) -> set[str]:
    """The names of settings in the first cells of a table."""
    cells = (line.split("|")[1] for line in text.splitlines() if line.startswith("| "))
    names = (name for cell in cells for name in re.findall(r"`([^`]+)`", cell))
    return {name.partition("=")[0].strip("….") for name in names if re.fullmatch(r"[\w.=…-]+", name)}  # fmt: skip


def test_every_property_of_iceberg_that_is_named_is_tried() -> None:
    tried = {name for given in [*iceberg.TAKEN, *iceberg.REFUSED] for name in given}
    named = settings_of(ICEBERG) - {"parquet", "identifier-field-ids", "write-default", "512MB"}
    assert len(named) > 20
    assert {name for name in named if not any(of.startswith(name) for of in tried)} == set()


def test_every_property_of_delta_that_is_named_is_tried() -> None:
    tried = {*delta.TAKEN, *(name for name, _ in delta.REFUSED), *OWN_TESTS}
    named = settings_of(DELTA) - {"none", "VACUUM", "AWS_S3_ALLOW_UNSAFE_RENAME"}
    assert len(named) > 10
    assert named - tried == set()
