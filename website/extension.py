"""What mkdocstrings shows of a docstring: all but the parts that pages have elsewhere."""

from __future__ import annotations

import re
from typing import Any

import griffe

from website.docstrings import Docstring, to_markdown

# Sections that griffe parses. Pages have the others themselves, with links.
_PARSED = ("Parameters", "Attributes", "Returns", "Raises", "Examples")


class StreamopsDocstrings(griffe.Extension):
    """Prepares docstrings for the parser and for Markdown."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of an object of streamops."""
        if obj.docstring is not None:
            obj.docstring.value = visible(obj.docstring.value)


def _types(section: str) -> str:
    """Join alternatives by "or": the parser shows a list with commas as a tuple."""
    lines = section.splitlines()
    return "\n".join(
        line if line.startswith(" ") else re.sub(r"(?<=[\w\"]), (?=[\"A-Z])", " or ", line)
        for line in lines
    )


def visible(text: str) -> str:
    """Return the docstring without "Notes", "See Also" and "References"; that of an operator also without
    its description and card.
    """
    docstring = Docstring.parse(text)
    parts = [] if docstring.card else [to_markdown(docstring.description)]
    for title, section in docstring.sections.items():
        if title in _PARSED:
            body = section if title == "Examples" else _types(to_markdown(section))
            parts.append(f"{title}\n{'-' * len(title)}\n{body}")
    return "\n\n".join(parts)
