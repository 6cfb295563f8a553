"""Write docs/errors.md: every error code with causes and remedies, from the places that raise it.

python -m website.errors
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from streamops import errors
from website.docstrings import mark_code
from website.raised import Raised, Source

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "errors.md"
# Parts that all families share.
_SHARED = {"kernel", "spark", "changelog", "environment"}
_HEAD = """\
---
hide:
  - toc
---

# Errors

Every error of streamops has a stable code, which is the first word of its message, in brackets. This page lists all
codes, by class. `python -m website.errors` writes it from the places in the code that raise them. In braces is what the
message of an error names: `{column}`, `{parameter}`.

All classes are in `streamops.errors`, derive from `StreamopsError`, and have the facts as attributes: `code`, `what`,
`where`, `got`, `expected` and `fix`. Catch them by class, and compare the code:

```python
from streamops import aggregates as agg, errors, windows

try:
    windows.hopping("1 hour", "2 hours", time="ts", agg={"n": agg.count()})
except errors.SpecError as error:
    print(error.code, "-", error.fix)
```

```text
PARAMETERS_CONTRADICT - shorten hop, or lengthen size
```

Errors up to `RequirementError` are raised while the plan is built, before a row is read. An error that a worker raises
while a query runs is wrapped by Spark: `query.exception()` has its message, with the code. Codes of alarms are in the
[guide to observation](observe.md#alarms), reasons of rejected rows in the [guarantees](guarantees.md#bad-input).

| class | codes | meaning |
|---|---|---|
"""
# In the order of the module, which is that in which users meet them.
_CLASSES = [name for name in re.findall(r"^``(\w+)``", str(errors.__doc__), re.MULTILINE)]


@cache
def raised() -> tuple[Raised, ...]:
    """Return every situation in which streamops raises an error."""
    return tuple(Source(ROOT / "streamops").raised())


def by_code() -> dict[str, list[Raised]]:
    """Return the situations of every code."""
    found = defaultdict(list)
    for situation in raised():
        found[situation.code].append(situation)
    return dict(found)


def families(situations: list[Raised]) -> list[str]:
    """Return the families that raise an error themselves."""
    found = {Path(situation.module).parts[1].removesuffix(".py") for situation in situations}
    return sorted(found - _SHARED)


def anchor(code: str) -> str:
    """Return the anchor of a code on the page."""
    return code.lower()


def page() -> str:
    """Return the page."""
    codes = by_code()
    classes = defaultdict(list)
    for code, situations in codes.items():
        # A code that several classes have is where it is raised most often.
        names = [situation.error for situation in situations]
        classes[max(_CLASSES, key=lambda name: (names.count(name), -_CLASSES.index(name)))].append(
            code
        )
    lines, parts = [_HEAD.rstrip("\n")], []
    for name in _CLASSES:
        if classes[name]:
            summary = " ".join(str(getattr(errors, name).__doc__).partition("\n\n")[0].split())
            lines.append(f"| [`{name}`](#{name.lower()}) | {len(classes[name])} | {summary} |")
            parts.append(f"\n## {name}\n\n{summary}")
            parts += [_entry(code, codes[code]) for code in sorted(classes[name])]
    return "\n".join([*lines, *parts]) + "\n"


def _entry(code: str, situations: list[Raised]) -> str:
    remedies = defaultdict(list)
    for situation in situations:
        remedies[situation.cause].append(mark_code(situation.remedy))
    used_by = ", ".join(f"`{name}`" for name in families(situations))
    parts = [f"\n### {code}\n"]
    if used_by:
        parts.append(f"Raised by {used_by}.\n")
    for cause, found in remedies.items():
        parts.append(f"- **Cause**: {_sentence(mark_code(cause))}")
        texts = list(dict.fromkeys(found))
        if len(texts) == 1:
            parts.append(f"  <br>**Remedy**: {_sentence(texts[0])}")
        else:
            parts.append("  <br>**Remedy**, one of:")
            parts += [f"    - {_sentence(text)}" for text in texts]
    return "\n".join(parts)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "`", "?")) else f"{text}."


if __name__ == "__main__":
    PAGE.write_text(page())
