"""The pictures of the site, drawn by `streamops.plots` from results of the operators when it is built.

python -m website.pictures build/pictures    # draws them into a folder
python -m website.pictures                   # draws the one of the README, which is checked in
"""

from __future__ import annotations

import datetime as dt
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from streamops import aggregates as agg
from streamops import changes, joins, patterns, plots, windows
from streamops.testing import at as second
from streamops.testing import replay

_SCRIPT = ((3, 8), (6, 16), (9,), (4, 21), (12, 45), (7, 12), (2,))
_STYLE: dict[Any, Any] = {"svg.hashsalt": "streamops", "savefig.facecolor": "white", "font.size": 9}


@dataclass(frozen=True)
class Picture:
    """A picture: what it shows, and the function that draws it into axes."""

    name: str
    alt: str
    draw: Callable[[Axes], Any]
    height: float = 2.6

    def markdown(self, root: str) -> str:
        """Return the Markdown that shows it."""
        return f"![{self.alt}]({root}pictures/{self.name}.svg){{ .drawn }}"

    def svg(self) -> bytes:
        """Return the drawn picture."""
        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=(7.5, self.height), layout="constrained")
            self.draw(figure.subplots())
            written = io.BytesIO()
            figure.savefig(written, format="svg", metadata={"Date": None})
        return written.getvalue()


def at(minute: float) -> dt.datetime:
    """Minutes after nine."""
    return dt.datetime(2026, 3, 2, 9, tzinfo=dt.UTC) + dt.timedelta(minutes=minute)


def _clicks() -> list[dict[str, Any]]:
    return [
        {"ts": at(minute), "batch": number}
        for number, minutes in enumerate(_SCRIPT)
        for minute in minutes
    ]


def _windows(operator: Any) -> Callable[[Axes], Any]:
    def draw(ax: Axes) -> Axes:
        results = replay(operator, [_clicks()], flush=True)
        return plots.plot_windows(results, _clicks(), time="ts", label="n", ax=ax)

    return draw


def _sessions(ax: Axes) -> Axes:
    visits = windows.session("8 minutes", time="ts", agg=_COUNT, delay="1 hour")
    results = replay(visits, [_clicks()], flush=True)
    return plots.plot_sessions(results, _clicks(), gap="8 minutes", time="ts", label="n", ax=ax)


def _watermark(ax: Axes) -> Axes:
    return plots.plot_watermark(
        _clicks(),
        time="ts",
        arrival="batch",
        delay="5 minutes",
        allowed_lateness="20 minutes",
        ax=ax,
    )


def _corrections(ax: Axes) -> Axes:
    corrected = windows.tumbling(
        "10 minutes",
        time="ts",
        agg=_COUNT,
        delay="5 minutes",
        allowed_lateness="20 minutes",
        stragglers="retract",
        too_late="route",
    )
    batches = [[{"ts": at(minute)} for minute in minutes] for minutes in _SCRIPT]
    return plots.plot_corrections(replay(corrected, batches), time="ts", label="n", ax=ax)


def _straggler(ax: Axes) -> Axes:
    """The first example of the README."""
    per_page = windows.tumbling(
        "1 minute",
        time="ts",
        agg=_COUNT,
        delay="10 seconds",
        allowed_lateness="1 hour",
        stragglers="update",
    )
    script = ((5, 40), (75,), (80,), (55,))
    batches = [[{"ts": second(number)} for number in numbers] for numbers in script]
    events = [row | {"batch": number} for number, rows in enumerate(batches) for row in rows]
    results = replay(per_page, batches, flush=False)
    ax = plots.plot_corrections(results, events, time="ts", label="n", ax=ax)
    bottom = ax.get_ylim()[0]
    for time, share, text in ((75, 0.23, "the minute is over"), (55, 0.73, "a straggler")):
        at: Any = second(time - 1)
        ax.text(at, share * bottom, text, ha="right", va="center")
    return ax


def _late_share(ax: Axes) -> Axes:
    return plots.plot_late_share(_clicks(), time="ts", arrival="batch", delay="5 minutes", ax=ax)


def _interval(ax: Axes) -> Axes:
    """The interval of each search, and the clicks of the same query."""
    searches = [("a", 2), ("b", 10), ("c", 22)]
    clicks = [("a", 6), ("a", 9), ("b", 29), ("c", 30)]
    left: list[dict[str, Any]] = [
        {"query": query, "searched_at": at(minute)} for query, minute in searches
    ]
    right = [{"query": query, "ts": at(minute), "click": minute} for query, minute in clicks]
    clicked = joins.interval(
        None,
        "0 seconds",
        "15 minutes",
        by="query",
        time=("searched_at", "ts"),
        how="left",
        delay="1 hour",
    )
    results = replay(clicked, [(left, right)], flush=True)
    found = {
        row["query"] for result in results for row in result.rows if row["status"] == "matched"
    }
    intervals = [
        {
            "query": row["query"],
            "window_start": row["searched_at"],
            "window_end": row["searched_at"] + dt.timedelta(minutes=15),
            "status": "matched" if row["query"] in found else "expired",
        }
        for row in left
    ]
    ax = plots.plot_windows(intervals, right, by="query", time="ts", label="status", ax=ax)
    legend: Any = ax.get_legend()
    names = {"event": "a click", "window": "a search, and the 15 minutes after it"}
    for text in legend.get_texts():
        text.set_text(names[text.get_text()])
    return ax


def _matches(ax: Axes) -> Axes:
    attacks = patterns.match(
        "fail{3,} ok",
        define={"fail": "failed", "ok": "succeeded"},
        time="ts",
        by="user",
        within="10 minutes",
        delay="5 seconds",
        measures={"attempts": patterns.count("fail")},
    )
    logins = [("eve", m, m != 6) for m in (1, 2.5, 4, 6)]
    logins += [("bob", m, m == 3) for m in (2, 3, 5)]
    rows = [
        {
            "user": user,
            "ts": at(minute),
            "failed": failed,
            "succeeded": not failed,
            "type": "fail" if failed else "ok",
        }
        for user, minute, failed in logins
    ]
    found = replay(attacks, [rows], flush=True)
    return plots.plot_matches(
        found, rows, time="ts", by="user", category="type", label="attempts", ax=ax
    )


def _history(ax: Axes) -> Axes:
    versions = changes.apply("id", sequence="at", horizon="30 days", time="at", history="intervals")
    rows = [("ann", 0, "Bonn"), ("bob", 5, "Kiel"), ("ann", 40, "Berlin"), ("ann", 20, "Köln")]
    arrived = [[{"id": i, "at": at(m), "city": c, "_change_type": "insert"}] for i, m, c in rows]
    table: dict[tuple[Any, Any], dict[str, Any]] = {}
    for result in replay(versions, arrived):
        for row in result.rows:
            key = (row["id"], row["valid_from"])
            if row["_change_type"] in ("delete", "update_preimage"):
                table.pop(key, None)
            else:
                table[key] = row
    return plots.plot_history(list(table.values()), by="id", label="city", ax=ax)


def _error(ax: Axes) -> Axes:
    """The error of HyperLogLog for each precision, over the same 50,000 values."""
    exact = 50_000
    measured = []
    for p in range(6, 15):
        counted = windows.tumbling(
            "1 day", time="ts", agg={"n": agg.approx_count_distinct("v", p=p)}, delay="0 seconds"
        )
        for seed in range(3):
            values = np.arange(exact, dtype=np.int64) + seed * exact
            times = pa.array([at(0)] * exact, pa.timestamp("us", tz="UTC"))
            batch = pa.table({"ts": times, "v": values})
            (*_, last) = replay(counted, [batch], flush=True)
            error = abs(last.rows[0]["n"]["estimate"] - exact) / exact
            measured.append({"bytes": 2**p, "error": max(error, 1e-5), "rse": 1.04 / 2 ** (p / 2)})
    return plots.plot_error(measured, x="bytes", error="error", bound="rse", ax=ax)


def _state(ax: Axes) -> Axes:
    """Keys that come and go: the state of a window stays bounded."""
    per_minute = windows.tumbling("5 minutes", time="ts", by="k", agg=_COUNT, delay="2 minutes")
    batches = [[{"k": b * 20 + n, "ts": at(b + n / 20)} for n in range(20)] for b in range(40)]
    results = replay(per_minute, batches)
    return plots.plot_state(results, ax=ax)


_COUNT = {"n": agg.count()}
_ALL: Sequence[Picture] = (
    Picture(
        "tumbling",
        "Events on a line, and adjacent windows of ten minutes over them",
        _windows(windows.tumbling("10 minutes", time="ts", agg=_COUNT, delay="1 hour")),
        1.7,
    ),
    Picture(
        "windows",
        "Events on a line, and overlapping windows of 30 minutes, every ten minutes, over them",
        _windows(
            windows.hopping("30 minutes", "10 minutes", time="ts", agg=_COUNT, delay="1 hour")
        ),
    ),
    Picture(
        "cumulative",
        "Windows that start together and grow by ten minutes each, up to an hour",
        _windows(windows.cumulative("1 hour", "10 minutes", time="ts", agg=_COUNT, delay="1 hour")),
    ),
    Picture(
        "calendar",
        "One window of a day over all events of the day",
        _windows(windows.calendar("day", "Europe/Berlin", time="ts", agg=_COUNT, delay="1 hour")),
        1.7,
    ),
    Picture("sessions", "Sessions over their events, each with a gap at its end", _sessions, 1.9),
    Picture(
        "watermark",
        "Event time against micro-batch, and the watermark as a staircase",
        _watermark,
        3.4,
    ),
    Picture(
        "corrections", "What each micro-batch emitted, retracted and corrected", _corrections, 3.0
    ),
    Picture("late-share", "The share of late rows against the delay", _late_share),
    Picture(
        "joins",
        "The interval after each search, and the clicks: two match, one is outside",
        _interval,
    ),
    Picture(
        "patterns",
        "Logins of two users, and the match of three failures and a success",
        _matches,
        2.2,
    ),
    Picture("history", "Versions of two rows as intervals of validity", _history, 2.0),
    Picture(
        "sketches", "Error of HyperLogLog against its size, and the standard error", _error, 3.0
    ),
    Picture("state", "Rows of state after each micro-batch, which stay bounded", _state),
)
BY_NAME = {picture.name: picture for picture in _ALL}
README = Picture("straggler", "", _straggler, 2.9)
README_FILE = Path(__file__).parents[1] / "docs" / "pictures" / "straggler.svg"
# By operator.
PICTURES = {
    operator: BY_NAME[name]
    for operator, name in {
        "windows.tumbling": "tumbling",
        "windows.hopping": "windows",
        "windows.cumulative": "cumulative",
        "windows.calendar": "calendar",
        "windows.session": "sessions",
        "windows.running": "state",
        "joins.interval": "joins",
        "patterns.match": "patterns",
        "changes.apply": "history",
        "joins.asof": "history",
        "time.producers": "watermark",
        "time.guard": "watermark",
        "observe.account_late": "late-share",
        "observe.lateness_needed": "late-share",
    }.items()
}


def main(folder: str | None = None) -> None:
    """Write all pictures into a folder, or the one of the README into docs/."""
    if folder is None:
        README_FILE.write_bytes(README.svg())
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    for picture in _ALL:
        Path(folder, f"{picture.name}.svg").write_bytes(picture.svg())


if __name__ == "__main__":
    main(*sys.argv[1:])
