"""The documentation of sketches matches the code."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import pyarrow as pa

from streamops import sketches
from streamops.sketches import conditions
from streamops.sketches.core import seen, seen_state, sketch
from streamops.sketches.core.bloom import Bloom
from streamops.sketches.core.seen import Again, SeenCore
from streamops.windows.core.running import DEFAULT_MAX_KEYS, Changes, RunningCore, WhenFull
from tests.docs.test_readme import ROOT, documented, public, terms
from tests.sketches.seen_specs import seen_spec


def test_names_of_sketches_are_documented_and_functions_are_in_the_table() -> None:
    assert public(sketches) - documented() == set()
    classes = {name for name in sketches.__all__ if inspect.isclass(getattr(sketches, name))}
    assert set(sketches.__all__) - classes - terms(ROOT / "docs" / "which-operator.md") == set()


def test_every_refusal_of_a_sketch_is_documented() -> None:
    names = re.findall(r"conditions\.([A-Z_]+)", inspect.getsource(sketch))
    raised = {getattr(conditions, name).code for name in names}
    text = (ROOT / "docs" / "state-formats.md").read_text()
    assert set(re.findall(r"^\| `(SKETCH_[A-Z]+)` \|", text, re.MULTILINE)) == raised


def test_the_values_and_the_state_of_seen_are_documented() -> None:
    glossary = documented()
    values = {word for choice in (Again, seen.WhenFull) for word in get_args(choice)}
    assert {*values, *SeenCore.METRICS, seen.SEEN, seen.FULL} - glossary == set()
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {SeenCore.STATE.kind}, version {SeenCore.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    spec = seen_spec(pa.schema([("v", pa.int8())]), by=("v",), capacity=10, time=None)
    assert set(spec.identity) <= set(re.findall(r"`(\w+)`", own))
    for table, schema in SeenCore().layout(spec).items():
        assert f"**Table `{table}`**" in own
        section = own.partition(f"**Table `{table}`**")[2].partition("**Table")[0]
        columns = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert columns == schema.names
    for table, schema in (
        (seen_state.PREVIOUS, seen_state.PREVIOUS_LAYOUT),
        (seen_state.RECENT, seen_state.RECENT_LAYOUT),
    ):
        section = own.partition(f"**Table `{table}`**")[2].partition("**Table")[0]
        rows = re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
        assert [n for row in rows for n in re.findall(r"`(\w+)`", row)] == schema.names
    assert SeenCore.STATE.segmented
    assert "**[Segments](#segments)**: " in own
    assert f"## Sketch {Bloom.format.kind}, version {Bloom.format.version}\n" in text
    page = (ROOT / "docs" / "sketches.md").read_text()
    assert {*seen.DECISIONS, *Bloom.result.names} <= set(re.findall(r"`(\w+)`", page))


def test_the_values_and_the_state_of_running_values_are_documented() -> None:
    glossary = documented()
    values = {word for choice in (Changes, WhenFull) for word in get_args(choice)}
    assert {*values, *RunningCore.METRICS} - glossary == set()
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {RunningCore.STATE.kind}, version {RunningCore.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    assert "**Table `keys`**" in own
    counts = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "sketches.md").read_text()))
    assert set(RunningCore.METRICS) <= counts
    assert f"{DEFAULT_MAX_KEYS:,}" == "1,000,000"  # "a million" in the guide
