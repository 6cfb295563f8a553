"""Public names exist and have docstrings."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import streamops
from streamops import (
    changes,
    errors,
    joins,
    observe,
    patterns,
    plots,
    process,
    search,
    sources,
    sourcing,
    state,
    windows,
)
from streamops import time as times
from streamops.kernel import errors as kernel_errors

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(streamops.__path__, "streamops.")
    if not module.name.endswith("__main__")
)


def unexplained(module: ModuleType) -> list[str]:
    """Return the public functions and classes of a module that have no docstring."""
    names = []
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)  # fails where there is no such name
        if inspect.isclass(thing) or inspect.isroutine(thing):
            text = thing.__doc__ or ""
            generated = dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}(")
            if not text or generated:
                names.append(name)
    return names


@pytest.mark.parametrize("name", ["streamops", *MODULES])
def test_every_public_name_exists_and_has_a_docstring(name: str) -> None:
    assert unexplained(importlib.import_module(name)) == []


def test_the_package_lists_every_module_with_public_names() -> None:
    names = {info.name for info in pkgutil.iter_modules(streamops.__path__)} - {"__main__"}
    modules = {name: importlib.import_module(f"streamops.{name}") for name in names}
    public = {name for name, module in modules.items() if hasattr(module, "__all__")}
    assert public == names & {*streamops.__all__}
    assert all(getattr(streamops, name) is modules[name] for name in public)


def test_only_packages_and_entry_points_list_public_names() -> None:
    public = {name for name in MODULES if hasattr(importlib.import_module(name), "__all__")}
    packages = {name for name in public if hasattr(importlib.import_module(name), "__path__")}
    assert public - packages == {"streamops.errors", "streamops.testing.plugin"}


def test_every_error_is_public() -> None:
    defined = [thing for thing in vars(kernel_errors).values() if inspect.isclass(thing)]
    named = {thing.__name__ for thing in defined if issubclass(thing, Exception)}
    assert {*errors.__all__} == named
    assert all(f"``{name}``" in str(errors.__doc__) for name in errors.__all__)


@pytest.mark.parametrize(
    "family",
    [
        changes,
        joins,
        observe,
        patterns,
        plots,
        process,
        search,
        sources,
        sourcing,
        state,
        times,
        windows,
    ],
)
def test_the_help_of_a_family_lists_its_functions(family: ModuleType) -> None:
    functions = {name for name in family.__all__ if inspect.isfunction(getattr(family, name))}
    assert {name for name in functions if f"``{name}``" not in str(family.__doc__)} == set()


def test_a_name_without_a_docstring_is_detected() -> None:
    @dataclasses.dataclass
    class Silent:
        x: int

    module = ModuleType("planted")
    module.__all__ = ["Silent", "explained"]
    module.Silent = Silent
    module.explained = unexplained
    assert unexplained(module) == ["Silent"]


def test_a_name_that_does_not_exist_is_detected() -> None:
    module = ModuleType("planted")
    module.__all__ = ["ghost"]
    with pytest.raises(AttributeError, match="ghost"):
        unexplained(module)


@pytest.mark.parametrize("module", ["streamops", "streamops.kernel.errors"])
def test_importing_the_kernel_does_not_import_spark_or_pandas(module: str) -> None:
    code = f"import sys, {module}; print(*({{'pyspark', 'pandas'}} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


def test_public_modules_are_attributes_of_the_package() -> None:
    assert streamops.local_session.__name__ == "local_session"
    for family in (
        "aggregates",
        "changes",
        "observe",
        "plots",
        "sketches",
        "state",
        "testing",
        "time",
        "windows",
    ):
        assert inspect.ismodule(getattr(streamops, family))
    with pytest.raises(AttributeError, match="nonsense"):
        streamops.nonsense  # noqa: B018  (looking is the test)


FUNCTIONS = [
    f"{package}.{name}"
    for package in streamops.__all__
    if inspect.ismodule(module := getattr(streamops, package))
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_public_functions_are_located(name: str) -> None:
    package, _, function = name.partition(".")
    call = getattr(getattr(streamops, package), function)
    with pytest.raises(errors.CallError) as caught:
        call(no_such_parameter=1)
    assert caught.value.where == (f"streamops.{name}" if package == "testing" else name)
    # The same frame locates errors from within: tests/errors.
    assert inspect.unwrap(call) is not call
