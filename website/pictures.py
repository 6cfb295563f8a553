"""The pictures of the site, drawn when it is built."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Picture:
    """A picture: its name, and what it shows."""

    name: str
    alt: str

    def markdown(self, root: str) -> str:
        """Return the Markdown that shows it, in the colours of either scheme."""
        return "\n".join(
            f"![{self.alt}]({root}pictures/{self.name}-{scheme}.svg#only-{scheme})"
            for scheme in ("light", "dark")
        )


PICTURES: dict[str, Picture] = {}
