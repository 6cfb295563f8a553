"""The wheel contains the library, and the oldest versions that are tested are the lower bounds."""

from __future__ import annotations

import re
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


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (
        "spark",
        "datasketch",
        "delta",
        "iceberg",
        "kafka",
        "opensearch",
        "postgres",
        "redis",
        "sqlalchemy",
        "search",
        "erasure",
    )
    requirements = [*project["dependencies"]]
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    bounds = {
        name: version
        for requirement in requirements
        for name, version in re.findall(r"^([\w-]+)(?:\[.*\])?>=([\d.]+)", requirement)
    }
    bounds["cryptography"] = "45.0.1"  # of authlib, which the extra `registry` needs
    bounds["protobuf"] = "6.33.5"  # of the messages of Spark 4.3
    pinned = dict(
        line.split("==")
        for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    assert pinned.keys() == bounds.keys()
    for name, version in pinned.items():
        # "2.2" is 2.2.0, and 18 is 18.0.0.
        assert re.sub(r"(\.0)+$", "", version) == re.sub(r"(\.0)+$", "", bounds[name]), name
