"""Completion in an editor or notebook shows every parameter of every public function."""

from __future__ import annotations

import ast
import importlib
import inspect
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import streamops

ROOT = Path(__file__).parents[2]
FAMILIES = sorted(
    path.parent.name
    for path in (ROOT / "streamops").glob("*/__init__.py")
    if path.parent.name in streamops.__all__
)
PUBLIC = [f"streamops.{name}" for name in streamops.__all__ if find_spec(f"streamops.{name}")]
FUNCTIONS = {
    f"{family}.{name}": getattr(module, name)
    for family in FAMILIES
    for module in [importlib.import_module(f"streamops.{family}")]
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
}


def written_parameters(function: Any) -> list[str]:
    """The parameters in the source of a function."""
    unwrapped = inspect.unwrap(function)
    tree = ast.parse(Path(inspect.getfile(unwrapped)).read_text())
    *_, node = (  # behind its overloads
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == unwrapped.__name__
    )
    arguments = node.args
    names = [*arguments.posonlyargs, *arguments.args]
    names += [arguments.vararg] if arguments.vararg else []
    return [argument.arg for argument in [*names, *arguments.kwonlyargs]]


def test_all_operators_are_looked_at() -> None:
    assert {"windows.tumbling", "joins.interval", "patterns.match", "aggregates.sum"} <= set(
        FUNCTIONS
    )
    assert len(FUNCTIONS) > 80


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_signature_has_every_parameter_with_its_type_and_documentation(name: str) -> None:
    function = FUNCTIONS[name]
    signature = inspect.signature(function)
    assert list(signature.parameters) == written_parameters(function)
    for parameter in signature.parameters.values():
        assert parameter.kind is not parameter.VAR_KEYWORD, "a parameter without a name"
        assert parameter.annotation is not parameter.empty, parameter.name
    assert signature.return_annotation is not signature.empty
    assert (function.__doc__ or "").strip()


@pytest.mark.parametrize("name", ["streamops", "streamops.testing.laws", *PUBLIC])
def test_completion_shows_the_public_names_of_a_module_and_nothing_else(name: str) -> None:
    module = importlib.import_module(name)
    names = {name for name in dir(module) if name.isidentifier() and not name.startswith("__")}
    assert names == {*module.__all__} - {"__version__"}


def test_completion_shows_what_can_be_called_of_an_operator() -> None:
    operator = streamops.time.processing_time()
    assert [name for name in dir(operator) if not name.startswith("__")] == ["options"]


@pytest.mark.parametrize("name", ["windows.tumbling", "joins.interval", "windows.session"])
def test_completion_in_a_notebook_offers_every_parameter(name: str) -> None:
    jedi = pytest.importorskip("jedi")
    family = name.partition(".")[0]
    namespace = {family: importlib.import_module(f"streamops.{family}")}
    completions = jedi.Interpreter(f"{name}(", [namespace]).complete()
    offered = {item.name for item in completions if item.name.endswith("=")}
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert {f"{parameter}=" for parameter in parameters} <= offered
