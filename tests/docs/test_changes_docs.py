"""The documentation of changes matches the code."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, get_args

import pytest

from streamops import changes
from streamops.changelog import table as keyed
from streamops.changelog.change_types import CHANGE_TYPES
from streamops.changes import debezium_records, debezium_values, delta
from streamops.changes.core import latest
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import LatestCore
from streamops.changes.fold import Rows
from tests.docs.test_readme import ROOT, documented, public, terms
from tests.golden import history_states, latest_states


def test_names_of_changes_are_documented_and_functions_are_in_the_table() -> None:
    choices = (
        debezium_records.Absent,
        debezium_records.Preimages,
        delta.Preimages,
        debezium_records.Tombstones,
        debezium_records.Position,
        latest.History,
        latest.Publish,
        keyed.Snapshots,
        keyed.WhenFull,
        Rows,
    )
    values = {part for choice in choices for word in get_args(choice) for part in word.split()}
    columns = {"valid_from", "valid_to", "log", "offset", "position", "version"}
    found = dataclasses.fields(changes.Difference) + dataclasses.fields(changes.Differences)
    used = {
        *public(changes),
        *values,
        *keyed.CHANGE_COLUMNS,
        *CHANGE_TYPES,
        *latest.METRICS,
        *keyed.REASONS,
        *debezium_records.REASONS,
        *columns,
        *(choice.name for choice in found),
    }
    assert used - documented() == set()
    functions = {name for name in changes.__all__ if not inspect.isclass(getattr(changes, name))}
    assert functions - terms(ROOT / "docs" / "which-operator.md") == set()


def test_every_reason_and_every_connector_is_documented() -> None:
    page = terms(ROOT / "docs" / "changes.md")
    assert {*debezium_records.REASONS, *debezium_values.CONNECTORS} - page == set()
    assert {*keyed.REASONS, *latest.METRICS} - {
        "full",
        "rows",
        "results",
        "corrections",
        "deletes",
    } <= page


@pytest.mark.parametrize(
    ("core", "bound"), [(LatestCore(), latest_states.SPEC), (HistoryCore(), history_states.SPEC)]
)
def test_the_states_are_documented(core: Any, bound: Any) -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {core.STATE.kind}, version {core.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    assert own
    for table, schema in core.layout(bound).items():
        assert f"**Table `{table}`**" in own
        if table in {"evicted", "truncated"}:
            continue
        part = own.partition(f"**Table `{table}`**")[2].partition("**Table")[0]
        rows = re.findall(r"^\| (.+?) \|", part, re.MULTILINE)
        columns = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
        listed = [name for name in columns if not name.endswith(".1")]
        assert listed == [name for name in schema.names if not re.search(r"\.[1-9]$", name)]
    if core is LatestCore():
        assert set(bound.identity) <= set(re.findall(r"`(\w+)`", own))
