"""Tables of results: medians, ranges, ratios, and whether the aims are met."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from benchmarks.joins import JOINS
from benchmarks.measure import Reading, Run
from benchmarks.systems import SYSTEMS


@dataclass(frozen=True, slots=True)
class Aim:
    """A target ratio of CPU seconds: `of` over `to`, at most or at least `bound`."""

    keys: int
    rows_per_batch: int
    of: str
    to: str | None
    """None: the bound is in CPU seconds per million rows."""
    bound: float
    at_most: bool = True
    windows: str = "tumbling"
    to_windows: str | None = None
    """The windows of `to`, if they differ from those of `of`."""
    to_keys: int | None = None
    """The number of keys of `to`, if it differs from that of `of`."""


_Position = tuple[str, int, int]
"""Windows, number of keys, rows per micro-batch."""

AIMS = [
    aim
    for kernel, native in (("kernel-aipws", "native"), ("kernel-tws", "native-rocksdb"))
    for aim in (
        Aim(100_000, 500_000, "naive", kernel, 25.0, at_most=False),
        Aim(100_000, 500_000, kernel, native, 0.7),
        Aim(1_000, 500_000, kernel, native, 1.0),
        Aim(1_000, 500_000, kernel, "ceiling", 1.5),
        Aim(100_000, 60_000, kernel, native, 1.1),
        Aim(1_000, 60_000, kernel, native, 1.1),
        Aim(1_000, 60_000, kernel, native, 1.25),
        Aim(1_000, 1_000, kernel, native, 1.2),
        Aim(100_000, 500_000, kernel, native, 0.55, windows="session"),
        Aim(100_000, 500_000, kernel, native, 0.5, windows="hopping"),
        Aim(100_000, 60_000, kernel, native, 1.0, windows="session"),
        Aim(100_000, 60_000, kernel, native, 1.0, windows="hopping"),
        Aim(100_000, 500_000, kernel, kernel, 2.0, windows="sliding", to_windows="tumbling"),
        Aim(100_000, 60_000, kernel, native, 1.0, windows="sliding", to_windows="tumbling"),
        Aim(100_000, 500_000, kernel, kernel, 1.3, windows="patterns", to_windows="tumbling"),
        Aim(100_000, 500_000, kernel, kernel, 1.3, windows="patterns-hot", to_windows="tumbling"),
        Aim(100_000, 500_000, "naive", kernel, 15.0, at_most=False, windows="per-key"),
        Aim(10_000_000, 500_000, kernel, None, 1e6 / 300_000, windows="seen"),
        *(
            aim
            for rows in (500_000, 60_000)
            for aim in (
                Aim(500_000, rows, kernel, native, 0.5, windows="interval"),
                Aim(10_000, rows, "naive", kernel, 10.0, at_most=False, windows="temporal"),
            )
        ),
        Aim(100_000, 500_000, kernel, None, 1e6 / 100_000, windows="tables"),
        Aim(100_000, 500_000, kernel, kernel, 3.0, windows="search", to_keys=1_000),
        Aim(1_000_000, 500_000, kernel, kernel, 3.0, windows="search", to_keys=1_000),
        *(
            aim
            for keys in (1_000, 10_000)
            for aim in (
                Aim(keys, 500_000, kernel, native, 0.5, windows="distinct"),
                Aim(keys, 60_000, kernel, native, 1.0, windows="distinct"),
                Aim(keys, 500_000, "naive", kernel, 20.0, at_most=False, windows="distinct"),
            )
        ),
    )
]


@dataclass(frozen=True, slots=True)
class _Figure:
    """All repeats of one system in one cell."""

    readings: tuple[Reading, ...]
    divisor: int
    state_bytes: int
    """State at the end of a run, as reported by Spark."""

    @property
    def total(self) -> float:
        return median(reading.per_million for reading in self.readings)

    @property
    def spread(self) -> str:
        values = [reading.per_million for reading in self.readings]
        return f"{_number(min(values))} to {_number(max(values))}"

    @property
    def jvm(self) -> float:
        return median((r.jvm + r.helpers) / r.rows * 1e6 for r in self.readings)

    @property
    def python(self) -> float:
        return median(r.python / r.rows * 1e6 for r in self.readings)


_Cell = dict[str, _Figure]
_TITLES = {
    "patterns": "Patterns",
    "patterns-hot": "Patterns, half of all events in one key",
    "patterns-starts": "Patterns, every row starts a match",
    "patterns-cut": "Patterns, the bound cuts every match off",
    "patterns-absent": "Patterns, absence discards nearly every match",
    "per-key": "A function per key",
    "distinct": "Distinct items in tumbling windows of ten minutes",
    "seen": "Suppression of duplicates",
    "interval": "Left outer interval join, within an hour",
    "temporal": "Temporal join",
    "tables": "Join of two tables that change",
    "search": "Stored queries, about one match per document",
}
_UNITS = {
    "seen": "items",
    "interval": "searches an hour",
    "tables": "rows of the left",
    "search": "queries",
}


def cells(runs: Iterable[Run]) -> dict[_Position, _Cell]:
    """Group the readings of all runs by workload, then by system."""
    gathered: dict[_Position, dict[str, list[tuple[Reading, Run]]]] = {}
    for run in runs:
        for reading in run.readings:
            cell = gathered.setdefault(
                (run.workload.windows, run.workload.keys, reading.rows_per_batch), {}
            )
            cell.setdefault(run.system, []).append((reading, run))
    return {
        position: {name: _figure(cell[name]) for name in SYSTEMS if name in cell}
        for position, cell in sorted(gathered.items(), key=lambda item: _order(item[0]))
    }


def _figure(readings: list[tuple[Reading, Run]]) -> _Figure:
    _, run = readings[0]
    measured = tuple(reading for reading, _ in readings)
    return _Figure(measured, run.workload.divisor, run.state_bytes)


def _order(position: _Position) -> tuple[int, int, int]:
    windows, keys, rows = position
    types = (
        *("tumbling", "hopping", "session", "sliding"),
        *("patterns", "patterns-hot", "patterns-starts", "patterns-cut", "patterns-absent"),
        *("per-key", "distinct", "seen", *JOINS),
    )
    return types.index(windows), -keys, -rows


def markdown(runs: Iterable[Run]) -> str:
    """Return the tables of figures, one for each cell, and the table of aims."""
    table = cells(runs)
    lines: list[str] = []
    for (windows, keys, rows), cell in table.items():
        lines += [
            f"#### {_TITLES.get(windows, f'{windows.capitalize()} windows')}, {keys:,} "
            f"{_UNITS.get(windows, 'keys')}, micro-batches of {rows:,} rows",
            "",
            "| system | state store | CPU s per million rows | lowest to highest | JVM | Python "
            "| ÷ `native` | ÷ `native-rocksdb` | ÷ `ceiling` | state, MB | rows measured |",
            "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(_line(name, figure, cell) for name, figure in cell.items()),
            "",
        ]
    aims = [line for aim in AIMS if (line := _aim(aim, table)) is not None]
    if aims:
        lines += ["#### Aims", "", "| wanted | measured | |", "|---|---:|---|", *aims, ""]
    return "\n".join(lines)


def _line(name: str, figure: _Figure, cell: _Cell) -> str:
    replica = f", 1/{figure.divisor} replica" if figure.divisor > 1 else ""
    repeats = len(figure.readings)
    fields = [
        f"`{name}`{replica}",
        SYSTEMS[name].store,
        f"**{_number(figure.total)}**",
        figure.spread,
        _number(figure.jvm),
        _number(figure.python),
        *(_ratio(figure, cell.get(other)) for other in ("native", "native-rocksdb", "ceiling")),
        "" if SYSTEMS[name].store == "none" else f"{figure.state_bytes / 1e6:,.1f}",
        f"{repeats} x {figure.readings[0].rows:,}",
    ]
    return f"| {' | '.join(fields)} |"


def _aim(aim: Aim, table: dict[_Position, _Cell]) -> str | None:
    cell = table.get((aim.windows, aim.keys, aim.rows_per_batch), {})
    position = aim.to_windows or aim.windows, aim.to_keys or aim.keys, aim.rows_per_batch
    beside = table.get(position, {})
    if aim.of not in cell or (aim.to is not None and aim.to not in beside):
        return None
    ratio = cell[aim.of].total / (1.0 if aim.to is None else beside[aim.to].total)
    met = ratio <= aim.bound if aim.at_most else ratio >= aim.bound
    wanted = "at most" if aim.at_most else "at least"
    unit = _UNITS.get(aim.windows, "keys")
    other = f" on {aim.to_windows} windows" if aim.to_windows else ""
    other += f" with {aim.to_keys:,} {unit}" if aim.to_keys else ""
    bound = f"times `{aim.to}`{other}" if aim.to else "CPU s per million rows"
    return (
        f"| {aim.windows}, {aim.keys:,} {unit}, {aim.rows_per_batch:,} rows: `{aim.of}` {wanted} "
        f"{aim.bound:.3g} {bound} | {ratio:.2f} | {'met' if met else 'not met'} |"
    )


def _ratio(figure: _Figure, other: _Figure | None) -> str:
    return "" if other is None else f"{figure.total / other.total:.2f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
