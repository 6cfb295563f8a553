"""Tables and the chart of the comparison, from records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.inputs import WORKLOADS
from benchmarks.peers.latency import EVERY_S, MEASURED, MEASURED_S, Latency
from benchmarks.peers.running import Result
from benchmarks.peers.systems import SYSTEMS
from benchmarks.tables import replace_between

CHART = Path(__file__).parents[1] / "peers.svg"
STREAMING = [name for name, system in SYSTEMS.items() if not system.is_limit]
WANTED_WINS = 8

_Figures = dict[tuple[int, str, str], list[float]]
"""CPU seconds per million rows of all repeats, by number of keys, workload and system."""


def page(records: Sequence[dict[str, Any]]) -> str:
    """Return the tables, in Markdown."""
    runs = [Result.from_record(run) for record in records for run in record["runs"]]
    failures = [failure for record in records for failure in record["failures"]]
    latencies = [Latency.from_record(run) for record in records for run in record["latencies"]]
    parts = [_head(records, runs)]
    figures = _figures(runs)
    for keys in sorted({keys for keys, _, _ in figures}):
        parts.append(_table(keys, figures, failures))
    if latencies:
        parts.append(_latency_table(latencies))
    parts.append(_notes(figures, failures))
    return "\n\n".join(parts)


def write(text: str, records: Sequence[dict[str, Any]]) -> None:
    """Put text and chart into results/README.md."""
    runs = [Result.from_record(run) for record in records for run in record["runs"]]
    draw(_figures(runs), CHART)
    picture = "![CPU seconds per million rows of all systems and workloads](../peers.svg)"
    command = "python -m benchmarks.peers --write"
    replace_between("peers", command, f"{picture}\n\n{text}")


def draw(figures: _Figures, target: Path) -> None:
    """Draw one row per workload and one mark per system, on a logarithmic axis."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "streamops"  # the same bytes for the same figures
    from matplotlib import pyplot as plt

    counts = sorted({keys for keys, _, _ in figures})
    drawn, axes = plt.subplots(
        1,
        len(counts),
        sharey=True,
        figsize=(5.2 * len(counts), 5.0),
        squeeze=False,
        layout="constrained",
    )
    marks = dict(zip(SYSTEMS, "osD^vx+", strict=True))
    colors = dict(zip(SYSTEMS, ("C3", "C0", "C4", "C1", "C2", "0.5", "0.5"), strict=True))
    for axis, keys in zip(axes[0], counts, strict=True):
        for name in SYSTEMS:
            points = [
                (median(figures[keys, windows, name]), row)
                for row, windows in enumerate(WORKLOADS)
                if (keys, windows, name) in figures
            ]
            if points:
                size = 80 if name == "streamops" else 40
                x, y = zip(*points, strict=True)
                axis.scatter(x, y, size, colors[name], marker=marks[name], label=_title(name))
        axis.set(
            xscale="log",
            title=f"{keys:,} keys",
            xlabel="CPU seconds per million rows (less is better)",
        )
        axis.set_yticks(range(len(WORKLOADS)), WORKLOADS.values())
        axis.xaxis.set_major_formatter("{x:g}")
        axis.grid(axis="both", alpha=0.3)
    axes[0][0].invert_yaxis()
    drawn.suptitle("Cost of the same ten workloads in streamops and other engines, on two cores")
    handles, labels = axes[0][-1].get_legend_handles_labels()
    drawn.legend(handles, labels, ncols=len(labels), loc="outside lower center", frameon=False)
    drawn.savefig(target, metadata={"Date": None})
    plt.close(drawn)


def _title(name: str) -> str:
    if name == "native":
        return "native Spark"
    return f"{name} (batch)" if SYSTEMS[name].is_limit else name


def _figures(runs: Iterable[Result]) -> _Figures:
    figures: _Figures = {}
    for run in runs:
        figures.setdefault((run.keys, run.windows, run.system), []).append(run.per_million)
    return figures


def _head(records: Sequence[dict[str, Any]], runs: Sequence[Result]) -> str:
    machine = records[0]["machine"]
    versions = {name: text for record in records for name, text in record["versions"].items()}
    loads = [run.load for run in runs] or [0.0]
    quick = (
        " **Quick run: fewer rows than a figure to quote needs.**" if records[0]["quick"] else ""
    )
    return (
        f"Run of {records[0]['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB; "
        f"{', '.join(f'{name} {text}' for name, text in versions.items())}; PySpark {machine['pyspark']}. "
        f"Load average before the runs {min(loads):.1f} to {max(loads):.1f}.{quick}"
    )


def _table(keys: int, figures: _Figures, failures: Sequence[dict[str, Any]]) -> str:
    names = [name for name in SYSTEMS if any(figure[2] == name for figure in figures)]
    heads = [_title(name) for name in names]
    lines = [
        f"#### CPU seconds per million rows, {keys:,} keys",
        "",
        f"| workload | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(names)}",
    ]
    wins, compared = 0, 0
    for windows, title in WORKLOADS.items():
        row = {
            name: figures[keys, windows, name] for name in names if (keys, windows, name) in figures
        }
        if not row:
            continue
        streaming = {name: median(row[name]) for name in row if name in STREAMING}
        best = min(streaming, key=streaming.__getitem__, default="")
        if "streamops" in streaming:
            compared += 1
            wins += best == "streamops"
        failed = {
            f["system"]
            for f in failures
            if (f["what"], f["windows"], f["keys"]) == ("cpu", windows, keys)
        }
        cells = [
            _cell(name, windows, row.get(name), name == best, name in failed) for name in names
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    if compared:
        lines += [
            "",
            f"streamops needs the least of the engines that stream on {wins} of {compared}.",
        ]
        if compared == len(WORKLOADS):
            lines[-1] += (
                f" Wanted: at least {WANTED_WINS}; {'met' if wins >= WANTED_WINS else 'not met'}."
            )
    return "\n".join(lines)


def _cell(name: str, windows: str, values: list[float] | None, best: bool, failed: bool) -> str:
    if values is None:
        return "failed" if failed else "none" if windows in SYSTEMS[name].lacks else ""
    text = _number(median(values))
    text = f"**{text}**" if best else text
    if len(values) > 1:
        text += f" ({_number(min(values))} to {_number(max(values))})"
    return f"{text} *" if windows in SYSTEMS[name].differs else text


def _latency_table(latencies: Sequence[Latency]) -> str:
    first = latencies[0]
    lines = [
        f"#### Latency in milliseconds at {first.rate:,} events a second, {first.keys:,} keys",
        "",
        "| system | "
        + " | ".join(f"{WORKLOADS[w]}, median | 99th percentile" for w in MEASURED)
        + " |",
        f"|---|{'---:|---:|' * len(MEASURED)}",
    ]
    for name in STREAMING:
        cells: list[str] = []
        for windows in MEASURED:
            found = [run for run in latencies if (run.system, run.windows) == (name, windows)]
            cells += [_latency(found, lambda run: run.median), _latency(found, lambda run: run.p99)]
        if any(cells):
            lines.append(f"| {_title(name)} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Events come in files, one every {EVERY_S * 1_000:.0f} ms, so an event waits for half of that on average. "
        f"Measured for {MEASURED_S} s. W1 has windows of one second here, and its latency begins at the end of a window.",
    ]
    return "\n".join(lines)


def _latency(runs: Sequence[Latency], read: Callable[[Latency], float]) -> str:
    if not runs:
        return ""
    text = _number(median(map(read, runs)))
    return f"{text}, falls behind" if any(run.falls_behind for run in runs) else text


def _notes(figures: _Figures, failures: Sequence[dict[str, Any]]) -> str:
    names = [name for name in SYSTEMS if any(figure[2] == name for figure in figures)]
    lines = ["Persisted while measured:", ""]
    lines += [f"- {name}: {SYSTEMS[name].state}" for name in names]
    lines += ["", "none: the engine has no operator for it. *: its results differ in kind.", ""]
    for name in names:
        system = SYSTEMS[name]
        lines += [
            f"- {name}, {WORKLOADS[w]}: {why}"
            for w, why in {**system.lacks, **system.differs}.items()
        ]
    if replicas := [name for name in names if SYSTEMS[name].divisor > 1]:
        lines.append(
            f"- {', '.join(replicas)}: measured on a replica at a quarter of the scale: a quarter of the keys, the "
            "rate and the rows"
        )
    for failure in failures:
        reason = failure["reason"].splitlines()[0][:200]
        lines.append(f"- {failure['system']}, {WORKLOADS[failure['windows']]}, failed: {reason}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
