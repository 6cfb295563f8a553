"""The public names of streamops, and the pages that document them."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any

from website.docstrings import Docstring

# In the order of the navigation: what a pipeline does, from its source to its sink, and what surrounds it.
FAMILIES = {
    "windows": "Windows",
    "aggregates": "Aggregates",
    "sketches": "Sketches",
    "joins": "Joins",
    "patterns": "Patterns",
    "search": "Stored queries",
    "process": "Functions per key",
    "sourcing": "Event sourcing",
    "changes": "Change streams",
    "time": "Event times",
    "sources": "Sources",
    "sinks": "Sinks",
    "observe": "Observation",
    "erasure": "Erasure",
    "state": "Checkpoints",
    "testing": "Test kit",
    "plots": "Plots",
}
FUNCTIONS = ("local_session", "split_side_output")


@dataclass(frozen=True)
class Name:
    """A public name of a family, such as ``tumbling`` of ``windows``."""

    family: str
    name: str

    @property
    def title(self) -> str:
        """The name as users write it: ``windows.tumbling``."""
        return f"{self.family}.{self.name}"

    @property
    def value(self) -> Any:
        """The object."""
        return getattr(family_module(self.family), self.name)

    @property
    def docstring(self) -> Docstring:
        """Its docstring, parsed."""
        return Docstring.parse(inspect.getdoc(self.value) or "")

    @property
    def path(self) -> str:
        """Where the object is defined. The public path may name a module instead: an operator is in a
        module of its name.
        """
        if hasattr(self.value, "__qualname__"):
            return f"{self.value.__module__}.{self.value.__qualname__}"
        return f"streamops.{self.title}"

    @property
    def is_operator(self) -> bool:
        """Whether it has a page of its own: all whose docstring has the card of an operator."""
        return inspect.isroutine(self.value) and "Output mode" in self.docstring.card

    @property
    def page(self) -> str:
        """The page with its documentation, relative to the root of the site."""
        return f"operators/{self.title if self.is_operator else self.family}.md"

    @property
    def link(self) -> str:
        """The page, and on the page of a family the heading."""
        return self.page if self.is_operator else f"{self.page}#{self.path}"


def family_module(family: str) -> Any:
    """Return the module of a family."""
    return importlib.import_module(f"streamops.{family}")


@cache
def public_names() -> tuple[Name, ...]:
    """Return all public names, in the order of families, operators first, then by alphabet."""
    names = [Name(family, name) for family in FAMILIES for name in family_module(family).__all__]
    return tuple(
        sorted(
            names,
            key=lambda name: (list(FAMILIES).index(name.family), not name.is_operator, name.name),
        )
    )


def operators(family: str | None = None) -> list[Name]:
    """Return the names with a page of their own, of one family or of all."""
    return [n for n in public_names() if n.is_operator and family in (None, n.family)]


def find_name(text: str, family: str) -> Name | None:
    """Return the name that a docstring of this family refers to: ``hopping`` or ``windows.hopping``."""
    module, _, name = text.removeprefix("streamops.").rpartition(".")
    wanted = Name(module or family, name)
    return wanted if wanted in public_names() else None
