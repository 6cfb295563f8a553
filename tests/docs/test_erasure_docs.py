"""The guide to erasure matches the code, and its deletion request is executed from top to bottom."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

import streamops
from streamops import erasure
from streamops.erasure.core import shredding
from streamops.erasure.core.values import TYPES
from streamops.erasure.search import Match, SearchReport
from tests.docs.test_readme import ROOT, documented, examples, public, terms
from tests.erasure import test_operators
from tests.oracles import erasure as oracle

PAGE = ROOT / "docs" / "erasure.md"


@pytest.mark.spark
@pytest.mark.slow
def test_the_deletion_request_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"spark": spark}
    for example in examples(PAGE):
        if example.spark:
            assert example.run(namespace) == example.output


def test_every_name_is_documented() -> None:
    methods = [erasure.KeyTable.create_keys, erasure.KeyTable.erase, erasure.KeyTable.rewrap]
    names = {name for method in methods for name in inspect.signature(method).parameters}
    names |= {field.name for of in (Match, SearchReport) for field in fields(of)}
    names |= {*get_args(shredding.Rejected), *TYPES, "rows", "rejected", "reason", "columns"}
    names |= {name for name in vars(erasure.KeyTable) if not name.startswith("_")}
    assert (public(erasure) | names) - {"self"} - documented() == set()
    assert set(erasure.__all__) - terms(ROOT / "README.md") == set()
    assert "erasure" in streamops.__all__


def test_the_help_lists_the_functions() -> None:
    assert all(f"``{name}``" in str(erasure.__doc__) for name in erasure.__all__)


def test_every_reason_is_documented() -> None:
    section = PAGE.read_text().partition("## What is rejected")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|.*\| (yes)? *\| (yes)? *\|$", section, re.MULTILINE)
    assert [name for name, *_ in listed] == [*shredding.UNSHRED_REASONS]
    assert [name for name, of_shred, _ in listed if of_shred] == [*shredding.SHRED_REASONS]
    shred, unshred = str(erasure.shred.__doc__), str(erasure.unshred.__doc__)
    assert all(f'"{reason}"' in shred for reason in shredding.SHRED_REASONS)
    for reason in set(shredding.UNSHRED_REASONS) - set(shredding.SHRED_REASONS):
        assert f'"{reason}"' in unshred


def test_the_table_of_operators_has_those_that_are_tested() -> None:
    section = PAGE.read_text().partition("## What operators do")[2].partition("\n## ")[0]
    tested = {
        name.partition(",")[0]
        for cases in (
            test_operators.SAME,
            test_operators.PER_SUBJECT,
            test_operators.ORDERS,
            test_operators.CONSTANTS,
            test_operators.REFUSED,
        )
        for name in cases
    }
    families = {
        "tumbling", "hopping", "cumulative", "calendar", "session", "sliding", "chain",
        "track_clock", "producers", "late rows", "asof", "timeline", "event time", "sequence",
    }  # fmt: skip
    assert {name for name in tested - families if f"{name}`" not in section} == set()


def test_the_documented_format_is_that_of_the_code() -> None:
    section = PAGE.read_text().partition("## The format of a value")[2].partition("\n## ")[0]
    for name, code in oracle.CODES.items():
        assert re.search(rf"\b{code} {name}\b", section)
    assert f"`OVERHEAD` is {shredding.OVERHEAD} bytes" in section
    assert f"version of the format: {shredding.FORMAT} |" in section
    assert f"`{shredding.MAGIC.decode()}`" in section
