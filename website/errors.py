"""Write docs/errors.md: every error code with its conditions, from the `conditions.py` of all packages.

python -m website.errors
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import Formatter

from streamops import errors
from streamops.kernel import codes
from streamops.kernel.errors import Condition, StreamopsError
from website.docstrings import mark_code

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
codes, by class, with the conditions under which each is raised. `python -m website.errors` writes it. What a message names, such
as a column, is *in italics*. Every message ends with the address of its code on this page.

All classes are in `streamops.errors`, derive from `StreamopsError`, and have the facts as attributes: `code`, `what`,
`where`, `got`, `expected`, `fix`, and `facts`, a mapping with the values that the texts name. Catch them by class, and compare the code:

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

| class | meaning | codes |
|---|---|---|
"""
_MARKED = re.compile("\ue000(.*?)\ue001")
# In the order of the module, which is that in which users meet them.
_CLASSES = [name for name in re.findall(r"^``(\w+)``", str(errors.__doc__), re.MULTILINE)]


@cache
def conditions() -> dict[str, Condition[StreamopsError]]:
    """Return every condition, by module and name."""
    return {
        f"{package}.{name}": value
        for path in sorted((ROOT / "streamops").rglob("conditions.py"))
        for package in [".".join(path.relative_to(ROOT).parts[:-1])]
        for name, value in vars(importlib.import_module(f"{package}.conditions")).items()
        if isinstance(value, Condition)
    }


@cache
def by_code() -> dict[str, dict[str, Condition[StreamopsError]]]:
    """Return the conditions of every code, by module and name."""
    found = defaultdict[str, dict[str, Condition[StreamopsError]]](dict)
    for name, condition in conditions().items():
        found[condition.code][name] = condition
    return dict(found)


def families(names: Iterable[str]) -> list[str]:
    """Return the families that have conditions of these names."""
    return sorted({name.split(".")[1] for name in names} - _SHARED)


def anchor(code: str) -> str:
    """Return the anchor of a code on the page."""
    return code.lower()


def page() -> str:
    """Return the page."""
    classes = defaultdict(list)
    for code in by_code():
        classes[getattr(codes, code).error_type.__name__].append(code)
    lines, parts = [_HEAD.rstrip("\n")], []
    for name in filter(classes.get, _CLASSES):
        summary = " ".join(str(getattr(errors, name).__doc__).partition("\n\n")[0].split())
        links = " · ".join(f"[`{code}`](#{anchor(code)})" for code in sorted(classes[name]))
        lines.append(f"| [`{name}`](#{name.lower()}) | {summary} | {links} |")
        parts.append(f"\n## {name}\n\n{summary}")
        parts += [_entry(code, by_code()[code]) for code in sorted(classes[name])]
    return "\n".join([*lines, *parts]) + "\n"


def _entry(code: str, of_code: dict[str, Condition[StreamopsError]]) -> str:
    rows = defaultdict[tuple[str, str], list[str]](list)
    for name, condition in of_code.items():
        rows[cell(fill(condition.what)), cell(fill(condition.fix))].append(name)
    lines = [f"\n### {code}\n", "| condition | remedy | raised by |", "|---|---|---|"]
    for (cause, remedy), names in sorted(rows.items()):
        found = ", ".join(f"`{name}`" for name in families(names)) or "all"
        lines.append(f"| {cause} | {remedy} | {found} |")
    return "\n".join(lines)


def fill(template: str) -> str:
    """Return a template with the names of its facts, between marks, in the place of the facts."""
    parts = Formatter().parse(template)
    return "".join(text + (f"\ue000{name}\ue001" if name else "") for text, name, _, _ in parts)


def cell(text: str) -> str:
    """Return a text with marked facts as the cell of a table; facts in italics, or <so> within code."""
    # A fact that may be empty directly follows a word.
    text = re.sub(r"(?<=[\w\ue001])\ue000", " \ue000", text)
    parts = mark_code(text).replace("|", "\\|").split("`")
    parts[::2] = [
        _MARKED.sub(lambda fact: f"*{fact[1].replace('_', ' ')}*", part.replace("\\_", "_"))
        for part in parts[::2]
    ]
    parts[1::2] = [_MARKED.sub(r"<\1>", part) for part in parts[1::2]]
    return "`".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
