"""Every condition is raised, with the facts that its texts name, and is on the page of errors."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
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


# A name in an expression such as `conditions.NAME`, and the facts if it is raised at once.
Use = tuple[str, set[str] | None, str]


@cache
def used() -> tuple[Use, ...]:
    return tuple(_used())


def _used() -> Iterator[Use]:
    """Each use of a condition: its name, the facts of a call of `error`, and the place."""
    for path in sorted((ROOT / "streamops").rglob("*.py")):
        text = path.read_text()
        if "conditions." not in text:
            continue
        tree = ast.parse(text)
        packages = {
            alias.asname or alias.name: node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name == "conditions"
        }
        calls = {
            id(node.func.value): {str(keyword.arg) for keyword in node.keywords}
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "error"
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                package = packages.get(node.value.id)
                if package is not None and node.attr.isupper():
                    name = f"{package}.{node.attr}"
                    yield name, calls.get(id(node)), f"{path}:{node.lineno}"


def facts_of(condition: Condition[Any]) -> set[str]:
    texts = (condition.what, condition.expected, condition.fix)
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}


def test_every_condition_is_used() -> None:
    assert {name for name, _, _ in used()} == CONDITIONS.keys()


def test_every_condition_is_raised_with_its_facts() -> None:
    wrong = [
        f"{line}: {name} has {sorted(facts_of(CONDITIONS[name]))}, and not {sorted(facts)}"
        for name, facts, line in used()
        # With `**facts`, those of several conditions are passed.
        if facts is not None
        and "None" not in facts
        and facts - {"where", "at"} != facts_of(CONDITIONS[name]) | {"got"}
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
    assert len(found) <= 125


def test_no_template_reaches_the_page() -> None:
    page = errors.PAGE.read_text()
    for condition in CONDITIONS.values():
        for name in facts_of(condition):
            assert f"{{{name}}}" not in page, condition


def test_packages_have_no_condition_twice() -> None:
    texts = defaultdict(list)
    for name, condition in CONDITIONS.items():
        key = (condition.code, condition.what, condition.expected, condition.fix)
        texts[key].append(name)
    assert [names for names in texts.values() if len(names) > 1] == []


def test_every_code_has_a_condition() -> None:
    found = {value.name for value in vars(codes).values() if isinstance(value, Code)}
    assert found == {condition.code for condition in CONDITIONS.values()}


def test_remedies_name_choices_that_exist() -> None:
    library = "\n".join(path.read_text() for path in (ROOT / "streamops").rglob("*.py"))
    names: dict[str, set[str]] = {}  # of when_full under WhenFull, as all families call its type
    for name, choices in re.findall(
        r"^(\w+) = Literal\[(.*?)\]", library, re.MULTILINE | re.DOTALL
    ):
        names.setdefault(name, set()).update(re.findall(r'"(.*?)"', choices))
    named = [
        (names[name.title().replace("_", "")], choice, condition.fix)
        for condition in CONDITIONS.values()
        for name, choice in re.findall(r"""\b(\w+)=['"]([\w ]+)['"]""", condition.fix)
        if name.title().replace("_", "") in names
    ]
    assert len(named) > 20
    assert [fix for choices, choice, fix in named if choice not in choices] == []
