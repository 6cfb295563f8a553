"""Pages that are generated from the code: one for each operator, and one for each family."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from website import errors
from website.docstrings import mark_code, to_markdown
from website.names import FAMILIES, Name, family_module, find_name, operators, public_names
from website.pictures import PICTURES

ROOT = Path(__file__).parents[1]
GUIDES = {
    "state": "operations.md#looking-into-a-checkpoint",
    "testing": "testing.md",
    **{name: f"{name}.md" for name in FAMILIES if (ROOT / "docs" / f"{name}.md").exists()},
}
# What a table of benchmarks/results/README.md is called that measures an operator.
_MEASURED = {
    "windows.tumbling": "Tumbling windows",
    "windows.hopping": "Hopping windows",
    "windows.session": "Session windows",
    "windows.sliding": "Sliding windows",
    "sketches.seen": "Suppression of duplicates",
    "joins.interval": "Left outer interval join",
    "joins.asof": "Temporal join",
    "joins.tables": "Join of two tables",
    "process.per_key": "A function per key",
    "patterns.match": "Patterns",
    "search.match": "Stored queries",
}
_SYSTEMS = {
    "kernel-aipws": "streamops, HDFS-backed",
    "kernel-tws": "streamops, RocksDB",
    "native": "Spark, HDFS-backed",
    "native-rocksdb": "Spark, RocksDB",
    "naive": "by hand",
}
_FLOW = ("Input", "Output")
_PROMISES = ("Output mode", "Watermark", "Order", "Batch", "Error", "Merge")
# Families whose operators are built on those of another.
_BUILT_ON = {"sourcing": "process", "patterns": "aggregates"}


def operator_page(name: Name) -> str:
    """Return the page of an operator."""
    docstring = name.docstring
    card = docstring.card
    parts = [
        f"---\ndescription: {_plain(docstring.summary)}\n---\n\n# {name.title}\n",
        f"{to_markdown(docstring.description)}\n",
        _picture(name),
        directive(name, heading="Usage", level=2),
        *_notes(name),
        "## Input and output\n",
        *(_definition(label, card[label]) for label in _FLOW),
        "## Guarantees\n",
        *(_definition(label, card[label]) for label in _PROMISES if label in card),
        *_fate(name),
        "See [Guarantees](../guarantees.md) for crashes, bad input and figures.\n",
        "## Cost\n",
        _definition("State", card["State"]),
        *_measured(name),
        "## Errors\n",
        *_errors(name),
        "## See also\n",
        *_see_also(name),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def family_page(family: str) -> str:
    """Return the page of a family: what it has, and the names without a page of their own."""
    own = operators(family)
    others = [n for n in public_names() if n.family == family and not n.is_operator]
    text = str(family_module(family).__doc__)
    parts = [f"# {FAMILIES[family]}\n", f"{_linked(to_markdown(text), family)}\n"]
    if family in GUIDES:
        parts.append(f"The guide: [{FAMILIES[family]}](../{GUIDES[family]}).\n")
    if own:
        parts += ["## Operators\n", "| operator | what it does |\n|---|---|"]
        parts += [f"| {_link(n)} | {to_markdown(n.docstring.summary)} |" for n in own]
        parts.append("")
    if others and own:
        parts.append("## Other names\n")
    for name in others:
        if not hasattr(name.value, "__qualname__"):  # a constant
            mark = "###" if own else "##"
            parts.append(f"{mark} {name.title} {{#{name.path}}}\n\n`{name.value!r}`\n")
            continue
        parts.append(directive(name, heading=name.title, level=3 if own else 2))
        parts += _notes(name)
        seen = list(_references(name))
        if seen:
            parts += ["**See also**\n", *seen]
    return "\n".join(parts)


def overview_page() -> str:
    """Return the first page of the reference of operators."""
    parts = [
        "# Operators\n",
        "An operator is a function from frame to frame, for `DataFrame.transform`, on streams and on batches. Every",
        "page states what enters and leaves an operator, what it guarantees, what it stores, and its errors.",
        "[Which operator do I need?](../which-operator.md) leads from a question to an operator.\n",
    ]
    for family, title in FAMILIES.items():
        parts.append(f"## [{title}]({family}.md)\n")
        parts.append("| name | what it does |\n|---|---|")
        for name in [n for n in public_names() if n.family == family]:
            parts.append(f"| {_link(name)} | {to_markdown(name.docstring.summary) or ' '} |")
        parts.append("")
    return "\n".join(parts)


def directive(name: Name, *, heading: str, level: int) -> str:
    """Return the directive by which mkdocstrings renders a name."""
    return (
        f"::: {name.path}\n    options:\n      heading: {heading}\n      toc_label: {heading}\n"
        f"      heading_level: {level}\n"
    )


def navigation() -> list[dict[str, list[str] | str]]:
    """Return the entries of the navigation for operators."""
    entries: list[dict[str, list[str] | str]] = []
    for family, title in FAMILIES.items():
        pages = [f"operators/{family}.md", *(name.page for name in operators(family))]
        entries.append({title: pages if len(pages) > 1 else pages[0]})
    return entries


def _link(name: Name) -> str:
    target = name.link.removeprefix("operators/")
    return f"[`{name.title}`]({target})"


def _linked(text: str, family: str) -> str:
    """Give the table of a family a head, and link the names in its first column."""

    def link(match: re.Match[str]) -> str:
        name = find_name(match[1], family)
        return match[0] if name is None else f"| [`{name.name}`]({_target(name)}) |"

    text = text.replace("|  |  |", "| name | what it does |", 1)
    return re.sub(r"^\| `(\w+)` \|", link, text, flags=re.MULTILINE)


def _target(name: Name) -> str:
    return name.link.removeprefix("operators/")


def _plain(text: str) -> str:
    return re.sub(r"[`:]", "", to_markdown(text))


def _picture(name: Name) -> str:
    """Return the picture of an operator, if there is one."""
    picture = PICTURES.get(name.title)
    return f"{picture.markdown('../')}\n" if picture else ""


def _definition(label: str, text: str) -> str:
    items = [mark_code(item.strip()) for item in text.split(" · ")]
    if len(items) == 1:
        return f"{label}\n:   {items[0]}\n"
    return "\n".join([f"{label}\n:   - {items[0]}", *(f"    - {item}" for item in items[1:]), ""])


def _notes(name: Name) -> list[str]:
    notes = name.docstring.sections.get("Notes")
    return [f"**Notes**\n\n{to_markdown(notes)}\n"] if notes else []


def _fate(name: Name) -> list[str]:
    """What happens to rows that cannot be used, from the guide to guarantees."""
    text = (ROOT / "docs" / "guarantees.md").read_text().partition("## Bad input")[2]
    for row in re.findall(r"^\| (.+) \|$", text.partition("\n## ")[0], re.MULTILINE):
        cells = [cell.strip() for cell in row.split(" | ")]
        names = re.split(r", | with ", cells[0])
        of_family = name.family in names and name.name not in ("running", "compare")
        if f"`{name.title}`" in names or of_family:
            labels = ("Accepted", "Side output", "Counted")
            return [f"Rows are {_fates(zip(labels, cells[1:], strict=False))}.\n"]
    return []


def _fates(cells: Iterator[tuple[str, str]] | zip[tuple[str, str]]) -> str:
    labels = {
        "Accepted": "accepted",
        "Side output": "in the side output with a reason",
        "Counted": "counted in the metrics",
    }
    return "; or ".join(f"{labels[label]} ({cell})" for label, cell in cells if cell.strip(" |"))


def _measured(name: Name) -> list[str]:
    """The measured cost: CPU seconds per million rows, from the page of the benchmarks."""
    title = _MEASURED.get(name.title)
    rows = [row for row in _tables() if title and row[0].startswith(title)]
    if not rows:
        return ["Not measured by a benchmark of its own. [Benchmarks](../benchmarks.md).\n"]
    used = [system for system in _SYSTEMS if any(system in figures for _, figures in rows)]
    heads = ["workload", *(_SYSTEMS[system] for system in used)]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * len(used)}"]
    for workload, figures in rows:
        lines.append(
            f"| {workload.removeprefix(f'{title}, ')} | {' | '.join(figures.get(s, '') for s in used)} |"
        )
    text = (
        "CPU seconds per million rows, of all processes. Compare figures of one row. "
        "[Workloads and method](../benchmarks-methods.md).\n"
    )
    return [text, "\n".join(lines)]


@cache
def _tables() -> list[tuple[str, dict[str, str]]]:
    """The title of each table of the benchmarks, and the CPU seconds by system."""
    text = (ROOT / "benchmarks" / "results" / "README.md").read_text()
    found = []
    for title, body in re.findall(r"^#### (.+)\n((?:(?!#).*\n)*)", text, re.MULTILINE):
        figures = re.findall(r"^\| `([\w-]+)`.*?\| \*\*([\d.,]+)\*\*", body, re.MULTILINE)
        if figures:
            found.append((title, dict(figures)))
    return found


def _errors(name: Name) -> list[str]:
    """The codes of the conditions that the modules of an operator name."""
    codes = {
        getattr(module.conditions, condition).code
        for module in _modules(name)
        if hasattr(module, "conditions")
        for condition in re.findall(r"\bconditions\.([A-Z][A-Z_0-9]*)", inspect.getsource(module))
    }
    named = set(re.findall(r"``([A-Z]\w+_\w+)``", name.value.__doc__)) & errors.by_code().keys()
    links = [f"[`{code}`](../errors.md#{errors.anchor(code)})" for code in sorted({*codes, *named})]
    text = " · ".join(links)
    return [
        *([f"{text}\n"] if text else []),
        "In addition, those that all operators have in common, about columns, durations, names and watermarks. "
        "[All errors](../errors.md).\n",
    ]


def _modules(name: Name) -> list[ModuleType]:
    """The modules of an operator: its own, and those of its family whose names they import."""
    families = {name.family, _BUILT_ON.get(name.family, name.family)}
    found: dict[str, ModuleType] = {}
    todo = [name.value.__module__]
    while todo:
        dotted = todo.pop()
        if dotted in found or not families & {*dotted.split(".")[1:2]}:
            continue
        found[dotted] = sys.modules[dotted]
        for value in vars(found[dotted]).values():
            origin = getattr(value, "__name__" if inspect.ismodule(value) else "__module__", None)
            todo.append(str(origin))
    return list(found.values())


def _see_also(name: Name) -> list[str]:
    guide = GUIDES[name.family]
    lines = [f"- [{FAMILIES[name.family]}](../{guide}): the guide"]
    return ["\n".join([*lines, *_references(name)])]


def _references(name: Name) -> Iterator[str]:
    for names, text in name.docstring.see_also:
        found = [find_name(other, name.family) for other in names]
        links = [
            f"`{other}`" if target is None else _link(target)
            for other, target in zip(names, found, strict=True)
        ]
        yield f"- {', '.join(links)}: {to_markdown(text)}" if links else f"- {to_markdown(text)}"
    for reference in name.docstring.references:
        yield f"- {mark_code(reference) if '`' not in reference else to_markdown(reference)}"
