from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

from streamops import testing

MODULES = ("batches", "folding", "notation", "replaying", "rows")


def test_importing_the_modules_does_not_import_the_extra() -> None:
    code = """
import sys
import streamops.testing
import streamops.testing.batches, streamops.testing.folding, streamops.testing.results
import streamops.testing.transcripts, streamops.testing.streaming
for extra in ("chispa", "pytest", "yaml"):
    assert extra not in sys.modules, extra
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_importing_the_package_does_not_import_pyspark() -> None:
    code = "import sys, streamops.testing; assert not {'pyspark', 'pyarrow'} & set(sys.modules)"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_every_public_name_exists() -> None:
    assert dir(testing) == sorted(testing.__all__)
    for name in testing.__all__:
        assert getattr(testing, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rerun'"):
        testing.rerun  # noqa: B018  (reading it is the test)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"streamops.testing.{module}"))
    assert result.failed == 0
    assert result.attempted > 0
