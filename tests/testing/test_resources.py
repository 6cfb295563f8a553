"""What grows is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.resources import MEMORY, Resources


def test_open_files_that_are_not_closed_are_found(tmp_path: Path) -> None:
    resources, files = Resources(), []
    for _ in range(8):
        resources.measure()
    resources.check()
    resources = Resources()
    for number in range(8):
        files.append((tmp_path / str(number)).open("w"))
        resources.measure()
    for file in files:
        file.close()
    with pytest.raises(AssertionError, match="files"):
        resources.check()


def test_memory_that_is_not_released_is_found() -> None:
    resources, stored = Resources(), []
    for _ in range(8):
        stored.append(b"x" * (MEMORY // 2))
        resources.measure()
    with pytest.raises(AssertionError, match="memory grows"):
        resources.check()


def test_what_else_is_measured_must_not_grow() -> None:
    resources = Resources()
    for number in range(8):
        resources.measure(connections=number)
    assert [quarter["connections"] for quarter in resources.quarters()] == [3, 7]
    with pytest.raises(AssertionError, match="connections"):
        resources.check()
