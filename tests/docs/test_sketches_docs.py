"""What the documents say of sketches is what the code does."""

from __future__ import annotations

import inspect
import re
from typing import get_args

from streamops import sketches
from streamops.sketches.core import frame, running
from streamops.sketches.core.running import Changes, WhenFull
from streamops.sketches.per_key import PerKey
from streamops.sketches.running_settings import MOST_KEYS
from streamops.spark.running import TOLD
from tests.docs.test_readme import ROOT, public, words


def test_every_word_of_sketches_is_in_the_glossary_and_every_function_in_the_readme() -> None:
    assert public(sketches) - words(ROOT / "docs" / "glossary.md") == set()
    classes = {name for name in sketches.__all__ if inspect.isclass(getattr(sketches, name))}
    assert set(sketches.__all__) - classes - words(ROOT / "README.md") == set()


def test_every_refusal_of_a_sketch_is_documented() -> None:
    raised = set(re.findall(r'"(SKETCH_[A-Z]+)"', inspect.getsource(frame)))
    text = (ROOT / "docs" / "state-formats.md").read_text()
    assert set(re.findall(r"^\| `(SKETCH_[A-Z]+)` \|", text, re.MULTILINE)) == raised
    assert f"## The frame of a sketch, version {frame.FRAME}\n" in text


def test_the_words_and_the_state_of_running_values_are_documented() -> None:
    glossary = words(ROOT / "docs" / "glossary.md")
    said = {word for choice in (Changes, WhenFull) for word in get_args(choice)}
    assert {*said, *PerKey.__annotations__, *TOLD} - glossary == set()
    text = (ROOT / "docs" / "state-formats.md").read_text()
    heading = f"## {running.STATE.kind}, version {running.STATE.version}\n"
    own = text.partition(heading)[2].partition("\n## ")[0]
    assert "**Table `keys`**" in own
    counts = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "sketches.md").read_text()))
    assert set(TOLD) <= counts
    assert f"{MOST_KEYS:,}" == "1,000,000"  # "a million", says the document
