"""What the documents say of sketches is what the code does."""

from __future__ import annotations

import inspect
import re

from streamops import sketches
from streamops.sketches.core import frame
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
