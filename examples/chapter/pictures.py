"""The figures as pictures, drawn with matplotlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure

from examples.chapter import figures
from streamops.plots import COLORS

GOOD, BAD, TEXT, SOFT = (COLORS[name] for name in ("on_time", "corrected", "text", "label"))
LANE = {"va": "center", "color": TEXT, "fontsize": 10}


def _axes(title: str, height: float, columns: int = 1) -> Any:
    figure = Figure((8.5, height), layout="constrained", facecolor=COLORS["background"])
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold", color=TEXT)
    found = figure.subplots(1, columns, squeeze=False)[0]
    for axes in found:
        axes.spines[:].set_visible(False)
        axes.tick_params(colors=SOFT, length=0)
        axes.grid(axis="x", color=COLORS["grid"])
        axes.set_axisbelow(True)
    return found if columns > 1 else found[0]


def _lanes(axes: Axes, names: list[str]) -> None:
    axes.set_yticks(range(len(names)), names, color=TEXT)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _box(
    axes: Axes, x: float, y: float, label: object, color: str = GOOD, *, dashed: bool = False
) -> None:
    style = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": color}
    style["linestyle"] = "--" if dashed else "-"
    axes.text(x, y, str(label), ha="center", va="center", color=color, fontsize=9, bbox=style)


def _figure(axes: Axes) -> Figure:
    return axes.get_figure(root=True)  # type: ignore[return-value]


def draw_sharing(groups: list[figures.Deliveries]) -> Figure:
    """Draw figure 11-1."""
    axes = _axes("Load balancing within a group of consumers, fan-out to all groups", 3)
    lanes: list[str] = []
    for group, handled in groups:
        for consumer, messages in handled.items():
            for message in messages:
                _box(axes, message, len(lanes), message)
            lanes.append(f"{group}, task {consumer}")
    _lanes(axes, lanes)
    axes.set_xlim(-1, max(m for _, h in groups for part in h.values() for m in part) + 1)
    axes.set_xlabel("message", color=SOFT)
    return _figure(axes)


def draw_redelivery(found: figures.Redelivery) -> Figure:
    """Draw figure 11-2."""
    axes = _axes("Message 3 is delivered again after message 4", 2.4)
    for tick, consumer, message in found.deliveries:
        _box(axes, tick, consumer - 1, message, BAD if message == found.failed[2] else GOOD)
    tick, consumer, message = found.failed
    _box(axes, tick, consumer - 1, f"{message}: crash", BAD, dashed=True)
    _lanes(axes, ["consumer 1", "consumer 2"])
    axes.set_xlim(0.5, max(tick for tick, _, _ in found.deliveries) + 2.2)
    axes.set_xticks([])
    for y, name, table in (
        (0, "by arrival", found.by_arrival),
        (1, "by sequence", found.by_sequence),
    ):
        color = BAD if table["tea"] != found.by_sequence["tea"] else GOOD
        axes.text(
            axes.get_xlim()[1],
            y,
            f"tea {name}: {table['tea']}",
            ha="right",
            **LANE | {"color": color},
        )
    return _figure(axes)


def draw_log(log: figures.Log) -> Figure:
    """Draw figure 11-3."""
    axes = _axes("A consumer is an offset into each partition of the log", 2.8)
    for number, partition in enumerate(log.partitions):
        for offset, (key, value) in enumerate(partition):
            _box(axes, offset, number, f"{key}{value}")
    for (name, offsets), color in zip(log.offsets.items(), (SOFT, BAD), strict=True):
        for number, offset in enumerate(offsets):
            label = name if number == 0 else None
            axes.plot(
                [offset - 0.5] * 2, [number - 0.4, number + 0.4], color=color, lw=3, label=label
            )
    _lanes(axes, [f"partition {number}" for number in range(len(log.partitions))])
    axes.set_xlim(-0.7, max(map(len, log.partitions)) + 2.5)
    axes.set_xticks(range(0, max(map(len, log.partitions)), 2))
    axes.set_xlabel("offset", color=SOFT)
    axes.legend(loc="upper right", frameon=False, labelcolor=TEXT, fontsize=9)
    return _figure(axes)


def draw_race(found: figures.Race) -> Figure:
    """Draw figure 11-4."""
    count, pairs = int(found.by_dual_writes.sum()), len(found.begun)
    axes = _axes(
        f"Dual writes: {count:,} of {pairs:,} products differ between the two; by the log, none",
        2.8,
    )
    # The clearest of the pairs that differ.
    least = np.abs(np.diff(found.arrived, axis=2)).min(axis=(1, 2))
    pair = int(np.where(found.by_dual_writes, least, 0).argmax())
    for client, (color, lane) in enumerate(((GOOD, 0), (BAD, 3))):
        times = [found.begun[pair, client], *found.arrived[pair, :, client]]
        axes.plot(times, [lane, 1, 2], "o-", color=color, lw=1.2, ms=7)
    for lane, arrived in ((1, found.arrived[pair, 0]), (2, found.arrived[pair, 1])):
        last = int(arrived.argmax())
        text = f"stays: client {last + 1}"
        axes.text(
            found.arrived[pair].max() * 1.06, lane, text, **LANE | {"color": (GOOD, BAD)[last]}
        )
    _lanes(axes, ["client 1", "database", "index", "client 2"])
    axes.set_xlim(0, found.arrived[pair].max() * 1.3)
    axes.set_xlabel("milliseconds", color=SOFT)
    return _figure(axes)


def draw_followers(found: figures.Followers) -> Figure:
    """Draw figure 11-5."""
    axes = _axes("Followers apply the log of their leader, each in its own time", 3)
    axes.plot([0, found.length], [0, found.length], color=SOFT, ls="--", label="leader")
    for (name, steps), color in zip(found.progress.items(), (GOOD, BAD), strict=True):
        axes.step(
            *zip(*steps, strict=True), where="post", color=color, label=name, marker="o", ms=4
        )
    axes.set_xlim(0, found.length + 5)
    axes.set_xlabel("seconds", color=SOFT)
    axes.set_ylabel("writes of the log", color=SOFT)
    axes.legend(frameon=False, labelcolor=TEXT, fontsize=9)
    return _figure(axes)


def draw_calculus(found: figures.Calculus) -> Figure:
    """Draw figure 11-6."""
    state, stream = _axes(
        "The state is the integral of the stream; the stream, the derivative of the state", 2.8, 2
    )
    numbers = range(len(found.totals))
    state.step(numbers, found.totals, where="post", color=GOOD, lw=1.8)
    stream.bar(numbers, found.net, color=[GOOD if n > 0 else BAD for n in found.net])
    for axes, name in ((state, "pieces in stock"), (stream, "net change of each micro-batch")):
        axes.set_title(name, loc="left", fontsize=10, color=TEXT)
        axes.set_xlabel("micro-batch", color=SOFT)
    return _figure(state)


def draw_clocks(found: figures.Clocks) -> Figure:
    """Draw figure 11-7."""
    both = _axes("A backlog is a spike by processing time, and nothing by event time", 2.8, 2)
    top = 1.1 * max(found.by_processing_time.values())
    names = "processed", "happened"
    for axes, name, rates in zip(
        both, names, (found.by_processing_time, found.by_event_time), strict=True
    ):
        axes.bar(
            [*rates],
            [*rates.values()],
            width=1 / 24 / 60,
            color=GOOD if name == "happened" else BAD,
        )
        axes.axvspan(*found.down, color=COLORS["grid"], zorder=0)
        axes.set_title(
            f"requests by the minute in which they {'were ' * (name == 'processed')}{name}",
            loc="left",
            fontsize=10,
            color=TEXT,
        )
        axes.set_ylim(0, top)
        axes.xaxis.set_major_formatter(DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
        axes.set_xticks([*rates][::10])
    return _figure(both[0])
