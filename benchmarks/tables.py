"""The tables of the page ``benchmarks/results/README.md``, which the benchmarks write."""

from __future__ import annotations

from pathlib import Path

TABLES = Path(__file__).with_name("results") / "README.md"


def markers(name: str, command: str) -> tuple[str, str]:
    """The comments between which a table stands; the command is what writes it."""
    return f"<!-- {name}: begin (written by `{command}`) -->", f"<!-- {name}: end -->"


def replace_between(name: str, command: str, text: str) -> None:
    """Put `text` between the markers of a table.

    Raises
    ------
    ValueError
        The page has no such markers.
    """
    begin, end = markers(name, command)
    before, found, rest = TABLES.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{TABLES} has no {begin} ... {end}")
    TABLES.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}")
