"""The guide to erasure matches the code, and its deletion request is executed from top to bottom."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

import streamops
from streamops import erasure, windows
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
    assert set(erasure.__all__) - terms(ROOT / "docs" / "which-operator.md") == set()
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


SECTION = PAGE.read_text().partition("## What operators do")[2].partition("\n## ")[0]
OF_USES, OF_EXCLUDED = SECTION.split("except these:")
PACKAGES = sorted(info.name for info in pkgutil.iter_modules(streamops.__path__) if info.ispkg)


def public_functions() -> set[str]:
    """All functions of all public packages: those that have ``__all__``."""
    modules = {name: importlib.import_module(f"streamops.{name}") for name in PACKAGES}
    public = {name: module for name, module in modules.items() if hasattr(module, "__all__")}
    return {
        f"{family}.{name}"
        for family, module in {**public, "streamops": streamops}.items()
        for name in module.__all__
        if inspect.isfunction(getattr(module, name))
    }


def functions_in_tests() -> set[str]:
    """The public functions that the tests of erasure call."""
    found: set[str] = set()
    for path in (ROOT / "tests" / "erasure").rglob("*.py"):
        tree = ast.parse(path.read_text())
        families = {
            alias.asname or alias.name: alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "streamops"
            for alias in node.names
        }
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=family), attr=name)):
                    found.add(f"{families.get(family)}.{name}")
                case ast.Call(func=ast.Name(id=name)):
                    found.add(f"streamops.{families.get(name)}")
    return found & public_functions()


def excluded_functions() -> dict[str, str]:
    """The functions that the page excludes, with the reason."""
    rows = re.findall(r"^\| (`.*`) \| (.+) \|$", OF_EXCLUDED, re.MULTILINE)
    return {name: reason for names, reason in rows for name in re.findall(r"`([\w.]+)`", names)}


def forgotten_functions() -> set[str]:
    """The public functions that are neither tested nor excluded."""
    return public_functions() - functions_in_tests() - excluded_functions().keys()


def test_each_public_function_is_tested_or_excluded_for_a_reason() -> None:
    tested, excluded = functions_in_tests(), excluded_functions()
    assert forgotten_functions() == set()
    assert excluded.keys() - public_functions() == set()  # it is gone, or has another name
    assert excluded.keys() & tested == set()
    assert all(len(reason.split()) > 2 for reason in excluded.values())


def test_each_tested_function_is_in_the_table() -> None:
    whole = set(re.findall(r"all `(\w+)`, `(\w+)` and `(\w+)`, `(\w+)`", OF_USES)[0])
    assert whole == {"windows", "joins", "changes", "time"}
    for function in functions_in_tests():
        family, _, name = function.partition(".")
        assert family in whole or f"`{function}`" in OF_USES or f"`{name}`" in OF_USES, function


def test_the_table_has_the_cases_that_are_tested() -> None:
    cases = (
        test_operators.SAME,
        test_operators.PER_SUBJECT,
        test_operators.ORDERS,
        test_operators.CONSTANTS,
        test_operators.REFUSED,
    )
    tested = {name.partition(",")[0] for group in cases for name in group}
    families = {
        "tumbling", "hopping", "cumulative", "calendar", "over", "resample", "rolling", "session", "sliding",
        "chain", "track_clock", "producers", "late rows", "asof", "timeline", "event time", "sequence",
        "patterns",
    }  # fmt: skip
    assert {name for name in tested - families if f"{name}`" not in OF_USES} == set()


def test_a_new_function_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def smooth() -> None:
        """A function without a test and without a row."""

    monkeypatch.setattr(windows, "smooth", smooth, raising=False)
    monkeypatch.setattr(windows, "__all__", [*windows.__all__, "smooth"])
    assert forgotten_functions() == {"windows.smooth"}


def test_the_documented_format_is_that_of_the_code() -> None:
    section = PAGE.read_text().partition("## The format of a value")[2].partition("\n## ")[0]
    for name, code in oracle.CODES.items():
        assert re.search(rf"\b{code} {name}\b", section)
    assert f"`OVERHEAD` is {shredding.OVERHEAD} bytes" in section
    assert f"version of the format: {shredding.FORMAT} |" in section
    assert f"`{shredding.MAGIC.decode()}`" in section
