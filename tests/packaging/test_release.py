"""What a release needs agrees: the version and the changelog; workflows and the Makefile; the forms for issues."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import streamops

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TASKS = set(re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def load(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text())
    return loaded


def commands(workflow: dict[Any, Any]) -> list[str]:
    """The commands of all jobs, with each task of a matrix in place of its expression."""
    found = []
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        tasks = [*matrix.get("task", []), *(of["task"] for of in matrix.get("include", []))]
        for step in job["steps"]:
            if "run" in step:
                run = step["run"]
                found += [run.replace("${{ matrix.task }}", task) for task in tasks or [""]]
    return found


def is_task(name: str) -> bool:
    return any(re.fullmatch(task.replace("%", ".+"), name) for task in TASKS)


def test_the_changelog_begins_with_the_version() -> None:
    heading = re.search(r"^## \[(.+)\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert heading[1] == streamops.__version__
    assert re.fullmatch(r"unreleased|\d{4}-\d{2}-\d{2}", heading[2])


def test_the_names_of_tasks_are_known_and_others_are_not() -> None:
    assert is_task("test")
    assert is_task("test-python-3.13")
    assert not is_task("no-such-task")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_tasks_and_nothing_else(path: Path) -> None:
    run = commands(load(path))
    assert run
    for command in run:
        if command == ".ci/run" or command.startswith("git config"):
            continue
        program, task, *_ = command.split()
        assert program == "make"
        assert is_task(task), task


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_only_read(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    more = {name for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more == ({"publish"} if path.name == "publish.yml" else set())


def test_a_tag_is_published_only_if_its_release_was_checked() -> None:
    workflow = load(ROOT / ".github" / "workflows" / "publish.yml")
    # YAML reads the key `on` as true.
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    publish = workflow["jobs"]["publish"]
    assert publish["needs"] == ["test", "build"]
    assert publish["permissions"] == {"id-token": "write"}
    assert 'make release-check TAG="$GITHUB_REF_NAME"' in commands(workflow)


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml", "platform.yml"])
def test_forms_for_issues_are_complete(name: str) -> None:
    form = load(ROOT / ".github" / "ISSUE_TEMPLATE" / name)
    assert {"name", "description", "labels", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
