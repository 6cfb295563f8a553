"""The wheel contains the library, and nothing else of the repository."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

setuptools = pytest.importorskip("setuptools")

ROOT = Path(__file__).parents[2]


def test_the_wheel_contains_only_the_library() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = settings["tool"]["setuptools"]["packages"]["find"]
    packages = set(setuptools.find_namespace_packages(str(ROOT), **found))
    assert packages == {
        ".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "streamops").rglob("*.py")
    }
