"""Every condition is raised, with the facts that its texts name, and is on the page of errors."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from streamops.kernel import codes
from streamops.kernel.errors import Code, Condition
from website import errors

ROOT = Path(__file__).parents[2]
CONDITIONS = errors.conditions()


@cache
def raised() -> tuple[tuple[str, set[str], str], ...]:
    return tuple(_raised())


def _raised() -> Iterator[tuple[str, set[str], str]]:
    """Each call of `conditions.NAME.error(...)`: the condition, its facts, and the place."""
    for path in sorted((ROOT / "streamops").rglob("*.py")):
        text = path.read_text()
        if "conditions." not in text:
            continue
        tree = ast.parse(text)
        package = next(
            (
                node.module
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                and any(alias.name == "conditions" for alias in node.names)
            ),
            None,
        )
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "error"
                and ast.unparse(node.func.value).startswith("conditions.")
            ):
                name = ast.unparse(node.func.value).removeprefix("conditions.")
                facts = {str(keyword.arg) for keyword in node.keywords}
                yield f"{package}.{name}", facts, f"{path}:{node.lineno}"


def facts_of(condition: Condition[Any]) -> set[str]:
    texts = (condition.what, condition.expected, condition.fix)
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}


def test_every_condition_is_raised() -> None:
    assert {name for name, _, _ in raised()} == CONDITIONS.keys()


def test_every_condition_is_raised_with_its_facts() -> None:
    wrong = [
        f"{line}: {name} has {sorted(facts_of(CONDITIONS[name]))}, and not {sorted(facts)}"
        for name, facts, line in raised()
        if facts - {"where", "at"} != facts_of(CONDITIONS[name]) | {"got"}
    ]
    assert wrong == []


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_condition_has_texts_and_is_on_the_page(name: str) -> None:
    condition = CONDITIONS[name]
    page = errors.PAGE.read_text()
    for text in (condition.what, condition.expected, condition.fix):
        assert text.strip()
    _, _, entry = page.partition(f"\n### {condition.code}\n")
    cause, remedy = (errors.cell(errors.fill(text)) for text in (condition.what, condition.fix))
    assert f"| {cause} | {remedy} |" in entry.partition("\n### ")[0]


def test_a_code_is_its_name() -> None:
    found = {name: value for name, value in vars(codes).items() if isinstance(value, Code)}
    assert {name: code.name for name, code in found.items()} == {name: name for name in found}
    assert len(found) <= 120


def test_no_template_reaches_the_page() -> None:
    page = errors.PAGE.read_text()
    for condition in CONDITIONS.values():
        for name in facts_of(condition):
            assert f"{{{name}}}" not in page, condition
