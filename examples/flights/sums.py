"""Sums that must add up, and the format of the report."""

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
        The sums by column heading, in the same order; None where there is no sum. Sums of zeros only
        are left out.
    """
    yield line("", [*columns])
    for sums in zip(*columns.values(), strict=True):
        first = next((total for total in sums if total is not None), None)
        if first is None or not any(
            total and (total.expected or any(total.parts.values())) for total in sums
        ):
            continue
        yield first.title
        for part in first.parts:
            yield line(f"  {part}", [total and total.parts[part] for total in sums])
        off = any(total is not None and not total.holds for total in sums)
        verdict = "DOES NOT ADD UP" if off else "adds up"
        yield line(f"  = {first.total}", [total and total.expected for total in sums], verdict)


def line(label: str, values: Sequence[int | str | None], remark: str = "") -> str:
    """A line of the report: a label, its numbers, and a remark."""
    cells = ["–" if v is None else f"{v:,}" if isinstance(v, int) else v for v in values]
    return f"{label:<42}{''.join(f'{cell:>14}' for cell in cells)}   {remark}".rstrip()
