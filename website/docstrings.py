"""Docstrings of streamops: numpydoc, with a card of seven lines in the middle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

# A line of the card: a label, at least two spaces, a text that may continue on indented lines.
_CARD_LINE = re.compile(r"^(?P<label>[A-Z][a-z]+(?: [a-z]+)?) {2,}(?P<text>\S.*)$")
_CARD_LABELS = {
    "Input",
    "Output",
    "Output mode",
    "Watermark",
    "State",
    "Order",
    "Batch",
    "Error",
    "Merge",
}
_SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z ]+)\n-{3,}\n", re.MULTILINE)
_SEE_ALSO = re.compile(r"^(?P<names>[\w.]+(?:, [\w.]+)*)(?: : (?P<text>.*))?$")
_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data):`~?(?P<name>[^`]+)`")


@dataclass(frozen=True)
class Docstring:
    """The parts of a docstring.

    ``description`` is what precedes the first section, without the card; ``sections`` maps titles to
    texts, in order.
    """

    description: str
    card: dict[str, str]
    sections: dict[str, str]

    @classmethod
    def parse(cls, text: str) -> Docstring:
        """Parse a docstring without indentation."""
        heads = list(_SECTION.finditer(text))
        sections = {
            head["title"]: text[head.end() : after.start() if after else len(text)].strip("\n")
            for head, after in zip_longest(heads, heads[1:])
        }
        description, card = _split_card(text[: heads[0].start()] if heads else text)
        return cls(description.strip(), card, sections)

    @property
    def summary(self) -> str:
        """The first sentence or paragraph."""
        return " ".join(self.description.partition("\n\n")[0].split())

    @property
    def see_also(self) -> Iterator[tuple[list[str], str]]:
        """The names and the text of every entry of "See Also"."""
        entries: list[str] = []
        for line in self.sections.get("See Also", "").splitlines():
            if line.startswith(" ") and entries:
                entries[-1] += f" {line.strip()}"
            elif line.strip():
                entries.append(line.strip())
        for entry in entries:
            match = _SEE_ALSO.match(entry)
            yield (match["names"].split(", "), match["text"] or "") if match else ([], entry)

    @property
    def references(self) -> list[str]:
        """The entries of "References": each ends with a full stop at the end of a line."""
        text = self.sections.get("References", "")
        return [" ".join(part.split()) for part in re.split(r"(?<=\.)\n", text) if part.strip()]


def _split_card(text: str) -> tuple[str, dict[str, str]]:
    card: dict[str, str] = {}
    others, label = [], ""
    for line in text.splitlines():
        match = _CARD_LINE.match(line)
        if match and match["label"] in _CARD_LABELS:
            label = match["label"]
            card[label] = match["text"]
        elif label and line.startswith("   "):
            card[label] += f" {line.strip()}"
        else:
            label = ""
            others.append(line)
    return "\n".join(others), card


_BORDER = re.compile(r" *=+(?: +=+)+")


def to_markdown(text: str) -> str:
    """Replace the markup of docstrings that Markdown does not have: roles, and two backticks."""
    text = _rst_tables(text)  # first: their columns have the width of the markup
    text = _ROLE.sub(lambda role: f"`{role['name']}`", text)
    return re.sub(r"``([^`\n]+(?:\n[^`\n]+)?)``", r"`\1`", text)


def _rst_tables(text: str) -> str:
    """Replace simple tables, whose first and last line are equals signs, by those of Markdown."""
    result: list[str] = []
    table: list[str] = []
    for line in text.splitlines():
        if not table and not _BORDER.fullmatch(line):
            result.append(line)
        elif line.strip():
            table.append(line)
        else:
            result += [*_markdown_table(table), line]
            table = []
    return "\n".join([*result, *_markdown_table(table)])


def _markdown_table(lines: list[str]) -> Iterator[str]:
    """A table with a head has a third line of equals signs, below it."""
    if not lines:
        return
    starts = [found.start() for found in re.finditer("=+", lines[0])]
    columns = [slice(*bounds) for bounds in zip_longest(starts, starts[1:])]
    rows: list[list[str]] = []
    for line in lines:
        cells = [line[column].strip() for column in columns]
        if _BORDER.fullmatch(line):
            continue
        if cells[0]:
            rows.append(cells)
        else:  # the line above goes on
            rows[-1] = [f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)]
    has_head = sum(map(bool, map(_BORDER.fullmatch, lines))) == 3
    head = rows.pop(0) if has_head else [""] * len(columns)
    for row in (head, ["---"] * len(columns), *rows):
        yield f"| {' | '.join(row)} |"


# What is code in a text that does not mark it: calls, assignments, dotted names, names with
# underscores, placeholders, and quoted text.
_CODE = re.compile(
    r"""`[^`]+`                                       # marked already
    | (?<![\w'"])\w[\w.]*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)(?:\.\w+\([^()]*\))*   # a call
    | (?<![\w'"])(?:\w[\w.]*|\{\w+\})=(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*'|[\w.{}]+)   # an argument
    | (?<![\w'"])[a-z]\w*(?:\.\w+)+                  # a dotted name
    | (?:struct|array|map)<[^<>]*>                     # a nested type
    | '[^'\s]+'(?=[\s,;:.)]|$)                         # a quoted word
    | (?<![\w'"])_?[a-z]+_[a-z_]+\b                  # a name with underscores
    | \{\w+\}                                          # a placeholder
    """,
    re.VERBOSE,
)


def mark_code(text: str) -> str:
    """Mark the code in a message, and escape what Markdown would take for markup."""
    parts, end = [], 0
    for match in _CODE.finditer(text):
        parts.append(_escape(text[end : match.start()]))
        found = match[0]
        file = re.fullmatch(r"docs/([\w-]+\.md\S*)", found)
        parts.append(found if found.startswith("`") or file else f"`{found}`")
        end = match.end()
    return "".join([*parts, _escape(text[end:])])


def _escape(text: str) -> str:
    return re.sub(r"([<*_\[\]])", r"\\\1", text)
