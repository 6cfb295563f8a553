"""The documentation of table joins and of aggregates over changes matches the code."""

from __future__ import annotations

import inspect
import re
from typing import Any, get_args

import pyarrow as pa
import pytest

from streamops import aggregates as agg
from streamops import changes, joins
from streamops.changes.core.aggregate import AggregateCore
from streamops.joins.core.tables import TablesCore
from streamops.joins.core.tables_spec import REASONS, How, Rejected
from streamops.joins.core.timeline import TimelineCore
from streamops.spark.drive import resolve
from tests.docs.test_readme import ROOT, documented

TABLE = pa.schema([("k", pa.string()), ("_change_type", pa.string())])
JOIN: Any = resolve(joins.tables(None, by="k"), (TABLE, TABLE), (None, None))
TOTALS: Any = changes.aggregate(
    by="k", agg={"n": agg.count(), "least": agg.min("k")}
).parameters.resolve((TABLE,), carried=(None,), shards=1)
FOLLOWS = pa.schema([("k", pa.string()), ("user", pa.string()), ("_change_type", pa.string())])
HOME: Any = joins.timeline(None, by="k", user="user", key="k", ranked_by="k", cap=1)
NEWEST: Any = resolve(
    HOME.follow_up, (resolve(HOME, (TABLE, FOLLOWS), (None, None)).output,), (None,)
)


def test_every_name_of_table_joins_and_aggregates_is_documented() -> None:
    names = {*inspect.signature(joins.tables).parameters, *inspect.signature(changes.aggregate).parameters}  # fmt: skip
    names |= {"tables", "aggregate", *REASONS, *get_args(How), *get_args(Rejected)}
    assert names - documented() == set()


def test_every_reason_is_documented() -> None:
    page = (ROOT / "docs" / "joins.md").read_text()
    assert set(REASONS) <= set(re.findall(r"`(\w+)`", page.partition("### What is rejected")[2]))
    assert all(f'"{reason}"' in (joins.tables.__doc__ or "") for reason in REASONS)


@pytest.mark.parametrize(
    ("core", "spec"), [(TablesCore(), JOIN), (TimelineCore(), NEWEST), (AggregateCore(), TOTALS)]
)
def test_the_layout_of_the_state_is_documented(core: Any, spec: Any) -> None:
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {core.STATE.kind}, version {core.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    names = set(re.findall(r"`([\w.…]+)`", own))
    assert set(spec.identity) <= names
    for table, schema in core.layout(spec).items():
        assert table in names
        columns = {re.sub(r"^(agg\.\d+\.).*", r"\1…", name) for name in schema.names}
        assert columns <= names
