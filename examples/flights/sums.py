"""Sums that must add up, and the lines of the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Sum", "line", "lines"]


@dataclass(frozen=True, slots=True)
class Sum:
    """Parts, and what they must add up to."""

    title: str
    parts: dict[str, int]
    total: str
    expected: int

    @property
    def holds(self) -> bool:
        """Whether they do."""
        return sum(self.parts.values()) == self.expected


def lines(columns: Mapping[str, Sequence[Sum | None]]) -> Iterator[str]:
    """Sums as text.

    Parameters
    ----------
    columns : mapping of str to sequence
        The sums of each column under its heading, in one order; None where there is nothing to add.
        Where nothing is all that there should be, nothing is said.
    """
    yield line("", [*columns])
    for sums in zip(*columns.values(), strict=True):
        first = next((each for each in sums if each is not None), None)
        if first is None or not any(
            each and (each.expected or any(each.parts.values())) for each in sums
        ):
            continue
        yield first.title
        for part in first.parts:
            yield line(f"  {part}", [each and each.parts[part] for each in sums])
        off = any(each is not None and not each.holds for each in sums)
        verdict = "DOES NOT ADD UP" if off else "adds up"
        yield line(f"  = {first.total}", [each and each.expected for each in sums], verdict)


def line(label: str, values: Sequence[int | str | None], remark: str = "") -> str:
    """A line of the report: a label, its numbers, and what is to be said of them."""
    words = ["–" if v is None else f"{v:,}" if isinstance(v, int) else v for v in values]
    return f"{label:<42}{''.join(f'{word:>14}' for word in words)}   {remark}".rstrip()
